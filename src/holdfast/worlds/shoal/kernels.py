"""Compiled dynamics of the shoal: moves, predator, deaths, rewards, observations.

State is float32, as in the original; arithmetic follows its order of operations, so that one step
agrees with the reference to the last bits. Every kernel works on the games `[lo, hi)`, and a game
depends on its own rows alone, so the cut into threads never changes a result.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from holdfast.jit import kernel
from holdfast.records import F32, F64, Array, Bools
from holdfast.worlds.shoal.arrays import (
    DEATH_PENALTY,
    EXTINCT,
    FORCED,
    KILL_DISTANCE,
    RUNNING,
    TIME_LIMIT,
    VISION,
    Rules,
    Shoals,
)

# Numba reads these as float32; a plain float literal would lift the arithmetic to float64.
_R = np.float32(10.0)
_DT = np.float32(0.1)
_TOP = np.float32(2.0)
_ZERO = np.float32(0.0)
_ONE = np.float32(1.0)
_HALF = np.float32(0.5)
_BRAKE = np.float32(0.9)
_STILL = np.float32(0.01)
_KILL = np.float32(KILL_DISTANCE)
_VISION = np.float32(VISION)
_PER_VISION = np.float32(1.0 / VISION)
_PER_R = np.float32(0.1)
# The original turned in float64.
_COS = math.cos(math.pi / 6)
_SIN = math.sin(math.pi / 6)
_FALL = np.float32(0.05)
_BOUNCE = np.float32(0.85)


@kernel
def step_games(
    s: Shoals,
    rules: Rules,
    actions: Array,
    obs: F32,
    rewards: F64,
    terminations: Bools,
    truncations: Bools,
    mask: Bools,
    lo: int,
    hi: int,
) -> None:
    """Step the games `[lo, hi)` once, write their rows, and set `ended`; nothing is reset here.

    What needs neighbours follows in `neighbors.crowd_games`, a kernel of its own that most worlds never compile.
    """
    fish = s.x.shape[1]
    first, last = lo * fish, hi * fish
    # One flat loop over the fish of all games vectorises; a loop a game would not pay for 25 fish.
    move_fish(
        s.x.reshape(-1)[first:last],
        s.y.reshape(-1)[first:last],
        s.vx.reshape(-1)[first:last],
        s.vy.reshape(-1)[first:last],
        s.alive.reshape(-1)[first:last],
        actions[first:last],
    )
    for g in range(lo, hi):
        s.t[g] += 1
        move_predator(s, rules, g)
        if s.t[g] == 1:
            for c in range(4):
                s.first_predator[g, c] = s.predator[g, c]
        measure(s, g)
    judge(
        s.distance.reshape(-1)[first:last],
        s.radius.reshape(-1)[first:last],
        s.alive.reshape(-1)[first:last],
        rewards[first:last],
        terminations[first:last],
        truncations[first:last],
        mask[first:last],
        rules.near_slope,
    )
    for g in range(lo, hi):
        base = g * fish
        living = 0
        for i in range(fish):
            living += s.alive[g, i]
            if terminations[base + i]:
                s.death_steps[g, i] = s.t[g]
        write_obs(s, g, obs)
        end_game(s, rules, g, living, truncations)
    settle(s.returns.reshape(-1)[first:last], rewards[first:last], terminations[first:last])


@kernel
def observe_games(s: Shoals, only: Bools, obs: F32, mask: Bools, lo: int, hi: int) -> None:
    """Write the first eleven numbers and the masks of those games in `[lo, hi)` that `only` marks."""
    fish = s.x.shape[1]
    for g in range(lo, hi):
        if not only[g]:
            continue
        base = g * fish
        measure(s, g)
        write_obs(s, g, obs)
        for i in range(fish):
            mask[base + i] = s.alive[g, i]


@kernel
def move_fish(x: F32, y: F32, vx: F32, vy: F32, alive: Bools, actions: Array) -> None:
    """Apply one action to each living fish."""
    for i in range(x.shape[0]):
        px, py, wx, wy = move_one(x[i], y[i], vx[i], vy[i], actions[i])
        live = alive[i]
        x[i] = px if live else x[i]
        y[i] = py if live else y[i]
        vx[i] = wx if live else vx[i]
        vy[i] = wy if live else vy[i]


@kernel(inline=True)
def move_one(x: Any, y: Any, vx: Any, vy: Any, action: Any) -> Any:
    """Return position and velocity of a fish after one action: 0 forward, 1 left, 2 right, 3 brake, else keep.

    The original turned, and set off from rest, in float64 (`wide` here), and did all else in float32. Both are
    computed and one is chosen, without a branch, so that the loop over fish vectorises.
    """
    speed = math.sqrt(vx * vx + vy * vy)
    # A nearly still fish forgets its heading and faces +x.
    moving = speed > _STILL
    hx = vx / speed if moving else _ONE
    hy = vy / speed if moving else _ZERO
    turns = (action == 1) | (action == 2)
    wide = turns | ((action == 0) & (not moving))
    sine = _SIN if action == 1 else -_SIN
    turned_x = (_COS * hx - sine * hy) * speed
    turned_y = (sine * hx + _COS * hy) * speed
    ax = turned_x if turns else vx + 0.1
    ay = turned_y if turns else np.float64(vy)
    fast = math.sqrt(ax * ax + ay * ay)
    ax = ax / fast * 2.0 if fast > 2.0 else ax
    ay = ay / fast * 2.0 if fast > 2.0 else ay
    brake = _BRAKE if action == 3 else _ONE
    push = _DT if action == 0 else _ZERO
    bx = (vx + push * hx) * brake
    by = (vy + push * hy) * brake
    quick = math.sqrt(bx * bx + by * by)
    bx = bx / quick * _TOP if quick > _TOP else bx
    by = by / quick * _TOP if quick > _TOP else by
    qx = np.float32(x + ax * 0.1) if wide else x + bx * _DT
    qy = np.float32(y + ay * 0.1) if wide else y + by * _DT
    away = math.sqrt(qx * qx + qy * qy)
    beyond = away > _R
    nx, ny = qx / away, qy / away
    a_out = ax * nx + ay * ny
    b_out = bx * nx + by * ny
    ax = -0.5 * (a_out * nx) + (ax - a_out * nx) if beyond else ax
    ay = -0.5 * (a_out * ny) + (ay - a_out * ny) if beyond else ay
    bx = -_HALF * (b_out * nx) + (bx - b_out * nx) if beyond else bx
    by = -_HALF * (b_out * ny) + (by - b_out * ny) if beyond else by
    return (
        nx * _R if beyond else qx,
        ny * _R if beyond else qy,
        np.float32(ax) if wide else bx,
        np.float32(ay) if wide else by,
    )


@kernel
def fall(p: F32) -> None:
    """Move a predator `[x, y, vx, vy]` one ballistic step: gravity along +y, then the wall."""
    p[3] += _FALL
    glide(p)


@kernel
def glide(p: F32) -> None:
    """Move a predator by its velocity and bounce it off the wall."""
    p[0] += p[2] * _DT
    p[1] += p[3] * _DT
    away = math.sqrt(p[0] * p[0] + p[1] * p[1])
    if away > _R:
        nx, ny = p[0] / away, p[1] / away
        out = p[2] * nx + p[3] * ny
        ox, oy = out * nx, out * ny
        p[2] = -_BOUNCE * ox + (p[2] - ox)
        p[3] = -_BOUNCE * oy + (p[3] - oy)
        p[0], p[1] = nx * _R, ny * _R


@kernel
def move_predator(s: Shoals, rules: Rules, g: int) -> None:
    """Move the predator of game g: towards the nearest fish in view if it hunts, else ballistically."""
    p = s.predator[g]
    if not rules.hunts:
        fall(p)
        return
    best = np.float32(rules.sight * rules.sight)
    prey = -1
    for i in range(s.x.shape[1]):
        dx, dy = s.x[g, i] - p[0], s.y[g, i] - p[1]
        near = dx * dx + dy * dy
        if s.alive[g, i] and near < best:
            best, prey = near, i
    if prey < 0:
        fall(p)
        return
    dx, dy = s.x[g, prey] - p[0], s.y[g, prey] - p[1]
    away = max(math.sqrt(dx * dx + dy * dy), np.float32(1e-6))
    # It steers to the wanted velocity with a bounded push, so its momentum can be dodged.
    cx = np.float32(rules.hunt_speed) * dx / away - p[2]
    cy = np.float32(rules.hunt_speed) * dy / away - p[3]
    change = math.sqrt(cx * cx + cy * cy)
    limit = np.float32(rules.hunt_change)
    if change > limit:
        cx, cy = cx / change * limit, cy / change * limit
    p[2] += cx
    p[3] += cy
    glide(p)


@kernel
def measure(s: Shoals, g: int) -> None:
    """Fill `distance` and `radius` of game g."""
    x, y = s.x[g], s.y[g]
    distance, radius = s.distance[g], s.radius[g]
    qx, qy = s.predator[g, 0], s.predator[g, 1]
    for i in range(x.shape[0]):
        dx, dy = x[i] - qx, y[i] - qy
        distance[i] = math.sqrt(dx * dx + dy * dy)
        radius[i] = math.sqrt(x[i] * x[i] + y[i] * y[i])


@kernel
def judge(
    distance: F32,
    radius: F32,
    alive: Bools,
    rewards: F64,
    terminations: Bools,
    truncations: Bools,
    mask: Bools,
    near_slope: float,
) -> None:
    """Kill what the predator reached, write the flags, and the rewards as they are before their scale.

    The scale 0.1 and the death penalty follow in `settle`.
    """
    for i in range(distance.shape[0]):
        caught = alive[i] & (distance[i] < _KILL)
        stays = alive[i] & (not caught)
        alive[i] = stays
        mask[i] = stays
        terminations[i] = caught
        truncations[i] = False
        near = near_slope * distance[i] if distance[i] < _VISION else 5.0
        margin = 10.0 - radius[i]
        rim = 2.0 * (1.0 - margin) if margin < 1.0 else 0.0
        rewards[i] = 2.0 + near - rim if stays else 0.0


@kernel
def settle(returns: F64, rewards: F64, terminations: Bools) -> None:
    """Scale the rewards, punish deaths, and add both to the returns."""
    for i in range(rewards.shape[0]):
        rewards[i] = DEATH_PENALTY if terminations[i] else 0.1 * rewards[i]
        returns[i] += rewards[i]


@kernel
def write_obs(s: Shoals, g: int, obs: F32) -> None:
    """Write the first eleven numbers of each fish of game g; the rows of dead fish are all zero."""
    fish = s.x.shape[1]
    px, py, qx, qy = s.predator[g, 0], s.predator[g, 1], s.predator[g, 2], s.predator[g, 3]
    for i in range(fish):
        row = obs[g * fish + i]
        if not s.alive[g, i]:
            for c in range(row.shape[0]):
                row[c] = _ZERO
            continue
        d = s.distance[g, i]
        row[0] = s.x[g, i] * _PER_R
        row[1] = s.y[g, i] * _PER_R
        row[2] = s.vx[g, i] * _HALF
        row[3] = s.vy[g, i] * _HALF
        row[4] = (_R - s.radius[g, i]) * _PER_R
        if d < _VISION:
            row[5] = _ONE
            row[6] = (px - s.x[g, i]) * _PER_VISION
            row[7] = (py - s.y[g, i]) * _PER_VISION
            row[8] = qx * _HALF
            row[9] = qy * _HALF
            row[10] = d * _PER_VISION
        else:
            for c in range(5, 11):
                row[c] = _ZERO


@kernel
def end_game(s: Shoals, rules: Rules, g: int, living: int, truncations: Bools) -> None:
    """Set `ended[g]`, and truncate the living if the game was cut."""
    t = s.t[g]
    forced = s.pending[g] or (rules.force_reset_steps > 0 and t >= rules.force_reset_steps)
    if living == 0:
        s.ended[g] = EXTINCT
    elif t >= rules.max_steps:
        s.ended[g] = TIME_LIMIT
    elif forced:
        s.ended[g] = FORCED
    else:
        s.ended[g] = RUNNING
        return
    fish = s.x.shape[1]
    for i in range(fish):
        truncations[g * fish + i] = s.alive[g, i]
