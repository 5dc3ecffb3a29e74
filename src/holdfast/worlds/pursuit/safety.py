"""Barrier filter on the virtual control point, with a closed-form quadratic program (spec 4).

The point q = p + d (cos th, sin th) moves with both inputs at first order. Each barrier h gives one
linear condition on (v, omega); the filter takes the nearest allowed action, distance weighted towards
steering rather than braking. In scaled inputs that is the projection of a point onto a polygon, so it is
the point itself, or its foot on one edge, or a corner: all are tried. A filter that cannot satisfy every
condition drops those of the obstacles, then those of the walls, then backs up slowly.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from holdfast.jit import kernel
from holdfast.records import F64
from holdfast.worlds.pursuit.geometry import clip, wrap

UNTOUCHED, CORRECTED, INFEASIBLE = range(3)
MOVED = 1e-6
"""A change of v or omega below this is rounding, not an intervention."""
SLACK = 1e-9
"""Conditions may be short by this much, in the scale of one row."""
WALL_ROWS = 4


@kernel
def barrier_rows(p: Any, pose: Any, me: int, obstacles: Any, count: int, rows: Any) -> float:
    """Write rows (a_v, a_omega, h), walls, then the other agent, then obstacles; return the least h."""
    reach = p.safety_reach
    c, s = math.cos(pose[me, 2]), math.sin(pose[me, 2])
    qx, qy = pose[me, 0] + reach * c, pose[me, 1] + reach * s
    edge_x, edge_y = p.half_x - p.robot_radius, p.half_y - p.robot_radius
    # hdot = grad h . (v c - d w s, v s + d w c)
    rows[0, 0], rows[0, 1], rows[0, 2] = -c, reach * s, edge_x - qx
    rows[1, 0], rows[1, 1], rows[1, 2] = c, -reach * s, edge_x + qx
    rows[2, 0], rows[2, 1], rows[2, 2] = -s, -reach * c, edge_y - qy
    rows[3, 0], rows[3, 1], rows[3, 2] = s, reach * c, edge_y + qy
    other = 1 - me
    ox = pose[other, 0] + reach * math.cos(pose[other, 2])
    oy = pose[other, 1] + reach * math.sin(pose[other, 2])
    gap = p.safety_separation
    for k in range(-1, count):
        if k >= 0:
            ox, oy, gap = obstacles[k, 0], obstacles[k, 1], obstacles[k, 2] + p.robot_radius
        dx, dy = qx - ox, qy - oy
        i = WALL_ROWS + 1 + k
        rows[i, 0] = 2.0 * (dx * c + dy * s)
        rows[i, 1] = 2.0 * reach * (dy * c - dx * s)
        rows[i, 2] = dx * dx + dy * dy - gap * gap
    least = math.inf
    for i in range(WALL_ROWS + 1 + count):
        least = min(least, rows[i, 2])
    return least


@kernel
def least_barrier(p: Any, pose: Any, me: int, obstacles: Any, count: int) -> float:
    """Return the least barrier value of one agent; negative means a violation."""
    rows = np.empty((WALL_ROWS + 1 + count, 3))
    return barrier_rows(p, pose, me, obstacles, count, rows)


@kernel
def _feasible(rows: Any, active: Any, count: int, y0: float, y1: float) -> bool:
    for i in range(count):
        if active[i] and rows[i, 0] * y0 + rows[i, 1] * y1 + rows[i, 2] < -SLACK:
            return False
    return True


@kernel
def project(rows: Any, active: Any, count: int, y0: float, y1: float, out: Any) -> bool:
    """Write the point nearest to (y0, y1) with `a.y + b >= 0` in every active row; False if none is.

    Rows `[count, 3]` are (a_0, a_1, b) with a of unit length.
    """
    if _feasible(rows, active, count, y0, y1):
        out[0], out[1] = y0, y1
        return True
    best = math.inf
    for i in range(count):
        if not active[i]:
            continue
        miss = rows[i, 0] * y0 + rows[i, 1] * y1 + rows[i, 2]
        if miss >= 0.0:
            continue
        x0, x1 = y0 - miss * rows[i, 0], y1 - miss * rows[i, 1]
        if miss * miss < best and _feasible(rows, active, count, x0, x1):
            best = miss * miss
            out[0], out[1] = x0, x1
    # The foot on a violated edge, when allowed, is the answer of a convex problem: no corner is nearer.
    if best < math.inf:
        return True
    for i in range(count):
        for j in range(i):
            if not (active[i] and active[j]):
                continue
            det = rows[i, 0] * rows[j, 1] - rows[i, 1] * rows[j, 0]
            if abs(det) < 1e-12:
                continue
            x0 = (-rows[i, 2] * rows[j, 1] + rows[j, 2] * rows[i, 1]) / det
            x1 = (-rows[j, 2] * rows[i, 0] + rows[i, 2] * rows[j, 0]) / det
            d2 = (x0 - y0) * (x0 - y0) + (x1 - y1) * (x1 - y1)
            if d2 < best and _feasible(rows, active, count, x0, x1):
                best = d2
                out[0], out[1] = x0, x1
    return best < math.inf


@kernel
def filter_action(
    p: Any, pose: Any, me: int, obstacles: Any, count: int, v: float, omega: float, out: Any
) -> int:
    """Write the allowed action nearest to (v, omega), the least h and the least condition into `out [4]`."""
    n = WALL_ROWS + 1 + count
    total = n + 4
    rows = np.empty((total, 3))
    active = np.ones(total, np.bool_)
    out[2] = barrier_rows(p, pose, me, obstacles, count, rows)
    out[3] = math.inf
    weight = math.sqrt(p.safety_speed_weight)
    for i in range(n):
        a_v, a_w = rows[i, 0], rows[i, 1]
        if p.continuous:
            b = p.safety_alpha * rows[i, 2]
        else:
            a_v, a_w, b = a_v * p.dt, a_w * p.dt, p.safety_gamma * rows[i, 2]
        out[3] = min(out[3], a_v * v + a_w * omega + b)
        a_v = a_v / weight
        norm = math.sqrt(a_v * a_v + a_w * a_w)
        if norm < 1e-12:
            # Both points coincide: no input changes h, so the row says nothing about the action.
            active[i] = False
            norm = 1.0
        rows[i, 0], rows[i, 1], rows[i, 2] = a_v / norm, a_w / norm, b / norm
    rows[n, 0], rows[n, 1], rows[n, 2] = 1.0, 0.0, 0.0
    rows[n + 1, 0], rows[n + 1, 1], rows[n + 1, 2] = -1.0, 0.0, p.v_max[me] * weight
    rows[n + 2, 0], rows[n + 2, 1], rows[n + 2, 2] = 0.0, 1.0, p.omega_max[me]
    rows[n + 3, 0], rows[n + 3, 1], rows[n + 3, 2] = 0.0, -1.0, p.omega_max[me]
    solved = project(rows, active, total, v * weight, omega, out)
    status = UNTOUCHED if solved else INFEASIBLE
    if not solved and count > 0:
        active[WALL_ROWS + 1 : n] = False
        solved = project(rows, active, total, v * weight, omega, out)
    if not solved:
        active[:WALL_ROWS] = False
        solved = project(rows, active, total, v * weight, omega, out)
    if solved:
        out[0] = clip(out[0] / weight, 0.0, p.v_max[me])
        out[1] = clip(out[1], -p.omega_max[me], p.omega_max[me])
    else:
        _back_up(p, pose, me, out)
    if status == UNTOUCHED and (abs(out[0] - v) > MOVED or abs(out[1] - omega) > MOVED):
        return CORRECTED
    return status


@kernel
def _back_up(p: Any, pose: Any, me: int, out: Any) -> None:
    """Write the last resort: a tenth of the top speed, turning away from the other agent."""
    dx, dy = pose[me, 0] - pose[1 - me, 0], pose[me, 1] - pose[1 - me, 1]
    err = wrap(math.atan2(dy, dx) - pose[me, 2])
    out[0] = 0.1 * p.v_max[me]
    out[1] = clip(3.0 * err, -p.omega_max[me], p.omega_max[me])


@kernel
def filter_batch(
    params: Any, poses: Any, obstacles: Any, nominal: Any, out: Any, status: Any
) -> None:
    """Filter the pursuer's action in many situations: `poses [B, 2, 3]`, `out [B, 4]`."""
    for b in range(poses.shape[0]):
        status[b] = filter_action(
            params[0],
            poses[b],
            0,
            obstacles[b],
            obstacles.shape[1],
            nominal[b, 0],
            nominal[b, 1],
            out[b],
        )


def safe_actions(params: F64, poses: F64, obstacles: F64, nominal: F64) -> tuple[F64, F64]:
    """Return `(out [B, 4], status [B])` of the filter for situations outside any running game."""
    out = np.zeros((len(poses), 4))
    status = np.zeros(len(poses))
    filter_batch(params, poses, obstacles, nominal, out, status)
    return out, status
