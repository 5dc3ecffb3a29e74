"""The house style of pictures: one palette, one grid, fonts that are read at half size.

Colours are Okabe and Ito's (2008): they stay apart for every common kind of colour blindness.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from holdfast.view.numbers import short

BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, YELLOW, GREY = "#CC79A7", "#56B4E9", "#F0E442", "#8a929a"
INK, QUIET, LINES = "#1f2933", "#5b6670", "#e4e8ec"

HALF, WIDE = 6.6, 11.0
"""Widths in inches of a picture that takes half or all of the report's width."""

SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "text.color": INK,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.labelsize": 10.5,
    "axes.labelcolor": QUIET,
    "axes.edgecolor": "#c4cbd2",
    "axes.linewidth": 0.9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": LINES,
    "grid.linewidth": 0.9,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "lines.linewidth": 1.9,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "figure.facecolor": "white",
    "savefig.dpi": 144,
}


@contextmanager
def house_style() -> Iterator[None]:
    """Pictures made and saved inside have the house style; nothing outside is changed."""
    with mpl.rc_context():
        mpl.rcdefaults()
        for name, value in SETTINGS.items():
            mpl.rcParams[name] = value
        yield


def canvas(
    width: float = HALF, height: float = 4.2, rows: int = 1, columns: int = 1
) -> tuple[Figure, list[Axes]]:
    """Return a figure that no global state knows, and its axes row by row."""
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    return figure, list(grid.ravel())


def steps_axis(axes: Axes, label: str = "environment steps") -> None:
    """Label the x axis in steps: 200k, 1M."""
    axes.set_xlabel(label)
    count_axis(axes.xaxis)


def count_axis(axis: Axis) -> None:
    """Write large counts short: 200k, 1.5M."""
    axis.set_major_formatter(FuncFormatter(lambda x, _: _tick(x)))


def legend_above(axes: Axes, columns: int = 4) -> None:
    """Put the legend in one row above the axes, on the right, where no curve can be under it."""
    legend = axes.legend(
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=columns,
        borderaxespad=0.2,
        handlelength=1.4,
        columnspacing=1.2,
    )
    # A legend wider than its axes must not make the axes narrower.
    legend.set_in_layout(False)


def from_zero(axes: Axes) -> None:
    """Begin the y axis at zero, with room for lines that run along its ends."""
    axes.set_ylim(0, None)
    top = axes.get_ylim()[1]
    axes.set_ylim(-0.03 * top, 1.05 * top)


def _tick(value: float) -> str:
    text = short(value)
    for unit in "GMk":
        if text.endswith(unit):
            return text[:-1].rstrip("0").rstrip(".") + unit
    return text
