"""Everything that a run writes about itself while it runs.

    journal.jsonl    what happened and why: decisions, probes, phases, parameter hashes
    metrics.jsonl    one line an update: every signal
    episodes.jsonl   one line a finished game
    evals.jsonl      one line a probe, with intervals
    selfplay.jsonl   one line an evaluation of self-play
    latest.json      the last update and the last probe, replaced at every update
    heartbeat.json   where the run stands now
    parquet/         these as columns, when the run is closed
    tb/              the metrics for TensorBoard

The JSONL files are cut to the checkpoint when a run resumes, and begin a new piece when they have
grown large (see pieces.py); `docs/metrics.md` names every field. TensorBoard and the sinks of `run.sinks`
never stop training: what fails there is reported and switched off.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.records import Decision, Episode, EvalReport
from holdfast.store.files import write_atomic
from holdfast.store.journal import ROTATE_BYTES, Lines, plain
from holdfast.store.parquet import parquet_on_close
from holdfast.store.pieces import tail
from holdfast.store.schema import SCHEMA
from holdfast.store.settings import read_settings
from holdfast.store.sink_kinds import make_sinks
from holdfast.store.tensorboard import TensorBoard

FILES = ("journal", "metrics", "episodes", "evals")
SELFPLAY = "selfplay"
"""The file of a run of self-play."""
LATEST = "latest.json"
BEAT_EVERY_S = 0.5


class Recorder:
    """The open record files of a run; `state_dict` is their positions."""

    def __init__(
        self,
        directory: Path,
        tensorboard: bool,
        warn: Callable[[str], None],
        sinks: Sequence[str] = (),
        rotate_bytes: int | None = None,
        more: Sequence[str] = (),
    ) -> None:
        """Open the files; `more` names those that only some runs write."""
        self.directory, self.warn = directory, warn
        self.sinks = make_sinks(sinks, directory)
        limit = ROTATE_BYTES if rotate_bytes is None else rotate_bytes
        self.lines = {name: Lines(directory / f"{name}.jsonl", limit) for name in (*FILES, *more)}
        self._tensorboard_wanted = tensorboard
        self._beat_at = 0.0
        self._state = ""
        self._eval: dict[str, Any] | None = None
        self._tensorboard: TensorBoard | None = None

    def start(self, resumed_at: int | None) -> None:
        """Open the sinks; `resumed_at` is the update of the checkpoint that a run goes on from."""
        if self._tensorboard_wanted:
            self._guarded(lambda: self._open_tensorboard(resumed_at))
        self.sinks.start(read_settings(self.directory), resumed_at)

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
        """Append the signals of one update and make them the latest."""
        record = plain(line)
        update = int(record["update"])
        text = self._write_metrics(record)
        self._write_latest(text, update, record.get("env_steps"))
        if self._tensorboard is not None:
            board = self._tensorboard
            self._guarded(lambda: board.scalars(record, update))
        for news in self.sinks.offer(record, update):
            self.warn(news)

    def episode(self, update: int, episode: Episode) -> None:
        """Append one finished game."""
        self.lines["episodes"].write(
            {
                "update": update,
                "game": episode.game,
                "steps": episode.steps,
                "return_mean": float(episode.returns.mean()),
                "ended": episode.ended,
                **({"cut": True} if episode.cut else {}),
                "start": episode.start.brief(),
                **{f"facts/{k}": v for k, v in episode.facts.items()},
            }
        )

    def report(self, report: EvalReport) -> None:
        """Append a probe's report and a journal line about it."""
        about = {"probe": report.probe, "update": report.update, "env_steps": report.env_steps}
        measured = {"metrics": dict(report.metrics), "intervals": dict(report.intervals)}
        self._eval = plain({**about, **measured})
        self.lines["evals"].write(
            {**about, "seeds": list(report.seeds), **measured, "detail": dict(report.detail)}
        )
        self.journal("probe", report.update, probe=report.probe, **measured)

    def evaluation(self, record: dict[str, Any]) -> None:
        """Append an evaluation of self-play."""
        self.lines[SELFPLAY].write(record)

    def heartbeat(self, state: str, **fields: Any) -> None:
        """Replace heartbeat.json and let readers see all lines so far, twice a second at most."""
        now = time.time()
        self._state = state
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
        """Cut every file to its size at the checkpoint, and let latest.json say the same."""
        for name, position in state.items():
            self.lines[name].rewind(int(position))
        self._eval = None
        for line in tail(self.directory / "evals.jsonl", 1)[0]:
            self._eval = {k: v for k, v in json.loads(line).items() if k not in ("seeds", "detail")}
        (self.directory / LATEST).unlink(missing_ok=True)
        for line in tail(self.directory / "metrics.jsonl", 1)[0]:
            record = json.loads(line)
            self._write_latest(line.decode().rstrip(), record["update"], record.get("env_steps"))

    def close(self) -> None:
        """Close all files and sinks, and write the Parquet files; what fails is told."""
        for news in self.sinks.close():
            self.warn(news)
        for lines in self.lines.values():
            try:
                lines.close()
            except OSError as error:
                self.warn(f"The last lines of {lines.path} could not be written: {error}.")
        if self._tensorboard is not None:
            self._guarded(self._tensorboard.close)
        if self._state not in ("", "running"):
            try:
                parquet_on_close(self.directory, self.warn)
            except (HoldfastError, OSError, ValueError) as error:
                self.warn(f"The Parquet files could not be written: {error}")

    def _write_metrics(self, record: dict[str, Any]) -> str:
        timed = {**record, "time/at": time.time()}
        text = json.dumps(timed, separators=(",", ":"), allow_nan=False)
        self.lines["metrics"].write_text(text + "\n")
        return text

    def _write_latest(self, metrics: str, update: int, env_steps: int | None) -> None:
        """Replace latest.json; `metrics` is the update's line, already JSON."""
        head = {
            "schema": SCHEMA,
            "run": self.directory.name,
            "at": time.time(),
            "update": update,
            "env_steps": env_steps,
            "eval": self._eval,
        }
        text = f'{json.dumps(head)[:-1]}, "metrics": {metrics}}}\n'
        write_atomic(self.directory / LATEST, text, sync=False)

    def _open_tensorboard(self, resumed_at: int | None) -> None:
        self._tensorboard = TensorBoard(self.directory / "tb", resumed_at)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # a sink must never stop training; it is reported
            self._tensorboard = None
            self.warn(f"TensorBoard was switched off: {type(error).__name__}: {error}")
