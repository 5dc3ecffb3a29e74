"""Pictures of what steers a shoal run: evaluations and gate, tail starts, penalty, entropy and first deaths."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from holdfast.probes.start_types import by_start_type
from holdfast.probes.stats import wilson
from holdfast.records import F64
from holdfast.view.files import RunFiles
from holdfast.view.style import (
    BLUE,
    GREEN,
    GREY,
    HALF,
    INK,
    LINES,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    WIDE,
    canvas,
    from_zero,
    legend_above,
)

EVENTS = {
    "advance": GREEN,
    "success_progress": SKY,
    "noop": GREY,
    "locked": ORANGE,
    "frozen": ORANGE,
    "failure_hold": RED,
    "rollback": RED,
}
"""Colours of the gate's events."""
FLAT = 1e-12
PROTOCOL_STEPS = 500
"""Steps of an episode of the v36 protocol, and of a world that says nothing else."""
PENALTY_HIGH = 5.4
"""Height of the two pictures of the penalty, which stand side by side."""


def survival(run: RunFiles) -> Figure | None:
    """Survival and living fish at the end of training episodes, phase by phase."""
    if run.world != "shoal" or not run.has("shoal/survival", "shoal/final_alive"):
        return None
    figure, (left, right) = canvas(WIDE, 3.6, 1, 2)
    update = run.column("update")
    for axes, signal, color, name, unit in (
        (left, "shoal/survival", BLUE, "Survival in training", "share of fish alive at the end"),
        (right, "shoal/final_alive", GREEN, "Fish alive at the end", "fish of a game"),
    ):
        axes.plot(update, run.column(signal), color=color)
        axes.set_title(name)
        axes.set_ylabel(unit)
        by_update(axes, run)
    left.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    return figure


def first_death(run: RunFiles) -> Figure | None:
    """First deaths of training episodes, and p10 of the death step at every evaluation."""
    if not run.has("shoal/first_death_step"):
        return None
    known = bool(run.evals) and bool(np.isfinite(run.probed("p10")).any())
    figure, grid = canvas(HALF, 4.6 if known else 4.2, 2 if known else 1, 1)
    update, first = run.column("update"), grid[0]
    first.plot(update, died(run), color=BLUE, label="mean")
    if run.has("shoal/first_death_p10"):
        first.plot(update, run.column("shoal/first_death_p10"), color=RED, label="p10")
    from_zero(first)
    first.set_ylabel("step")
    first.set_title("First death of training episodes", pad=10)
    first.legend(loc="upper right", ncols=2)
    first.set_ylim(top=1.3 * first.get_ylim()[1])
    by_update(first, run, label=not known)
    if known:
        grid[1].plot(probe_updates(run), run.probed("p10"), "o-", color=PURPLE)
        from_zero(grid[1])
        grid[1].set_ylabel("step")
        grid[1].set_title("p10 of the death step, all fish of a probe")
        by_update(grid[1], run)
    return figure


def penalty_first_death(run: RunFiles) -> Figure | None:
    """The density penalty above the first deaths of the same updates."""
    if not varies(run, "world/density_penalty") or not run.has("shoal/first_death_step"):
        return None
    figure, (top, bottom) = canvas(HALF, PENALTY_HIGH, 2, 1)
    _penalty(top, run)
    top.set_title("Density penalty against first death")
    update = run.column("update")
    bottom.plot(update, died(run), color=BLUE, label="mean")
    if run.has("shoal/first_death_p10"):
        bottom.plot(update, run.column("shoal/first_death_p10"), color=RED, label="p10")
    from_zero(bottom)
    bottom.set_ylabel("first death, step")
    by_update(bottom, run)
    bottom.legend(loc="upper right", ncols=2)
    bottom.set_ylim(top=1.3 * bottom.get_ylim()[1])
    return figure


def penalty_entropy(run: RunFiles) -> Figure | None:
    """The density penalty above the entropy weight and the entropy itself."""
    if not varies(run, "world/density_penalty") or not run.has("train/entropy_mean"):
        return None
    weighted = varies(run, "train/entropy")
    rows = 3 if weighted else 2
    figure, grid = canvas(HALF, PENALTY_HIGH, rows, 1)
    _penalty(grid[0], run)
    grid[0].set_title("Density penalty against entropy")
    update = run.column("update")
    if weighted:
        grid[1].step(update, run.column("train/entropy"), where="mid", color=ORANGE)
        grid[1].set_ylabel("entropy weight")
        from_zero(grid[1])
        by_update(grid[1], run, label=False)
    grid[-1].plot(update, run.column("train/entropy_mean"), color=GREEN)
    grid[-1].set_ylabel("entropy, nats")
    by_update(grid[-1], run)
    return figure


def eval_timeline(run: RunFiles) -> Figure | None:
    """Every evaluation with its tail, and what the gate made of it."""
    if run.world != "shoal" or not run.evals or not np.isfinite(run.probed("avg_final")).any():
        return None
    events = [d for d in run.decisions if d.get("guard") == "gate"]
    rows = [3.0, 1.5, 1.0, *([0.75] if events else [])]
    figure = Figure(figsize=(WIDE, 1.3 + sum(rows)), layout="constrained")
    grid = figure.subplots(len(rows), 1, sharex=True, gridspec_kw={"height_ratios": rows})
    top, middle = grid[0], grid[1]
    at = probe_updates(run)
    for name, color, label in (
        ("avg_final", BLUE, "mean episode"),
        ("min_final", SKY, "worst episode"),
    ):
        spread = run.intervals(name)
        values = run.probed(name)
        if np.ptp(spread, axis=1).max() > 0:
            bars = np.abs(spread - values[:, None]).T
            style: dict[str, Any] = {"fmt": "o-", "ms": 5, "capsize": 2.5, "elinewidth": 1.2}
            top.errorbar(at, values, yerr=bars, color=color, label=f"{label}, 95 %", **style)
        else:
            top.plot(at, values, "o-", ms=5, color=color, label=label)
    ceiling = run.probed("ceiling_avg_final")
    if np.isfinite(ceiling).any():
        top.plot(at, ceiling, "_", color=INK, ms=16, mew=1.6, label="ceiling of its seeds")
    top.yaxis.set_major_formatter(PercentFormatter(1.0))
    top.set_ylabel("fish alive at the end")
    top.set_title("Evaluations" + (" and the gate" if events else ""), pad=30)
    legend_above(top)
    for name, color, label in (
        ("ed100", RED, "dead before step 100"),
        ("avoidable_death_fraction", ORANGE, "avoidable deaths"),
        ("step_one_ratio", PURPLE, "dead at step one"),
    ):
        values = run.probed(name)
        if np.isfinite(values).any():
            middle.plot(at, values, "o-", ms=4, lw=1.4, color=color, label=label)
    middle.set_ylim(0, None)
    middle.yaxis.set_major_formatter(PercentFormatter(1.0))
    middle.set_ylabel("share of fish")
    middle.legend(loc="upper right", ncols=3)
    # Room for the legend above the highest point.
    middle.set_ylim(-0.03 * middle.get_ylim()[1], 1.35 * middle.get_ylim()[1])
    grid[2].plot(at, run.probed("p10"), "o-", ms=4, lw=1.4, color=GREEN)
    grid[2].set_ylim(0, 1.1 * probe_limit(run))
    grid[2].yaxis.set_major_locator(MaxNLocator(3))
    grid[2].set_ylabel("p10 of\ndeath step")
    if events:
        _gate_events(grid[3], events)
    by_update(grid[-1], run)
    grid[-1].set_xlim(right=float(at[-1]) * 1.06 + 1)
    for axes in grid[:-1]:
        shade_phases(axes, run)
    return figure


def _gate_events(axes: Axes, events: list[dict[str, Any]]) -> None:
    for event in events:
        name, at = str(event.get("name")), float(event.get("update", 0))
        axes.plot(at, 0, "s", ms=9, color=EVENTS.get(name, GREY))
        label = f"{name.replace('_', ' ')}\nphases 1 to {event.get('value')}"
        axes.annotate(
            label, (at, 0), (0, -9), textcoords="offset points", ha="center", va="top", fontsize=8.5
        )
    axes.set_ylim(-1.6, 0.8)
    axes.set_yticks([0], ["gate"])
    axes.grid(axis="y", visible=False)


def tail_queue(run: RunFiles) -> Figure | None:
    """How many tail starts remain, when that was warned of, and what became of the starts."""
    if not run.has("guard/tails/remaining_ratio"):
        return None
    staged = np.nanmax(run.column("guard/tails/capacity")) > 0
    if not staged and not np.nansum(run.column("guard/tails/overrides")):
        return None
    # A run that only mines has no stock that could run out.
    figure, axes = canvas(WIDE, 6.6 if staged else 4.6, 3 if staged else 2, 1)
    if staged:
        _remaining(axes[0], run)
    _begun(axes[-2], run)
    _became(axes[-1], run)
    return figure


def _remaining(top: Axes, run: RunFiles) -> None:
    update = run.column("update")
    prefix, suffix = "guard/tails/stage_", "_remaining_ratio"
    names = sorted(
        {
            k
            for line in run.metrics
            for k in line
            if k.startswith(prefix) and k.endswith(suffix) and k[len(prefix)].isdigit()
        },
        key=lambda name: int(name[len(prefix) :].removesuffix(suffix)),
    )
    untouched = []
    for k, name in enumerate(names):
        number, left = name[len(prefix) :].removesuffix(suffix), run.column(name)
        if np.nanmin(left) == 1.0:
            untouched.append(number)
            continue
        color = (SKY, GREEN, ORANGE, PURPLE, GREY)[k % 5]
        top.plot(update, left, color=color, lw=1.4, label=f"stage {number}")
    if untouched:
        label = f"stage {', '.join(untouched)}: not begun"
        top.plot(update, np.ones(len(update)), color=GREY, lw=1.4, ls=(0, (1, 2)), label=label)
    top.plot(update, run.column("guard/tails/remaining_ratio"), color=BLUE, lw=2.4, label="all")
    active = np.nan_to_num(run.column("guard/tails/warn_active")) > 0
    for k, (first, last) in enumerate(spans(active)):
        about: dict[str, Any] = {"color": RED, "alpha": 0.10, "lw": 0}
        label = "warning" if k == 0 else ""
        top.axvspan(update[first] - 0.5, update[last] + 0.5, label=label, **about)
    threshold = run.config.get("guards", {}).get("tails", {}).get("warn_ratio", 0)
    if threshold:
        top.axhline(float(threshold), color=RED, lw=1.1, ls=(0, (5, 3)), label="warn at")
    top.set_ylim(-0.04, 1.06)
    top.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    top.set_ylabel("starts that remain")
    top.set_title("Tail starts", pad=30)
    legend_above(top, 9)
    by_update(top, run, label=False)


def _begun(middle: Axes, run: RunFiles) -> None:
    update = run.column("update")
    base = run.column("guard/tails/overrides")
    fresh = run.column("guard/tails/episodes") - base
    middle.bar(update, base, 0.8, color=SKY, label="from a start")
    middle.bar(update, fresh, 0.8, bottom=base, color=GREY, label="begun afresh")
    middle.set_ylim(0, 1.08 * float(np.nanmax(run.column("guard/tails/episodes"))) + 1e-9)
    middle.set_ylabel("episodes")
    middle.set_title("Episodes that began", pad=30)
    legend_above(middle)
    by_update(middle, run, label=False)


def _became(bottom: Axes, run: RunFiles) -> None:
    update = run.column("update")
    for name, color in (("cured", GREEN), ("relapsed", RED)):
        bottom.plot(update, run.column(f"guard/tails/{name}"), color=color, label=name)
    from_zero(bottom)
    bottom.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    bottom.set_ylabel("starts")
    bottom.set_title("What became of the starts", pad=30)
    legend_above(bottom)
    by_update(bottom, run)


def start_types(run: RunFiles) -> Figure | None:
    """Step-one deaths and survival of training episodes by the type of their start, with intervals."""
    if run.world != "shoal":
        return None
    fish = int(run.config.get("world", {}).get("fish", 1))
    found = by_start_type(run.episodes, fish)
    if len(found) < 2:
        return None
    kinds = sorted(found, key=lambda kind: (kind != "fresh", kind))
    figure, (left, right) = canvas(WIDE, 1.5 + 0.5 * len(kinds), 1, 2)
    for axes, key, color, name in (
        (left, "step_one_ratio", PURPLE, "Dead at step one, by type of start"),
        (right, "survival", BLUE, "Alive at the end, by type of start"),
    ):
        values = np.array([found[kind][key] for kind in kinds])
        ends = [
            wilson(round(found[k][key] * found[k]["fish"]), int(found[k]["fish"])) for k in kinds
        ]
        bars = np.abs(np.array(ends) - values[:, None]).T
        colors = [GREY if kind == "fresh" else color for kind in kinds]
        for k, row in enumerate(bars.T):
            dot: dict[str, Any] = {"fmt": "o", "ms": 8, "lw": 1.6, "capsize": 3, "color": colors[k]}
            axes.errorbar(values[k], k, xerr=row[:, None], **dot)
        axes.set_ylim(-0.6, len(kinds) - 0.4)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(PercentFormatter(1.0))
        axes.invert_yaxis()
        axes.set_xlabel("share of fish, 95 % interval")
        axes.set_title(name)
    left.set_yticks(
        range(len(kinds)), [f"{kind} ({found[kind]['episodes']:.0f} episodes)" for kind in kinds]
    )
    right.set_yticks(range(len(kinds)), [""] * len(kinds))
    return figure


def died(run: RunFiles) -> F64:
    """Return the mean first death of training episodes; NaN where nobody died."""
    values = run.column("shoal/first_death_step")
    return np.where(values < 0, np.nan, values)


def _penalty(axes: Axes, run: RunFiles) -> None:
    update = run.column("update")
    axes.step(update, run.column("world/density_penalty"), where="mid", color=PURPLE)
    axes.set_ylabel("density penalty")
    from_zero(axes)
    by_update(axes, run, label=False)


def probe_updates(run: RunFiles) -> F64:
    """Return the updates of all probes `[P]`."""
    return np.array([float(e.get("update", np.nan)) for e in run.evals])


def probe_limit(run: RunFiles) -> int:
    """Return the steps after which an evaluated episode ends: those of the probe's own world, or of its protocol."""
    probe = run.config.get("probe", {})
    if probe.get("protocol"):
        return PROTOCOL_STEPS
    options = {**run.config.get("world", {}), **probe.get("world", {})}
    return int(options.get("max_steps", PROTOCOL_STEPS))


def by_update(axes: Axes, run: RunFiles, label: bool = True) -> None:
    """Label the x axis in updates and shade every second phase."""
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    last = float(np.nanmax(run.column("update"))) if run.metrics else 1.0
    axes.set_xlim(0, last + max(1.0, 0.03 * last))
    if label:
        axes.set_xlabel("update")
    else:
        axes.tick_params(axis="x", labelbottom=False)
    shade_phases(axes, run)


def shade_phases(axes: Axes, run: RunFiles) -> None:
    """Shade every second phase of the plan, where there is more than one."""
    phases = [p for p in run.journal if p.get("event") == "phase"]
    if len(phases) < 2:
        return
    for phase in phases[1::2]:
        first, last = float(phase.get("first", 0)), float(phase.get("last", 0))
        axes.axvspan(first - 0.5, last + 0.5, color=LINES, alpha=0.55, lw=0, zorder=0)


def varies(run: RunFiles, name: str) -> bool:
    """Return whether a signal was recorded with more than one value."""
    values = run.column(name)
    values = values[np.isfinite(values)]
    return len(values) > 1 and float(np.ptp(values)) > FLAT


def spans(active: Any) -> list[tuple[int, int]]:
    """Return the first and last index of every stretch that is true."""
    edges = np.flatnonzero(np.diff(np.r_[0, np.asarray(active, np.int8), 0]))
    return [(int(a), int(b) - 1) for a, b in zip(edges[::2], edges[1::2], strict=True)]
