"""Neighbour features and crowd rewards of one shoal, through a cell grid for large shoals.

Living fish are counted into square cells at least one neighbour radius wide, so the neighbours of a fish lie in
three short runs of the sorted order (three cells of three rows). A small shoal is one cell.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from holdfast.jit import kernel
from holdfast.records import F32, F64, Array, Bools
from holdfast.worlds.shoal.arrays import Rules, Shoals

_ONE_CELL = 40
"""Up to this many living fish the grid costs more than it saves."""
_MOST_CELLS = 16


@kernel
def crowd_games(
    s: Shoals, rules: Rules, only: Bools, rewarding: bool, obs: F32, rewards: F64, lo: int, hi: int
) -> None:
    """Write the neighbour features of those games in `[lo, hi)` that `only` marks.

    If `rewarding`, the crowd terms are added to `rewards` and to the returns.
    """
    fish = s.x.shape[1]
    terms = np.zeros(fish, np.float64)
    for g in range(lo, hi):
        if not only[g]:
            continue
        rows = obs[g * fish : (g + 1) * fish]
        crowd(s.x[g], s.y[g], s.vx[g], s.vy[g], s.alive[g], rules, rows, terms)
        if rewarding and rules.crowd:
            for i in range(fish):
                rewards[g * fish + i] += terms[i]
                s.returns[g, i] += terms[i]


@kernel
def crowd(
    x: F32, y: F32, vx: F32, vy: F32, alive: Bools, rules: Rules, obs: F32, terms: F64
) -> None:
    """Write `obs[:, 11:18]` if the rules want them, and each fish's share of the reward into `terms`."""
    reach, count = rules.neighbor_radius, rules.neighbor_count
    living = 0
    for i in range(x.shape[0]):
        living += alive[i]
        terms[i] = 0.0
    cells = 1 if living <= _ONE_CELL else max(1, min(_MOST_CELLS, int(20.0 / reach)))
    starts, order = sort_into_cells(x, y, alive, living, cells)
    sx, sy = np.empty(living, np.float32), np.empty(living, np.float32)
    svx, svy = np.empty(living, np.float32), np.empty(living, np.float32)
    pace = np.empty(living, np.float32)
    for k in range(living):
        i = order[k]
        sx[k], sy[k], svx[k], svy[k] = x[i], y[i], vx[i], vy[i]
        pace[k] = math.sqrt(vx[i] * vx[i] + vy[i] * vy[i])
    found = np.empty(living + 1, np.int32)
    apart = np.empty(living + 1, np.float32)
    nearest = np.empty(count, np.float32)
    near_x, near_y = np.empty(count, np.float32), np.empty(count, np.float32)
    reach32 = np.float32(reach)
    # The compaction below compares squares; this margin keeps every fish that the exact test accepts.
    limit = reach32 * reach32 * np.float32(1.00001)
    for k in range(living):
        column, row = cell_of(sx[k], cells), cell_of(sy[k], cells)
        left, right = max(column - 1, 0), min(column + 1, cells - 1)
        c = 0
        for r in range(max(row - 1, 0), min(row + 1, cells - 1) + 1):
            for j in range(starts[r * cells + left], starts[r * cells + right + 1]):
                dx, dy = sx[j] - sx[k], sy[j] - sy[k]
                square = dx * dx + dy * dy
                found[c] = j
                apart[c] = square
                c += (square <= limit) & (j != k)
        candidates = c
        c = 0
        pace_sum, square_sum, outward_sum, x_sum, y_sum = 0.0, 0.0, 0.0, 0.0, 0.0
        closest = reach32
        for m in range(candidates):
            distance = np.float32(math.sqrt(apart[m]))
            if distance > reach32:
                continue
            j = found[m]
            found[c], apart[c] = j, distance
            c += 1
            dx, dy = sx[j] - sx[k], sy[j] - sy[k]
            closest = min(closest, distance)
            speed = np.float64(pace[j])
            pace_sum += speed
            square_sum += speed * speed
            outward_sum += (svx[j] * dx + svy[j] * dy) / max(distance, np.float32(1e-6))
            x_sum += dx
            y_sum += dy
        i = order[k]
        if c == 0:
            if rules.neighbors:
                for column in range(11, 18):
                    obs[i, column] = np.float32(0.0)
            continue
        outward = outward_sum / c / 2.0
        over = max(c / count - rules.density_target, 0.0)
        terms[i] = 0.1 * (rules.divergence_reward * outward - rules.density_penalty * over)
        if not rules.neighbors:
            continue
        used = c
        if c > count:
            used = count
            x_sum, y_sum = nearest_sums(found, apart, c, sx, sy, k, nearest, near_x, near_y)
        mean_pace = pace_sum / c
        spread = max(square_sum / c - mean_pace * mean_pace, 0.0)
        obs[i, 11] = min(c / count, 1.0)
        obs[i, 12] = x_sum / used / reach
        obs[i, 13] = y_sum / used / reach
        obs[i, 14] = closest / reach
        obs[i, 15] = mean_pace / 2.0
        obs[i, 16] = math.sqrt(spread) / 2.0
        obs[i, 17] = outward


@kernel
def cell_of(position: float, cells: int) -> int:
    """Return the column or row of a coordinate."""
    return min(max(int((position + 10.0) * (cells / 20.0)), 0), cells - 1)


@kernel
def sort_into_cells(x: F32, y: F32, alive: Bools, living: int, cells: int) -> Any:
    """Return `(starts [cells^2 + 1], order [living])`: cell c holds the fish `order[starts[c]:starts[c+1]]`."""
    starts = np.zeros(cells * cells + 2, np.int32)
    order = np.empty(living, np.int32)
    for i in range(x.shape[0]):
        if alive[i]:
            starts[cell_of(y[i], cells) * cells + cell_of(x[i], cells) + 2] += 1
    for c in range(2, cells * cells + 2):
        starts[c] += starts[c - 1]
    for i in range(x.shape[0]):
        if alive[i]:
            c = cell_of(y[i], cells) * cells + cell_of(x[i], cells) + 1
            order[starts[c]] = i
            starts[c] += 1
    return starts, order


@kernel
def nearest_sums(
    found: Array,
    apart: F32,
    c: int,
    sx: F32,
    sy: F32,
    k: int,
    nearest: F32,
    near_x: F32,
    near_y: F32,
) -> Any:
    """Return the summed relative position of the `len(nearest)` nearest of `c` found fish."""
    count = nearest.shape[0]
    held = 0
    for m in range(c):
        distance = apart[m]
        if held == count and distance >= nearest[held - 1]:
            continue
        place = held if held < count else count - 1
        while place > 0 and nearest[place - 1] > distance:
            nearest[place] = nearest[place - 1]
            near_x[place] = near_x[place - 1]
            near_y[place] = near_y[place - 1]
            place -= 1
        j = found[m]
        nearest[place], near_x[place], near_y[place] = distance, sx[j] - sx[k], sy[j] - sy[k]
        held = min(held + 1, count)
    x_sum, y_sum = 0.0, 0.0
    for m in range(held):
        x_sum += near_x[m]
        y_sum += near_y[m]
    return x_sum, y_sum
