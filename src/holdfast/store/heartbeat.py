"""The heartbeat of a run: where it stands, how fast it goes, and what it does when it stands still.

    heartbeat.json    the newest heartbeat, replaced whole
    heartbeat.jsonl   one line a beat, and one for every stall
    resources.jsonl   one line a beat (resources.py)
    stacks/           stall-*.txt: the stacks of all threads and workers of a run that stood still

`Heartbeat` is the only one that writes the two heartbeat files: the loop tells it about every update, and the
thread that watches the run (lookout.py) adds what it sees. `docs/heartbeat.md` is made from this file: python -m holdfast.store.heartbeat > docs/heartbeat.md
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from holdfast.errors import HoldfastError
from holdfast.store.files import write_atomic
from holdfast.store.journal import Lines, plain
from holdfast.store.schema import Field, Kind

SCHEMA = 2
TOLD_EVERY_S = 0.5
"""heartbeat.json is renewed by updates no more often."""
HISTORY = 8
"""Beats over which rates are taken."""

DOING = (
    "begin", "enter", "collect", "learn", "probe", "decide", "record", "save", "finish",
)  # fmt: skip
"""What a loop can be doing: a closed list."""
STATES = ("running", "finished", "interrupted", "out_of_time", "stopped", "failed")
"""States that a process can leave a run in: a closed list."""
EVENTS = ("beat", "stall", "moves", "end")
"""Reasons for a line: a closed list."""


@dataclass(frozen=True)
class HeartbeatConfig:
    """How a run is watched while it trains."""

    beat_s: Annotated[float, Meta(ge=0.1)] = 10.0
    """Seconds between two lines of heartbeat.jsonl and resources.jsonl. heartbeat.json is also renewed by
    updates, twice a second at most."""
    stall_s: Annotated[float, Meta(ge=0)] = 300.0
    """Seconds without any progress after which the stacks of all threads are written down; 0 is off."""
    slow_ms: Annotated[float, Meta(ge=0)] = 250.0
    """A step of a foreign environment (or a rollout, or a learner step) that takes longer than this and
    longer than `slow_factor` times the usual is slow; 0 looks for none."""
    slow_factor: Annotated[float, Meta(ge=1)] = 20.0
    """How many times the running median a slow one takes."""
    slow_count: Annotated[int, Meta(ge=1)] = 5
    """Slow ones within `slow_window_s` that cause a trace: a file with all stacks, taken during the last one."""
    slow_window_s: Annotated[float, Meta(gt=0)] = 120.0
    """Seconds over which slow ones are counted."""
    slow_every_s: Annotated[float, Meta(ge=0)] = 600.0
    """Least seconds between two traces."""
    resources: bool = True
    """Sample processor, memory, disk and GPU with every beat."""


FIELDS = (
    Field("schema", "integer", f"version of this layout: {SCHEMA}", always=True),
    Field("event", "string", "why it was written: " + ", ".join(EVENTS), always=True),
    Field("run", "string", "name of the run", always=True),
    Field("state", "string", "one of " + ", ".join(STATES), always=True),
    Field("doing", "string", "what the loop does now, one of " + ", ".join(DOING), always=True),
    Field("doing_s", "number", "seconds for which it has been doing this", always=True),
    Field("update", "integer", "updates made so far", always=True),
    Field("updates", "integer", "updates of the whole run", always=True),
    Field("env_steps", "integer", "steps of all slots together so far", always=True),
    Field("updates_per_s", "number", f"over the last {HISTORY} beats", always=True),
    Field("env_steps_per_s", "number", f"over the last {HISTORY} beats", always=True),
    Field("idle_s", "number", "seconds since anything was seen to move", always=True),
    Field(
        "stalls", "integer", "how many times the run stood still for heartbeat.stall_s", always=True
    ),
    Field("pid", "integer", "the process that trains", always=True),
    Field("at", "number", "Unix time", always=True),
    Field("uptime_s", "number", "seconds since the process began to train", always=True),
    Field("rss_mb", "number", "memory of the trainer and of all processes below it", always=True),
    Field("threads", "integer", "threads of the trainer", always=True),
    Field("workers_alive", "integer", "worker processes of a foreign environment", always=True),
    Field("env_restarts", "integer", "environments that were replaced so far", always=True),
    Field(
        "policy_lag",
        "number",
        "updates by which the rollouts are older than the policy",
        always=True,
    ),
    Field("slow_steps", "integer", "steps that took far longer than usual", always=True),
    Field("slow_traces", "integer", "files that were written about them", always=True),
    Field("last_checkpoint_age_s", "number", "seconds since the last checkpoint", always=True),
    Field("stacks", "string", "stall: the file with all stacks"),
    Field("lights", "object", "green, yellow or red of every guard"),
)
HEARTBEAT = Kind("heartbeat.json", "The newest heartbeat; always whole.", FIELDS, lines=False)
HEARTBEATS = Kind("heartbeat.jsonl", "One line a beat; not cut when a run resumes.", FIELDS)


@dataclass(frozen=True)
class Glance:
    """What is seen of a loop from outside."""

    doing: str
    since: float
    """When that began (`time.monotonic`)."""
    update: int
    env_steps: int
    moved: int = 0
    """Anything else that changes while the run gets on, such as the steps of a probe or of a foreign world."""


class Heartbeat:
    """Writes heartbeat.json and heartbeat.jsonl; the loop and the watching thread both tell it things."""

    def __init__(
        self,
        directory: Path,
        now: Callable[[], float] = time.monotonic,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.directory, self.now, self.warn = directory, now, warn
        self.stalls = 0
        self._lines = Lines(directory / "heartbeat.jsonl")
        self._lock = threading.Lock()
        self._began = now()
        self._moved_at = now()
        self._marks: Glance | None = None
        self._history: deque[tuple[float, int, int]] = deque(maxlen=HISTORY)
        self._told: dict[str, Any] = {"state": "running", "update": 0, "updates": 0, "env_steps": 0}
        unknown = ("rss_mb", "threads", "last_checkpoint_age_s", "updates_per_s", "env_steps_per_s")
        counts = ("workers_alive", "env_restarts", "policy_lag", "slow_steps", "slow_traces")
        self._seen: dict[str, Any] = {"doing": DOING[0], "doing_s": 0.0}
        self._seen.update(dict.fromkeys(unknown) | dict.fromkeys(counts, 0))
        self._told_at = float("-inf")
        self._broken = False

    def tell(self, state: str, fields: Mapping[str, Any]) -> bool:
        """Take the state of the last update; True if heartbeat.json was renewed."""
        with self._lock:
            self._told.update(fields, state=state)
            now = self.now()
            if state == "running" and now - self._told_at < TOLD_EVERY_S:
                return False
            self._told_at = now
            self._write("beat" if state == "running" else "end", line=state != "running")
            return True

    def see(self, glance: Glance) -> float:
        """Take note of what the loop does; return for how many seconds nothing has moved."""
        now = self.now()
        if glance != self._marks:
            self._marks, self._moved_at = glance, now
        return now - self._moved_at

    def beat(self, glance: Glance, facts: Mapping[str, Any], event: str = "beat") -> None:
        """Write a line with everything that is known."""
        self.note(glance, facts)
        with self._lock:
            self._write(event, line=True)

    def note(self, glance: Glance, facts: Mapping[str, Any]) -> None:
        """Take note of what is known, for the next line."""
        with self._lock:
            now = self.now()
            self._history.append((now, glance.update, glance.env_steps))
            self._seen.pop("stacks", None)
            self._seen.update(facts, doing=glance.doing, doing_s=max(0.0, now - glance.since))
            self._told.update(update=glance.update, env_steps=glance.env_steps)

    def uptime_s(self) -> float:
        """Return for how many seconds there has been a heartbeat."""
        return self.now() - self._began

    def close(self) -> None:
        """Close the file."""
        with contextlib.suppress(OSError):
            self._lines.close()

    def _write(self, event: str, line: bool) -> None:
        record = plain(self._record(event))
        try:
            if line:
                self._lines.write(record)
                self._lines.flush()
            text = json.dumps(record) + "\n"
            write_atomic(self.directory / "heartbeat.json", text, sync=False)
            self._broken = False
        except HoldfastError as error:
            # Nobody should lose a run for want of a heartbeat; the next one may succeed.
            if not self._broken:
                self.warn(f"No heartbeat: {error}")
            self._broken = True

    def _record(self, event: str) -> dict[str, Any]:
        now = self.now()
        return {
            "schema": SCHEMA,
            "event": event,
            "run": self.directory.name,
            **self._seen,
            **self._told,
            **self._rates(),
            "idle_s": now - self._moved_at,
            "stalls": self.stalls,
            "pid": os.getpid(),
            "at": time.time(),
            "uptime_s": self.uptime_s(),
        }

    def _rates(self) -> dict[str, float]:
        if len(self._history) < 2:
            return {}
        (t0, u0, s0), (t1, u1, s1) = self._history[0], self._history[-1]
        span = max(t1 - t0, 1e-9)
        return {"updates_per_s": (u1 - u0) / span, "env_steps_per_s": (s1 - s0) / span}


INTRODUCTION = """# The heartbeat of a run

This page is made from `src/holdfast/store/heartbeat.py` and `resources.py`. After a change there, type:

    python -m holdfast.store.heartbeat > docs/heartbeat.md

While a run trains, a thread looks at it twice a second and writes a heartbeat every `heartbeat.beat_s` (10 s).

When nothing has moved for `heartbeat.stall_s` (300 s), the Python stacks of all threads and of all worker processes are
written to `stacks/stall-*.txt`, at most once in that time (and in four beats). If the process holds Python's lock
so that not even the watching thread runs, the stacks go to `stacks/held-PID.txt`.

Steps that take longer than `heartbeat.slow_ms` (250 ms) and than `heartbeat.slow_factor` (20) times the running median
are counted. When `heartbeat.slow_count` (5) of them fall into `heartbeat.slow_window_s` (120 s), all stacks are written to
`stacks/slow-*.txt` while the last one still runs; then not again for `heartbeat.slow_every_s` (600 s).

Every setting: `holdfast train shoal --settings`. Every number may be `null`: it is not known.
"""


def markdown() -> str:
    """Return `docs/heartbeat.md`."""
    from holdfast.store.resources import RESOURCES

    parts = [INTRODUCTION]
    for kind in (HEARTBEAT, HEARTBEATS, RESOURCES):
        rows = [f"## {kind.file}", "", kind.doc, ""]
        if kind is HEARTBEATS:
            rows.append(f"Fields as in `{HEARTBEAT.file}`.")
        else:
            rows += ["| field | type | in every record | meaning |", "|---|---|---|---|"]
            rows += [
                f"| `{f.name}` | {f.type} | {'yes' if f.always else ''} | {f.doc} |"
                for f in kind.fields
            ]
        parts.append("\n".join(rows) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    print(markdown(), end="")
