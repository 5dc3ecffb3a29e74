"""The thread that watches a run: it looks twice a second from outside, and never waits for what it watches.

It keeps the heartbeat (store/heartbeat.py), samples what the run uses (store/resources.py), writes down all stacks when
nothing moves (`stacks/stall-*.txt`), counts rollouts and learner steps that take far longer than usual
(worlds/pool_slow.py), and gives the hints that need a clock (`hints.jsonl`).
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from holdfast.errors import HoldfastError
from holdfast.guards.hint_rules import WALL_RULES, Table
from holdfast.loop import Loop
from holdfast.store.checkpoint import LATEST
from holdfast.store.heartbeat import Glance, Heartbeat, HeartbeatConfig
from holdfast.store.journal import Lines, read_lines
from holdfast.store.resources import RESOURCES, Monitor
from holdfast.worlds.pool_slow import FOLDER, SlowSteps, Usual, write_stacks

LOOK_S = 0.5
HINT_EVERY_S = 3600
"""Seconds before the same hint about the machine is given again."""
TIMED = ("collect", "learn")
"""What may be slow; a probe or a checkpoint takes as long as it takes."""


class Lookout:
    """Watches one loop; use it in a `with` block."""

    def __init__(
        self,
        loop: Loop,
        heartbeat: Heartbeat,
        config: HeartbeatConfig,
        slow: SlowSteps,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.loop, self.heartbeat, self.config, self.slow, self.say = (
            loop, heartbeat, config, slow, say,
        )  # fmt: skip
        self.directory, self.now = heartbeat.directory, heartbeat.now
        self.stall_s = max(config.stall_s, 2 * LOOK_S) if config.stall_s > 0 else 0.0
        self._usual = Usual()
        self._timed_update = 0
        self._stalled = False
        self._dump_from = self._beat_from = float("-inf")
        self._monitor = Monitor(self.directory) if config.resources else None
        self._resources = Lines(self.directory / RESOURCES.file) if config.resources else None
        self._hints = Table(WALL_RULES, HINT_EVERY_S)
        for line in read_lines(self.directory / "hints.jsonl", strict=False):
            self._hints.said[str(line.get("rule"))] = int(line.get("at") or 0)
        self._alarm: IO[str] | None = None
        self._complained = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-lookout", daemon=True)

    def __enter__(self) -> Lookout:
        self._arm()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=5.0)
        self._disarm()
        glance = self.glance()
        if self._stalled and self.heartbeat.see(glance) < self.stall_s:
            self._moves(glance)  # it moved and ended between two looks
        self.heartbeat.note(glance, self.facts(glance))
        if self._resources is not None:
            with contextlib.suppress(OSError):
                self._resources.close()

    def tick(self) -> None:
        """Look once; write what is due."""
        glance, now = self.glance(), self.now()
        idle = self.heartbeat.see(glance)
        self._look_for_slow(glance)
        if self.stall_s and idle >= self.stall_s:
            self._stall(glance, idle, now)
        elif self._stalled:
            self._moves(glance)
        if now >= self._beat_from:
            self._beat_from = now + self.config.beat_s
            facts = self.facts(glance)
            self.heartbeat.beat(glance, facts)
            self._give_hints(glance, facts)
            self._arm()

    def glance(self) -> Glance:
        """Return what is to be seen of the loop now."""
        loop = self.loop
        return Glance(
            loop.doing,
            loop.since,
            loop.progress.update,
            loop.progress.env_steps,
            loop.probe_steps + getattr(loop.world, "steps_made", 0),
        )

    def facts(self, glance: Glance) -> dict[str, Any]:
        """Return what the heartbeat holds besides the state of the loop; write the line of resources."""
        health = self._health()
        found: dict[str, Any] = {
            "workers_alive": int(health.get("pool/workers", 0)),
            "env_restarts": int(health.get("pool/restarts", 0)),
            "policy_lag": self.loop.signals.get("train/policy_lag", 0),
            "slow_steps": self.slow.total,
            "slow_traces": self.slow.traces,
        }
        with contextlib.suppress(OSError):
            written = os.stat(self.directory / "checkpoints" / LATEST).st_mtime
            found["last_checkpoint_age_s"] = max(0.0, time.time() - written)
        if self._monitor is not None and self._resources is not None:
            self.used = self._monitor.sample()
            found.update(rss_mb=self.used["rss_mb"], threads=self.used["threads"])
            where = {"at": time.time(), "update": glance.update, "env_steps": glance.env_steps}
            with contextlib.suppress(HoldfastError):  # a full disk, which the heartbeat reports
                self._resources.write({**where, **self.used})
                self._resources.flush()
        return found

    used: Mapping[str, Any] = {}
    """The last sample of resources."""

    def stacks(self) -> Mapping[str, str]:
        """Return the stacks of the worker processes."""
        ask: Callable[[], Mapping[str, str]] | None = getattr(self.loop.world, "stacks", None)
        return ask() if ask is not None else {}

    def _health(self) -> Mapping[str, float]:
        ask: Callable[[], Mapping[str, float]] | None = getattr(self.loop.world, "health", None)
        return ask() if ask is not None else {}

    def _run(self) -> None:
        while True:
            try:
                self.tick()
            except Exception as error:  # the watcher must neither stop nor disturb what it watches
                if not self._complained:
                    self._complained = True
                    self.say(f"The run cannot be watched: {type(error).__name__}: {error}")
            if self._stop.wait(min(LOOK_S, self.config.beat_s)):
                return

    def _look_for_slow(self, glance: Glance) -> None:
        took = self.loop.signals.get("time/update_s")
        if glance.update != self._timed_update and isinstance(took, float):
            self._timed_update = glance.update
            self._usual.add(took)
        if glance.doing in TIMED:
            what = f"'{glance.doing}' of update {glance.update + 1}"
            self.slow.look(what, glance.since, self._usual, self.stacks)

    def _stall(self, glance: Glance, idle: float, now: float) -> None:
        if now < self._dump_from:
            return
        self._dump_from = now + max(self.stall_s, 4 * self.config.beat_s)
        self._stalled = True
        self.heartbeat.stalls += 1
        text = (
            f"Nothing has moved for {idle:.0f} s (limit {self.stall_s:g} s): in '{glance.doing}' for "
            f"{now - glance.since:.0f} s, after update {glance.update} and {glance.env_steps} env steps"
        )
        path = write_stacks(self.directory, "stall", text, self.stacks)
        where = f" All stacks are in {path}." if path is not None else ""
        self.say(f"{text}.{where}")
        self.heartbeat.beat(glance, {**self.facts(glance), "stacks": str(path or "")}, "stall")

    def _moves(self, glance: Glance) -> None:
        self._stalled = False
        self.say(f"The run moves again, at update {glance.update}.")
        self.heartbeat.beat(glance, self.facts(glance), "moves")

    def _give_hints(self, glance: Glance, facts: Mapping[str, Any]) -> None:
        signals = self.loop.signals
        known: dict[str, Any] = {**self.used, **facts}
        update_s, world_s = signals.get("time/update_s"), signals.get("time/world_s")
        if update_s and world_s is not None:
            known["world_share"] = world_s / update_s
        if "mean_gpu_util_pct" in known:
            known["gpu_util_pct"] = known["mean_gpu_util_pct"]
        hours = max(1.0, self.heartbeat.uptime_s() / 3600)
        known["restarts_an_hour"] = facts["env_restarts"] / hours
        numbers = {k: float(v) for k, v in known.items() if isinstance(v, int | float)}
        clock = int(time.time())
        for hint in self._hints.look(glance.update, numbers, clock):
            self.say(f"hint: {hint.message}")
            with contextlib.suppress(HoldfastError, OSError):
                lines = Lines(self.directory / "hints.jsonl")
                lines.write(
                    {
                        "at": clock,
                        "update": glance.update,
                        "rule": hint.rule.id,
                        "severity": hint.rule.severity,
                        "message": hint.message,
                        "evidence": hint.evidence,
                    }
                )
                lines.close()

    def _arm(self) -> None:
        """Let the stacks be written without Python's help if even this thread gets no turn any more."""
        if not self.stall_s:
            return
        if self._alarm is None:
            try:
                (self.directory / FOLDER).mkdir(exist_ok=True)
                self._alarm = open(self.directory / FOLDER / f"held-{os.getpid()}.txt", "w")  # noqa: SIM115
            except OSError:
                return
        later = self.stall_s + self.config.beat_s
        faulthandler.dump_traceback_later(later, repeat=True, file=self._alarm)

    def _disarm(self) -> None:
        if self._alarm is None:
            return
        faulthandler.cancel_dump_traceback_later()
        path = Path(self._alarm.name)
        self._alarm.close()
        with contextlib.suppress(OSError):
            if path.stat().st_size == 0:
                path.unlink()
                path.parent.rmdir()  # stays if there is anything else in it
