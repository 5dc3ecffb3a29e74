"""What a user gets at the end of a run: plots, clips, report.html, and where they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast.store.journal import read_lines
from holdfast.view.growth import make_growth
from holdfast.view.media import make_media
from holdfast.view.plots import make_plots
from holdfast.view.report import write_report


def finish(run: Path, say: Callable[[str], None]) -> Path:
    """Write plots, clips and the report; a part that fails is reported and the rest goes on."""
    plots = _guarded(lambda: make_plots(run), "plots", say)
    clips = [
        *_guarded(lambda: make_media(run), "clips", say),
        *_guarded(lambda: make_growth(run), "growing curve", say),
    ]
    report = write_report(run)
    say(headline(run))
    for what, paths in (("plots", plots), ("clips", clips), ("report", [report])):
        for path in paths:
            say(f"  {what:<7} {path}")
    return report


def headline(run: Path) -> str:
    """Return one sentence about the last probe, next to the ceiling where there is one."""
    last = None
    for line in read_lines(run / "evals.jsonl"):
        last = line
    if last is None:
        return f"{run.name}: no probe was made"
    metrics = last["metrics"]
    if "avg_final" in metrics:
        ceiling = metrics.get("ceiling_avg_final")
        limit = f" (ceiling {ceiling:.4f})" if ceiling is not None else ""
        return (
            f"{run.name}: survival {metrics['avg_final']:.4f}{limit}, "
            f"early deaths {metrics['ed100']:.4f}, update {last['update']}"
        )
    low, high = last["intervals"]["return_mean"]
    return (
        f"{run.name}: mean return {metrics['return_mean']:.2f} [{low:.2f}, {high:.2f}] "
        f"over {metrics['episodes']:.0f} episodes, update {last['update']}"
    )


def _guarded(
    work: Callable[[], Sequence[Path]], what: str, say: Callable[[str], None]
) -> Sequence[Path]:
    try:
        return work()
    except Exception as error:  # pictures must never cost a finished run; the failure is said
        say(f"the {what} could not be made: {type(error).__name__}: {error}")
        return []
