"""Numbers over seeds: interquartile mean, bootstrap intervals, paired differences.

The unit is the training seed, never the episode: eight seeds are eight values, however many games each
of them played. Intervals are percentile intervals of the stratified bootstrap: within each stratum the values
are drawn again with replacement, then the statistic is taken over all strata together (Agarwal et al. 2021).
With few values all resamples are enumerated, so the interval is exact; otherwise they are drawn from a fixed
seed. Either way the same values give the same interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.records import F64

Statistic = Callable[[F64], F64]
"""From values `[..., N]` to `[...]`."""
RESAMPLES = 5_000
EXACT = 10_000
"""Up to so many different resamples all of them are looked at (five values: 3125)."""


def iqm(values: F64) -> F64:
    """Return the interquartile mean over the last axis: a quarter is cut off at each end, rounded down.

    Up to three values it is the mean; of four, the mean of the middle two.
    """
    data = np.sort(np.asarray(values, np.float64), axis=-1)
    count = data.shape[-1]
    cut = count // 4
    return np.asarray(data[..., cut : count - cut].mean(-1), np.float64)


def mean(values: F64) -> F64:
    """Return the mean over the last axis."""
    return np.asarray(np.asarray(values, np.float64).mean(-1), np.float64)


def interval(
    strata: Sequence[Sequence[float]], statistic: Statistic = iqm, level: float = 0.95
) -> tuple[float, float]:
    """Return the bootstrap interval of a statistic of all values; NaN with fewer than two values.

    `[[1, 2, 3]]` is the plain bootstrap of three values.
    """
    groups = [np.asarray(group, np.float64) for group in strata if len(group)]
    if sum(map(len, groups)) < 2:
        return math.nan, math.nan
    found = statistic(np.concatenate(_resamples(groups), axis=1))
    ends = [(1 - level) / 2, (1 + level) / 2]
    # Quantiles of the distribution as it is, steps and all: few values have few different resamples.
    low, high = np.quantile(found, ends, method="inverted_cdf")
    return float(low), float(high)


def _resamples(groups: Sequence[F64]) -> list[F64]:
    """Return for each group `[n]` its resamples `[R, n]`: all combinations, or a fixed draw."""
    sizes = [len(group) for group in groups]
    if math.prod(float(n) ** n for n in sizes) <= EXACT:
        axes = [n for n in sizes for _ in range(n)]
        every = np.indices(axes).reshape(len(axes), -1).T
        cuts = np.split(every, np.cumsum(sizes)[:-1], axis=1)
        return [group[places] for group, places in zip(groups, cuts, strict=True)]
    rng = np.random.default_rng(0)
    return [group[rng.integers(0, len(group), (RESAMPLES, len(group)))] for group in groups]


@dataclass(frozen=True)
class Spread:
    """What several seeds say about one metric."""

    count: int
    median: float
    iqm: float
    low: float
    """Lower end of the 95 % interval of the interquartile mean; NaN for one seed."""
    high: float
    mean: float
    min: float
    max: float


def spread(values: Sequence[float]) -> Spread:
    """Return the spread of one value a seed."""
    data = np.asarray(values, np.float64)
    low, high = interval([values])
    return Spread(
        count=len(data),
        median=float(np.median(data)),
        iqm=float(iqm(data)),
        low=low,
        high=high,
        mean=float(data.mean()),
        min=float(data.min()),
        max=float(data.max()),
    )


@dataclass(frozen=True)
class Difference:
    """How much one variant is above another, seed by seed."""

    count: int
    """Pairs with the same seed in both."""
    mean: float
    low: float
    """Lower end of the 95 % interval of the mean difference; NaN for one pair."""
    high: float
    above: int
    """Pairs in which the variant is above."""


def paired(
    first: Sequence[Mapping[int, float]], other: Sequence[Mapping[int, float]]
) -> Difference | None:
    """Return how much `other` is above `first`; None without a common seed.

    Each is a list of strata with values by seed; the k-th strata are paired with each other.
    """
    strata = [
        [b[seed] - a[seed] for seed in sorted(a.keys() & b.keys())]
        for a, b in zip(first, other, strict=True)
    ]
    changes = [change for group in strata for change in group]
    if not changes:
        return None
    low, high = interval(strata, mean)
    return Difference(
        count=len(changes),
        mean=float(np.mean(changes)),
        low=low,
        high=high,
        above=sum(change > 0 for change in changes),
    )


@dataclass(frozen=True)
class Course:
    """The interquartile mean of several curves over a common axis."""

    at: F64
    """Places `[P]` on the axis."""
    iqm: F64
    """Interquartile mean `[P]`; NaN where fewer than half of the curves reach, or only one of several."""
    low: F64
    """Lower end of the band `[P]`; NaN there too, and for a single curve."""
    high: F64


def course(curves: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Course:
    """Return the course of curves (places, values), each taken only where it has values.

    Between its own places a curve is a straight line.
    """
    curves = [(x, y) for x, y in curves if len(x)]
    at = np.unique(np.array([place for places, _ in curves for place in places], np.float64))
    rows = np.full((3, len(at)), np.nan)
    # The few curves that go on longest would pass for the course of all of them.
    least = max(min(2, len(curves)), math.ceil(len(curves) / 2))
    for k, place in enumerate(at):
        here = [float(np.interp(place, x, y)) for x, y in curves if x[0] <= place <= x[-1]]
        if len(here) >= least:
            rows[:, k] = float(iqm(np.asarray(here))), *interval([here])
    return Course(at, rows[0], rows[1], rows[2])
