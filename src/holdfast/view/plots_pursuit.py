"""Pictures of a run of self-play: who wins, who learns, how even and how exploitable the pair is.

They read `selfplay.jsonl` and `selfplay.json`, whose records stand in `holdfast.selfplay.records`.
The pursuer is red, the evader blue.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import groupby

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from holdfast.config import from_tables
from holdfast.errors import HoldfastError
from holdfast.records import F64
from holdfast.selfplay.records import (
    LINES_FILE,
    SUMMARY_FILE,
    Evaluation,
    Rate,
    Summary,
    read_evaluations,
    read_summary,
)
from holdfast.selfplay.rule import Rule, rule_of
from holdfast.selfplay.verdict import analyse, ne_gap
from holdfast.store.journal import read_lines
from holdfast.view.files import RunFiles, read_object
from holdfast.view.plots import Plot
from holdfast.view.style import (
    BLUE,
    GREEN,
    GREY,
    HALF,
    INK,
    LINES,
    PURPLE,
    QUIET,
    RED,
    WIDE,
    canvas,
    legend_above,
    steps_axis,
)

BAND = (0.10, 0.90)
"""Between these SR_P counts as balanced."""
COLORS = {"pursuer": RED, "evader": BLUE, "both": GREY}
TIMES = 4
"""Evaluations in the picture of capture times."""
NUMBERED = 12
"""Largest side of a cross-play table whose cells are written out."""
FEWEST = 5
"""Games below which a cell of a heat map stays empty."""


def evaluations(run: RunFiles) -> list[Evaluation]:
    """Return the evaluations of the run, in the order of their steps."""
    found = read_evaluations(read_lines(run.path / LINES_FILE, strict=False))
    return sorted(found, key=lambda e: e.env_steps)


def summary(run: RunFiles) -> Summary:
    """Return what was measured of the run; the analysis follows from all of its evaluations."""
    found = read_summary(read_object(run.path / SUMMARY_FILE))
    analysis = analyse(evaluations(run), **asdict(own_rule(run)))
    return replace(found, analysis=analysis or found.analysis)


def own_rule(run: RunFiles) -> Rule:
    """Return by which rule the run counts as converged; the original's without a config that can be read."""
    try:
        config = from_tables(run.config)
    except (HoldfastError, KeyError):
        return Rule()
    return rule_of(config.guards, config.world.options)


def rates(run: RunFiles) -> Figure | None:
    """Share of captures at every evaluation, with intervals, over who was training."""
    found = evaluations(run)
    if not found:
        return None
    figure, (axes,) = canvas(WIDE, 4.6)
    shade_roles(axes, found, named=True)
    _band(axes, _steps(found), [e.rate for e in found], INK, "SR_P, 95 % interval")
    axes.axhline(0.5, color=QUIET, lw=1.1, ls=(0, (5, 3)))
    for edge in BAND:
        axes.axhline(edge, color=GREY, lw=1.0, ls=(0, (1, 2)))
    _share_axis(axes, "games won by the pursuer (SR_P)")
    steps_axis(axes)
    axes.set_title("Capture rate", pad=30)
    legend_above(axes)
    return figure


def gap(run: RunFiles) -> Figure | None:
    """|SR_P - SR_E| at every evaluation, beside the threshold by which the run converges (else the original's)."""
    found = evaluations(run)
    if not found:
        return None
    gaps = [ne_gap(e.rate) for e in found]
    figure, (axes,) = canvas(HALF, 4.2)
    shade_roles(axes, found)
    _band(axes, _steps(found), gaps, INK, "gap, 95 % interval")
    eta = own_rule(run).eta
    axes.axhline(eta, color=GREEN, lw=1.4, ls=(0, (5, 3)), label=f"eta = {eta:g}")
    _share_axis(axes, "|SR_P - SR_E|", percent=False)
    steps_axis(axes)
    axes.set_title("NE gap", pad=30)
    legend_above(axes)
    return figure


def levels(run: RunFiles) -> Figure | None:
    """Level of the curriculum, where there was one."""
    found = evaluations(run)
    if len({e.level for e in found}) < 2:
        return None
    figure, (axes,) = canvas(HALF, 4.2)
    shade_roles(axes, found)
    axes.step(_steps(found), [e.level for e in found], where="post", color=GREEN)
    axes.yaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10]))
    axes.set_ylabel("level")
    steps_axis(axes)
    axes.set_title("Curriculum")
    return figure


def exploitability(run: RunFiles) -> Figure | None:
    """What best responses made of the pair: the value interval, and its width."""
    found = sorted(summary(run).exploitability, key=lambda e: e.env_steps)
    if not found:
        return None
    figure, (left, right) = canvas(WIDE, 4.0, 1, 2)
    steps = np.array([e.env_steps for e in found], np.float64)
    low, high = [e.value_low for e in found], [e.value_high for e in found]
    left.fill_between(steps, low, high, color=GREY, alpha=0.25, lw=0)
    _bars(left, steps, [e.pursuer.sr_p for e in found], RED, "best pursuer found")
    _bars(left, steps, [e.incumbent for e in found], INK, "the pair")
    _bars(left, steps, [e.evader.sr_p for e in found], BLUE, "against the best evader")
    _share_axis(left, "games won by the pursuer (SR_P)")
    left.set_title("Value interval", pad=30)
    legend_above(left, 3)
    _bars(right, steps, [e.exploitability for e in found], PURPLE, "both")
    _bars(right, steps, [e.pursuer.gain for e in found], RED, "pursuer's gain")
    _bars(right, steps, [e.evader.gain for e in found], BLUE, "evader's gain")
    right.set_ylim(0, None)
    right.set_ylabel("gain of a best response")
    right.set_title("Exploitability", pad=30)
    legend_above(right, 3)
    for axes in (left, right):
        steps_axis(axes)
    return figure


def crossplay(run: RunFiles) -> Figure | None:
    """Every pursuer against every evader."""
    table = summary(run).crossplay
    if table is None:
        return None
    shares = np.array(table.captures, np.float64) / max(table.games, 1)
    rows, columns = shares.shape
    size = min(max(rows, columns), 16)
    figure, (axes,) = canvas(max(HALF, 2.4 + 0.55 * size), max(4.2, 1.8 + 0.45 * min(rows, 16)))
    image = axes.imshow(shares, cmap="RdBu_r", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(columns), list(table.evaders), rotation=45, ha="right", fontsize=8.5)
    axes.set_yticks(range(rows), list(table.pursuers), fontsize=8.5)
    axes.grid(visible=False)
    if max(rows, columns) <= NUMBERED:
        for i, j in np.ndindex(rows, columns):
            strong = abs(shares[i, j] - 0.5) > 0.3
            text = f"{shares[i, j]:.2f}"
            axes.text(
                j, i, text, ha="center", va="center", fontsize=8, color="white" if strong else INK
            )
    axes.set_xlabel("evader")
    axes.set_ylabel("pursuer")
    axes.set_title(f"Cross-play: SR_P of {table.games} games each")
    figure.colorbar(image, ax=axes, format=PercentFormatter(1.0), shrink=0.9)
    return figure


def elo(run: RunFiles) -> Figure | None:
    """Ratings of the checkpoints of both roles, in their order."""
    found = summary(run).elo
    if found is None:
        return None
    figure, grid = canvas(WIDE, 4.2, 1, 2)
    for axes, (role, rated) in zip(
        grid, (("pursuer", found.pursuers), ("evader", found.evaders)), strict=True
    ):
        _bars(axes, np.arange(len(rated), dtype=np.float64), list(rated.values()), COLORS[role], "")
        axes.set_xticks(range(len(rated)), list(rated), rotation=45, ha="right", fontsize=8.5)
        axes.axhline(1200, color=QUIET, lw=1.1, ls=(0, (5, 3)))
        axes.set_ylabel("Elo, mean 1200")
        axes.set_title(f"{role.capitalize()}s")
    low, high = found.advantage.low, found.advantage.high
    grid[0].set_title(
        f"Pursuers (ahead of the evaders by {found.advantage.value:.0f} [{low:.0f}, {high:.0f}])"
    )
    return figure


def capture_times(run: RunFiles) -> Figure | None:
    """How soon the evader was caught, early and late in the run."""
    found = [e for e in evaluations(run) if e.captures_by_time and e.time_limit_s > 0]
    if not found:
        return None
    picks = np.unique(np.linspace(0, len(found) - 1, TIMES).round().astype(int))
    figure, (left, right) = canvas(WIDE, 4.0, 1, 2)
    shades = np.linspace(0.3, 1.0, len(picks))
    for k, shade in zip(picks, shades, strict=True):
        e = found[k]
        counts = np.cumsum(e.captures_by_time) / max(e.games, 1)
        times = np.linspace(0, e.time_limit_s, len(counts) + 1)
        label = f"update {e.update}"
        left.plot(times, [0.0, *counts], color=RED, alpha=float(shade), label=label)
    left.set_xlabel("seconds")
    left.set_xlim(0, found[-1].time_limit_s)
    _share_axis(left, "games that have ended in capture")
    left.set_title("Captures by time", pad=30)
    legend_above(left)
    timed = [e for e in found if e.capture_time_mean is not None]
    right.plot(_steps(timed), [e.capture_time_mean or 0.0 for e in timed], "o-", color=RED, ms=3.5)
    right.set_ylim(0, None)
    right.set_ylabel("seconds to capture, mean")
    right.set_title("Capture time", pad=30)
    steps_axis(right)
    return figure


def starts(run: RunFiles) -> Figure | None:
    """From which start positions the evader was caught."""
    found = summary(run).starts
    if not found:
        return None
    figure, grid = canvas(min(WIDE, 4.6 * len(found) + 1.2), 4.4, 1, len(found))
    words = {
        "evader": "Evader's start",
        "pursuer": "Pursuer's start",
        "relative": "Evader as the pursuer sees it",
    }
    for axes, part in zip(grid, found, strict=True):
        games = np.array(part.games, np.float64)
        enough = games >= FEWEST
        shares = np.where(enough, np.array(part.captures) / np.maximum(games, 1), np.nan)
        mesh = axes.pcolormesh(part.x_edges, part.y_edges, shares.T, cmap="RdBu_r", vmin=0, vmax=1)
        axes.set_aspect("equal")
        axes.set_facecolor(LINES)
        axes.grid(visible=False)
        axes.set_xlabel("metres ahead" if part.of == "relative" else "x in metres")
        axes.set_ylabel("metres to the left" if part.of == "relative" else "y in metres")
        axes.set_title(words.get(part.of, part.of))
    figure.colorbar(mesh, ax=grid, format=PercentFormatter(1.0), shrink=0.85, label="SR_P")
    return figure


def shade_roles(axes: Axes, found: list[Evaluation], named: bool = False) -> None:
    """Shade the background by who trained up to each evaluation; `named` puts the roles in the legend."""
    ends = _steps(found)
    begins = np.concatenate([[0.0], ends[:-1]])
    spans = zip(begins, ends, (e.role for e in found), strict=True)
    seen: set[str] = set()
    for role, group in groupby(spans, key=lambda span: span[2]):
        parts = list(group)
        if role in COLORS:
            label = f"{role} trained" if named and role not in seen else ""
            seen.add(role)
            axes.axvspan(
                parts[0][0], parts[-1][1], color=COLORS[role], alpha=0.15, lw=0, label=label
            )
    axes.set_xlim(0, float(ends[-1]) or 1.0)


def _steps(found: list[Evaluation]) -> F64:
    return np.array([e.env_steps for e in found], np.float64)


def _share_axis(axes: Axes, label: str, percent: bool = True) -> None:
    axes.set_ylim(-0.02, 1.02)
    if percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylabel(label)


def _band(axes: Axes, steps: F64, values: list[Rate], color: str, label: str) -> None:
    low, high = [v.low for v in values], [v.high for v in values]
    axes.fill_between(steps, low, high, color=color, alpha=0.2, lw=0)
    axes.plot(steps, [v.value for v in values], "o-", color=color, ms=3.5, lw=1.6, label=label)


def _bars(axes: Axes, at: F64, values: list[Rate], color: str, label: str) -> None:
    middle = np.array([v.value for v in values])
    ends = np.array([[v.low, v.high] for v in values]).T
    axes.errorbar(
        at,
        middle,
        yerr=np.abs(ends - middle),
        color=color,
        fmt="o-",
        ms=4.5,
        lw=1.5,
        elinewidth=1.3,
        capsize=2.5,
        label=label,
    )


PURSUIT = [
    Plot(
        "selfplay_rates",
        "Who wins",
        "Every evaluation of the pair that trains; dotted are the borders of a balanced game.",
        rates,
        wide=True,
    ),
    Plot(
        "selfplay_gap",
        "NE gap",
        "Distance from an even game. A game need not be even at its equilibrium: see exploitability.",
        gap,
    ),
    Plot("selfplay_levels", "Curriculum", "The level that was evaluated.", levels),
    Plot(
        "selfplay_exploitability",
        "Exploitability",
        "Best responses begin as the incumbent and are chosen on other seeds than these. More training of "
        "theirs can only widen the interval.",
        exploitability,
        wide=True,
    ),
    Plot(
        "selfplay_crossplay",
        "Cross-play",
        "Red: the pursuer wins. Rows or columns that fade are opponents that were forgotten.",
        crossplay,
    ),
    Plot(
        "selfplay_elo",
        "Ratings",
        "Maximum likelihood over the cross-play table; each role has a scale of its own.",
        elo,
        wide=True,
    ),
    Plot(
        "selfplay_capture_times",
        "Capture times",
        "Left: darker is later in the run. Right: games that ended in capture.",
        capture_times,
        wide=True,
    ),
    Plot(
        "selfplay_starts",
        "Success by start position",
        f"The last pair; cells with fewer than {FEWEST} games are left grey.",
        starts,
        wide=True,
    ),
]
