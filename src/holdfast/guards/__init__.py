"""Guards by name, and the `[guards]` table that declares their rules."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.guards.guard import Guard
from holdfast.guards.health import (
    NonFiniteConfig,
    NonFiniteGuard,
    PlateauConfig,
    PlateauGuard,
)

__all__ = ["Guard", "GuardsConfig", "make_guards"]


@dataclass(frozen=True)
class GuardsConfig:
    """One table a guard."""

    nonfinite: NonFiniteConfig = field(default_factory=NonFiniteConfig)
    """NaN and infinity in an update."""
    plateau: PlateauConfig = field(default_factory=PlateauConfig)
    """No progress for a while."""


def make_guards(config: GuardsConfig) -> list[Guard]:
    """Return the guards that the config enables, in the order in which they decide."""
    guards: list[Guard] = []
    if config.nonfinite.enabled:
        guards.append(NonFiniteGuard(config.nonfinite))
    if config.plateau.enabled:
        guards.append(PlateauGuard(config.plateau))
    return guards
