from __future__ import annotations

import pytest

from holdfast.errors import ConfigError
from holdfast.learn.schedule import parse_windows, shape_factor, windowed


def test_warm_cosine_falls_to_half_then_to_zero_at_the_end_of_the_run() -> None:
    assert shape_factor("warm_cosine", 0.0) == 1.0
    assert shape_factor("warm_cosine", 0.1) == pytest.approx(0.75)
    assert shape_factor("warm_cosine", 0.2) == pytest.approx(0.5)
    assert shape_factor("warm_cosine", 0.25) == pytest.approx(0.4951963)
    assert shape_factor("warm_cosine", 0.6) == pytest.approx(0.25)
    assert shape_factor("warm_cosine", 1.0) == pytest.approx(0.0)


def test_linear_and_cosine_and_constant() -> None:
    assert shape_factor("linear", 0.25) == 0.75
    assert shape_factor("cosine", 0.5) == pytest.approx(0.5)
    assert shape_factor("constant", 0.9) == 1.0


def test_a_warm_up_really_warms_up() -> None:
    rising = [shape_factor("constant", e, warmup=0.1) for e in (0.0, 0.05, 0.1, 0.5)]
    assert rising == pytest.approx([0.0, 0.5, 1.0, 1.0])


def test_a_cosine_with_warm_up_has_the_numbers_of_its_definition() -> None:
    # 100 updates, 10 of them warm-up.
    factors = {k: shape_factor("cosine", k / 100, 0.1, step=0.01) for k in (0, 1, 5, 10, 55, 100)}
    assert factors == pytest.approx({0: 0.1, 1: 0.1, 5: 0.5, 10: 1.0, 55: 0.5, 100: 0.0})


def test_the_first_update_of_a_warm_up_has_a_step_size_above_zero() -> None:
    assert shape_factor("linear", 0.0, warmup=0.02, step=0.001) == pytest.approx(0.05)
    assert shape_factor("linear", 0.0, warmup=0.0005, step=0.001) == 1.0


def test_a_floor_is_where_the_schedule_ends_and_leaves_the_warm_up_alone() -> None:
    assert shape_factor("cosine", 1.0, 0.1, floor=0.05) == pytest.approx(0.05)
    assert shape_factor("linear", 0.5, floor=0.2) == pytest.approx(0.6)
    assert shape_factor("constant", 0.05, 0.1, floor=0.5) == pytest.approx(0.5)
    assert shape_factor("cosine", 0.5, warmup=1.0, step=0.01) == pytest.approx(0.5)


def test_an_unknown_shape_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'linear'"):
        shape_factor("linaer", 0.5)


def test_windows_override_the_base_where_they_hold() -> None:
    windows = parse_windows("25-32:0.02,16-24:0.03,40+:0.01,36:0.5")
    values = [windowed(0.02, windows, u) for u in (1, 16, 24, 25, 33, 36, 37, 40, 99)]
    assert values == [0.02, 0.03, 0.03, 0.02, 0.02, 0.5, 0.02, 0.01, 0.01]


@pytest.mark.parametrize(
    "text", ["5", "a-b:1", "9-3:1", "0-3:1", "3:x", "1-2-3:4", "1+:-1", "1+:nan"]
)
def test_a_bad_window_says_how_to_write_one(text: str) -> None:
    with pytest.raises(ConfigError, match="first-last:value"):
        parse_windows(text)
