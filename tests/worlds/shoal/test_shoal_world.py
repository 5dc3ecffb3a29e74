"""The shoal keeps the world contract: masks, endings, state, starts, values, threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from holdfast.errors import ConfigError, EnvironmentFault
from holdfast.records import Array, Start
from holdfast.worlds.shoal import ShoalOptions, ShoalWorld, plain_options
from holdfast.worlds.shoal.policies import act
from holdfast.worlds.shoal.world import episode_seed


def random_actions(world: ShoalWorld, steps: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 5, (steps, world.num_envs), dtype=np.int32)


def run(world: ShoalWorld, actions: Array) -> list[tuple[Any, ...]]:
    results = []
    for row in actions:
        obs, rewards, terminations, truncations, info = world.step(row)
        results.append((obs, rewards, terminations, truncations, info["mask"]))
    return results


def assert_same(left: list[tuple[Any, ...]], right: list[tuple[Any, ...]]) -> None:
    for a, b in zip(left, right, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)


def test_slots_are_games_times_fish() -> None:
    world = ShoalWorld(ShoalOptions(games=3, fish=7), seed=0)
    assert (world.num_envs, world.slots_per_game, world.games) == (21, 7, 3)
    assert world.roles == ("fish",) * 21
    obs, info = world.reset(seed=1)
    assert obs.shape == (21, 11)
    assert obs.dtype == np.float32
    assert info["mask"].all()
    assert ShoalWorld(ShoalOptions(games=1, neighbors=True), seed=0).observe()[0].shape == (25, 18)


def test_a_fish_dies_once_and_is_masked_until_its_game_ends() -> None:
    world = ShoalWorld(plain_options(games=8, fish=25, max_steps=60), seed=3)
    died = np.zeros(world.num_envs, int)
    living = np.ones(world.num_envs, bool)
    for row in random_actions(world, 59):
        obs, rewards, terminations, truncations, info = world.step(row)
        assert not truncations.any()
        assert (rewards[terminations] == -50.0).all()
        assert (rewards[~living] == 0.0).all()
        living &= ~terminations
        died += terminations
        np.testing.assert_array_equal(info["mask"], living)
        assert (obs[~living] == 0.0).all()
    assert died.max() == 1
    assert died.sum() > 0
    *_, terminations, truncations, info = world.step(random_actions(world, 1)[0])
    np.testing.assert_array_equal(truncations, living & ~terminations)
    assert info["mask"].all()


def test_the_living_are_truncated_at_the_step_limit_with_their_final_observation() -> None:
    world = ShoalWorld(ShoalOptions(games=2, fish=5, max_steps=10), seed=5)
    free = ShoalWorld(ShoalOptions(games=2, fish=5, max_steps=11), seed=5)
    actions = random_actions(world, 10)
    before = run(free, actions)[-1][0]
    for row in actions[:-1]:
        world.step(row)
    obs, _, _, truncations, info = world.step(actions[-1])
    np.testing.assert_array_equal(info["_final_obs"], truncations)
    np.testing.assert_array_equal(info["final_obs"][truncations], before[truncations])
    np.testing.assert_array_equal(obs, world.observe()[0])
    assert [e.ended for e in info["episodes"]] == ["truncated", "truncated"]
    assert [e.steps for e in info["episodes"]] == [10, 10]
    assert (world.bodies()["t"] == 0).all()


def test_a_game_without_living_fish_ends_and_begins_anew_in_the_same_step() -> None:
    world = ShoalWorld(plain_options(games=2, fish=3), seed=0)
    bodies = world.bodies()
    bodies["fish_pos"][0] = 0.1
    bodies["fish_pos"][1] = 5.0
    world.set_state(bodies)
    _, rewards, terminations, truncations, info = world.step(np.full(6, 3))
    assert terminations[:3].all()
    assert not terminations[3:].any()
    assert not truncations.any()
    assert (rewards[:3] == -50.0).all()
    assert info["mask"].all()
    (episode,) = info["episodes"]
    assert (episode.game, episode.ended, episode.steps) == (0, "terminated", 1)
    assert tuple(episode.facts) == world.fact_names
    assert episode.facts["survival"] == 0.0
    assert episode.facts["step_one_deaths"] == 3.0
    assert episode.facts["first_death_step"] == 1.0
    assert len(episode.detail["step_one"]) == 3
    np.testing.assert_array_equal(episode.detail["death_steps"], [1, 1, 1])
    np.testing.assert_array_equal(episode.returns, [-50.0, -50.0, -50.0])
    assert world.bodies()["t"].tolist() == [0, 1]


def test_forced_resets_cut_games_after_the_given_steps() -> None:
    world = ShoalWorld(ShoalOptions(games=2, fish=4, force_reset_steps=7), seed=1)
    actions = random_actions(world, 7)
    run(world, actions[:6])
    *_, truncations, info = world.step(actions[6])
    assert [e.ended for e in info["episodes"]] == ["forced", "forced"]
    assert truncations.any()
    np.testing.assert_array_equal(truncations, info["_final_obs"])


def test_a_requested_reset_cuts_only_its_game() -> None:
    world = ShoalWorld(ShoalOptions(games=3, fish=4), seed=1)
    world.request_reset([5])
    *_, info = world.step(np.zeros(12, int))
    assert [e.game for e in info["episodes"]] == [1]
    assert world.bodies()["t"].tolist() == [1, 0, 1]
    *_, info = world.step(np.zeros(12, int))
    assert "episodes" not in info


def test_a_game_that_was_broken_off_has_no_outcome_and_one_of_full_length_has() -> None:
    world = ShoalWorld(ShoalOptions(games=2, fish=4, force_reset_steps=2), seed=1)
    world.request_reset([0])
    *_, info = world.step(np.zeros(8, int))
    assert [(e.game, e.ended, e.cut) for e in info["episodes"]] == [(0, "forced", True)]
    world.request_reset([4])  # in the step that is its last anyway
    *_, info = world.step(np.zeros(8, int))
    assert [(e.game, e.ended, e.cut) for e in info["episodes"]] == [(1, "forced", False)]


def test_stepping_goes_on_bit_for_bit_from_a_saved_state() -> None:
    options = ShoalOptions(games=5, fish=9, neighbors=True, density_penalty=0.1, max_steps=40)
    world = ShoalWorld(options, seed=11)
    world.queue_starts(
        [0, 0, 9], [Start(seed=4), Start(snapshot={"predator_vel": np.ones(2)}), Start(seed=5)]
    )
    world.set_value("escape_boost_speed", 0.7)
    actions = random_actions(world, 130)
    run(world, actions[:25])
    world.request_reset([18])
    state = world.get_state()
    other = ShoalWorld(options, seed=99)
    other.set_state(state)
    np.testing.assert_array_equal(world.observe()[0], other.observe()[0])
    assert_same(run(world, actions[25:]), run(other, actions[25:]))
    left, right = world.get_state(), other.get_state()
    assert left.keys() == right.keys()
    for key, value in left.items():
        np.testing.assert_array_equal(value, right[key], err_msg=key)
    assert other.value("escape_boost_speed") == 0.7


def test_a_saved_state_does_not_change_when_the_world_goes_on() -> None:
    world = ShoalWorld(ShoalOptions(games=2, fish=3), seed=0)
    state = world.get_state()
    kept = {key: np.copy(value) for key, value in state.items() if not isinstance(value, bytes)}
    run(world, random_actions(world, 20))
    for key, value in kept.items():
        np.testing.assert_array_equal(state[key], value, err_msg=key)


def test_a_state_of_six_arrays_is_enough_and_leaves_the_bookkeeping() -> None:
    world = ShoalWorld(ShoalOptions(games=2, fish=3), seed=0)
    world.queue_starts([0], [Start(seed=8)])
    bodies = world.bodies()
    bodies["alive"][1] = [True, False, True]
    bodies["t"][:] = 20
    world.set_state(bodies)
    assert world.queued() == [1, 0]
    assert world.observe()[1].tolist() == [True, True, True, True, False, True]
    assert world.get_state()["death_steps"].tolist() == [[-1, -1, -1], [-1, 20, -1]]


def test_a_state_of_another_size_is_refused_with_the_shapes() -> None:
    state = ShoalWorld(ShoalOptions(games=2, fish=3), seed=0).get_state()
    with pytest.raises(EnvironmentFault, match=r"\(2, 3.*\(2, 4"):
        ShoalWorld(ShoalOptions(games=2, fish=4), seed=0).set_state(state)


@pytest.mark.parametrize("changes", [{}, {"neighbors": True}, {"predator_hunts": True}])
def test_results_do_not_depend_on_the_thread_count(changes: dict[str, Any]) -> None:
    one = ShoalWorld(ShoalOptions(games=7, fish=45, max_steps=50, **changes), seed=2)
    two = ShoalWorld(ShoalOptions(games=7, fish=45, max_steps=50, threads=2, **changes), seed=2)
    actions = random_actions(one, 120)
    assert_same(run(one, actions), run(two, actions))
    two.close()


def test_seeds_are_literal_for_the_first_episode_and_derived_afterwards() -> None:
    world = ShoalWorld(ShoalOptions(games=3, fish=2, max_steps=1), seed=0)
    by_int = world.reset(seed=40)[0]
    np.testing.assert_array_equal(world.reset(seed=[40, 41, 42])[0], by_int)
    np.testing.assert_array_equal(world.reset(seed=[40, 40, 41, 41, 42, 42])[0], by_int)
    *_, info = world.step(np.zeros(6, int))
    assert [e.start.seed for e in info["episodes"]] == [40, 41, 42]
    *_, info = world.step(np.zeros(6, int))
    later = [e.start.seed for e in info["episodes"]]
    assert later == [episode_seed(seed, 1) for seed in (40, 41, 42)]
    assert len(set(later)) == 3


def test_reset_without_a_seed_goes_on_with_the_streams() -> None:
    world = ShoalWorld(ShoalOptions(games=2, fish=2), seed=0)
    first = world.reset(seed=7)[0]
    second, third = world.reset()[0], world.reset()[0]
    assert not np.array_equal(first, second)
    assert not np.array_equal(second, third)
    world.reset(seed=7)
    np.testing.assert_array_equal(world.reset()[0], second)


def test_seeds_of_the_wrong_number_or_sign_are_refused() -> None:
    world = ShoalWorld(ShoalOptions(games=2, fish=3), seed=0)
    for seed in ([1], [1, 2, 3], -1, [5, -5]):
        with pytest.raises(ConfigError, match="A world got"):
            world.reset(seed=seed)


def test_a_start_by_seed_repeats_that_episode_and_is_reported() -> None:
    world = ShoalWorld(ShoalOptions(games=2, fish=6, max_steps=2), seed=0)
    wanted = world.reset(seed=[123, 0])[0][:6]
    world.reset(seed=0)
    start = Start(seed=123, label="stage1", type="ne", id="x")
    world.queue_starts([6], [start])
    world.step(np.zeros(12, int))
    obs, *_, info = world.step(np.zeros(12, int))
    np.testing.assert_array_equal(obs[6:], wanted)
    world.step(np.zeros(12, int))
    *_, info = world.step(np.zeros(12, int))
    assert info["episodes"][1].start == start
    assert info["episodes"][0].start.type == "fresh"


def test_a_snapshot_restores_the_whole_state_of_a_game() -> None:
    world = ShoalWorld(ShoalOptions(games=2, fish=6), seed=0)
    run(world, random_actions(world, 12))
    bodies = world.bodies()
    keys = ("fish_pos", "fish_vel", "alive", "predator_pos", "predator_vel")
    world.queue_starts([11], [Start(snapshot={key: bodies[key][0] for key in keys})])
    world.reset()
    now = world.bodies()
    for key in keys:
        np.testing.assert_array_equal(now[key][1], bodies[key][0])
    assert now["t"].tolist() == [0, 0]


def test_a_velocity_start_keeps_the_velocity_through_the_pre_roll() -> None:
    world = ShoalWorld(ShoalOptions(games=1, fish=6), seed=0)
    drawn = world.reset(seed=9)[0]
    velocity = np.array([0.83, 1.76], np.float32)
    world.queue_starts([0], [Start(seed=9, snapshot={"predator_vel": velocity})])
    replayed = world.reset()[0]
    np.testing.assert_array_equal(world.bodies()["predator_vel"][0], velocity)
    np.testing.assert_array_equal(replayed[:, :5], drawn[:, :5])


def test_queued_starts_come_before_seeds_and_in_order() -> None:
    world = ShoalWorld(ShoalOptions(games=1, fish=3, max_steps=1), seed=0)
    world.queue_starts([0, 2], [Start(seed=100), Start(seed=200)])
    world.reset(seed=5)
    seen = []
    for _ in range(3):
        *_, info = world.step(np.zeros(3, int))
        seen.append(info["episodes"][0].start.seed)
    assert seen == [100, 200, episode_seed(5, 2)]


def test_bad_snapshots_are_refused_when_they_are_queued() -> None:
    world = ShoalWorld(ShoalOptions(games=1, fish=3), seed=0)
    for snapshot, message in (
        ({"fish_position": np.zeros((3, 2))}, "Did you mean 'fish_pos'"),
        ({"fish_pos": np.zeros((4, 2))}, r"\(3, 2\)"),
        ({"predator_vel": np.array([np.nan, 0.0])}, "not finite"),
    ):
        with pytest.raises(ConfigError, match=message):
            world.queue_starts([0], [Start(snapshot=snapshot)])


def test_values_are_clipped_and_read_back() -> None:
    world = ShoalWorld(ShoalOptions(games=1, fish=3), seed=0)
    for name, value, kept in (
        ("escape_boost_speed", 1.7, 1.0),
        ("density_target", -0.2, 0.0),
        ("density_penalty", 0.05, 0.05),
        ("force_reset_steps", 224.0, 224.0),
        ("divergence_reward", 0.22, 0.22),
    ):
        world.set_value(name, value)
        assert world.value(name) == kept
    with pytest.raises(ConfigError, match="Did you mean 'density_target'"):
        world.set_value("density_targt", 1.0)
    with pytest.raises(ConfigError, match="escape_boost_speed"):
        world.set_value("escape_boost_speed", float("nan"))


def test_a_turned_boost_holds_from_the_next_reset_on() -> None:
    world = ShoalWorld(ShoalOptions(games=1, fish=50), seed=0)
    world.set_value("escape_boost_speed", 0.5)
    world.reset()
    speeds = np.linalg.norm(world.bodies()["fish_vel"], axis=-1)
    np.testing.assert_allclose(speeds, 1.0, atol=1e-6)


def test_the_density_penalty_works_without_neighbour_observations() -> None:
    with_features = plain_options(games=2, fish=25, neighbors=True, density_penalty=0.5)
    without = plain_options(games=2, fish=25, density_penalty=0.5)
    one, two = ShoalWorld(with_features, seed=4), ShoalWorld(without, seed=4)
    actions = random_actions(one, 30)
    for a, b in zip(run(one, actions), run(two, actions), strict=True):
        np.testing.assert_array_equal(a[0][:, :11], b[0])
        np.testing.assert_array_equal(a[1], b[1])


def test_a_hunting_predator_catches_more_fish_than_a_falling_one() -> None:
    deaths = {}
    for hunts in (False, True):
        options = ShoalOptions(games=8, fish=50, predator_hunts=hunts, max_steps=200)
        world = ShoalWorld(options, seed=1)
        for _ in range(200):
            *_, info = world.step(act("sidestep", world))
        deaths[hunts] = np.mean([1.0 - e.facts["survival"] for e in info["episodes"]])
    assert deaths[True] > 3 * deaths[False]


def test_actions_of_the_wrong_shape_are_refused() -> None:
    world = ShoalWorld(ShoalOptions(games=2, fish=3), seed=0)
    with pytest.raises(EnvironmentFault, match=r"Allowed: \(6,\)"):
        world.step(np.zeros(5, int))
