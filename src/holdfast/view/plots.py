"""Curves of a run as PNGs in its `plots/`: one small function a picture, registered in `PLOTS`.

To add one, write a function that takes the run's files and returns a figure, or None when the run has
no data for it, and add a `Plot` to the list of its world. The report shows whatever was made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from holdfast.probes.headlines import ANY, role_returns, words
from holdfast.records import F64
from holdfast.view.files import RunFiles
from holdfast.view.style import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    WIDE,
    canvas,
    count_axis,
    from_zero,
    house_style,
    legend_above,
    steps_axis,
)


@dataclass(frozen=True)
class Plot:
    """One picture: `plots/<name>.png`."""

    name: str
    title: str
    caption: str
    draw: Callable[[RunFiles], Figure | None]
    wide: bool = False
    """Takes the whole width of the report."""


ROUTINE = frozenset({"inject_starts", "force_reset", "override_actions"})
"""Decisions that are made again and again by design, and would hide the others in a picture."""
LINES_AT_MOST = 12
ROLES = (RED, BLUE, GREEN, ORANGE, PURPLE)
"""Colours of learners that are drawn together."""
TIMES = (
    ("world", "world", BLUE),
    ("policy", "policy", SKY),
    ("learn", "learn", ORANGE),
    ("probe", "probe", GREEN),
    ("other", "other", "#c4cbd2"),
)
"""Where the time of an update goes: name, signal `time/<signal>_s`, colour."""


def plots() -> list[Plot]:
    """Return every plot, those of the worlds included, in the order of the report."""
    from holdfast.view.plots_mario import MARIO
    from holdfast.view.plots_pursuit import PURSUIT
    from holdfast.view.plots_shoal import SHOAL

    return [*LEARNING, *SHOAL, *MARIO, *PURSUIT, *LEARNER]


def make_plots(run: Path, step: Callable[[str], None] = lambda text: None) -> list[Path]:
    """Write every plot that the run has data for and return the files; older ones are replaced.

    `step` is told the title of each plot that is done.
    """
    files = RunFiles(run)
    directory = run / "plots"
    made = []
    with house_style():
        for plot in plots():
            figure = plot.draw(files)
            step(plot.title)
            target = directory / f"{plot.name}.png"
            if figure is None:
                target.unlink(missing_ok=True)
                continue
            directory.mkdir(exist_ok=True)
            figure.savefig(target, pil_kwargs={"compress_level": 4})
            made.append(target)
    return made


def learning_curve(run: RunFiles) -> Figure | None:
    """The main metric: training episodes, probes with intervals, best probe, ceiling, decisions."""
    main = run.headline
    signal, metric = main.signal, main.curve or main.metric
    if not run.has(signal) and not run.evals:
        return None
    figure, (axes,) = canvas(WIDE, 4.8)
    steps, sides = run.column("env_steps"), returns_of_roles(run)
    for name, color in zip(sides, cycle(ROLES), strict=False):
        axes.plot(steps, run.column(f"episode/{name}"), color=color, alpha=0.45, lw=1.2)
        draw_probes(axes, run, name, color, f"{words(name)}: probe, training pale")
    if run.has(signal) and not sides:
        values = run.column(signal)
        axes.plot(steps, values, color=SKY, label="training episodes (sampled actions)")
    if run.evals and not sides:
        draw_probes(axes, run, metric, BLUE, "probe, 95 % interval")
        ceiling = run.probed(f"ceiling_{metric}")
        if np.isfinite(ceiling).any():
            dashes: dict[str, Any] = {"color": INK, "lw": 1.2, "ls": (0, (5, 3))}
            axes.axhline(float(ceiling[np.isfinite(ceiling)][-1]), label="ceiling", **dashes)
        mark_best(axes, run, metric)
    mark_decisions(axes, run)
    steps_axis(axes)
    if main.share:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylabel(main.axis)
    axes.set_title(words(metric).capitalize(), pad=30)
    legend_above(axes, 5)
    return figure


def returns_of_roles(run: RunFiles) -> tuple[str, ...]:
    """Return the metrics that the learning curve shows instead of their mean, which is 0 where one wins what another loses."""
    found = role_returns(run.headline.beside) if run.headline.metric == ANY.metric else ()
    return found if len(found) <= len(ROLES) else ()


def draw_probes(
    axes: Axes, run: RunFiles, name: str, color: str, label: str, aside: float = 0.0
) -> None:
    """Draw a probe metric as points with their 95 % intervals, moved aside by a share of the x axis."""
    steps, values, spread = run.probe_steps(), run.probed(name), run.intervals(name)
    steps = steps + aside * float(np.nanmax(steps, initial=0.0))
    known = np.isfinite(values)
    bars = np.abs(spread - values[:, None])[known].T
    axes.errorbar(
        steps[known],
        values[known],
        yerr=np.nan_to_num(bars),
        color=color,
        fmt="o-",
        ms=4.5,
        lw=1.7,
        elinewidth=1.3,
        capsize=2.5,
        label=label,
    )


def mark_best(axes: Axes, run: RunFiles, metric: str) -> None:
    """Ring the probe whose checkpoint is kept as the best."""
    best = run.best_update
    for k, line in enumerate(run.evals):
        if best and line.get("update") == best:
            at, value = run.probe_steps()[k], run.probed(metric)[k]
            axes.plot(at, value, "o", ms=11, mfc="none", mec=RED, mew=1.8, label="best")


def mark_decisions(axes: Axes, run: RunFiles) -> None:
    """Mark where a guard changed something: a thin line, or a tick at the bottom where there are many."""
    made = [d for d in run.decisions if d.get("kind") not in ROUTINE]
    found = {run.steps_at(int(d.get("update", -1))) for d in made}
    places = sorted(place for place in found if place is not None)
    style: dict[str, Any] = {"color": PURPLE, "lw": 1.0, "alpha": 0.6, "zorder": 1.2}
    if len(places) <= LINES_AT_MOST:
        for k, place in enumerate(places):
            axes.axvline(place, label="" if k else "guard decision", **style)
        return
    bottom = axes.get_xaxis_transform()
    axes.vlines(places, 0.0, 0.035, transform=bottom, label="guard decision", **style)


def returns(run: RunFiles) -> Figure | None:
    """Return and length of episodes, where they are not the main metric or constant, each role's return, and what a foreign
    environment tells."""
    if not run.has("episode/return_mean"):
        return None
    steps = run.column("env_steps")
    first = "episode/"
    told = [n.removeprefix("facts/") for n in run.signals if n.startswith("facts/")]
    of_roles = role_returns(n.removeprefix(first) for n in run.signals if n.startswith(first))
    wanted = (
        *((f"episode/{n}", n, words(n).capitalize(), "of an episode") for n in of_roles),
        ("episode/return_mean", "return_mean", "Return of an episode", "mean over slots"),
        ("episode/length_steps", "length_mean", "Length of an episode", "steps"),
        *((f"facts/{n}", n, words(n).capitalize(), "mean over episodes") for n in told),
    )
    drawn = {run.main, *returns_of_roles(run)}
    shown = [
        row
        for row in wanted
        if row[1] not in drawn and run.has(row[0]) and np.ptp(_known(run.column(row[0]))) > 0
    ]
    if not shown:
        return None
    columns = min(len(shown), 2)
    rows = -(-len(shown) // columns)
    figure, grid = canvas(WIDE, 3.6 * rows, rows, columns)
    for axes in grid[len(shown) :]:
        axes.set_visible(False)
    for axes, (signal, metric, name, unit) in zip(grid, shown, strict=False):
        axes.plot(steps, run.column(signal), color=SKY, label="training")
        if run.evals:
            draw_probes(axes, run, metric, BLUE, "probe")
        axes.set_title(name, pad=30)
        axes.set_ylabel(unit)
        steps_axis(axes)
        legend_above(axes)
    return figure


def learner(run: RunFiles) -> Figure | None:
    """Small multiples of what the learner reports."""
    wanted = (
        ("train/policy_loss", "Policy loss", "loss", BLUE),
        ("train/actor_loss", "Actor loss", "loss", BLUE),
        ("train/value_loss", "Value loss", "loss", BLUE),
        ("train/explained_variance", "Explained variance", "share (1 is perfect)", GREEN),
        ("train/entropy_mean", "Entropy", "nats", ORANGE),
        ("train/approx_kl", "KL of an update", "nats", RED),
        ("train/clip_fraction", "Clipped samples", "share", PURPLE),
    )
    shown = [row for row in wanted if run.by_role(row[0])]
    if not shown:
        return None
    columns = min(3, len(shown))
    rows = -(-len(shown) // columns)
    figure, grid = canvas(WIDE, 2.8 * rows, rows, columns)
    steps = run.column("env_steps")
    for axes, (signal, name, unit, color) in zip(grid, shown, strict=False):
        names = run.by_role(signal)
        colors = ROLES if len(names) > 1 else (color,)
        for (role, own), one in zip(names.items(), cycle(colors), strict=False):
            values = run.column(own)
            axes.plot(steps, values, color=one, lw=1.0, alpha=0.35)
            axes.plot(steps, smooth(values), color=one, label=role)
        if len(names) > 1:
            axes.legend(loc="best", fontsize=8)
        axes.set_title(name)
        axes.set_ylabel(unit)
        axes.xaxis.set_major_locator(MaxNLocator(4))
        steps_axis(axes, "env steps")
    for axes in grid[len(shown) :]:
        axes.set_visible(False)
    return figure


def schedules(run: RunFiles) -> Figure | None:
    """Learning rate, entropy weight, and every world value that was turned."""
    rows: list[tuple[str, F64, str]] = []
    scales = run.by_role("train/lr_scale")
    for role, name in run.by_role("train/lr").items():
        scale = run.column(scales[role]) if role in scales else 1.0
        title = f"Learning rate (x 0.001) {role}".rstrip()
        rows.append((title, 1e3 * run.column(name) * scale, "Adam's step"))
    for role, name in run.by_role("train/entropy").items():
        if np.ptp(_known(run.column(name))) > 0:
            rows.append((f"Entropy weight {role}".rstrip(), run.column(name), "weight in the loss"))
    for name in sorted(name for name in run.signals if name.startswith("world/")):
        values = run.column(name)
        if name in COUNTED or not np.isfinite(values).any():
            continue
        if np.nanmin(values) != np.nanmax(values):
            plain = NAMED.get(name, name.removeprefix("world/").replace("_", " "))
            rows.append((plain, values, "value in use"))
    if not rows:
        return None
    columns = min(3, len(rows))
    height = -(-len(rows) // columns)
    figure, grid = canvas(WIDE, 2.6 * height, height, columns)
    for axes, (name, values, unit) in zip(grid, rows, strict=False):
        axes.step(run.column("env_steps"), values, where="pre", color=BLUE)
        axes.set_title(name[0].upper() + name[1:])
        axes.set_ylabel(unit)
        if np.nanmin(values) >= 0:
            from_zero(axes)
        steps_axis(axes, "env steps")
    for axes in grid[len(rows) :]:
        axes.set_visible(False)
    return figure


def time_split(run: RunFiles) -> Figure | None:
    """Where the time went and how fast the run was."""
    if not run.has("time/update_s", "time/learn_s"):
        return None
    total, parts = run.column("time/update_s"), time_parts(run)
    figure, (left, right) = canvas(WIDE, 3.4, 1, 2)
    update = run.column("update")
    shares = [100 * smooth(parts[name] / total) for name, _, _ in TIMES]
    left.stackplot(
        update, *shares, colors=[c for _, _, c in TIMES], labels=[n for n, _, _ in TIMES], lw=0
    )
    left.set_ylim(0, 100)
    left.set_xlim(float(np.nanmin(update)), max(float(np.nanmax(update)), 2))
    left.yaxis.set_major_formatter(PercentFormatter(decimals=0))
    left.set_title("Where the time goes", pad=30)
    left.set_xlabel("update")
    left.set_ylabel("share of an update")
    left.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    legend_above(left, 5)
    speed = run.column("time/env_steps_per_s")
    right.plot(update, speed, color=BLUE, lw=1.0, alpha=0.35)
    right.plot(update, smooth(speed), color=BLUE)
    right.set_ylim(0, None)
    right.set_title("Speed", pad=30)
    right.set_xlabel("update")
    right.set_ylabel("environment steps a second")
    count_axis(right.yaxis)
    right.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    return figure


def time_parts(run: RunFiles) -> dict[str, F64]:
    """Return the seconds of every update by part; `other` is what no part claims."""
    total = run.column("time/update_s")
    parts = {n: np.nan_to_num(run.column(f"time/{s}_s")) for n, s, _ in TIMES if n != "other"}
    parts["other"] = np.maximum(total - sum(parts.values()), 0.0)
    return parts


def _known(values: F64) -> F64:
    return values[np.isfinite(values)]


def smooth(values: F64, share: float = 0.06) -> F64:
    """Return a centred running mean over about `share` of the points; NaN is left out."""
    width = max(1, round(len(values) * share)) | 1
    if width == 1:
        return values
    known = np.isfinite(values)
    kernel = np.ones(width)
    sums = np.convolve(np.where(known, values, 0.0), kernel, "same")
    counts = np.convolve(known.astype(np.float64), kernel, "same")
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


COUNTED = frozenset({"world/built", "world/games"})
"""Signals of the world that nobody turns."""
NAMED = {"world/slots_per_game": "slots of a game"}

LEARNING = [
    Plot(
        "learning",
        "Learning curve",
        "Mean of the last 100 training episodes, and every probe with its interval.",
        learning_curve,
        wide=True,
    ),
]
LEARNER = [
    Plot(
        "returns",
        "Return and length",
        "Means of the last 100 training episodes.",
        returns,
        wide=True,
    ),
    Plot(
        "schedules",
        "Schedules",
        "Values in use, read back after every change.",
        schedules,
        wide=True,
    ),
    Plot("learner", "The learner", "Pale: every update. Strong: running mean.", learner, wide=True),
    Plot("time", "Time", "Parts of an update's wall time, and its speed.", time_split, wide=True),
]
