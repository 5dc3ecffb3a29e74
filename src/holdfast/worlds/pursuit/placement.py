"""Resets: obstacles and agents drawn in the original's exact order (spec 1.3 and 1.4)."""

from __future__ import annotations

import math
from typing import Any

from holdfast.jit import kernel
from holdfast.worlds.pursuit.draws import episode_seed, integer, key, seed_generator, uniform, unit
from holdfast.worlds.pursuit.geometry import refresh_memory, separation

OBSTACLE_TRIES = 500
AGENT_TRIES = 1000
GOAL_TRIES = 100
_FLEE_STREAM, _GOAL_STREAM = 101, 102


@kernel
def _place_obstacles(p: Any, g: Any, obstacles: Any, wanted: int) -> int:
    """Draw up to `wanted` circles by rejection; return how many found room."""
    for k in range(wanted):
        placed = False
        for _ in range(OBSTACLE_TRIES):
            r = uniform(g, p.obstacle_radius_min, p.obstacle_radius_max)
            reach_x = p.half_x - r - p.obstacle_margin
            reach_y = p.half_y - r - p.obstacle_margin
            x = uniform(g, -reach_x, reach_x)
            y = uniform(g, -reach_y, reach_y)
            free = True
            for j in range(k):
                dx, dy = x - obstacles[j, 0], y - obstacles[j, 1]
                if math.sqrt(dx * dx + dy * dy) < r + obstacles[j, 2] + p.obstacle_margin:
                    free = False
                    break
            if free:
                obstacles[k, 0], obstacles[k, 1], obstacles[k, 2] = x, y, r
                placed = True
                break
        if not placed:
            return k
    return wanted


@kernel
def _draw_agent(p: Any, g: Any, pose: Any, me: int, obstacles: Any, count: int) -> bool:
    """Draw position and heading of one agent; return whether it is clear of the obstacles."""
    edge_x, edge_y = p.half_x - p.robot_radius, p.half_y - p.robot_radius
    pose[me, 0] = uniform(g, -edge_x, edge_x)
    pose[me, 1] = uniform(g, -edge_y, edge_y)
    pose[me, 2] = uniform(g, -math.pi, math.pi)
    return _is_clear(p, pose, me, obstacles, count)


@kernel
def _is_clear(p: Any, pose: Any, me: int, obstacles: Any, count: int) -> bool:
    """Whether an agent touches no obstacle."""
    for k in range(count):
        dx, dy = pose[me, 0] - obstacles[k, 0], pose[me, 1] - obstacles[k, 1]
        if math.sqrt(dx * dx + dy * dy) <= obstacles[k, 2] + p.robot_radius:
            return False
    return True


@kernel
def _place_agents(p: Any, g: Any, game: Any, obstacles: Any) -> None:
    pose = game.pose
    for _ in range(AGENT_TRIES):
        if not _draw_agent(p, g, pose, 0, obstacles, game.n_obstacles):
            continue
        if not _draw_agent(p, g, pose, 1, obstacles, game.n_obstacles):
            continue
        if p.min_init_distance <= separation(pose) <= p.max_init_distance:
            return
    # Distances so narrow that chance does not find them: the evader is put at one of them.
    for _ in range(AGENT_TRIES):
        if not _draw_agent(p, g, pose, 0, obstacles, game.n_obstacles):
            continue
        away = uniform(g, p.min_init_distance, p.max_init_distance)
        angle = uniform(g, -math.pi, math.pi)
        pose[1, 0] = pose[0, 0] + away * math.cos(angle)
        pose[1, 1] = pose[0, 1] + away * math.sin(angle)
        pose[1, 2] = uniform(g, -math.pi, math.pi)
        inside = (
            abs(pose[1, 0]) <= p.half_x - p.robot_radius
            and abs(pose[1, 1]) <= p.half_y - p.robot_radius
        )
        if inside and _is_clear(p, pose, 1, obstacles, game.n_obstacles):
            return
    # The original's fallback, held inside arenas narrower than it assumed.
    x = min(5.0, p.half_x - p.robot_radius)
    pose[0, 0], pose[0, 1], pose[0, 2] = -x, 0.0, 0.0
    pose[1, 0], pose[1, 1], pose[1, 2] = x, 0.0, math.pi


@kernel
def draw_goal(p: Any, game: Any, obstacles: Any) -> None:
    """Set a new navigation goal, a metre off the walls and half a metre off the obstacles."""
    shift_x = p.half_x if p.legacy_goals else 0.0
    shift_y = p.half_y if p.legacy_goals else 0.0
    for _ in range(GOAL_TRIES):
        ux = unit(key(game.seed, _GOAL_STREAM, 2 * game.goal_draws))
        uy = unit(key(game.seed, _GOAL_STREAM, 2 * game.goal_draws + 1))
        game.goal_draws += 1
        x = shift_x + (p.half_x - 1.0) * (2.0 * ux - 1.0)
        y = shift_y + (p.half_y - 1.0) * (2.0 * uy - 1.0)
        clear = True
        for k in range(game.n_obstacles):
            dx, dy = x - obstacles[k, 0], y - obstacles[k, 1]
            if math.sqrt(dx * dx + dy * dy) < obstacles[k, 2] + 0.5:
                clear = False
                break
        if clear:
            game.goal[0], game.goal[1] = x, y
            return
    game.goal[0], game.goal[1] = shift_x, shift_y


@kernel
def clear_memory(p: Any, game: Any, obstacles: Any, stale: Any, history: Any) -> None:
    """Set everything that a new episode forgets; pose and obstacles stand already."""
    refresh_memory(p, game, obstacles)
    game.min_distance = game.init_distance = game.distance
    game.barrier_margin = game.barrier_condition = game.correction = 0.0
    game.cut = False
    for me in range(2):
        game.wall_contact[me] = game.obstacle_contact[me] = False
        game.returns[me] = 0.0
        game.interventions[me] = game.infeasible[me] = game.violations[me] = 0
        for k in range(game.parts.shape[1]):
            game.parts[me, k] = 0.0
    game.goals_reached = 0
    game.goal_draws = 0
    game.goal[0] = game.goal[1] = 0.0
    game.flee = p.navigation and unit(key(game.seed, _FLEE_STREAM, 0)) < p.flee_probability
    if p.navigation and not game.flee:
        draw_goal(p, game, obstacles)
    for k in range(stale.shape[0]):
        stale[k] = -p.t_stale
    game.head = 0
    for me in range(history.shape[0]):
        for k in range(history.shape[1]):
            for j in range(history.shape[2]):
                history[me, k, j] = 0.0


@kernel
def begin_episode(
    p: Any, game: Any, obstacles: Any, queued_obstacles: Any, stale: Any, history: Any, g: Any
) -> None:
    """Start the game's next episode, from its queued start if it has one; `g` is scratch."""
    game.episode += 1
    game.seed = episode_seed(game.game_seed, game.episode)
    if game.queued == 1:
        game.seed = game.queued_seed
    if game.queued == 2:
        if game.queued_seed >= 0:
            game.seed = game.queued_seed
        game.n_obstacles = game.queued_n
        for k in range(game.n_obstacles):
            for j in range(3):
                obstacles[k, j] = queued_obstacles[k, j]
        for me in range(2):
            for j in range(3):
                game.pose[me, j] = game.queued_pose[me, j]
    else:
        seed_generator(g, game.seed)
        wanted = p.n_obstacles
        if p.n_obstacles_min >= 0:
            wanted = integer(g, p.n_obstacles_min, p.n_obstacles_max)
        game.n_obstacles = _place_obstacles(p, g, obstacles, wanted)
        _place_agents(p, g, game, obstacles)
    game.queued = 0
    game.t = 0
    for me in range(2):
        game.last_action[me, 0] = game.last_action[me, 1] = 0.0
    clear_memory(p, game, obstacles, stale, history)
