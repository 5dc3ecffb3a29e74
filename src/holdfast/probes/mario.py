"""What is measured of Mario: how often a stage is cleared, how far he came, where and of what he died.

A death's place is its stage, area and column of 64 pixels (`1-1:37:1152`): the level and its bonus rooms are areas of
their own. Rates by stage count the episodes that played it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from holdfast.errors import ConfigError, nearest
from holdfast.probes.runner import Measures
from holdfast.probes.stats import wilson
from holdfast.records import Episode
from holdfast.worlds.mario import MarioOptions
from holdfast.worlds.mario.books import DEATHS, ENDS
from holdfast.worlds.mario.options import parse_stages, stage_name
from holdfast.worlds.mario.rewards import COMPONENTS

PROTOCOLS = ("plain",)
BIN = 64
"""Width of a place, pixels."""
CLEAR = 1000.0
"""What a clear adds to the reach of an episode, pixels."""


def prepare(options: MarioOptions, protocol: str) -> MarioOptions:
    """Return the options to evaluate with: those of the run, with every stage played equally often.

    The protocol `plain` also begins every episode on the stage's first frame instead of after random no-ops.
    """
    options = replace(options, trail=0)
    if options.stage_schedule in ("random", "curriculum"):
        options = replace(options, stage_schedule="cycle")
    if not protocol:
        return options
    if protocol not in PROTOCOLS:
        raise ConfigError(
            f"'{protocol}' is not a protocol of mario. Allowed: {', '.join(PROTOCOLS)}."
            f"{nearest(protocol, PROTOCOLS)}"
        )
    return replace(options, noops=0)


def metric_names(options: MarioOptions) -> list[str]:
    """Return every metric that `measure` may find."""
    stages = [stage_name(stage) for stage in parse_stages(options.stages)]
    return [
        "clear_rate", "death_rate", "best_x_mean", "reach", "best_x_median", "best_x_p10", "best_x_max", "ground_mean",
        "score_mean", "coins_mean", *(f"end_{name}" for name in ENDS[1:]), "clear_steps_mean",
        "clear_time_left_mean", *(f"stage_{name}/clear_rate" for name in stages),
        *(f"stage_{name}/best_x_mean" for name in stages), "worst_place_share",
    ]  # fmt: skip


def measure(episodes: Sequence[Episode], options: MarioOptions, seeds: Sequence[int]) -> Measures:
    """Return the metrics of the evaluation and what they are made of."""
    clear = [e.facts["clear"] for e in episodes]
    best = np.array([e.facts["best_x"] for e in episodes])
    reasons = Counter(e.ended for e in episodes)
    cleared = [e for e in episodes if e.ended == "clear"]
    metrics = {
        "clear_rate": float(np.mean(clear)),
        "death_rate": float(np.mean([e.facts["death"] for e in episodes])),
        "best_x_mean": float(best.mean()),
        "reach": float(best.mean() + CLEAR * np.mean(clear)),
        "best_x_median": float(np.median(best)),
        "best_x_p10": float(np.percentile(best, 10)),
        "best_x_max": float(best.max()),
        "ground_mean": float(np.mean([e.facts["ground"] for e in episodes])),
        "score_mean": float(np.mean([e.facts["score"] for e in episodes])),
        "coins_mean": float(np.mean([e.facts["coins"] for e in episodes])),
        **{f"end_{name}": reasons[name] / len(episodes) for name in ENDS[1:]},
    }
    if cleared:
        metrics["clear_steps_mean"] = float(np.mean([e.steps for e in cleared]))
        metrics["clear_time_left_mean"] = float(np.mean([e.facts["timer"] for e in cleared]))
    stages = by_stage(episodes)
    for name, row in stages.items():
        metrics[f"stage_{name}/clear_rate"] = row["clear_rate"]
        metrics[f"stage_{name}/best_x_mean"] = row["best_x_mean"]
    places = death_places(episodes)
    if places:
        metrics["worst_place_share"] = places[0]["share"]
    samples: dict[str, Sequence[float]] = {
        "clear_rate": clear,
        "best_x_mean": best.tolist(),
        "death_rate": [e.facts["death"] for e in episodes],
    }
    detail = {
        "cleared": clear,
        "best_x": best.tolist(),
        "ended": [e.ended for e in episodes],
        "stage": [e.detail["stage"] for e in episodes],
        "stages": stages,
        "end_x": [e.facts["x"] for e in episodes],
        "end_area": [int(e.facts["area"]) for e in episodes],
        "death_places": places,
        "actions": action_shares(episodes),
        "rewards": reward_parts(episodes),
    }
    unplayed = [
        name for name in map(stage_name, parse_stages(options.stages)) if name not in stages
    ]
    if unplayed:
        most = len(stages) + len(unplayed)
        detail["unplayed"] = (
            f"{len(episodes)} evaluated episodes are too few for all stages: nothing is known of {', '.join(unplayed)}. "
            f"Take {most} or more: --probe.episodes {most} for a run, --episodes {most} for holdfast eval."
        )
    return Measures(metrics, samples, detail, shares=("clear_rate", "death_rate"))


def by_stage(episodes: Sequence[Episode]) -> dict[str, dict[str, Any]]:
    """Return episodes, clear rate with Wilson's interval, x and death rate of every stage that was played."""
    rows = {}
    for name in sorted({str(e.detail["stage"]) for e in episodes}):
        own = [e for e in episodes if e.detail["stage"] == name]
        clears = sum(e.ended == "clear" for e in own)
        best = [e.facts["best_x"] for e in own]
        rows[name] = {
            "episodes": len(own),
            "clear_rate": clears / len(own),
            "clear_interval": list(wilson(clears, len(own))),
            "best_x_mean": float(np.mean(best)),
            "best_x_max": float(np.max(best)),
            "death_rate": sum(e.ended in DEATHS for e in own) / len(own),
        }
    return rows


def death_places(episodes: Sequence[Episode]) -> list[dict[str, Any]]:
    """Return where the deaths lie, the worst place first: stage, area, x of the bin, deaths by reason, share."""
    dead = [e for e in episodes if e.ended in DEATHS]
    counts: dict[tuple[str, int, int], Counter[str]] = {}
    for e in dead:
        place = (str(e.detail["stage"]), int(e.facts["area"]), int(e.facts["x"]) // BIN * BIN)
        counts.setdefault(place, Counter())[e.ended] += 1
    order = sorted(counts, key=lambda place: (-counts[place].total(), place))
    return [
        {
            "stage": stage,
            "area": area,
            "x": x,
            "width": BIN,
            "deaths": counts[stage, area, x].total(),
            "share": counts[stage, area, x].total() / len(dead),
            "reasons": dict(counts[stage, area, x]),
        }
        for stage, area, x in order
    ]


def action_shares(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return how often each action was taken, as shares of all steps of the policy."""
    totals: Counter[str] = Counter()
    for e in episodes:
        totals.update(e.detail["actions"])
    whole = max(totals.total(), 1)
    return {name: count / whole for name, count in totals.items()}


def reward_parts(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return what each component of the reward paid in an episode, on average; they add up to the mean return."""
    return {
        name: float(np.mean([e.facts[f"reward_{name}"] for e in episodes])) for name in COMPONENTS
    }
