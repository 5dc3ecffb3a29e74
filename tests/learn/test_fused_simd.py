"""The small numeric truths below the fused learner: vector functions, blocks, moments."""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pytest

from holdfast.learn.fused_kernels import _standardise
from holdfast.learn.fused_simd import address, exp, load, log, store, tanh
from holdfast.learn.fused_transpose import transpose
from holdfast.records import F32


@numba.njit
def _apply(which, x):
    at = address(x)
    for k in range(at, at + 4 * x.size, 32):
        if which == 0:
            store(k, tanh(load(k)))
        elif which == 1:
            store(k, exp(load(k)))
        else:
            store(k, log(load(k)))


def applied(which: int, x: npt.ArrayLike) -> F32:
    y = np.array(x, np.float32)
    assert y.size % 8 == 0
    _apply(which, y)
    return y


@pytest.mark.parametrize(
    ("which", "truth", "low", "high", "error"),
    [
        (0, np.tanh, -12.0, 12.0, 5e-7),
        (1, np.exp, -87.0, 88.0, 2e-7),
        (2, np.log, 1.5, 1e6, 2e-7),
    ],
    ids=["tanh", "exp", "log"],
)
def test_a_vector_function_is_as_exact_as_it_says(
    which: int, truth: Any, low: float, high: float, error: float
) -> None:
    x = np.linspace(low, high, 1 << 18).astype(np.float32)
    expected = truth(x.astype(np.float64))
    np.testing.assert_allclose(applied(which, x), expected, rtol=error, atol=0)


def test_tanh_never_passes_one_and_keeps_nan_and_sign() -> None:
    x = np.linspace(6, 10, 1 << 16)
    assert applied(0, np.concatenate([x, -x])).max() <= 1.0
    y = applied(0, [np.nan, np.inf, -np.inf, 1e30, 0.0, -0.0, 1e-30, -1e-30])
    np.testing.assert_allclose(y, [np.nan, 1, -1, 1, 0, 0, 1e-30, -1e-30], rtol=5e-7)
    np.testing.assert_array_equal(np.signbit(y[1:]), [False, True, False, False, True, False, True])


def test_exp_is_zero_far_down_infinite_far_up_and_keeps_nan() -> None:
    y = applied(1, [np.nan, np.inf, -np.inf, -1e30, 89.0, -88.0, 0.0, -0.0])
    np.testing.assert_array_equal(y, [np.nan, np.inf, 0, 0, np.inf, 0, 1, 1])


@numba.njit
def _transpose(x, to):
    transpose(address(x), 4 * x.shape[1], address(to), 4 * to.shape[1])


def test_transpose_swaps_rows_and_columns_also_in_place() -> None:
    x = np.arange(8 * 24, dtype=np.float32).reshape(8, 24)
    to = np.zeros((8, 16), np.float32)
    _transpose(x, to)
    np.testing.assert_array_equal(to[:, :8], x[:, :8].T)
    np.testing.assert_array_equal(to[:, 8:], 0)
    expected = x.copy()
    expected[:, :8] = x[:, :8].T
    _transpose(x, x)
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize(
    ("mean", "std", "count"), [(0, 1, 1024), (1e4, 1, 1023), (1e6, 0.5, 64), (-3, 1e-3, 2)]
)
def test_moments_of_a_minibatch_are_exact_however_far_from_zero(
    mean: float, std: float, count: int
) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(mean, std, 3000).astype(np.float32)
    order = rng.permutation(3000).astype(np.int32)[:count]
    chosen = values[order].astype(np.float64)
    expected = chosen.mean(), 1 / (chosen.std(ddof=1) + 1e-8)
    np.testing.assert_allclose(_standardise(values, order, True), expected, rtol=1e-6)
    assert _standardise(values, order, False) == (0.0, 1.0)


def test_equal_advantages_have_no_deviation_and_nan_shows() -> None:
    values, order = np.full(9, 0.1, np.float32), np.arange(9, dtype=np.int32)
    assert _standardise(values, order, True) == (np.float32(0.1), np.float32(1e8))
    values[4] = np.nan
    assert np.isnan(_standardise(values, order, True)).all()
