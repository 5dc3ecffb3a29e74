"""What is measured of pursuit: who wins, how soon, and how close it was.

`SR_P` of the literature is `capture_rate`; with no draws, `escape_rate` is its complement and the gap
between the two says how far the pair is from an even game, not from an equilibrium.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from holdfast.errors import ConfigError
from holdfast.probes.runner import Measures
from holdfast.records import Episode
from holdfast.worlds.pursuit.options import PursuitOptions


def prepare(options: PursuitOptions, protocol: str) -> PursuitOptions:
    """Return the options to evaluate with: those of the run, without the help of the masking curriculum."""
    if protocol:
        raise ConfigError(f"pursuit has no protocol '{protocol}'; leave --protocol out.")
    return replace(options, p_full=0.0)


def metric_names(options: PursuitOptions) -> tuple[str, ...]:
    """Return every metric that `measure` may find."""
    return (
        "capture_rate", "escape_rate", "win_gap", "balance", "min_distance_m", "capture_time_s",
    )  # fmt: skip


def measure(episodes: Sequence[Episode], options: PursuitOptions, seeds: Sequence[int]) -> Measures:
    """Return capture and escape rates, capture times and distances."""
    captured = [float(e.facts.get("captured", 0.0)) for e in episodes]
    times = [e.facts["capture_time_s"] for e in episodes if "capture_time_s" in e.facts]
    nearest = [float(e.facts["min_distance_m"]) for e in episodes]
    rate = float(np.mean(captured))
    metrics = {
        "capture_rate": rate,
        "escape_rate": float(np.mean([float(e.facts.get("escaped", 0.0)) for e in episodes])),
        "win_gap": abs(2.0 * rate - 1.0),
        "balance": 1.0 - abs(2.0 * rate - 1.0),
        "min_distance_m": float(np.mean(nearest)),
    }
    if times:
        metrics["capture_time_s"] = float(np.mean(times))
    samples: dict[str, Sequence[float]] = {"capture_rate": captured, "min_distance_m": nearest}
    return Measures(metrics, samples, {"captured": captured}, shares=("capture_rate",))
