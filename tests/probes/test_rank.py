from __future__ import annotations

import pytest

from holdfast.errors import ConfigError
from holdfast.probes.headlines import HEADLINES
from holdfast.probes.rank import parse_rule


def test_bounds_come_first_then_the_metrics_in_order() -> None:
    rule = parse_rule("min_final>=0.9, ed100<=0.02, avg_final, -length")
    good = {"min_final": 0.9, "ed100": 0.02, "avg_final": 0.97, "length": 5.0}
    lucky = {"min_final": 0.5, "ed100": 0.01, "avg_final": 0.99, "length": 5.0}
    assert rule.key(good) == [2.0, 0.97, -5.0]
    assert rule.key(good) > rule.key(lucky)
    assert rule.key({**good, "length": 4.0}) > rule.key(good)
    assert rule.main == "avg_final"


def test_mario_is_ranked_by_how_far_he_comes_while_nothing_clears() -> None:
    rule = parse_rule(HEADLINES["mario"].rule)
    near, far = ({"clear_rate": 0.0, "best_x_mean": x} for x in (300.0, 900.0))
    assert rule.key(far) > rule.key(near)
    assert rule.key({"clear_rate": 0.1, "best_x_mean": 300.0}) > rule.key(far)
    assert rule.main == HEADLINES["mario"].metric == "clear_rate"


@pytest.mark.parametrize("text", ["", "a>=b", "a=1", ">=0.9", "a b"])
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"best_by"):
        parse_rule(text)


def test_bounds_alone_leave_all_that_keep_them_equal() -> None:
    rule = parse_rule("balance>=0.5")
    assert rule.key({"balance": 1.0}) == rule.key({"balance": 0.5}) > rule.key({"balance": 0.49})
    assert rule.main == "balance" and rule.names == ["balance"]


def test_what_a_probe_could_not_measure_is_worse_than_any_number() -> None:
    rule = parse_rule("capture_time_s<=60, capture_rate, -capture_time_s")
    nobody, slow = {"capture_rate": 0.0}, {"capture_rate": 0.0, "capture_time_s": 900.0}
    assert rule.key(slow) > rule.key(nobody)
    assert parse_rule("stage_1-1/clear_rate, -x").names == ["stage_1-1/clear_rate", "x"]
