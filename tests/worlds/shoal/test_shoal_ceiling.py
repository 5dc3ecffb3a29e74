"""The ceiling reproduces the figures of spec section 9 and bounds every policy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from holdfast.records import Start
from holdfast.worlds.shoal import ShoalOptions, ShoalWorld, plain_options
from holdfast.worlds.shoal.ceiling import ceiling
from holdfast.worlds.shoal.policies import act


def test_ceilings_of_the_five_logged_v36_evaluations() -> None:
    rng = np.random.default_rng(411232)
    logged = [
        (0.75, 0.9826, 0.0174, 20, 0.969),
        (0.76, 0.9818, 0.0182, 20, 0.948),
        (0.78, 0.9878, 0.0122, 14, 0.958),
        (0.80, 0.9792, 0.0208, 24, 0.938),
        (0.80, 0.9887, 0.0113, 13, 0.958),
    ]
    for boost, avg_final, early, step_one, min_final in logged:
        seeds = rng.integers(0, 2**31 - 1, 12).tolist()
        report = ceiling(ShoalOptions(fish=96, escape_boost_speed=boost), seeds)
        assert report is not None
        assert round(report.avg_final, 4) == avg_final
        assert round(report.early_death_100, 4) == early
        assert report.step_one_count == step_one
        assert round(report.min_final, 3) == min_final
        assert report.p10 == 500.0
        assert report.exact.all()


def test_ceiling_of_the_sixty_common_episodes() -> None:
    seeds = np.random.default_rng(12345).integers(0, 2**31 - 1, 60).tolist()
    report = ceiling(ShoalOptions(fish=96, escape_boost_speed=0.8), seeds, threads=2)
    assert report is not None
    assert round(report.avg_final, 4) == 0.9826
    assert round(report.min_final, 3) == 0.917
    assert round(report.step_one_count / (60 * 96), 4) == 0.0170


def test_no_policy_saves_a_fish_that_the_ceiling_gives_up() -> None:
    options = plain_options(games=20, fish=25)
    world = ShoalWorld(options, seed=50)
    report = ceiling(options, range(50, 70))
    assert report is not None
    for _ in range(500):
        *_, info = world.step(act("sidestep", world))
    deaths = np.stack([episode.detail["death_steps"] for episode in info["episodes"]])
    assert ((deaths >= 0) | report.survivable).all()
    late = np.where(deaths < 0, 500, deaths)
    assert (late <= np.where(report.survivable, 500, report.best_death_step)).all()
    assert report.avoidable(deaths) == pytest.approx(report.avg_final - (deaths < 0).mean())


def test_verdicts_equal_a_full_enumeration_of_the_first_four_steps() -> None:
    options = plain_options(games=625, fish=25, max_steps=4)
    report = ceiling(options, [101])
    assert report is not None
    world = ShoalWorld(options, seed=0)
    world.reset(seed=[101] * 625)
    plans = np.array(list(itertools.product(range(5), repeat=4)))
    for step in range(4):
        *_, info = world.step(np.repeat(plans[:, step], 25))
    deaths = {e.game: e.detail["death_steps"] for e in info["episodes"]}
    survived = np.any([deaths[g] < 0 for g in deaths], axis=0)
    np.testing.assert_array_equal(report.survivable[0], survived)


def test_a_snapshot_start_has_a_ceiling_and_the_dead_stay_dead() -> None:
    alive = np.array([True, False, True])
    on_top = np.array([[5.0, 5.0], [0.0, 0.0], [0.0, 0.1]])
    snapshot = {"fish_pos": on_top, "fish_vel": np.zeros((3, 2)), "alive": alive}
    report = ceiling(plain_options(fish=3), [Start(seed=1, snapshot=snapshot)])
    assert report is not None
    assert report.best_death_step.tolist() == [[-1, 0, 1]]


def test_a_hunting_predator_has_no_ceiling() -> None:
    assert ceiling(ShoalOptions(predator_hunts=True), [1]) is None
