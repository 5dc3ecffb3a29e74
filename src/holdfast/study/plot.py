"""plot.png: the main metric over environment steps, every seed thin, the interquartile mean thick with its band."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from holdfast.study.pursuit import BAND
from holdfast.study.results import Result
from holdfast.study.table import course
from holdfast.view.style import (
    BLUE,
    GREEN,
    GREY,
    HALF,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    WIDE,
    canvas,
    house_style,
    legend_above,
    steps_axis,
)

COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, GREY)
CAPTURE = "capture_rate"


def draw_study(path: Path, results: Sequence[Result], main: str, title: str) -> Path | None:
    """Write the picture of all runs that were evaluated; None if none was."""
    shown = [result for result in results if result.probes]
    if not shown:
        return None
    metrics = [main]
    if main != CAPTURE and any(CAPTURE in r.probes[-1].metrics for r in shown):
        metrics.append(CAPTURE)
    with house_style():
        figure, axes = canvas(WIDE if len(metrics) > 1 else HALF, 4.2, columns=len(metrics))
        for one, metric in zip(axes, metrics, strict=True):
            _curves(one, shown, metric)
            if metric == CAPTURE:
                for edge in BAND:
                    one.axhline(edge, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)))
                one.set_ylim(-0.03, 1.03)
        axes[0].set_title(title)
        if len({result.variant for result in shown}) > 1:
            axes[0].legend(loc="best", fontsize=8)
        else:
            legend_above(axes[0])
        figure.savefig(path)
    return path


def _curves(axes: Axes, results: Sequence[Result], metric: str) -> None:
    variants = list(dict.fromkeys(result.variant for result in results))
    for k, variant in enumerate(variants):
        colour = COLOURS[k % len(COLOURS)]
        own = [curve(r, metric) for r in results if r.variant == variant]
        own = [(x, y) for x, y in own if x]
        for x, y in own:
            axes.plot(
                x, y, color=colour, linewidth=0.8, alpha=0.45, marker="." if len(x) == 1 else ""
            )
        if not own:
            continue
        found = course(own)
        label = variant if len(variants) > 1 else f"interquartile mean of {len(own)}"
        axes.plot(found.at, found.iqm, color=colour, linewidth=2.4, label=label)
        axes.fill_between(found.at, found.low, found.high, color=colour, alpha=0.18, linewidth=0)
    axes.set_ylabel(metric)
    steps_axis(axes)


def curve(result: Result, metric: str) -> tuple[list[float], list[float]]:
    """Return environment steps and values of a metric over the evaluations of a run."""
    found = [(float(p.env_steps), p.metrics[metric]) for p in result.probes if metric in p.metrics]
    return [x for x, _ in found], [y for _, y in found]


def draw_search(
    path: Path, results: Sequence[Result], main: str, title: str, best: str
) -> Path | None:
    """Write the curves of all trials, the best one thick, pruned ones pale."""
    shown = [result for result in results if result.probes]
    if not shown:
        return None
    with house_style():
        figure, (axes,) = canvas(HALF, 4.2)
        for result in sorted(shown, key=lambda r: r.run == best):
            x, y = curve(result, main)
            chosen, pale = result.run == best, result.state == "pruned"
            axes.plot(
                x,
                y,
                color=BLUE if chosen else GREY,
                linewidth=2.4 if chosen else 0.9,
                alpha=0.4 if pale else 0.9,
                marker="." if len(x) == 1 else "",
                label=f"best: {best}" if chosen else None,
            )
        axes.set_ylabel(main)
        axes.set_title(title)
        steps_axis(axes)
        if any(result.run == best for result in shown):
            legend_above(axes)
        figure.savefig(path)
    return path
