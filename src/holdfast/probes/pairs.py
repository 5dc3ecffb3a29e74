"""Probes on the same seeds, compared episode by episode.

On fixed seeds the difference between two probes is a mean of paired differences, whose interval is much narrower
than that of either probe: `change_avg_final` with its interval says whether the policy became better or the
seeds were just the same seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from holdfast.probes.stats import bootstrap_mean
from holdfast.records import EvalReport

PREFIX = "change_"


def paired(report: EvalReport, before: Mapping[str, Any] | None) -> EvalReport:
    """Return the report with its changes since `before` (of `kept`); as it is if the seeds differ."""
    if not before or list(before["seeds"]) != list(report.seeds):
        return report
    metrics, intervals = dict(report.metrics), dict(report.intervals)
    for name, values in (report.detail.get("samples") or {}).items():
        old = before["samples"].get(name)
        if old is None or len(old) != len(values):
            continue
        changes = [now - then for now, then in zip(values, old, strict=True)]
        metrics[PREFIX + name] = sum(changes) / len(changes)
        intervals[PREFIX + name] = bootstrap_mean(changes)
    detail = {**report.detail, "paired_with_update": before["update"]}
    return replace(report, metrics=metrics, intervals=intervals, detail=detail)


def kept(report: EvalReport) -> dict[str, Any]:
    """Return what the next probe is compared with, as plain values."""
    samples = report.detail.get("samples") or {}
    return {
        "update": report.update,
        "seeds": list(report.seeds),
        "samples": {name: [float(v) for v in values] for name, values in samples.items()},
    }
