"""Pictures of a shoal run: the tail, who died when and whether it could have lived, and from where."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from holdfast.probes.sectors import BIN_DEG, bin_of
from holdfast.probes.sectors import SECTORS as SECTOR_NAMES
from holdfast.records import F64
from holdfast.view import plots_tails
from holdfast.view.files import RunFiles
from holdfast.view.plots import Plot, draw_probes
from holdfast.view.style import (
    BLUE,
    GREY,
    HALF,
    INK,
    ORANGE,
    PURPLE,
    QUIET,
    RED,
    SKY,
    WIDE,
    canvas,
    from_zero,
    legend_above,
)
from holdfast.view.style import steps_axis as label_steps

HISTOGRAMS = 10
"""Most evaluations in the row of death histograms."""
SPEEDS = (
    (0.0, SKY, "below 0.8"),
    (0.8, BLUE, "0.8 to 1.6"),
    (1.6, ORANGE, "1.6 to 2.4"),
    (2.4, RED, "2.4 and up"),
)
"""Bands of the predator's speed, two bins each."""
SECTORS = ((240, 24), (96, 12), (40, 8))
"""From so many episodes on, the predator's first heading is cut into so many sectors."""


def tail(run: RunFiles) -> Figure | None:
    """Early, avoidable and step-one deaths at every probe, with intervals."""
    wanted = (
        ("ed100", "dead before step 100", RED),
        ("avoidable_death_fraction", "avoidable deaths", BLUE),
        ("step_one_ratio", "dead at step one", PURPLE),
    )
    shown = [row for row in wanted if run.evals and np.isfinite(run.probed(row[0])).any()]
    if not shown:
        return None
    figure, (axes,) = canvas(HALF, 4.2)
    for k, (name, label, color) in enumerate(shown):
        draw_probes(axes, run, name, color, label, aside=0.008 * (k - 1))
    from_zero(axes)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylabel("share of fish")
    axes.set_title("The tail", pad=30)
    label_steps(axes)
    legend_above(axes)
    return figure


def deaths(run: RunFiles) -> Figure | None:
    """When the fish of the last probe died, and which deaths nobody could have avoided."""
    probe = last_with(run, "death_steps")
    if probe is None:
        return None
    steps = np.asarray(probe["detail"]["death_steps"], np.float64)
    died = steps >= 0
    known = probe["detail"].get("survivable")
    survivable = np.asarray(known, np.bool_) if known is not None else np.ones_like(died)
    limit = plots_tails.probe_limit(run)
    figure, (axes,) = canvas(HALF, 4.2)
    groups = [steps[died & survivable], steps[died & ~survivable]]
    labels = [f"avoidable: {len(groups[0])}", f"nobody could have lived: {len(groups[1])}"]
    if known is None:
        labels = [f"deaths: {len(groups[0])}", "_hidden"]
    axes.hist(
        groups,
        bins=np.linspace(0, limit, 51).tolist(),
        stacked=True,
        color=[RED, GREY],
        label=labels,
    )
    axes.set_xlim(0, limit)
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlabel(f"step of death (bins of {limit / 50:g} steps)")
    axes.set_ylabel("fish")
    alive = 1.0 - died.mean()
    axes.set_title(f"Deaths at update {probe.get('update')}: {alive:.1%} alive", pad=30)
    legend_above(axes)
    return figure


def seeds(run: RunFiles) -> Figure | None:
    """Fish lost in every episode of the last probe: avoidably, and because nobody could have lived."""
    probe = last_with(run, "death_steps")
    if probe is None:
        return None
    died = np.asarray(probe["detail"]["death_steps"]) >= 0
    known = probe["detail"].get("survivable")
    doomed = ~np.asarray(known, np.bool_) if known is not None else np.zeros_like(died)
    lost, doomed_share = (died & ~doomed).mean(1), (died & doomed).mean(1)
    order = np.argsort(-lost - doomed_share, kind="stable")
    place = np.arange(len(order))
    figure, (axes,) = canvas(HALF, 4.2)
    if known is not None:
        axes.bar(place, doomed_share[order], 0.82, color=GREY, label="nobody could have lived")
    label = "avoidable" if known is not None else "died"
    axes.bar(place, lost[order], 0.82, bottom=doomed_share[order], color=RED, label=label)
    axes.set_ylim(0, max(1.05 * float((lost + doomed_share).max()), 0.05))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylabel("share of fish that died")
    axes.set_title(f"Episodes of the probe at update {probe.get('update')}, worst first", pad=30)
    axes.grid(axis="x", visible=False)
    named = probe.get("seeds") or []
    if len(named) == len(order) <= 24:
        axes.set_xticks(place, [str(named[k]) for k in order], rotation=45, ha="right", fontsize=8)
        axes.set_xlabel("seed of the episode")
    else:
        axes.set_xlabel("episode")
    legend_above(axes)
    return figure


def headings(run: RunFiles) -> Figure | None:
    """From which first headings of the predator the fish of the last training episodes died."""
    rows = [
        (e["facts/start_heading_deg"], 1.0 - e["facts/survival"])
        for e in run.episodes
        if "facts/start_heading_deg" in e and "facts/survival" in e and not e.get("cut")
    ]
    recent = np.array(rows[-max(len(rows) // 3, SECTORS[0][0]) :], np.float64)
    sectors = next((count for least, count in SECTORS if len(recent) >= least), 0)
    if not sectors:
        return None
    sector = (recent[:, 0] % 360.0 // (360.0 / sectors)).astype(np.int64)
    count = np.bincount(sector, minlength=sectors)
    lost = np.bincount(sector, recent[:, 1], sectors) / np.maximum(count, 1)
    figure = Figure(figsize=(HALF, 4.2), layout="constrained")
    figure.set_layout_engine("constrained", w_pad=0.2, h_pad=0.08)
    axes: Any = figure.add_subplot(projection="polar")
    angles = np.deg2rad((np.arange(sectors) + 0.5) * 360.0 / sectors)
    mean = float(recent[:, 1].mean())
    colors = [RED if v > 1.25 * mean else ORANGE if v > mean else BLUE for v in lost]
    axes.bar(angles, lost, width=2 * np.pi / sectors * 0.92, color=colors, alpha=0.9)
    ring = np.linspace(0, 2 * np.pi, 181)
    axes.plot(ring, np.full_like(ring, mean), color=INK, lw=1.1, ls=(0, (5, 3)))
    axes.set_xticks(np.deg2rad(np.arange(0, 360, 45)), SECTOR_NAMES)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.yaxis.get_major_locator().base.set_params(nbins=4)
    axes.set_rlabel_position(_quiet_side(lost))
    axes.set_anchor("W")
    axes.tick_params(axis="x", pad=4)
    axes.set_title(f"Fish lost by the predator's first heading\n(last {len(recent)} episodes)")
    axes.legend(
        handles=[
            Patch(color=BLUE, label="below the mean"),
            Patch(color=ORANGE, label="above the mean"),
            Patch(color=RED, label="a quarter above"),
            Line2D([], [], color=INK, lw=1.1, ls=(0, (5, 3)), label=f"mean: {mean:.1%}"),
        ],
        loc="upper left",
        bbox_to_anchor=(1.02, 1.0),
        title="no bar: nothing began there" if (count == 0).any() else None,
        alignment="left",
    )
    return figure


def step_one_polar(run: RunFiles) -> Figure | None:
    """From which headings and speeds of the predator fish died at step one, over all evaluations."""
    records = [r for e in run.evals for r in (e.get("detail") or {}).get("step_one") or ()]
    if not records:
        return None
    heading_bins = round(360 / BIN_DEG)
    counts = np.zeros((len(SPEEDS), heading_bins))
    for record in records:
        heading, _ = bin_of(record["heading_deg"], record["speed"])
        band = sum(record["speed"] >= low for low, _, _ in SPEEDS) - 1
        counts[band, heading] += record.get("count", 1)
    figure = Figure(figsize=(HALF, 4.2), layout="constrained")
    figure.set_layout_engine("constrained", w_pad=0.2, h_pad=0.08)
    axes: Any = figure.add_subplot(projection="polar")
    angles = np.deg2rad((np.arange(heading_bins) + 0.5) * BIN_DEG)
    base = np.zeros(heading_bins)
    for (low, color, label), row in zip(SPEEDS, counts, strict=True):
        width = np.deg2rad(BIN_DEG) * 0.94
        axes.bar(
            angles, row, width=width, bottom=base, color=color, label=label if low >= 0 else ""
        )
        base = base + row
    axes.set_xticks(np.deg2rad(np.arange(0, 360, 45)), SECTOR_NAMES)
    axes.yaxis.get_major_locator().base.set_params(nbins=4, integer=True)
    axes.set_rlabel_position(_quiet_side(counts.sum(0)))
    axes.set_anchor("W")
    axes.tick_params(axis="x", pad=3)
    total = int(counts.sum())
    axes.set_title(f"Deaths at step one by the predator's heading\n({total} fish, all evaluations)")
    axes.legend(loc="upper left", bbox_to_anchor=(1.04, 1.0), title="its speed", alignment="left")
    return figure


def _quiet_side(values: F64) -> float:
    """Return the angle in degrees where a polar plot of these sectors is lowest, away from the highest."""
    turns = np.arange(len(values))
    around = sum(np.roll(values, k) for k in (-1, 0, 1)) + np.zeros(len(values))
    away = np.abs(
        (turns - int(np.argmax(values)) + len(values) / 2) % len(values) - len(values) / 2
    )
    return float((int(np.lexsort((-away, around))[0]) + 0.5) * 360.0 / len(values))


def death_histograms(run: RunFiles) -> Figure | None:
    """When the fish died at every evaluation, in bins of 25 steps."""
    probes = [e for e in run.evals if (e.get("detail") or {}).get("death_steps")]
    if len(probes) < 2:
        return None
    shown = [
        probes[k]
        for k in np.unique(np.linspace(0, len(probes) - 1, HISTOGRAMS).round().astype(int))
    ]
    columns = 5 if len(shown) in (5, 9, 10) else min(4, len(shown))
    rows = -(-len(shown) // columns)
    figure = Figure(figsize=(WIDE, 0.5 + 2.3 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    limit = plots_tails.probe_limit(run)
    for axes, probe in zip(grid, shown, strict=False):
        steps = np.asarray(probe["detail"]["death_steps"])
        died = steps >= 0
        known = probe["detail"].get("survivable")
        survivable = np.asarray(known, np.bool_) if known is not None else np.ones_like(died)
        axes.hist(
            [steps[died & survivable], steps[died & ~survivable]],
            bins=np.arange(0, limit + 25, 25).tolist(),
            stacked=True,
            color=[RED, GREY],
        )
        axes.set_title(f"update {probe.get('update')}: {died.mean():.1%} died", fontsize=10.5)
        axes.set_xlim(0, limit)
        axes.xaxis.set_major_locator(MaxNLocator(3))
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    for axes in grid[len(shown) :]:
        axes.set_visible(False)
    figure.supxlabel("step of death", fontsize=10.5, color=QUIET)
    figure.supylabel("fish", fontsize=10.5, color=QUIET)
    if any((probe.get("detail") or {}).get("survivable") is not None for probe in shown):
        colours = [Patch(color=RED), Patch(color=GREY)]
        grid[len(shown) - 1].legend(colours, ["avoidable", "unavoidable"], loc="upper right")
    return figure


def last_with(run: RunFiles, name: str) -> dict[str, Any] | None:
    """Return the newest probe whose detail has a non-empty `name`."""
    for probe in reversed(run.evals):
        detail = probe.get("detail")
        if isinstance(detail, dict) and detail.get(name):
            return probe
    return None


SHOAL = [
    Plot(
        "eval_timeline",
        "Evaluations and the gate",
        "Every evaluation beside the ceiling of its own seeds; squares are what the gate decided on it.",
        plots_tails.eval_timeline,
        wide=True,
    ),
    Plot(
        "tail",
        "The tail",
        "Deaths in every probe, with 95 % intervals; points are set apart a little.",
        tail,
    ),
    Plot(
        "deaths",
        "When fish die",
        "An unavoidable death is one that no sequence of actions from that start avoids.",
        deaths,
    ),
    Plot("seeds", "Every episode of the probe", "Replay one by its seed.", seeds),
    Plot(
        "headings",
        "Where the danger comes from",
        "Training episodes with sampled actions; the dashed ring is the mean over all headings.",
        headings,
    ),
    Plot(
        "step_one_polar",
        "Deaths at step one",
        "Heading and speed of the predator as the episode began; E is +x, and it falls towards N.",
        step_one_polar,
    ),
    Plot(
        "death_histograms",
        "Deaths at every evaluation",
        "Bins of 25 steps; grey are those that no sequence of actions avoids.",
        death_histograms,
        wide=True,
    ),
    Plot(
        "survival",
        "Survival in training",
        "Means of the last 100 episodes with sampled actions; shaded is every second phase.",
        plots_tails.survival,
        wide=True,
    ),
    Plot(
        "first_death",
        "First death and p10",
        "The first death of an episode, and the 10th percentile over all fish of a probe.",
        plots_tails.first_death,
    ),
    Plot(
        "penalty_first_death",
        "Penalty and first death",
        "The penalty in use, read back from the world.",
        plots_tails.penalty_first_death,
    ),
    Plot(
        "penalty_entropy",
        "Penalty and entropy",
        "Whether the penalty or the entropy window moved the policy.",
        plots_tails.penalty_entropy,
    ),
    Plot(
        "tail_queue",
        "Tail starts",
        "What remains of each stage and of all; cured: succeeded again on later updates.",
        plots_tails.tail_queue,
        wide=True,
    ),
    Plot(
        "start_types",
        "By type of start",
        "All training episodes but those that were cut; fresh is the world's own draw, the others are replayed tails.",
        plots_tails.start_types,
        wide=True,
    ),
]
