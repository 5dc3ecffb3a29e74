"""How fast pursuit is: the world alone with random actions, autoreset and episode records, and self-play training.

    python bench/pursuit_speed.py                       # the world on one thread, training on all cores
    python bench/pursuit_speed.py --only world --threads 2
    python bench/pursuit_speed.py --out docs/pursuit.md # puts the table between its markers

Training is measured in whole runs by the command line: environment steps a second of an update, collecting, learning
and logging included. On a machine that others use too, the quickest is nearest to what it can do.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from many_runs import insert, trained

from holdfast.parallel import cores
from holdfast.store.journal import read_lines
from holdfast.worlds.pursuit import PursuitWorld

BASE: dict[str, Any] = {"arena_width": 10.0, "arena_height": 10.0, "max_steps": 600}
CASES: dict[str, dict[str, Any]] = {
    "full, 0 obstacles": {},
    "full, 3 obstacles, K=3": {"n_obstacles": 3, "n_obstacle_obs": 3},
    "masked 3 m + LOS, 3 obstacles": {
        "n_obstacles": 3,
        "n_obstacle_obs": 3,
        "partial_obs": True,
        "sensing_radius": 3.0,
        "combined_masking": True,
    },
    "frame, 3 obstacles, K=3": {"n_obstacles": 3, "n_obstacle_obs": 3, "observation": "frame"},
    "lidar for both, 3 obstacles": {"n_obstacles": 3, "observation": "sensors"},
    "full, 3 obstacles, safety filter for both": {
        "n_obstacles": 3,
        "n_obstacle_obs": 3,
        "safety": "both",
    },
}


CONFIGS = Path(__file__).resolve().parent.parent / "configs" / "pursuit"
TRAINING = {
    "64x64 pursuer, frozen 64x64 evader": ("hunt", "64,64"),
    "256x256 pursuer, frozen 256x256 evader": ("hunt", "256,256"),
    "best.toml, both learn (128x128)": ("best", "128,128"),
}
WARM = 5
"""Updates that are not counted: the first compile and start."""


def world_rates(
    options: dict[str, Any], games: int, threads: int, seconds: float
) -> tuple[float, float]:
    """Return game-steps a second of a world: on the whole, and in the quickest step."""
    world = PursuitWorld(games=games, threads=threads, **{**BASE, **options})
    world.reset(seed=0)
    rng = np.random.default_rng(0)
    space = world.action_space
    acts = [rng.uniform(space.low, space.high).astype(np.float32) for _ in range(8)]
    obs, _ = world.observe()
    n = world.num_envs
    rewards, term, trunc = np.zeros(n), np.zeros(n, bool), np.zeros(n, bool)
    mask = np.zeros(n, bool)
    for act in acts:
        world.step_into(act, obs, rewards, term, trunc, mask)
    steps, best, wall = 0, np.inf, time.perf_counter()
    while time.perf_counter() - wall < seconds:
        for act in acts:
            began = time.perf_counter()
            world.step_into(act, obs, rewards, term, trunc, mask)
            best = min(best, time.perf_counter() - began)
        steps += len(acts)
    wall = time.perf_counter() - wall
    world.close()
    return steps * games / wall, games / best


def training_rates(config: str, hidden: str, updates: int) -> tuple[float, float]:
    """Return environment steps a second of a run: in the middle update, and in the quickest."""
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder)
        words = ["--hidden", hidden, "--stagger", "0", "--learner.threads", str(cores())]
        if config == "hunt":
            trained(runs, "escape", CONFIGS / "escape.toml", [*words, "--updates", "1"])
        path = trained(runs, "run", CONFIGS / f"{config}.toml", [*words, "--updates", str(updates)])
        lines = read_lines(path / "metrics.jsonl")
        rates = [line["time/env_steps_per_s"] for line in lines][WARM:]
    return float(np.median(rates)), max(rates)


def main() -> None:
    """Print a line a case."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=["world", "training"], help="one half")
    parser.add_argument("--games", type=int, default=4096, help="games of the world alone")
    parser.add_argument("--threads", type=int, default=1, help="threads of the world alone")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each world")
    parser.add_argument("--updates", type=int, default=45, help="of each training")
    parser.add_argument("--out", default="", help="Markdown file with the markers to fill")
    args = parser.parse_args()
    lines = ["| | steps a second | quickest |", "|---|---|---|"]
    if args.only != "training":
        for name, options in CASES.items():
            found = world_rates(options, args.games, args.threads, args.seconds)
            lines.append(_row(f"world, {args.threads} thread(s): {name}", *found))
            print(lines[-1], flush=True)
    if args.only != "world":
        for name, (config, hidden) in TRAINING.items():
            found = training_rates(config, hidden, args.updates)
            lines.append(_row(f"training, {cores()} threads: {name}", *found))
            print(lines[-1], flush=True)
    if args.out:
        insert(Path(args.out), "\n".join(lines), "speed")


def _row(name: str, rate: float, best: float) -> str:
    return f"| {name} | {rate:,.0f} | {best:,.0f} |"


if __name__ == "__main__":
    main()
