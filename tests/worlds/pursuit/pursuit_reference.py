"""The recorded episodes of the original system, and a replay of them in our world."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.worlds.pursuit import PursuitOptions, PursuitWorld

FILE = Path(__file__).resolve().parents[4] / "shared" / "reference" / "pursuit.npz"


@cache
def reference() -> dict[str, Any]:
    if not FILE.is_file():
        pytest.skip(f"reference data not beside the clone: {FILE}")
    with np.load(FILE) as data:
        return {name: data[name] for name in data.files}


def config(letter: str) -> dict[str, Any]:
    return json.loads(str(reference()[f"{letter}_config"]))


def options(letter: str, **more: Any) -> PursuitOptions:
    return PursuitOptions.from_reference(config(letter), **more)


class Moment:
    """One recorded step of one game beside ours."""

    def __init__(
        self, world: PursuitWorld, g: int, t: int, done: bool, obs: Any, reward: Any, ends: Any
    ):
        self.g, self.t, self.obs, self.reward = g, t, obs, reward
        self.terminated, self.truncated = ends
        self.record = (world.finished if done else world.records)[g].copy()


def replay(letter: str, **more: Any) -> Iterator[Moment]:
    """Yield every recorded moment, t = 0 being the reset (reward None)."""
    ref = reference()
    seeds, length = ref[f"{letter}_seed"], ref[f"{letter}_length"]
    world = PursuitWorld(options(letter, games=len(seeds), **more))
    obs, _ = world.reset(seed=seeds.tolist())
    for g in range(len(seeds)):
        yield Moment(world, g, 0, False, obs[2 * g : 2 * g + 2], None, (False, False))
    for t in range(int(length.max())):
        act = np.stack([ref[f"{letter}_act_p"][:, t], ref[f"{letter}_act_e"][:, t]], axis=1)
        obs, rewards, term, trunc, info = world.step(act.reshape(2 * len(seeds), 2))
        for g in np.flatnonzero(t < length):
            done = bool(term[2 * g] or trunc[2 * g])
            assert done == (t + 1 == length[g]), "the episode ended at another step than recorded"
            rows = (info["final_obs"] if done else obs)[2 * g : 2 * g + 2]
            ends = (bool(term[2 * g]), bool(trunc[2 * g]))
            yield Moment(world, int(g), t + 1, done, rows, rewards[2 * g : 2 * g + 2], ends)
