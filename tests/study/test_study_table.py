"""Interquartile means, intervals and paired differences against numbers written out."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from holdfast.study.table import course, interval, iqm, mean, paired, spread


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7.0], 7.0),
        ([1.0, 2.0, 6.0], 3.0),  # nothing is cut from three
        ([0.0, 1.0, 3.0, 100.0], 2.0),
        ([5.0, 1.0, 2.0, 3.0, 4.0], 3.0),
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 1000.0], 4.5),  # the middle four of eight
    ],
)
def test_the_interquartile_mean_cuts_a_quarter_at_each_end(
    values: list[float], expected: float
) -> None:
    assert float(iqm(np.array(values))) == pytest.approx(expected)


def test_the_interquartile_mean_works_row_by_row() -> None:
    rows = np.array([[0.0, 1.0, 3.0, 9.0], [4.0, 4.0, 4.0, 8.0]])
    assert iqm(rows).tolist() == [2.0, 4.0]


def test_two_values_have_the_exact_bootstrap_of_four_resamples() -> None:
    # The means 0, 0.5, 0.5, 1, a quarter each: more than 2.5 % lie at either end.
    assert interval([[0.0, 1.0]], mean) == (0.0, 1.0)


def test_four_values_have_the_exact_bootstrap_of_256_resamples() -> None:
    # One resample has the mean 0 (0.4 %), five at most 0.25 (2.0 %), fifteen at most 0.5 (5.9 %).
    low, high = interval([[0.0, 1.0, 2.0, 3.0]], mean)
    assert (low, high) == (0.5, 2.5)


def test_many_values_are_resampled_at_random_but_always_the_same() -> None:
    values = [0.1, 0.4, 0.5, 0.7, 0.9, 1.6]
    every = np.array(list(itertools.product(values, repeat=6))).mean(1)
    low, high = interval([values], mean)
    assert (low, high) == pytest.approx(tuple(np.quantile(every, [0.025, 0.975])), abs=0.03)
    assert interval([values], mean) == (low, high)


def test_resampling_stays_inside_its_stratum() -> None:
    assert interval([[0.0, 0.0], [10.0, 10.0]], mean) == (5.0, 5.0)
    low, high = interval([[0.0, 0.0, 10.0, 10.0]], mean)
    assert low < 2.0 and high > 8.0


def test_the_level_is_the_share_that_lies_inside() -> None:
    wide, narrow = interval([[0.0, 1.0]], mean, 1.0), interval([[0.0, 1.0]], mean, 0.4)
    assert wide == (0.0, 1.0)
    assert narrow == (0.5, 0.5)


def test_one_value_has_no_interval() -> None:
    assert all(map(math.isnan, interval([[3.0]])))
    assert all(map(math.isnan, interval([])))


def test_a_spread_holds_every_number_of_the_table() -> None:
    found = spread([0.2, 0.4, 0.9, 0.5])
    assert (found.count, found.min, found.max) == (4, 0.2, 0.9)
    assert (found.median, found.iqm, found.mean) == pytest.approx((0.45, 0.45, 0.5))
    assert 0.2 <= found.low < found.iqm < found.high <= 0.9


def test_differences_are_paired_by_seed() -> None:
    found = paired([{1: 0.1, 2: 0.5, 4: 9.0}], [{2: 0.6, 1: 0.2, 3: -9.0}])
    assert found is not None
    assert (found.count, found.above) == (2, 2)
    assert (found.mean, found.low, found.high) == pytest.approx((0.1, 0.1, 0.1))


def test_differences_of_several_strata_are_taken_together() -> None:
    found = paired([{1: 0.0, 2: 0.0}, {1: 5.0, 2: 5.0}], [{1: 1.0, 2: 1.0}, {1: 4.0, 2: 8.0}])
    assert found is not None
    assert (found.count, found.above, found.mean) == (4, 3, pytest.approx(1.0))
    # The first stratum always gives 1 and 1, the second two of -1 and 3.
    assert (found.low, found.high) == pytest.approx(((2 - 2) / 4, (2 + 6) / 4))


def test_without_a_common_seed_there_is_no_difference() -> None:
    assert paired([{1: 0.1}], [{2: 0.6}]) is None


def test_a_course_takes_each_curve_only_where_it_has_values() -> None:
    curves = [([0.0, 10.0], [0.0, 1.0]), ([0.0, 5.0], [1.0, 1.0]), ([], [])]
    found = course(curves)
    assert found.at.tolist() == [0.0, 5.0, 10.0]
    assert found.iqm[:2].tolist() == [0.5, 0.75]
    assert (found.low[0], found.high[0]) == (0.0, 1.0)


def test_a_course_ends_where_too_few_curves_are_left() -> None:
    short, long = ([0.0, 5.0], [1.0, 1.0]), ([0.0, 5.0, 10.0], [0.0, 0.0, 9.0])
    assert math.isnan(course([short, long]).iqm[2])
    assert math.isnan(course([short, short, short, long]).iqm[2])
    assert course([short, short, long, long]).iqm[2] == 9.0
    alone = course([long])
    assert alone.iqm.tolist() == [0.0, 0.0, 9.0]
    assert math.isnan(alone.low[0])
