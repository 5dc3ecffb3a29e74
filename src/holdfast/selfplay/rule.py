"""What the guards of a run of self-play lead to: the rule by which it counts as converged, and its full level."""

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
    protocol, levels = guards.protocol, levels_of(guards, options)
    top = levels.last + 1.0 if levels is not None else 0.0
    if not protocol.enabled or not protocol.converged_gap:
        return Rule(top=top)
    return Rule(protocol.converged_gap, protocol.converged_evaluations, protocol.converged_by, top)


def full_values(guards: GuardsConfig, options: Any) -> dict[str, float]:
    """Return the world values of the full level; none without levels."""
    levels = levels_of(guards, options)
    return {} if levels is None else levels.values(levels.last)


def levels_of(guards: GuardsConfig, options: Any) -> Curriculum | None:
    """Return the levels that the guards of a run go through in a world with these options."""
    guards = fitted(guards, options)
    for guard in (guards.protocol, guards.balance):
        levels = Curriculum(guard.curriculum)
        if guard.enabled and levels.active:
            return levels
    return None
