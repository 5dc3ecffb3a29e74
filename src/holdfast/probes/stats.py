"""Intervals for means over episodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def bootstrap_mean(
    values: Sequence[float], resamples: int = 2000, level: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the mean; the same input gives the same interval."""
    data = np.asarray(values, np.float64)
    if len(data) == 0:
        return float("nan"), float("nan")
    rng = np.random.default_rng(seed)
    means = data[rng.integers(0, len(data), (resamples, len(data)))].mean(1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def wilson(successes: int, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a success rate."""
    if trials == 0:
        return 0.0, 1.0
    rate = successes / trials
    centre = rate + z * z / (2 * trials)
    half = z * np.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return float((centre - half) / scale), float((centre + half) / scale)
