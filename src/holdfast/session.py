"""One process that trains a run: from its last checkpoint to its end, a signal, or an error.

`train` holds the run's lock, turns signals into a clean stop, and goes down the memory ladder when there is not enough
memory. A `Session` is one try: it builds the loop, restores it, watches it, and writes down how it ended.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from holdfast.commands import to_type
from holdfast.config import Config, to_toml
from holdfast.errors import EnvironmentFault, GuardStop, HoldfastError, StorageError
from holdfast.ladder import EVENT, Rung, climb_down, out_of_memory, refitted, same_size
from holdfast.learn.learner import Learner
from holdfast.learn.spec import check_same
from holdfast.lookout import Lookout
from holdfast.loop import Loop
from holdfast.pace import Pace, Say, Show
from holdfast.plan import make_plan
from holdfast.signals import Listener
from holdfast.store.checkpoint import LATEST, Checkpoint, Checkpoints
from holdfast.store.files import write_atomic
from holdfast.store.heartbeat import Heartbeat, HeartbeatConfig
from holdfast.store.init_from import initialise
from holdfast.store.journal import Lines, read_lines
from holdfast.store.recorder import Recorder
from holdfast.worlds import prewarm
from holdfast.worlds.events import Record
from holdfast.worlds.pool_slow import SlowRules, SlowSteps


class Directory(Protocol):
    """What a session needs of a run's directory."""

    path: Path

    @property
    def name(self) -> str: ...

    def checkpoints(self, config: Config | None = None) -> Checkpoints: ...

    def lock(self) -> contextlib.AbstractContextManager[None]: ...


class Build(Protocol):
    """Makes the loop of a run, at update 0."""

    def __call__(
        self, config: Config, directory: Any, show: Any, warn: Say, record: Record, beat: Heartbeat
    ) -> Loop: ...


@dataclass(frozen=True)
class Outcome:
    """How a call of `train` or `resume` ended."""

    directory: Path
    state: str
    """finished, interrupted, out_of_time, or nothing_to_do."""
    exit_code: int
    update: int
    updates: int


class LiveRecorder(Recorder):
    """The records of a run whose heartbeat is kept by a `Heartbeat`."""

    beat: Heartbeat

    def heartbeat(self, state: str, **fields: Any) -> None:
        """Tell the heartbeat the state of the last update, and let readers see all lines so far."""
        self._state = state
        if self.beat.tell(state, fields):
            for lines in self.lines.values():
                lines.flush()


class Interrupt(Listener):
    """Turns the first SIGINT or SIGTERM into a request to stop after the update; the second leaves."""

    def __init__(self, say: Say) -> None:
        super().__init__()
        self.say = say
        self.signal: int | None = None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            os._exit(128 + number)
        self.signal = number
        name = signal.Signals(number).name
        self.say(f"{name}: the update is finished and saved first; once more leaves at once.")


def train(
    directory: Directory,
    config: Config,
    build: Build,
    show: Show,
    say: Say,
    changes: Sequence[str] = (),
) -> Outcome:
    """Train a run until it is done, asked to stop, or fails; begin again with less if memory is short."""
    rung: Rung | None = None
    began = time.monotonic()
    with directory.lock(), Interrupt(say) as interrupt, quiet_tensorboard():
        while True:
            session = Session(directory, config, build, show, say, interrupt, began)
            try:
                return session.train(changes, rung)
            except Exception as error:
                if not out_of_memory(error):
                    raise
                reason, failure = f"{type(error).__name__}: {error}", _without_frames(error)
            # The frames of the error, and with them what it held, are gone here.
            del session
            _free()
            rung = climb_down(config, directory.path)
            with noted(directory.path) as note:
                if rung is None:
                    note("end", reason="out_of_memory", message=reason)
                    raise failure
                facts = {"restart": rung.number, "tier": rung.tier, "base": asdict(rung.base)}
                note(EVENT, reason=reason, changed=list(rung.changed), **facts)
            config = rung.config
            write_atomic(directory.path / "run.toml", to_toml(config))
            say(
                f"Out of memory ({reason}). Restart {rung.number} of {config.run.memory_restarts} at tier "
                f"{rung.tier}: {'; '.join(rung.changed)}."
            )


@contextlib.contextmanager
def quiet_tensorboard() -> Iterator[None]:
    """Print no traceback when TensorBoard's own thread fails: its writer raises the same when it is next used."""
    usual = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        if not type(args.thread).__module__.startswith("tensorboard."):
            usual(args)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = usual


@contextlib.contextmanager
def noted(directory: Path, update: Callable[[], int] = lambda: 0) -> Iterator[Callable[..., None]]:
    """Yield a function that appends an event to sessions.jsonl; a full disk does not hide the reason of an end."""
    lines = Lines(directory / "sessions.jsonl")

    def note(event: str, **fields: Any) -> None:
        about = {"event": event, "pid": os.getpid(), "update": update()}
        with contextlib.suppress(StorageError) if event == "end" else contextlib.nullcontext():
            lines.write({**about, **fields, "at": time.strftime("%Y-%m-%dT%H:%M:%S%z")})
            lines.flush()

    try:
        yield note
    finally:
        with contextlib.suppress(OSError):
            lines.close()


def refuse_lost(directory: Path) -> None:
    """Raise if this run was begun before: without its checkpoints it would begin anew over its own records."""
    lines = read_lines(directory / "sessions.jsonl", strict=False)
    if (directory / "checkpoints" / LATEST).is_file() or any(x["event"] == "begin" for x in lines):
        raise StorageError(
            f"The checkpoints of {directory} are gone, though the run was begun. Restore one from a backup, or start "
            "a new run under another name."
        )


class Session:
    """One try to train a run."""

    def __init__(
        self,
        directory: Directory,
        config: Config,
        build: Build,
        show: Show,
        say: Say,
        interrupt: Interrupt,
        began: float,
    ) -> None:
        self.directory, self.config, self.build = directory, config, build
        self.show, self.say, self.interrupt, self.began = show, say, interrupt, began
        self.slow = SlowSteps(directory.path, slow_rules(config.heartbeat), say)
        self.record = Record(directory.path, say, config.run.env_progress, slow=self.slow)

    def train(self, changes: Sequence[str], rung: Rung | None) -> Outcome:
        """Go on from the newest intact checkpoint; `rung` says why this try follows another."""
        directory, config, say = self.directory, self.config, self.say
        with contextlib.ExitStack() as stack:
            checkpoint = directory.checkpoints(config).newest(say)
            if checkpoint is None:
                refuse_lost(directory.path)
            beat = Heartbeat(directory.path, warn=say)
            stack.callback(beat.close)
            try:
                prewarm_stages(config, self.record)
                loop = self.build(config, directory, self.show, say, self.record, beat)
            except EnvironmentFault:
                made = checkpoint.update if checkpoint else 0
                beat.tell("failed", {"update": made, "updates": config.run.updates})
                raise
            stack.callback(self._close, loop)
            note = stack.enter_context(noted(directory.path, lambda: loop.progress.update))
            try:
                resized = checkpoint is not None and self._restore(loop, checkpoint)
                if loop.over:
                    say(nothing_left(loop, directory.path))
                    return self._outcome("nothing_to_do", 0, loop)
                with Lookout(loop, beat, config.heartbeat, self.slow, say):
                    if checkpoint is None:
                        self._begin(loop)
                    self._settle(loop, checkpoint, resized, rung)
                    note("begin", resumed=checkpoint is not None, changed=list(changes))
                    state, code = self._run(loop)
                self._tell_state(loop, state)
                note("end", reason=state)
                return self._outcome(state, code, loop)
            except Exception as error:
                self._tell_end(loop, error, note)
                raise

    def _settle(
        self, loop: Loop, checkpoint: Checkpoint | None, resized: bool, rung: Rung | None
    ) -> None:
        """Write down what holds from here on, before the first update."""
        if checkpoint is not None:
            write_atomic(self.directory.path / "run.toml", to_toml(self.config))
        if rung is not None:
            facts = {"restart": rung.number, "tier": rung.tier, "changed": list(rung.changed)}
            loop.recorder.journal(EVENT, loop.progress.update, **facts)
        if resized or checkpoint is None:
            loop.save(force=True)
        loop.recorder.start(checkpoint.update if checkpoint else None)

    def _run(self, loop: Loop) -> tuple[str, int]:
        """Make updates as long as there is something to do; return the state and the exit code."""
        loop.show = Pace(loop, self.show, self.say).show
        limit = self.config.run.max_minutes * 60
        loop.run(lambda: self._stop_now(limit))
        if loop.over:
            return "finished", 0
        loop.save(force=True)
        stopped = self.interrupt.signal
        return ("interrupted", 128 + stopped) if stopped is not None else ("out_of_time", 0)

    def _begin(self, loop: Loop) -> None:
        config = self.config
        loop.recorder.load_state_dict(dict.fromkeys(loop.recorder.lines, 0))
        about = {"world": config.world.name, "seed": config.run.seed, "updates": loop.total}
        loop.recorder.journal("run", 0, **about)
        if config.run.init_from:
            learners = {n: p for n, p in loop.team.parts.items() if isinstance(p, Learner)}
            runs = self.directory.path.parent
            scope, mode = config.run.init_scope, config.run.init_mode
            initialise(learners, loop.recorder, config.run.init_from, runs, scope, mode, self.say)
        loop.begin()

    def _restore(self, loop: Loop, checkpoint: Checkpoint) -> bool:
        """Put the loop where the checkpoint was; True if the world has another size now and begins anew."""
        state = checkpoint.load()
        for name, part in loop.team.parts.items():
            if isinstance(part, Learner) and name in state:
                check_same(state[name]["spec"], part.spec, self.config.world.name)
        loop.enter(loop.plan.phase(max(1, int(state["progress"]["update"]))), restoring=True)
        resized = not same_size(state["collector"], loop.collector.state_dict())
        own = loop.resize(state) if resized else {}
        loop.restore(refitted(state, loop.registry.state_dict()) if resized else state)
        if loop.over:
            return resized
        self.say(f"resumed at update {checkpoint.update} of {loop.total} from {checkpoint.path}")
        loop.replan()
        if resized:
            loop.rebuilt(own)
        if resized or not loop.world.saves_state:
            why = "has another size now" if resized else "cannot save its state"
            self.say(
                f"{self.config.world.name} {why}: the run goes on from new episodes, not bit for bit."
            )
        return resized

    def _stop_now(self, limit: float) -> bool:
        return self.interrupt.signal is not None or 0 < limit <= time.monotonic() - self.began

    def _tell_end(self, loop: Loop, error: Exception, note: Callable[..., None]) -> None:
        """Write down why the run ends; what is no deliberate error leaves its traceback in a file."""
        if out_of_memory(error):
            return
        about = {"reason": type(error).__name__, "message": str(error)}
        if not isinstance(error, HoldfastError):
            path = self.directory.path / f"crash-{time.strftime('%Y%m%d-%H%M%S')}.txt"
            with contextlib.suppress(OSError):
                path.write_text("".join(traceback.format_exception(error)))
                about["traceback"] = path.name
        note("end", **about)
        state = "failed"
        if isinstance(error, GuardStop):
            state, error.directory = "stopped", self.directory.path
        with contextlib.suppress(StorageError):
            self._tell_state(loop, state)

    def _tell_state(self, loop: Loop, state: str) -> None:
        progress = loop.progress
        counts = {"update": progress.update, "updates": loop.total, "env_steps": progress.env_steps}
        loop.recorder.heartbeat(state=state, **counts)

    def _close(self, loop: Loop) -> None:
        try:
            loop.recorder.close()
        except (StorageError, OSError) as error:
            self.say(f"The records could not be closed: {error}")
        finally:
            loop.world.close()

    def _outcome(self, state: str, code: int, loop: Loop) -> Outcome:
        return Outcome(self.directory.path, state, code, loop.progress.update, loop.total)


def nothing_left(loop: Loop, path: Path) -> str:
    """Return why a run does not go on, and what to type for more of it."""
    made, ended = loop.progress.update, loop.progress.finished
    if ended:
        return (
            f"Nothing left to do: the run ended by its own rule after update {made} ({ended}). To go on from what it has "
            f"learned, start a new one with --init-from {path.name}"
        )
    more = to_type("resume", path, "--updates", 2 * max(made, loop.total))
    return f"Nothing left to do: {made} of {loop.total} updates are made. For more, type: {more}"


def slow_rules(config: HeartbeatConfig) -> SlowRules:
    """Return what is slow by the settings of a run."""
    return SlowRules(
        config.slow_ms / 1000,
        config.slow_factor,
        config.slow_count,
        config.slow_window_s,
        config.slow_every_s,
    )


def prewarm_stages(config: Config, record: Record) -> None:
    """Build, reset and close one game of the first phase, or of every phase with options of its own."""
    if config.run.prewarm == "none":
        return
    phases = make_plan(config, 1).phases
    seen: list[Any] = []
    for phase in phases if config.run.prewarm == "per-stage" else phases[:1]:
        if phase.options not in seen:
            seen.append(phase.options)
            prewarm(config.world.name, phase.options, record.at(phase.name))


def _without_frames(error: Exception) -> HoldfastError:
    """Return what to raise if there is no way on: a deliberate error itself, else what it came to."""
    if isinstance(error, HoldfastError):
        return error.with_traceback(None)
    return GuardStop(
        f"The run is out of memory ({type(error).__name__}: {error}), and there is no lower tier left to try "
        "(run.memory_restarts). Ask for fewer --games, --learner.steps or --minibatch in a new run."
    )


def _free() -> None:
    """Give back what the failed try has used."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
