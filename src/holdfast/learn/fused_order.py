"""The order of minibatches: random permutations, made in pieces that fit the nearest cache.

Shuffling in place, as NumPy does, swaps with a far place for every sample. Here every sample first goes to a random one of
so many heaps that each is small, and then each heap is shuffled; that is as uniform. One 64-bit number a sample serves both:
its low bits choose the heap, its high half the swap (a place of a heap of 1000 is too likely by at most 1 in 4 million).
The numbers are those of SplitMix64, from a seed that the learner's stream gives.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from holdfast.jit import kernel

HEAP = 1024
"""About as many samples are in a heap, at most twice as many on average."""


@kernel
def _shuffle(rows, seed, draws, ends, places):
    """Write `rows` to `places` in the order of `seed`; `ends` has a power of two of places; `draws [n]` is scratch."""
    mask = np.uint64(ends.size - 1)
    half = np.uint64(32)
    for k in range(rows.size):
        seed += np.uint64(0x9E3779B97F4A7C15)
        x = (seed ^ (seed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        draws[k] = x ^ (x >> np.uint64(31))
    ends[:] = 0
    for k in range(rows.size):
        ends[draws[k] & mask] += 1
    total = 0
    for h in range(ends.size):
        total, ends[h] = total + ends[h], total
    # `ends` are the beginnings now; each moves to its end as its heap is filled.
    for k in range(rows.size):
        h = draws[k] & mask
        places[ends[h]] = rows[k]
        ends[h] += 1
    lo = 0
    for h in range(ends.size):
        hi = ends[h]
        for k in range(hi - 1, lo, -1):
            j = lo + np.int64((draws[k] >> half) * np.uint64(k - lo + 1) >> half)
            places[k], places[j] = places[j], places[k]
        lo = hi


def permutations(
    rng: np.random.Generator, rows: npt.NDArray[np.int32], count: int
) -> npt.NDArray[np.int32]:
    """Return `[count, n]`: random orders of `rows [n]`."""
    out = np.empty((count, len(rows)), np.int32)
    heaps = 1 << max(len(rows) // HEAP, 1).bit_length() - 1
    draws, ends = np.empty(len(rows), np.uint64), np.empty(heaps, np.int64)
    for seed, places in zip(rng.integers(0, 1 << 64, count, np.uint64), out, strict=True):
        _shuffle(rows, seed, draws, ends, places)
    return out
