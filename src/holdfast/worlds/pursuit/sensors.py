"""Sensors observation: opponent cone, lidar, history (spec 1.8), and the navigation goal in its place.

One agent's flat vector, R rays and L rows of history, is the alphabetical flattening of the original's
dict; with R = 36 and L = 10 it has 473 numbers, all in metres, radians and their rates:

    [0, R)                 lidar, ray k at heading - pi + k * 2 pi / R
    [R, R + L (7 + R))     history, oldest row first, zero rows before the start of the episode; a row is
                           x, y, theta, v, omega, distance, bearing, lidar (R)
    [-7, end)              state: the first seven numbers of the newest row

Distance and bearing are (-1, 0) when the opponent is outside the cone.
"""

from __future__ import annotations

import math
from typing import Any

from holdfast.jit import kernel
from holdfast.worlds.pursuit.draws import key, normal_pair
from holdfast.worlds.pursuit.geometry import angle_of, bearing, short_way

_LIDAR_STREAM = 301
NEAR = 1e-6
"""Hits nearer than this are the surface that the agent stands on."""


@kernel
def _legacy_wall(p: Any, x: float, y: float, c: float, s: float, best: float) -> float:
    """Return the nearest hit of the four walls at x = 0, W and y = 0, H (defect D1)."""
    width, height = 2.0 * p.half_x, 2.0 * p.half_y
    if abs(c) > 1e-12:
        for k in range(2):
            t = ((0.0 if k == 0 else width) - x) / c
            if NEAR < t < best and 0.0 <= y + t * s <= height:
                best = t
    if abs(s) > 1e-12:
        for k in range(2):
            t = ((0.0 if k == 0 else height) - y) / s
            if NEAR < t < best and 0.0 <= x + t * c <= width:
                best = t
    return best


@kernel
def _wall(p: Any, x: float, y: float, c: float, s: float, best: float) -> float:
    """Return the nearest hit of the walls from inside the arena."""
    if c > 1e-12:
        best = min(best, (p.half_x - x) / c)
    elif c < -1e-12:
        best = min(best, (-p.half_x - x) / c)
    if s > 1e-12:
        best = min(best, (p.half_y - y) / s)
    elif s < -1e-12:
        best = min(best, (-p.half_y - y) / s)
    return best


@kernel
def _segment(ends: Any, x: float, y: float, c: float, s: float, best: float) -> float:
    """Return the nearer of `best` and the hit of a wall from `ends[:2]` to `ends[2:]`."""
    ex, ey = ends[2] - ends[0], ends[3] - ends[1]
    wx, wy = ends[0] - x, ends[1] - y
    turn = c * ey - s * ex
    if abs(turn) < 1e-12:
        return best
    t, u = (wx * ey - wy * ex) / turn, (wx * s - wy * c) / turn
    return t if NEAR < t < best and 0.0 <= u <= 1.0 else best


@kernel
def write_lidar(p: Any, game: Any, me: int, obstacles: Any, rays: Any, row: Any) -> None:
    """Write the readings of one agent into `row[7:]`."""
    x, y, theta = game.pose[me, 0], game.pose[me, 1], game.pose[me, 2]
    ch, sh = math.cos(theta), math.sin(theta)
    reach = p.lidar_range
    count = rays.shape[0]
    legacy = p.legacy_lidar
    for k in range(count):
        c = ch * rays[k, 0] - sh * rays[k, 1]
        s = sh * rays[k, 0] + ch * rays[k, 1]
        row[7 + k] = _legacy_wall(p, x, y, c, s, reach) if legacy else _wall(p, x, y, c, s, reach)
    for j in range(p.n_segments):
        for k in range(count):
            c = ch * rays[k, 0] - sh * rays[k, 1]
            s = sh * rays[k, 0] + ch * rays[k, 1]
            row[7 + k] = _segment(p.segments[j], x, y, c, s, row[7 + k])
    for j in range(game.n_obstacles):
        ox, oy, r = obstacles[j, 0] - x, obstacles[j, 1] - y, obstacles[j, 2]
        c0 = ox * ox + oy * oy - r * r
        # A circle wholly out of range cannot shorten any ray.
        if ox * ox + oy * oy > (reach + r) * (reach + r):
            continue
        for k in range(count):
            along = ox * (ch * rays[k, 0] - sh * rays[k, 1]) + oy * (
                sh * rays[k, 0] + ch * rays[k, 1]
            )
            disc = along * along - c0
            if disc < 0.0 or (along < 0.0 and c0 > 0.0):
                continue
            root = math.sqrt(disc)
            t = along - root
            if t <= NEAR:
                t = along + root
            if NEAR < t < row[7 + k]:
                row[7 + k] = t
    if p.lidar_noise > 0.0:
        word = key(game.seed, 2 * game.t + me, _LIDAR_STREAM)
        for k in range(0, count, 2):
            a, b = normal_pair(word, k)
            row[7 + k] = min(max(row[7 + k] + p.lidar_noise * a, 0.0), reach)
            if k + 1 < count:
                row[8 + k] = min(max(row[8 + k] + p.lidar_noise * b, 0.0), reach)


@kernel
def write_row(p: Any, game: Any, me: int, obstacles: Any, rays: Any, row: Any) -> None:
    """Write the raw vector of one agent now into `row [7 + R]`."""
    pose = game.pose
    for k in range(3):
        row[k] = pose[me, k]
    row[3] = game.last_action[me, 0]
    row[4] = game.last_action[me, 1]
    row[5] = -1.0
    row[6] = 0.0
    if p.navigation and not game.flee and me == 1:
        dx, dy = game.goal[0] - pose[1, 0], game.goal[1] - pose[1, 1]
        d = math.sqrt(dx * dx + dy * dy)
        if d <= p.sensor_range:
            row[5] = d
            row[6] = short_way(angle_of(dy, dx) - pose[1, 2])
    elif game.distance < 1e-10:
        row[5] = 0.0
    elif game.distance < p.sensor_range:
        angle = bearing(pose, me)
        if abs(angle) <= p.sensor_half_angle:
            row[5] = game.distance
            row[6] = angle
    write_lidar(p, game, me, obstacles, rays, row)


@kernel
def write_sensors(p: Any, game: Any, me: int, history: Any, out: Any) -> None:
    """Write the flat observation of one agent from its history `[L, 7 + R]`."""
    length, width = history.shape
    rays = width - 7
    newest = history[game.head]
    for k in range(rays):
        out[k] = newest[7 + k]
    at = rays
    for i in range(length):
        row = history[(game.head + 1 + i) % length]
        for k in range(width):
            out[at + k] = row[k]
        at += width
    for k in range(7):
        out[at + k] = newest[k]
