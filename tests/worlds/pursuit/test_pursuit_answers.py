"""Games whose answers are known: straight chases, intercepts, certain capture, the chauffeur (spec 10)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from holdfast.records import Start
from holdfast.worlds.pursuit import PursuitWorld
from holdfast.worlds.pursuit.chauffeur import ChauffeurPolicy, solve
from holdfast.worlds.pursuit.policies import Scripted, play

R, DT, W = 0.5, 0.05, 2.84


class Straight:
    """Full speed ahead, no turning."""

    def __init__(self, role):
        self.me = ("pursuer", "evader").index(role)

    def write(self, world, actions):
        actions[self.me :: 2, 0] = world.single_action_space.high[0]
        actions[self.me :: 2, 1] = 0


class Pointer:
    """Turns in place to the evader, then keeps pointing at it at full speed."""

    def write(self, world, actions):
        pose = world.records["pose"]
        d = pose[:, 1] - pose[:, 0]
        err = (np.arctan2(d[:, 1], d[:, 0]) - pose[:, 0, 2] + math.pi) % (2 * math.pi) - math.pi
        actions[0::2, 0] = np.where(np.abs(err) > W * DT, 0.0, world.single_action_space.high[0])
        actions[0::2, 1] = err / DT


def straight_game(poses, **options):
    world = PursuitWorld(games=len(poses), **options)
    starts = [Start(snapshot={"pose": np.array(pose, float)}) for pose in poses]
    world.queue_starts(range(0, 2 * len(poses), 2), starts)
    return play(world, Straight("pursuer"), Straight("evader"))


@pytest.mark.parametrize(("v_p", "v_e"), [(1.5, 1.0), (1.2, 1.0), (1.0, 0.5), (1.0, 0.25)])
def test_an_aligned_chase_takes_distance_over_closing_speed(v_p, v_e):
    distances = [1.3, 2.17, 4.03]
    poses = [[[-100, 0, 0], [-100 + d, 0, 0]] for d in distances]
    episodes = straight_game(
        poses,
        arena_width=400.0,
        arena_height=400.0,
        pursuer_v_max=v_p,
        evader_v_max=v_e,
        max_steps=5000,
    )
    for d, e in zip(distances, episodes, strict=True):
        expected = math.ceil((d - R) / ((v_p - v_e) * DT) - 1e-9)
        assert e.ended == "captured"
        assert expected <= e.steps <= expected + 1


@pytest.mark.parametrize("x_p", [-5.0, 0.0, 6.0])
def test_a_wall_ahead_ends_the_chase_when_the_pursuer_reaches_it(x_p):
    v_p, v_e, d = 1.2, 1.0, 2.5
    options = {"arena_width": 20.0, "arena_height": 20.0, "pursuer_v_max": v_p, "evader_v_max": v_e}
    (episode,) = straight_game([[[x_p, 0, 0], [x_p + d, 0, 0]]], **options)
    wall = 10.0 - 0.15
    expected = min((d - R) / (v_p - v_e), (wall - x_p - R) / v_p)
    assert episode.facts["capture_time_s"] == pytest.approx(expected, abs=DT + 1e-9)


def test_a_pursuer_aimed_at_the_intercept_point_captures_in_the_closed_form_time():
    rng = np.random.default_rng(0)
    v_p, v_e = 1.0, 0.6
    poses, times = [], []
    for _ in range(12):
        angle, course, d = (
            rng.uniform(-math.pi, math.pi),
            rng.uniform(-math.pi, math.pi),
            rng.uniform(2, 8),
        )
        offset, u = (
            d * np.array([math.cos(angle), math.sin(angle)]),
            np.array([math.cos(course), math.sin(course)]),
        )
        # Smallest positive root of (v_E^2 - v_P^2) t^2 + 2 (v_E u.D - v_P r) t + d^2 - r^2 = 0.
        roots = np.roots([v_e**2 - v_p**2, 2 * (v_e * u @ offset - v_p * R), d**2 - R**2])
        t = min(root for root in roots.real if root > 0)
        aim = offset + v_e * t * u
        poses.append([[0, 0, math.atan2(aim[1], aim[0])], [*offset, course]])
        times.append(t)
    episodes = straight_game(
        poses,
        arena_width=400.0,
        arena_height=400.0,
        pursuer_v_max=v_p,
        evader_v_max=v_e,
        max_steps=5000,
    )
    for t, e in zip(times, episodes, strict=True):
        assert e.steps == math.ceil(t / DT)


@pytest.mark.parametrize("v_p", [1.2, 1.5])
@pytest.mark.parametrize("evader", ["flee", "circling", "random", "flee_to_corner"])
def test_a_faster_pursuer_that_points_at_the_evader_always_captures_within_the_bound(v_p, evader):
    world = PursuitWorld(games=60, pursuer_v_max=v_p, max_steps=4000)
    episodes = play(world, Pointer(), Scripted(evader, "evader", radius=6.0))
    for e in episodes:
        d0 = e.facts["init_distance_m"]
        bound = math.pi / W + (d0 + math.pi / W - R) / (v_p - 1.0)
        assert e.ended == "captured"
        assert e.facts["capture_time_s"] <= bound


PLACES = [(2, 0), (3, 1), (0, 1), (0, 2), (-1, 0), (-2, 0), (-1, 1), (1.5, -2)]
VALUES = [3.008, 5.343, 1.690, 3.550, 3.788, 5.565, 3.405, 4.132]


@pytest.fixture(scope="module")
def table():
    return solve()


def test_the_chauffeur_table_has_the_known_values(table):
    for (x, y), value in zip(PLACES, VALUES, strict=True):
        assert table.value(x, y) == pytest.approx(value, abs=2e-3)
    for x in (1.0, 1.5, 2.0, 3.0):
        assert table.value(x, 0.0) == pytest.approx((x - R) / 0.5, abs=0.01)


def chauffeur_world(table, places, **options):
    world = PursuitWorld(games=len(places), **table.world_options(), **options)
    world.queue_starts(range(0, 2 * len(places), 2), [table.start(x, y) for x, y in places])
    return world


@pytest.mark.parametrize("unit_actions", [False, True])
def test_both_table_policies_played_in_the_world_take_the_value_within_one_step(
    table, unit_actions
):
    world = chauffeur_world(table, PLACES, unit_actions=unit_actions)
    episodes = play(world, ChauffeurPolicy(table, "pursuer"), ChauffeurPolicy(table, "evader"))
    for e, value in zip(episodes, VALUES, strict=True):
        assert abs(e.facts["capture_time_s"] - value) <= DT


def test_no_other_pursuer_is_faster_than_the_value_and_no_other_evader_lasts_longer(table):
    rng = np.random.default_rng(1)
    places = [(x, y) for x, y in rng.uniform(-3, 3, (40, 2)) if math.hypot(x, y) > 0.8]
    values = np.array([table.value(x, y) for x, y in places])
    against = [
        (Scripted("pure_pursuit", "pursuer"), ChauffeurPolicy(table, "evader"), 1),
        (ChauffeurPolicy(table, "pursuer"), Scripted("flee", "evader"), -1),
        (ChauffeurPolicy(table, "pursuer"), Scripted("random", "evader"), -1),
    ]
    for pursuer, evader, sign in against:
        episodes = play(chauffeur_world(table, places), pursuer, evader)
        times = np.array([e.steps * DT for e in episodes])
        assert (sign * (times - values) >= -2 * DT).all()
