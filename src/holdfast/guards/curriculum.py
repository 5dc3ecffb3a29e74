"""Levels of difficulty for pursuit: how far apart a game begins, and how many obstacles stand in it.

`discrete` walks six levels of the original; `smooth` moves the greatest first distance in small steps and
brings the obstacles in at a distance. A curriculum is judged at evaluations and answers with world values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

from holdfast.errors import ConfigError
from holdfast.guards.guard import number
from holdfast.records import Cause, Decision, Signals
from holdfast.selfplay.records import Rate as Measured
from holdfast.selfplay.verdict import By, Streak, games_needed

Rate = Annotated[float, Meta(ge=0, le=1)]
RATE = "probe/capture_rate"
LEVELS = (
    (2.0, 5.0, 0),
    (5.0, 15.0, 0),
    (2.0, 5.0, 3),
    (5.0, 8.0, 3),
    (5.0, 12.0, 3),
    (2.0, 15.0, 3),
)
"""Least and greatest first distance in metres, and obstacles, of the six discrete levels."""


@dataclass(frozen=True)
class CurriculumConfig:
    """How the levels rise and fall."""

    kind: Literal["none", "discrete", "smooth"] = "none"
    """Which levels there are."""
    diagonal: Annotated[float, Meta(ge=0)] = 0.0
    """Diagonal in metres, at 0.8 of which distances are capped; 0: that of the world's arena."""
    start: Annotated[float, Meta(gt=0)] = 5.0
    """Smooth: greatest first distance at the beginning, in metres."""
    end: Annotated[float, Meta(gt=0)] = 15.0
    """Smooth: greatest first distance at the end, in metres."""
    increment: Annotated[float, Meta(gt=0)] = 0.5
    """Smooth: metres a step."""
    obstacles_from: float = 8.0
    """Smooth: greatest first distance from which the obstacles stand, in metres."""
    obstacles: Annotated[int, Meta(ge=0)] = 3
    """Obstacles of the levels that have them."""
    min_obstacles: Annotated[int, Meta(ge=0)] = 0
    """Obstacles of the levels before."""
    rule: Literal["capture", "gap"] = "capture"
    """What advances: the pursuer's rate (the original's), or a small gap between the two sides."""
    capture_above: Rate = 0.7
    """Rule `capture`: advance above this capture rate."""
    min_escape: Rate = 0.0
    """Rule `capture`: and only at this escape rate or more."""
    min_evaluations: Annotated[int, Meta(ge=1)] = 1
    """Rule `capture`: evaluations at a level before it can advance."""
    gap_below: Annotated[float, Meta(gt=0, le=1)] = 0.15
    """Rule `gap`: advance when |SR_P - SR_E| stays below this."""
    gap_evaluations: Annotated[int, Meta(ge=1)] = 2
    """Rule `gap`: for so many evaluations in a row."""
    gap_by: By = "interval"
    """Rule `gap`: the whole 95 % interval must be below, or, as in the original, the measured value."""
    regress_escape: Rate = 0.02
    """Go back a level when the escape rate stays below this; 0 is off."""
    regress_evaluations: Annotated[int, Meta(ge=1)] = 3
    """For so many evaluations in a row."""

    def __post_init__(self) -> None:
        if self.kind == "smooth" and self.start > self.end:
            raise ConfigError(f"start = {self.start:g} is above end = {self.end:g}; swap them.")


class Curriculum:
    """Where in the levels a run stands."""

    def __init__(self, config: CurriculumConfig) -> None:
        self.config = config
        self.place = 0
        self.evaluations = 0
        self.balanced = Streak(config.gap_below, config.gap_evaluations, config.gap_by)
        self.hopeless = 0
        self.told = False

    @property
    def active(self) -> bool:
        """Whether there are levels at all."""
        return self.config.kind != "none"

    @property
    def last(self) -> int:
        """The highest place."""
        if self.config.kind == "discrete":
            return len(LEVELS) - 1
        if self.config.kind == "smooth":
            steps = (self.top - self.config.start) / self.config.increment
            return max(0, math.ceil(steps - 1e-9))
        return 0

    @property
    def top(self) -> float:
        """Greatest first distance of the full level."""
        return min(self.config.end, self._part(0.8))

    def _part(self, share: float) -> float:
        """Return a part of the diagonal; without one there is no cap."""
        return share * self.config.diagonal if self.config.diagonal else math.inf

    @property
    def full(self) -> bool:
        """Whether the highest level is reached."""
        return self.place >= self.last

    def values(self, place: int | None = None) -> dict[str, float]:
        """Return the world values of a place."""
        where = self.place if place is None else place
        config = self.config
        if config.kind == "none":
            return {}
        if config.kind == "discrete":
            low, high, obstacles = LEVELS[where]
            return {
                "min_init_distance": min(low, self._part(0.32)),
                "max_init_distance": min(high, self._part(0.8)),
                "n_obstacles": float(config.obstacles if obstacles else config.min_obstacles),
            }
        high = min(config.start + where * config.increment, self.top)
        many = high >= min(config.obstacles_from, self.top)
        return {
            "min_init_distance": 2.0,
            "max_init_distance": high,
            "n_obstacles": float(config.obstacles if many else config.min_obstacles),
        }

    def judge(self, rate: Measured) -> int:
        """Take SR_P of one evaluation; return 1 to advance, -1 to go back, 0 to stay, and move there."""
        config, capture, escape = self.config, rate.value, 1.0 - rate.value
        if not self.active:
            return 0
        self.evaluations += 1
        even = self.balanced.step(rate)
        self.hopeless = self.hopeless + 1 if escape < config.regress_escape else 0
        if not self.full and self._ready(capture, escape, even):
            return self._move(1)
        if self.place > 0 and self.hopeless >= config.regress_evaluations:
            return self._move(-1)
        return 0

    def too_few_games(self, signals: Signals) -> list[Decision]:
        """Say once if the evaluations have too few games to advance by the gap, however even the pair is."""
        config = self.config
        by_gap = self.active and config.rule == "gap" and config.gap_by == "interval"
        if not by_gap or self.full or self.told:
            return []
        found = too_few(signals, config.gap_below, "levels")
        self.told = bool(found)
        return found

    def _ready(self, capture: float, escape: float, even: bool) -> bool:
        config = self.config
        if config.rule == "gap":
            return even
        long_enough = self.evaluations >= config.min_evaluations
        return capture > config.capture_above and escape >= config.min_escape and long_enough

    def _move(self, by: int) -> int:
        self.place += by
        self.evaluations = self.hopeless = self.balanced.count = 0
        return by

    def state_dict(self) -> dict[str, Any]:
        """Return the place and the counts."""
        return {
            "place": self.place,
            "evaluations": self.evaluations,
            "balanced": self.balanced.count,
            "hopeless": self.hopeless,
            "told": self.told,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        for name in ("place", "evaluations", "hopeless"):
            setattr(self, name, int(state[name]))
        self.balanced.count = int(state["balanced"])
        self.told = bool(state.get("told", False))


def measured_rate(signals: Signals) -> Measured | None:
    """Return SR_P of this update's evaluation with its interval, if one was made."""
    rate = number(signals, RATE)
    if rate is None:
        return None
    low, high = number(signals, f"{RATE}_low"), number(signals, f"{RATE}_high")
    return Measured(rate, rate if low is None else low, rate if high is None else high)


def too_few(signals: Signals, gap: float, what: str) -> list[Decision]:
    """Return a warning if so few games can never show that the gap is below `gap`."""
    games, needed = number(signals, "probe/episodes"), games_needed(gap)
    if games is None or games >= needed:
        return []
    text = (
        f"{games:.0f} games cannot show a gap below {gap:g}, however even the pair is. "
        f"For a new run: --probe.episodes {needed}"
    )
    return [Decision("warn", Cause("probe/episodes", games, needed), name=what, message=text)]
