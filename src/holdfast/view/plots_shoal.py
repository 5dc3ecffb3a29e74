"""Pictures of a shoal run: the tail, who died when and whether it could have lived, and from where."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from holdfast.view.files import RunFiles
from holdfast.view.plots import Plot, draw_probes, mark_decisions
from holdfast.view.style import BLUE, GREY, HALF, INK, ORANGE, PURPLE, RED, canvas, legend_above
from holdfast.view.style import steps_axis as label_steps

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
    for name, label, color in shown:
        draw_probes(axes, run, name, color, label)
    mark_decisions(axes, run)
    axes.set_ylim(0, None)
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
    limit = int(run.config.get("world", {}).get("max_steps", 500))
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
        if "facts/start_heading_deg" in e and "facts/survival" in e
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
    axes.set_xticks(np.deg2rad(np.arange(0, 360, 45)))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.yaxis.get_major_locator().base.set_params(nbins=4)
    axes.set_rlabel_position(67)
    axes.tick_params(axis="x", pad=4)
    axes.set_title(f"Fish lost by the predator's first heading\n(last {len(recent)} episodes)")
    axes.legend(
        handles=[
            Patch(color=BLUE, label=f"below the mean of {mean:.1%}"),
            Patch(color=ORANGE, label="above"),
            Patch(color=RED, label="more than a quarter above"),
        ],
        loc="upper left",
        bbox_to_anchor=(1.02, 1.0),
    )
    return figure


def last_with(run: RunFiles, name: str) -> dict[str, Any] | None:
    """Return the newest probe whose detail has a non-empty `name`."""
    for probe in reversed(run.evals):
        detail = probe.get("detail")
        if isinstance(detail, dict) and detail.get(name):
            return probe
    return None


SHOAL = [
    Plot("tail", "The tail", "Deaths on the probe's fixed seeds, with 95 % intervals.", tail),
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
]
