"""Steps per second of the worker pool beside Gymnasium's AsyncVectorEnv and SB3's SubprocVecEnv.

    python bench/workers.py --write               # 16 games of a cheap environment, into bench/WORKERS.md
    python bench/workers.py --env Pendulum-v1 --games 8 --json out.json

All vectorised environments live at the same time and take turns of a quarter of a second, in an order that
rotates, so that whatever else the machine does hits all alike. Each gets the same actions. The figure is
the median over the turns, and the ratio that of the medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

Step = Callable[[Any], Any]
OURS, PEER, BAR = "holdfast process", "gymnasium async", 1.5


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


def measure(args: argparse.Namespace) -> dict[str, list[float]]:
    """Return the steps/s of every turn, by name."""
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
    return rates


def summarise(rates: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Return median, least and greatest steps/s of each, and how many times as fast our workers are."""
    ours = statistics.median(rates[OURS])
    return {
        name: {
            "steps_per_s": round(statistics.median(found)),
            "min": round(min(found)),
            "max": round(max(found)),
            "process_is_times": round(ours / statistics.median(found), 2),
        }
        for name, found in rates.items()
    }


def table(rows: dict[str, dict[str, float]]) -> list[str]:
    """Return the rows as a Markdown table."""
    lines = [
        "| | steps/s (median) | least to greatest | our workers are |",
        "|---|---|---|---|",
    ]
    for name, row in rows.items():
        lines.append(
            f"| {name} | {row['steps_per_s']:,} | {row['min']:,} to {row['max']:,} | "
            f"{row['process_is_times']:.2f}x |"
        )
    return lines


def verdict(rows: dict[str, dict[str, float]]) -> str:
    """Say whether the bar is met."""
    ratio = rows[PEER]["process_is_times"]
    return f"Bar: at least {BAR}x {PEER}. Measured {ratio:.2f}x: {'met' if ratio >= BAR else 'NOT MET'}."


def report(args: argparse.Namespace, rows: dict[str, dict[str, float]]) -> str:
    """Return what is written to WORKERS.md."""
    versions = {name: version(name) for name in ("holdfast", "gymnasium", "numpy")}
    if any(name.startswith("sb3") for name in rows):
        versions["stable-baselines3"] = version("stable-baselines3")
    command = f"python bench/workers.py --env {args.env} --games {args.games} --turns {args.turns}"
    return "\n".join(
        [
            "# The worker pool beside its peers",
            "",
            f"Made by `{command} --write` on {time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, load "
            f"{os.getloadavg()[0]:.1f} at the end (the contestants themselves are a part of it).",
            ", ".join(f"{name} {number}" for name, number in versions.items()) + ".",
            "",
            f"{args.games} games of the environment '{args.env}', all contestants alive at the same time, "
            f"{args.turns} turns of {args.seconds:g} s each in rotating order. The ratio is that of the medians.",
            "",
            *table(rows),
            "",
            verdict(rows),
            "",
            "An environment as cheap as this one is fastest in one process (`serial`), which `--mode auto` "
            "chooses: it takes workers only from 0.2 ms a step on.",
            "",
        ]
    )


def main() -> None:
    """Measure, print a table, and write it down if so asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="cheap")
    parser.add_argument("--games", type=int, default=16)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--turns", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=0.25)
    parser.add_argument("--json", default="")
    parser.add_argument("--write", action="store_true", help="write bench/WORKERS.md")
    args = parser.parse_args()
    rows = summarise(measure(args))
    print("\n".join([*table(rows), "", verdict(rows)]))
    if args.json:
        result = {"env": args.env, "games": args.games, "turns": args.turns, "rows": rows}
        Path(args.json).write_text(json.dumps(result, indent=2) + "\n")
    if args.write:
        Path(__file__).with_name("WORKERS.md").write_text(report(args, rows))


if __name__ == "__main__":
    main()
