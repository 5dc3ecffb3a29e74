"""The clairvoyant ceiling: which fish of a start could have survived at all (spec section 9).

The predator ignores fish and fish ignore each other, so the best outcome is found fish by fish against the known
predator path: five actions at step 1 (exact), then scripted policies (one that survives settles it), then a beam
search over action sequences. A beam that never overflowed has tried everything, so its verdict is exact too.

    report = ceiling(options, seeds)
    report.avg_final, report.avoidable(death_steps)

A predator that hunts reacts to the fish, so no such ceiling exists: `ceiling` returns None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.jit import kernel
from holdfast.parallel import Threads
from holdfast.records import F32, Array, Bools, Start
from holdfast.worlds.shoal.arrays import KILL_DISTANCE, Shoals, empty_shoals
from holdfast.worlds.shoal.kernels import fall, move_one
from holdfast.worlds.shoal.options import ShoalOptions
from holdfast.worlds.shoal.policies import (
    BRAKE,
    FIRST_CONSTANT,
    FLEE_KEEP,
    FLEE_SOUTH,
    KEEP,
    LEFT,
    SIDESTEP,
    decide,
)
from holdfast.worlds.shoal.reset import StartLaw, begin_games

_KILL = np.float32(KILL_DISTANCE)
_CHEAP = (
    SIDESTEP,
    FLEE_SOUTH,
    FLEE_KEEP,
    FIRST_CONSTANT + BRAKE,
    FIRST_CONSTANT + KEEP,
    FIRST_CONSTANT + LEFT,
)
_NARROW, _WIDE = 64, 20_000
_FINISHERS = 64
"""Beam states from which scripted policies try to finish, at depths 4, 8, 16, ..."""


@dataclass(frozen=True)
class CeilingReport:
    """What the best possible play reaches on E episodes of F fish."""

    survivable: Bools
    """`[E, F]` some sequence of actions survives."""
    best_death_step: Array
    """`[E, F]` int32: the latest death that was found, -1 where survivable."""
    exact: Bools
    """`[E, F]` the verdict does not rest on a beam that had to drop states."""

    @property
    def avg_final(self) -> float:
        """Mean survival rate."""
        return float(self.survivable.mean())

    @property
    def min_final(self) -> float:
        """Survival rate of the worst episode."""
        return float(self.survivable.mean(axis=1).min())

    @property
    def early_death_100(self) -> float:
        """Fraction of fish that must die before step 100."""
        return float(((self.best_death_step >= 0) & (self.best_death_step < 100)).mean())

    @property
    def step_one_count(self) -> int:
        """Fish that die at step 1 whatever they do."""
        return int((self.best_death_step == 1).sum())

    @property
    def p10(self) -> float:
        """10th percentile of the death step, survivors at 500."""
        steps = np.where(self.survivable, 500, self.best_death_step)
        return float(np.percentile(steps, 10))

    def avoidable(self, death_steps: Array) -> float:
        """Return the fraction of all fish that died (`death_steps >= 0`, `[E, F]`) although they could live."""
        return float(((np.asarray(death_steps) >= 0) & self.survivable).mean())


def ceiling(
    options: ShoalOptions, starts: Sequence[int | Start], *, threads: int = 1
) -> CeilingReport | None:
    """Return the ceiling of the episodes that begin from these seeds or starts; None for a hunting predator."""
    if options.predator_hunts:
        return None
    begun = [start if isinstance(start, Start) else Start(seed=int(start)) for start in starts]
    law = StartLaw.of(options)
    s = empty_shoals(len(begun), options.fish)
    begin_games(
        s,
        range(len(begun)),
        law,
        [0 if start.seed is None else start.seed for start in begun],
        [start.snapshot for start in begun],
        np.zeros((len(begun), law.record_size)),
    )
    return ceiling_of(s, options.max_steps, threads=threads)


def ceiling_of(s: Shoals, max_steps: int, *, threads: int = 1) -> CeilingReport:
    """Return the ceiling of these games from their present state."""
    games, fish = s.x.shape
    best = np.full((games, fish), -1, np.int32)
    exact = np.ones((games, fish), np.bool_)
    policies = np.array(_CHEAP, np.int64)
    pool = Threads(threads)
    try:
        pool.over(games, lambda lo, hi: search_games(s, max_steps, policies, best, exact, lo, hi))
    finally:
        pool.close()
    return CeilingReport(survivable=best < 0, best_death_step=best, exact=exact)


@kernel
def search_games(
    s: Shoals, max_steps: int, policies: Array, best: Array, exact: Bools, lo: int, hi: int
) -> None:
    """Fill `best` and `exact` of the games `[lo, hi)`."""
    for g in range(lo, hi):
        steps = max_steps - s.t[g]
        path = np.empty((steps + 1, 4), np.float32)
        fish = np.empty(4, np.float32)
        copy_row(path[0], s.predator[g])
        for t in range(1, steps + 1):
            copy_row(path[t], path[t - 1])
            fall(path[t])
        for i in range(s.x.shape[1]):
            if not s.alive[g, i]:
                best[g, i] = s.death_steps[g, i]
                continue
            fish[0], fish[1], fish[2], fish[3] = s.x[g, i], s.y[g, i], s.vx[g, i], s.vy[g, i]
            death, sure = search_fish(fish, path, policies)
            best[g, i] = death if death < 0 else death + s.t[g]
            exact[g, i] = sure


@kernel
def search_fish(fish: F32, path: F32, policies: Array) -> Any:
    """Return `(latest death step or -1, exact)` for a fish `[x, y, vx, vy]` against the predator's path."""
    doomed = True
    for action in range(5):
        x, y, _, _ = moved(fish[0], fish[1], fish[2], fish[3], action)
        doomed = doomed and hit(x, y, path[1])
    if doomed:
        return 1, True
    latest = 1
    for k in range(policies.shape[0]):
        death = follow(policies[k], fish, path, 0)
        if death < 0:
            return -1, True
        latest = max(latest, death)
    death, sure = beam(fish, path, policies, _NARROW)
    if death >= 0 and not sure:
        latest = max(latest, death)
        death, sure = beam(fish, path, policies, _WIDE)
    if death < 0:
        return -1, True
    return max(latest, death), sure


@kernel
def moved(x: Any, y: Any, vx: Any, vy: Any, action: int) -> Any:
    """Return `move_one`, compiled once instead of into each caller."""
    return move_one(x, y, vx, vy, action)


@kernel
def hit(x: Any, y: Any, predator: F32) -> Any:
    """Return whether a fish there is caught."""
    dx, dy = x - predator[0], y - predator[1]
    return math.sqrt(dx * dx + dy * dy) < _KILL


@kernel
def follow(policy: int, fish: F32, path: F32, begin: int) -> int:
    """Return the death step of a fish that follows a scripted policy from step `begin` on, or -1."""
    x, y, vx, vy = fish[0], fish[1], fish[2], fish[3]
    for t in range(begin, path.shape[0] - 1):
        p = path[t]
        action = decide(policy, x, y, vx, vy, p[0], p[1], p[2], p[3])
        x, y, vx, vy = moved(x, y, vx, vy, action)
        if hit(x, y, path[t + 1]):
            return t + 1
    return -1


@kernel
def beam(fish: F32, path: F32, policies: Array, width: int) -> Any:
    """Return `(death step or -1, exact)`: `exact` is False once the beam had to drop a state."""
    last = path.shape[0] - 1
    now = np.empty((width, 4), np.float32)
    grown = np.empty((5 * width, 4), np.float32)
    order = np.empty(5 * width, np.int64)
    near = np.empty(5 * width, np.float32)
    copy_row(now[0], fish)
    held = 1
    dropped = False
    for t in range(last):
        count = grow(now, held, grown, path[t + 1])
        if count == 0:
            return t + 1, not dropped
        held = min(count, width)
        half = count
        if count > width:
            # Half by clearance, half spread over the rest, so that the beam keeps several ways open.
            dropped = True
            half = width // 2
            rank(grown, count, path[t + 1], order, near)
        for k in range(held):
            spread = half + (k - half) * (count - half) // max(held - half, 1)
            chosen = k if count <= width else order[k if k < half else spread]
            copy_row(now[k], grown[chosen])
        depth = t + 1
        if depth >= 4 and depth & (depth - 1) == 0:
            rank(now, held, path[depth], order, near)
            for k in range(min(held, _FINISHERS)):
                for p in range(policies.shape[0]):
                    if follow(policies[p], now[order[k]], path, depth) < 0:
                        return -1, True
    return -1, True


@kernel
def grow(now: F32, held: int, grown: F32, predator: F32) -> int:
    """Fill `grown` with what five actions make of the held states and the predator does not catch."""
    count = 0
    for k in range(held):
        for action in range(5):
            x, y, vx, vy = moved(now[k, 0], now[k, 1], now[k, 2], now[k, 3], action)
            if not hit(x, y, predator):
                grown[count, 0], grown[count, 1] = x, y
                grown[count, 2], grown[count, 3] = vx, vy
                count += 1
    return count


@kernel
def rank(states: F32, count: int, predator: F32, order: Array, near: F32) -> None:
    """Fill `order[:count]` with the states in order of clearance from the predator, farthest first."""
    for k in range(count):
        dx, dy = states[k, 0] - predator[0], states[k, 1] - predator[1]
        near[k] = -(dx * dx + dy * dy)
        order[k] = k
    # Shell sort: `np.argsort` alone would double the time that this file takes to compile.
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for k in range(gap, count):
            moved, place = order[k], k
            while place >= gap and near[order[place - gap]] > near[moved]:
                order[place] = order[place - gap]
                place -= gap
            order[place] = moved
        gap //= 3


@kernel
def copy_row(to: F32, source: F32) -> None:
    """Copy four numbers (slice assignment compiles slowly)."""
    for c in range(4):
        to[c] = source[c]
