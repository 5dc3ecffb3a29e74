"""The history of a run of self-play: one line of `selfplay.jsonl` after every evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from holdfast.probes.stats import wilson
from holdfast.records import EvalReport
from holdfast.selfplay.records import TIME_BINS, Evaluation, Rate
from holdfast.selfplay.verdict import ne_gap

RATE = "capture_rate"


def evaluation_of(
    report: EvalReport,
    options: Any,
    statuses: Iterable[Mapping[str, Any]],
    phase: str,
    trained: Mapping[str, int],
    before: Mapping[str, int],
) -> Evaluation | None:
    """Return the line of a probe; None for a world without captures.

    `statuses` are those of the guards, of which one may know the phase and the level; `phase` is the plan's. Who
    learned is told by the steps `trained` now and `before`, at the last evaluation.
    """
    if RATE not in report.metrics:
        return None
    games = len(report.seeds)
    captured = np.asarray(report.detail["captured"], np.float64) > 0
    times = np.asarray(report.detail["lengths"], np.float64)[captured] * options.dt
    limit = options.max_steps * options.dt
    rate = Rate(float(captured.mean()), *wilson(int(captured.sum()), games))
    level, name = 0.0, phase
    for status in statuses:
        level = float(status.get("level", level))
        name = f"S{status['phase']}" if "phase" in status else name
    learned = [role for role, steps in trained.items() if steps > before.get(role, 0)]
    return Evaluation(
        update=report.update,
        env_steps=report.env_steps,
        phase=name,
        role=learned[0] if len(learned) == 1 else "both",
        level=level,
        sr_p=rate.value,
        low=rate.low,
        high=rate.high,
        games=games,
        ne_gap=ne_gap(rate).value,
        capture_time_mean=float(times.mean()) if len(times) else None,
        captures_by_time=tuple(np.histogram(times, TIME_BINS, (0.0, limit))[0].tolist()),
        time_limit_s=limit,
    )
