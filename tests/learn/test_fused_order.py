"""The shuffled order of minibatches."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.learn.fused_order import permutation


@pytest.mark.parametrize("size", [0, 1, 2, 3, 100, 1023, 1024, 1025, 40_001])
def test_the_order_and_the_stream_are_those_of_numpy(size: int) -> None:
    ours, theirs = (np.random.Generator(np.random.PCG64(size)) for _ in range(2))
    rows = 3 * np.arange(size, dtype=np.int32)
    for rng in (ours, theirs):
        rng.random(size % 3, np.float32)  # an odd number of 32-bit draws leaves half a draw behind
    for _ in range(20):
        np.testing.assert_array_equal(permutation(ours, rows), theirs.permutation(rows))
    assert ours.bit_generator.state == theirs.bit_generator.state
    np.testing.assert_array_equal(rows, 3 * np.arange(size))
