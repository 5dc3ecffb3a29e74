"""Alternate freezing: one side stays frozen until the other wins, then they change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

from holdfast.errors import ConfigError


@dataclass(frozen=True)
class FreezeConfig:
    """When the frozen side changes."""

    role: Literal["", "pursuer", "evader"] = ""
    """The side that is frozen at first; empty: none, the sides take turns."""
    switch: bool = True
    """Change sides when the training side wins; off, `role` stays frozen."""
    threshold: Annotated[float, Meta(ge=0, le=1)] = 0.6
    """The training side has won when its rate is above this."""
    evaluations: Annotated[int, Meta(ge=1)] = 1
    """For so many evaluations in a row."""
    schedule: str = ""
    """Thresholds from a step on, such as `0:0.6,2000000:0.7`."""
    until_steps: Annotated[int, Meta(ge=0)] = 0
    """From this step on the sides take turns; 0: never."""
    force_first_steps: Annotated[int, Meta(ge=0)] = 0
    """The first change comes at this step at the latest; 0: it waits."""
    force_steps: Annotated[int, Meta(ge=0)] = 0
    """Every change comes after so many steps at the latest; 0: it waits."""


class Freeze:
    """Which side is frozen, and since when."""

    def __init__(self, config: FreezeConfig) -> None:
        self.config = config
        self.schedule = parse_schedule(config.schedule)
        self.frozen: str = config.role
        self.wins = 0
        self.since = 0
        self.switches = 0

    @property
    def active(self) -> bool:
        """Whether a side is frozen now."""
        return self.frozen != ""

    @property
    def trains(self) -> str:
        """The side that trains."""
        return "evader" if self.frozen == "pursuer" else "pursuer"

    def threshold(self, steps: int) -> float:
        """Return the rate above which the training side has won."""
        found = self.config.threshold
        for begin, value in self.schedule:
            if steps >= begin:
                found = value
        return found

    def judge(self, capture: float, steps: int) -> bool:
        """Take one evaluation; return whether the sides changed, or none is frozen any more."""
        if not self.active:
            return False
        if self.config.until_steps and steps >= self.config.until_steps:
            self.frozen = ""
            return True
        if not self.config.switch:
            return False
        rate = capture if self.trains == "pursuer" else 1.0 - capture
        self.wins = self.wins + 1 if rate > self.threshold(steps) else 0
        if self.wins < self.config.evaluations:
            return False
        self.change(steps)
        return True

    def due(self, steps: int) -> int:
        """Return the number of steps after which the sides must change, if so many are over, else 0."""
        limit = self.config.force_steps
        if self.switches == 0 and self.config.force_first_steps:
            limit = self.config.force_first_steps
        return limit if self.active and limit and steps - self.since >= limit else 0

    def change(self, steps: int) -> None:
        """Freeze the side that trains, and let the other train."""
        self.frozen = self.trains
        self.wins, self.since = 0, steps
        self.switches += 1

    def state_dict(self) -> dict[str, Any]:
        """Return who is frozen, since when."""
        return {k: getattr(self, k) for k in ("frozen", "wins", "since", "switches")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        for name, value in state.items():
            setattr(self, name, value)


def parse_schedule(text: str) -> list[tuple[int, float]]:
    """Read `0:0.6,2000000:0.7` into steps and thresholds."""
    found = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        begin, _, value = item.partition(":")
        try:
            found.append((int(begin), float(value)))
            if found[-1][0] < 0 or not 0 <= found[-1][1] <= 1:
                raise ValueError
        except ValueError:
            raise ConfigError(
                f"guards.protocol.freeze.schedule: '{item}' is not 'steps:threshold' with a threshold from 0 to 1. Write for "
                "example '0:0.6,2000000:0.7'."
            ) from None
    return sorted(found)
