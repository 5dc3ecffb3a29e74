"""Motion of one step: unicycles, walls, obstacles (spec 1.2, steps 4 to 7)."""

from __future__ import annotations

import math
from typing import Any

from holdfast.jit import kernel
from holdfast.worlds.pursuit.geometry import wrap

PASSES = 3
"""Push-out passes: two neighbouring circles may push to and fro."""


@kernel
def drive(p: Any, pose: Any, me: int, v: float, omega: float) -> bool:
    """Move one agent by an Euler step with its old heading; return whether a wall stopped it."""
    theta = pose[me, 2]
    x = pose[me, 0] + v * math.cos(theta) * p.dt
    y = pose[me, 1] + v * math.sin(theta) * p.dt
    pose[me, 2] = wrap(theta + omega * p.dt)
    edge_x, edge_y = p.half_x - p.robot_radius, p.half_y - p.robot_radius
    pose[me, 0] = min(max(x, -edge_x), edge_x)
    pose[me, 1] = min(max(y, -edge_y), edge_y)
    return bool(pose[me, 0] != x or pose[me, 1] != y)


@kernel
def push_out(p: Any, pose: Any, me: int, obstacles: Any, count: int) -> bool:
    """Move one agent radially out of the obstacles, then into the walls; return whether any touched."""
    touched = False
    for _ in range(PASSES):
        again = False
        for k in range(count):
            dx, dy = pose[me, 0] - obstacles[k, 0], pose[me, 1] - obstacles[k, 1]
            reach = obstacles[k, 2] + p.robot_radius
            d2 = dx * dx + dy * dy
            # The root is taken only near the circle; the margin is far above its rounding.
            if d2 > reach * reach * (1.0 + 1e-9):
                continue
            d = math.sqrt(d2)
            if d < reach:
                again = True
                if d < 1e-10:
                    dx, dy, d = math.cos(pose[me, 2]), math.sin(pose[me, 2]), 1.0
                pose[me, 0] = obstacles[k, 0] + dx / d * reach
                pose[me, 1] = obstacles[k, 1] + dy / d * reach
        if not again:
            break
        touched = True
    if touched:
        edge_x, edge_y = p.half_x - p.robot_radius, p.half_y - p.robot_radius
        pose[me, 0] = min(max(pose[me, 0], -edge_x), edge_x)
        pose[me, 1] = min(max(pose[me, 1], -edge_y), edge_y)
    return touched
