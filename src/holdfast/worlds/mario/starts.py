"""Starts of the mario world: a stage, or any moment of a running game.

    start = snapshot_start(world, game=3)                 # where game 3 stands now
    start = stage_start(MarioOptions(), "4-2", seed=7)    # a stage's beginning, for good
    world.queue_starts([0], [start])

A snapshot is the console's five arrays (4.6 KB), the furthest x in each area, and the picture; only the console must
be there. An episode that begins from it plays on bit for bit; its own clocks (steps, stagnation) begin at zero.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np

from holdfast.records import Start
from holdfast.worlds.mario.options import MarioOptions, parse_stages
from holdfast.worlds.mario.world import MarioWorld


def snapshot_start(
    world: MarioWorld,
    game: int,
    *,
    label: str = "",
    type: str = "tail",
    origin: str = "",
    id: str = "",
) -> Start:
    """Return the present moment of a game as a start; its id is made from what it holds, if none is given."""
    snapshot = world.snapshot(game)
    if not id:
        digest = hashlib.blake2b(digest_size=8)
        for name in sorted(snapshot):
            digest.update(np.ascontiguousarray(snapshot[name]).tobytes())
        id = digest.hexdigest()
    return Start(snapshot=snapshot, label=label, type=type, origin=origin, id=id)


def stage_start(options: MarioOptions, stage: str, seed: int = 0, *, type: str = "stage") -> Start:
    """Return the beginning of a stage as `seed` makes it, whatever the schedule of the world it is queued in."""
    parse_stages(stage)
    alone = replace(options, games=1, threads=1, stages=stage, stage_schedule="fixed", trail=0)
    world = MarioWorld(alone, seed=seed)
    try:
        start = snapshot_start(world, 0, label=stage, type=type, origin=f"stage {stage}")
        return replace(start, seed=seed, id=f"{stage}:{seed}")
    finally:
        world.close()
