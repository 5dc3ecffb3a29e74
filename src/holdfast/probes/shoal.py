"""What is measured of a shoal: survival, the tail, and how much of the tail nobody could have saved.

`ed100` (early deaths) counts fish, not episodes; `p10` is the 10th percentile of the death step over all fish
with survivors at the time limit. The ceiling is computed for the very starts of the evaluation, so a death is
called avoidable only if some sequence of actions would have avoided it. Shares by heading and speed refer to the
predator as the episode began (`sectors.py`), which is also what mined starts hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from holdfast.errors import ConfigError, nearest
from holdfast.probes.pre_roll import summarise
from holdfast.probes.runner import Measures
from holdfast.probes.sectors import bin_edges, bin_of, clusters, fast_share, sector_range
from holdfast.records import Array, Bools, Episode
from holdfast.worlds.shoal import V36_HEADING_BIAS, V36_SPEED_BIAS, ShoalOptions
from holdfast.worlds.shoal.ceiling import CeilingReport, ceiling

PROTOCOLS = ("v36",)
V36_NE = (90.0, 150.0)
"""What the original called NE; in its own frame this is N to NW."""
TOP_CLUSTERS = 6
PLACES = (
    "step_one_top_share",
    "step_one_ne_fast_share",
    "step_one_v36_ne_fast_share",
    "hot_spot_share",
)
CEILING = (
    "ceiling_avg_final",
    "ceiling_min_final",
    "ceiling_ed100",
    "ceiling_p10",
    "ceiling_step_one_count",
    "avoidable_death_fraction",
    "avoidable_step_one_count",
    "regret",
)


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


def metric_names(options: ShoalOptions) -> list[str]:
    """Return every metric that `measure` may find; a predator that hunts has no ceiling."""
    names = list(measure_deaths(np.zeros((1, 1), np.int64), options.max_steps).metrics)
    return names + list(PLACES) + ([] if options.predator_hunts else list(CEILING))


def measure(episodes: Sequence[Episode], options: ShoalOptions, seeds: Sequence[int]) -> Measures:
    """Return the metrics of the evaluation and what they are made of."""
    deaths = np.array([e.detail["death_steps"] for e in episodes])
    found = measure_deaths(deaths, options.max_steps)
    starts = [
        {"heading_deg": e.facts["start_heading_deg"], "speed": e.facts["start_speed"]}
        for e in episodes
    ]
    died, what = deaths >= 0, "deaths"
    best = ceiling(options, seeds)
    if best is not None:
        against_ceiling(found, deaths, best, options.max_steps)
        died, what = died & best.survivable, "avoidable deaths"
    step_one_places(found, episodes, starts)
    hot = hot_spot(starts, died)
    found.metrics["hot_spot_share"] = hot["share"] if hot is not None else 0.0
    if hot is not None:
        found.detail["hot_spot"] = {"of": what, **hot}
    found.detail["start_heading_deg"] = [s["heading_deg"] for s in starts]
    found.detail["start_speed"] = [s["speed"] for s in starts]
    found.detail["pre_roll"] = summarise([e.detail["pre_roll_stats"] for e in episodes])
    return found


def measure_deaths(deaths: Array, limit: int) -> Measures:
    """Return the metrics that follow from the death steps `[E, F]` alone (-1: survived)."""
    survived = deaths < 0
    steps = np.where(survived, limit, np.minimum(deaths, limit))
    final = survived.mean(1)
    early_100, early_150 = ((~survived & (steps < n)).mean(1) for n in (100, 150))
    p10, p25, p50, p75, p90 = np.percentile(steps, [10, 25, 50, 75, 90])
    first = (deaths == 1).mean(1)
    # An episode without a death has its first death after the end.
    opening = steps.min(1)
    metrics = {
        "avg_final": float(final.mean()),
        "min_final": float(final.min()),
        "median_final": float(np.median(final)),
        "survival_fraction": float(survived.mean()),
        "ed100": float(early_100.mean()),
        "ed150": float(early_150.mean()),
        "p10": float(p10),
        "p25": float(p25),
        "p75": float(p75),
        "p90": float(p90),
        "death_step_mean": float(steps.mean()),
        "death_step_median": float(p50),
        "first_death_mean": float(opening.mean()),
        "step_one_count": float((deaths == 1).sum()),
        "step_one_ratio": float(first.mean()),
        "fish_samples": float(deaths.size),
    }
    samples: dict[str, Sequence[float]] = {
        "avg_final": final.tolist(),
        "ed100": early_100.tolist(),
        "ed150": early_150.tolist(),
        "death_step_mean": steps.mean(1).tolist(),
        "first_death_mean": opening.tolist(),
        "step_one_ratio": first.tolist(),
    }
    return Measures(metrics, samples, {"death_steps": deaths, "final": final})


def against_ceiling(found: Measures, deaths: Array, best: CeilingReport, limit: int) -> None:
    """Add what the best possible play reaches on the same starts, and what was lost to it."""
    avoidable = (deaths >= 0) & best.survivable
    # Who can get past step one can avoid dying there, even if it must die soon after.
    avoidable_first = (deaths == 1) & (best.best_death_step != 1)
    steps = np.where(best.survivable, limit, best.best_death_step)
    found.metrics.update(
        ceiling_avg_final=best.avg_final,
        ceiling_min_final=best.min_final,
        ceiling_ed100=float((~best.survivable & (steps < 100)).mean()),
        ceiling_p10=float(np.percentile(steps, 10)),
        ceiling_step_one_count=float(best.step_one_count),
        avoidable_death_fraction=float(avoidable.mean()),
        avoidable_step_one_count=float(avoidable_first.sum()),
        regret=best.avg_final - found.metrics["avg_final"],
    )
    found.samples["avoidable_death_fraction"] = avoidable.mean(1).tolist()
    found.detail["survivable"] = best.survivable
    found.detail["avoidable"] = avoidable.sum(1)


def step_one_places(
    found: Measures, episodes: Sequence[Episode], starts: Sequence[Mapping[str, float]]
) -> None:
    """Add from which headings and speeds the fish died at step one."""
    records = [
        {**start, "count": len(e.detail["step_one"]), "seed": e.start.seed, "type": e.start.type}
        for e, start in zip(episodes, starts, strict=True)
        if e.detail["step_one"]
    ]
    found.detail["step_one"] = records
    found.detail["step_one_clusters"] = clusters(records, TOP_CLUSTERS)
    found.metrics["step_one_top_share"] = clusters(records, 1)[0]["share"] if records else 0.0
    for name, span in (
        ("step_one_ne_fast_share", sector_range("NE")),
        ("step_one_v36_ne_fast_share", V36_NE),
    ):
        share = fast_share(records, span) if records else None
        found.metrics[name] = 0.0 if share is None else share


def hot_spot(starts: Sequence[Mapping[str, float]], died: Bools) -> dict[str, Any] | None:
    """Return the (heading, speed) bin in which most of these deaths `[E, F]` lie; None without deaths.

    `lift` compares its share of the deaths with its share of the episodes: 1 is as expected.
    """
    lost = died.sum(1)
    if not lost.any():
        return None
    bins = [bin_of(s["heading_deg"], s["speed"]) for s in starts]
    counts = dict.fromkeys(bins, 0)
    for place, count in zip(bins, lost.tolist(), strict=True):
        counts[place] += count
    worst = max(counts, key=lambda place: counts[place])
    share, episodes = counts[worst] / int(lost.sum()), bins.count(worst)
    lift = share * len(bins) / episodes
    about = {"deaths": counts[worst], "episodes": episodes, "share": share, "lift": lift}
    return {**bin_edges(worst), **about}
