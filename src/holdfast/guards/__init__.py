"""Guards by name, and the `[guards]` table that declares their rules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from holdfast.errors import ConfigError
from holdfast.guards.adaptive import AdaptiveConfig, AdaptiveGuard
from holdfast.guards.balance import BalanceConfig, BalanceGuard
from holdfast.guards.bootstrap import BootstrapConfig, BootstrapGuard
from holdfast.guards.collapse import CollapseConfig, CollapseGuard, DampenConfig, DampenGuard
from holdfast.guards.curriculum import CurriculumConfig
from holdfast.guards.gate import GateConfig, PenaltyGate
from holdfast.guards.guard import Guard
from holdfast.guards.health import NonFiniteConfig, NonFiniteGuard, PlateauConfig, PlateauGuard
from holdfast.guards.hints import HintsConfig, HintsGuard
from holdfast.guards.masking import MaskingConfig, MaskingGuard
from holdfast.guards.own import own_guards, switched_on
from holdfast.guards.progress import ProgressConfig, ProgressGuard
from holdfast.guards.protocol import Protocol, ProtocolConfig
from holdfast.guards.schedules import BoostConfig, BoostSchedule, DensityConfig, DensitySchedule
from holdfast.guards.stages import TailStage
from holdfast.guards.tails import TailLedger, TailsConfig

__all__ = ["Guard", "GuardsConfig", "fitted", "make_guards"]


@dataclass(frozen=True)
class GuardsConfig:
    """One table a guard; they decide in this order, and a guard can read the status of those before it."""

    nonfinite: NonFiniteConfig = field(default_factory=NonFiniteConfig)
    """NaN and infinity in an update."""
    plateau: PlateauConfig = field(default_factory=PlateauConfig)
    """No progress for a while."""
    progress: ProgressConfig = field(default_factory=ProgressConfig)
    """How far episodes come."""
    bootstrap: BootstrapConfig = field(default_factory=BootstrapConfig)
    """Scripts for a policy that does not get on."""
    protocol: ProtocolConfig = field(default_factory=ProtocolConfig)
    """Alternating self-play by phases."""
    balance: BalanceConfig = field(default_factory=BalanceConfig)
    """Self-play of both sides at once, kept in balance."""
    collapse: CollapseConfig = field(default_factory=CollapseConfig)
    """One side of self-play has collapsed."""
    dampen: DampenConfig = field(default_factory=DampenConfig)
    """Smaller steps while self-play is balanced."""
    masking: MaskingConfig = field(default_factory=MaskingConfig)
    """How soon the opponent of a pursuer is hidden."""
    tails: TailsConfig = field(default_factory=TailsConfig)
    """Replay of hard starts."""
    gate: GateConfig = field(default_factory=GateConfig)
    """How far the density penalty may go."""
    density: DensityConfig = field(default_factory=DensityConfig)
    """The density penalty by phase."""
    boost: BoostConfig = field(default_factory=BoostConfig)
    """The escape boost by phase."""
    adaptive: AdaptiveConfig = field(default_factory=AdaptiveConfig)
    """Values that follow how training gets on."""
    hints: HintsConfig = field(default_factory=HintsConfig)
    """What is usually wrong when the numbers look like this."""
    own: dict[str, Any] = field(default_factory=dict)
    """Guards of your own by name, `{slump = {guard = "my_guards:Slump", drop = 0.3}}`; typed as
    `--guards.own.slump.guard my_guards:Slump --guards.own.slump.drop 0.3`."""

    def on(self) -> list[str]:
        """Return the names of the guards that are enabled, in the order in which they decide."""
        enabled = [name for name in self.ours() if getattr(self, name).enabled]
        return [*enabled, *switched_on(self.own)]

    def ours(self) -> list[str]:
        """Return the names of the guards that ship with Holdfast, in the order in which they decide."""
        return [f.name for f in fields(self) if f.name != "own"]


def fitted(config: GuardsConfig, options: Any) -> GuardsConfig:
    """Return the config with the diagonal of the world's arena where a curriculum names none."""
    if not hasattr(options, "arena_width"):
        return config
    diagonal = math.hypot(options.arena_width, options.arena_height)

    def fit(levels: CurriculumConfig) -> CurriculumConfig:
        return levels if levels.diagonal else replace(levels, diagonal=diagonal)

    return replace(
        config,
        protocol=replace(config.protocol, curriculum=fit(config.protocol.curriculum)),
        balance=replace(config.balance, curriculum=fit(config.balance.curriculum)),
    )


def make_guards(
    config: GuardsConfig, stages: Sequence[TailStage] = (), options: Any = None
) -> list[Guard]:
    """Return the guards that the config enables.

    `stages` are the loaded starts of the tail ledger, `options` those of the world.
    """
    config = fitted(config, options)
    if config.gate.enabled and not (config.density.enabled or config.boost.enabled):
        raise ConfigError(
            "guards.gate says how far guards.density and guards.boost may go, and both are off. Type for example: "
            "--guards.density.enabled true"
        )
    tails = config.tails
    if tails.enabled and not (tails.stages or tails.mine or tails.force_reset_steps):
        raise ConfigError(
            "guards.tails has nothing to replay: guards.tails.stages names no file of starts, and guards.tails.mine is "
            "off. Type for example: --guards.tails.mine true"
        )
    made: list[tuple[bool, Guard]] = [
        (config.nonfinite.enabled, NonFiniteGuard(config.nonfinite)),
        (config.plateau.enabled, PlateauGuard(config.plateau)),
        (config.progress.enabled, ProgressGuard(config.progress)),
        (config.bootstrap.enabled, BootstrapGuard(config.bootstrap)),
        (config.protocol.enabled, Protocol(config.protocol)),
        (config.balance.enabled, BalanceGuard(config.balance)),
        (config.collapse.enabled, CollapseGuard(config.collapse)),
        (config.dampen.enabled, DampenGuard(config.dampen)),
        (config.masking.enabled, MaskingGuard(config.masking)),
        (config.tails.enabled, TailLedger(config.tails, stages)),
        (
            config.gate.enabled,
            PenaltyGate(config.gate, config.density.lock_until if config.density.enabled else 0),
        ),
        (config.density.enabled, DensitySchedule(config.density)),
        (config.boost.enabled, BoostSchedule(config.boost)),
        (config.adaptive.enabled, AdaptiveGuard(config.adaptive)),
        (config.hints.enabled, HintsGuard(config.hints)),
    ]
    enabled = [guard for on, guard in made if on]
    return [*enabled, *own_guards(config.own, config.ours())]
