"""Refuses a run that could not do what its settings ask for, before anything of it is made."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import gymnasium as gym

from holdfast.config import Config
from holdfast.errors import ConfigError, nearest
from holdfast.guards import GuardsConfig, make_guards
from holdfast.guards.adaptive import parse_channels
from holdfast.guards.stages import UNTYPED
from holdfast.known import Known, check_names
from holdfast.learn.learner import Learner
from holdfast.learn.options import IDLE, LearnerConfig, check_capacity, check_idle, check_samples
from holdfast.learn.spec import spec_from
from holdfast.plan import make_plan
from holdfast.probes.headlines import headline
from holdfast.probes.rank import parse_rule
from holdfast.probes.runner import check_measured, check_probe, played_options
from holdfast.run import load_stages, probe_spec
from holdfast.selfplay.check import check_levelled, check_levels, check_sides
from holdfast.selfplay.opponents import LEARN, frozen_of, players
from holdfast.selfplay.rule import levels_of
from holdfast.store.init_from import by_role
from holdfast.store.sink_kinds import check_sinks
from holdfast.store.weights import read_source
from holdfast.worlds import FACTS, OURS, make_world, world_type


def refuse_unfit(config: Config, runs_dir: Path) -> None:
    """Raise if a run in `runs_dir` could not do what its settings ask for."""
    check_sinks(config.run.sinks)
    refuse_sources(config, runs_dir)
    refuse_scripts(config)
    refuse_probe(config)
    refuse_names(config)
    refuse_sides(config)
    refuse_samples(config)
    refuse_idle(config)
    refuse_device(config.learner)
    refuse_unprobed(config)
    refuse_boost(config)
    stages = load_stages(config)
    refuse_types(config.guards, {stage.type for stage in stages})
    make_guards(config.guards, stages, config.world.options)
    refuse_other_networks(config)


def refuse_sources(config: Config, runs_dir: Path) -> None:
    """Raise if a policy that the run begins with, or plays against, is not there."""
    source, roles = config.run.init_from, roles_of(config)
    named = by_role(source) if source else {}
    if roles is None:  # which words are roles is known when the world is made
        named = {role: place for role, place in named.items() if not role}
    elif not named.keys() <= {"", *roles}:
        named = {"": source}
    for place in named.values():
        read_source(place, runs_dir)
    if roles is not None:
        frozen_of(config.selfplay, roles, runs_dir)


def refuse_probe(config: Config) -> None:
    """Raise a `ConfigError` for a probe that could not be played or ranked."""
    rule = parse_rule(config.probe.best_by or headline(config.world.name).rule)
    spec = probe_spec(config)
    check_probe(spec, config.probe.world, rule)
    for name, guard in turned_by(config).items():
        if name in config.probe.world:
            raise ConfigError(
                f"probe.world.{name} would do nothing: guards.{guard} sets {name}, and what it sets holds in evaluations "
                f"too. Leave out one of them, for example with: --guards.{guard}.enabled false"
            )
    if config.guards.gate.enabled:
        for setting, signal in config.guards.gate.reads().items():
            if signal.startswith("probe/"):
                metric = signal.removeprefix("probe/").removesuffix("_low").removesuffix("_high")
                check_measured(f"guards.gate.{setting} looks at", metric, spec)


def turned_by(config: Config) -> dict[str, str]:
    """Return the values of the world that guards of this run will set, and which guard does."""
    guards = config.guards
    found = {}
    if guards.bootstrap.enabled and guards.bootstrap.early_updates:
        found[guards.bootstrap.early_value] = "bootstrap"
    levels = levels_of(guards, config.world.options)
    if levels is not None:
        found |= dict.fromkeys(
            levels.values(), "protocol" if guards.protocol.enabled else "balance"
        )
    for name, guard in (("density", guards.density), ("boost", guards.boost)):
        if guard.enabled:
            found[guard.value] = name
    if guards.adaptive.enabled:
        channels = parse_channels(guards.adaptive.channels)
        found |= {c.name: "adaptive" for c in channels if c.place == "world"}
    return found


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
    turned = acting_values(config.learner, Learner.value_names)
    values = (kind.value_names, options, turned)
    ours = config.world.name in OURS
    facts = kind.fact_names if ours else config.world.options.facts
    world = config.world.name if ours else FACTS
    known = Known(world, *values, kind.value_ranges, facts, learning)
    check_names(config.guards, known)


def acting_values(config: LearnerConfig, names: Sequence[str]) -> list[str]:
    """Return those values of a learner that do something when they are turned."""
    idle = set(IDLE.get(config.kind, ()))
    if config.kind == "sac" and config.sac.auto_entropy:
        idle.add("entropy")
    return [name for name in names if name not in idle]


def refuse_sides(config: Config) -> None:
    """Raise if settings of self-play contradict each other or could not act."""
    options, roles = config.world.options, roles_of(config)
    check_sides(config.selfplay, config.guards, options, config.novelty, roles)
    check_levelled(config.guards)
    for phase in make_plan(config, 1).phases:
        check_levels(config.guards, phase.options)


def refuse_samples(config: Config) -> None:
    """Raise if a phase would certainly give a learner one sample a rollout, or rollouts that its memory cannot take."""
    for phase in make_plan(config, 1).phases:
        if _one_slot_a_game(config, phase.options):
            check_samples(phase.learner, phase.options.games)
            check_capacity(phase.learner, phase.options.games)


def refuse_other_networks(config: Config) -> None:
    """Raise if a phase or an evaluation would show the network other observations, or want other actions of it."""
    if config.world.name not in OURS:
        return
    phases = make_plan(config, 1).phases
    places = [(f"phase {p.index} ('{p.name}')", p.options) for p in phases]
    if config.probe.world:
        places.append(("probe.world", played_options(probe_spec(config))))
    base = replace(phases[0].options, games=1)
    wanted = ""
    for place, options in places:
        one = replace(options, games=1)
        if one == base:
            continue
        wanted = wanted or _network(config, base)
        found = _network(config, one)
        if found != wanted:
            raise ConfigError(
                f"{place} needs a network for {found}, and that of the run is for {wanted}. The network stays the same "
                "in all phases and evaluations: set this in [world], or leave it out."
            )


def _network(config: Config, options: Any) -> str:
    """Return in words what a network reads and chooses in a world with these options."""
    with contextlib.closing(make_world(config.world.name, options)) as world:
        seen, acts = world.single_observation_space, world.single_action_space
        spec = spec_from(
            config.learner, seen, acts, world.frame_stack, world.sensors, world.truth_size
        )
    kind = " x ".join(map(str, spec.nvec)) or f"{spec.outputs} numbers of"
    return f"observations of {seen.shape} {seen.dtype}, {spec.stack} at a time, and {kind} actions"


def refuse_idle(config: Config) -> None:
    """Raise if a phase has a setting of the learner that would do nothing, or asks its world for what it could not do."""
    tails = config.guards.tails
    for phase in make_plan(config, 1).phases:
        check_idle(phase.learner)
        check = getattr(phase.options, "check_training", None)
        if check is not None:
            check(tails.enabled and tails.mine)


def refuse_device(config: LearnerConfig) -> None:
    """Raise if the learner is to compute where it cannot."""
    if config.device in ("auto", "cpu"):
        return
    if config.kind == "fused":
        raise ConfigError(
            f"learner.device = {config.device!r} with kind = 'fused', which is compiled for the processor. Leave one of "
            "them out, or type: --learner torch"
        )
    from holdfast.learn.device import named  # torch takes a second to load

    named(config.device)


def refuse_unprobed(config: Config) -> None:
    """Raise if a guard is to decide by evaluations in a run that makes none before its end."""
    guards, every = config.guards, config.probe.every
    protocol, freeze = guards.protocol, guards.protocol.freeze
    if every or (protocol.enabled and protocol.phase_steps):  # the protocol asks for its own
        return
    judged = protocol.curriculum.kind != "none" or protocol.boost_gap or protocol.converged_gap
    waits = freeze.switch and not (freeze.force_steps or freeze.force_first_steps)
    thaws = freeze.role and (waits or freeze.until_steps)
    reads = {
        "gate": True,
        "balance": True,
        "dampen": True,
        "collapse": guards.collapse.rate_below > 0,
        "protocol": judged or thaws,
        "plateau": guards.plateau.signal.startswith("probe/"),
        "adaptive": guards.adaptive.signal.startswith("probe/"),
        "boost": guards.boost.adaptive and guards.boost.signal.startswith("probe/"),
    }
    for name, needed in reads.items():
        if needed and getattr(guards, name).enabled:
            raise ConfigError(
                f"guards.{name} decides by evaluations, and with probe.every = 0 there is none before the end of the run. "
                f"Add --probe.every 20, or leave it out: --guards.{name}.enabled false"
            )


def refuse_types(guards: GuardsConfig, staged: set[str]) -> None:
    """Raise if a threshold of the gate is for a type that no tail stage has; `staged` are the types of the stages."""
    tails, gate = guards.tails, guards.gate
    mined = {tails.mine_type} if tails.enabled and tails.mine and not staged else set()
    types = sorted((staged | mined) - {UNTYPED})
    for setting, kinds in gate.overrides().items() if gate.enabled else ():
        for kind in kinds:
            if kind not in types:
                raise ConfigError(
                    f"guards.gate.{setting}_by_type is for tail stages of the type '{kind}', and this run has none."
                    f"{nearest(kind, types)} Types of its stages: {', '.join(types) or 'none'}. Name one of them, or give a "
                    "stage the type in guards.tails.stages: 20:PATH|type=" + kind
                )


def refuse_boost(config: Config) -> None:
    """Raise if the boost guard turns a speed with which no phase begins its episodes."""
    boost = config.guards.boost
    speeds = ("escape_boost_speed", "escape_jitter")
    if not boost.enabled or boost.value not in speeds:
        return
    if not any(getattr(p.options, "escape_boost", True) for p in make_plan(config, 1).phases):
        raise ConfigError(
            f"guards.boost sets the world's {boost.value}, which does nothing with world.escape_boost = false. "
            "Add --world.escape-boost true, or leave it out: --guards.boost.enabled false"
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
