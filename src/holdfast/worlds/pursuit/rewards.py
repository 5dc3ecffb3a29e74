"""Rewards of one step, by named component (spec 1.5)."""

from __future__ import annotations

import math
from typing import Any

from holdfast.jit import kernel
from holdfast.worlds.pursuit.geometry import sight_blocked
from holdfast.worlds.pursuit.layout import (
    APPROACH,
    BARRIER,
    CAPTURE,
    COLLISION,
    DISTANCE,
    FLEE_CAPTURE,
    FLEE_DISTANCE,
    GOAL,
    GOAL_DISTANCE,
    GOAL_WALL,
    GRID,
    HIDING,
    OCCLUSION,
    SEARCH,
    SURVIVAL,
    TIMEOUT,
    VISIBILITY,
    WALL,
)
from holdfast.worlds.pursuit.placement import draw_goal

FAR = 100.0
"""Sight of the search grid in metres where no sensing radius is set."""


@kernel
def _give(game: Any, me: int, part: int, amount: float) -> float:
    game.parts[me, part] += amount
    return amount


@kernel
def _search(p: Any, game: Any, obstacles: Any, stale: Any, g: int) -> float:
    """Return the mean staleness of the cells that the pursuer sees now, and stamp them."""
    radius = p.sensing_radius if p.sensing_radius >= 0.0 else FAR
    x, y = game.pose[0, 0], game.pose[0, 1]
    total, seen = 0.0, 0
    for i in range(GRID):
        cx = -p.half_x + (i + 0.5) * (2.0 * p.half_x / GRID)
        for j in range(GRID):
            cy = -p.half_y + (j + 0.5) * (2.0 * p.half_y / GRID)
            dx, dy = cx - x, cy - y
            if dx * dx + dy * dy > radius * radius:
                continue
            if sight_blocked(x, y, cx, cy, obstacles, game.n_obstacles):
                continue
            k = i * GRID + j
            total += min(max((game.t - stale[g, k]) / p.t_stale, 0.0), 1.0)
            seen += 1
            stale[g, k] = game.t
    return total / seen if seen > 0 else 0.0


@kernel
def game_rewards(
    p: Any,
    game: Any,
    obstacles: Any,
    stale: Any,
    g: int,
    before: float,
    clearance_before: float,
    captured: bool,
    timed_out: bool,
) -> tuple[float, float]:
    """Return the rewards of pursuer and evader and add their components to the record."""
    live = not (captured or timed_out)
    blocked = game.los_blocked
    step = p.distance_scale * (before - game.distance) / p.diagonal
    capture = p.capture_bonus if captured else 0.0
    timeout = p.timeout_penalty if timed_out else 0.0
    in_range = p.sensing_radius < 0.0 or game.distance <= p.sensing_radius
    vision = p.w_vis_pursuer if live and in_range and not blocked else 0.0
    barrier = _barrier(p, game)
    r_p = _give(game, 0, DISTANCE, step) + _give(game, 0, CAPTURE, capture)
    r_p += _give(game, 0, TIMEOUT, timeout) + _give(game, 0, VISIBILITY, vision)
    r_p += _give(game, 0, BARRIER, barrier)
    if p.use_visibility_reward and game.n_obstacles > 0 and live:
        weight = p.visibility_weight if blocked else -p.visibility_weight
        r_e = _give(game, 1, HIDING, weight)
    else:
        r_e = _give(game, 1, DISTANCE, -step) + _give(game, 1, CAPTURE, -capture)
        r_e += _give(game, 1, TIMEOUT, -timeout) + _give(game, 1, VISIBILITY, -vision)
        r_e += _give(game, 1, BARRIER, -barrier)
        if p.w_occlusion > 0.0 and blocked and not captured:
            r_e += _give(game, 1, OCCLUSION, p.w_occlusion)
    if live:
        r_e += _give(game, 1, SURVIVAL, p.survival_bonus)
        if game.n_obstacles > 0:
            closing = (clearance_before - game.clearance) / p.diagonal
            r_e += _give(game, 1, APPROACH, p.w_obs_approach * closing)
    if p.w_search != 0.0 and not game.visible[0]:
        r_p += _give(game, 0, SEARCH, p.w_search * _search(p, game, obstacles, stale, g))
    if game.obstacle_contact[0]:
        r_p += _give(game, 0, COLLISION, -p.w_collision)
    if game.obstacle_contact[1]:
        r_e += _give(game, 1, COLLISION, -p.w_collision)
    if game.wall_contact[0]:
        r_p += _give(game, 0, WALL, -p.w_wall)
    if game.wall_contact[1]:
        r_e += _give(game, 1, WALL, -p.w_wall)
    return r_p, r_e


@kernel
def _barrier(p: Any, game: Any) -> float:
    """Return the barrier reward of the pursuer; its inputs are zero when it is not guarded."""
    if not p.guarded[0]:
        return 0.0
    total = p.w_cbf_margin * min(max(game.barrier_margin, 0.0), 1.0)
    total -= p.w_cbf_condition * max(0.0, -game.barrier_condition)
    return float(total - p.w_cbf_intervention * (1.0 - math.exp(-game.correction / 0.1)))


@kernel
def navigation_reward(p: Any, game: Any, obstacles: Any, captured: bool) -> float:
    """Return the evader's reward in the cold-start task; set a new goal where one was reached."""
    if game.flee:
        r = _give(game, 1, FLEE_DISTANCE, 0.5 * game.distance / p.diagonal)
        return r + (_give(game, 1, FLEE_CAPTURE, -10.0) if captured else 0.0)
    x, y = game.pose[1, 0], game.pose[1, 1]
    dx, dy = game.goal[0] - x, game.goal[1] - y
    d = math.sqrt(dx * dx + dy * dy)
    r = _give(game, 1, GOAL_DISTANCE, -0.5 * d / p.diagonal)
    if d < p.goal_radius:
        r += _give(game, 1, GOAL, 10.0)
        game.goals_reached += 1
        if game.goals_reached < p.max_goals:
            draw_goal(p, game, obstacles)
    if p.legacy_goals:
        near = x < 0.5 or y < 0.5 or x > 2.0 * p.half_x - 0.5 or y > 2.0 * p.half_y - 0.5
    else:
        near = abs(x) > p.half_x - 0.5 or abs(y) > p.half_y - 0.5
    if near:
        r += _give(game, 1, GOAL_WALL, -0.1)
    return r
