"""The frame observation: what it says, that it has no seams, and that a turned arena looks the same."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.errors import ConfigError
from holdfast.worlds.pursuit import PursuitWorld
from holdfast.worlds.pursuit.frame import OBSTACLE_SIZE, OBSTACLES_AT, OTHER_AT, WALLS_AT

SIDE = 10.0
OPTIONS = {
    "observation": "frame",
    "arena_width": SIDE,
    "arena_height": SIDE,
    "n_obstacle_obs": 3,
    "obstacle_capacity": 4,
}


def seen(poses, obstacles=(), last_action=((0.0, 0.0), (0.0, 0.0)), **more):
    """Return the observations `[2, D]` of one game that stands so."""
    world = PursuitWorld(games=1, **{**OPTIONS, **more})
    world.reset(seed=0)
    state = world.get_state()
    state["pose"][0] = poses
    state["last_action"][0] = last_action
    state["obstacles"][:] = 0.0
    for k, obstacle in enumerate(obstacles):
        state["obstacles"][0, k] = obstacle
    state["n_obstacles"][:] = len(obstacles)
    world.set_state(state)
    return world.observe()[0]


def by_hand(poses, obstacles, me, last_action):
    """The same numbers, written a second time with complex numbers."""
    diagonal = np.hypot(SIDE, SIDE)
    spots = [complex(x, y) for x, y, _ in poses]
    ways = [np.exp(1j * t) for *_, t in poses]
    own, way, other = spots[me], ways[me], 1 - me
    numbers = [last_action[me][0], last_action[me][1] / 2.84]
    for k in range(8):
        ray = way * np.exp(0.25j * np.pi * k)
        far = np.linspace(0.0, diagonal, 400_001)
        points = own + ray * far
        inside = np.maximum(np.abs(points.real), np.abs(points.imag)) <= SIDE / 2
        numbers.append(far[inside].max() / diagonal)
    away = spots[other] - own
    numbers += [abs(away) / diagonal, min(0.5 / abs(away), 1.0)]
    numbers += parts(away / abs(away) / way) + parts(ways[other] / way)
    numbers += [last_action[other][0], last_action[other][1] / 2.84]
    numbers += parts(-away / abs(away) / ways[other])
    rows = []
    for x, y, r in obstacles:
        to = complex(x, y) - own
        rows.append([(abs(to) - r) / diagonal, *parts(to / abs(to) / way), r / diagonal])
    rows = [*sorted(rows), *([[1.0, 0.0, 0.0, 0.0]] * 3)][:3]
    return np.array([*numbers, *np.ravel(rows)])


def parts(z):
    return [z.real, z.imag]


def test_it_says_what_is_seen_from_the_agent():
    rng = np.random.default_rng(3)
    for count in (0, 1, 2, 3, 4):
        poses = np.column_stack([rng.uniform(-4.5, 4.5, (2, 2)), rng.uniform(-np.pi, np.pi, 2)])
        obstacles = np.column_stack([rng.uniform(-4, 4, (count, 2)), rng.uniform(0.3, 1, count)])
        acts = np.column_stack([rng.uniform(0, 1, 2), rng.uniform(-2.8, 2.8, 2)])
        found = seen(poses, obstacles, acts)
        for me in range(2):
            np.testing.assert_allclose(found[me], by_hand(poses, obstacles, me, acts), atol=2e-5)


def test_a_quarter_turn_of_everything_in_a_square_changes_nothing():
    poses = np.array([[1.0, -3.0, 0.4], [-2.0, 4.0, 2.5]])
    obstacles = [[2.0, 1.0, 0.5], [-3.0, -3.0, 0.9]]
    turned = np.column_stack([-poses[:, 1], poses[:, 0], poses[:, 2] + np.pi / 2])
    turned[:, 2] = (turned[:, 2] + np.pi) % (2 * np.pi) - np.pi
    others = [[-y, x, r] for x, y, r in obstacles]
    np.testing.assert_allclose(seen(poses, obstacles), seen(turned, others), atol=1e-6)


@pytest.mark.parametrize("heading", [np.pi, np.pi / 2, 0.0, -np.pi / 4])
def test_a_small_turn_is_a_small_change_wherever_one_looks(heading):
    # From 3 m at the first heading and from -3 m at the third the other is straight behind, where bearings jump.
    for x in (-3.0, 3.0):
        at = [seen([[x, 0.0, 0.0], [0.0, 0.0, heading + turn]], [[1.0, 2.0, 0.4]]) for turn in (-1e-4, 1e-4)]  # fmt: skip
        assert np.abs(at[0] - at[1]).max() < 1e-3
    full = [seen([[-3.0, 0.0, 0.0], [0.0, 0.0, turn]], observation="full") for turn in (-1e-4, 1e-4)]  # fmt: skip
    assert np.abs(full[0][1] - full[1][1]).max() > 1.9, "what the frame is for"


def test_in_an_oblong_the_walls_are_where_they_are():
    found = seen([[4.0, 1.0, 0.0], [0.0, 0.0, np.pi / 2]], arena_width=20.0, arena_height=6.0)
    diagonal = np.hypot(20.0, 6.0)
    walls = found[0, WALLS_AT:OTHER_AT] * diagonal
    np.testing.assert_allclose(walls[[0, 2, 4, 6]], [6.0, 2.0, 14.0, 4.0], rtol=1e-5)
    np.testing.assert_allclose(walls[1], 2.0 * np.sqrt(2.0), rtol=1e-5)


def test_too_few_places_hold_the_obstacles_with_the_smallest_gaps():
    # The first centre is nearer, but the second circle's edge is.
    found = seen([[0.0, 0.0, 0.0], [3.0, 3.0, 0.0]], [[3.0, 0.0, 0.3], [-3.2, 0.0, 1.0]], n_obstacle_obs=1)  # fmt: skip
    assert found.shape[1] == OBSTACLES_AT + OBSTACLE_SIZE
    diagonal = np.hypot(SIDE, SIDE)
    np.testing.assert_allclose(found[0, OBSTACLES_AT:], [2.2 / diagonal, -1.0, 0.0, 1.0 / diagonal], atol=1e-6)  # fmt: skip


def test_it_hides_nothing_so_masks_are_refused():
    with pytest.raises(ConfigError, match="observation"):
        PursuitWorld(observation="frame", partial_obs=True)
