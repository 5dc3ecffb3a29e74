"""Schedules of world values by phase: the density penalty and the escape boost.

Both act after update u for update u + 1, and once before the first update (`initial`). They read
`phase/index`, `phase/first_update` and `phase/last_update`, and `phase/next_last_update` where it is known;
phases and updates count from 1. A decision is made only when the value changes.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from statistics import fmean, median
from typing import Annotated, Any, Literal

from msgspec import Meta

from holdfast.errors import ConfigError
from holdfast.guards.guard import Guard, number
from holdfast.guards.stages import parse_numbered, parse_pairs
from holdfast.records import Cause, Decision, Signals

CLOSE = 1e-12


@dataclass(frozen=True)
class Phase:
    """A phase and its updates, both inclusive; `last` 0 means not known yet."""

    index: int
    first: int
    last: int


def coming_phase(signals: Signals) -> Phase:
    """Return the phase of update `update + 1`: the present one, or the next when this one is over."""
    coming = int(signals.get("update", 0)) + 1
    phase = Phase(
        int(signals.get("phase/index", 1)),
        int(signals.get("phase/first_update", 1)),
        int(signals.get("phase/last_update", 0)),
    )
    if phase.last and coming > phase.last and phase.index < int(signals.get("phase/count", 1)):
        return Phase(phase.index + 1, phase.last + 1, int(signals.get("phase/next_last_update", 0)))
    return phase


@dataclass(frozen=True)
class DensityConfig:
    """The density penalty of each phase. Defaults are those of v36."""

    enabled: bool = False
    """Set the world's density penalty by phase."""
    targets: Annotated[tuple[float, ...], Meta(ge=0)] = (0, 0.02, 0.04, 0.05, 0.055, 0.06, 0.065)
    """Penalty of each phase; later phases keep the last."""
    ramp_phases: Annotated[tuple[int, ...], Meta(ge=1)] = (6, 7)
    """Phases that go to their target in a straight line instead of at once."""
    plateaus: Annotated[tuple[int, ...], Meta(ge=0)] = (0, 0, 6, 6, 4, 0, 0)
    """Updates at the start of each ramp phase that keep the value before it."""
    base: Annotated[float, Meta(ge=0)] = 0.0
    """Value before the first phase, where its ramp starts."""
    lock_value: float = 0.04
    """Largest penalty up to `lock_until`. 0 or less: no lock."""
    lock_until: Annotated[int, Meta(ge=0)] = 28
    """Last update under the lock. 0: no lock."""
    value: str = "density_penalty"
    """World value that is set."""


class DensitySchedule(Guard):
    """Sets the density penalty by phase, no further than the gate allows (`guard/gate/phase_limit`)."""

    name = "density"

    def __init__(self, config: DensityConfig) -> None:
        self.config = config
        self.value: float | None = None
        self.phase = 0
        self.locked = False
        self.limit = 0
        self._seen: dict[int, Phase] = {}

    def initial(self, signals: Signals) -> list[Decision]:
        """Return the value for the first update, whether it changes or not."""
        return self._set(signals, force=True)

    def step(self, signals: Signals) -> list[Decision]:
        return self._set(signals, force=False)

    def replan(self, signals: Signals) -> list[Decision]:
        return self._set(signals, force=False)

    def _set(self, signals: Signals, force: bool) -> list[Decision]:
        coming = int(signals.get("update", 0)) + 1
        limit = number(signals, "guard/gate/phase_limit")
        self.limit = self.limit if limit is None else int(limit)
        phase = coming_phase(signals)
        self._seen[phase.index] = phase
        self.phase = min(phase.index, self.limit) if self.limit > 0 else phase.index
        value = self._of(self._seen.get(self.phase, Phase(self.phase, 0, 0)), coming)
        locking = self.config.lock_value > 0 and coming <= self.config.lock_until
        self.locked = locking and value > self.config.lock_value
        value = min(value, self.config.lock_value) if locking else value
        if not force and self.value is not None and abs(value - self.value) <= CLOSE:
            return []
        before, self.value = self.value, value
        cause = Cause("phase/index", phase.index, self.limit or None)
        why = f"phase {self.phase}" + (
            f" (phase {phase.index}, the gate allows {self.limit})"
            if self.phase < phase.index
            else ""
        )
        why += f", locked at {self.config.lock_value:g}" if self.locked else ""
        old = "" if before is None else f" from {before:g}"
        message = f"{self.config.value}{old} to {value:g} for update {coming}: {why}"
        return [Decision("set_world", cause, name=self.config.value, value=value, message=message)]

    def _of(self, phase: Phase, update: int) -> float:
        """Return the scheduled value of an update in (or after) a phase, without the lock."""
        targets = self.config.targets or (self.config.base,)
        k = min(phase.index, len(targets)) - 1
        target = targets[k]
        start = targets[k - 1] if k > 0 else self.config.base
        if phase.index > len(targets) or phase.index not in self.config.ramp_phases:
            return target
        if not phase.first:
            return target
        # where the length of the coming phase is unknown, it is taken to be more than one update
        last = phase.last or phase.first + 1
        plateau = self.config.plateaus[k] if k < len(self.config.plateaus) else 0
        length = last - phase.first + 1
        if length <= 1:
            return target
        update = min(max(update, phase.first), last)
        begin = phase.first + plateau
        if plateau >= length or update < begin:
            return start
        span = last - begin
        if span <= 0:
            return target
        return start + (target - start) * (update - begin) / span

    def status(self) -> dict[str, Any]:
        return {
            "value": self.value,
            "phase": self.phase,
            "limit": self.limit,
            "locked": int(self.locked),
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            **self.status(),
            "seen": [[p.index, p.first, p.last] for p in self._seen.values()],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = None if state["value"] is None else float(state["value"])
        self.phase, self.limit = int(state["phase"]), int(state["limit"])
        self.locked = bool(state["locked"])
        self._seen = {int(p[0]): Phase(int(p[0]), int(p[1]), int(p[2])) for p in state["seen"]}


@dataclass(frozen=True)
class BoostConfig:
    """The escape boost of each phase, its floors and caps, and its adaptation. Defaults are v36's."""

    enabled: bool = False
    """Set the world's escape boost by phase."""
    base: Annotated[float, Meta(ge=0, le=1)] = 0.75
    """Boost of a phase that `phase_speeds` does not name, as a fraction of the top speed."""
    phase_speeds: str = "3:0.76,4:0.78,5:0.82,6:0.82,7:0.82"
    """Boost by phase, `phase:speed,...`."""
    phase_floors: str = "3:0.76,4:0.78,5:0.80,6:0.80,7:0.80"
    """Lowest boost by phase, `phase:speed,...`."""
    floor: Annotated[float, Meta(ge=0, le=1)] = 0.75
    """Lowest boost of a phase that `phase_floors` does not name."""
    penalty_caps: str = "0.05:0.8"
    """Highest boost from a density penalty on, `penalty:speed,...`."""
    adaptive: bool = True
    """Lower or raise the boost by how early the first fish of an episode die."""
    window: Annotated[int, Meta(ge=1)] = 4
    """Updates over which the signal is taken."""
    statistic: Literal["median", "mean"] = "median"
    """How the window is summed up."""
    lower: float = 12.0
    """Below this the boost goes to `low_speed`."""
    upper: float = 18.0
    """Above this the boost goes to `high_speed`."""
    low_speed: Annotated[float, Meta(ge=0, le=1)] = 0.76
    """Boost when deaths come early."""
    high_speed: Annotated[float, Meta(ge=0, le=1)] = 0.8
    """Boost when deaths come late."""
    min_update: Annotated[int, Meta(ge=0)] = 12
    """First update that adapts the boost."""
    stage_floors: str = ""
    """Lowest adapted boost by gate stage (from 0), `stage:speed,...`."""
    signal: str = "shoal/first_death_p10"
    """What is watched: the 10th percentile of the first death step in training, in steps."""
    value: str = "escape_boost_speed"
    """World value that is set."""

    def __post_init__(self) -> None:
        self.tables()
        self.caps()
        if not self.lower <= self.upper:
            raise ConfigError(f"lower = {self.lower:g} is above upper = {self.upper:g}; swap them.")

    def tables(self) -> tuple[dict[int, float], dict[int, float], dict[int, float]]:
        """Return speeds by phase, floors by phase, floors by gate stage."""
        return (
            parse_numbered(self.phase_speeds, "phase_speeds", low=0, high=1),
            parse_numbered(self.phase_floors, "phase_floors", low=0, high=1),
            parse_numbered(self.stage_floors, "stage_floors", low=0, high=1),
        )

    def caps(self) -> list[tuple[float, float]]:
        """Return (penalty, highest boost from it on)."""
        pairs = parse_pairs(self.penalty_caps, "penalty_caps", low=0, high=1)
        try:
            return [(float(penalty), speed) for penalty, speed in pairs.items()]
        except ValueError:
            raise ConfigError(
                f"penalty_caps = '{self.penalty_caps}' is not allowed. Write 'penalty:speed' joined by "
                "commas, for example '0.05:0.8'."
            ) from None


class BoostSchedule(Guard):
    """Sets the escape boost: by phase, raised to its floor, adapted to first deaths, capped by the penalty.

    Adaptation moves the phase's boost no higher than the phase sets it and no lower than its floor; a new
    phase begins with its own boost. Reads `guard/density/value` (or `world/density_penalty`) and
    `guard/gate/stage`.
    """

    name = "boost"

    def __init__(self, config: BoostConfig) -> None:
        self.config = config
        self._speeds, self._floors, self._stage_floors = config.tables()
        self._caps = config.caps()
        self.value: float | None = None
        self.phase = 0
        self.base = 0.0
        self.recent: deque[float] = deque(maxlen=config.window)
        self.metric: float | None = None
        self.penalty = 0.0
        self.stage = 0

    def initial(self, signals: Signals) -> list[Decision]:
        """Return the boost for the first update, whether it changes or not."""
        return self._set(signals, None, force=True)

    def step(self, signals: Signals) -> list[Decision]:
        stage = number(signals, "guard/gate/stage")
        self.stage = self.stage if stage is None else int(stage)
        return self._set(signals, self._adapt(signals), force=False)

    def replan(self, signals: Signals) -> list[Decision]:
        return self._set(signals, None, force=False)

    def _adapt(self, signals: Signals) -> Cause | None:
        """Move the base of the present phase; return why, or None."""
        config, seen = self.config, number(signals, self.config.signal)
        if seen is not None and math.isfinite(seen) and seen >= 0:
            self.recent.append(seen)
        self.metric = None
        if len(self.recent) == config.window:
            self.metric = (median if config.statistic == "median" else fmean)(self.recent)
        update, phase = int(signals.get("update", 0)), int(signals.get("phase/index", 1))
        if not config.adaptive or self.metric is None or update < config.min_update:
            return None
        if config.lower <= self.metric <= config.upper:
            return None
        early = self.metric < config.lower
        target = config.low_speed if early else config.high_speed
        floor = max(self._floor(phase), self._stage_floors.get(self.stage, 0.0))
        self.base = max(min(max(self._phase_base(phase), floor), target), floor)
        limit = config.lower if early else config.upper
        return Cause(config.signal, self.metric, limit, config.window)

    def _set(self, signals: Signals, why: Cause | None, force: bool) -> list[Decision]:
        coming = int(signals.get("update", 0)) + 1
        phase = coming_phase(signals).index
        for signal in ("guard/density/value", "world/density_penalty"):
            penalty = number(signals, signal)
            if penalty is not None:
                self.penalty = penalty
                break
        if phase != self.phase:
            self.phase, self.base, why = phase, self._phase_base(phase), None
        value, capped = self.base, False
        for penalty, cap in self._caps:
            if penalty <= self.penalty + CLOSE and value > cap:
                value, capped = cap, True
        if not force and self.value is not None and abs(value - self.value) <= CLOSE:
            return []
        before, self.value = self.value, value
        cause = why or Cause("phase/index", phase)
        old = "" if before is None else f" from {before:g}"
        message = f"{self.config.value}{old} to {value:g} for update {coming}: phase {phase}"
        message += f", {cause}" if why else ""
        message += f", capped at density penalty {self.penalty:g}" if capped else ""
        return [Decision("set_world", cause, name=self.config.value, value=value, message=message)]

    def _floor(self, phase: int) -> float:
        return self._floors.get(phase, self.config.floor)

    def _phase_base(self, phase: int) -> float:
        return max(self._speeds.get(phase, self.config.base), self._floor(phase))

    def status(self) -> dict[str, Any]:
        return {
            "value": self.value,
            "base": self.base,
            "phase": self.phase,
            "metric": self.metric,
            "penalty": self.penalty,
        }

    def state_dict(self) -> dict[str, Any]:
        return {**self.status(), "recent": list(self.recent), "stage": self.stage}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = None if state["value"] is None else float(state["value"])
        self.base, self.phase = float(state["base"]), int(state["phase"])
        self.metric = None if state["metric"] is None else float(state["metric"])
        self.penalty, self.stage = float(state["penalty"]), int(state["stage"])
        self.recent = deque(map(float, state["recent"]), maxlen=self.config.window)
