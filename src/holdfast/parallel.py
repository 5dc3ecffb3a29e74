"""Python threads that run one compiled kernel over disjoint ranges.

Kernels release the GIL, so two threads on two ranges are two cores. Work is cut into one contiguous
range a thread; a kernel computes each row from that row alone, so the cut never changes a result.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

WORTH_S = 0.001
"""Seconds of work from which threads take part: to wake one and wait for it can take half of that."""


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Threads:
    """A fixed number of threads; one means a plain call with no pool at all.

    What took less than `WORTH_S` the last time, each kind of work by itself, is done by the caller alone.
    """

    def __init__(self, count: int = 1) -> None:
        if count < 1:
            raise ValueError(f"threads must be at least 1, not {count}")
        self.count = count
        self._pool = ThreadPoolExecutor(count - 1, "holdfast-kernel") if count > 1 else None
        self._alone_s: dict[object, float] = {}

    def over(self, size: int, work: Callable[[int, int], object]) -> None:
        """Call `work(lo, hi)` for ranges that cover `[0, size)`; return when all are done."""
        kind = getattr(work, "__code__", None)  # the same for a closure however often it is made
        began = time.perf_counter()
        if self._pool is None or size < 2 or self._alone_s.get(kind, 0.0) < WORTH_S:
            work(0, size)
            self._alone_s[kind] = time.perf_counter() - began
            return
        cuts = [size * k // self.count for k in range(self.count + 1)]
        ranges = list(itertools.pairwise(cuts))
        futures = [self._pool.submit(work, lo, hi) for lo, hi in ranges[1:]]
        work(*ranges[0])
        for future in futures:
            future.result()
        self._alone_s[kind] = (time.perf_counter() - began) * self.count

    def close(self) -> None:
        """Let the threads go."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)
            self._pool = None
