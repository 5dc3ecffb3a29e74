"""The AMS-DRL protocol: who trains in which phase, when the levels rise, and when it is enough.

A phase S1, S2, ... trains one side against the other, frozen, until it has learned from its share of steps
and an evaluation has been made; then the levels are judged and the next side is chosen. With `phase_steps = 0`
a phase is one update (micro-phases), judged only at evaluations.

Who trains next, in this order: a role that is frozen for good; a free choice still owed to the evader after
an advance; the loser while a boost lasts; the pattern of `ratio`; else the other side. An owed phase is
inserted, and the pattern goes on after it where it stood; where the evader's turn comes anyway, that turn pays it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from msgspec import Meta

from holdfast.guards.curriculum import (
    RATE,
    Curriculum,
    CurriculumConfig,
    measured_rate,
    too_few,
)
from holdfast.guards.freeze import Freeze, FreezeConfig
from holdfast.guards.guard import Guard, number
from holdfast.records import Cause, Decision, Signals
from holdfast.selfplay.records import Rate
from holdfast.selfplay.verdict import By, Streak, ne_gap

PURSUER, EVADER = "pursuer", "evader"


@dataclass(frozen=True)
class ProtocolConfig:
    """Phases, levels and countermeasures of alternating self-play."""

    enabled: bool = False
    """Alternate the sides by this protocol."""
    phase_steps: Annotated[int, Meta(ge=0)] = 500_000
    """Environment steps that a side learns from in a phase; 0: one update."""
    warmup: tuple[int, ...] = ()
    """Steps of the first phases, such as 100000, 100000, 200000, 200000, 300000, 300000."""
    evader_factor: Annotated[float, Meta(gt=0)] = 1.0
    """Factor on the evader's steps where obstacles stand."""
    max_phases: Annotated[int, Meta(ge=0)] = 0
    """The run ends after so many phases; 0: never."""
    ratio: Annotated[int, Meta(ge=1)] = 1
    """Phases of the pursuer for each phase of the evader."""
    cold_start: bool = False
    """In the first phase of the plan only the evader trains (the navigation task)."""
    evader_first: bool = False
    """After an advance the evader trains first."""
    warm_start_steps: Annotated[int, Meta(ge=0)] = 0
    """After an advance the evader goes back to the milestone at which fewest of its games were captures, and learns
    so many steps against a random pursuer; 0 is off."""
    mixed_share: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Share of the games that stay at the distances of the level before."""
    protect: Annotated[float, Meta(ge=0)] = 0.0
    """Weight with which the evader's parameters are held after an advance (EWC); 0 is off."""
    protect_samples: Annotated[int, Meta(ge=1)] = 1024
    """Observations of the last rollout from which it is told what matters (EWC)."""
    protect_decay: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Share of what was held before that lives on at the next advance; 0 holds only the newest (EWC)."""
    boost_gap: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """The loser alone trains on when the gap of an evaluation is above this; 0 is off."""
    boost_phases: Annotated[int, Meta(ge=1)] = 20
    """For so many phases."""
    converged_gap: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """The run is done when the gap stays below this at the full level; 0 is off."""
    converged_evaluations: Annotated[int, Meta(ge=1)] = 1
    """For so many evaluations in a row."""
    converged_by: By = "interval"
    """The whole 95 % interval of the gap must be below, or, as in the original, the measured value."""
    freeze: FreezeConfig = field(default_factory=FreezeConfig)
    """One side stays frozen until the other has won for a while."""
    curriculum: CurriculumConfig = field(default_factory=CurriculumConfig)
    """The levels."""


class Protocol(Guard):
    """Runs the phases of alternating self-play."""

    name = "protocol"

    def __init__(self, config: ProtocolConfig) -> None:
        self.config = config
        self.levels = Curriculum(config.curriculum)
        self.freeze = Freeze(config.freeze)
        self.phase = 1
        self.turn = 0
        self.role = PURSUER
        self.begun = 0
        self.owed = 0
        self.boost: list[Any] = ["", 0]
        self.warming = 0
        self.streak = Streak(
            config.converged_gap, config.converged_evaluations, config.converged_by
        )
        self.told = False
        self.cold = config.cold_start
        self.gap = -1.0

    def initial(self, signals: Signals) -> list[Decision]:
        cause = Cause("update", 0)
        decisions = self._world_values(cause)
        if self.config.mixed_share:
            decisions.append(
                Decision("set_world", cause, name="mixed_share", value=self.config.mixed_share)
            )
        if self.cold:
            self.role = EVADER
        elif self.freeze.active:
            self.role = self.freeze.trains
        decisions += self._train(cause, "cold start" if self.cold else "S1", signals)
        if self.cold and self._cold_updates(signals) == 1:
            decisions.append(Decision("probe", cause))
        return decisions

    def step(self, signals: Signals) -> list[Decision]:
        if self.cold:
            return self._cold(signals)
        if self.warming:
            return self._warm(signals)
        rate = measured_rate(signals)
        env_steps = int(number(signals, "env_steps") or 0)
        due = self.freeze.due(env_steps)
        if not due and not self._full(signals):
            if self._nearly(signals):
                return [Decision("probe", Cause("steps in phase", self._steps(signals)))]
            return self._evaluated(signals, rate) if self.config.phase_steps == 0 else []
        if not due and rate is None and self.config.phase_steps:
            return [Decision("probe", Cause("steps in phase", self._steps(signals)))]
        cause = Cause(f"{self.role} steps", self._steps(signals), self._length(signals))
        if due:
            cause = Cause("env_steps since the last change", env_steps - self.freeze.since, due)
        # The milestone is kept before the evaluation is judged: a warm start changes the evader.
        decisions = self._milestone(rate, cause)
        if self.config.max_phases and self.phase >= self.config.max_phases:
            return decisions + self._end(signals, rate, cause)
        decisions += self._evaluated(signals, rate)
        if self.freeze.due(env_steps):
            self.freeze.change(env_steps)
        return decisions + self._next(signals, cause)

    def replan(self, signals: Signals) -> list[Decision]:
        """Go on with a cold start that only the end of the run had ended."""
        left = self._cold_updates(signals)
        cut = self.config.cold_start and not self.cold and signals.get("phase/index") == 1
        if not cut or left <= 0:
            return []
        self.cold, self.role = True, EVADER
        cause = Cause("update", signals.get("update"), signals.get("phase/last_update"))
        decisions = self._train(cause, "cold start", signals)
        return [*decisions, Decision("probe", cause)] if left == 1 else decisions

    # --- phases ---------------------------------------------------------------------------------

    def _steps(self, signals: Signals) -> int:
        return int(number(signals, f"selfplay/{self.role}_steps") or 0) - self.begun

    def _length(self, signals: Signals) -> int:
        config, i = self.config, self.phase - 1
        steps = config.warmup[i] if i < len(config.warmup) else config.phase_steps
        # Their number may be drawn from a range instead.
        names = ("world/n_obstacles", "world/n_obstacles_max")
        if self.role == EVADER and any((number(signals, name) or 0) > 0 for name in names):
            steps = int(steps * config.evader_factor)
        return steps

    def _full(self, signals: Signals) -> bool:
        return self._steps(signals) >= self._length(signals)

    def _nearly(self, signals: Signals) -> bool:
        """Whether the coming update fills the phase, so that it must be evaluated."""
        per_update = number(signals, "rollout/steps") or 0.0
        left = self._length(signals) - self._steps(signals)
        return self.config.phase_steps > 0 and left <= per_update

    def _milestone(self, rate: Rate | None, cause: Cause) -> list[Decision]:
        """Keep the pair of a phase with its measured score; micro-phases keep none."""
        if rate is None or not self.config.phase_steps:
            return []
        facts = {"milestone": True, "score": rate.value}
        return [Decision("keep_pair", cause, name=f"S{self.phase}:{self.role}", value=facts)]

    def _end(self, signals: Signals, rate: Rate | None, cause: Cause) -> list[Decision]:
        """End the run after its last phase; no level moves, so that the pair stays as it was evaluated."""
        decisions = []
        if rate is not None:
            self.gap = ne_gap(rate).value
            decisions = self._converged(rate, signals, self.levels.full)
        if all(decision.kind != "finish" for decision in decisions):
            text = f"{self.phase} phases are done"
            decisions.append(Decision("finish", cause, name="phases", message=text))
        return decisions

    def _next(self, signals: Signals, cause: Cause) -> list[Decision]:
        """End the phase: choose who trains."""
        self.phase += 1
        old, self.role = self.role, self._choose()
        self.begun = int(number(signals, f"selfplay/{self.role}_steps") or 0)
        # A warm start comes between: its end begins the phase.
        if not self.warming and (self.role != old or self.config.phase_steps):
            return self._train(cause, f"S{self.phase}", signals)
        return []

    def _choose(self) -> str:
        if self.freeze.active:
            return self.freeze.trains
        boosted = self.boost[1] > 0
        pattern = [PURSUER] * self.config.ratio + [EVADER]
        role = str(self.boost[0]) if boosted else pattern[(self.turn + 1) % len(pattern)]
        if self.owed:
            self.owed -= 1
            if role != EVADER:
                return EVADER
        self.boost[1] -= boosted
        self.turn += not boosted
        return role

    def _train(self, cause: Cause, what: str, signals: Signals) -> list[Decision]:
        """Begin a phase; one that is filled by its first update is evaluated after that."""
        text = f"{what}: the {self.role} trains"
        decisions = [Decision("train_roles", cause, what, [self.role], message=text)]
        if not self.cold and self._nearly(signals):
            decisions.append(Decision("probe", cause))
        return decisions

    # --- evaluations ----------------------------------------------------------------------------

    def _evaluated(self, signals: Signals, rate: Rate | None) -> list[Decision]:
        """Judge one evaluation: levels, boost, freezing, convergence."""
        if rate is None:
            return []
        config = self.config
        self.gap = ne_gap(rate).value
        cause = Cause(RATE, rate.value)
        move = self.levels.judge(rate)
        decisions = self.levels.too_few_games(signals)
        decisions += self._moved(move, rate, cause, signals) if move else []
        decisions += self._converged(rate, signals, self.levels.full and not move)
        if config.boost_gap and self.gap > config.boost_gap:
            loser = EVADER if rate.value > 0.5 else PURSUER
            self.boost = [loser, config.boost_phases]
            cause = Cause("gap", self.gap, config.boost_gap)
            text = f"the {loser} trains the next {config.boost_phases} phases"
            decisions.append(Decision("warn", cause, name="boost", message=text))
        switched = self.freeze.judge(rate.value, int(number(signals, "env_steps") or 0))
        if switched:
            text = "no side is frozen any more: they take turns"
            if self.freeze.active:
                text = f"the {self.freeze.trains} trains, the other side is frozen"
            decisions.append(Decision("warn", cause, name="freeze", message=text))
        return decisions

    def _converged(self, rate: Rate, signals: Signals, at_top: bool) -> list[Decision]:
        """End the run when the gap has been small for long enough at the full level."""
        config, decisions = self.config, []
        if not config.converged_gap:
            return []
        if config.converged_by == "interval" and not self.told:
            decisions = too_few(signals, config.converged_gap, "convergence")
            self.told = bool(decisions)
        if not at_top:
            self.streak.count = 0
        elif self.streak.step(rate):
            cause = Cause(
                "gap", ne_gap(rate).high, config.converged_gap, config.converged_evaluations
            )
            text = f"converged: the gap stayed below {config.converged_gap:g} at the full level"
            decisions.append(Decision("finish", cause, name="converged", message=text))
        return decisions

    def _moved(self, move: int, rate: Rate, cause: Cause, signals: Signals) -> list[Decision]:
        """Set the values of the new level, with what is to happen on an advance."""
        decisions = []
        if move > 0 and self.config.protect:
            text = "the evader's parameters are held"
            facts = {
                "weight": self.config.protect,
                "samples": self.config.protect_samples,
                "decay": self.config.protect_decay,
            }
            decisions.append(Decision("protect", cause, EVADER, facts, EVADER, message=text))
        decisions += self._world_values(cause)
        if move > 0:
            self.owed += self.config.evader_first
            if self.config.warm_start_steps:
                decisions += self._begin_warm(rate, cause, signals)
        return decisions

    def _world_values(self, cause: Cause) -> list[Decision]:
        values = self.levels.values()
        if values and self.config.mixed_share:
            before = self.levels.values(max(0, self.levels.place - 1))
            for name in ("min_init_distance", "max_init_distance"):
                values[f"mixed_{name}"] = before[name]
        level = f"level {self.levels.place + 1} of {self.levels.last + 1}"
        return [
            Decision(
                "set_world", cause, name=name, value=value, message=f"{level}: {name} {value:g}"
            )
            for name, value in values.items()
        ]

    # --- cold and warm starts -------------------------------------------------------------------

    def _cold(self, signals: Signals) -> list[Decision]:
        """The evader learns to drive until the first phase of the plan is over, and is evaluated then."""
        left = self._cold_updates(signals)
        cause = Cause("update", signals.get("update"), signals.get("phase/last_update"))
        if left > 0:
            return [Decision("probe", cause)] if left == 1 else []
        decisions = []
        rate = measured_rate(signals)
        if rate is not None:
            facts = {"milestone": True, "score": rate.value}
            decisions.append(Decision("keep_pair", cause, name="S0:evader", value=facts))
        self.cold = False
        self.role = self.freeze.trains if self.freeze.active else PURSUER
        self.begun = int(number(signals, f"selfplay/{self.role}_steps") or 0)
        return decisions + self._train(cause, "S1", signals)

    def _cold_updates(self, signals: Signals) -> int:
        """Return how many updates of the cold start are left."""
        last = number(signals, "phase/last_update") or 0
        return int(last - (number(signals, "update") or 0))

    def _begin_warm(self, rate: Rate, cause: Cause, signals: Signals) -> list[Decision]:
        """Put the evader back to its best milestone and let it learn against a random pursuer.

        The milestone of this phase, kept just now, is one of them: an evader that is at its best stays as it is.
        """
        kept = [
            (pair["score"], -pair["update"], pair["label"])
            for pair in signals.get("selfplay/pairs", [])
            if pair["milestone"]
        ]
        decisions = []
        if kept and min(kept)[0] < rate.value:
            best = min(kept)[-1]
            text = f"the evader starts from its best milestone, {best}"
            decisions.append(Decision("rollback", cause, name=best, role=EVADER, message=text))
        self.warming = int(number(signals, f"selfplay/{EVADER}_steps") or 0)
        self.warming += self.config.warm_start_steps
        text = "warm start: the evader trains against a random pursuer"
        return [
            *decisions,
            Decision("stand_in", cause, name="random", role=PURSUER, message=text),
            Decision("train_roles", cause, name="warm start", value=[EVADER]),
        ]

    def _warm(self, signals: Signals) -> list[Decision]:
        steps = int(number(signals, f"selfplay/{EVADER}_steps") or 0)
        if steps < self.warming:
            return []
        cause = Cause("evader steps", steps, self.warming)
        self.warming = 0
        self.begun = int(number(signals, f"selfplay/{self.role}_steps") or 0)
        return [
            Decision("stand_in", cause, name="", role=PURSUER),
            *self._train(cause, f"S{self.phase}", signals),
        ]

    # --- records --------------------------------------------------------------------------------

    def light(self) -> str:
        return "yellow" if self.gap > 0.8 else "green"

    def status(self) -> dict[str, Any]:
        return {
            "phase": 0 if self.cold else self.phase,
            "warming": int(self.warming > 0),
            "role": self.role,
            "level": self.levels.place + 1,
            "full_level": self.levels.full,
            "gap": self.gap,
        }

    def state_dict(self) -> dict[str, Any]:
        plain = ("phase", "turn", "role", "begun", "owed", "warming", "told", "cold", "gap")
        return {
            **{name: getattr(self, name) for name in plain},
            "boost": list(self.boost),
            "streak": self.streak.state_dict(),
            "levels": self.levels.state_dict(),
            "freeze": self.freeze.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            if name in ("levels", "freeze", "streak"):
                getattr(self, name).load_state_dict(value)
            else:
                setattr(self, name, list(value) if name == "boost" else value)
