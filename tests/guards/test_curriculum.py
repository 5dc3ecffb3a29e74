from __future__ import annotations

import math

import pytest

from holdfast.errors import ConfigError
from holdfast.guards import GuardsConfig, make_guards
from holdfast.guards.balance import BalanceConfig
from holdfast.guards.curriculum import Curriculum, CurriculumConfig
from holdfast.guards.protocol import ProtocolConfig
from holdfast.selfplay.records import Rate
from holdfast.worlds.pursuit import PursuitOptions


def exactly(rate: float) -> Rate:
    return Rate(rate, rate, rate)


def test_the_discrete_levels_of_a_small_arena_are_those_of_the_original() -> None:
    levels = Curriculum(CurriculumConfig(kind="discrete", diagonal=math.sqrt(200)))
    assert levels.last == 5
    assert levels.values(0) == {
        "min_init_distance": 2.0,
        "max_init_distance": 5.0,
        "n_obstacles": 0.0,
    }
    second = levels.values(1)
    assert second["min_init_distance"] == pytest.approx(4.53, abs=0.01)
    assert second["max_init_distance"] == pytest.approx(11.31, abs=0.01)
    assert levels.values(5)["n_obstacles"] == 3.0


def test_the_smooth_levels_end_at_four_fifths_of_the_diagonal() -> None:
    levels = Curriculum(CurriculumConfig(kind="smooth", diagonal=math.sqrt(200)))
    tops = [levels.values(place)["max_init_distance"] for place in range(levels.last + 1)]
    assert tops[0] == 5.0 and tops[1] == 5.5
    assert tops[-1] == pytest.approx(11.31, abs=0.01)
    assert tops[-2] < tops[-1]
    obstacles = [levels.values(place)["n_obstacles"] for place in range(levels.last + 1)]
    assert obstacles == [0.0 if top < 8.0 else 3.0 for top in tops]


def test_capture_advances_only_with_enough_escapes_and_evaluations() -> None:
    levels = Curriculum(CurriculumConfig(kind="smooth", min_escape=0.1, min_evaluations=2))
    assert levels.judge(exactly(0.8)) == 0
    assert levels.judge(exactly(0.95)) == 0
    assert levels.judge(exactly(0.8)) == 1
    assert levels.place == 1
    assert levels.judge(exactly(0.8)) == 0


def test_an_escape_rate_at_a_bound_advances_and_does_not_go_back() -> None:
    settings = {"min_escape": 0.25, "regress_escape": 0.25, "regress_evaluations": 1}
    levels = Curriculum(CurriculumConfig(kind="smooth", capture_above=0.7, **settings))
    assert levels.judge(exactly(0.75)) == 1
    levels = Curriculum(
        CurriculumConfig(kind="smooth", capture_above=0.8, **{**settings, "min_escape": 0.0})
    )
    levels.place = 1
    assert [levels.judge(exactly(rate)) for rate in (0.75, 0.7625)] == [0, -1]


def test_every_level_wants_its_own_balanced_evaluations() -> None:
    levels = Curriculum(CurriculumConfig(kind="smooth", rule="gap", gap_evaluations=3))
    assert [levels.judge(exactly(0.5)) for _ in range(7)] == [0, 0, 1, 0, 0, 1, 0]


def test_the_gap_rule_works_with_both_kinds_of_levels() -> None:
    for kind in ("smooth", "discrete"):
        levels = Curriculum(CurriculumConfig(kind=kind, rule="gap"))
        assert [levels.judge(exactly(rate)) for rate in (0.5, 0.9, 0.5, 0.55)] == [0, 0, 0, 1]


def test_an_evader_without_hope_goes_back_a_level_but_not_below_the_first() -> None:
    levels = Curriculum(CurriculumConfig(kind="smooth", min_escape=0.05))
    assert [levels.judge(exactly(1.0)) for _ in range(4)] == [0, 0, 0, 0]
    assert levels.judge(exactly(0.8)) == 1
    assert [levels.judge(exactly(1.0)) for _ in range(3)] == [0, 0, -1]
    assert levels.place == 0


def test_the_place_survives_a_checkpoint() -> None:
    levels = Curriculum(CurriculumConfig(kind="smooth"))
    levels.judge(exactly(0.8))
    again = Curriculum(CurriculumConfig(kind="smooth"))
    again.load_state_dict(levels.state_dict())
    assert again.values() == levels.values() and again.state_dict() == levels.state_dict()


def test_the_gap_rule_wants_the_whole_interval_below_unless_told_otherwise() -> None:
    wide, narrow = Rate(0.5, 0.40, 0.60), Rate(0.5, 0.47, 0.53)
    for by, rate, moves in (("interval", wide, 0), ("interval", narrow, 1), ("point", wide, 1)):
        levels = Curriculum(
            CurriculumConfig(kind="smooth", rule="gap", gap_evaluations=1, gap_by=by)
        )
        assert levels.judge(rate) == moves, (by, rate)


def test_levels_end_where_the_arena_does_unless_a_diagonal_is_set() -> None:
    asked = {"kind": "smooth", "end": 15.0}
    for curriculum, top in (
        (CurriculumConfig(**asked), 8.0),
        (CurriculumConfig(**asked, diagonal=12.5), 10.0),
    ):
        guards = GuardsConfig(
            protocol=ProtocolConfig(enabled=True, curriculum=curriculum),
            balance=BalanceConfig(enabled=True, curriculum=curriculum),
        )
        arena = PursuitOptions(arena_width=6.0, arena_height=8.0)
        made = {guard.name: guard for guard in make_guards(guards, options=arena)}
        assert made["protocol"].levels.top == made["balance"].levels.top == pytest.approx(top)


def test_levels_that_begin_above_their_end_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"start = 15 is above end = 5; swap them"):
        CurriculumConfig("smooth", start=15.0, end=5.0)
    CurriculumConfig("discrete", start=15.0, end=5.0)


def test_an_arena_smaller_than_the_first_level_has_one_level() -> None:
    levels = Curriculum(CurriculumConfig("smooth", diagonal=3.0))
    assert (levels.last, levels.full) == (0, True)
    assert levels.values()["max_init_distance"] == pytest.approx(2.4)
