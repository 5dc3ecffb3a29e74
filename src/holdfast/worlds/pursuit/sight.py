"""Full and masked observations (spec 1.6 and 1.7)."""

from __future__ import annotations

import math
from typing import Any

from holdfast.jit import kernel
from holdfast.worlds.pursuit.draws import key, unit
from holdfast.worlds.pursuit.geometry import angle_of, bearing, short_way

_MASK_STREAM = 201
INV_PI = 1.0 / math.pi


@kernel
def _write_obstacles(
    p: Any, game: Any, me: int, obstacles: Any, out: Any, row: int, at: int
) -> None:
    """Write distance and bearing of the nearest obstacles by centre, padded with (1, 0)."""
    x, y, theta = game.pose[me, 0], game.pose[me, 1], game.pose[me, 2]
    count = game.n_obstacles
    scale = 1.0 / p.diagonal
    for k in range(count):
        dx, dy = obstacles[k, 0] - x, obstacles[k, 1] - y
        d2 = dx * dx + dy * dy
        # Counting the nearer ones gives each its place without a sort, and so without guesses.
        place = 0
        for j in range(count):
            ex, ey = obstacles[j, 0] - x, obstacles[j, 1] - y
            e2 = ex * ex + ey * ey
            place += (e2 < d2) | ((e2 == d2) & (j < k))
        if place < p.n_obstacle_obs:
            gap = max(math.sqrt(d2) - obstacles[k, 2], 0.0) * scale
            out[row, at + 2 * place] = min(gap, 1.0)
            out[row, at + 2 * place + 1] = short_way(angle_of(dy, dx) - theta) * INV_PI
    for i in range(count, p.n_obstacle_obs):
        out[row, at + 2 * i] = 1.0
        out[row, at + 2 * i + 1] = 0.0


@kernel
def shown_to(p: Any, game: Any, me: int) -> bool:
    """Whether the other agent is in my observation now: seen, or shown by the masking curriculum."""
    if game.visible[me]:
        return True
    # The observation of a reset is never overridden.
    if me == 0 and p.p_full > 0.0 and game.t > 0:
        return bool(unit(key(game.seed, _MASK_STREAM, game.t)) < p.p_full)
    return False


@kernel
def write_sight(p: Any, game: Any, me: int, obstacles: Any, out: Any, row: int) -> None:
    """Write the full or masked observation of one agent into `out[row]`."""
    pose, act = game.pose, game.last_action
    other = 1 - me
    v_n, w_n = p.v_max[0], p.omega_max[0]
    x, y = pose[me, 0], pose[me, 1]
    out[row, 0] = x / p.half_x
    out[row, 1] = y / p.half_y
    out[row, 2] = pose[me, 2] / math.pi
    out[row, 3] = act[me, 0] / v_n
    out[row, 4] = act[me, 1] / w_n
    shown = p.mode == 0 or shown_to(p, game, me)
    if shown:
        out[row, 5] = pose[other, 0] / p.half_x
        out[row, 6] = pose[other, 1] / p.half_y
        out[row, 7] = pose[other, 2] / math.pi
        out[row, 8] = act[other, 0] / v_n
        out[row, 9] = act[other, 1] / w_n
        out[row, 10] = game.distance / p.diagonal
        out[row, 11] = bearing(pose, me) / math.pi
    else:
        for k in range(5, 12):
            out[row, k] = 0.0
    out[row, 12] = min(x + p.half_x, p.half_x - x) / p.half_x
    out[row, 13] = min(y + p.half_y, p.half_y - y) / p.half_y
    at = 14
    if p.mode == 1:
        out[row, 14] = 1.0 if shown else 0.0
        at = 15
    _write_obstacles(p, game, me, obstacles, out, row, at)
