"""A run is a directory: made once, locked while a process trains in it, resumed from what it holds.

runs/first/
  run.toml         the resolved config
  lock             held (flock) by the process that trains; a dead process holds nothing
  sessions.jsonl   one line when a process begins and one when it ends: pid, update, reason
  journal.jsonl metrics.jsonl episodes.jsonl evals.jsonl checkpoints/ tb/
  selfplay.jsonl selfplay.json exploit/     of self-play
  heartbeat.json heartbeat.jsonl resources.jsonl hints.jsonl
  forward.json     how far every action came, if guards.bootstrap.forward_probe asked
  env_events.jsonl env_fault_*.md     of a foreign environment
  stacks/          of a run that stood still or had slow steps
  plots/ media/ report.html
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shlex
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from holdfast.commands import to_type
from holdfast.config import (
    Config,
    check_tables,
    differences,
    from_tables,
    named,
    read_toml,
    to_toml,
    with_changes,
)
from holdfast.errors import AssetError, ConfigError, StorageError, UnsafeFileError, nearest
from holdfast.guards import make_guards
from holdfast.guards.hint_rules import ENDLESS
from holdfast.guards.stages import UNTYPED, TailStage, parse_stages, wrong_type
from holdfast.loop import Loop, begin_world
from holdfast.overlap import settled
from holdfast.pace import Say, Show
from holdfast.plan import Plan, make_plan
from holdfast.probes.runner import ProbeSpec, draw_seeds
from holdfast.records import Start
from holdfast.rng import Streams
from holdfast.selfplay.cast import Cast
from holdfast.selfplay.opponents import frozen_of, scripts_of
from holdfast.session import LiveRecorder, Outcome, train
from holdfast.slots import LearningSlots
from holdfast.store.checkpoint import Checkpoints
from holdfast.store.files import read_json, storage_errors, write_atomic
from holdfast.store.heartbeat import Heartbeat
from holdfast.store.recorder import SELFPLAY
from holdfast.tables import overlay
from holdfast.team import make_team
from holdfast.worlds import make_world
from holdfast.worlds.events import Record

__all__ = [
    "Outcome",
    "RunDirectory",
    "build",
    "checked_name",
    "load_stages",
    "probe_spec",
    "resume",
    "start",
]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


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
        if path.is_dir() and any(path.iterdir()):
            if (path / "run.toml").is_file() and cls(path).unbegun():
                raise ConfigError(
                    f"The run '{path.name}' exists already in {runs_dir}, though nothing was trained in it. "
                    f"Look at what stopped it, then type: rm -r {shlex.quote(str(path))}, or choose another name with --run."
                )
            raise ConfigError(
                f"The run '{path.name}' exists already in {runs_dir}. "
                f"Type: {to_type('resume', path)}, or choose another name with --run."
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

    def unbegun(self) -> bool:
        """Return whether nothing was trained in it, and nobody is about to."""
        made = any((self.path / "checkpoints").glob("u*"))
        begun = (self.path / "metrics.jsonl").exists() or (self.path / "sessions.jsonl").exists()
        return not (made or begun) and self.locked_by() is None

    def drop_unbegun(self) -> None:
        """Remove the directory if nothing was trained in it, so that its name is free again."""
        if not any((self.path / "checkpoints").glob("u*")):
            shutil.rmtree(self.path, ignore_errors=True)

    def config(self) -> Config:
        """Return the resolved config that the run was made with."""
        path = self.path / "run.toml"
        return from_tables(check_tables(read_toml(path), str(path)), str(path))

    def checkpoints(self, config: Config | None = None) -> Checkpoints:
        """Return the run's checkpoints."""
        run = (config or self.config()).run
        return Checkpoints(self.path / "checkpoints", run.keep_last, run.keep_every)

    def heartbeat(self) -> dict[str, Any]:
        """Return the last heartbeat, or an empty dict before the first."""
        path = self.path / "heartbeat.json"
        beat = read_json(path) if path.is_file() else {}
        if not isinstance(beat, dict):
            raise StorageError(
                f"{path} holds no heartbeat. The run's next process writes it anew; until then, remove it."
            )
        return beat

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


def build(
    config: Config,
    directory: RunDirectory,
    show: Any,
    warn: Callable[[str], None],
    record: Record | None = None,
    beat: Heartbeat | None = None,
) -> Loop:
    """Return the loop of a run with all its parts, at update 0.

    `record` says where a foreign world writes its events, `beat` keeps the heartbeat.
    """
    streams = Streams(config.run.seed)
    record = record or Record()
    # How many updates a step budget makes depends on the world; the settings of the first phase do not.
    first = make_plan(config, 1).phase(1)
    world = make_world(config.world.name, first.options, record=record.at(first.name))
    roles = world.game_roles
    cast = Cast(
        config.selfplay,
        world,
        streams,
        scripts_of(config.selfplay, roles, world.scripts),
        frozen_of(config.selfplay, roles, directory.path.parent),
    )
    plan = make_plan(config, LearningSlots(config, world, first.options))
    begin_world(world, config.run.seed, plan.phase(1))
    for idle in filter(None, (cast.idle_history(), cast.idle_tremble())):
        warn(idle)
    stages = load_stages(config, held=bool(directory.checkpoints(config).all()))
    warn_of_leaks(config, stages, plan.updates, warn)
    warn_of_gate(config, plan, warn)
    more = (SELFPLAY,) if config.selfplay.enabled else ()
    recorder = LiveRecorder(
        directory.path, config.run.tensorboard, warn, config.run.sinks, more=more
    )
    recorder.beat = beat if beat is not None else Heartbeat(directory.path)
    return Loop(
        config=config,
        plan=plan,
        streams=streams,
        world=world,
        team=make_team(config, world, streams),
        cast=cast,
        guards=make_guards(config.guards, stages, config.world.options),
        recorder=recorder,
        checkpoints=directory.checkpoints(config),
        probe_spec=replace(probe_spec(config), scripts=tuple(cast.scripts.items())),
        show=show,
        events=record,
    )


def load_stages(config: Config, held: bool = False) -> list[TailStage]:
    """Return the tail stages of the config with their starts read from their files, which must fit every phase.

    A run with checkpoints has its starts there (`held`): it goes on without a file that is no longer there.
    """
    specs = parse_stages(config.guards.tails.stages)
    if not specs or not config.guards.tails.enabled:
        return []
    if config.world.name != "shoal":
        raise ConfigError(
            "guards.tails.stages names files of starts, which only shoal has. In other worlds a run finds its own: "
            "--guards.tails.mine true"
        )
    from holdfast.worlds.shoal.starts import check_fish, read_starts

    stages, phases = [], make_plan(config, 1).phases
    for spec in specs:
        if held and not Path(spec.path).exists():
            starts = [Start(id=spec.label, type=UNTYPED)]  # its place is taken by the checkpoint's
        else:
            typed = "" if spec.type == UNTYPED else spec.type
            starts = read_starts(spec.path, type=typed, label=spec.label)
            for phase in phases:
                check_fish(starts, phase.options.fish, f"{spec.path}, phase {phase.name}")
        types = {start.type for start in starts}
        kind = types.pop() if spec.type == UNTYPED and len(types) == 1 else spec.type
        if wrong := wrong_type(kind):
            raise ConfigError(
                f"{spec.path}: {wrong}. Name another in the stage, for example: {spec.path}|type=tail"
            )
        stages.append(TailStage(spec.label, kind, spec.updates, tuple(starts), spec.count))
    return stages


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


def warn_of_gate(config: Config, plan: Plan, warn: Callable[[str], None]) -> None:
    """Say it when the gate already allows every phase of the run at its first stage."""
    gate, phases = config.guards.gate, len(plan.phases)
    limits = gate.enabled and gate.allowance and gate.required_successes
    if limits and min(gate.allowance) >= phases and not config.guards.boost.stage_floors:
        warn(
            f"guards.gate limits nothing: its first stage allows phases up to {min(gate.allowance)}, and the run has "
            f"{phases}. Allow fewer with --guards.gate.allowance, or make phases with --plan.curriculum."
        )


def probe_spec(config: Config) -> ProbeSpec:
    """Return the probe that the config describes."""
    return ProbeSpec(
        world=config.world.name,
        options=overlay(config.world.options, config.probe.world, "probe.world"),
        seeds=draw_seeds(config.probe.seed, config.probe.episodes),
        deterministic=config.probe.deterministic,
        protocol=config.probe.protocol,
        longest=ENDLESS * config.guards.hints.longest_episode,
    )


def start(
    config: Config,
    runs_dir: Path,
    show: Show = lambda line: None,
    say: Say = print,
) -> Outcome:
    """Make a new run and train it; one that is too slow for `run.min_sps` is not even begun."""
    from holdfast.refuse import refuse_unfit

    refuse_unfit(config, runs_dir)
    refuse_hopeless(config, runs_dir)
    if not config.run.name:
        config = named(config, free_name(config.world.name, runs_dir))
    config, forward = find_forward(config, say)
    config = settled(config)
    directory = RunDirectory.create(runs_dir, config)
    if forward:
        write_atomic(directory.path / "forward.json", json.dumps(forward, indent=2) + "\n")
    say(f"run {directory.path}")
    try:
        return train(directory, config, build, show, say)
    except (ConfigError, AssetError, StorageError, UnsafeFileError):
        directory.drop_unbegun()
        raise


def free_name(world: str, runs_dir: Path) -> str:
    """Return a name from the world and the time that no run has yet."""
    stem = re.sub(r"[^A-Za-z0-9]+", "-", world).strip("-").lower()
    name = f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    names = (name, *(f"{name}-{k}" for k in range(2, 1000)))
    return next(found for found in names if not (runs_dir / found).exists())


def resume(
    name: str,
    runs_dir: Path,
    overrides: Sequence[tuple[str, Any]] = (),
    show: Show = lambda line: None,
    say: Say = print,
) -> Outcome:
    """Go on with a run from its newest intact checkpoint."""
    directory = RunDirectory.open(runs_dir, name)
    old = directory.config()
    config = with_changes(old, overrides)
    changes = differences(old, config)
    for line in changes:
        say(f"changed {line}")
    refuse_hopeless(config, runs_dir)
    return train(directory, config, build, show, say, changes)


def refuse_hopeless(config: Config, runs_dir: Path) -> None:
    """Raise if the run would be slower than `run.min_sps`."""
    if config.run.min_sps > 0:
        from holdfast.preflight import check_speed

        check_speed(config, runs_dir)


def find_forward(config: Config, say: Say) -> tuple[Config, dict[str, Any]]:
    """Return the config with the action that runs forward, and the report of the probe that found it, if one was made."""
    bootstrap = config.guards.bootstrap
    if not bootstrap.enabled or not bootstrap.forward_probe or bootstrap.forward:
        return config, {}
    from holdfast.probes.forward import probe_forward

    report = probe_forward(config.world.options, bootstrap.forward_probe)
    say(str(report))
    guards = replace(config.guards, bootstrap=replace(bootstrap, forward=report.best))
    return replace(config, guards=guards), report.record()
