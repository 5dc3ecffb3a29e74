"""Pictures of a mario run: how far he comes, what clears, where and of what he dies, what he presses, what pays."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from holdfast.probes.stats import wilson
from holdfast.view.files import Line, RunFiles
from holdfast.view.plots import Plot, smooth
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
    YELLOW,
    canvas,
    from_zero,
    legend_above,
    steps_axis,
)

ENDS = {
    "clear": ("cleared", GREEN),
    "warp": ("warped", SKY),
    "death_enemy": ("killed by an enemy", RED),
    "death_pit": ("fell into a pit", ORANGE),
    "time_up": ("time was up", PURPLE),
    "stagnation": ("stood still", GREY),
    "timeout_steps": ("cut at the step limit", "#c4cbd2"),
}
"""Words and colours for how an episode ends; forced and restarted ones are left out."""
BIN = 64
"""Pixels of a column in the histogram of places."""
STAGES = 6
"""Most stages in the histogram of places."""
LATEST = 1 / 3
"""Share of the training episodes, from the end, that the histogram of places looks at."""
FEWEST = 200
"""Episodes that it looks at at least, where there are so many."""
COLOURS = (BLUE, GREEN, ORANGE, PURPLE, RED, SKY, YELLOW, GREY)


def progress(run: RunFiles) -> Figure | None:
    """How far along the level episodes come: training mean, and the spread of every probe."""
    if run.world != "mario" or not run.has("mario/best_x"):
        return None
    figure, (axes,) = canvas(HALF, 4.2)
    axes.plot(run.column("env_steps"), run.column("mario/best_x"), color=SKY, label="training")
    told = [e for e in run.evals if (e.get("detail") or {}).get("best_x")]
    if told:
        at = [float(e.get("env_steps", 0)) for e in told]
        spread = np.array([np.percentile(e["detail"]["best_x"], (10, 50, 90)) for e in told])
        axes.fill_between(at, spread[:, 0], spread[:, 2], color=BLUE, alpha=0.15, lw=0)
        axes.plot(at, spread[:, 1], "o-", ms=4.5, color=BLUE, label="probe: median, p10 to p90")
    from_zero(axes)
    axes.set_ylabel("furthest x of an episode, pixels")
    axes.set_title("How far he comes", pad=30)
    steps_axis(axes)
    legend_above(axes)
    return figure


def clear_rates(run: RunFiles) -> Figure | None:
    """Clear rate of every stage at the last probe with Wilson's interval, and over all probes."""
    probe = last_mario(run)
    if probe is None or not probe["detail"].get("stages"):
        return None
    stages: dict[str, Any] = probe["detail"]["stages"]
    names = sorted(stages, key=stage_order)
    figure, (left, right) = canvas(WIDE, max(2.6, 1.2 + 0.32 * len(names)), 1, 2)
    for k, name in enumerate(names):
        row = stages[name]
        low, high = row.get("clear_interval") or wilson(0, 0)
        rate = float(row["clear_rate"])
        left.errorbar(
            rate, k, xerr=[[rate - low], [high - rate]], fmt="o", ms=7, capsize=3, color=BLUE
        )
    left.set_yticks(range(len(names)), [f"{n} ({stages[n]['episodes']})" for n in names])
    left.set_ylim(len(names) - 0.4, -0.6)
    left.set_xlim(-0.03, 1.03)
    left.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    left.set_xlabel("cleared, 95 % interval")
    left.set_title(f"Clear rate by stage, update {probe.get('update')}")
    shown = names[: len(COLOURS)]
    for name, color in zip(shown, COLOURS, strict=False):
        values = run.probed(f"stage_{name}/clear_rate")
        right.plot(run.probe_steps(), values, "o-", ms=4, lw=1.4, color=color, label=name)
    right.set_ylim(-0.03, 1.03)
    right.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    right.set_title("Over the probes", pad=30 if len(shown) > 1 else 10)
    steps_axis(right)
    if len(shown) > 1:
        legend_above(right, 8)
    return figure


def places(run: RunFiles) -> Figure | None:
    """Where episodes end along the level, by stage and by how they end."""
    rows = recent_ends(run)
    if not rows:
        return None
    counted = Counter(stage for stage, _, _ in rows)
    stages = sorted((name for name, _ in counted.most_common(STAGES)), key=stage_order)
    figure, grid = canvas(WIDE, 0.9 + 2.3 * len(stages), len(stages), 1)
    longest = max(x for _, x, _ in rows)
    edges = np.arange(0, longest + 2 * BIN, BIN)
    for axes, stage in zip(grid, stages, strict=True):
        kinds = [kind for kind in ENDS if any(s == stage and e == kind for s, _, e in rows)]
        groups = [[x for s, x, e in rows if s == stage and e == kind] for kind in kinds]
        axes.hist(
            groups,
            bins=edges.tolist(),
            stacked=True,
            color=[ENDS[kind][1] for kind in kinds],
            label=[f"{ENDS[k][0]}: {len(g)}" for k, g in zip(kinds, groups, strict=True)],
        )
        axes.set_xlim(0, float(edges[-1]))
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.set_ylabel("episodes")
        axes.set_title(f"Where episodes on {stage} end", pad=30)
        legend_above(axes, 6)
    grid[-1].set_xlabel(f"x of the end, columns of {BIN} pixels")
    return figure


def ends(run: RunFiles) -> Figure | None:
    """How training episodes end, over the run."""
    if run.world != "mario":
        return None
    kinds = [kind for kind in ENDS if run.has(f"mario/end_{kind}")]
    kinds = [kind for kind in kinds if np.nanmax(run.column(f"mario/end_{kind}")) > 0]
    if not kinds:
        return None
    figure, (axes,) = canvas(HALF, 4.2)
    rows = [smooth(run.column(f"mario/end_{kind}"), 0.02) for kind in kinds]
    known = np.isfinite(rows[0])  # not before the first episode has ended
    axes.stackplot(
        run.column("env_steps")[known],
        *(row[known] for row in rows),
        colors=[ENDS[kind][1] for kind in kinds],
        labels=[ENDS[kind][0] for kind in kinds],
        lw=0,
    )
    axes.set_ylim(0, 1)
    axes.margins(x=0)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_ylabel("share of the last 100 episodes")
    axes.set_title("How episodes end", pad=30 if len(kinds) <= 3 else 48)
    steps_axis(axes)
    legend_above(axes, 3)
    return figure


def actions(run: RunFiles) -> Figure | None:
    """How often each action is taken: first probe beside the last one."""
    told = [e for e in run.evals if (e.get("detail") or {}).get("actions")]
    if run.world != "mario" or not told:
        return None
    first, last = told[0]["detail"]["actions"], told[-1]["detail"]["actions"]
    names = list(last)
    figure, (axes,) = canvas(HALF, max(3.4, 1.4 + 0.32 * len(names)))
    place = np.arange(len(names), dtype=np.float64)
    several = len(told) > 1
    height = 0.38 if several else 0.7
    now = [float(last.get(name, 0.0)) for name in names]
    label = f"update {told[-1].get('update')}"
    axes.barh(place - height / 2 * several, now, height, color=BLUE, label=label)
    if several:
        before = [float(first.get(name, 0.0)) for name in names]
        label = f"update {told[0].get('update')}"
        axes.barh(place + height / 2, before, height, color=GREY, label=label)
    axes.set_yticks(place, [name.replace("+", " + ") for name in names])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))  # whole per cents
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_xlabel("share of all steps of the probe")
    axes.set_title("What he presses", pad=30)
    legend_above(axes)
    return figure


def rewards(run: RunFiles) -> Figure | None:
    """What each component of the reward pays in an episode, over the run."""
    prefix = "mario/reward_"
    if run.world != "mario":
        return None
    names = sorted({k for line in run.metrics[-1:] for k in line if k.startswith(prefix)})
    shown = []
    for name in names:
        values = run.column(name)
        if np.isfinite(values).any() and np.nanmax(np.abs(values)) > 1e-9:
            shown.append((name.removeprefix(prefix), values))
    if not shown:
        return None
    figure, (axes,) = canvas(HALF, 4.2)
    order = sorted(shown, key=lambda row: -float(np.nanmax(np.abs(row[1]))))[: len(COLOURS)]
    for (name, values), color in zip(order, COLOURS, strict=False):
        axes.plot(run.column("env_steps"), values, color=color, lw=1.6, label=name)
    axes.axhline(0.0, color=GREY, lw=0.9)
    # Progress pays a hundred times what a death costs; both must be seen.
    axes.set_yscale("symlog", linthresh=1.0, linscale=0.6)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    axes.set_ylabel("paid in an episode, mean (log beyond 1)")
    axes.set_title("Parts of the reward", pad=30 if len(order) <= 4 else 48)
    steps_axis(axes)
    legend_above(axes, 4)
    return figure


def recent_ends(run: RunFiles) -> list[tuple[str, float, str]]:
    """Return stage, x and end of the latest training episodes that the policy played alone from the start of their stage.

    Without any, those of the last probe.
    """
    if run.world != "mario":
        return []
    rows = [
        (f"{e['facts/world']:.0f}-{e['facts/stage']:.0f}", float(e["facts/x"]), str(e.get("ended")))
        for e in run.episodes
        if "facts/x" in e
        and "facts/world" in e
        and e.get("ended") in ENDS
        # What begins before a place of death is likely to end there: that would count it again.
        and not (e.get("start") or {}).get("snapshot")
        and not e.get("facts/scripted")
    ]
    if rows:
        return rows[-max(round(len(rows) * LATEST), FEWEST) :]
    probe = last_mario(run)
    if probe is None or "end_x" not in probe["detail"]:
        return []
    d = probe["detail"]
    found = zip(d["stage"], d["end_x"], d["ended"], strict=True)
    return [(str(s), float(x), str(e)) for s, x, e in found if e in ENDS]


def last_mario(run: RunFiles) -> Line | None:
    """Return the newest probe of a mario run that has a detail."""
    if run.world != "mario":
        return None
    return next((e for e in reversed(run.evals) if e.get("detail")), None)


def stage_order(name: str) -> tuple[int, ...]:
    """Return a stage's place in the game."""
    return tuple(int(part) for part in name.split("-") if part.isdigit())


MARIO = [
    Plot(
        "mario_progress",
        "Progress",
        "The furthest x of an episode; a level of the game is about 3200 pixels long.",
        progress,
    ),
    Plot(
        "mario_ends",
        "How episodes end",
        "Training episodes with sampled actions, the last 100 at every update.",
        ends,
    ),
    Plot(
        "mario_clear_rates",
        "Clear rate by stage",
        "Brackets: episodes of the probe. Bars are Wilson intervals.",
        clear_rates,
        wide=True,
    ),
    Plot(
        "mario_places",
        "Where episodes end",
        f"The last third, and at least {FEWEST}, of the training episodes that began with their stage; guards.tails can "
        "begin episodes before a tall column.",
        places,
        wide=True,
    ),
    Plot("mario_actions", "Actions", "All steps of a probe's episodes.", actions),
    Plot(
        "mario_rewards",
        "Parts of the reward",
        "Means of the last 100 training episodes; they add up to the return.",
        rewards,
    ),
]
