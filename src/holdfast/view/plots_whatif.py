"""The timeline of `holdfast whatif`: decisions as recorded and as they would have been, and what they steered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from holdfast.guards.whatif import Difference
from holdfast.records import F64
from holdfast.view.numbers import number
from holdfast.view.style import BLUE, GREY, INK, ORANGE, WIDE, house_style, legend_above

TELLING = (
    "gate/phase_limit",
    "density/value",
    "boost/value",
    "tails/remaining_ratio",
    "tails/stage_index",
    "tails/override_ratio",
    "gate/success_streak",
    "gate/failure_streak",
)
SAME = {"guard/gate/stage": "guard/gate/phase_limit"}
"""Statuses that say the same as another one, which is drawn instead."""
"""Statuses in the order in which they are drawn, where they differ; then any others."""
PANELS = 4
LABELLED = 40
"""Most differing decisions that still get their names written."""


def draw_whatif(
    path: Path,
    lines: Sequence[Mapping[str, Any]],
    series: Mapping[str, Sequence[Any]],
    found: Sequence[Difference],
    changed: Sequence[str],
) -> None:
    """Write the picture; `series` are the statuses of the changed guards, one value a line."""
    updates = np.array([float(line["update"]) for line in lines])
    panels = [name for name in differing(lines, series) if name not in SAME][:PANELS]
    guards = sorted({d.guard for d in found}) or ["no decision differs"]
    heights = [0.7 + 0.55 * len(guards), *([1.5] * len(panels))]
    with house_style():
        figure = Figure(
            figsize=(WIDE, 1.2 + 0.2 * len(changed[:4]) + sum(heights)), layout="constrained"
        )
        grid = figure.subplots(
            len(heights), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights}
        )
        axes: list[Axes] = list(grid.ravel())
        _decisions(axes[0], guards, found)
        shown = [f"What if  {changed[0]}", *(f"              {line}" for line in changed[1:4])]
        axes[0].set_title("\n".join(shown), pad=30, fontsize=11)
        for one, name in zip(axes[1:], panels, strict=True):
            before = _numbers([line.get(name) for line in lines])
            after = _numbers(series[name])
            one.step(updates, before, where="post", color=BLUE, label="recorded")
            one.step(updates, after, where="post", color=ORANGE, ls=(0, (4, 2)), label="what if")
            one.set_ylabel(name.removeprefix("guard/").replace("/", ":\n").replace("_", " "))
            known = after[np.isfinite(after)]
            whole = bool((known == known.round()).all())
            one.yaxis.set_major_locator(MaxNLocator(4, integer=whole))
        for k, one in enumerate(axes):
            if found:
                one.axvline(found[0].update, color=INK, lw=1.0, ls=(0, (2, 2)))
            if k:
                one.margins(y=0.12)
        note = (
            "; dotted: the first difference, a fact. What follows it is a reading." if found else ""
        )
        axes[-1].set_xlabel(f"update{note}")
        axes[-1].set_xlim(0, 1.05 * float(updates[-1]) + 1)
        path.parent.mkdir(exist_ok=True)
        figure.savefig(path)


def differing(lines: Sequence[Mapping[str, Any]], series: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return the numeric statuses that differ from the recorded ones, the telling ones first."""
    found = []
    for name, values in series.items():
        before, after = _numbers([line.get(name) for line in lines]), _numbers(values)
        if np.isfinite(after).any() and not np.array_equal(before, after, equal_nan=True):
            found.append(name)
    order = {f"guard/{name}": k for k, name in enumerate(TELLING)}
    return sorted(found, key=lambda name: order.get(name, len(order)))


def _decisions(axes: Axes, guards: Sequence[str], found: Sequence[Difference]) -> None:
    """Draw one row a guard: above its line what was recorded, below what would have been."""
    rows = {guard: len(guards) - 1 - k for k, guard in enumerate(guards)}
    for guard, row in rows.items():
        axes.axhline(row, color=GREY, lw=0.8)
        mine = [d for d in found if d.guard == guard]
        for side, color in ((1, BLUE), (-1, ORANGE)):
            made = [(d.update, d.before if side > 0 else d.after) for d in mine]
            at = [u for u, m in made if m is not None]
            label = ("recorded" if side > 0 else "what if") if row == rows[guards[0]] else None
            marker = "v" if side > 0 else "^"
            axes.plot(at, [row + 0.1 * side] * len(at), marker, color=color, ms=7, label=label)
            if len(found) <= LABELLED:
                for update, m in made:
                    if m is not None:
                        where = "bottom" if side > 0 else "top"
                        axes.annotate(
                            m.name or m.kind,
                            (update, row + 0.1 * side),
                            (0, 6 * side),
                            textcoords="offset points",
                            ha="center",
                            va=where,
                            fontsize=8.5,
                            color=color,
                        )
    axes.set_yticks(list(rows.values()), list(rows))
    axes.set_ylim(-0.62, len(guards) - 0.38)
    axes.grid(axis="y", visible=False)
    if found:
        legend_above(axes)


def _numbers(values: Sequence[Any]) -> F64:
    found = [number(v) for v in values]
    return np.array([np.nan if v is None else v for v in found], np.float64)
