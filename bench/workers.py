"""Steps per second of the worker pool beside Gymnasium's AsyncVectorEnv and SB3's SubprocVecEnv.

    python bench/workers.py                       # 16 games of a cheap environment
    python bench/workers.py --env Pendulum-v1 --games 8 --json out.json

All vectorised environments live at the same time and take turns of a quarter of a second, in an order that
rotates, so that whatever else the machine does hits all alike. Each gets the same actions. The figure is
the median over the turns; the ratio is the median of the ratios of each turn.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

Step = Callable[[Any], Any]


class Cheap(gym.Env[Any, Any]):
    """Next to no work: what is measured is the way to and from the environment."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (8,), np.float32)
    action_space = gym.spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = np.zeros(8, np.float32)
        self.t = 0
        return self.state.copy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        self.state[int(action)] += 1
        return self.state.copy(), 1.0, self.t >= 200, False, {}


def contestants(
    env: str, games: int, workers: int
) -> dict[str, tuple[Step, Callable[[], None], Any]]:
    """Return step function, close function and action space by name."""
    from holdfast.worlds.foreign import ForeignOptions, ForeignWorld

    found: dict[str, tuple[Step, Callable[[], None], Any]] = {}
    name = "workers:Cheap" if env == "cheap" else env
    for mode in ("process", "serial", "threads"):
        options = ForeignOptions(games=games, mode=mode, workers=workers)  # type: ignore[arg-type]
        world = ForeignWorld(name, options)
        world.reset(seed=0)
        found[f"holdfast {mode}"] = (world.step, world.close, world.action_space)

    def make() -> gym.Env[Any, Any]:
        if env == "cheap":
            import workers

            made: gym.Env[Any, Any] = workers.Cheap()
            return made
        return gym.make(env)

    peer = gym.vector.AsyncVectorEnv(
        [make] * games,
        autoreset_mode=gym.vector.AutoresetMode.SAME_STEP,
    )
    peer.reset(seed=0)
    found["gymnasium async"] = (peer.step, peer.close, peer.action_space)
    sync = gym.vector.SyncVectorEnv(
        [make] * games, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP
    )
    sync.reset(seed=0)
    found["gymnasium sync"] = (sync.step, sync.close, sync.action_space)
    try:
        from stable_baselines3.common.vec_env import SubprocVecEnv
    except ImportError:
        print("stable_baselines3 is not installed: SubprocVecEnv is left out", file=sys.stderr)
    else:
        other = SubprocVecEnv([make] * games)
        other.reset()
        found["sb3 subproc"] = (other.step, other.close, peer.action_space)
    return found


def turn(step: Step, actions: list[Any], seconds: float, games: int) -> float:
    """Return steps of single environments per second over one turn."""
    count, began = 0, time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        step(actions[count % len(actions)])
        count += 1
    return count * games / spent


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="cheap")
    parser.add_argument("--games", type=int, default=16)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=0.25)
    parser.add_argument("--json", default="")
    args = parser.parse_args()
    field = contestants(args.env, args.games, args.workers)
    names = list(field)
    rates: dict[str, list[float]] = {name: [] for name in names}
    space = next(iter(field.values()))[2]
    space.seed(0)
    actions = [space.sample() for _ in range(64)]
    try:
        for step, _, _ in field.values():
            turn(step, actions, 0.1, args.games)
        for number in range(args.turns):
            for k in range(len(names)):
                name = names[(k + number) % len(names)]
                rates[name].append(turn(field[name][0], actions, args.seconds, args.games))
    finally:
        for _, close, _ in field.values():
            close()
    ours = rates["holdfast process"]
    rows = {}
    for name in names:
        ratio = statistics.median(a / b for a, b in zip(ours, rates[name], strict=True))
        rows[name] = {
            "steps_per_s": round(statistics.median(rates[name])),
            "min": round(min(rates[name])),
            "max": round(max(rates[name])),
            "process_is_times": round(ratio, 2),
        }
        print(
            f"{name:<18} {rows[name]['steps_per_s']:>9,} steps/s   "
            f"({rows[name]['min']:,} to {rows[name]['max']:,})   process is {ratio:.2f}x"
        )
    result = {"env": args.env, "games": args.games, "turns": args.turns, "rows": rows}
    if args.json:
        with open(args.json, "w") as file:
            json.dump(result, file, indent=2)


if __name__ == "__main__":
    main()
