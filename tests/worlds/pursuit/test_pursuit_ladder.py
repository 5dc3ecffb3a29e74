"""Scripted policies against each other: captures and mean lengths measured on the original (spec 7.6)."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.errors import ConfigError
from holdfast.worlds.pursuit import PursuitWorld
from holdfast.worlds.pursuit.layout import SCRIPTS
from holdfast.worlds.pursuit.policies import Scripted, play

SPEEDS = [(1.0, 1.0), (1.2, 1.0), (1.0, 1.2), (0.95, 1.0)]
BIG, SMALL = (20.0, 0, 1200), (10.0, 2, 600)


def arena(size, obstacles, steps, games, speeds):
    return PursuitWorld(
        games=games,
        arena_width=size,
        arena_height=size,
        n_obstacles=obstacles,
        max_steps=steps,
        pursuer_v_max=speeds[0],
        evader_v_max=speeds[1],
    )


@pytest.mark.parametrize(
    ("pursuer", "evader", "lengths"),
    [
        ("pure_pursuit", "flee", [372.1, 291.2, 379.0, 398.4, 203.4, 166.4, 208.0, 215.3]),
        ("greedy", "greedy", [379.4, 291.4, 376.2, 397.6, 203.1, 165.7, 204.6, 213.6]),
        ("pure_pursuit", "static", [181.0, 152.2, 181.0, 190.1, 124.6, 105.2, 124.6, 130.8]),
    ],
)
def test_straight_flight_is_always_caught_after_the_recorded_time(pursuer, evader, lengths):
    measured = []
    for setting in (BIG, SMALL):
        for speeds in SPEEDS:
            world = arena(*setting, 100, speeds)
            episodes = play(world, Scripted(pursuer, "pursuer"), Scripted(evader, "evader"))
            assert all(e.ended == "captured" for e in episodes)
            measured.append(np.mean([e.steps for e in episodes]))
    np.testing.assert_allclose(measured, lengths, atol=0.051)


@pytest.mark.parametrize(
    ("size", "steps", "radii", "captures"),
    [
        (
            20.0,
            1200,
            (4, 6, 8.5),
            {
                (1.0, 1.0): (4, 5, 4),
                (0.95, 1.0): (4, 5, 4),
                (1.0, 1.2): (2, 4, 4),
                (1.2, 1.0): (30, 30, 30),
            },
        ),
        (
            10.0,
            600,
            (2, 3, 4.2),
            {(1.0, 1.0): (9, 7, 3), (1.0, 1.2): (7, 6, 3), (1.2, 1.0): (30, 30, 30)},
        ),
    ],
)
def test_a_circling_evader_is_caught_by_pure_pursuit_as_often_as_recorded(
    size, steps, radii, captures
):
    for speeds, expected in captures.items():
        counts = []
        for radius in radii:
            world = arena(size, 0, steps, 30, speeds)
            evader = Scripted("circling", "evader", radius=radius)
            episodes = play(world, Scripted("pure_pursuit", "pursuer"), evader)
            counts.append(sum(e.ended == "captured" for e in episodes))
        assert tuple(counts) == expected, speeds


@pytest.mark.parametrize(
    ("speeds", "expected"),
    [((1.0, 1.0), (10, 13, 3, 13)), ((1.0, 1.05), (9, 10, 3, 11)), ((1.2, 1.0), (50, 50, 50, 50))],
)
def test_a_circling_evader_is_caught_by_the_greedy_pursuer_as_often_as_recorded(speeds, expected):
    counts = []
    for size, steps, radius in ((20.0, 1200, 6), (10.0, 600, 4.2)):
        for obstacles in (0, 2):
            world = arena(size, obstacles, steps, 50, speeds)
            evader = Scripted("circling", "evader", radius=radius)
            episodes = play(world, Scripted("greedy", "pursuer"), evader)
            counts.append(sum(e.ended == "captured" for e in episodes))
    assert tuple(counts) == expected


def test_flee_to_corner_reaches_a_real_corner():
    world = PursuitWorld(games=20, max_steps=900)
    world.reset(seed=0)
    actions = np.zeros((40, 2), np.float32)
    for _ in range(600):
        Scripted("static", "pursuer").write(world, actions)
        Scripted("flee_to_corner", "evader").write(world, actions)
        world.step(actions)
    assert (np.abs(world.records["pose"][:, 1, :2]).min(axis=1) > 8.0).all()


def test_the_random_script_is_uniform_and_repeats_with_the_episode():
    world = PursuitWorld(games=2000)
    world.reset(seed=0)
    first = Scripted("random", "evader").act(world)
    np.testing.assert_array_equal(first, Scripted("random", "evader").act(world))
    assert first[:, 0].mean() == pytest.approx(0.5, abs=0.03)
    assert first[:, 1].std() == pytest.approx(2 * 2.84 / np.sqrt(12), rel=0.05)
    assert not np.array_equal(first, Scripted("random", "evader", seed=1).act(world))


def test_every_script_plays_every_kind_of_action_within_its_bounds():
    for options in ({}, {"fixed_speed": True}, {"unit_actions": True, "evader_v_max": 0.5}):
        world = PursuitWorld(games=3, **options)
        world.reset(seed=0)
        for name in SCRIPTS:
            for role in ("pursuer", "evader"):
                actions = Scripted(name, role).act(world)
                space = world.single_action_space
                assert actions.shape == (3, *space.shape)
                assert (actions >= space.low - 1e-6).all()
                assert (actions <= space.high + 1e-6).all()


def test_a_fixed_speed_does_not_bind_scripts():
    world = PursuitWorld(games=4, fixed_speed=True)
    world.reset(seed=0)
    state = world.get_state()
    state["pose"][:, 0] = [-2.0, 0.0, np.pi / 3]
    state["pose"][:, 1] = [2.0, 0.0, 0.0]
    actions = np.zeros((8, 1), np.float32)
    for name, speed in {"greedy": 0.5, "chaser": 0.5, "static": 0.0, "pure_pursuit": 1.0}.items():
        world.set_state(state)
        Scripted(name, "pursuer").write(world, actions)
        world.step(actions)
        np.testing.assert_allclose(world.records["last_action"][:, 0, 0], speed, rtol=1e-6)
        np.testing.assert_array_equal(world.records["last_action"][:, 1, 0], 1.0)
        world.step(actions)  # nobody asked the script: a policy plays, at full speed
        np.testing.assert_array_equal(world.records["last_action"][:, 0, 0], 1.0)
    assert world.scripted("static", "pursuer", np.array([1, 3])).shape == (2, 1)
    world.step(actions)  # a script that plays in some games leaves the others alone
    np.testing.assert_array_equal(world.records["last_action"][:, 0, 0], [1.0, 0.0, 1.0, 0.0])


def test_an_action_of_the_wrong_width_is_refused():
    for fixed in (False, True):
        world = PursuitWorld(games=4, fixed_speed=fixed)
        world.reset(seed=0)
        with pytest.raises(ValueError, match="reshape"):
            world.step(np.zeros((8, 2 if fixed else 1), np.float32))


def test_an_unknown_script_or_role_is_refused():
    with pytest.raises(ConfigError, match="Did you mean 'greedy'"):
        Scripted("gredy", "pursuer")
    with pytest.raises(ConfigError, match="pursuer, evader"):
        Scripted("greedy", "hunter")
