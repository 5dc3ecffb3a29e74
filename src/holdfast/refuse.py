"""Refuses a run that could not do what its settings ask for, before anything of it is made."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import gymnasium as gym

from holdfast.config import Config
from holdfast.errors import ConfigError
from holdfast.guards import make_guards
from holdfast.known import Known, check_names
from holdfast.learn.learner import Learner
from holdfast.learn.options import check_samples
from holdfast.loop import make_plan
from holdfast.probes.headlines import headline
from holdfast.probes.rank import parse_rule
from holdfast.probes.runner import check_measured, check_probe, played_options
from holdfast.run import load_stages, probe_spec
from holdfast.selfplay.check import check_sides
from holdfast.selfplay.opponents import LEARN, players
from holdfast.worlds import world_type

SHAPES = {"mario": ("observation", "actions")}
"""Options on which the shape of the network depends, where `observation_size` does not say it."""


def refuse_unfit(config: Config) -> None:
    """Raise a `ConfigError` if the run could not do what its settings ask for."""
    refuse_scripts(config)
    refuse_probe(config)
    refuse_names(config)
    refuse_sides(config)
    refuse_samples(config)
    refuse_shapes(config)
    make_guards(config.guards, load_stages(config), config.world.options)


def refuse_probe(config: Config) -> None:
    """Raise a `ConfigError` for a probe that could not be played or ranked."""
    rule = parse_rule(config.probe.best_by or headline(config.world.name).rule)
    spec = probe_spec(config)
    check_probe(spec, config.probe.world, rule)
    if config.guards.gate.enabled:
        for setting, signal in config.guards.gate.reads().items():
            if signal.startswith("probe/"):
                metric = signal.removeprefix("probe/").removesuffix("_low").removesuffix("_high")
                check_measured(f"guards.gate.{setting} looks at", metric, spec)


def refuse_scripts(config: Config) -> None:
    """Raise if a script of the bootstrap guard is one that the world cannot play."""
    if config.guards.bootstrap.enabled:
        from holdfast.probes.forward import check_scripts

        check_scripts(config.world.name, config.guards.bootstrap.scripts())


def refuse_names(config: Config) -> None:
    """Raise if a guard names a value or a signal that this run will never have."""
    kind, learning = world_type(config.world.name), roles_of(config)
    if not config.selfplay.enabled:
        learning = ()
    elif learning is not None:
        who = players(config.selfplay, learning)
        learning = tuple(role for role, player in who.items() if player == LEARN)
    options = [f.name for f in fields(config.world.options)]
    values = (kind.value_names, options, Learner.value_names)
    known = Known(config.world.name, *values, kind.value_ranges, kind.fact_names, learning)
    check_names(config.guards, known)


def refuse_sides(config: Config) -> None:
    """Raise if settings of self-play contradict each other or could not act."""
    options, roles = config.world.options, roles_of(config)
    check_sides(config.selfplay, config.guards, options, config.novelty, roles)


def refuse_samples(config: Config) -> None:
    """Raise if a phase would certainly give a learner one sample a rollout."""
    for phase in make_plan(config, 1).phases:
        if _one_slot_a_game(config, phase.options):
            check_samples(phase.learner, phase.options.games)


def refuse_shapes(config: Config) -> None:
    """Raise if a phase or the probe has observations or actions that the network of the first phase does not fit."""
    first, *later = make_plan(config, 1).phases
    worlds = {f"phase {p.index} '{p.name}'": p.options for p in later}
    worlds["probe.world"] = played_options(probe_spec(config))
    for where, options in worlds.items():
        for name in SHAPES.get(config.world.name, ("observation_size",)):
            one, other = getattr(first.options, name, None), getattr(options, name, None)
            if one != other:
                raise ConfigError(
                    f"{where} gives the network {name.replace('_', ' ')} {other}, and the first phase {one}. One network "
                    "plays all of them: set the option that makes the difference in [world], for the whole run."
                )


def _one_slot_a_game(config: Config, options: Any) -> bool:
    """Return whether it is known before a world is made that each learner plays one slot of a game."""
    name, roles = config.world.name, roles_of(config)
    if roles is None:
        return config.selfplay.enabled or name in gym.registry
    return getattr(options, "fish", 1) == 1 and (config.selfplay.enabled or len(roles) == 1)


def roles_of(config: Config) -> tuple[str, ...] | None:
    """Return the roles of a game; those of a foreign world are known when it is made."""
    return world_type(config.world.name).game_roles or None
