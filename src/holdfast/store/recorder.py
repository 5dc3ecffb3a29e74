"""Everything that a run writes about itself while it runs.

    journal.jsonl    what happened and why: decisions, probes, phases, parameter hashes
    metrics.jsonl    one line an update: every signal
    episodes.jsonl   one line a finished game
    evals.jsonl      one line a probe, with intervals
    heartbeat.json   where the run stands now
    tb/              the metrics for TensorBoard

The four JSONL files are cut to the checkpoint when a run resumes. A failing TensorBoard writer is
reported once and switched off; it never stops training.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.records import Decision, Episode, EvalReport
from holdfast.store.files import write_atomic
from holdfast.store.journal import Lines, plain
from holdfast.store.tensorboard import TensorBoard

FILES = ("journal", "metrics", "episodes", "evals")
BEAT_EVERY_S = 0.5


class Recorder:
    """The open record files of a run; `state_dict` is their positions."""

    def __init__(self, directory: Path, tensorboard: bool, warn: Callable[[str], None]) -> None:
        self.directory, self.warn = directory, warn
        self.lines = {name: Lines(directory / f"{name}.jsonl") for name in FILES}
        self._tensorboard_wanted = tensorboard
        self._beat_at = 0.0
        self._tensorboard: TensorBoard | None = None

    def start(self, resumed_at: int | None) -> None:
        """Open the sinks; `resumed_at` is the update of the checkpoint that a run goes on from."""
        if self._tensorboard_wanted:
            self._guarded(lambda: self._open_tensorboard(resumed_at))

    def journal(self, event: str, update: int, **fields: Any) -> None:
        """Append one event to the journal."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        self.lines["journal"].write({"event": event, "update": update, **fields, "at": at})

    def decision(self, update: int, guard: str, decision: Decision, applied: Any) -> None:
        """Append a decision, its cause, and the value read back after it was applied."""
        cause = decision.cause
        self.journal(
            "decision",
            update,
            guard=guard,
            kind=decision.kind,
            name=decision.name,
            value=decision.value if isinstance(decision.value, int | float | str | dict) else None,
            role=decision.role,
            message=decision.message,
            cause={
                "signal": cause.signal,
                "value": cause.value,
                "threshold": cause.threshold,
                "window": cause.window,
            },
            applied=applied,
        )

    def update(self, line: dict[str, Any]) -> None:
        """Append the signals of one update."""
        self.lines["metrics"].write(line)
        if self._tensorboard is not None:
            board = self._tensorboard
            self._guarded(lambda: board.scalars(line, int(line["update"])))

    def episode(self, update: int, episode: Episode) -> None:
        """Append one finished game."""
        self.lines["episodes"].write(
            {
                "update": update,
                "game": episode.game,
                "steps": episode.steps,
                "return_mean": float(episode.returns.mean()),
                "ended": episode.ended,
                "start": episode.start.brief(),
                **{f"facts/{k}": v for k, v in episode.facts.items()},
            }
        )

    def report(self, report: EvalReport) -> None:
        """Append a probe's report and a journal line about it."""
        about = {"probe": report.probe, "update": report.update, "env_steps": report.env_steps}
        measured = {"metrics": dict(report.metrics), "intervals": dict(report.intervals)}
        self.lines["evals"].write(
            {**about, "seeds": list(report.seeds), **measured, "detail": dict(report.detail)}
        )
        self.journal("probe", report.update, probe=report.probe, **measured)

    def heartbeat(self, state: str, **fields: Any) -> None:
        """Replace heartbeat.json and let readers see all lines so far, twice a second at most."""
        now = time.time()
        if state == "running" and now - self._beat_at < BEAT_EVERY_S:
            return
        self._beat_at = now
        for lines in self.lines.values():
            lines.flush()
        beat = json.dumps(plain({"state": state, **fields, "pid": os.getpid(), "at": now}))
        write_atomic(self.directory / "heartbeat.json", beat + "\n", sync=False)

    def state_dict(self) -> dict[str, Any]:
        """Force everything to disk and return the size of every file."""
        return {name: lines.position() for name, lines in self.lines.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Cut every file to its size at the checkpoint."""
        for name, position in state.items():
            self.lines[name].rewind(int(position))

    def close(self) -> None:
        """Close all files."""
        for lines in self.lines.values():
            lines.close()
        if self._tensorboard is not None:
            self._guarded(self._tensorboard.close)

    def _open_tensorboard(self, resumed_at: int | None) -> None:
        self._tensorboard = TensorBoard(self.directory / "tb", resumed_at)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # a sink must never stop training; it is reported
            self._tensorboard = None
            self.warn(f"TensorBoard was switched off: {type(error).__name__}: {error}")
