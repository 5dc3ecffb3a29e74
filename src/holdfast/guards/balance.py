"""Keeps two sides that learn from each other in balance.

After each evaluation the interval of the pursuer's win rate is laid against a band. Inside the band both sides
learn; when the whole interval lies above it only the evader learns, below it only the pursuer, until the
interval reaches the band again. One-sided training has a budget: when it is used up without success both
learn again for a while. Who learns alone can meet past opponents in a share of its games beside the one that it loses
to. A side that wins next to nothing for several evaluations has collapsed: both go back to
the best-balanced pair of this level, a limited number of times. Balanced evaluations raise the level.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from msgspec import Meta

from holdfast.errors import ConfigError
from holdfast.guards.curriculum import Curriculum, CurriculumConfig, measured_rate
from holdfast.guards.guard import Guard, number
from holdfast.records import Cause, Decision, Signals

BOTH = ["pursuer", "evader"]
Rate = Annotated[float, Meta(ge=0, le=1)]


@dataclass(frozen=True)
class BalanceConfig:
    """The band, the budgets and the levels."""

    enabled: bool = False
    """Keep the sides in balance."""
    low: Rate = 0.4
    """Below this win rate only the pursuer learns."""
    high: Rate = 0.6
    """Above this win rate only the evader learns."""
    budget: Annotated[int, Meta(ge=1)] = 10
    """Evaluations of one-sided training before both learn again."""
    pause: Annotated[int, Meta(ge=0)] = 2
    """Evaluations for which both learn when the budget is used up."""
    past: Rate = 0.0
    """While one side learns alone: share of its games with the other learner in which a past opponent plays instead."""
    collapse_low: Rate = 0.05
    """A win rate below this is a collapse of the pursuer."""
    collapse_high: Rate = 0.95
    """A win rate above this is a collapse of the evader."""
    collapse_evaluations: Annotated[int, Meta(ge=1)] = 4
    """For so many evaluations in a row."""
    max_rollbacks: Annotated[int, Meta(ge=0)] = 5
    """Rollbacks of a run."""
    protect: Annotated[float, Meta(ge=0)] = 0.0
    """Weight with which the parameters of both sides are held after an advance (EWC); 0 is off."""
    protect_samples: Annotated[int, Meta(ge=1)] = 1024
    """Observations of the last rollout from which it is told what matters (EWC)."""
    protect_decay: Rate = 0.0
    """Share of what was held before that lives on at the next advance; 0 holds only the newest (EWC)."""
    curriculum: CurriculumConfig = field(default_factory=lambda: CurriculumConfig(rule="gap"))
    """The levels."""

    def __post_init__(self) -> None:
        for low, high in (("low", "high"), ("collapse_low", "collapse_high")):
            one, two = getattr(self, low), getattr(self, high)
            if one > two:
                raise ConfigError(f"{low} = {one:g} is above {high} = {two:g}; swap them.")


class BalanceGuard(Guard):
    """Decides from measured win rates who learns."""

    name = "balance"

    def __init__(self, config: BalanceConfig) -> None:
        self.config = config
        self.levels = Curriculum(config.curriculum)
        self.training = list(BOTH)
        self.mixed = dict.fromkeys(BOTH, 0.0)
        self.only = 0
        self.paused = 0
        self.lost = 0
        self.rollbacks = 0
        self.since = 0
        self.rate = -1.0

    def initial(self, signals: Signals) -> list[Decision]:
        cause = Cause("update", 0)
        return [*self._values(cause), Decision("train_roles", cause, "start", list(BOTH))]

    def step(self, signals: Signals) -> list[Decision]:
        measured = measured_rate(signals)
        if measured is None:
            return []
        rate = self.rate = measured.value
        interval = (measured.low, measured.high)
        update = int(number(signals, "update") or 0)
        decisions = self._collapse(rate, signals) + self.levels.too_few_games(signals)
        move = self.levels.judge(measured)
        if move:
            self.since = update
            cause = Cause("probe/capture_rate", rate, None, 1)
            if move > 0 and self.config.protect:
                decisions.append(self._protect(cause))
            decisions += self._values(cause)
        if self.config.collapse_low <= rate <= self.config.collapse_high:
            facts = {"score": rate}
            decisions.append(Decision("keep_pair", Cause("update", update), f"u{update}", facts))
        return decisions + self._turn(interval)

    def _turn(self, interval: tuple[float, float]) -> list[Decision]:
        """Choose who learns until the next evaluation."""
        config = self.config
        wanted = list(BOTH)
        cause = Cause("probe/capture_rate", interval, (config.low, config.high))
        if self.paused:
            self.paused -= 1
        elif interval[0] > config.high:
            wanted = ["evader"]
        elif interval[1] < config.low:
            wanted = ["pursuer"]
        self.only = self.only + 1 if len(wanted) == 1 else 0
        if self.only > config.budget:
            self.only, self.paused, wanted = 0, config.pause, list(BOTH)
        if wanted == self.training:
            return []
        self.training = wanted
        text = f"{' and '.join(wanted)} learn{'s' if len(wanted) == 1 else ''}"
        turn = Decision("train_roles", cause, "balance", wanted, message=text)
        return [turn, *self._mix(cause)]

    def _mix(self, cause: Cause) -> list[Decision]:
        """Let past opponents play for the side that does not learn."""
        found = []
        for role in BOTH:
            share = 0.0 if role in self.training else self.config.past
            if share != self.mixed[role]:
                self.mixed[role] = share
                text = (
                    f"past opponents play the {role} in {share:.0%} of the games of both learners"
                )
                found.append(Decision("mix", cause, "past", share, role, message=text))
        return found

    def _collapse(self, rate: float, signals: Signals) -> list[Decision]:
        config = self.config
        gone = rate < config.collapse_low or rate > config.collapse_high
        self.lost = self.lost + 1 if gone else 0
        if self.lost < config.collapse_evaluations or self.rollbacks >= config.max_rollbacks:
            return []
        kept = [p for p in signals.get("selfplay/pairs", []) if p["update"] >= self.since]
        if not kept:
            return []
        best = min(kept, key=lambda pair: (abs(pair["score"] - 0.5), -pair["update"]))
        # What was gone back to is not gone back behind again.
        self.lost, self.since = 0, int(best["update"])
        self.rollbacks += 1
        threshold = (config.collapse_low, config.collapse_high)
        cause = Cause("probe/capture_rate", rate, threshold, config.collapse_evaluations)
        text = f"one side wins everything: both go back to {best['label']}"
        return [Decision("rollback", cause, name=best["label"], message=text)]

    def _protect(self, cause: Cause) -> Decision:
        config = self.config
        facts = {
            "weight": config.protect,
            "samples": config.protect_samples,
            "decay": config.protect_decay,
        }
        text = "the parameters of both sides are held"
        return Decision("protect", cause, "both", facts, message=text)

    def _values(self, cause: Cause) -> list[Decision]:
        text = f"level {self.levels.place + 1} of {self.levels.last + 1}"
        return [
            Decision("set_world", cause, name=name, value=value, message=text)
            for name, value in self.levels.values().items()
        ]

    def light(self) -> str:
        if self.lost:
            return "red"
        return "yellow" if len(self.training) == 1 else "green"

    def status(self) -> dict[str, Any]:
        return {
            "level": self.levels.place + 1,
            "full_level": self.levels.full,
            "rollbacks": self.rollbacks,
            "one_sided": self.only,
        }

    def state_dict(self) -> dict[str, Any]:
        plain = ("only", "paused", "lost", "rollbacks", "since", "rate")
        return {
            **{name: getattr(self, name) for name in plain},
            "training": list(self.training),
            "mixed": dict(self.mixed),
            "levels": self.levels.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            if name == "levels":
                self.levels.load_state_dict(value)
            elif name == "mixed":
                self.mixed = dict(value)
            else:
                setattr(self, name, list(value) if name == "training" else value)
