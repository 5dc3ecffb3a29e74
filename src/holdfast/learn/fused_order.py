"""The order of minibatches: what NumPy's `Generator.permutation` gives, number for number, but sooner.

NumPy goes from the last place to the second; for each it draws 32-bit numbers, cut to as many bits as the place has,
until one is not beyond the place, and swaps. Here the draws come in bulk and a rejected one costs no mispredicted
branch; the stream is left at the same position.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from holdfast.jit import kernel


@kernel
def _swap(places, left, draws):
    """Settle place `left` and those before it, one with each draw that is not rejected; return the next place."""
    mask = 1
    while mask < left:
        mask = 2 * mask + 1
    for k in range(draws.size):
        j = np.int64(draws[k]) & mask
        taken = j <= left
        j = j if taken else left
        places[left], places[j] = places[j], places[left]
        left -= taken
        mask = mask >> 1 if left <= mask >> 1 else mask
    return left


def permutation(rng: np.random.Generator, rows: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Return `rng.permutation(rows)`."""
    places = rows.copy()
    left = len(rows) - 1
    while left > 0:
        left = _swap(places, left, rng.integers(0, 1 << 32, left, np.uint32))
    return places
