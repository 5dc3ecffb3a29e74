"""What happens to foreign environments, as `env_events.jsonl` and as one line on the console.

One JSON object a phase: `{ts, mono, env, pid, phase, status, duration_s, error_type, error_msg, backend, world,
stage}`; `phase` is construct, reset, step, close or prewarm, `status` is begin, ok or error, `ts` is Unix
time, `mono` the machine's monotonic clock, `stage` the phase of the run's plan, or `probe`. Constructions and explicit resets
of every environment are written, steps and the resets between episodes only when they fail. Without a record that
says where, nothing is written.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from holdfast.errors import StorageError
from holdfast.store.journal import Lines
from holdfast.worlds.pool_slow import SlowSteps, Stacks, Usual, no_stacks

Progress = Literal["quiet", "summary", "verbose"]


@dataclass(frozen=True)
class Record:
    """Where a world writes down what happens to it, and to whom it speaks."""

    directory: Path | None = None
    """The run directory; None writes no events, and reports go to a temporary directory."""
    say: Callable[[str], None] | None = None
    """Takes messages; None prints only warnings, on standard error."""
    progress: Progress = "summary"
    """What is said: nothing, one line when all environments are ready, or every construction."""
    stage: str = ""
    """What the world is for: a phase of the run's plan, or a probe."""
    announce: bool = True
    """Whether it is said that all environments are ready; faults are told in any case."""
    slow: SlowSteps | None = None
    """Counts steps that take far longer than usual."""

    def at(self, stage: str) -> Record:
        """Return the same record for a phase of the plan."""
        return replace(self, stage=stage)

    def aside(self, stage: str) -> Record:
        """Return the same record for a world that comes and goes beside training: only `verbose` announces it."""
        return replace(self, stage=stage, announce=self.progress == "verbose")


class Events:
    """The event record of one foreign world."""

    def __init__(self, world: str, backend: str, record: Record | None = None) -> None:
        self.world, self.backend, self.record = world, backend, record or Record()
        self._lines: Lines | None = None
        self._begun: dict[tuple[int, str], float] = {}
        self.failed_close: list[tuple[str, str]] = []
        """Type and text of what went wrong in closing."""
        self.usual = Usual()
        """Seconds of a step of one game."""
        if self.record.directory is not None:
            self._lines = Lines(self.record.directory / "env_events.jsonl")

    def begin(self, env: int, phase: str, pid: int | None = None) -> None:
        """Record that a phase begins."""
        self._begun[env, phase] = time.monotonic()
        self._event(env, phase, "begin", pid)
        if self.record.progress == "verbose" and phase == "construct":
            self._tell(f"env {env}: constructing")

    def ok(
        self, env: int, phase: str, duration_s: float | None = None, pid: int | None = None
    ) -> None:
        """Record that a phase was finished."""
        took = self._took(env, phase) if duration_s is None else duration_s
        self._begun.pop((env, phase), None)
        self._event(env, phase, "ok", pid, duration_s=took)
        if self.record.progress == "verbose" and phase == "construct":
            self._tell(f"env {env}: constructed in {took:.2f} s")

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
        if self.record.progress != "quiet" and self.record.announce:
            self._tell(text)

    def warn(self, text: str) -> None:
        """Tell at once that something went wrong, even when nobody has asked for events."""
        if self.record.progress == "quiet":
            return
        if self.record.say is not None:
            self.record.say(text)
        else:
            sys.stderr.write(f"warning: {text}\n")

    def still_in_step(self, game: int, since: float, stacks: Stacks = no_stacks) -> None:
        """Count a step that began at `since` and is not over, if it is slow by now."""
        if self.record.slow is not None:
            self.record.slow.look(f"step of {self.world}, game {game}", since, self.usual, stacks)

    def place(self) -> Path:
        """Return where reports go: the run directory, or a temporary one."""
        if self.record.directory is not None:
            return self.record.directory
        return Path(tempfile.mkdtemp(prefix="holdfast-envs-"))

    def close(self) -> None:
        """Close the file; later events are lost."""
        if self._lines is not None:
            lines, self._lines = self._lines, None
            with contextlib.suppress(OSError):
                lines.close()

    def _took(self, env: int, phase: str) -> float:
        now = time.monotonic()
        return now - self._begun.get((env, phase), now)

    def _tell(self, text: str) -> None:
        if self.record.say is not None:
            self.record.say(text)

    def _event(self, env: int, phase: str, status: str, pid: int | None, **more: Any) -> None:
        if self._lines is None:
            return
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
            "world": self.world,
            "stage": self.record.stage,
            **more,
        }
        try:
            self._lines.write(event)
            self._lines.flush()
        except StorageError as error:
            # A record that cannot be written never stops training.
            with contextlib.suppress(OSError):
                self._lines.close()
            self._lines = None
            self.warn(f"env_events.jsonl is switched off: {error}")
