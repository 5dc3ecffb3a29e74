"""Bad settings are refused with the key, the value and what is allowed; bias texts mean what they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from holdfast.errors import ConfigError
from holdfast.worlds.shoal import ShoalOptions, ShoalWorld, make_options, plain_options
from holdfast.worlds.shoal.options import parse_heading_bias, parse_speed_bias


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("games", 0, "1 to 100000"),
        ("games", 2.5, "whole number"),
        ("fish", -3, "1 to 10000"),
        ("fish", "many", "whole number"),
        ("escape_boost_speed", 1.2, "0 to 1"),
        ("density_target", float("nan"), "0 to 1"),
        ("neighbors", 1, "true or false"),
        ("spawn_jitter", 9.0, "0 to 8"),
        ("heading_bias", "0-60", "from-to:weight"),
        ("heading_bias", "0-60:1,", "from-to:weight"),
        ("heading_bias", "30-30:1", "two different headings"),
        ("heading_bias", "0-60:-1", "weights of 0 or more"),
        ("heading_bias", "0-60:0", "above 0"),
        ("speed_bias", "2-1:1", "0 <= from < to"),
        ("speed_bias", 3, "text such as"),
    ],
)
def test_a_bad_value_names_the_key_the_value_and_the_range(
    name: str, value: Any, allowed: str
) -> None:
    with pytest.raises(ConfigError, match=allowed) as caught:
        ShoalOptions(**{name: value})
    assert name in str(caught.value)
    assert str(value).strip(",") in str(caught.value)


def test_an_unknown_option_gets_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'neighbors'"):
        make_options(neighbours=True)


def test_heading_bins_may_end_at_360_and_wrap_round() -> None:
    assert parse_heading_bias("330-360:0.95") == ((330.0, 360.0, 0.95),)
    assert parse_heading_bias("330-30:2") == ((330.0, 390.0, 2.0),)
    assert parse_heading_bias("-30-30:2") == ((330.0, 390.0, 2.0),)
    assert parse_heading_bias("0-360:1") == ((0.0, 360.0, 1.0),)
    assert parse_heading_bias("") == ()
    assert parse_heading_bias("0-60:1, 60-90:0") == ((0.0, 60.0, 1.0),)
    assert parse_speed_bias("0-1.0:1.6,1.0-1.6:1.3") == ((0.0, 1.0, 1.6), (1.0, 1.6, 1.3))


def test_predators_start_only_in_a_wrapped_bin_and_on_both_sides_of_it() -> None:
    world = ShoalWorld(plain_options(games=400, fish=1, heading_bias="330-30:1"), seed=0)
    velocity = world.bodies()["predator_vel"]
    degrees = np.degrees(np.arctan2(velocity[:, 1], velocity[:, 0]))
    assert np.abs(degrees).max() <= 30.0
    assert 0.4 < (degrees > 0).mean() < 0.6
    np.testing.assert_allclose(np.linalg.norm(velocity, axis=1), 1.5, atol=1e-6)


def test_weights_are_proportions() -> None:
    world = ShoalWorld(plain_options(games=2000, fish=1, heading_bias="0-90:3,180-270:1"), seed=0)
    assert 0.72 < (world.bodies()["predator_vel"][:, 1] > 0).mean() < 0.78
