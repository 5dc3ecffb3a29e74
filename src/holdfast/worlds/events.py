"""What happens to foreign environments, as `env_events.jsonl` and as one line on the console.

One JSON object a phase: `{ts, mono, env, pid, phase, status, duration_s, error_type, error_msg, backend}`;
`phase` is construct, reset, step, close, restart or prewarm, `status` is begin, ok or error, `ts` is Unix
time, `mono` the machine's monotonic clock. Constructions and explicit resets of every environment are
written, steps and the resets between episodes only when they fail. Events are kept in memory until
`open` says where to write them; without it nothing is written.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from holdfast.errors import StorageError
from holdfast.store.journal import Lines

Progress = Literal["quiet", "summary", "verbose"]
HELD = 20_000
"""Events kept in memory while there is no file."""


class Events:
    """The event record of one foreign world."""

    def __init__(self, backend: str, progress: Progress = "summary") -> None:
        self.backend, self.progress = backend, progress
        self.directory: Path | None = None
        self.say: Callable[[str], None] | None = None
        self._held: deque[dict[str, Any]] = deque(maxlen=HELD)
        self._said: deque[str] = deque(maxlen=1000)
        self._lines: Lines | None = None
        self._begun: dict[tuple[int, str], float] = {}
        self.failed_close: list[tuple[str, str]] = []
        """Type and text of what went wrong in closing."""

    def open(self, directory: Path, say: Callable[[str], None] | None = None) -> None:
        """Write all events, those held back too, to `directory/env_events.jsonl`, and speak to `say`."""
        self.close()
        self.directory, self.say = directory, say
        self._lines = Lines(directory / "env_events.jsonl")
        while self._held:
            self._write(self._held.popleft())
        if say is not None:
            while self._said:
                say(self._said.popleft())

    def begin(self, env: int, phase: str, pid: int | None = None) -> None:
        """Record that a phase begins."""
        self._begun[env, phase] = time.monotonic()
        self._event(env, phase, "begin", pid)
        if self.progress == "verbose" and phase == "construct":
            self._tell(f"env {env}: constructing")

    def ok(
        self, env: int, phase: str, duration_s: float | None = None, pid: int | None = None
    ) -> None:
        """Record that a phase was finished."""
        took = self._took(env, phase) if duration_s is None else duration_s
        self._begun.pop((env, phase), None)
        self._event(env, phase, "ok", pid, duration_s=took)
        if self.progress == "verbose" and phase in ("construct", "restart"):
            self._tell(f"env {env}: {phase} done in {took:.2f} s")

    def error(
        self,
        env: int,
        phase: str,
        error_type: str,
        error_msg: str,
        duration_s: float | None = None,
        pid: int | None = None,
        **more: Any,
    ) -> None:
        """Record that a phase failed."""
        took = self._took(env, phase) if duration_s is None else duration_s
        self._begun.pop((env, phase), None)
        if phase == "close":
            self.failed_close.append((error_type, error_msg))
        self._event(
            env,
            phase,
            "error",
            pid,
            duration_s=took,
            error_type=error_type,
            error_msg=error_msg,
            **more,
        )

    def ready(self, seconds: float, construct_s: Any) -> None:
        """Say how long it took until all environments were there."""
        slowest = int(max(range(len(construct_s)), key=lambda g: construct_s[g]))
        text = (
            f"{len(construct_s)} envs ready in {seconds:.2f} s, "
            f"slowest env {slowest} {construct_s[slowest]:.2f} s"
        )
        if self.progress != "quiet":
            self._tell(text)

    def warn(self, text: str) -> None:
        """Tell at once that something went wrong, even when nobody has asked for events."""
        if self.progress == "quiet":
            return
        if self.say is not None:
            self.say(text)
        else:
            sys.stderr.write(f"warning: {text}\n")

    def place(self) -> Path:
        """Return where reports go: the run directory, or a temporary one."""
        if self.directory is not None:
            return self.directory
        return Path(tempfile.mkdtemp(prefix="holdfast-envs-"))

    def close(self) -> None:
        """Close the file; later events are held in memory again."""
        if self._lines is not None:
            lines, self._lines = self._lines, None
            with contextlib.suppress(OSError):
                lines.close()

    def _took(self, env: int, phase: str) -> float:
        now = time.monotonic()
        return now - self._begun.get((env, phase), now)

    def _tell(self, text: str) -> None:
        if self.say is not None:
            self.say(text)
        else:
            self._said.append(text)

    def _event(self, env: int, phase: str, status: str, pid: int | None, **more: Any) -> None:
        event = {
            "ts": time.time(),
            "mono": time.monotonic(),
            "env": env,
            "pid": os.getpid() if pid is None else pid,
            "phase": phase,
            "status": status,
            "duration_s": None,
            "error_type": None,
            "error_msg": None,
            "backend": self.backend,
            **more,
        }
        if self._lines is None:
            self._held.append(event)
        else:
            self._write(event)

    def _write(self, event: dict[str, Any]) -> None:
        if self._lines is None:
            return
        try:
            self._lines.write(event)
            self._lines.flush()
        except StorageError as error:
            # A record that cannot be written never stops training.
            with contextlib.suppress(OSError):
                self._lines.close()
            self._lines = None
            self.warn(f"env_events.jsonl is switched off: {error}")
