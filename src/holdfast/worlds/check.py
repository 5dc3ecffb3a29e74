"""A checker that explains every violation of the world contract.

    problems = check_world(lambda: holdfast.make("shoal", games=4, fish=5), steps=600)

Each problem says what the contract asks, what the world did, and where. An empty list means that the
world was exercised (reset, random actions, state round trip, queued starts, values) and kept it all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from holdfast.errors import ConfigError
from holdfast.records import Array, Start
from holdfast.worlds.contract import World

Step = tuple[Array, Array, Array, Array, dict[str, Any]]


def check_world(make: Callable[[], World], steps: int = 200, seed: int = 7) -> list[str]:
    """Exercise a world and return its violations in words."""
    problems: list[str] = []
    world = make()
    try:
        problems += check_shape(world)
        if problems:
            return problems
        problems += check_steps(world, steps, seed)
        problems += check_bounds(world, steps, seed)
        problems += check_values(world)
        if world.saves_state:
            problems += check_round_trip(world, steps, seed)
        problems += check_starts(world, steps)
    finally:
        world.close()
    problems += check_determinism(make, steps, seed)
    return problems


def check_shape(world: World) -> list[str]:
    """Counts, roles, spaces and the autoreset mode."""
    found = []
    n = world.num_envs
    if n != world.games * world.slots_per_game:
        found.append(
            f"num_envs is {n}, but games x slots_per_game is {world.games * world.slots_per_game}"
        )
    if len(world.roles) != n:
        found.append(f"roles names {len(world.roles)} slots, but there are {n}")
    if world.metadata.get("autoreset_mode") is not AutoresetMode.SAME_STEP:
        found.append(
            f"metadata['autoreset_mode'] is {world.metadata.get('autoreset_mode')}, not SAME_STEP"
        )
    for name in ("observation_space", "action_space"):
        space = getattr(world, name)
        if not space.shape or space.shape[0] != n:
            found.append(f"{name} is {space}, whose first axis is not the {n} slots")
    return found


def check_bounds(world: World, steps: int, seed: int) -> list[str]:
    """Whether observations lie within their own space, over random play."""
    space = world.single_observation_space
    if not isinstance(space, gym.spaces.Box):
        return []
    obs, _ = world.reset(seed=seed)
    world.action_space.seed(seed)
    for t in range(steps + 1):
        outside = (obs < space.low) | (obs > space.high)
        if outside.any():
            at = tuple(int(k) for k in np.argwhere(outside)[0])
            low, high = space.low[at[1:]], space.high[at[1:]]
            return [
                f"after {t} steps an observation holds {obs[at]:g}, which lies outside its space ({low:g} to {high:g})"
            ]
        obs = world.step(world.action_space.sample())[0]
    return []


def check_steps(world: World, steps: int, seed: int) -> list[str]:
    """Shapes, types, masks, ends and episode records over random play."""
    found: list[str] = []
    obs, info = world.reset(seed=seed)
    shape = (world.num_envs, *(world.single_observation_space.shape or ()))
    if obs.shape != shape:
        return [f"reset returned observations of shape {obs.shape}, not {shape}"]
    if "mask" not in info:
        found.append("reset returned no info['mask']")
    mask = info.get("mask", np.ones(world.num_envs, np.bool_))
    world.action_space.seed(seed)
    for t in range(steps):
        obs, rewards, terminations, truncations, info = world.step(world.action_space.sample())
        done = terminations | truncations
        where = f"at step {t + 1}"
        if obs.shape != shape or rewards.shape != shape[:1]:
            return [
                *found,
                f"{where} shapes are {obs.shape} and {rewards.shape}, not {shape}, {shape[:1]}",
            ]
        if obs.dtype != world.single_observation_space.dtype:
            found.append(
                f"{where} observations are {obs.dtype}, not {world.single_observation_space.dtype}"
            )
        if not np.isfinite(rewards).all() or not np.isfinite(obs).all():
            found.append(f"{where} observations or rewards are not finite")
        if (terminations & truncations).any():
            found.append(
                f"{where} slot {_first(terminations & truncations)} is terminated and truncated"
            )
        if (done & ~mask).any():
            found.append(
                f"{where} masked slot {_first(done & ~mask)} ended again: an end is reported once"
            )
        if (rewards[~mask] != 0).any():
            found.append(f"{where} a masked slot got a reward: it carries no decision")
        if truncations.any():
            if "final_obs" not in info:
                found.append(
                    f"{where} slot {_first(truncations)} was truncated without info['final_obs']"
                )
            elif not info["_final_obs"][truncations].all():
                found.append(f"{where} a truncated slot has no valid row in info['final_obs']")
        next_mask = info["mask"]
        for episode in info.get("episodes", ()):
            slots = slice(
                episode.game * world.slots_per_game, (episode.game + 1) * world.slots_per_game
            )
            if not next_mask[slots].any():
                found.append(
                    f"{where} game {episode.game} ended, but in its new episode every slot is masked"
                )
            if episode.start.seed is None and episode.start.snapshot is None:
                found.append(
                    f"{where} the episode of game {episode.game} does not say how it began"
                )
            if episode.returns.shape != (world.slots_per_game,):
                found.append(f"{where} returns has shape {episode.returns.shape}, not one a slot")
        mask = next_mask
        if len(found) > 20:
            break
    return found


def check_values(world: World) -> list[str]:
    """Values can be set, are read back, and unknown names are refused."""
    found = []
    for name in world.value_names:
        before = world.value(name)
        world.set_value(name, before)
        if world.value(name) != before:
            found.append(f"set_value({name!r}, {before}) reads back as {world.value(name)}")
    try:
        world.set_value("no_such_value", 1.0)
        found.append("set_value('no_such_value', 1) was accepted")
    except ConfigError:
        pass
    return found


def check_round_trip(world: World, steps: int, seed: int) -> list[str]:
    """After set_state(get_state()), stepping goes on bit for bit."""
    world.reset(seed=seed)
    world.action_space.seed(seed)
    actions = [world.action_space.sample() for _ in range(steps)]
    half = steps // 2
    for action in actions[:half]:
        world.step(action)
    state = world.get_state()
    bad = [key for key, value in state.items() if not isinstance(value, np.ndarray | bytes)]
    if bad:
        return [
            f"get_state()[{bad[0]!r}] is a {type(state[bad[0]]).__name__}, not an array or bytes"
        ]
    first = [world.step(action) for action in actions[half:]]
    world.set_state(state)
    second = [world.step(action) for action in actions[half:]]
    return [
        f"after set_state, step {t + 1} gives other results than before"
        for t, (a, b) in enumerate(zip(first, second, strict=True))
        if not _same(a, b)
    ][:1]


def check_starts(world: World, steps: int) -> list[str]:
    """A queued start is used by the next reset of its game and is named by its episode."""
    start = Start(seed=12345, label="check", type="check", origin="checker", id="check-1")
    world.reset(seed=1)
    world.queue_starts([0], [start])
    world.request_reset([0])
    seen: list[Start] = []
    for _ in range(max(steps, 2)):
        info = world.step(world.action_space.sample())[4]
        seen += [e.start for e in info.get("episodes", ()) if e.game == 0]
        if len(seen) == 1 and seen[0].id != start.id:
            world.request_reset([0])
        if len(seen) > 1:
            break
    if not seen:
        return ["request_reset([0]) did not end game 0"]
    if len(seen) < 2 or seen[1].id != start.id:
        return ["a start queued for game 0 was not the start of its next episode"]
    return []


def check_determinism(make: Callable[[], World], steps: int, seed: int) -> list[str]:
    """Two worlds with the same seed and actions agree bit for bit."""
    one, two = make(), make()
    try:
        a, b = one.reset(seed=seed)[0], two.reset(seed=seed)[0]
        if not np.array_equal(a, b):
            return [f"two resets with seed {seed} differ"]
        one.action_space.seed(seed)
        for t in range(steps):
            action = one.action_space.sample()
            if not _same(one.step(action), two.step(action)):
                return [f"two worlds with seed {seed} and the same actions differ at step {t + 1}"]
    finally:
        one.close()
        two.close()
    return []


def _same(a: Step, b: Step) -> bool:
    arrays = all(np.array_equal(x, y) for x, y in zip(a[:4], b[:4], strict=True))
    return arrays and np.array_equal(a[4]["mask"], b[4]["mask"])


def _first(flags: Array) -> int:
    return int(np.flatnonzero(flags)[0])
