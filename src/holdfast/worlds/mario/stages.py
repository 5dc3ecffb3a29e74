"""Which stage the next episode plays, and the booted consoles that it begins from.

The choice depends on the seed of the episode, the number of the game and of its episode, and (for `curriculum`) on
the clear rates so far, which are part of the world's state: a resumed run chooses as the run would have.
"""

from __future__ import annotations

from functools import cache
from itertools import takewhile

import numpy as np

from holdfast.records import F64
from holdfast.rng import MASK_63
from holdfast.worlds.mario.boot import boot_stage
from holdfast.worlds.mario.machine import Longs
from holdfast.worlds.mario.nes import State
from holdfast.worlds.mario.options import MarioOptions, Stage, parse_stages
from holdfast.worlds.mario.rom import Cartridge, find_rom

STAGE_DRAW, NOOP_DRAW = 1, 2
"""What a seed is mixed with for each draw."""


@cache
def cartridge_at(path: str, any_rom: bool) -> Cartridge:
    """Return the cartridge, read and checked once a process."""
    return find_rom(path or None, any_rom)


@cache
def booted(path: str, any_rom: bool, stage: Stage) -> State:
    """Return the console at the start of a stage, booted once a process; copy it, never write to it."""
    return boot_stage(cartridge_at(path, any_rom), *stage)


def mix(seed: int, what: int) -> int:
    """Return 63 well-mixed bits of a seed and a number (splitmix64; Steele, Lea, Flood 2014)."""
    mask = (1 << 64) - 1
    z = (seed * 0xD1342543DE82EF95 + what * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return (z ^ (z >> 31)) & MASK_63


def share(seed: int, what: int) -> float:
    """Return a number in [0, 1) that follows from a seed."""
    return (mix(seed, what) >> 10) / (1 << 53)


class Schedule:
    """Chooses stages; keeps how often each was cleared."""

    def __init__(self, options: MarioOptions) -> None:
        self.kind = options.stage_schedule
        self.stages = parse_stages(options.stages)
        self.window = options.stage_episodes
        self.unlock, self.floor = options.stage_unlock, options.stage_floor
        self.rates: F64 = np.zeros(len(self.stages))
        """Clear rate of each stage: a plain mean at first, then over about `window` episodes."""
        self.episodes: Longs = np.zeros(len(self.stages), np.int64)
        self.unlocked = 1 if self.kind == "curriculum" else len(self.stages)

    def choose(self, seed: int, game: int, episode: int) -> Stage:
        """Return the stage of a game's n-th episode (from 0)."""
        count = len(self.stages)
        if self.kind == "fixed":
            return self.stages[game % count]
        if self.kind == "cycle":
            return self.stages[(game + episode) % count]
        place = share(seed, STAGE_DRAW)
        if self.kind == "random":
            return self.stages[int(place * count)]
        bounds = np.cumsum(self.weights())
        return self.stages[int(np.searchsorted(bounds, place * bounds[-1], side="right"))]

    def weights(self) -> F64:
        """Return how often `curriculum` draws each unlocked stage, relative to the others."""
        return (1.0 - self.rates[: self.unlocked]) + self.floor

    def count(self, stage: Stage, cleared: bool) -> None:
        """Take an episode of the policy's own from the start of a stage into its rate; unlock the next if it is time."""
        if stage not in self.stages:
            return
        k = self.stages.index(stage)
        self.episodes[k] += 1
        self.rates[k] += (cleared - self.rates[k]) / min(int(self.episodes[k]), self.window)
        newest = self.unlocked - 1
        if (
            self.unlocked < len(self.stages)
            and self.episodes[newest] >= self.window
            and self.rates[newest] >= self.unlock
        ):
            self.unlocked += 1

    def inherit(self, before: Schedule) -> None:
        """Take over the rates of the stages that both have, and unlock those at the front that `before` had unlocked."""
        for k, stage in enumerate(self.stages):
            if stage in before.stages:
                old = before.stages.index(stage)
                self.rates[k], self.episodes[k] = before.rates[old], before.episodes[old]
        if self.kind == before.kind == "curriculum":
            known = before.stages[: before.unlocked]
            self.unlocked = max(1, len(list(takewhile(known.__contains__, self.stages))))

    def state(self) -> F64:
        """Return what `load` takes, `[2 n + 3]`."""
        return np.concatenate(
            [self.rates, self.episodes, [self.unlocked, self.unlock, self.floor]]
        ).astype(np.float64)

    def load(self, state: F64) -> None:
        """Go on from `state`."""
        n = len(self.stages)
        self.rates[:], self.episodes[:] = state[:n], state[n : 2 * n]
        self.unlocked, self.unlock, self.floor = int(state[-3]), float(state[-2]), float(state[-1])
