"""Game-steps a second of the pursuit world, with random actions, autoreset and episode records.

python bench/pursuit_speed.py            # one thread
python bench/pursuit_speed.py --threads 2
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

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


def measure(options: dict[str, Any], games: int, threads: int, seconds: float) -> dict[str, float]:
    """Return game-steps a second by wall clock, by CPU time of this process, and of the quickest step.

    On a machine that others use too, the quickest step is nearest to what the world can do.
    """
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
    steps, best, wall, cpu = 0, np.inf, time.perf_counter(), time.process_time()
    while time.perf_counter() - wall < seconds:
        for act in acts:
            began = time.perf_counter()
            world.step_into(act, obs, rewards, term, trunc, mask)
            best = min(best, time.perf_counter() - began)
        steps += len(acts)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    world.close()
    return {
        "wall": steps * games / wall,
        "cpu": steps * games / cpu,
        "best": games / best,
    }


def main() -> None:
    """Print one line a case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--games", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0)
    args = parser.parse_args()
    for name, options in CASES.items():
        rate = measure(options, args.games, args.threads, args.seconds)
        print(f"{name:45s}", *(f"{key} {value / 1e6:5.2f} M/s " for key, value in rate.items()))


if __name__ == "__main__":
    main()
