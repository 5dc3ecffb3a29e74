"""Numbers that a world's options allow: whole or not, from, to."""

from __future__ import annotations

import math
import numbers
from typing import Any

from holdfast.errors import ConfigError

Range = tuple[type, float, float]


def checked(what: str, value: Any, allowed: Range) -> float:
    """Return `value` as the range's type, or raise a `ConfigError` that begins with `what` it is."""
    kind, low, high = allowed
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    whole = number and kind is int and float(value).is_integer()
    if not number or (kind is int and not whole) or not low <= value <= high:
        form = "a whole number" if kind is int else "a number"
        raise ConfigError(f"{what} is {value!r}. Allowed: {form} from {low:g} to {high:g}.")
    result: float = kind(value)
    return result


def clipped(what: str, value: float, allowed: Range) -> float:
    """Return the allowed number nearest to `value`, or raise a `ConfigError` if it is none at all."""
    kind, low, high = allowed
    if not math.isfinite(value):
        raise ConfigError(f"{what} is {value!r}. Allowed: {low:g} to {high:g}.")
    near = min(max(float(value), low), high)
    return round(near) if kind is int else near
