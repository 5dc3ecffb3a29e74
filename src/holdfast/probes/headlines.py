"""What people look at first in each world: the one table that console, plots, clips and report read.

A world declares its main metric here, how checkpoints are ranked by it, the training signal that shows the same
thing between two probes, and what of one episode makes it good or bad. To add a world, add a row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from holdfast.records import Episode


@dataclass(frozen=True)
class Headline:
    """The main figures of a world."""

    metric: str = "return_mean"
    """Of a probe; higher is better."""
    ties: tuple[str, ...] = ()
    """Metrics that rank probes with the same main one, in order."""
    goal: str = ""
    """Metric that a search for settings raises, where the main one stays at 0 for long; empty takes the main one."""
    signal: str = "episode/return_mean"
    """Of training; the console shows it with its course."""
    curve: str = ""
    """Metric of a probe that is measured as the signal is, where that is not the main one."""
    axis: str = "mean return of an episode"
    """What the axis of the learning curve says."""
    share: bool = False
    """Both lie between 0 and 1 and are shown as percentages."""
    beside: tuple[str, ...] = ()
    """Metrics that the console says beside the main one."""
    cards: tuple[str, ...] = ("length_mean",)
    """Metrics that the report puts on cards after the main one."""
    columns: tuple[str, ...] = ("return_mean", "return_min", "return_max", "length_mean")
    """Metrics of the report's table of probes, where they were measured."""
    rank: tuple[str, ...] = ("returns",)
    """Columns of a probe's detail, one value an episode, by which episodes are ordered; `-name` is better when
    it is low. The first that differs decides."""
    outcome: str = "return {return_mean:.1f}"
    """What is said of one episode: made from its facts, how it `ended`, its `steps` and its `return_mean`."""
    grid: int = 0
    """Above 0, so many episodes are filmed side by side instead of the best, the median and the worst."""

    @property
    def rule(self) -> str:
        """How probes are ranked, as `probes/rank.py` reads it."""
        return ", ".join((self.metric, *self.ties))


HEADLINES: dict[str, Headline] = {
    "shoal": Headline(
        metric="avg_final",
        signal="shoal/survival",
        axis="share of fish alive at the end",
        share=True,
        beside=("ed100", "avoidable_death_fraction"),
        cards=("avoidable_death_fraction", "ed100", "p10", "min_final", "return_mean"),
        columns=(
            "avg_final",
            "min_final",
            "ed100",
            "p10",
            "avoidable_death_fraction",
            "step_one_ratio",
            "return_mean",
        ),
        rank=("final", "-avoidable"),
        outcome="{survival:.1%} of the fish alive",
    ),
    "mario": Headline(
        metric="clear_rate",
        ties=("best_x_mean",),
        goal="reach",
        signal="mario/clear",
        axis="share of episodes that clear the stage",
        share=True,
        beside=("best_x_mean",),
        cards=("best_x_mean", "death_rate", "clear_time_left_mean", "return_mean"),
        columns=(
            "clear_rate",
            "best_x_mean",
            "best_x_p10",
            "death_rate",
            "end_stagnation",
            "score_mean",
            "return_mean",
            "length_mean",
        ),
        rank=("cleared", "best_x", "-lengths"),
        outcome="{world:.0f}-{stage:.0f}: {ended}, furthest x {best_x:.0f}",
    ),
    "pursuit": Headline(
        metric="balance",
        signal="pursuit/captured",
        curve="capture_rate",
        axis="share of games that end in capture",
        share=True,
        beside=("capture_rate",),
        cards=("capture_rate", "escape_rate", "capture_time_s", "min_distance_m"),
        columns=(
            "balance",
            "capture_rate",
            "escape_rate",
            "capture_time_s",
            "min_distance_m",
            "length_mean",
        ),
        rank=("captured", "-lengths"),
        outcome="{ended}",
        grid=9,
    ),
}
ANY = Headline()
"""What holds for every other environment."""
RETURN_OF = "return_"
"""Begins the name of a role's own return, where a world has several roles."""
RETURNS = ("return_mean", "return_std", "return_min", "return_max")
"""Metrics that begin so too."""
FACT = "facts/"
"""Begins the signals of what a foreign environment tells."""
COUNTS = ("length_mean", "episodes")
"""What is measured beside returns in every world."""

WORDS = {
    "avg_final": "survival",
    "min_final": "worst episode",
    "median_final": "median episode",
    "ed100": "early deaths",
    "ed150": "early deaths (150)",
    "p10": "p10 of death step",
    "step_one_ratio": "deaths at step one",
    "avoidable_death_fraction": "avoidable deaths",
    "ceiling_avg_final": "ceiling",
    "return_mean": "return",
    "return_min": "lowest return",
    "return_max": "highest return",
    "length_mean": "episode length",
    "clear_rate": "cleared",
    "death_rate": "died",
    "best_x_mean": "furthest x",
    "best_x_p10": "furthest x, p10",
    "reach": "furthest x, and 1000 for a clear",
    "end_stagnation": "stood still",
    "score_mean": "score",
    "clear_time_left_mean": "time left at a clear",
    "capture_rate": "captured",
    "escape_rate": "escaped",
    "capture_time_s": "seconds to capture",
    "min_distance_m": "closest distance, m",
    "shoal/survival": "survival",
    "mario/clear": "cleared",
    "pursuit/captured": "captured",
    "episode/return_mean": "return",
}
"""Words for metrics and signals; others are shown under their own name."""


def headline(world: str) -> Headline:
    """Return the main figures of a world."""
    return HEADLINES.get(world, ANY)


def role_returns(names: Iterable[str]) -> tuple[str, ...]:
    """Return which of these metrics are a role's own return."""
    return tuple(name for name in names if name.startswith(RETURN_OF) and name not in RETURNS)


def with_own(main: Headline, measured: Collection[str], signals: Iterable[str]) -> Headline:
    """Return the main figures with each role's return and the facts that the environment tells, if these metrics have them
    and the world no figures of its own."""
    told = sorted(name.removeprefix(FACT) for name in signals if name.startswith(FACT))
    own = (*role_returns(measured), *(name for name in told if name in measured))
    if main is not ANY or not own:
        return main
    columns = (main.metric, *own, *main.columns[1:])
    return replace(main, beside=own, cards=(*own, *main.cards), columns=columns)


def by_role(signal: str, names: Iterable[str]) -> dict[str, str]:
    """Return which of `names` is the signal, or where every role has a learner, those of each role (`train/<role>/lr`)."""
    first, _, last = signal.partition("/")
    found = {}
    for name in names:
        if name == signal:
            return {"": name}
        start, _, rest = name.partition("/")
        role, _, end = rest.partition("/")
        if start == first and end == last:
            found[role] = name
    return found


def headline_in(line: Mapping[str, Any]) -> Headline:
    """Return the main figures of the world that these signals come from."""
    return next((one for one in HEADLINES.values() if one.signal in line), ANY)


def outcome(world: str, episode: Episode) -> str:
    """Return how an episode ended, in words."""
    facts = {"return_mean": float(episode.returns.mean()), "steps": episode.steps, **episode.facts}
    return headline(world).outcome.format(**facts, ended=episode.ended.replace("_", " "))


def words(name: str) -> str:
    """Return the words for a metric or a signal."""
    return WORDS.get(name, name.rpartition("/")[2].replace("_", " "))
