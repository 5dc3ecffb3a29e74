"""Other places that get a run's metrics, behind a bounded queue that never stops or slows training.

Each sink works in a thread of its own. `offer` puts the numbers of an update into the sink's queue and
returns at once. When the queue is full the numbers are dropped, counted, and that is said; `metrics.jsonl`
has them all. A sink that raises three times in a row, or whose call does not return in time, is cut off:
its thread is left alone and nothing more is offered. `sinks.json` in the run directory says how each one
fares: `{"id": ..., "sinks": {name: {state, sent, dropped, errors, problem}}}`.
"""

from __future__ import annotations

import queue
import secrets
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, TextIO

from holdfast.errors import StorageError
from holdfast.store.files import read_json, write_json

STATUS = "sinks.json"
FAILURES = (Exception, SystemExit)
"""What a sink may raise: any library may raise anything; it is told, not passed on."""


@dataclass(frozen=True)
class RunInfo:
    """What a sink is told when it starts."""

    name: str
    id: str
    """Name and a random ending; a resumed run keeps it, and no other run has it."""
    directory: Path
    settings: Mapping[str, Any]
    """Every setting by its dotted key."""
    resumed_at: int | None
    """Update of the checkpoint that the run goes on from; None for a new run."""


class Sink(Protocol):
    """Something that takes numbers; it is made, and all three are called, in the sink's own thread."""

    def start(self, run: RunInfo) -> None:
        """Open whatever is needed."""
        ...

    def log(self, values: Mapping[str, float], update: int) -> None:
        """Take the numbers of one update."""
        ...

    def close(self) -> None:
        """Send what is left and close."""
        ...


@dataclass(frozen=True)
class Limits:
    """How long and how often a sink may fail."""

    queue: int = 1000
    """Updates that may wait."""
    start_s: float = 120.0
    """Longest time to start."""
    log_s: float = 30.0
    """Longest time of one `log`."""
    close_s: float = 15.0
    """Longest time that the end of a run waits for a sink to send the rest."""
    errors: int = 3
    """Errors in a row after which it is cut off."""


@dataclass
class Status:
    """How a sink fares."""

    state: str = "waiting"
    """waiting, starting, running, closed, or cut_off."""
    sent: int = 0
    dropped: int = 0
    errors: int = 0
    problem: str = ""


class QueuedSink:
    """One sink, its queue and its thread."""

    def __init__(self, name: str, make: Callable[[], Sink], limits: Limits | None = None) -> None:
        self.name, self.make, self.limits = name, make, limits or Limits()
        self.status = Status()
        self._queue: queue.Queue[tuple[dict[str, float], int] | None] = queue.Queue(
            self.limits.queue
        )
        self._busy: tuple[str, float] | None = None
        """What the thread does now and since when; None while it waits for numbers."""
        self._thread: threading.Thread | None = None
        self._told_drops = False
        self._news: queue.SimpleQueue[str] = queue.SimpleQueue()

    def start(self, run: RunInfo) -> None:
        """Begin to work; returns at once."""
        self.status.state = "starting"
        self._busy = ("start", time.monotonic())
        self._thread = threading.Thread(
            target=self._work, args=(run,), name=f"sink {self.name}", daemon=True
        )
        self._thread.start()

    def offer(self, values: dict[str, float], update: int) -> list[str]:
        """Queue the numbers of one update, or drop them; return what should be told."""
        if self.status.state not in ("starting", "running"):
            return self._untold()
        self._cut_if_hung()
        try:
            self._queue.put_nowait((values, update))
        except queue.Full:
            self.status.dropped += 1
            if not self._told_drops and self.status.state != "cut_off":
                self._told_drops = True
                return [
                    f"The sink '{self.name}' is too slow: its queue of {self.limits.queue} updates is "
                    "full, and numbers for it are dropped. metrics.jsonl has all of them."
                ]
        return self._untold()

    def close(self) -> list[str]:
        """Give the sink a last, limited time; return what should be told."""
        if self._thread is None:
            return []
        if self.status.state in ("starting", "running"):
            deadline = time.monotonic() + self.limits.close_s
            try:
                self._queue.put(None, timeout=self.limits.close_s)
            except queue.Full:
                self._cut("its queue was still full at the end of the run")
            self._thread.join(max(0.0, deadline - time.monotonic()))
            if self._thread.is_alive():
                self._cut(f"it did not end within {self.limits.close_s:g} s")
        news = self._untold()
        if self.status.dropped:
            news.append(
                f"The sink '{self.name}' got {self.status.sent} updates; {self.status.dropped} were "
                "dropped. metrics.jsonl has all of them."
            )
        return news

    def _work(self, run: RunInfo) -> None:
        with Diverted():
            try:
                sink = self.make()
                sink.start(run)
            except FAILURES as error:
                self._cut(f"it could not start: {_said(error)}")
                return
            if self.status.state == "cut_off":
                return
            self.status.state = "running"
            if self._pump(sink):
                self._finish(sink)

    def _pump(self, sink: Sink) -> bool:
        """Hand over numbers until the end; return whether the sink is still good."""
        in_a_row = 0
        while True:
            self._busy = None
            item = self._queue.get()
            if self.status.state == "cut_off":
                return False
            if item is None:
                return True
            self._busy = ("log", time.monotonic())
            try:
                sink.log(*item)
                self.status.sent += 1
                in_a_row = 0
            except FAILURES as error:
                self.status.errors += 1
                in_a_row += 1
                if in_a_row >= self.limits.errors:
                    self._cut(f"it raised {in_a_row} times in a row: {_said(error)}")
                    return False

    def _finish(self, sink: Sink) -> None:
        self._busy = ("close", time.monotonic())
        try:
            sink.close()
        except FAILURES as error:
            self._cut(f"it raised when it was closed: {_said(error)}")
            return
        if self.status.state == "running":
            self.status.state = "closed"

    def _cut_if_hung(self) -> None:
        busy = self._busy
        if busy is None:
            return
        limit = self.limits.start_s if busy[0] == "start" else self.limits.log_s
        if time.monotonic() - busy[1] > limit:
            self._cut(f"its {busy[0]} did not return within {limit:g} s")

    def _cut(self, why: str) -> None:
        if self.status.state != "cut_off":
            self.status.state, self.status.problem = "cut_off", why
            self._news.put(
                f"The sink '{self.name}' was cut off: {why}. Training goes on, and metrics.jsonl has "
                "all numbers."
            )

    def _untold(self) -> list[str]:
        return [self._news.get() for _ in range(self._news.qsize())]


class SinkSet:
    """All sinks of a run."""

    def __init__(self, sinks: Sequence[QueuedSink], directory: Path) -> None:
        self.sinks, self.directory = list(sinks), directory
        self._id = ""
        self._written: dict[str, str] = {}

    def start(self, settings: Mapping[str, Any], resumed_at: int | None) -> None:
        """Start all of them."""
        if not self.sinks:
            return
        if resumed_at is not None and (self.directory / STATUS).is_file():
            self._id = str(read_json(self.directory / STATUS).get("id", ""))
        self._id = self._id or f"{self.directory.name}-{secrets.token_hex(4)}"
        run = RunInfo(self.directory.name, self._id, self.directory, settings, resumed_at)
        for sink in self.sinks:
            sink.start(run)
        self._write()

    def offer(self, line: Mapping[str, Any], update: int) -> list[str]:
        """Offer the numbers of a metrics line to all; return what should be told."""
        if not self.sinks:
            return []
        values = numbers(line)
        news = [text for sink in self.sinks for text in sink.offer(values, update)]
        if {s.name: s.status.state for s in self.sinks} != self._written:
            self._write()
        return news

    def close(self) -> list[str]:
        """Close all; return what should be told."""
        news = [text for sink in self.sinks for text in sink.close()]
        if self.sinks:
            self._write()
        return news

    def _write(self) -> None:
        self._written = {s.name: s.status.state for s in self.sinks}
        try:
            fares = {s.name: asdict(s.status) for s in self.sinks}
            write_json(self.directory / STATUS, {"id": self._id, "sinks": fares})
        except StorageError:
            return  # the run's own files will say that the disk is full


class Diverted:
    """While it is entered, what the entering thread prints goes to standard error.

    Standard output belongs to the command (`--json`), and libraries like to greet on it. Other threads
    keep theirs, even when this one never comes back.
    """

    def __init__(self) -> None:
        self._stream: TextIO = sys.stdout
        self._thread = threading.get_ident()

    def __enter__(self) -> Diverted:
        sys.stdout = self
        return self

    def __exit__(self, *_: object) -> None:
        if sys.stdout is self:
            sys.stdout = self._stream

    def write(self, text: str) -> int:
        """Write to standard error from the diverted thread, to the old stream from any other."""
        mine = threading.get_ident() == self._thread
        return (sys.stderr if mine else self._stream).write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def numbers(line: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a line that JSON has made plain, so none of them is NaN."""
    return {
        key: float(value)
        for key, value in line.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
