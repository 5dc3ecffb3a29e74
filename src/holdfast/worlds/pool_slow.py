"""Steps that take far longer than usual: counted, and from time to time written down with all stacks.

A step is slow when it takes longer than `floor_s` and longer than `factor` times the running median. Slow
steps are noticed while they run, so that a trace shows where they are. When `count` of them fall into
`window_s`, one trace is written, then none for `every_s`:

    stacks/slow-20260101-120000.txt    what was slow, the threads of the trainer, the stacks of the workers
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

SAMPLES = 101
FEW = 5
"""Samples without which there is no usual time yet."""
FOLDER = "stacks"

Stacks = Callable[[], Mapping[str, str]]
"""Returns the Python stacks of other processes by name."""


def no_stacks() -> Mapping[str, str]:
    """There are no other processes."""
    return {}


class Usual:
    """The running median of what was timed lately."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=SAMPLES)

    def add(self, seconds: float) -> None:
        """Take one more time into account."""
        self._recent.append(seconds)

    def median(self) -> float | None:
        """Return the median, or None while too little is known."""
        # A copy: another thread may add to it.
        recent = list(self._recent)
        return median(recent) if len(recent) >= FEW else None


@dataclass(frozen=True)
class SlowRules:
    """What is slow, and when it is written down."""

    floor_s: float = 0.25
    factor: float = 20.0
    count: int = 5
    window_s: float = 120.0
    every_s: float = 600.0


class SlowSteps:
    """Counts slow steps of one run and writes traces; may be told by several threads."""

    def __init__(
        self,
        directory: Path,
        rules: SlowRules,
        say: Callable[[str], None] = lambda text: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.directory, self.rules, self.say, self.now = directory, rules, say, now
        self.total = 0
        """Slow steps so far."""
        self.traces = 0
        """Traces so far."""
        self._times: deque[float] = deque()
        self._seen: dict[str, float] = {}
        self._traced_at = float("-inf")
        self._lock = threading.Lock()

    def limit(self, usual: Usual) -> float | None:
        """Return from how many seconds on a step is slow, or None if none can be called so."""
        middle = usual.median()
        if self.rules.floor_s <= 0 or middle is None:
            return None
        return max(self.rules.floor_s, self.rules.factor * middle)

    def look(
        self, what: str, since: float, usual: Usual, stacks: Stacks = no_stacks
    ) -> Path | None:
        """Count the step `what` that began at `since` and still runs, once, if it is slow by now.

        Returns the trace if this one caused it.
        """
        now = self.now()
        limit = self.limit(usual)
        if limit is None or now - since <= limit:
            return None
        with self._lock:
            if self._seen.get(what) == since:
                return None
            self._seen[what] = since
            self.total += 1
            self._times.append(now)
            while self._times and now - self._times[0] > self.rules.window_s:
                self._times.popleft()
            due = len(self._times) >= self.rules.count
            if not due or now - self._traced_at < self.rules.every_s:
                return None
            self._traced_at = now
            found = len(self._times)
            self._times.clear()
        text = (
            f"{found} slow steps within {self.rules.window_s:g} s; the last: {what}, for {now - since:.2f} s "
            f"now (limit {limit:.2f} s, usual {usual.median() or 0.0:.4f} s)"
        )
        path = write_stacks(self.directory, "slow", text, stacks)
        if path is not None:
            self.traces += 1
            self.say(f"{text}. All stacks are in {path}.")
        return path


def write_stacks(directory: Path, kind: str, text: str, stacks: Stacks = no_stacks) -> Path | None:
    """Write the stacks of all threads and of other processes to a new file; None if the disk refuses."""
    folder = directory / FOLDER
    stamp = time.strftime("%Y%m%d-%H%M%S")
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        path = next(
            candidate
            for k in range(1, 10_000)
            if not (candidate := folder / f"{kind}-{stamp}{f'-{k}' if k > 1 else ''}.txt").exists()
        )
        with open(path, "w") as file:
            file.write(f"{text}\n\n## trainer, pid {os.getpid()}\n\n")
            file.flush()
            faulthandler.dump_traceback(file, all_threads=True)
            for name, stack in stacks().items():
                file.write(f"\n## {name}\n\n{stack}")
        return path
    return None
