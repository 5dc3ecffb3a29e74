"""The reward as data: named components, their weights, and how the weights change with the run's env steps.

    reward = clip(scale * (progress + time + score + coins + power + milestone))
           + scale * (clear + death + stagnation + timeout)

The clip leaves the ends of an episode alone. What is counted of each component is its scaled share, and what a
clip took away is a component of its own, so the components of an episode add up to its return.

A weight is worth `first + (last - first) * min(env_steps / over, 1)` while it is annealed. Setting it live ends
that: from then on it is worth what was set, until it is unset. Kernels (`holdfast.jit`) take the column numbers as constants.
"""

from __future__ import annotations

import numpy as np

from holdfast.records import F64
from holdfast.worlds.mario.options import REWARDS, MarioOptions, parse_anneal

COMPONENTS = (
    "progress",
    "time",
    "score",
    "coins",
    "power",
    "milestone",
    "clear",
    "death",
    "stagnation",
    "timeout",
    "clipped",
)
"""What a reward is made of; columns of `Books.sums`."""

PROGRESS, TIME, SCORE, COINS, POWER, MILESTONE, CLEAR, DEATH, STAGNATION, TIMEOUT, CLIPPED = range(
    len(COMPONENTS)
)
WITHIN = CLEAR  # components below this one are inside the clip
SCALE, CLIP = 10, 11
"""Columns of the weights after those of the components."""

assert tuple(name.removeprefix("reward_") for name in REWARDS) == (
    *COMPONENTS[:CLIPPED],
    "scale",
    "clip",
)


class Weights:
    """The weights in use, `[12]` in the order of `options.REWARDS`."""

    def __init__(self, options: MarioOptions) -> None:
        self.first: F64 = np.array([getattr(options, name) for name in REWARDS])
        self.last: F64 = self.first.copy()
        self.over: F64 = np.zeros(len(REWARDS))
        """Env steps over which each is annealed; 0: it is not."""
        for entry in parse_anneal(options.anneal):
            k = REWARDS.index(entry.name)
            self.last[k], self.over[k] = entry.last, entry.env_steps
        self.now: F64 = self.first.copy()
        self._own = self.state()

    def set(self, name: str, value: float) -> None:
        """Set one weight until it is unset."""
        k = REWARDS.index(name)
        self.first[k] = self.last[k] = self.now[k] = value
        self.over[k] = 0.0

    def unset(self, name: str) -> None:
        """Let one weight be what the options say."""
        k = REWARDS.index(name)
        self.first[k], self.last[k], self.over[k] = self._own[:, k]
        self.now[k] = self.first[k]

    def at(self, env_steps: int) -> F64:
        """Return the weights after so many env steps; the array stays the same one."""
        if self.over.any():
            moving = self.over > 0.0
            share = np.minimum(env_steps / self.over[moving], 1.0)
            first, last = self.first[moving], self.last[moving]
            self.now[moving] = first + (last - first) * share
        return self.now

    def state(self) -> F64:
        """Return what `load` takes, `[3, 12]`."""
        return np.stack([self.first, self.last, self.over])

    def load(self, state: F64) -> None:
        """Go on with these weights."""
        self.first[:], self.last[:], self.over[:] = state
        self.now[:] = self.first
