"""Before a long run: how fast it will be, how much it will write, and what its plan says.

`estimate` trains for two seconds on a throw-away loop; the run that follows is not touched by it. `holdfast doctor`
shows everything, `holdfast train` refuses what `run.min_sps` calls hopeless, `--dry-run` prints the plan.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.config import Config
from holdfast.errors import GuardStop
from holdfast.loop import Loop
from holdfast.overlap import rollout_state, settled
from holdfast.pace import describe
from holdfast.plan import make_plan
from holdfast.run import RunDirectory, build
from holdfast.slots import LearningSlots
from holdfast.tables import text

SECONDS = 2.0
LINE_BYTES = 4096
"""What one update writes to metrics, journal and TensorBoard, about."""
EPISODE_BYTES = 400


@dataclass(frozen=True)
class Estimate:
    """What two seconds of training have shown."""

    env_steps_per_s: float
    updates_per_s: float
    world_share: float
    """Share of the time that the world takes."""
    learn_share: float
    """Share of the time that learning takes."""
    device: str
    slots: int
    rounds: int
    """Rollouts and learner steps that were timed."""
    nonfinite: int
    """Losses and parameters that were not finite."""
    checkpoint_bytes: int
    updates: int
    """Updates of the whole run."""
    env_steps: int
    """Env steps of the whole run."""

    @property
    def run_s(self) -> float:
        """Seconds that the whole run would take."""
        return self.env_steps / max(self.env_steps_per_s, 1e-9)


def estimate(config: Config, runs_dir: Path, seconds: float = SECONDS) -> Estimate:
    """Train a copy of the run for about `seconds` and return its speed."""
    plain = settled(replace(config, run=replace(config.run, tensorboard=False, sinks=())))
    home = runs_dir if runs_dir.is_dir() else None
    with tempfile.TemporaryDirectory(prefix=".tmp-estimate-", dir=home) as folder:
        loop = build(plain, RunDirectory(Path(folder)), lambda line: None, lambda said: None)
        try:
            return _measure(loop, seconds)
        finally:
            loop.recorder.close()
            loop.world.close()


def _measure(loop: Loop, seconds: float) -> Estimate:
    config = loop.phase.learner
    steps, replay = config.steps, config.replay
    short = max(1, min(steps, int(seconds / 4 / max(_step_s(loop, seconds / 8), 1e-9))))
    if replay.enabled and replay.mode == "sequence" and replay.length:  # sequences stay whole
        short = max(short // replay.length, 1) * replay.length
    # What is played before learning begins would tell nothing of a run.
    loop.team.configure(replace(config, steps=short, sac=replace(config.sac, warmup=0)))
    loop.seat()
    size = sum(seat.rollout.rewards.size for seat in loop.feed.seats)
    world = learn = whole = 0.0
    rounds, bad, warm = 0, 0, False
    began = time.perf_counter()
    while True:
        at = time.perf_counter()
        gathered = loop.feed.take(0)
        collected = time.perf_counter()
        bad += int(loop.team.learn(loop.feed.seats)["health/nonfinite"])
        now = time.perf_counter()
        # The first round compiles; it counts only if there is no time for another.
        if warm or now - began >= seconds:
            rounds += 1
            world, whole = world + gathered.world_s, whole + now - at
            learn += now - collected
        elif not warm:
            began = now
        warm = True
        if rounds and now - began >= seconds:
            break
    slots = size // short
    total = _steps_of(loop)
    saved = state_bytes(loop.registry.state_dict())
    for learner in loop.team.learners.values():
        if learner.replay is not None:  # it grows until it is full
            full = learner.replay.bytes_after(total // len(loop.team.learners))
            saved += max(full - state_bytes(learner.replay.state_dict()), 0)
    if loop.feed.overlap:  # a checkpoint holds the whole rollout that was played ahead
        saved += state_bytes([rollout_state(s.rollout) for s in loop.feed.seats]) * steps // short
    return Estimate(
        env_steps_per_s=rounds * size / whole,
        updates_per_s=rounds * short / steps / whole,
        world_share=world / whole,
        learn_share=learn / whole,
        device=describe(next(iter(loop.team.learners.values()))),
        slots=slots,
        rounds=rounds,
        nonfinite=bad,
        checkpoint_bytes=saved,
        updates=loop.total,
        env_steps=total,
    )


def _steps_of(loop: Loop) -> int:
    """Return the env steps of the whole run; phases may have other games and steps."""
    slots_of = LearningSlots(loop.config, loop.world, loop.phase.options)
    rows = [(p.learner.steps * (p.last - p.first + 1), p.options) for p in loop.plan.phases]
    return sum(steps * slots_of(options) for steps, options in rows)


def _step_s(loop: Loop, seconds: float) -> float:
    """Return how long a step of the world takes, from as many as fit into `seconds`."""
    world, count = loop.world, 0
    world.action_space.seed(0)
    world.step(world.action_space.sample())
    began = time.perf_counter()
    while True:
        world.step(world.action_space.sample())
        count += 1
        spent = time.perf_counter() - began
        if spent >= seconds or count >= 100:
            return spent / count


def state_bytes(tree: Any) -> int:
    """Return about how many bytes a state takes in a checkpoint."""
    if isinstance(tree, Mapping):
        return sum(state_bytes(value) for value in tree.values())
    if isinstance(tree, list | tuple):
        return sum(state_bytes(value) for value in tree)
    if isinstance(tree, np.ndarray):
        return int(tree.nbytes)
    return len(tree) if isinstance(tree, bytes | str) else 16


def check_speed(config: Config, runs_dir: Path) -> None:
    """Raise if an estimate is below `run.min_sps`."""
    wanted = config.run.min_sps
    found = estimate(config, runs_dir)
    if found.env_steps_per_s < wanted:
        raise GuardStop(
            f"This run would make about {found.env_steps_per_s:,.0f} env steps/s ({found.device}), fewer than "
            f"run.min_sps = {wanted:g}; its {found.env_steps:,} steps would take {hours(found.run_s)}. "
            f"The world takes {found.world_share:.0%} of the time and learning {found.learn_share:.0%}. "
            "Take a smaller network or a faster world, or leave --min-sps out."
        )


@dataclass(frozen=True)
class Disk:
    """What a run will write, and what there is room for."""

    need_bytes: int
    free_bytes: int
    checkpoints: int
    """Checkpoints that are kept at the end."""


def disk_budget(config: Config, runs_dir: Path, found: Estimate) -> Disk:
    """Return about how many bytes the whole run will take on disk."""
    run = config.run
    saves = found.updates // run.checkpoint_every + 1
    milestones = saves // run.keep_every if run.keep_every else 0
    # One more is written before an old one is dropped, and the best is kept.
    held = min(saves, run.keep_last + milestones + 2)
    lines = found.updates * LINE_BYTES
    episodes = found.env_steps // 100 * EPISODE_BYTES // max(1, found.slots // games_of(config))
    need = held * found.checkpoint_bytes + lines + episodes
    return Disk(int(need), shutil.disk_usage(existing(runs_dir)).free, held)


def games_of(config: Config) -> int:
    """Return how many games a config runs at once."""
    return int(config.world.options.games)


def existing(path: Path) -> Path:
    """Return the path, or the nearest directory above it that is there."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def hours(seconds: float) -> str:
    """Return a time in the unit that people would use."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def plan_rows(config: Config) -> list[dict[str, Any]]:
    """Return the phases of a run in order: updates, env steps, and the settings that each one changes."""
    slots_of = LearningSlots(config)
    rows, after = [], 0
    for phase in make_plan(config, slots_of).phases:
        updates = phase.last - phase.first + 1
        after += updates * phase.learner.steps * slots_of(phase.options)
        rows.append(
            {
                "phase": phase.index,
                "name": phase.name,
                "first": phase.first,
                "last": phase.last,
                "updates": updates,
                "env_steps_after": after,
                "changes": {
                    **changed("world", config.world.options, phase.options),
                    **changed("learner", config.learner, phase.learner),
                },
            }
        )
    return rows


def changed(section: str, base: Any, other: Any) -> dict[str, str]:
    """Return the settings of `other` that differ from `base`, as one would type them."""
    return {
        f"{section}.{f.name}": text(getattr(other, f.name))
        for f in fields(base)
        if getattr(other, f.name) != getattr(base, f.name)
    }
