"""`media/curve.gif`: the learning curve of a run as it grew, update by update."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from holdfast.probes.headlines import Headline, words
from holdfast.records import Array
from holdfast.store.media import write_film
from holdfast.view.files import RunFiles
from holdfast.view.style import BLUE, INK, RED, SKY, house_style, legend_above

FRAMES = 36
HOLD = 12
"""Times that the last picture is shown, so that the loop does not end abruptly."""
FPS = 8


def make_growth(run: Path) -> list[Path]:
    """Write the growing curve of a run with two updates or more and return the file."""
    files = RunFiles(run)
    if len(files.metrics) < 2 or not files.has(files.headline.signal):
        return []
    with house_style():
        pictures = draw_growth(files, files.headline)
    return [write_film(run / "media" / "curve.gif", pictures, fps=FPS)]


def draw_growth(files: RunFiles, main: Headline) -> list[Array]:
    """Return the frames: training, probes and the ceiling up to ever later updates, on fixed axes."""
    update, values = files.column("update"), files.column(main.signal)
    metric = main.curve or main.metric
    at = np.array([float(e.get("update", np.nan)) for e in files.evals])
    probed, ceiling = files.probed(metric), files.probed(f"ceiling_{metric}")
    figure = Figure(figsize=(6.4, 3.6), dpi=100, layout="constrained")
    canvas: Any = FigureCanvasAgg(figure)
    axes = figure.subplots()
    seen = np.concatenate([values, probed, ceiling])
    seen = seen[np.isfinite(seen)]
    low, high = float(seen.min()), float(seen.max())
    axes.set_ylim(low - 0.05 * (high - low) - 1e-9, high + 0.06 * (high - low) + 1e-9)
    axes.set_xlim(0, float(update[-1]) * 1.02)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    if main.share:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("update")
    axes.set_ylabel(words(metric))
    heading = axes.set_title(f"{files.name}, update {update[-1]:.0f}", pad=28)
    (curve,) = axes.plot([], [], color=SKY, label="training")
    artists: list[Any] = [(curve, update, values)]
    if len(at):
        (dots,) = axes.plot([], [], "o-", color=BLUE, ms=5, label="probe")
        artists.append((dots, at, probed))
    if np.isfinite(ceiling).any():
        (bars,) = axes.plot([], [], "_", color=INK, ms=15, mew=1.6, label="ceiling")
        artists.append((bars, at, ceiling))
    (head,) = axes.plot([], [], "o", color=RED, ms=6)
    legend_above(axes)
    moving = [*(artist for artist, _, _ in artists), head, heading]
    for artist in moving:
        artist.set_animated(True)
    # Everything that stands still is drawn once; drawing all of it for every frame costs most of the time.
    canvas.draw()
    still = canvas.copy_from_bbox(figure.bbox)
    frames: list[Array] = []
    for k in np.unique(np.linspace(0, len(update) - 1, FRAMES).round().astype(int)).tolist():
        canvas.restore_region(still)
        for artist, x, y in artists:
            shown = x <= update[k]
            artist.set_data(x[shown], y[shown])
        head.set_data([update[k]], [values[k]])
        heading.set_text(f"{files.name}, update {update[k]:.0f}")
        for artist in moving:
            axes.draw_artist(artist)
        frames.append(np.asarray(canvas.buffer_rgba())[..., :3].copy())
    return frames + [frames[-1]] * HOLD
