"""The cold-start task of the evader."""

from __future__ import annotations

import math

import numpy as np
import pytest

from holdfast.worlds.pursuit import PursuitWorld

GOALS = {
    "arena_width": 10.0,
    "arena_height": 10.0,
    "task": "navigation",
    "observation": "sensors",
    "flee_probability": 0.0,
    "lidar_noise": 0.0,
}


def to_goal(world):
    """Actions that turn every evader to its goal and drive there."""
    pose, goal = world.records["pose"][:, 1], world.records["goal"]
    err = np.arctan2(goal[:, 1] - pose[:, 1], goal[:, 0] - pose[:, 0]) - pose[:, 2]
    err = (err + math.pi) % (2 * math.pi) - math.pi
    actions = np.zeros((world.num_envs, 2))
    actions[1::2, 0] = np.maximum(0, np.cos(err))
    actions[1::2, 1] = 3 * err
    return actions


def test_goals_lie_in_the_arena_and_the_legacy_frame_puts_most_of_them_outside():
    right = PursuitWorld(games=500, n_obstacles=3, **GOALS)
    right.reset(seed=0)
    goals = right.records["goal"]
    assert (np.abs(goals) <= 4.0).all()
    assert goals.min() < -3.5
    gap = (
        np.linalg.norm(right.obstacles[:, :3, :2] - goals[:, None], axis=2)
        - right.obstacles[:, :3, 2]
    )
    assert gap.min() >= 0.5
    legacy = PursuitWorld(games=500, **GOALS, legacy_goals=True)
    legacy.reset(seed=0)
    reachable = (legacy.records["goal"] <= 4.85 + 0.5).all(axis=1).mean()
    assert 0.2 < reachable < 0.4


def test_the_goal_stands_in_the_opponents_place_of_the_observation():
    world = PursuitWorld(games=50, **GOALS)
    obs, info = world.reset(seed=0)
    np.testing.assert_array_equal(info["mask"], [False, True] * 50)
    distance = np.linalg.norm(world.records["goal"] - world.records["pose"][:, 1, :2], axis=1)
    np.testing.assert_allclose(obs[1::2, -2], distance, rtol=1e-6)


def test_three_goals_end_the_episode_and_pay_ten_each():
    world = PursuitWorld(games=40, **GOALS)
    world.reset(seed=0)
    episodes = []
    for _ in range(600):
        before = world.records["goals_reached"].copy()
        _, rewards, term, trunc, info = world.step(to_goal(world))
        episodes += info.get("episodes", [])
        running = ~(term | trunc)[1::2]
        reached = (world.records["goals_reached"] > before) & running
        assert (rewards[1::2][reached] > 9).all()
        assert (rewards[0::2] == 0).all()
    done = [e for e in episodes if e.ended == "goals"]
    assert len(done) > 20
    for e in done:
        assert e.facts["reward/evader/goal"] == 30
        assert e.facts["goals_reached"] == 3
    assert {e.ended for e in episodes} <= {"goals", "navigation_limit", "captured"}


def test_the_goal_reward_is_distance_and_wall_cost():
    world = PursuitWorld(games=200, **GOALS)
    world.reset(seed=3)
    _, rewards, *_ = world.step(np.zeros((400, 2)))
    pose = world.records["pose"][:, 1, :2]
    d = np.linalg.norm(world.records["goal"] - pose, axis=1)
    near = (np.abs(pose) > 4.5).any(axis=1)
    expected = -0.5 * d / math.hypot(10, 10) - 0.1 * near
    quiet = world.records["goals_reached"] == 0
    assert near[quiet].any()
    np.testing.assert_allclose(rewards[1::2][quiet], expected[quiet], atol=1e-12)


def test_fleeing_and_goals_are_drawn_at_their_rate_and_the_limit_truncates():
    world = PursuitWorld(games=1000, **{**GOALS, "flee_probability": 0.5, "navigation_steps": 5})
    world.reset(seed=0)
    assert world.records["flee"].mean() == pytest.approx(0.5, abs=0.05)
    ends = set()
    for _ in range(5):
        _, _, term, trunc, info = world.step(np.zeros((2000, 2)))
        ends |= {e.ended for e in info.get("episodes", [])}
    assert "navigation_limit" in ends
    assert trunc[1::2].mean() > 0.9
    assert not trunc[0::2].any()
    assert not (term & trunc).any()


def test_a_flee_task_alone_needs_no_sensors():
    world = PursuitWorld(task="navigation", flee_probability=1.0)
    obs, _ = world.reset(seed=0)
    assert obs.shape == (2, 14)
