"""Faults of foreign environments: what is said about one, how many are borne, and the report at the end."""

from __future__ import annotations

import signal
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from holdfast.errors import ConfigError, EnvironmentFault
from holdfast.worlds.events import Events
from holdfast.worlds.pool_games import GameSpec
from holdfast.worlds.pool_player import GameError

HOUR_S = 3600.0
Reason = Literal["raised", "exited", "killed", "hung"]
OOM = "OutOfMemory"
"""Error type of a worker that the kernel killed for want of memory."""
COUNTERS = ("/sys/fs/cgroup/memory.events", "/proc/vmstat")
"""Where the kernel counts processes that it killed for want of memory: of our group, or of the machine."""


@dataclass(frozen=True)
class Fault:
    """One death or hang of a worker, or one exception of a game."""

    slot: int
    """Worker (process, threads) or game (serial): what restarts are counted by."""
    games: tuple[int, ...]
    """Games whose episodes are lost."""
    game: int
    """The game that was played when it happened."""
    seed: int
    step: int
    phase: str
    reason: Reason
    error_type: str
    error_msg: str
    pid: int = 0
    exitcode: int | None = None
    duration_s: float = 0.0
    stacks: str = ""

    def __str__(self) -> str:
        return (
            f"{self.what} (game {self.game}, seed {self.seed}, step {self.step}, "
            f"pid {self.pid}, games {_span(self.games)})"
        )

    @property
    def out_of_memory(self) -> bool:
        """Whether the machine had no memory left for the environment."""
        return self.error_type in (OOM, "MemoryError")

    @property
    def what(self) -> str:
        """What happened, as the end of a sentence that begins with the environment."""
        if self.reason == "raised":
            return f"raised in {self.phase}: {self.error_msg}"
        return f"{self.error_msg} in {self.phase}"


class PoolFault(EnvironmentFault):
    """The fault that stops a run, with what is known about it."""

    def __init__(self, message: str, fault: Fault) -> None:
        super().__init__(message)
        self.fault = fault


def death(exitcode: int | None) -> tuple[Reason, str, str]:
    """Return reason, type and words for the exit code of a process (negative for a signal)."""
    if exitcode is None:
        return "exited", "Gone", "closed its pipe"
    if exitcode < 0:
        name = _signal_name(-exitcode)
        return "killed", name, f"was killed by {name}"
    return "exited", "Exit", f"exited with code {exitcode}"


def oom_kills(counters: Sequence[str] = COUNTERS) -> int:
    """Return how many processes the kernel has killed for want of memory, as far as it can be known."""
    for path in counters:
        try:
            lines = Path(path).read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, count = line.partition(" ")
            if name == "oom_kill" and count.isdigit():
                return int(count)
    return 0


class Ledger:
    """Counts restarts a slot and an hour, and stops the run when they are too many."""

    def __init__(self, name: str, max_restarts: int, events: Events, contract: str = "") -> None:
        self.name, self.max_restarts, self.events = name, max_restarts, events
        self.contract = contract
        self.faults: deque[Fault] = deque(maxlen=1000)
        self.total = 0
        self.by_phase: Counter[str] = Counter()
        self._times: dict[int, deque[float]] = {}
        self._oom_kills = oom_kills()

    def note(self, fault: Fault) -> None:
        """Record a fault; raise an EnvironmentFault if its slot has had too many, or memory is short."""
        now = time.monotonic()
        if fault.exitcode == -signal.SIGKILL and oom_kills() > self._oom_kills:
            fault = replace(fault, error_type=OOM, error_msg="was killed for want of memory")
        times = self._times.setdefault(fault.slot, deque())
        while times and now - times[0] > HOUR_S:
            times.popleft()
        times.append(now)
        self.faults.append(fault)
        self.total += 1
        self.by_phase[fault.phase] += 1
        self.events.error(
            fault.game,
            fault.phase,
            fault.error_type,
            fault.error_msg,
            fault.duration_s,
            fault.pid or None,
            reason=fault.reason,
            exitcode=fault.exitcode,
            seed=fault.seed,
            step=fault.step,
            stacks=fault.stacks,
        )
        if fault.out_of_memory:
            raise PoolFault(
                f"The environment {self.name} {fault}. Fewer games (--games) need less memory. "
                f"The stacks and all faults are in {self._write_report()}.",
                fault,
            )
        if len(times) > self.max_restarts:
            raise self._exhausted(fault, len(times) - 1)
        self.events.warn(
            f"The environment {self.name} {fault}: replaced, restart {len(times)} of "
            f"{self.max_restarts} this hour; its episodes count as truncated."
        )

    def contract_fault(self, error: GameError, seed: int, step: int) -> EnvironmentFault:
        """Return what a broken contract means: the run stops at once, a restart would not help."""
        self.events.error(
            error.game, error.phase, error.error_type, error.text, seed=seed, step=step
        )
        fault = Fault(
            slot=error.game,
            games=(error.game,),
            game=error.game,
            seed=seed,
            step=step,
            phase=error.phase,
            reason="raised",
            error_type=error.error_type,
            error_msg=error.text,
        )
        self.faults.append(fault)
        self.total += 1
        kept = self.events.record.directory is not None
        report = f" The report is {self._write_report()}." if kept else ""
        return PoolFault(
            f"The environment {self.name} {error.text} (game {error.game}, seed {seed}, step {step}). "
            f"Every observation must fit {self.contract} and every reward must be finite; fix the "
            f"environment, or wrap it, and try 'holdfast doctor' on it.{report}",
            fault,
        )

    def refuse(self, error: GameError, seed: int = 0, step: int = 0) -> None:
        """Raise if the error is one that no restart can mend."""
        if error.kind == "config":
            raise ConfigError(error.text) from None
        if error.kind == "contract":
            raise self.contract_fault(error, seed, step) from None

    def stop(self, fault: Fault, advice: str, stacks: str = "") -> EnvironmentFault:
        """Return the error for a fault that cannot be mended in this mode."""
        self.faults.append(replace(fault, stacks=stacks))
        self.total += 1
        self.by_phase[fault.phase] += 1
        self.events.error(
            fault.game,
            fault.phase,
            fault.error_type,
            fault.error_msg,
            fault.duration_s,
            reason=fault.reason,
            seed=fault.seed,
            step=fault.step,
            stacks=stacks,
        )
        return PoolFault(
            f"The environment {self.name} {fault}. The stacks are in {self._write_report()}. {advice}",
            fault,
        )

    def check_spec(self, first: GameSpec, other: GameSpec, game: int) -> None:
        """Raise if two games of one world have different spaces."""
        if first != other:
            raise EnvironmentFault(
                f"The environment {self.name} has other spaces in game {game} ({other}) than before "
                f"({first}). All games of a world must have the same roles and spaces."
            )

    def _exhausted(self, fault: Fault, restarts: int) -> EnvironmentFault:
        report = self._write_report()
        again = (
            f"It was replaced {restarts} times within the hour, the limit (world.max_restarts = "
            f"{self.max_restarts}). "
            if restarts
            else ""
        )
        return PoolFault(
            f"The environment {self.name} {fault}. {again}The stacks and all faults are in {report}. "
            "Fix the environment, raise --max-restarts or the deadlines (--construct-s, --reset-s, "
            f"--step-s), or look for the cause: holdfast envcheck {self.name}",
            fault,
        )

    def _write_report(self) -> str:
        lines = [f"# Faults of {self.name}", "", f"{self.total} faults; the last ones:", ""]
        for number, fault in enumerate(self.faults, self.total - len(self.faults) + 1):
            lines += [f"## {number}. slot {fault.slot}: {fault}", ""]
            lines += [f"- reason {fault.reason}, exit code {fault.exitcode}"]
            lines += [f"- {fault.duration_s:.2f} s in {fault.phase}", ""]
            if fault.stacks:
                lines += ["```", fault.stacks.rstrip(), "```", ""]
        try:
            path = self.events.place() / f"env_fault_{time.strftime('%Y%m%d-%H%M%S')}.md"
            path.write_text("\n".join(lines))
        except OSError as error:
            return f"no file ({error})"
        return str(path)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _span(games: tuple[int, ...]) -> str:
    return f"{games[0]}-{games[-1]}" if len(games) > 1 else str(games[0]) if games else "none"
