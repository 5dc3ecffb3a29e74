"""What `holdfast doctor` looks at: every finding has a name, a level, and the numbers behind it.

| check         | what is done                                                           | a failure  |
|---------------|------------------------------------------------------------------------|------------|
| disk          | space for the whole run against what is free; the directory is written | refused, 5 |
| contract      | shapes, masks, roles, values, queued starts over random play           | refused, 6 |
| space         | observations lie within their own space                                | a warning  |
| numbers       | no NaN or infinity in observations and rewards                         | refused, 6 |
| truncation    | a cut episode has a final observation and is followed by a first one   | refused, 6 |
| determinism   | two worlds with one seed and the same actions agree                    | refused, 6 |
| round trip    | a restored world goes on bit for bit                                   | refused, 6 |
| workers       | results do not depend on the number of threads or workers              | refused, 6 |
| rewards       | least, greatest, mean, deviation, share that is not 0                  | a warning  |
| ends          | how many episodes ended, and how                                       | a warning  |
| learner       | losses and parameters are finite after some updates                    | refused, 6 |
| speed         | two seconds of training; refused below run.min_sps                     | refused, 4 |

A foreign environment that is not deterministic, or cannot save its state, gets a warning only.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from holdfast.config import Config
from holdfast.errors import ConfigError, HoldfastError
from holdfast.preflight import Estimate, disk_budget, estimate, existing, hours
from holdfast.worlds import OURS, make_world
from holdfast.worlds.check import (
    check_bounds,
    check_determinism,
    check_round_trip,
    check_shape,
    check_starts,
    check_steps,
    check_values,
)
from holdfast.worlds.contract import World

Level = Literal["ok", "warning", "refused"]
GAMES = 8
"""Games with which a world is examined; the speed is measured with all."""
PLAY_S = 1.0
LONG_S = 24 * 3600.0
LARGE_REWARD = 100.0
TIGHT = 0.5
"""Share of the free space from which on a run is tight."""


@dataclass(frozen=True)
class Finding:
    """What one check has found."""

    check: str
    level: Level
    text: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    code: int = 6
    """Exit code if it is refused."""


def examine_machine(runs_dir: Path) -> Iterator[Finding]:
    """Look at what does not depend on the environment."""
    import psutil

    free_gb = psutil.disk_usage(str(existing(runs_dir))).free / 1e9
    writable = os.access(existing(runs_dir), os.W_OK)
    about = {"disk_free_gb": round(free_gb, 1), "writable": writable}
    if not writable:
        yield Finding("disk", "refused", f"{runs_dir} cannot be written", about, 5)
    elif free_gb < 1:
        text = f"only {free_gb:.2f} GB are free for runs, less than 1 GB"
        yield Finding("disk", "refused", text, about, 5)
    cores, memory = os.cpu_count() or 1, psutil.virtual_memory()
    load = os.getloadavg()[0]
    about = {
        "cores": cores,
        "load1": round(load, 2),
        "memory_gb": round(memory.total / 1e9, 1),
        "memory_free_gb": round(memory.available / 1e9, 1),
    }
    busy = load > cores
    text = (
        f"{cores} cores, load {load:.1f}, {about['memory_free_gb']} of {about['memory_gb']} GB free"
    )
    text += ": others use the machine, so speeds are too low" if busy else ""
    yield Finding("machine", "warning" if busy else "ok", text, about)


def examine(config: Config, runs_dir: Path, steps: int) -> Iterator[Finding]:
    """Look at an environment and at what a run in it would need."""
    name = config.world.name
    small = replace(config.world.options, games=min(GAMES, config.world.options.games))

    def make() -> World:
        return make_world(name, small)

    try:
        with contextlib.closing(make()) as world:
            about = spaces(config, world)
            yield Finding("world", "ok", f"{name}, {about['slots']} slots", about)
            yield from _contract(world, steps)
            yield from _round_trip(world, steps)
            yield from _play(config, world)
        findings = list(_determinism(name in OURS, make, steps))
        yield from findings
        if all(finding.level == "ok" for finding in findings):
            yield from _workers(name, small, steps)
        else:
            text = "not compared: the environment does not even repeat itself"
            yield Finding("workers", "warning", text)
        found = estimate(config, runs_dir)
    except HoldfastError as error:
        if isinstance(error, ConfigError):
            raise
        yield Finding("world", "refused", str(error), code=error.exit_code)
        return
    bad = [f"{found.nonfinite} losses or parameters are not finite after {found.rounds} updates"]
    yield _of("learner", bad if found.nonfinite else [], f"all finite after {found.rounds} updates")
    yield _speed(config, found)
    yield _disk(config, runs_dir, found)


def spaces(config: Config, world: World) -> dict[str, Any]:
    """Return what kind of world it is."""
    return {
        "world": config.world.name,
        "slots": config.world.options.games * world.slots_per_game,
        "observation": str(world.single_observation_space),
        "action": str(world.single_action_space),
        "saves_state": world.saves_state,
    }


def _contract(world: World, steps: int) -> Iterator[Finding]:
    found = check_shape(world)
    if not found:
        found = check_steps(world, steps, seed=7) + check_values(world) + check_starts(world, steps)
    bad = [text for text in found if "not finite" in text]
    cut = [text for text in found if "truncated" in text or "final_obs" in text]
    rest = [text for text in found if text not in bad and text not in cut]
    cut += _cut(world)
    yield _of("numbers", bad, f"no NaN or infinity in {steps} steps of random play")
    yield _of("truncation", cut, "a cut episode keeps its last observation, and a new one begins")
    yield _of("contract", rest, f"kept over {steps} steps of random play")
    outside = check_bounds(world, steps, seed=7)
    if outside:
        yield Finding("space", "warning", outside[0])


def _cut(world: World) -> list[str]:
    """Cut game 0 and return what is wrong with how it ends."""
    world.reset(seed=3)
    world.step(world.action_space.sample())
    slots = slice(0, world.slots_per_game)
    world.request_reset([0])
    obs, _, terminations, truncations, info = world.step(world.action_space.sample())
    over = terminations[slots].all() and not truncations[slots].any()
    if over:
        return []  # it ended by itself in this very step
    if not truncations[slots].any():
        return ["a game that was cut reports no truncation"]
    if (
        "final_obs" not in info
        or not np.asarray(info["_final_obs"])[slots][truncations[slots]].all()
    ):
        return ["a game that was cut has no final observation to bootstrap from"]
    # A world may begin where it ended: without a difference within the rows nothing can be told.
    same = np.array_equal(np.asarray(info["final_obs"])[slots], obs[slots])
    if same and obs[slots].any():
        return ["the final observation of a cut game is the first one of the next"]
    return []


def _round_trip(world: World, steps: int) -> Iterator[Finding]:
    if not world.saves_state:
        text = "cannot save its state: a resumed run begins new episodes, not bit for bit"
        yield Finding("round trip", "warning", text)
        return
    yield _of(
        "round trip", check_round_trip(world, steps, seed=7), "a restored world goes on bit for bit"
    )


def _determinism(ours: bool, make: Callable[[], World], steps: int) -> Iterator[Finding]:
    found = check_determinism(make, steps, seed=7)
    if found and not ours:
        text = f"{found[0]}: runs in it cannot be repeated"
        yield Finding("determinism", "warning", text)
        return
    yield _of("determinism", found, f"two worlds with one seed agree over {steps} steps")


def _workers(name: str, options: Any, steps: int) -> Iterator[Finding]:
    """Play the same with one and with two threads or workers."""
    kinds: dict[str, Any] = {}
    if any(f.name == "threads" for f in fields(options)):
        kinds = {f"threads {n}": replace(options, threads=n) for n in (1, 2)}
    elif any(f.name == "workers" for f in fields(options)):
        kinds = {"serial": replace(options, mode="serial")}
        kinds |= {f"workers {n}": replace(options, mode="process", workers=n) for n in (1, 2)}
    if not kinds:
        return
    seen: dict[str, bytes] = {}
    try:
        for kind, chosen in kinds.items():
            with contextlib.closing(make_world(name, chosen)) as world:
                seen[kind] = _trace(world, min(steps, 200))
    except ConfigError as error:
        yield Finding("workers", "warning", f"not compared: {error}")
        return
    first, *others = seen
    odd = [kind for kind in others if seen[kind] != seen[first]]
    differs = [f"'{first}' and '{odd[0]}' give other results"] if odd else []
    yield _of("workers", differs, f"the same results with {', '.join(seen)}")


def _trace(world: World, steps: int) -> bytes:
    obs, _ = world.reset(seed=11)
    parts = [obs.tobytes()]
    rng = np.random.default_rng(0)
    world.single_action_space.seed(0)
    choices = [world.single_action_space.sample() for _ in range(16)]
    for _ in range(steps):
        actions = np.array([choices[k] for k in rng.integers(16, size=world.num_envs)])
        parts += [np.asarray(part).tobytes() for part in world.step(actions)[:4]]
    return b"".join(parts)


def _play(config: Config, world: World) -> Iterator[Finding]:
    """Play at random for a while and sum up rewards and ends."""
    playing = world.reset(seed=0)[1]["mask"]
    world.action_space.seed(0)
    actions = [world.action_space.sample() for _ in range(16)]
    rewards: list[np.ndarray[Any, Any]] = []
    returns: list[float] = []
    ends: dict[str, int] = {}
    lengths: list[int] = []
    began = time.perf_counter()
    while time.perf_counter() - began < PLAY_S:
        _, reward, _, _, info = world.step(actions[len(rewards) % 16])
        rewards.append(reward[playing])
        playing = info["mask"]
        for episode in info.get("episodes", ()):
            ends[episode.ended] = ends.get(episode.ended, 0) + 1
            lengths.append(episode.steps)
            returns.append(float(episode.returns.mean()))
    yield _rewards(config, np.concatenate(rewards), returns)
    yield _ends(ends, lengths, len(rewards))


def _rewards(config: Config, paid: np.ndarray[Any, Any], returns: Sequence[float]) -> Finding:
    largest = float(np.abs(paid).max())
    about = {
        "least": float(paid.min()),
        "greatest": float(paid.max()),
        "largest_reward": largest,
        "mean": float(paid.mean()),
        "deviation": float(paid.std()),
        "not_zero_share": float((paid != 0).mean()),
        "return_mean": float(np.mean(returns)) if returns else None,
    }
    text = (
        f"from {about['least']:.3g} to {about['greatest']:.3g}, mean {about['mean']:.3g}, deviation "
        f"{about['deviation']:.3g}, {about['not_zero_share']:.0%} of the steps pay something"
    )
    if about["not_zero_share"] == 0:
        return Finding("rewards", "warning", f"random play is never paid: {text}", about)
    if largest > LARGE_REWARD and not config.learner.normalise_rewards:
        text = (
            f"larger than {LARGE_REWARD:g} and not normalised (learner.normalise_rewards): {text}"
        )
        return Finding("rewards", "warning", text, about)
    return Finding("rewards", "ok", text, about)


def _ends(ends: Mapping[str, int], lengths: Sequence[int], steps: int) -> Finding:
    about = {"ends": dict(ends), "length_mean": float(np.mean(lengths)) if lengths else None}
    if not lengths:
        text = f"no episode ended in {steps} steps of random play: check the ends and --max-steps"
        return Finding("ends", "warning", text, about)
    how = ", ".join(f"{count} {word}" for word, count in sorted(ends.items()))
    return Finding("ends", "ok", f"{how}; {np.mean(lengths):.0f} steps in the mean", about)


def _speed(config: Config, found: Estimate) -> Finding:
    about = {
        "env_steps_per_s": round(found.env_steps_per_s),
        "world_share": round(found.world_share, 3),
        "learn_share": round(found.learn_share, 3),
        "run_s": round(found.run_s, 1),
        "run_env_steps": found.env_steps,
        "device": found.device,
    }
    text = (
        f"{found.env_steps_per_s:,.0f} env steps/s ({found.device}; world {found.world_share:.0%}, learning "
        f"{found.learn_share:.0%}): {found.env_steps:,} steps take {hours(found.run_s)}"
    )
    wanted = config.run.min_sps
    if found.env_steps_per_s < wanted:
        return Finding("speed", "refused", f"below run.min_sps = {wanted:g}: {text}", about, 4)
    return Finding("speed", "warning" if found.run_s > LONG_S else "ok", text, about)


def _disk(config: Config, runs_dir: Path, found: Estimate) -> Finding:
    budget = disk_budget(config, runs_dir, found)
    about = {
        "need_mb": round(budget.need_bytes / 1e6, 1),
        "free_mb": round(budget.free_bytes / 1e6),
    }
    text = (
        f"about {about['need_mb']:,} MB for the run, {budget.checkpoints} checkpoints of "
        f"{found.checkpoint_bytes / 1e6:.1f} MB among it; {about['free_mb']:,} MB are free"
    )
    if budget.need_bytes > budget.free_bytes:
        return Finding("disk", "refused", f"it does not fit: {text}", about, 5)
    tight = budget.need_bytes > TIGHT * budget.free_bytes
    return Finding("disk", "warning" if tight else "ok", text, about)


def _of(check: str, problems: Sequence[str], good: str) -> Finding:
    if problems:
        return Finding(check, "refused", "; ".join(problems), {"count": len(problems)})
    return Finding(check, "ok", good)
