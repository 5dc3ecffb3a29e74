"""Angles, lines of sight and distances: small functions that the other kernels share."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from holdfast.jit import kernel
from holdfast.records import F64

TWO_PI = 2.0 * math.pi
TAN_PI_8 = math.sqrt(2.0) - 1.0


@kernel
def wrap(angle: float) -> float:
    """Return `((angle + pi) mod 2 pi) - pi`, in [-pi, pi).

    Within a turn or two of zero it is what `%` gives, bit for bit: subtracting once is exact in
    [2 pi, 4 pi) (Sterbenz). There is no call and no branch that must be guessed.
    """
    x = angle + math.pi
    if not (-TWO_PI < x < 2.0 * TWO_PI):
        x = x - TWO_PI * np.floor(x / TWO_PI)
    x = x - TWO_PI if x >= TWO_PI else x
    x = x + TWO_PI if x < 0.0 else x
    return x - math.pi


@kernel
def short_way(angle: float) -> float:
    """Return the difference of two angles of [-pi, pi] in [-pi, pi): `wrap` for observations, and faster."""
    angle = angle - TWO_PI if angle >= math.pi else angle
    return angle + TWO_PI if angle < -math.pi else angle


@kernel
def angle_of(y: float, x: float) -> float:
    """Return `atan2(y, x)` to the last bit or two, several times faster (Cephes' rational form)."""
    ax, ay = abs(x), abs(y)
    high, low = max(ax, ay), min(ax, ay)
    if high == 0.0:
        return 0.0
    base = 0.0
    if low > TAN_PI_8 * high:
        base, t = 0.25 * math.pi, (low - high) / (low + high)
    else:
        t = low / high
    z = t * t
    top = -8.750608600031904122785e-1 * z - 1.615753718733365076637e1
    top = (top * z - 7.500855792314704667340e1) * z - 1.228866684490136173410e2
    top = top * z - 6.485021904942025371773e1
    under = (z + 2.485846490142306297962e1) * z + 1.650270098316988542046e2
    under = (under * z + 4.328810604912902668951e2) * z + 4.853903996359136964868e2
    under = under * z + 1.945506571482613964425e2
    angle = base + (t + t * z * top / under)
    if ay > ax:
        angle = 0.5 * math.pi - angle
    if x < 0.0:
        angle = math.pi - angle
    return -angle if y < 0.0 else angle


@kernel
def clip(x: float, low: float, high: float) -> float:
    """Return `x` held between `low` and `high`."""
    return min(max(x, low), high)


@kernel
def sight_blocked(ax: float, ay: float, bx: float, by: float, obstacles: Any, count: int) -> bool:
    """Whether the closed segment a-b comes within the radius of any circle (`[K, 3]`: x, y, r)."""
    dx, dy = bx - ax, by - ay
    length2 = dx * dx + dy * dy
    if length2 < 1e-12:
        return False
    for k in range(count):
        cx, cy = obstacles[k, 0] - ax, obstacles[k, 1] - ay
        s = min(max((cx * dx + cy * dy) / length2, 0.0), 1.0)
        ex, ey = cx - s * dx, cy - s * dy
        if ex * ex + ey * ey <= obstacles[k, 2] * obstacles[k, 2]:
            return True
    return False


@kernel
def surface_distance(x: float, y: float, obstacles: Any, count: int) -> float:
    """Return the distance to the nearest obstacle surface, 0 inside or without obstacles."""
    best = math.inf
    for k in range(count):
        dx, dy = obstacles[k, 0] - x, obstacles[k, 1] - y
        best = min(best, math.sqrt(dx * dx + dy * dy) - obstacles[k, 2])
    return max(best, 0.0) if count > 0 else 0.0


def with_short_headings(pose: F64) -> F64:
    """Return poses `[..., 2, 3]` whose headings lie in [-pi, pi]; those that do are left to the bit."""
    pose = np.array(pose, np.float64)
    theta = pose[..., 2]
    pose[..., 2] = np.where(np.abs(theta) > np.pi, (theta + np.pi) % TWO_PI - np.pi, theta)
    return pose


@kernel
def separation(pose: Any) -> float:
    """Return the distance between the centres of a pose `[2, 3]`."""
    dx, dy = pose[1, 0] - pose[0, 0], pose[1, 1] - pose[0, 1]
    return math.sqrt(dx * dx + dy * dy)


@kernel
def sees(p: Any, pose: Any, me: int, distance: float, blocked: bool) -> bool:
    """Whether agent `me` sees the other under the masking rule (spec 1.7)."""
    if p.mode == 2:
        in_cone = abs(bearing(pose, me)) <= p.sensor_half_angle
        return bool(in_cone and distance < p.sensor_range)
    if p.mode == 0 or (p.asymmetric_obs and me == 1):
        return True
    if p.fov_angle < 0.0 and p.sensing_radius < 0.0:
        return not blocked
    if p.sensing_radius >= 0.0 and distance > p.sensing_radius:
        return False
    if p.fov_angle >= 0.0 and abs(bearing(pose, me)) > 0.5 * p.fov_angle:
        return False
    return not (p.combined_masking and blocked)


@kernel
def bearing(pose: Any, me: int) -> float:
    """Return the angle from my heading to the other agent, in [-pi, pi)."""
    dx, dy = pose[1 - me, 0] - pose[me, 0], pose[1 - me, 1] - pose[me, 1]
    return short_way(angle_of(dy, dx) - pose[me, 2])


@kernel
def refresh_memory(p: Any, game: Any, obstacles: Any) -> None:
    """Set what follows from pose and obstacles alone: distance, clearance, sight."""
    pose = game.pose
    game.distance = separation(pose)
    if p.w_obs_approach != 0.0:
        game.clearance = surface_distance(pose[1, 0], pose[1, 1], obstacles, game.n_obstacles)
    game.los_blocked = p.needs_los and sight_blocked(
        pose[0, 0], pose[0, 1], pose[1, 0], pose[1, 1], obstacles, game.n_obstacles
    )
    if p.needs_visible:
        for me in range(2):
            game.visible[me] = sees(p, pose, me, game.distance, game.los_blocked)
    else:
        game.visible[0] = game.visible[1] = True
