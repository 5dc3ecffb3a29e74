"""Options and values: what is allowed, and what the errors say."""

from __future__ import annotations

import math

import pytest

from holdfast.errors import ConfigError
from holdfast.worlds.pursuit import PursuitOptions, PursuitWorld


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("games", 0, "a whole number of at least 1"),
        ("games", 2.5, "a whole number"),
        ("max_steps", 0, "at least 1"),
        ("dt", 0.0, "above 0"),
        ("dt", math.nan, "a finite number"),
        ("arena_width", "10", "a finite number above 0"),
        ("p_full", 1.5, "at most 1"),
        ("fov_angle", 7.0, "at most 6.28"),
        ("w_wall", -0.5, "of at least 0"),
        ("observation", "radar", "auto, full, masked, sensors"),
        ("safety", "all", "none, pursuer, evader, both"),
        ("min_init_distance", 30.0, "at most"),
        ("n_obstacles_max", 3, "set together with n_obstacles_min"),
        ("fixed_speed", None, None),
    ],
)
def test_an_option_out_of_range_is_named_with_its_value_and_what_is_allowed(name, value, allowed):
    if allowed is None:
        PursuitOptions(**{name: bool(value)})
        return
    given = {name: value}
    if name == "min_init_distance":
        given["max_init_distance"] = 40.0
    with pytest.raises(ConfigError) as error:
        PursuitOptions(**given)
    assert f"'{name}'" in str(error.value)
    assert repr(value) in str(error.value)
    assert allowed in str(error.value)


def test_an_unknown_option_names_the_nearest_one():
    with pytest.raises(ConfigError, match="Did you mean 'arena_width'"):
        PursuitWorld(arena_widht=10.0)


def test_contradictory_options_are_refused():
    with pytest.raises(ConfigError, match="max_init_distance"):
        PursuitOptions(min_init_distance=5.0, max_init_distance=2.0)
    with pytest.raises(ConfigError, match="observation"):
        PursuitOptions(partial_obs=True, observation="full")
    with pytest.raises(ConfigError, match="flee_probability"):
        PursuitOptions(task="navigation")
    with pytest.raises(ConfigError, match="n_obstacles"):
        PursuitOptions(n_obstacles=6, obstacle_capacity=5)
    with pytest.raises(ConfigError, match="action_v_max"):
        PursuitOptions(action_v_max=0.5)


def test_observation_sizes_follow_from_the_mode():
    assert PursuitOptions().observation_size == 14
    assert PursuitOptions(n_obstacle_obs=3).observation_size == 20
    assert PursuitOptions(partial_obs=True, n_obstacle_obs=3).observation_size == 21
    assert PursuitOptions(observation="sensors").observation_size == 473


def test_a_value_is_read_back_as_the_kernels_use_it():
    world = PursuitWorld(games=2, n_obstacles=1, sensing_radius=3.0, partial_obs=True)
    for name in world.value_names:
        before = world.value(name)
        world.set_value(name, before)
        assert world.value(name) == before
    world.set_value("max_init_distance", 7.5)
    world.set_value("pursuer_v_max", 0.9)
    world.set_value("n_obstacles", 4)
    assert world.value("max_init_distance") == 7.5
    assert world.value("pursuer_v_max") == 0.9
    assert world.value("n_obstacles") == 4
    assert world.value("fov_angle") == -1
    world.set_value("sensing_radius", -1)
    assert world.value("sensing_radius") == -1
    assert world.params["sensing_radius"][0] == -1


def test_a_value_that_is_not_allowed_changes_nothing():
    world = PursuitWorld(n_obstacles=1)
    for name, value in [("n_obstacles", 5), ("n_obstacles", 1.5), ("p_full", 2.0)]:
        with pytest.raises(ConfigError, match=name):
            world.set_value(name, value)
    with pytest.raises(ConfigError, match="action_v_max"):
        world.set_value("evader_v_max", 1.2)
    with pytest.raises(ConfigError, match="Did you mean 'p_full'"):
        world.set_value("p_ful", 0.5)
    assert world.value("n_obstacles") == 1
    assert world.value("evader_v_max") == 1.0


def test_values_set_together_are_checked_together():
    world = PursuitWorld(min_init_distance=5.0, max_init_distance=15.0)
    with pytest.raises(ConfigError, match="set both at once"):
        world.set_value("max_init_distance", 4.0)
    world.set_values({"max_init_distance": 4.0, "min_init_distance": 2.0})
    assert (world.value("min_init_distance"), world.value("max_init_distance")) == (2.0, 4.0)


def test_room_in_the_action_space_lets_a_curriculum_raise_speeds():
    world = PursuitWorld(action_v_max=1.5)
    world.set_value("evader_v_max", 1.5)
    assert world.value("evader_v_max") == 1.5
    assert world.single_action_space.high[0] == 1.5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sensing_radius", 3.0),
        ("fov_angle", 1.5),
        ("combined_masking", True),
        ("asymmetric_obs", True),
        ("p_full", 0.5),
        ("w_search", 0.1),
    ],
)
def test_what_hides_the_opponent_is_refused_where_nothing_is_hidden(name, value):
    for observation in ("auto", "full", "frame"):
        with pytest.raises(ConfigError, match=f"'{name}'.*--observation masked.*does nothing"):
            PursuitOptions(observation=observation, **{name: value})
    assert getattr(PursuitOptions(observation="masked", **{name: value}), name) == value


@pytest.mark.parametrize("name", ["w_cbf_margin", "w_cbf_condition", "w_cbf_intervention"])
def test_what_pays_for_the_barrier_is_refused_where_the_pursuer_has_none(name):
    for safety in ("none", "evader"):
        with pytest.raises(ConfigError, match=f"'{name}'.*--safety pursuer or both.*does nothing"):
            PursuitOptions(safety=safety, **{name: 0.5})
    for safety in ("pursuer", "both"):
        assert getattr(PursuitOptions(safety=safety, **{name: 0.5}), name) == 0.5
    with pytest.raises(ConfigError, match="does nothing"):
        PursuitWorld().set_value(name, 0.5)


def test_hiding_cannot_cost_by_the_reward_for_occlusion():
    with pytest.raises(ConfigError, match=r"'w_occlusion'.*of at least 0"):
        PursuitOptions(w_occlusion=-0.5)


def test_what_acts_without_a_mask_is_allowed():
    PursuitOptions(w_vis_pursuer=0.1, sensing_radius=3.0)
    PursuitOptions(observation="sensors", w_search=0.1, sensing_radius=3.0)
    with pytest.raises(ConfigError, match="fov_angle"):
        PursuitOptions(observation="sensors", fov_angle=1.5)
