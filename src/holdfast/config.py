"""The settings of a run: presets, then a TOML file, then dotted overrides; resolved once, then frozen.

    [run]      name, seed, updates, ...          holdfast train shoal --updates 60
    [world]    name, and the world's own options  holdfast train shoal --games 16 --fish 10
    [learner]  PPO and the network                holdfast train shoal --learner.lr 1e-3
    [probe]    evaluation during training         holdfast train shoal --probe.every 10
    [selfplay] one learner a role, opponents      holdfast train pursuit --selfplay.history 0.5
    [novelty]  a bonus for new states             holdfast train pursuit --novelty.weight 0.1
    [guards]   one table a guard                  holdfast train shoal --guards.plateau.patience 50
    [heartbeat] how a run is watched              holdfast train shoal --heartbeat.stall-s 60
    [plan]     a curriculum                       holdfast train shoal --plan.curriculum 15:30,25:70
    [[phase]]  phases one by one, in a file

A key without a section is looked up in run, world, learner, probe, in this order; `--run NAME` is
`run.name`, `--learner KIND` is `learner.kind` and `--threads N` is `learner.threads`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin, get_type_hints

from msgspec import Meta

from holdfast.errors import ConfigError
from holdfast.guards import GuardsConfig
from holdfast.guards.stages import anchor_stages
from holdfast.learn.options import LearnerConfig
from holdfast.learn.rnd import NoveltyConfig
from holdfast.plan import PhaseConfig, PlanConfig, parse_curriculum
from holdfast.presets import preset
from holdfast.selfplay.options import SelfPlayConfig
from holdfast.store.heartbeat import HeartbeatConfig
from holdfast.tables import build, convert, flatten, text, unknown_key
from holdfast.toml_text import toml_text, typed
from holdfast.worlds import check_name, options_type

SECTIONS = (
    "run",
    "world",
    "learner",
    "probe",
    "selfplay",
    "novelty",
    "heartbeat",
    "guards",
    "plan",
    "phase",
)
SHORT = {"run": "run.name", "learner": "learner.kind", "threads": "learner.threads"}
CHANGEABLE = {
    "run.updates",
    "run.env_steps",
    "run.max_minutes",
    "run.keep_last",
    "run.keep_every",
    "run.tensorboard",
    "run.sinks",
    "run.env_progress",
    "run.min_sps",
    "run.prewarm",
    "run.memory_restarts",
    "heartbeat.beat_s",
    "heartbeat.stall_s",
    "heartbeat.slow_ms",
    "heartbeat.slow_factor",
    "heartbeat.slow_count",
    "heartbeat.slow_window_s",
    "heartbeat.slow_every_s",
    "heartbeat.resources",
    "learner.device",
}
"""What may differ when a run is resumed."""
SAME_KINDS = {"auto", "fused", "torch"}
"""Kinds of learners that go on with each other's checkpoints."""


@dataclass(frozen=True)
class RunConfig:
    """Length, seed and record keeping of a run."""

    name: str = ""
    """Name of the run directory; letters, digits, '.', '_' and '-'. Empty takes the world and the time."""
    seed: Annotated[int, Meta(ge=0, lt=2**63)] = 1
    """Root seed; the whole run follows from it."""
    updates: Annotated[int, Meta(ge=1)] = 100
    """Updates to make: one rollout and one learner step each."""
    env_steps: Annotated[int, Meta(ge=0)] = 0
    """Length in steps of all slots that learners play; above 0 it sets `updates`."""
    stagger: Annotated[int, Meta(ge=0)] = 0
    """Steps over which the games are cut once, group by group, at the start of a world, so that games of
    equal length do not stay in step with each other; 0 is off."""
    max_minutes: Annotated[float, Meta(ge=0)] = 0.0
    """Stop cleanly after this time; 0 is no limit."""
    overlap: Literal["auto", "on", "off"] = "auto"
    """Collect the next rollout during an update, with the weights from before it: `on`, `off`, or `auto`: `on` for a
    foreign environment whose games run in worker processes, and for pictures. A new run stores what was chosen."""
    checkpoint_every: Annotated[int, Meta(ge=1)] = 10
    """Updates between checkpoints."""
    keep_last: Annotated[int, Meta(ge=1)] = 3
    """Newest checkpoints that are kept."""
    keep_every: Annotated[int, Meta(ge=0)] = 10
    """Every n-th checkpoint is kept for good; 0 keeps none."""
    tensorboard: bool = True
    """Write TensorBoard event files to the run directory."""
    sinks: tuple[str, ...] = ()
    """Other places that get the metrics: wandb, mlflow, trackio. One that fails never stops training."""
    init_from: str = ""
    """Run or checkpoint whose weights a new run begins with, or one for each role (`pursuer=first,evader=second@60`);
    counters and optimiser begin anew."""
    init_scope: Literal["all", "policy", "trunk"] = "all"
    """What is taken from `init_from`: everything, the policy without the value, or the hidden layers."""
    init_mode: Literal["strict", "shape"] = "strict"
    """`strict` refuses parameters that do not fit, `shape` takes those that do and says which, if they are 95 % or more."""
    min_sps: Annotated[float, Meta(ge=0)] = 0.0
    """Refuse to begin when a two-second estimate gives fewer env steps a second; 0 never refuses."""
    prewarm: Literal["none", "once", "per-stage"] = "none"
    """Build, reset and close one environment before the run: of the first phase (once), or of every phase with
    world options of its own (per-stage). A failure there stops the run."""
    env_progress: Literal["quiet", "summary", "verbose"] = "summary"
    """What is said about environments: nothing, one line when all are ready, or every construction."""
    memory_restarts: Annotated[int, Meta(ge=0, le=4)] = 4
    """How many times a run that is out of memory may begin again with fewer games, steps or samples."""


@dataclass(frozen=True)
class ProbeConfig:
    """Evaluation on fixed seeds during training and at the end."""

    every: Annotated[int, Meta(ge=0)] = 20
    """Updates between probes; 0 probes at the end only."""
    episodes: Annotated[int, Meta(ge=1)] = 12
    """Episodes of one probe."""
    seeds: Literal["fixed", "fresh"] = "fixed"
    """The same seeds at every probe (paired over time), or new ones each time."""
    protocol: str = ""
    """A named protocol of the world (shoal: v36), which fixes some options whatever guards turn; empty takes the run's own."""
    world: dict[str, Any] = field(default_factory=dict)
    """World options that differ in probes, such as `{fish = 96}`; typed as `--probe.world.fish 96`."""
    seed: Annotated[int, Meta(ge=0)] = 411232
    """Seed from which the seeds of the episodes are drawn."""
    deterministic: bool = True
    """Play the best action instead of a sampled one."""
    clips: bool = False
    """Film the best, median and worst episode of every probe (pursuit: nine side by side); foreign environments must draw
    themselves."""
    best_by: str = ""
    """By what the best checkpoint is chosen: 'avg_final', '-ed100' or 'balance>=0.5', joined by commas; of equal ones it is
    the newest. Empty takes the world's main metric."""


@dataclass(frozen=True)
class WorldChoice:
    """Which world, with which options."""

    name: str
    """`shoal`, a Gymnasium id such as `CartPole-v1`, or `module:function`."""
    options: Any
    """The world's own frozen options."""


@dataclass(frozen=True)
class Config:
    """Everything that fixes a run."""

    world: WorldChoice
    run: RunConfig = field(default_factory=RunConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    probe: ProbeConfig = field(default_factory=ProbeConfig)
    selfplay: SelfPlayConfig = field(default_factory=SelfPlayConfig)
    heartbeat: HeartbeatConfig = field(default_factory=HeartbeatConfig)
    novelty: NoveltyConfig = field(default_factory=NoveltyConfig)
    guards: GuardsConfig = field(default_factory=GuardsConfig)
    plan: PlanConfig = field(default_factory=PlanConfig)
    phases: tuple[PhaseConfig, ...] = ()


Tables = dict[str, dict[str, Any]]
LENGTHS = {"updates", "env_steps"}


def check_text(target: Any) -> str:
    """Return the name of a world or a file, or say how an environment is named."""
    if isinstance(target, str):
        return target
    raise ConfigError(
        f"{target!r} is not allowed here. An environment is named by text, so that every worker and every resumed run can "
        "make it: a world, a Gymnasium id, or 'module:function' for a function that returns one."
    )


def resolve(target: str, overrides: Sequence[tuple[str, Any]] = ()) -> Config:
    """Return the config for a world's name or a TOML file, with overrides on top."""
    tables: Tables = {"world": {"name": check_text(target)}}
    if target.endswith(".toml"):
        tables = anchored(check_tables(read_toml(Path(target)), target), Path(target).parent)
    name = world_name(tables, target)
    check_name(name)
    merged = layered(preset(name), tables, overrides, options_type(name))
    if (kind := merged.get("learner", {}).get("kind")) == "sac":
        merged = layered(preset(name, kind), tables, overrides, options_type(name))
    typed = {key.removeprefix("run.").replace("-", "_") for key, _ in overrides}
    if not LENGTHS & typed and (
        "plan.curriculum" in typed or not LENGTHS & set(tables.get("run", {}))
    ):
        length_of_phases(merged)
    return from_tables(merged)


def layered(
    base: Tables, tables: Tables, overrides: Sequence[tuple[str, Any]], options: type
) -> Tables:
    """Return a preset with the tables of a file and overrides laid over it."""
    merged = merge(base, tables)
    if "updates" in tables.get("run", {}) and "env_steps" not in tables["run"]:
        merged["run"].pop("env_steps", None)
    for key, value in overrides:
        set_length(merged, key)
        place(merged, key, value, options)
    return anchored(merged, Path.cwd())


def check_tables(tables: Tables, source: str) -> Tables:
    """Return the tables of a file, or say which of its sections is written as something else."""
    found: Any
    for section, found in tables.items():
        if section == "phase":
            if not (isinstance(found, list) and all(isinstance(phase, dict) for phase in found)):
                raise ConfigError(
                    f"{source}: 'phase' is not a list of tables. Each phase begins with [[phase]], in two pairs of brackets."
                )
        elif section in SECTIONS and not isinstance(found, dict):
            raise ConfigError(
                f"{source}: {section} = {found!r} is no table. Write [{section}], and its settings below."
            )
    return tables


def world_name(tables: Mapping[str, Any], source: str) -> str:
    """Return the name of the world that the tables of a file describe."""
    name = tables.get("world", {}).get("name")
    if isinstance(name, str) and name:
        return name
    raise ConfigError(f'{source}: [world] needs a name, for example: name = "shoal"')


def set_length(tables: Tables, key: str) -> None:
    """Let a number of updates take the place of a number of steps."""
    if key.removeprefix("run.") == "updates":
        tables.get("run", {}).pop("env_steps", None)


def length_of_phases(tables: Tables) -> None:
    """Make a run whose length nobody has said as long as its phases together."""
    curriculum = str(tables.get("plan", {}).get("curriculum", ""))
    phases: Any = tables.get("phase", ())
    listed = [phase.get("updates", 1) for phase in phases]
    listed = listed or [phase.updates for phase in parse_curriculum(curriculum, "")]
    if listed and all(isinstance(count, int) for count in listed):
        tables["run"] = {**tables.get("run", {}), "updates": sum(listed), "env_steps": 0}


def from_tables(tables: Mapping[str, Any], source: str = "The config") -> Config:
    """Return the config that complete tables, read from `source`, describe."""
    unknown = [key for key in tables if key not in SECTIONS]
    if unknown:
        raise ConfigError(unknown_key("", unknown[0], list(SECTIONS)))
    name = world_name(tables, source)
    world = {key: value for key, value in tables["world"].items() if key != "name"}
    return Config(
        world=WorldChoice(name, build(options_type(name), world, "world")),
        run=build(RunConfig, tables.get("run", {}), "run"),
        learner=build(LearnerConfig, tables.get("learner", {}), "learner"),
        probe=build(ProbeConfig, tables.get("probe", {}), "probe"),
        selfplay=build(SelfPlayConfig, tables.get("selfplay", {}), "selfplay"),
        heartbeat=build(HeartbeatConfig, tables.get("heartbeat", {}), "heartbeat"),
        novelty=build(NoveltyConfig, tables.get("novelty", {}), "novelty"),
        guards=build(GuardsConfig, tables.get("guards", {}), "guards"),
        plan=build(PlanConfig, tables.get("plan", {}), "plan"),
        phases=tuple(
            build(PhaseConfig, phase, f"phase {i}")
            for i, phase in enumerate(tables.get("phase", ()), 1)
        ),
    )


def read_toml(path: Path) -> Tables:
    """Return the tables of a TOML file."""
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ConfigError(
            f"The config file {path} is not there. Give a world's name (shoal), a Gymnasium id "
            "(CartPole-v1), 'module:function', or the path of a TOML file."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The config file {path} cannot be read: {error}.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"The config file {path} is not valid TOML: {error}.") from None


def anchored(tables: Tables, folder: Path) -> Tables:
    """Return the tables of a file with the paths that it names made absolute: they are relative to it."""
    stages = tables.get("guards", {}).get("tails", {}).get("stages")
    if isinstance(stages, str):
        tables["guards"]["tails"]["stages"] = anchor_stages(stages, str(folder.resolve()))
    return tables


def merge(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with `top` laid over it, table by table."""
    merged = dict(base)
    for key, value in top.items():
        old = merged.get(key)
        merged[key] = (
            merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
        )
    return merged


def place(tables: dict[str, Any], key: str, value: Any, options: type) -> None:
    """Put one override at its place; a key without a section is looked up in order."""
    sections = {
        "run": RunConfig,
        "world": options,
        "learner": LearnerConfig,
        "probe": ProbeConfig,
        "selfplay": SelfPlayConfig,
        "novelty": NoveltyConfig,
        "heartbeat": HeartbeatConfig,
        "guards": GuardsConfig,
        "plan": PlanConfig,
    }
    key = SHORT.get(key.replace("-", "_"), key.replace("-", "_"))
    parts = key.split(".")
    if len(parts) == 1:
        homes = [s for s in SECTIONS[:4] if key in names(sections[s])]
        if not homes:
            known = [n for s in SECTIONS[:4] for n in names(sections[s])]
            raise ConfigError(unknown_key("", key, known))
        parts = [homes[0], key]
    if parts[0] not in sections:
        raise ConfigError(unknown_key("", parts[0], list(SECTIONS)))
    kind: Any = sections[parts[0]]
    table = tables.setdefault(parts[0], {})
    for depth, part in enumerate(parts[1:-1], 1):
        if get_origin(kind) is not dict:
            if part not in names(kind):
                raise ConfigError(unknown_key(".".join(parts[:depth]), part, names(kind)))
            # In `probe.world` stand options of the world; any other table holds what its owner understands.
            within = parts[: depth + 1] == ["probe", "world"]
            kind = options if within else get_type_hints(kind)[part]
        table = table.setdefault(part, {})
        if get_origin(kind) is dict and not isinstance(table, dict):
            raise ConfigError(
                f"{'.'.join(parts[: depth + 1])} = {table!r} must be a table of settings."
            )
    last = parts[-1]
    if get_origin(kind) is dict:
        table[last] = typed(value)
        return
    if len(parts) == 3 and kind is options and last in names(options):
        value = convert(get_type_hints(options, include_extras=True)[last], value, key)
    if not is_dataclass(kind) or last not in names(kind):
        raise ConfigError(unknown_key(".".join(parts[:-1]), last, names(kind)))
    table[last] = value


def names(kind: Any) -> list[str]:
    """Return the field names of a dataclass."""
    return [f.name for f in fields(kind)] if is_dataclass(kind) else []


def leaves(config: Config) -> dict[str, Any]:
    """Return every setting by its dotted key."""
    found = {"world.name": config.world.name}
    found.update(flatten(config.world.options, "world"))
    for section in SECTIONS:
        if section not in ("world", "phase"):
            found.update(flatten(getattr(config, section), section))
    for i, phase in enumerate(config.phases):
        found.update(flatten(phase, f"phase.{i}"))
    return found


def to_toml(config: Config) -> str:
    """Return the resolved config as TOML that `read_toml` gives back."""
    tables: dict[str, list[str]] = {}
    for key, value in leaves(config).items():
        section, _, name = key.rpartition(".")
        tables.setdefault(section, []).append(f"{name} = {toml_text(value)}")
    heads = {name: "[[phase]]" if name.startswith("phase.") else f"[{name}]" for name in tables}
    return "\n".join(f"{heads[name]}\n" + "\n".join(rows) + "\n" for name, rows in tables.items())


def differences(old: Config, new: Config) -> list[str]:
    """Return one line for every setting that differs."""
    before, after = leaves(old), leaves(new)
    return [
        f"{key}: {text(before.get(key))} -> {text(after.get(key))}"
        for key in sorted(set(before) | set(after))
        if before.get(key) != after.get(key)
    ]


def with_changes(config: Config, overrides: Sequence[tuple[str, Any]]) -> Config:
    """Return the config of a resumed run; only `CHANGEABLE` settings may differ, and the kind of a PPO learner."""
    tables = tomllib.loads(to_toml(config))
    for key, value in overrides:
        set_length(tables, key)
        place(tables, key, value, type(config.world.options))
    changed = from_tables(tables)
    may = set(CHANGEABLE)
    if {config.learner.kind, changed.learner.kind} <= SAME_KINDS:
        may.add("learner.kind")
    refused = [line for line in differences(config, changed) if line.split(":")[0] not in may]
    if refused:
        raise ConfigError(
            "These settings cannot change when a run is resumed:\n  "
            + "\n  ".join(refused)
            + f"\nWhat may change: {', '.join(sorted(may))}. "
            "For the rest, start a new run with 'holdfast train'."
        )
    return changed


def named(config: Config, name: str) -> Config:
    """Return the config with the run's name set."""
    return replace(config, run=replace(config.run, name=name))
