"""From the records of a run to a mix of starts: which episodes went badly, and what they began from.

A start is kept in one of three forms (`hold`):

    all        fish and predator as they were right after the reset; fits worlds of as many fish only
    predator   the predator alone, exactly; the fish are drawn from the seed. Fits any number of fish
    seed       the seed alone: it begins the same only under the same options and values

The order of the draws depends on the number of fish, so a bare seed is another predator in a world of other size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from holdfast.probes.sectors import in_range
from holdfast.records import Start
from holdfast.worlds.shoal import ShoalOptions
from holdfast.worlds.shoal.starts import start_from_seed

Hold = Literal["all", "predator", "seed"]
EVALUATION = "evaluation of "
"""How the origin of a start begins that was mined from a probe: training on it teaches the test."""


@dataclass(frozen=True)
class Found:
    """An episode that went badly."""

    seed: int
    survival: float
    heading_deg: float
    speed: float
    update: int
    """At which it ended."""
    steps: int = 0


@dataclass(frozen=True)
class Wanted:
    """Which episodes are taken."""

    span: tuple[float, float] = (0.0, 360.0)
    """Headings of the predator at the start, degrees."""
    min_speed: float = 0.0
    max_speed: float = np.inf
    below: float = 0.95
    """Survival under which an episode went badly."""
    count: int = 0
    """Most starts; 0 takes all."""

    def takes(self, one: Found) -> bool:
        """Return whether this episode is wanted."""
        speed = np.float32(one.speed)
        return (
            one.survival < self.below
            and bool(np.float32(self.min_speed) <= speed <= np.float32(self.max_speed))
            and in_range(one.heading_deg, self.span)
        )


def from_training(lines: Iterable[Mapping[str, Any]]) -> list[Found]:
    """Return the episodes of `episodes.jsonl` that began afresh from a seed; replayed starts are left out."""
    found = []
    for line in lines:
        start = line.get("start") or {}
        seed, survival = start.get("seed"), line.get("facts/survival")
        if seed is None or survival is None or start.get("snapshot") or start.get("id"):
            continue
        heading, speed = line.get("facts/start_heading_deg"), line.get("facts/start_speed")
        if heading is None or speed is None:
            continue
        update, steps = int(line["update"]), int(line.get("steps", 0))
        found.append(Found(int(seed), float(survival), heading, speed, update, steps))
    return found


def from_probe(line: Mapping[str, Any]) -> list[Found]:
    """Return the episodes of one line of `evals.jsonl`."""
    detail = line.get("detail") or {}
    columns = [detail.get(k) or () for k in ("final", "start_heading_deg", "start_speed")]
    return [
        Found(int(seed), float(final), float(heading), float(speed), int(line["update"]))
        for seed, final, heading, speed in zip(line.get("seeds") or (), *columns, strict=False)
    ]


def choose(episodes: Iterable[Found], wanted: Wanted) -> list[Found]:
    """Return the wanted episodes, the worst first, each seed once."""
    taken: dict[int, Found] = {}
    for one in sorted(filter(wanted.takes, episodes), key=lambda e: e.survival):
        taken.setdefault(one.seed, one)
    chosen = list(taken.values())
    return chosen[: wanted.count] if wanted.count else chosen


def as_starts(
    chosen: Sequence[Found],
    options_of: Callable[[Found], ShoalOptions | None],
    hold: Hold,
    *,
    label: str,
    type: str,
    origin: str,
) -> list[Start]:
    """Return the episodes as starts; one whose options are not known for sure (None) is left out."""
    starts = []
    for one in chosen:
        options = options_of(one)
        if options is None:
            continue
        about = (
            f"{origin}, update {one.update}, survival {one.survival:.3f}" if one.update else origin
        )
        start = start_from_seed(
            one.seed,
            None if hold == "seed" else options,
            label=label,
            type=type,
            origin=about,
            id=f"{type}-{one.seed}",
        )
        if hold == "predator" and start.snapshot is not None:
            kept = {k: v for k, v in start.snapshot.items() if k.startswith("predator")}
            start = replace(start, snapshot=kept)
        starts.append(start)
    return starts


def began_in(one: Found, rollout: int, first: int = 1) -> range:
    """Return the updates in which the reset may have happened that an episode began with.

    `rollout` are the steps of an update, `first` is the first update of the present world; `first - 1` stands
    for the reset with which that world began.
    """
    # It ended at a step in ((u - 1) T, u T]; the reset before it happened `steps` steps earlier.
    made = (first - 1) * rollout
    low = max((one.update - 1) * rollout + 1 - one.steps, made)
    high = max(one.update * rollout - one.steps, made)
    return range(-(-low // rollout), -(-high // rollout) + 1)
