"""Frames a second of our NES: no drawing, frame skip 4 with an 84x84 grey, every frame drawn.

    python bench/nes_speed.py [--machines 16] [--seconds 2]

Eight stages, a random mix of running and jumping to the right, one thread and two. `cpu` divides by
the processor time of the calling thread rather than by the wall clock: on a machine that others
use too, only that is comparable. With two threads only the wall clock means anything.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from holdfast.parallel import Threads
from holdfast.worlds.mario.boot import boot_stage
from holdfast.worlds.mario.nes import RIGHT, Machines
from holdfast.worlds.mario.rom import find_rom

STAGES = ((1, 1), (1, 2), (2, 2), (3, 1), (4, 3), (5, 4), (6, 1), (8, 1))
MODES = {
    "no drawing, skip 4": (4, False, False),
    "grey 84x84, skip 4": (4, True, False),
    "grey 84x84 of the brighter of two, skip 4": (4, True, True),
    "grey 84x84, every frame": (1, True, False),
}


def measure(run: Callable[[int], None], frames: int, seconds: float) -> tuple[float, float]:
    """Return the best frames/s of many short trials, by wall clock and by processor time."""
    by_wall, by_cpu = 0.0, 0.0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        wall, cpu = time.perf_counter(), time.thread_time()
        for step in range(10):
            run(step)
        by_wall = max(by_wall, 10 * frames / (time.perf_counter() - wall))
        by_cpu = max(by_cpu, 10 * frames / (time.thread_time() - cpu))
    return by_wall, by_cpu


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--machines", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    args = parser.parse_args()
    cartridge, n = find_rom(), args.machines
    began, cpu = time.perf_counter(), time.process_time()
    Machines(cartridge, 1).run(0, 1)
    print(
        f"first call {time.perf_counter() - began:.1f} s, {time.process_time() - cpu:.1f} s of processor "
        "(compiles, or loads what was compiled)"
    )
    starts = [boot_stage(cartridge, *stage) for stage in STAGES]
    presses = (RIGHT | np.random.default_rng(0).integers(0, 4, (64, n))).astype(np.uint8)
    grey = np.zeros((n, 84, 84), np.uint8)
    for threads in (1, 2):
        machines = Machines(cartridge, n, Threads(threads))
        for name, (skip, drawn, brightest) in MODES.items():
            for slot in range(n):
                machines.load_machine(slot, starts[slot % len(starts)])

            def run(step: int, machines: Machines = machines, skip: int = skip) -> None:
                out = grey if drawn else None  # noqa: B023
                machines.run(presses[step % 64], skip, grey=out, brightest=brightest)  # noqa: B023

            wall, by_cpu = measure(run, n * skip, args.seconds)
            tail = f", {by_cpu:9,.0f} cpu" if threads == 1 else ""
            print(
                f"{threads} thread{'s' if threads > 1 else ' '}  {name:42} {wall:9,.0f} frames/s{tail}"
            )


if __name__ == "__main__":
    main()
