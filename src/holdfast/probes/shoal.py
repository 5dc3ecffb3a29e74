"""What is measured of a shoal: survival, the tail, and how much of the tail nobody could have saved.

`early_death` counts fish, not episodes; `p10` is the 10th percentile of the death step over all fish with
survivors at the time limit. The ceiling is computed for the very seeds of the evaluation, so a
death is called avoidable only if some sequence of actions would have avoided it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from holdfast.errors import ConfigError, nearest
from holdfast.probes.runner import Measures
from holdfast.records import Episode
from holdfast.worlds.shoal import V36_HEADING_BIAS, V36_SPEED_BIAS, ShoalOptions
from holdfast.worlds.shoal.ceiling import ceiling

MAIN = "avg_final"
PROTOCOLS = ("v36",)


def prepare(options: ShoalOptions, protocol: str) -> ShoalOptions:
    """Return the options to evaluate with: those of the run, or of a named protocol."""
    options = replace(options, force_reset_steps=0)
    if not protocol:
        return options
    if protocol != "v36":
        raise ConfigError(
            f"'{protocol}' is not a protocol of shoal. Allowed: {', '.join(PROTOCOLS)}."
            f"{nearest(protocol, PROTOCOLS)}"
        )
    return replace(
        options,
        fish=96,
        max_steps=500,
        escape_boost=True,
        escape_boost_speed=0.80,
        escape_jitter=0.35,
        spawn_jitter=1.6,
        pre_roll_steps=16,
        pre_roll_angle_jitter=0.3,
        pre_roll_speed_jitter=0.2,
        heading_bias=V36_HEADING_BIAS,
        speed_bias=V36_SPEED_BIAS,
    )


def measure(episodes: Sequence[Episode], options: ShoalOptions, seeds: Sequence[int]) -> Measures:
    """Return the metrics of the evaluation and what they are made of."""
    limit = options.max_steps
    deaths = np.array([e.detail["death_steps"] for e in episodes])
    survived = deaths < 0
    steps = np.where(survived, limit, np.minimum(deaths, limit))
    final = survived.mean(1)
    early_100, early_150 = (steps < 100).mean(1), (steps < 150).mean(1)
    p10, p25, p50, p75, p90 = np.percentile(steps, [10, 25, 50, 75, 90])
    first = (deaths == 1).mean(1)
    metrics = {
        "avg_final": float(final.mean()),
        "min_final": float(final.min()),
        "median_final": float(np.median(final)),
        "ed100": float(early_100.mean()),
        "ed150": float(early_150.mean()),
        "p10": float(p10),
        "p25": float(p25),
        "p75": float(p75),
        "p90": float(p90),
        "death_step_mean": float(steps.mean()),
        "death_step_median": float(p50),
        "step_one_count": float((deaths == 1).sum()),
        "step_one_ratio": float(first.mean()),
        "fish_samples": float(deaths.size),
    }
    samples: dict[str, Sequence[float]] = {
        "avg_final": final.tolist(),
        "ed100": early_100.tolist(),
        "ed150": early_150.tolist(),
        "step_one_ratio": first.tolist(),
    }
    detail: dict[str, Any] = {"death_steps": deaths, "final": final}
    best = ceiling(options, seeds)
    if best is not None:
        avoidable = ~survived & best.survivable
        metrics["ceiling_avg_final"] = best.avg_final
        metrics["ceiling_min_final"] = float(best.survivable.mean(1).min())
        metrics["avoidable_death_fraction"] = float(avoidable.mean())
        metrics["regret"] = best.avg_final - metrics["avg_final"]
        samples["avoidable_death_fraction"] = avoidable.mean(1).tolist()
        detail["survivable"] = best.survivable
    return Measures(metrics, samples, detail)
