"""One run of a study as a process of its own: begun or resumed, followed while it trains, stopped cleanly."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from holdfast.errors import StorageError
from holdfast.run import RunDirectory
from holdfast.store.files import storage_errors, sweep_temporary
from holdfast.store.pieces import read_from
from holdfast.study.specs import Member

ENDED = ("finished", "out_of_time", "stopped")
"""States of a run that a study leaves as it is; `stopped` is a guard's decision, and a result."""
PACE_WINDOW_S = 60.0
SAID = 6
"""Last lines of a failed child that are shown."""


@dataclass(frozen=True)
class Probed:
    """One evaluation of a run."""

    update: int
    env_steps: int
    metrics: dict[str, float]


class Followed:
    """What a run has written about itself, read on as it grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.probes: dict[int, Probed] = {}
        """Evaluations by update."""
        self.beat: dict[str, Any] = {}
        self._position = 0
        self._marks: deque[tuple[float, int, int]] = deque()

    def read(self) -> list[Probed]:
        """Read what is new; return the evaluations among it."""
        with contextlib.suppress(OSError, ValueError):
            self.beat = dict(json.loads((self.path / "heartbeat.json").read_text()))
            self._mark()
        lines, self._position = read_from(self.path / "evals.jsonl", self._position)
        new = [probed for line in lines if (probed := read_probe(line)) is not None]
        new = [probed for probed in new if probed.update not in self.probes]
        self.probes.update({probed.update: probed for probed in new})
        return new

    def values(self, metric: str) -> list[tuple[Probed, float]]:
        """Return the evaluations that have this metric, in order, with its value."""
        ordered = sorted(self.probes.values(), key=lambda probed: probed.update)
        return [(p, p.metrics[metric]) for p in ordered if metric in p.metrics]

    @property
    def update(self) -> int:
        """Updates made."""
        return int(self.beat.get("update") or 0)

    @property
    def updates(self) -> int:
        """Updates to make; 0 before that is known."""
        return int(self.beat.get("updates") or 0)

    @property
    def env_steps(self) -> int:
        """Environment steps made."""
        return int(self.beat.get("env_steps") or 0)

    @property
    def pace(self) -> tuple[float, float] | None:
        """Updates and environment steps a second, lately; None while unknown."""
        if len(self._marks) < 2:
            return None
        (t0, u0, s0), (t1, u1, s1) = self._marks[0], self._marks[-1]
        return ((u1 - u0) / (t1 - t0), (s1 - s0) / (t1 - t0)) if t1 > t0 and u1 > u0 else None

    @property
    def left_s(self) -> float | None:
        """Seconds to the last update at the recent pace."""
        pace = self.pace
        return (self.updates - self.update) / pace[0] if pace and self.updates else None

    def _mark(self) -> None:
        now = time.monotonic()
        if self._marks and self._marks[-1][1] == self.update:
            return
        if self._marks and self._marks[-1][1] > self.update:
            self._marks.clear()
        self._marks.append((now, self.update, self.env_steps))
        while len(self._marks) > 2 and now - self._marks[1][0] > PACE_WINDOW_S:
            self._marks.popleft()


def read_probe(line: bytes) -> Probed | None:
    """Return the evaluation of one line of evals.jsonl; None if the line is broken."""
    try:
        record = json.loads(line)
        metrics = {
            str(name): float(value)
            for name, value in record["metrics"].items()
            if isinstance(value, int | float)
        }
        return Probed(int(record["update"]), int(record["env_steps"]), metrics)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


class Child:
    """One run of a study and the process that trains it."""

    def __init__(self, member: Member, target: str, study: Path) -> None:
        self.member, self.target, self.study = member, target, study
        self.directory = RunDirectory(study / member.run)
        self.followed = Followed(self.directory.path)
        self.state = "waiting"
        self.exit_code: int | None = None
        self.asked = 0
        """How often it was asked to stop."""
        self.pruned = False
        self.began = time.monotonic()
        self.process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._log_from = 0

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.member.run

    @property
    def log(self) -> Path:
        """File with everything that the process has said."""
        return self.study / "logs" / f"{self.name}.log"

    def settled(self) -> bool:
        """Return whether the run has ended in an earlier call; then its state is known."""
        state = self.directory.state()
        if state in ENDED:
            self.state = state
        return state in ENDED

    def begin(self) -> None:
        """Train the run in a new process, from where it stands; wait first if another process trains it."""
        self.began = time.monotonic()
        if self.directory.locked_by() is not None:
            self.state = "elsewhere"
            return
        if (self.directory.path / "run.toml").is_file():
            words = ["resume", self.name]
        else:
            if self.directory.path.is_dir():
                sweep_temporary(self.directory.path)
            settings = [f"--{key}={value}" for key, value in self.member.settings]
            words = ["train", self.target, *settings]
        words += ["--plain", "--no-report", "--runs-dir", str(self.study)]
        with storage_errors(self.log):
            self.log.parent.mkdir(parents=True, exist_ok=True)
            self._log = open(self.log, "ab")  # noqa: SIM115 (held while the child runs)
        self._log_from = self._log.tell()
        self.followed = Followed(self.directory.path)
        # A session of its own: Ctrl-C on the terminal reaches the study alone, which passes it on once.
        self.process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", *words],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.state = "running"

    def ended(self) -> bool:
        """Return whether the process is over; then state and exit code say how."""
        if self.process is None:
            if self.asked:
                self.state = "interrupted"
                return True
            if self.directory.locked_by() is not None:
                return False
            if self.settled():
                return True
            self.begin()
            return False
        code = self.process.poll()
        if code is None:
            return False
        if self._log is not None:
            self._log.close()
        self.exit_code = code
        self.state = self._verdict(code)
        return True

    def _verdict(self, code: int) -> str:
        if code == 0:
            return "out_of_time" if self._beat_state() == "out_of_time" else "finished"
        if code == 4:
            return "stopped"
        number = -code if code < 0 else code - 128
        if self.asked or number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            return "pruned" if self.pruned else "interrupted"
        return "killed" if code < 0 else "failed"

    def _beat_state(self) -> str:
        try:
            return str(self.directory.heartbeat().get("state", ""))
        except StorageError:
            return ""

    def stop(self) -> None:
        """Ask the process to finish its update, save and leave; asked again it leaves at once."""
        self.asked += 1
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)

    def last_words(self) -> str:
        """Return why the process ended, from its own last lines."""
        try:
            with open(self.log, "rb") as file:
                file.seek(self._log_from)
                lines = file.read().decode(errors="replace").splitlines()
        except OSError:
            lines = []
        lines = [line.rstrip() for line in lines if line.strip()]
        errors = [k for k, line in enumerate(lines) if line.startswith("error:")]
        said = lines[errors[-1] :][:SAID] if errors else lines[-SAID:]
        if self.exit_code is not None and self.exit_code < 0:
            said.append(f"killed by {signal.Signals(-self.exit_code).name}")
        return "\n".join(said)
