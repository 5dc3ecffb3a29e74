"""By which rule a run of self-play counts as converged: that of its own guards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.guards import GuardsConfig, fitted
from holdfast.guards.curriculum import Curriculum
from holdfast.selfplay.verdict import By


@dataclass(frozen=True)
class Rule:
    """The gap is small for some evaluations in a row at the full level; the original's rule if a run has none."""

    eta: float = 0.10
    """The gap must be below this."""
    consecutive: int = 1
    """For so many evaluations in a row."""
    by: By = "interval"
    """By the whole interval or by the measured value."""
    top: float = 0.0
    """The full level; 0 without levels."""


def rule_of(guards: GuardsConfig, options: Any) -> Rule:
    """Return the rule that the guards of a run in a world with these options go by."""
    guards = fitted(guards, options)
    protocol, balance = guards.protocol, guards.balance
    top = 0.0
    for guard in (protocol, balance):
        levels = Curriculum(guard.curriculum)
        if guard.enabled and levels.active:
            top = levels.last + 1.0
    if not protocol.enabled or not protocol.converged_gap:
        return Rule(top=top)
    return Rule(protocol.converged_gap, protocol.converged_evaluations, protocol.converged_by, top)
