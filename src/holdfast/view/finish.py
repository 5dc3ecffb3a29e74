"""What a user gets at the end of a run: plots, clips, report.html, and where they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from holdfast.probes.headlines import words
from holdfast.view.files import RunFiles
from holdfast.view.growth import make_growth
from holdfast.view.media import make_media
from holdfast.view.numbers import brackets, figure, number
from holdfast.view.plots import make_plots, plots
from holdfast.view.progress import Progress
from holdfast.view.report import write_report

PARTS = 4
"""Steps of the display beside the plots: up to three films, and the growing curve."""


def finish(run: Path, say: Callable[[str], None], quiet: bool = False) -> Path:
    """Write plots, films and the report; a part that fails is reported and the rest goes on.

    Films are encoded in a thread of their own while the plots are drawn: the one waits for compiled code most of
    the time, the other never does.
    """
    done: list[str] = []
    total = len(plots()) + PARTS
    with Progress("report", off=quiet) as progress, ThreadPoolExecutor(1, "holdfast-films") as pool:

        def step(text: str) -> None:
            done.append(text)
            progress.show(min(len(done), total), total, text)

        films = pool.submit(_guarded, lambda: make_media(run, say, step), "films", say)
        drawn = _guarded(lambda: make_plots(run, step), "plots", say)
        growth = _guarded(lambda: make_growth(run), "growing curve", say)
        step("the growing curve")
        filmed = [*films.result(), *growth]
        report = write_report(run)
    say(summary(run))
    for what, paths in (("plots", drawn), ("films", filmed), ("report", [report])):
        for path in paths:
            say(f"  {what:<7} {path}")
    return report


def summary(run: Path) -> str:
    """Return one sentence about the last probe, next to the ceiling where there is one."""
    files = RunFiles(run)
    if not files.evals:
        return f"{run.name}: no probe was made"
    last, main = files.evals[-1], files.headline
    metrics, metric = last["metrics"], files.main
    parts = [f"{words(metric)} {_figure(metrics, metric)}"]
    if f"ceiling_{metric}" in metrics:
        parts[0] += f" (ceiling {_figure(metrics, f'ceiling_{metric}')})"
    low, high = (last.get("intervals") or {}).get(metric) or (None, None)
    if low is not None and high is not None:
        parts[0] += f" {brackets(low, high)}"
    parts += [
        f"{words(n)} {_figure(metrics, n)}" for n in main.beside if n in metrics and n != metric
    ]
    episodes = len(last.get("seeds") or ())
    return f"{run.name}: {', '.join(parts)}; {episodes} episodes, update {last.get('update')}"


def _figure(metrics: Mapping[str, Any], name: str) -> str:
    value = number(metrics.get(name))
    return "unknown" if value is None else figure(value)


def _guarded(
    work: Callable[[], Sequence[Path]], what: str, say: Callable[[str], None]
) -> Sequence[Path]:
    try:
        return work()
    except Exception as error:  # pictures must never cost a finished run; the failure is said
        say(f"the {what} could not be made: {type(error).__name__}: {error}")
        return []
