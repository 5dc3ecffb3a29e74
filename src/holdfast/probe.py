"""What the loop does when it evaluates: play the probe, write it down, and let the guards see what came out."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.probes.clips import film_probe
from holdfast.probes.pairs import kept, paired
from holdfast.probes.runner import ProbeSpec, draw_lot, run_probe
from holdfast.probes.worst import write_worst
from holdfast.records import EvalReport
from holdfast.selfplay.history import evaluation_of
from holdfast.selfplay.records import to_plain

if TYPE_CHECKING:
    from holdfast.loop import Loop


def probe(loop: Loop) -> None:
    """Evaluate when it is time; remember the best."""
    progress, recorder = loop.progress, loop.recorder
    loop.seconds["probe"] = 0.0
    if not due(loop) or loop.signals["health/nonfinite"]:
        return
    began = time.perf_counter()
    spec, policy = coming(loop), loop.cast.complete(loop.team.policy())
    aside = loop.events.aside("probe")
    report = run_probe(spec, policy, progress.update, progress.env_steps, loop.moved, aside)
    report = paired(report, progress.last_probe)
    progress.last_probe, progress.probes = kept(report), progress.probes + 1
    recorder.report(report)
    if "cut" in report.detail:
        recorder.warn(report.detail["cut"])
    if "unplayed" in report.detail and progress.probes == 1:
        recorder.warn(report.detail["unplayed"])
    if loop.config.selfplay.enabled:
        note_evaluation(loop, report)
    write_worst(report, recorder.directory)
    if loop.config.probe.clips:
        film_probe(report, spec, policy, recorder.directory, recorder.warn)
    loop.signals.update({f"probe/{k}": v for k, v in report.metrics.items()})
    for name, (low, high) in report.intervals.items():
        loop.signals[f"probe/{name}_low"], loop.signals[f"probe/{name}_high"] = low, high
    progress.rank(report, loop.rule)
    loop.seconds["probe"] = time.perf_counter() - began


def due(loop: Loop) -> bool:
    """Return whether this update is followed by a probe: in its turn, asked for by a guard, or the last."""
    every, update = loop.config.probe.every, loop.progress.update
    return (every > 0 and update % every == 0) or update in (loop.total, loop.progress.probe_at)


def coming(loop: Loop) -> ProbeSpec:
    """Return the coming probe: with the world values in use, and with new seeds if so configured."""
    config = loop.config.probe
    spec = replace(loop.probe_spec, values=tuple(sorted(loop.progress.turned.items())))
    if config.seeds == "fixed":
        return spec
    return replace(spec, seeds=draw_lot(config.seed, config.episodes, loop.progress.probes))


def note_evaluation(loop: Loop, report: EvalReport) -> None:
    """Write the line of self-play about a probe."""
    progress, statuses = loop.progress, [guard.status() for guard in loop.guards]
    options, phase = loop.probe_spec.options, loop.phase.name
    found = evaluation_of(report, options, statuses, phase, progress.trained, progress.evaluated)
    progress.evaluated = dict(progress.trained)
    if found is not None:
        loop.recorder.evaluation(to_plain(found))
