"""A summary of how the predators of an evaluation began: `pre_roll_stats` of its episodes, in a few numbers.

Angles are taken into [0, 360) before anything is counted. Their mean and spread are those of the circle: a mean
of 350 and 10 degrees is 0, not 180.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

ANGLES = (
    "spawn_angle_deg",
    "initial_heading_deg",
    "final_heading_deg",
    "heading_bias_angle_deg",
)
NUMBERS = ("spawn_radius", "initial_speed", "final_speed", "angle_jitter_deg", "speed_scale")
HISTOGRAM_DEG = 30.0
SPEED_BINS = 10


def summarise(stats: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the summary of the pre-roll statistics of some episodes."""
    found: dict[str, Any] = {"episodes": len(stats)}
    for name in NUMBERS:
        values = _values(stats, name)
        if values:
            found[name] = describe(values)
    for name in ANGLES:
        values = _values(stats, name)
        if values:
            found[name] = {**circular(values), "histogram": angle_histogram(values)}
    overridden = sum(bool(s.get("prewarm_velocity_override")) for s in stats)
    found["overrides"] = overridden
    found["override_ratio"] = overridden / len(stats) if stats else 0.0
    for name in ("initial_speed", "final_speed"):
        if name in found:
            counts, edges = np.histogram(_values(stats, name), SPEED_BINS)
            found[name]["histogram"] = {"counts": counts.tolist(), "edges": edges.tolist()}
    return found


def describe(values: Sequence[float]) -> dict[str, float]:
    """Return count, mean, deviation, percentiles and range."""
    data = np.asarray(values, np.float64)
    p10, p50, p90 = np.percentile(data, [10, 50, 90])
    return {
        "count": len(data),
        "mean": float(data.mean()),
        "std": float(data.std()),
        "p10": float(p10),
        "p50": float(p50),
        "p90": float(p90),
        "min": float(data.min()),
        "max": float(data.max()),
    }


def circular(angles_deg: Sequence[float]) -> dict[str, float]:
    """Return count, mean direction in [0, 360) and resultant length (1: all the same, 0: all round)."""
    data = np.deg2rad(np.asarray(angles_deg, np.float64))
    x, y = float(np.cos(data).mean()), float(np.sin(data).mean())
    return {
        "count": len(data),
        "mean": math.degrees(math.atan2(y, x)) % 360.0,
        "resultant": math.hypot(x, y),
    }


def angle_histogram(angles_deg: Sequence[float]) -> list[int]:
    """Return how many angles lie in each of twelve bins of 30 degrees from 0 on; none is left out."""
    bins = round(360 / HISTOGRAM_DEG)
    places = np.asarray(angles_deg, np.float64) % 360.0 // HISTOGRAM_DEG
    return [int(n) for n in np.bincount(places.astype(np.int64) % bins, minlength=bins)]


def _values(stats: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    found: list[float] = []
    for one in stats:
        value = one.get(name)
        if isinstance(value, list | tuple):
            found += [float(v) for v in value]
        elif value is not None:
            found.append(float(value))
    return found
