"""The guard contract: signals in, decisions out, and nothing else.

A guard is a small state machine. It never touches networks, environments or files, and imports neither
torch nor a world, so it can be tested on a list of dicts and a recorded run can be replayed through a
changed guard. It reads what it needs from the signals of the update; a missing signal means that
nothing is known this time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from holdfast.records import Decision, Signals


class Guard(ABC):
    """Watches a run and decides by declared rules."""

    name: str
    """Key of the guard's table in the config and of its records in the journal."""

    reads_starts = False
    """True asks the loop for the `starts/...` signals: which starts began, ended and wait."""

    def initial(self, signals: Signals) -> list[Decision]:
        """Return what must be set before the first update."""
        return []

    def requeue(self, signals: Signals) -> list[Decision]:
        """Return what a world that was rebuilt between two updates needs again; `world/...` are its own values."""
        return []

    def replan(self, signals: Signals) -> list[Decision]:
        """Return what must be set otherwise because a run goes on, perhaps by a longer plan than it ended with."""
        return []

    def final(self, signals: Signals) -> list[Decision]:
        """Return what is to be recorded when the run is done."""
        return []

    @abstractmethod
    def step(self, signals: Signals) -> list[Decision]:
        """Read the signals of one update and return what should change now."""

    def light(self) -> str:
        """Return `green`, `yellow` or `red` for the progress panel."""
        return "green"

    def status(self) -> dict[str, Any]:
        """Return numbers that describe the guard's state, recorded with every update."""
        return {}

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return the guard's memory."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the guard's memory."""


def number(signals: Signals, name: str) -> float | None:
    """Return a numeric signal, or None where it is absent or not a number."""
    value = signals.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)
