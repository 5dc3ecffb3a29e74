"""Guards by name, and the `[guards]` table that declares their rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.guards.gate import GateConfig, PenaltyGate
from holdfast.guards.guard import Guard
from holdfast.guards.health import NonFiniteConfig, NonFiniteGuard, PlateauConfig, PlateauGuard
from holdfast.guards.schedules import BoostConfig, BoostSchedule, DensityConfig, DensitySchedule
from holdfast.guards.stages import TailStage
from holdfast.guards.tails import TailLedger, TailsConfig

__all__ = ["Guard", "GuardsConfig", "make_guards"]


@dataclass(frozen=True)
class GuardsConfig:
    """One table a guard; they decide in this order, and a guard can read the status of those before it."""

    nonfinite: NonFiniteConfig = field(default_factory=NonFiniteConfig)
    """NaN and infinity in an update."""
    plateau: PlateauConfig = field(default_factory=PlateauConfig)
    """No progress for a while."""
    tails: TailsConfig = field(default_factory=TailsConfig)
    """Replay of hard starts."""
    gate: GateConfig = field(default_factory=GateConfig)
    """How far the density penalty may go."""
    density: DensityConfig = field(default_factory=DensityConfig)
    """The density penalty by phase."""
    boost: BoostConfig = field(default_factory=BoostConfig)
    """The escape boost by phase."""


def make_guards(config: GuardsConfig, stages: Sequence[TailStage] = ()) -> list[Guard]:
    """Return the guards that the config enables; `stages` are the loaded starts of the tail ledger."""
    made: list[tuple[bool, Guard]] = [
        (config.nonfinite.enabled, NonFiniteGuard(config.nonfinite)),
        (config.plateau.enabled, PlateauGuard(config.plateau)),
        (config.tails.enabled, TailLedger(config.tails, stages)),
        (config.gate.enabled, PenaltyGate(config.gate, config.density.lock_until)),
        (config.density.enabled, DensitySchedule(config.density)),
        (config.boost.enabled, BoostSchedule(config.boost)),
    ]
    return [guard for enabled, guard in made if enabled]
