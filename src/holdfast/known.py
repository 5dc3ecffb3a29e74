"""Names in the settings of guards that can be checked before a run begins: values of world and learner, and signals."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from holdfast.errors import ConfigError, nearest
from holdfast.guards import GuardsConfig
from holdfast.guards.adaptive import Channel, parse_channels
from holdfast.store.schema import KINDS, WORLDS
from holdfast.worlds import FACTS

FACT = "fact of this world's episodes"


@dataclass(frozen=True)
class Known:
    """What a run has that guards may name."""

    world: str
    """What the signals of its episodes begin with: the name of one of our worlds, or `facts`."""
    world_values: Collection[str]
    options: Collection[str]
    """Names of the world's options; a value that is none cannot be given back."""
    learner_values: Collection[str]
    ranges: Mapping[str, tuple[type, float, float]]
    """From where to where a value of the world can be turned, as far as that is known."""
    facts: Collection[str]
    """Facts of the world's episodes; empty: only the world knows them."""
    roles: Sequence[str] | None
    """Roles that learn, each with a learner of its own; empty: one learner plays all; None: only the world knows them."""


def check_names(guards: GuardsConfig, known: Known) -> None:
    """Raise a ConfigError for a name that this run will never have."""
    bootstrap, adaptive, plateau = guards.bootstrap, guards.adaptive, guards.plateau
    if bootstrap.enabled and bootstrap.early_updates:
        key = "guards.bootstrap.early_value"
        allowed = [name for name in known.world_values if name in known.options]
        _one_of(key, bootstrap.early_value, "value of this world", allowed)
    _check_schedules(guards, known)
    if adaptive.enabled:
        for channel in parse_channels(adaptive.channels):
            _check_channel(channel, known)
        _check_signal(guards, "adaptive", adaptive.signal, known)
    if plateau.enabled:
        _check_signal(guards, "plateau", plateau.signal, known)


def _check_schedules(guards: GuardsConfig, known: Known) -> None:
    """Raise for a world value that the density, the boost or the ledger would turn in vain, and for their signals."""
    density, boost, gate, tails = guards.density, guards.boost, guards.gate, guards.tails
    turned = [
        (f"guards.{g}.value", c.value)
        for g, c in (("density", density), ("boost", boost))
        if c.enabled
    ]
    if tails.enabled and tails.force_reset_steps:
        turned.append(("guards.tails.force_reset_steps", "force_reset_steps"))
    if tails.enabled and known.facts:
        _one_of("guards.tails.success_fact", tails.success_fact, FACT, known.facts)
    for key, name in turned:
        _one_of(key, name, "value of this world", known.world_values)
    if boost.enabled and boost.adaptive:
        _check_signal(guards, "boost", boost.signal, known)
    if gate.enabled:
        for setting in ("early_death_signal", "p10_signal", "min_final_signal"):
            _check_signal(guards, "gate", getattr(gate, setting), known, setting)


def _check_channel(channel: Channel, known: Known) -> None:
    key = f"guards.adaptive.channels, '{channel.target}'"
    if channel.place == "world":
        _one_of(key, channel.name, "value of this world", known.world_values)
        _, low, high = known.ranges.get(channel.name, (float, -math.inf, math.inf))
        if channel.low < low or channel.high > high:
            raise ConfigError(
                f"{key}: {channel.low:g}..{channel.high:g} is more than this world takes. Allowed: {low:g}..{high:g}."
            )
        return
    if channel.role and known.roles is not None:
        if not known.roles:
            raise ConfigError(
                f"{key}: one learner plays all roles here, '{channel.role}' has none of its own. "
                f"Write: learner.{channel.name}"
            )
        _one_of(key, channel.role, "role that learns", known.roles)
    _one_of(key, channel.name, "value of a learner", known.learner_values)


def _check_signal(
    guards: GuardsConfig, reader: str, signal: str, known: Known, setting: str = "signal"
) -> None:
    """Raise unless the signal is of a kind that there is here, and its guard tells it before its reader decides."""
    key, kind = f"guards.{reader}.{setting}", KINDS["metrics"]
    first, _, rest = signal.partition("/")
    world = known.world
    others = {*WORLDS} - {world}
    if first in others or (first != world and kind.field(signal) is None):
        names = [f.name for f in kind.fields if f.name.split("/")[0] not in others]
        begin = dict.fromkeys(name.split("/")[0] + "/" for name in names if "/" in name)
        raise ConfigError(
            f"{key}: '{signal}' is no signal of this run.{nearest(signal, names)} Signals begin with "
            f"{', '.join(begin)}; docs/metrics.md has them all."
        )
    if first == world == FACTS and not known.facts:
        raise ConfigError(
            f"{key} = '{signal}' is told by the environment, and world.facts names nothing that is kept. "
            f"Type: --facts {rest}"
        )
    if first == world and known.facts:
        # Of first deaths the 10th percentile is told too.
        p10 = ["first_death_p10"] if "first_death_step" in known.facts else []
        _one_of(key, rest, FACT, [*known.facts, *p10])
    if first == "guard":
        names = guards.ours()
        before = names[: names.index(reader)]
        guard = rest.partition("/")[0]
        _one_of(key, guard, "guard that decides before", before)
        if not getattr(guards, guard).enabled:
            raise ConfigError(
                f"{key} = '{signal}' is told by guards.{guard}, which is off. "
                f"Type: --guards.{guard}.enabled true, or name another signal."
            )


def _one_of(key: str, name: str, what: str, allowed: Collection[str]) -> None:
    if name not in allowed:
        raise ConfigError(
            f"{key}: '{name}' is no {what}.{nearest(name, allowed)} "
            f"Allowed: {', '.join(sorted(allowed)) or 'none'}."
        )
