"""A run is a directory: made once, locked while a process trains in it, resumed from what it holds.

runs/first/
  run.toml         the resolved config
  lock             held (flock) by the process that trains; a dead process holds nothing
  sessions.jsonl   one line when a process begins and one when it ends: pid, update, reason
  journal.jsonl metrics.jsonl episodes.jsonl evals.jsonl heartbeat.json checkpoints/ tb/
  plots/ media/ report.html
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any

from holdfast.config import (
    Config,
    differences,
    from_tables,
    named,
    read_toml,
    to_toml,
    with_changes,
)
from holdfast.errors import ConfigError, HoldfastError, StorageError, nearest
from holdfast.guards import make_guards
from holdfast.guards.stages import TailStage, parse_stages
from holdfast.jit import compiling
from holdfast.learn.learner import make_learner
from holdfast.learn.spec import spec_for
from holdfast.loop import Loop, begin_world, make_plan
from holdfast.probes.runner import ProbeSpec, draw_seeds
from holdfast.rng import Streams
from holdfast.store.checkpoint import Checkpoints
from holdfast.store.files import read_json, storage_errors, write_atomic
from holdfast.store.journal import Lines
from holdfast.store.recorder import Recorder
from holdfast.tables import overlay
from holdfast.worlds import OURS, make_world

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Outcome:
    """How a call of `train` or `resume` ended."""

    directory: Path
    state: str
    """finished, interrupted, out_of_time, or nothing_to_do."""
    exit_code: int
    update: int
    updates: int


class RunDirectory:
    """The directory of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.path.name

    @classmethod
    def create(cls, runs_dir: Path, config: Config) -> RunDirectory:
        """Make the directory of a new run and store its config."""
        path = runs_dir / checked_name(config.run.name)
        if path.exists() and any(path.iterdir()):
            raise ConfigError(
                f"The run '{path.name}' exists already in {runs_dir}. "
                f"Type: holdfast resume {path.name}, or choose another name with --run."
            )
        with storage_errors(path):
            path.mkdir(parents=True, exist_ok=True)
        write_atomic(path / "run.toml", to_toml(config))
        return cls(path)

    @classmethod
    def open(cls, runs_dir: Path, name: str) -> RunDirectory:
        """Return the directory of a run that exists."""
        path = runs_dir / checked_name(name)
        if not (path / "run.toml").is_file():
            have = sorted(p.parent.name for p in runs_dir.glob("*/run.toml"))
            raise StorageError(
                f"There is no run '{name}' in {runs_dir}.{nearest(name, have)} "
                f"There are: {', '.join(have) or 'none'}. "
                "Look elsewhere with --runs-dir, or start one: holdfast train shoal"
            )
        return cls(path)

    def config(self) -> Config:
        """Return the resolved config that the run was made with."""
        return from_tables(read_toml(self.path / "run.toml"))

    def checkpoints(self, config: Config | None = None) -> Checkpoints:
        """Return the run's checkpoints."""
        run = (config or self.config()).run
        return Checkpoints(self.path / "checkpoints", run.keep_last, run.keep_every)

    def heartbeat(self) -> dict[str, Any]:
        """Return the last heartbeat, or an empty dict before the first."""
        path = self.path / "heartbeat.json"
        return dict(read_json(path)) if path.is_file() else {}

    def state(self) -> str:
        """Return running, finished, interrupted, stopped, failed, new, or killed."""
        if self.locked_by() is not None:
            return "running"
        state = str(self.heartbeat().get("state", "new"))
        return "killed" if state == "running" else state

    def locked_by(self) -> dict[str, Any] | None:
        """Return who trains in this run now, or None."""
        path = self.path / "lock"
        if not path.is_file():
            return None
        with open(path) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                try:
                    return dict(json.loads(file.read() or "{}"))
                except ValueError:
                    return {}
        return None

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run for this process; a second trainer is refused."""
        with storage_errors(self.path / "lock"):
            file: IO[str] = open(self.path / "lock", "a+")  # noqa: SIM115 (held while training)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip()
            file.close()
            raise StorageError(
                f"Another process trains in {self.path}: {owner or 'unknown'}. "
                "Wait for it, stop it with Ctrl-C or kill PID, or start a run under another name."
            ) from None
        file.truncate(0)
        file.write(
            json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()})
        )
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
            file.close()


def checked_name(name: str) -> str:
    """Return the name, or raise if it could leave the runs directory."""
    if not NAME.fullmatch(name) or ".." in name:
        raise ConfigError(
            f"The run name {name!r} is not allowed. It takes letters, digits, '.', '_' and '-', begins "
            "with a letter or digit, has at most 100 characters and no '..'; for example: --run first"
        )
    return name


class Interrupt:
    """Turns the first SIGINT or SIGTERM into a request to stop after the update; the second leaves."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.signal: int | None = None
        self._old: dict[int, Any] = {}

    def __enter__(self) -> Interrupt:
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(ValueError):  # not the main thread: the caller handles signals
                self._old[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.signal is not None:
            os._exit(128 + number)
        self.signal = number
        name = signal.Signals(number).name
        self.say(f"{name}: the update is finished and saved first; once more leaves at once.")


def build(config: Config, directory: RunDirectory, show: Any, warn: Callable[[str], None]) -> Loop:
    """Return the loop of a run with all its parts, at update 0."""
    streams = Streams(config.run.seed)
    world = make_world(config.world.name, config.world.options)
    plan = make_plan(config, world.num_envs)
    first = plan.phase(1)
    if first.options != config.world.options:
        world.close()
        world = make_world(config.world.name, first.options)
    begin_world(world, config.run.seed, first)
    spec = spec_for(
        world.single_observation_space,
        world.single_action_space,
        config.learner.hidden,
        config.learner.activation,
        config.learner.shared,
    )
    learner = make_learner(spec, config.learner, streams, world.num_envs)
    stages = load_stages(config)
    warn_of_leaks(config, stages, plan.updates, warn)
    return Loop(
        config=config,
        plan=plan,
        streams=streams,
        world=world,
        learner=learner,
        guards=make_guards(config.guards, stages),
        recorder=Recorder(directory.path, config.run.tensorboard, warn),
        checkpoints=directory.checkpoints(config),
        probe=probe_spec(config),
        show=show,
    )


def load_stages(config: Config) -> list[TailStage]:
    """Return the tail stages of the config with their starts read from their files."""
    specs = parse_stages(config.guards.tails.stages)
    if not specs or not config.guards.tails.enabled:
        return []
    if config.world.name not in OURS:
        raise ConfigError("guards.tails.stages names files of starts, which only our worlds have.")
    reader = importlib.import_module(f"holdfast.worlds.{config.world.name}.starts")
    return [
        TailStage(
            label=spec.label,
            type=spec.type,
            updates=spec.updates,
            starts=tuple(reader.read_starts(spec.path, type=spec.type, label=spec.label)),
            count=spec.count,
        )
        for spec in specs
    ]


def warn_of_leaks(
    config: Config, stages: Sequence[TailStage], updates: int, warn: Callable[[str], None]
) -> None:
    """Say it when tail stages hold seeds that the run's own probes play."""
    probe = config.probe
    probes = updates // probe.every + 1 if probe.every and probe.seeds == "fresh" else 1
    seeds = set(draw_seeds(probe.seed, probe.episodes * probes))
    for stage in stages:
        known = sum(start.seed in seeds for start in stage.starts)
        if known:
            warn(
                f"{known} of {len(stage.starts)} starts of the tail stage '{stage.label}' are seeds of this run's "
                "own probes, which then measure what was trained on. Choose others with --probe.seed."
            )


def probe_spec(config: Config) -> ProbeSpec:
    """Return the probe that the config describes."""
    return ProbeSpec(
        world=config.world.name,
        options=overlay(config.world.options, config.probe.world, "probe.world"),
        seeds=draw_seeds(config.probe.seed, config.probe.episodes),
        deterministic=config.probe.deterministic,
        protocol=config.probe.protocol,
    )


Show = Callable[[dict[str, Any]], None]


def start(
    config: Config,
    runs_dir: Path,
    show: Show = lambda line: None,
    say: Callable[[str], None] = print,
) -> Outcome:
    """Make a new run and train it."""
    if not config.run.name:
        stem = re.sub(r"[^A-Za-z0-9]+", "-", config.world.name).strip("-").lower()
        config = named(config, f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}")
    directory = RunDirectory.create(runs_dir, config)
    say(f"run {directory.path}")
    return _train(directory, config, show, say)


def resume(
    name: str,
    runs_dir: Path,
    overrides: Sequence[tuple[str, Any]] = (),
    show: Show = lambda line: None,
    say: Callable[[str], None] = print,
) -> Outcome:
    """Go on with a run from its newest intact checkpoint."""
    directory = RunDirectory.open(runs_dir, name)
    old = directory.config()
    config = with_changes(old, overrides)
    changes = differences(old, config)
    for line in changes:
        say(f"changed {line}")
    return _train(directory, config, show, say, changes)


def _train(
    directory: RunDirectory,
    config: Config,
    show: Show,
    say: Callable[[str], None],
    changes: Sequence[str] = (),
) -> Outcome:
    with directory.lock(), Interrupt(say) as interrupt:
        checkpoint = directory.checkpoints(config).newest(say)
        loop = build(config, directory, show, say)
        sessions = Lines(directory.path / "sessions.jsonl")
        began = time.monotonic()
        limit = config.run.max_minutes * 60

        def note(event: str, **fields: Any) -> None:
            sessions.write(
                {
                    "event": event,
                    "pid": os.getpid(),
                    "update": loop.progress.update,
                    **fields,
                    "at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                }
            )
            sessions.flush()

        def beat(state: str) -> None:
            loop.recorder.heartbeat(
                state=state,
                update=loop.progress.update,
                updates=loop.total,
                env_steps=loop.progress.env_steps,
            )

        def first_show(line: dict[str, Any]) -> None:
            if compiling.seconds > 1:
                say(f"compiled {compiling.kernels} kernels in {compiling.seconds:.0f} s, once")
            loop.show = show
            show(line)

        def should_stop() -> bool:
            return interrupt.signal is not None or (0 < limit <= time.monotonic() - began)

        try:
            if checkpoint is None:
                loop.recorder.load_state_dict(dict.fromkeys(loop.recorder.lines, 0))
                loop.recorder.journal(
                    "run", 0, world=config.world.name, seed=config.run.seed, updates=loop.total
                )
                loop.begin()
                loop.save(force=True)
            else:
                loop.restore(checkpoint.load())
                if loop.progress.update >= loop.total:
                    say(
                        f"Nothing left to do: {loop.progress.update} of {loop.total} updates are made. "
                        f"For more, type: holdfast resume {directory.name} --updates {2 * loop.total}"
                    )
                    return _outcome(directory, "nothing_to_do", 0, loop)
                say(f"resumed at update {checkpoint.update} of {loop.total} from {checkpoint.path}")
                if not loop.world.saves_state:
                    say(
                        f"{config.world.name} cannot save its state: the run goes on from new episodes, "
                        "not bit for bit."
                    )
                write_atomic(directory.path / "run.toml", to_toml(config))
            loop.recorder.start(checkpoint.update if checkpoint else None)
            note("begin", resumed=checkpoint is not None, changed=list(changes))
            loop.show = first_show
            loop.run(should_stop)
            if loop.progress.update >= loop.total:
                state, code = "finished", 0
            else:
                loop.save(force=True)
                state = "interrupted" if interrupt.signal is not None else "out_of_time"
                code = 128 + interrupt.signal if interrupt.signal is not None else 0
            beat(state)
            note("end", reason=state)
            return _outcome(directory, state, code, loop)
        except HoldfastError as error:
            note("end", reason=type(error).__name__, message=str(error))
            beat("stopped" if error.exit_code == 4 else "failed")
            raise
        finally:
            sessions.close()
            loop.recorder.close()
            loop.world.close()


def _outcome(directory: RunDirectory, state: str, code: int, loop: Loop) -> Outcome:
    return Outcome(directory.path, state, code, loop.progress.update, loop.total)
