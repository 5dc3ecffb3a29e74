"""Stacks of pictures by index: every frame is kept once, and a stack is four row numbers.

    rows = stack_rows(begun, 4)            # begun [T+1, N]: row t is the first of an episode
    stack = obs[rows[t, n], n]             # [4, 84, 84], oldest first

A stack never reaches across the beginning of an episode: there it repeats the first frame. A rollout that goes on
from another begins with the last `stack - 1` rows of the one before.
"""

from __future__ import annotations

import numpy as np

from holdfast.records import Array, Bools
from holdfast.worlds.mario.machine import Bytes, Longs

SIDE = 84


def stack_rows(begun: Bools, stack: int) -> Longs:
    """Return `[T, N, stack]`: the rows that the stack of each row is made of, oldest first."""
    steps = len(begun)
    places = np.where(begun, np.arange(steps)[:, None], 0)
    first = np.maximum.accumulate(places, axis=0)
    back = np.arange(stack - 1, -1, -1)
    rows: Longs = np.maximum(np.arange(steps)[:, None, None] - back, first[:, :, None])
    return rows


class Stacker:
    """The last frames of every slot, for playing (probes, films) where there is no rollout to index."""

    def __init__(self, slots: int, stack: int) -> None:
        self.frames: Bytes = np.zeros((slots, stack, SIDE, SIDE), np.uint8)

    def begin(self, obs: Array, slots: Array | None = None) -> Bytes:
        """Fill the stacks of these slots (all, if none are named) with their first frame."""
        chosen = slice(None) if slots is None else slots
        self.frames[chosen] = obs[chosen][:, None]
        return self.frames

    def push(self, obs: Array, begun: Bools) -> Bytes:
        """Add the newest frame `[N, 84, 84]`; where `begun`, it is the first of an episode."""
        self.frames[:, :-1] = self.frames[:, 1:]
        self.frames[:, -1] = obs
        if begun.any():
            self.begin(obs, np.flatnonzero(begun))
        return self.frames
