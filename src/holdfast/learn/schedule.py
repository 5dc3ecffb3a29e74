"""Values that change over a whole run: learning rate by progress, entropy by windows of updates.

Progress is the fraction of the *run* that is done, never of a phase: a schedule cannot reach zero at
the end of every phase and start again lower.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from holdfast.errors import ConfigError, nearest

SHAPES = ("constant", "linear", "cosine", "warm_cosine")


def shape_factor(
    shape: str, progress: float, warmup: float = 0.0, step: float = 0.0, floor: float = 0.0
) -> float:
    """Return the factor on the base value at `progress` in [0, 1].

    `warmup` is the share of the run over which the factor rises in a straight line. `step` is the share of one
    update: the first factor is then that of the end of the first update, never 0. `floor` is what the shape falls to.
    """
    e = min(max(progress, 0.0), 1.0)
    rise = min(1.0, max(e, step) / warmup) if warmup > 0 else 1.0
    return rise * (floor + (1.0 - floor) * _fall(shape, e, warmup))


def _fall(shape: str, e: float, warmup: float) -> float:
    if shape == "constant":
        return 1.0
    if shape == "linear":
        return 1.0 - e
    if shape == "cosine":
        rest = max(0.0, e - warmup) / (1.0 - warmup) if warmup < 1.0 else 0.0
        return 0.5 * (1.0 + math.cos(math.pi * rest))
    if shape == "warm_cosine":
        if e <= 0.2:
            return 1.0 - 0.5 * e / 0.2
        return 0.5 * 0.5 * (1.0 + math.cos(math.pi * (e - 0.2) / 0.8))
    raise ConfigError(
        f"lr_schedule = {shape!r} is not a schedule. Allowed: {', '.join(SHAPES)}."
        f"{nearest(shape, SHAPES)}"
    )


@dataclass(frozen=True)
class Window:
    """A value for updates `first..last` (1-based, inclusive; `last` None means to the end)."""

    first: int
    last: int | None
    value: float


def parse_windows(text: str, key: str = "entropy_windows") -> tuple[Window, ...]:
    """Read `16-24:0.03,25+:0.02,40:0.01` into windows sorted by their first update."""
    windows = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        span, colon, value = item.partition(":")
        try:
            if not colon:
                raise ValueError
            if span.endswith("+"):
                first, last = int(span[:-1]), None
            elif "-" in span:
                left, right = span.split("-")
                first, last = int(left), int(right)
            else:
                first = int(span)
                last = first
            weight = float(value)
            if first < 1 or (last is not None and last < first) or not 0 <= weight < math.inf:
                raise ValueError
            windows.append(Window(first, last, weight))
        except ValueError:
            raise ConfigError(
                f"{key}: '{item}' is not a window. Write 'first-last:value', 'first+:value' or "
                "'update:value', joined by commas, for example '16-24:0.03,25+:0.02'; updates count from 1, values are 0 or more."
            ) from None
    return tuple(sorted(windows, key=lambda w: w.first))


def windowed(base: float, windows: tuple[Window, ...], update: int) -> float:
    """Return the value of the last window that holds `update`, or `base`."""
    value = base
    for window in windows:
        if window.first <= update and (window.last is None or update <= window.last):
            value = window.value
    return value
