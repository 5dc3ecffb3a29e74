"""What the agents see: masking, the masking curriculum, lidar and history."""

from __future__ import annotations

import math

import numpy as np
import pytest

from holdfast.records import Start
from holdfast.worlds.pursuit import PursuitWorld

SMALL = {
    "arena_width": 10.0,
    "arena_height": 10.0,
    "min_init_distance": 2.0,
    "max_init_distance": 8.0,
}
AHEAD = [[-2, 0, 0], [2, 0, 0]]
ROCK = [[0.0, 0.0, 0.5]]


def placed(pose, obstacles=(), **options):
    world = PursuitWorld(games=1, **{**SMALL, **options})
    snap = {"pose": np.array(pose, float)}
    if len(obstacles):
        snap |= {"obstacles": np.array(obstacles), "n_obstacles": np.int64(len(obstacles))}
    world.queue_starts([0], [Start(snapshot=snap)])
    obs, _ = world.reset(seed=0)
    return world, obs


@pytest.mark.parametrize(
    ("pose", "rock", "rule", "seen"),
    [
        (AHEAD, False, {}, (1, 1)),
        (AHEAD, True, {}, (0, 0)),
        (AHEAD, True, {"sensing_radius": 5.0}, (1, 1)),
        (AHEAD, True, {"sensing_radius": 5.0, "combined_masking": True}, (0, 0)),
        (AHEAD, False, {"sensing_radius": 4.0}, (1, 1)),
        (AHEAD, False, {"sensing_radius": 3.9}, (0, 0)),
        (AHEAD, False, {"fov_angle": math.pi / 2}, (1, 0)),
        (AHEAD, True, {"fov_angle": math.pi / 2}, (1, 0)),
        (AHEAD, True, {"fov_angle": math.pi / 2, "combined_masking": True}, (0, 0)),
        (AHEAD, False, {"fov_angle": math.pi / 2, "sensing_radius": 3.0}, (0, 0)),
        (AHEAD, True, {"asymmetric_obs": True}, (0, 1)),
    ],
)
def test_masking_hides_the_other_by_radius_cone_and_line_of_sight(pose, rock, rule, seen):
    _, obs = placed(pose, ROCK if rock else (), partial_obs=True, **rule)
    np.testing.assert_array_equal(obs[:, 14], seen)
    for me in range(2):
        assert bool(obs[me, 5:12].any()) == bool(seen[me])
    assert obs[0, 0] == np.float32(-0.4)
    assert obs[0, 12] == np.float32(0.6)


def test_the_masking_curriculum_shows_the_pursuer_everything_at_its_rate_but_not_at_resets():
    world = PursuitWorld(games=500, **SMALL, partial_obs=True, sensing_radius=0.1, p_full=0.3)
    obs, _ = world.reset(seed=0)
    assert not obs[:, 14].any()
    shown = []
    for _ in range(20):
        obs, *_ = world.step(np.zeros((1000, 2)))
        shown.append(obs[0::2, 14])
        assert not obs[1::2, 14].any()
    assert np.mean(shown) == pytest.approx(0.3, abs=0.02)
    # Each step draws anew: neighbours in time do not go together.
    a, b = np.array(shown[:-1]).ravel(), np.array(shown[1:]).ravel()
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.05
    world.set_value("p_full", 0.0)
    obs, *_ = world.step(np.zeros((1000, 2)))
    assert not obs[:, 14].any()


def test_the_nearest_obstacles_come_first_and_missing_ones_are_padded():
    rocks = [[0.0, 3.0, 0.5], [0.0, 1.0, 0.3]]
    _, obs = placed([[0, 0, 0], [3, 0, 0]], rocks, n_obstacle_obs=3)
    diagonal = math.hypot(10, 10)
    np.testing.assert_allclose(
        obs[0, 14:], [0.7 / diagonal, 0.5, 2.5 / diagonal, 0.5, 1, 0], rtol=1e-6
    )


def test_lidar_in_a_corner_sees_the_two_walls_that_the_original_missed():
    pose = [[-9.5, -9.5, 0], [5, 5, 0]]
    big = {"arena_width": 20.0, "arena_height": 20.0, "observation": "sensors", "lidar_noise": 0.0}
    _, obs = placed(pose, **big)
    _, legacy = placed(pose, **big, legacy_lidar=True)
    # Ray 0 looks back (-x), ray 9 to the right (-y), ray 18 ahead.
    np.testing.assert_allclose(obs[0, [0, 9, 18]], [0.5, 0.5, 5.0], atol=1e-6)
    assert (legacy[0, :36] == 5.0).all()


def test_lidar_noise_has_its_width_stays_in_range_and_repeats_with_the_seed():
    world = PursuitWorld(games=400, **SMALL, observation="sensors", lidar_noise=0.1)
    noisy, _ = world.reset(seed=0)
    again, _ = world.reset(seed=0)
    np.testing.assert_array_equal(noisy, again)
    exact = PursuitWorld(games=400, **SMALL, observation="sensors", lidar_noise=0.0)
    clean, _ = exact.reset(seed=0)
    a, b = noisy[:, :36], clean[:, :36]
    inside = (b > 0.6) & (b < 4.4)
    assert (a - b)[inside].std() == pytest.approx(0.1, rel=0.03)
    assert a.min() >= 0
    assert a.max() <= 5
    assert abs(np.corrcoef((a - b)[0::2][:, 3], (a - b)[1::2][:, 3])[0, 1]) < 0.2


def test_history_is_oldest_first_with_zero_rows_before_the_start():
    world, obs = placed([[0, 0, 0], [3, 0, 0]], observation="sensors", history_length=3)
    rows = obs[0, 36:-7].reshape(3, 43)
    assert not rows[:2].any()
    for _ in range(4):
        obs, *_ = world.step(np.array([[1.0, 0], [0, 0]]))
    rows = obs[0, 36:-7].reshape(3, 43)
    np.testing.assert_allclose(rows[:, 0], [0.1, 0.15, 0.2], rtol=1e-6)
    np.testing.assert_array_equal(rows[2, :7], obs[0, -7:])
    assert rows[2, 5] == pytest.approx(2.8)
    assert obs[1, -2] == -1.0
