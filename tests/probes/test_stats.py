"""Intervals against closed forms and figures that are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from holdfast.probes.stats import bootstrap_mean, wilson


def test_wilsons_interval_has_the_figures_of_the_textbooks() -> None:
    assert wilson(8, 10) == pytest.approx((0.49016, 0.94332), abs=1e-5)
    square = 1.959964**2
    low, high = wilson(0, 10)
    assert low == pytest.approx(0.0, abs=1e-12)
    assert high == pytest.approx(square / (10 + square))
    assert wilson(10, 10) == pytest.approx((1.0 - high, 1.0 - low))
    assert wilson(0, 0) == (0.0, 1.0)


def test_the_bootstrap_interval_of_a_mean_has_the_width_of_the_normal_one() -> None:
    values = np.random.default_rng(4).normal(3.0, 2.0, 400)
    low, high = bootstrap_mean(list(values))
    half = 1.96 * values.std() / math.sqrt(len(values))
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.03)
    assert high - low == pytest.approx(2 * half, rel=0.06)


def test_the_same_values_have_the_same_interval_and_none_have_none() -> None:
    assert bootstrap_mean([1.0, 2.0, 4.0]) == bootstrap_mean([1.0, 2.0, 4.0])
    assert bootstrap_mean([2.5, 2.5]) == (2.5, 2.5)
    assert all(math.isnan(end) for end in bootstrap_mean([]))
