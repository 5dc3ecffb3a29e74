"""The shuffled order of minibatches."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from holdfast.learn import fused_order
from holdfast.learn.fused_order import permutations


@pytest.mark.parametrize("size", [0, 1, 2, 3, 100, 1023, 1024, 2048, 40_001])
def test_every_row_is_there_once_and_a_stream_gives_one_order(size: int) -> None:
    rows = 3 * np.arange(size, dtype=np.int32)
    one, two = (permutations(np.random.default_rng(size), rows, 3) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(np.sort(one), np.broadcast_to(rows, (3, size)))
    np.testing.assert_array_equal(rows, 3 * np.arange(size))
    if size >= 100:
        assert not np.array_equal(one[0], one[1])


@pytest.mark.parametrize("heap", [1, 2, 1024])
def test_all_orders_are_equally_likely(heap: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chi-square over the 24 orders of 4 rows, with one heap and with several."""
    monkeypatch.setattr(fused_order, "HEAP", heap)
    draws = 48_000
    found = permutations(np.random.default_rng(7), np.arange(4, dtype=np.int32), draws)
    codes = found @ np.array([64, 16, 4, 1])
    counts = [
        int((codes == np.dot(p, [64, 16, 4, 1])).sum()) for p in itertools.permutations(range(4))
    ]
    assert sum(counts) == draws
    expected = draws / 24
    # 23 degrees of freedom, 1 in 1000
    assert sum((n - expected) ** 2 / expected for n in counts) < 49.7


def test_a_row_of_a_long_order_ends_anywhere() -> None:
    rows = np.arange(20_000, dtype=np.int32)
    found = permutations(np.random.default_rng(3), rows, 400)
    where = np.argsort(found, axis=1)[:, ::2000].reshape(-1)  # of ten rows, 400 times each
    counts = np.bincount(where * 20 // 20_000, minlength=20)
    assert ((counts - 200.0) ** 2 / 200).sum() < 43.8  # 19 degrees of freedom, 1 in 1000
    # neighbours do not stay neighbours
    assert abs(np.corrcoef(found[0][:-1], found[0][1:])[0, 1]) < 0.03
