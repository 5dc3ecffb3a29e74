"""Numbers as people read them: 614400 is `614.4k`, 83 seconds are `1:23`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any


def number(value: Any) -> float | None:
    """Return a finite number as a float, and None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def short(value: float) -> str:
    """Return a count with a unit: 950, 24.1k, 3.20M."""
    for limit, unit, digits in ((1e9, "G", 2), (1e6, "M", 2), (1e3, "k", 1)):
        if abs(value) >= limit:
            return f"{value / limit:.{digits}f}{unit}"
    return f"{value:.0f}"


def clock(seconds: float) -> str:
    """Return a duration as 1:23 or 1:02:03."""
    whole = max(0, round(seconds))
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def figure(value: float) -> str:
    """Return a measured value with about four digits, without an exponent where it can be helped."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    size = abs(value)
    if size >= 1e5:
        return short(value)
    if size < 1e-3:
        return f"{value:.1e}"
    digits = 3 - math.floor(math.log10(size))
    return f"{value:.{min(max(digits, 0), 4)}f}"


def brackets(low: float, high: float, form: Callable[[float], str] = figure) -> str:
    """Return an interval; one without width is no certainty, only that resampling found nothing else."""
    return "(no spread seen)" if low == high else f"[{form(low)}, {form(high)}]"
