"""Probes: play fixed seeds with a frozen policy and measure.

A probe makes a world of its own with one game an episode, so all episodes run at once and each begins
from a literal seed. A foreign environment may be heavy: there are no more of them than in training, and each plays
its share of the seeds, fixed beforehand, so that short episodes do not crowd out long ones. What is measured beyond returns and lengths is the world's own matter: a module
`probes/<world>.py` with `prepare`, `measure` and `metric_names`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import gymnasium as gym
import numpy as np

from holdfast.errors import ConfigError, nearest
from holdfast.learn.roles import Player, RolePolicies, act, begin
from holdfast.learn.spec import check_actions
from holdfast.probes.headlines import COUNTS, RETURN_OF, RETURNS
from holdfast.probes.pairs import PREFIX
from holdfast.probes.rank import Rule
from holdfast.probes.stats import bootstrap_mean, wilson
from holdfast.records import Episode, EvalReport, Start
from holdfast.worlds import OURS, make_world, world_type
from holdfast.worlds.contract import World
from holdfast.worlds.events import Record

SEED_LIMIT = 2**31 - 1
METRICS = (*RETURNS, *COUNTS)
"""What is measured in every world."""


@dataclass(frozen=True)
class Measures:
    """What a world's own probe module found."""

    metrics: dict[str, float]
    samples: dict[str, Sequence[float]]
    """Per-episode values of the metrics that are means; intervals are made from these."""
    detail: dict[str, Any]
    shares: tuple[str, ...] = ()
    """Metrics whose values per episode are 0 or 1."""


@dataclass(frozen=True)
class ProbeSpec:
    """Which world, seeds and manner of play."""

    world: str
    options: Any
    seeds: tuple[int, ...]
    deterministic: bool = True
    protocol: str = ""
    values: tuple[tuple[str, float], ...] = ()
    """World values that guards have turned during training; options of the same names."""
    scripts: tuple[tuple[str, str], ...] = ()
    """Roles that a script of the world plays, and its name."""
    longest: int = 30_000
    """Steps after which an episode is cut; the environment may never end one."""


def draw_seeds(seed: int, count: int) -> tuple[int, ...]:
    """Return `count` episode seeds in [0, 2^31 - 2] that follow from one seed."""
    return tuple(int(s) for s in np.random.default_rng(seed).integers(0, SEED_LIMIT, count))


def draw_lot(seed: int, count: int, lot: int) -> tuple[int, ...]:
    """Return the `lot`-th (from 0) `count` seeds of one stream: fresh ones for every evaluation of a run."""
    return draw_seeds(seed, count * (lot + 1))[count * lot :]


def run_probe(
    spec: ProbeSpec,
    policy: Player,
    update: int = 0,
    env_steps: int = 0,
    progress: Callable[[int, int], None] | None = None,
    record: Record | None = None,
) -> EvalReport:
    """Play every seed once and return the report; `record` says where a foreign world writes its events."""
    module, options = _module(spec.world), played_options(spec)
    world = make_world(spec.world, options, record=record)
    world.set_clock(env_steps, ticks=False)
    try:
        check_fits(policy, world.single_action_space)
        episodes = play(
            world,
            policy,
            spec.seeds,
            spec.deterministic,
            progress,
            scripts=spec.scripts,
            longest=spec.longest,
        )
    finally:
        world.close()
    returns = [float(e.returns.mean()) for e in episodes]
    lengths = [float(e.steps) for e in episodes]
    of_roles = returns_of(world.game_roles, episodes)
    metrics = {
        **{name: float(np.mean(values)) for name, values in of_roles.items()},
        "return_mean": float(np.mean(returns)),
        "return_std": float(np.std(returns)),
        "return_min": float(np.min(returns)),
        "return_max": float(np.max(returns)),
        "length_mean": float(np.mean(lengths)),
        "episodes": float(len(episodes)),
    }
    samples: dict[str, Sequence[float]] = {
        **of_roles,
        "return_mean": returns,
        "length_mean": lengths,
    }
    detail: dict[str, Any] = {"returns": returns, "lengths": lengths}
    shares: tuple[str, ...] = ()
    if not module:
        told = facts_of(options.facts, episodes)
        metrics.update({name: float(np.mean(values)) for name, values in told.items()})
        samples.update(told)
        truths = getattr(world, "truths", ())
        shares = tuple(name for name in told if name in truths and {*told[name]} <= {0.0, 1.0})
    if module:
        measures = module.measure(episodes, options, spec.seeds)
        metrics.update(measures.metrics)
        samples.update(measures.samples)
        detail.update(measures.detail)
        shares = measures.shares
    detail["samples"] = samples
    cut = sum(e.steps >= spec.longest for e in episodes)
    if cut:
        detail["cut"] = (
            f"{cut} of {len(episodes)} evaluated episodes did not end and were cut after {spec.longest} steps: returns "
            "and lengths say how long that is, not how good."
        )
    detail["values"] = {name: getattr(options, name, value) for name, value in spec.values}
    return EvalReport(
        probe=spec.protocol or "probe",
        update=update,
        env_steps=env_steps,
        seeds=spec.seeds,
        metrics=metrics,
        intervals={name: _interval(values, name in shares) for name, values in samples.items()},
        detail=detail,
    )


def check_fits(policy: Player, space: gym.Space[Any]) -> None:
    """Raise if a policy, or one of those that share the roles, acts in another space."""
    for one in policy.policies.values() if isinstance(policy, RolePolicies) else (policy,):
        spec = getattr(one, "spec", None)
        if spec is not None:
            check_actions(spec, space)


def returns_of(roles: Sequence[str], episodes: Sequence[Episode]) -> dict[str, list[float]]:
    """Return what each role won in every episode, by the name of its metric; `roles` are those of a game's slots.

    Where all slots have one role there is nothing to tell apart.
    """
    slots = {role: [k for k, r in enumerate(roles) if r == role] for role in dict.fromkeys(roles)}
    if len(slots) < 2:
        return {}
    return {
        RETURN_OF + role: [float(e.returns[own].mean()) for e in episodes]
        for role, own in slots.items()
    }


def facts_of(names: Sequence[str], episodes: Sequence[Episode]) -> dict[str, list[float]]:
    """Return what a foreign environment told of its episodes, by name, where any was told."""
    told = {name: [float(e.facts[name]) for e in episodes if name in e.facts] for name in names}
    return {name: values for name, values in told.items() if values}


def _interval(values: Sequence[float], share: bool) -> tuple[float, float]:
    """Return the 95 % interval of a mean; with `share`, of values that are all 0 or 1."""
    return wilson(round(sum(values)), len(values)) if share else bootstrap_mean(values)


def played_options(spec: ProbeSpec) -> Any:
    """Return the options that a probe's world is made with: one game an episode (of a foreign world at most its `games`), the
    values in use, and over both what the protocol fixes."""
    module = _module(spec.world)
    options = turned(spec.options, dict(spec.values))
    if module:
        return module.prepare(replace(options, games=len(spec.seeds)), spec.protocol)
    if spec.protocol:
        raise ConfigError(f"{spec.world} has no protocol '{spec.protocol}'; leave --protocol out.")
    return replace(options, games=min(len(spec.seeds), options.games))


def turned(options: Any, values: Mapping[str, Any]) -> Any:
    """Return a world's options with the values that guards have set; those of other names are none of its own."""
    known = {field.name for field in fields(options)}
    changes = {
        name: int(value) if isinstance(getattr(options, name), int) else value
        for name, value in values.items()
        if name in known
    }
    # Where one value ends another, the world's options know it.
    own = getattr(options, "turned", None)
    return replace(options, **changes) if own is None else own(changes)


def check_probe(spec: ProbeSpec, changes: Mapping[str, Any], rule: Rule) -> None:
    """Raise a `ConfigError` if the protocol is unknown or overrules one of the `changes` of `probe.world`, or if the rule
    that ranks checkpoints names what is never measured."""
    options = played_options(spec)
    for name in changes:
        mine, fixed = getattr(spec.options, name), getattr(options, name)
        if mine != fixed and name != "games":
            raise ConfigError(
                f"probe.world sets {name} to {mine!r}, but evaluations take {fixed!r}"
                + (f" by the protocol '{spec.protocol}'." if spec.protocol else ".")
                + " Leave one of them out."
            )
    for name in rule.names:
        check_measured("probe.best_by names", name, spec)


def check_measured(key: str, name: str, spec: ProbeSpec) -> None:
    """Raise a `ConfigError` if a probe never measures `name`; `key` begins the message."""
    module = _module(spec.world)
    roles = dict.fromkeys(world_type(spec.world).game_roles)
    measured = [*METRICS, *(RETURN_OF + role for role in roles if len(roles) > 1)]
    measured += module.metric_names(played_options(spec)) if module else spec.options.facts
    known = measured + [PREFIX + name for name in measured]
    # The roles of a foreign world are known when it is made.
    if name not in known and (module or not name.removeprefix(PREFIX).startswith(RETURN_OF)):
        raise ConfigError(
            f"{key} '{name}', which is not measured in this world.{nearest(name, known)} "
            f"There are: {', '.join(sorted(measured))}."
        )


def play(
    world: World,
    policy: Player,
    seeds: Sequence[int],
    deterministic: bool = True,
    progress: Callable[[int, int], None] | None = None,
    watch: Callable[[World], None] | None = None,
    scripts: Sequence[tuple[str, str]] = (),
    longest: int = ProbeSpec.longest,
) -> list[Episode]:
    """Return one episode a seed, in the order of the seeds; with fewer games than seeds, game g plays every `games`-th from
    the g-th on. An episode that could not begin from its seed is replaced by one more of the same game.

    `watch` is called with the world before every step (for pictures); `scripts` play their roles instead of
    the policy. What is not over after `longest` steps is cut.
    """
    slots = {role: [i for i, r in enumerate(world.roles) if r == role] for role, _ in scripts}
    games, stride = world.games, world.slots_per_game
    obs, _ = world.reset(seed=list(seeds[:games]))
    for place in range(games, len(seeds)):
        world.queue_starts([place % games * stride], [Start(seed=int(seeds[place]))])
    rng = None if deterministic else np.random.default_rng(list(seeds))
    found: list[list[Episode]] = [[] for _ in range(games)]
    share = [len(seeds[game::games]) for game in range(games)]
    steps = np.zeros(games, np.int64)
    begun = np.zeros(world.num_envs, np.bool_)
    begin(policy)
    done = 0
    while done < len(seeds):
        steps += 1
        endless = [g for g in np.flatnonzero(steps == longest).tolist() if len(found[g]) < share[g]]
        if endless:
            world.request_reset([game * stride for game in endless])
        if watch is not None:
            watch(world)
        actions = act(policy, obs, rng, begun)
        for role, name in scripts:
            actions[slots[role]] = world.scripted(name, role)
        obs, _, _, _, info = world.step(actions)
        begun[:] = False
        for episode in info.get("episodes", ()):
            game = episode.game
            if len(found[game]) < share[game]:
                found[game].append(episode)
                done += 1
            steps[game] = 0
            begun[game * stride : (game + 1) * stride] = True
        if progress is not None:
            progress(done, len(seeds))
    ordered = [_in_order(own, seeds[game::games]) for game, own in enumerate(found)]
    return [ordered[place % games][place // games] for place in range(len(seeds))]


def _in_order(episodes: Sequence[Episode], seeds: Sequence[int]) -> list[Episode]:
    """Return one episode a seed: the one that began from it, or in its place one that began from another."""
    left = list(episodes)
    placed: list[Episode | None] = []
    for seed in seeds:
        own = next((episode for episode in left if episode.start.seed == seed), None)
        placed.append(own)
        if own is not None:
            left = [episode for episode in left if episode is not own]
    return [left.pop(0) if episode is None else episode for episode in placed]


def _module(world: str) -> Any:
    if world not in OURS:
        return None
    return importlib.import_module(f"holdfast.probes.{world}")
