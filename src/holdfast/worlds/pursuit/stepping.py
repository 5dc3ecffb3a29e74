"""The kernels that a world calls: step, reset and observe a range of games (spec 1.2)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from holdfast.jit import kernel
from holdfast.worlds.pursuit.draws import GENERATOR_WORDS
from holdfast.worlds.pursuit.dynamics import drive, push_out
from holdfast.worlds.pursuit.frame import write_frame
from holdfast.worlds.pursuit.geometry import bearing, clip, refresh_memory
from holdfast.worlds.pursuit.layout import CAPTURED, CUT, ESCAPED, FRAME, GOALS, LIMIT, SENSORS
from holdfast.worlds.pursuit.placement import begin_episode, clear_memory
from holdfast.worlds.pursuit.rewards import game_rewards, navigation_reward
from holdfast.worlds.pursuit.safety import INFEASIBLE, UNTOUCHED, filter_action, least_barrier
from holdfast.worlds.pursuit.sensors import write_row, write_sensors
from holdfast.worlds.pursuit.sight import write_sight


@kernel
def _choose(
    p: Any, game: Any, me: int, actions: Any, slot: int, obstacles: Any, out: Any
) -> tuple[float, float]:
    """Return the action that agent `me` carries out: scripted, filtered, clipped; `out [4]` is scratch."""
    v_max, w_max = p.v_max[me], p.omega_max[me]
    if p.navigation and me == 0:
        # The cold-start opponent: a slow chaser, or a bystander in goal episodes.
        # Its action is a float32 like any policy's.
        v = float(np.float32(p.flee_speed_ratio * v_max)) if game.flee else 0.0
        turn = clip(3.0 * bearing(game.pose, 0), -w_max, w_max)
        omega = float(np.float32(turn)) if game.flee else 0.0
    else:
        v, omega = actions[slot, 0], actions[slot, 1]
        if p.unit_actions:
            v, omega = v * v_max, omega * w_max
    # A number that is not one must not enter the state: NaN fails every comparison.
    if not math.isfinite(v):
        v = 0.0
    if not math.isfinite(omega):
        omega = 0.0
    v, omega = clip(v, 0.0, v_max), clip(omega, -w_max, w_max)
    if p.guarded[me]:
        status = filter_action(p, game.pose, me, obstacles, game.n_obstacles, v, omega, out)
        game.interventions[me] += status != UNTOUCHED
        game.infeasible[me] += status == INFEASIBLE
        if me == 0:
            game.barrier_margin, game.barrier_condition = out[2], out[3]
            dv, dw = out[0] - v, out[1] - omega
            game.correction = dv * dv + dw * dw
        if p.correct:
            v, omega = out[0], out[1]
    if me == 0 and game.t < p.prep_steps:
        v = 0.0
    game.last_action[me, 0] = v
    game.last_action[me, 1] = omega
    return v, omega


@kernel
def _write_obs(
    p: Any, game: Any, obstacles: Any, history: Any, rays: Any, obs: Any, g: int
) -> None:
    """Write both observations; in sensors mode the newest row of the history is made anew."""
    for me in range(2):
        if p.mode == SENSORS:
            write_row(p, game, me, obstacles, rays, history[g, me, game.head])
            write_sensors(p, game, me, history[g, me], obs[2 * g + me])
        elif p.mode == FRAME:
            write_frame(p, game, me, obstacles, obs, 2 * g + me)
        else:
            write_sight(p, game, me, obstacles, obs, 2 * g + me)


@kernel
def _ending(p: Any, game: Any, captured: bool, timed_out: bool) -> int:
    if captured:
        return CAPTURED
    if p.navigation:
        if game.goals_reached >= p.max_goals:
            return GOALS
        if game.t >= p.navigation_steps:
            return LIMIT
    elif timed_out:
        return ESCAPED
    return CUT if game.cut else 0


@kernel
def step_games(
    params: Any,
    games: Any,
    obstacles: Any,
    queued_obstacles: Any,
    history: Any,
    stale: Any,
    rays: Any,
    actions: Any,
    obs: Any,
    rewards: Any,
    terminations: Any,
    truncations: Any,
    mask: Any,
    final_obs: Any,
    finished: Any,
    ended: Any,
    lo: int,
    hi: int,
) -> None:
    """Step the games `[lo, hi)` once; a game that ends is copied to `finished` and begins anew."""
    scratch = np.zeros(4)
    words = np.zeros(GENERATOR_WORDS, np.uint64)
    for g in range(lo, hi):
        game = games[g]
        p = params[game.row]
        here = obstacles[g]
        pose = game.pose
        v_p, w_p = _choose(p, game, 0, actions, 2 * g, here, scratch)
        v_e, w_e = _choose(p, game, 1, actions, 2 * g + 1, here, scratch)
        game.wall_contact[0] = drive(p, pose, 0, v_p, w_p)
        game.wall_contact[1] = drive(p, pose, 1, v_e, w_e)
        for me in range(2):
            game.obstacle_contact[me] = push_out(p, pose, me, here, game.n_obstacles)
        game.t += 1
        before, clearance_before = game.distance, game.clearance
        refresh_memory(p, game, here)
        game.min_distance = min(game.min_distance, game.distance)
        for me in range(2):
            if p.guarded[me]:
                game.violations[me] += least_barrier(p, pose, me, here, game.n_obstacles) < 0.0
        captured = game.distance <= p.capture_radius
        timed_out = not captured and game.t >= p.max_steps
        r_p, r_e = 0.0, 0.0
        if p.navigation:
            r_e = navigation_reward(p, game, here, captured)
        else:
            r_p, r_e = game_rewards(
                p, game, here, stale, g, before, clearance_before, captured, timed_out
            )
        rewards[2 * g], rewards[2 * g + 1] = r_p, r_e
        game.returns[0] += r_p
        game.returns[1] += r_e
        if p.mode == SENSORS:
            game.head = (game.head + 1) % history.shape[2]
        why = _ending(p, game, captured, timed_out)
        ended[g] = why
        terminal = why in (CAPTURED, GOALS) or (why == ESCAPED and p.timeout_terminates)
        for me in range(2):
            # The scripted opponent of the cold start decides nothing and so ends nothing.
            decides = not (p.navigation and me == 0)
            terminations[2 * g + me] = terminal and decides
            truncations[2 * g + me] = why != 0 and not terminal and decides
            mask[2 * g + me] = decides
        if why != 0:
            _write_obs(p, game, here, history, rays, final_obs, g)
            finished[g] = game
            begin_episode(p, game, here, queued_obstacles[g], stale[g], history[g], words)
        _write_obs(p, game, here, history, rays, obs, g)


@kernel
def reset_games(
    params: Any,
    games: Any,
    obstacles: Any,
    queued_obstacles: Any,
    history: Any,
    stale: Any,
    rays: Any,
    obs: Any,
    lo: int,
    hi: int,
) -> None:
    """Begin the next episode of the games `[lo, hi)` and write their observations."""
    words = np.zeros(GENERATOR_WORDS, np.uint64)
    for g in range(lo, hi):
        p = params[games[g].row]
        begin_episode(p, games[g], obstacles[g], queued_obstacles[g], stale[g], history[g], words)
        _write_obs(p, games[g], obstacles[g], history, rays, obs, g)


@kernel
def observe_games(
    params: Any,
    games: Any,
    obstacles: Any,
    history: Any,
    stale: Any,
    rays: Any,
    obs: Any,
    forget: bool,
    lo: int,
    hi: int,
) -> None:
    """Write the observations of the games `[lo, hi)` from their state.

    What follows from pose and obstacles is computed anew, so an edited state is consistent; with `forget`
    the memory of the episode so far (sums, history, search grid) is cleared too.
    """
    for g in range(lo, hi):
        p = params[games[g].row]
        refresh_memory(p, games[g], obstacles[g])
        if forget:
            clear_memory(p, games[g], obstacles[g], stale[g], history[g])
        _write_obs(p, games[g], obstacles[g], history, rays, obs, g)
