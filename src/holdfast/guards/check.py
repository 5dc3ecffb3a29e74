"""A measured value against a threshold, as guards that judge evaluations use it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from holdfast.guards.guard import number
from holdfast.records import Cause, Signals


@dataclass(frozen=True)
class Check:
    """One criterion against its threshold."""

    signal: str
    value: float | None
    sign: str
    """`<=`, `>=`, and for failures `<`, `>`."""
    threshold: float
    window: int = 1

    def holds(self) -> bool:
        """Return whether the criterion is met; what was not measured never is."""
        if self.value is None:
            return False
        return {
            "<=": self.value <= self.threshold,
            ">=": self.value >= self.threshold,
            "<": self.value < self.threshold,
            ">": self.value > self.threshold,
        }[self.sign]

    def cause(self, window: int | None = None) -> Cause:
        """Return it as the cause of a decision."""
        return Cause(self.signal, self.value, self.threshold, window or self.window)


def measured(signals: Signals, name: str) -> float | None:
    """Return a finite numeric signal, or None."""
    value = number(signals, name)
    return value if value is not None and math.isfinite(value) else None
