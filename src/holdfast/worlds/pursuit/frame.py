"""The frame observation: what an agent sees in its own frame, without seams.

The full observation gives headings and bearings as parts of pi, which jump from 1 to -1 just where an evader looks: behind
itself. Here directions are cosines and sines, distances are seen from the agent, and nothing says which way north is, so a
square arena turned by a quarter looks the same. Everything is known, as in the full observation:

    own v, omega; eight distances to the outer walls, every 45 degrees from straight ahead;
    the other's distance, nearness (capture radius / distance, at most 1), direction, heading, v, omega, and my direction
    as the other sees it; for each of the K nearest obstacles gap, direction, radius (1, 0, 0, 0 where there is none).

A direction is a cosine (ahead) and a sine (to the left). Lengths are parts of the diagonal, speeds of the pursuer's limits.
"""

from __future__ import annotations

import math
from typing import Any

from holdfast.jit import kernel

WALLS_AT, OTHER_AT, OBSTACLES_AT, OBSTACLE_SIZE = 2, 10, 20, 4
COS_45 = math.sqrt(0.5)


@kernel
def _to_wall(p: Any, x: float, y: float, c: float, s: float) -> float:
    """Return how far the outer walls are from (x, y) in the direction (c, s)."""
    wide = tall = p.diagonal
    if abs(c) > 1e-9:
        wide = ((p.half_x if c > 0.0 else -p.half_x) - x) / c
    if abs(s) > 1e-9:
        tall = ((p.half_y if s > 0.0 else -p.half_y) - y) / s
    return float(min(wide, tall))


@kernel
def _write_walls(p: Any, x: float, y: float, c: float, s: float, out: Any, row: int) -> None:
    """Write the eight distances to the walls, counter-clockwise from straight ahead."""
    u, v = (c - s) * COS_45, (s + c) * COS_45
    scale = 1.0 / p.diagonal
    for k in range(4):
        out[row, WALLS_AT + 2 * k] = _to_wall(p, x, y, c, s) * scale
        out[row, WALLS_AT + 2 * k + 1] = _to_wall(p, x, y, u, v) * scale
        c, s = -s, c
        u, v = -v, u


@kernel
def _write_obstacles(
    p: Any, game: Any, x: float, y: float, c: float, s: float, obstacles: Any, out: Any, row: int
) -> None:
    """Write the nearest obstacles by gap, and what stands for none."""
    count, scale = game.n_obstacles, 1.0 / p.diagonal
    for k in range(p.n_obstacle_obs):
        at = OBSTACLES_AT + OBSTACLE_SIZE * k
        out[row, at] = 1.0
        out[row, at + 1 : at + OBSTACLE_SIZE] = 0.0
    for k in range(count):
        dx, dy = obstacles[k, 0] - x, obstacles[k, 1] - y
        d = math.sqrt(dx * dx + dy * dy)
        gap = d - obstacles[k, 2]
        place = 0
        for j in range(count):
            ex, ey = obstacles[j, 0] - x, obstacles[j, 1] - y
            other = math.sqrt(ex * ex + ey * ey) - obstacles[j, 2]
            place += (other < gap) | ((other == gap) & (j < k))
        if place < p.n_obstacle_obs:
            at = OBSTACLES_AT + OBSTACLE_SIZE * place
            near = 1.0 / max(d, 1e-9)
            out[row, at] = gap * scale
            out[row, at + 1] = (dx * c + dy * s) * near
            out[row, at + 2] = (dy * c - dx * s) * near
            out[row, at + 3] = obstacles[k, 2] * scale


@kernel
def write_frame(p: Any, game: Any, me: int, obstacles: Any, out: Any, row: int) -> None:
    """Write the frame observation of one agent into `out[row]`."""
    pose, act = game.pose, game.last_action
    other = 1 - me
    v_n, w_n = p.v_max[0], p.omega_max[0]
    x, y = pose[me, 0], pose[me, 1]
    c, s = math.cos(pose[me, 2]), math.sin(pose[me, 2])
    out[row, 0] = act[me, 0] / v_n
    out[row, 1] = act[me, 1] / w_n
    _write_walls(p, x, y, c, s, out, row)
    dx, dy = pose[other, 0] - x, pose[other, 1] - y
    near = 1.0 / max(game.distance, 1e-9)
    a, b = math.cos(pose[other, 2]), math.sin(pose[other, 2])
    at = OTHER_AT
    out[row, at] = game.distance / p.diagonal
    out[row, at + 1] = min(p.capture_radius * near, 1.0)
    out[row, at + 2] = (dx * c + dy * s) * near
    out[row, at + 3] = (dy * c - dx * s) * near
    out[row, at + 4] = a * c + b * s
    out[row, at + 5] = b * c - a * s
    out[row, at + 6] = act[other, 0] / v_n
    out[row, at + 7] = act[other, 1] / w_n
    out[row, at + 8] = -(dx * a + dy * b) * near
    out[row, at + 9] = -(dy * a - dx * b) * near
    _write_obstacles(p, game, x, y, c, s, obstacles, out, row)
