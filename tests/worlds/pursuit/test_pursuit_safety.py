"""The barrier filter: exact projections, the right arena, recorded rates."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.records import Start
from holdfast.worlds.pursuit import PursuitWorld
from holdfast.worlds.pursuit.policies import Scripted, play
from holdfast.worlds.pursuit.safety import INFEASIBLE, safe_actions

SMALL = {
    "arena_width": 10.0,
    "arena_height": 10.0,
    "min_init_distance": 2.0,
    "max_init_distance": 8.0,
}


def slow_filter(pose, obstacles, nominal, half=5.0, d=0.1, gamma=0.2, dt=0.05, n=1201):
    """The best action on a fine grid of all actions: slow and obvious."""
    v, w = np.meshgrid(np.linspace(0, 1, n), np.linspace(-2.84, 2.84, n), indexing="ij")
    point = [p[:2] + d * np.array([np.cos(p[2]), np.sin(p[2])]) for p in pose]
    c, s = np.cos(pose[0][2]), np.sin(pose[0][2])
    move = np.stack([v * c - d * w * s, v * s + d * w * c])
    ok = np.ones_like(v, bool)
    edge = half - 0.15
    for axis in range(2):
        for sign in (1, -1):
            ok &= -dt * sign * move[axis] + gamma * (edge - sign * point[0][axis]) >= 0
    circles = [(point[1], 0.35), *((o[:2], o[2] + 0.15) for o in obstacles)]
    for centre, gap in circles:
        r = point[0] - centre
        ok &= 2 * dt * (r[0] * move[0] + r[1] * move[1]) + gamma * (r @ r - gap**2) >= 0
    cost = np.where(ok, 150 * (v - nominal[0]) ** 2 + (w - nominal[1]) ** 2, np.inf)
    return cost.min(), 150 * (1 / (n - 1)) + 5.68 / (n - 1) * 6


def test_the_filter_finds_the_cheapest_allowed_action():
    world = PursuitWorld(**SMALL, safety="pursuer")
    rng = np.random.default_rng(0)
    poses, rocks, nominal = [], [], []
    while len(poses) < 25:
        pose = np.column_stack([rng.uniform(-4.8, 4.8, (2, 2)), rng.uniform(-3.1, 3.1, 2)])
        rock = np.column_stack([rng.uniform(-4, 4, (2, 2)), rng.uniform(0.3, 1.0, 2)])
        gap = np.linalg.norm(pose[0, :2] - rock[:, :2], axis=1) - rock[:, 2]
        if gap.min() > 0.15 and (gap.min() < 0.4 or np.abs(pose[0, :2]).max() > 4.5):
            poses.append(pose)
            rocks.append(rock)
            nominal.append(rng.uniform([0.3, -2.84], [1, 2.84]))
    out, status = safe_actions(world.params, np.array(poses), np.array(rocks), np.array(nominal))
    corrected = 0
    for pose, rock, act, safe, how in zip(poses, rocks, nominal, out, status, strict=True):
        best, grain = slow_filter(pose, rock, act)
        if how == INFEASIBLE:
            continue
        cost = 150 * (safe[0] - act[0]) ** 2 + (safe[1] - act[1]) ** 2
        assert cost <= best + 1e-6
        assert cost >= best - grain * 2
        corrected += cost > 1e-6
    assert corrected > 5


@pytest.mark.parametrize("role", ["pursuer", "evader"])
def test_a_guarded_agent_stops_short_of_the_real_walls_of_a_small_arena(role):
    me = ("pursuer", "evader").index(role)
    pose = np.array([[-3.0, -3.0, 0.0], [3.0, 3.0, 0.0]])
    furthest = {}
    for safety in ("none", role):
        world = PursuitWorld(games=1, **SMALL, safety=safety)
        world.queue_starts([0], [Start(snapshot={"pose": pose})])
        world.reset(seed=0)
        reach = 0.0
        for _ in range(200):
            actions = np.zeros((2, 2))
            actions[me, 0] = 1.0
            world.step(actions)
            x, y, theta = world.records["pose"][0, me]
            reach = max(reach, abs(x + 0.1 * np.cos(theta)), abs(y + 0.1 * np.sin(theta)))
        furthest[safety] = reach
    assert furthest["none"] > 4.9
    assert furthest[role] <= 4.85 + 1e-9


def test_the_filter_halves_the_violations_and_both_rates_are_recorded():
    rates = {}
    for method in ("observe", "dcbf"):
        world = PursuitWorld(
            games=200, n_obstacles=2, max_steps=200, safety="both", safety_method=method, **SMALL
        )
        episodes = play(world, Scripted("random", "pursuer"), Scripted("random", "evader"))
        rates[method] = {
            name: np.mean([e.facts[f"safety/pursuer/{name}_rate"] for e in episodes])
            for name in ("intervention", "violation", "infeasible")
        }
    assert rates["dcbf"]["violation"] < 0.5 * rates["observe"]["violation"]
    assert 0 < rates["dcbf"]["intervention"] < 0.5
    assert rates["observe"]["intervention"] > 0


def test_observing_measures_without_changing_the_game():
    runs = []
    for options in ({}, {"safety": "both", "safety_method": "observe"}):
        world = PursuitWorld(games=20, n_obstacles=2, max_steps=100, **SMALL, **options)
        episodes = play(world, Scripted("greedy", "pursuer"), Scripted("random", "evader"))
        runs.append([(e.steps, tuple(e.returns)) for e in episodes])
    assert runs[0] == runs[1]


def test_the_barrier_reward_is_zero_sum_and_charges_corrections():
    weights = {"w_cbf_margin": 0.05, "w_cbf_condition": 1.0, "w_cbf_intervention": 2.0}
    world = PursuitWorld(
        games=50,
        n_obstacles=3,
        max_steps=60,
        safety="pursuer",
        distance_scale=0.0,
        **weights,
        **SMALL,
    )
    episodes = play(world, Scripted("random", "pursuer"), Scripted("static", "evader"))
    paid = [e.facts["reward/pursuer/barrier"] for e in episodes]
    assert paid == [-e.facts["reward/evader/barrier"] for e in episodes]
    free = [
        p
        for p, e in zip(paid, episodes, strict=True)
        if e.facts["safety/pursuer/intervention_rate"] == 0
    ]
    held = [
        p
        for p, e in zip(paid, episodes, strict=True)
        if e.facts["safety/pursuer/intervention_rate"] > 0.1
    ]
    assert min(free) >= 0
    assert np.mean(held) < np.mean(free)
