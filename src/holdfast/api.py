"""The Python interface: `make`, `train`, `resume`, `evaluate` and `load_policy` of `holdfast`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.config import Config, check_text, resolve
from holdfast.errors import ConfigError
from holdfast.learn.policy import Policy
from holdfast.learn.restore import policy_from_checkpoint, policy_of
from holdfast.learn.roles import RolePolicies
from holdfast.probes.runner import draw_seeds, run_probe
from holdfast.records import EvalReport
from holdfast.run import Outcome, RunDirectory, probe_spec, start
from holdfast.run import resume as go_on
from holdfast.selfplay.opponents import frozen_of, scripts_of
from holdfast.store.checkpoint import Checkpoint
from holdfast.store.journal import read_lines
from holdfast.store.weights import SPEC, read_source
from holdfast.tables import build
from holdfast.worlds import make_world, options_type, world_type
from holdfast.worlds.contract import World


def make(name: str, *, seed: int = 0, **options: Any) -> World:
    """Return a world (a `gymnasium.vector.VectorEnv`), for example `make("shoal", games=64, fish=25)`."""
    return make_world(name, build(options_type(check_text(name)), options, "world"), seed)


def train(
    target: str,
    *,
    runs_dir: str | Path = "runs",
    show: Callable[[dict[str, Any]], None] = lambda line: None,
    say: Callable[[str], None] = print,
    **settings: Any,
) -> Outcome:
    """Train a new run; settings are dotted keys with `__` for the dot: `train("shoal", updates=60)`.

    `show` is called after every update with its line of `metrics.jsonl`, `say` with what is told to people.
    """
    return start(resolve(target, _overrides(settings)), Path(runs_dir), show, say)


def resume(
    run: str | Path,
    *,
    runs_dir: str | Path = "runs",
    show: Callable[[dict[str, Any]], None] = lambda line: None,
    say: Callable[[str], None] = print,
    **settings: Any,
) -> Outcome:
    """Go on with a run from its newest intact checkpoint; settings as in `train`, such as `updates=200`."""
    directory = directory_of(run, runs_dir).path
    return go_on(directory.name, directory.parent, _overrides(settings), show, say)


def _overrides(settings: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(key.replace("__", "."), value) for key, value in settings.items()]


def evaluate(
    run: str | Path,
    *,
    runs_dir: str | Path = "runs",
    protocol: str | None = None,
    episodes: int | None = None,
    seed: int | None = None,
    update: int | None = None,
    latest: bool = False,
    deterministic: bool | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> EvalReport:
    """Evaluate a checkpoint (the best one by default) and return the report with intervals.

    Played like the run's own probes, with the world values that guards had turned by then, unless a `protocol` is named;
    `deterministic` takes the best actions, or samples them.
    `progress` is told after every step how many episodes of how many are over.
    """
    directory = directory_of(run, runs_dir)
    checkpoint = _checkpoint(directory, update, latest)
    config = directory.config()
    if episodes is not None and episodes < 1:
        raise ConfigError(f"episodes = {episodes} is not allowed. It takes 1 or more.")
    if seed is not None and seed < 0:
        raise ConfigError(f"seed = {seed} is not allowed. It takes 0 or more.")
    spec = replace(
        probe_spec(config),
        seeds=draw_seeds(
            config.probe.seed if seed is None else seed, episodes or config.probe.episodes
        ),
        deterministic=config.probe.deterministic if deterministic is None else deterministic,
        protocol=config.probe.protocol if protocol is None else protocol,
        values=values_at(read_lines(directory.path / "evals.jsonl"), checkpoint),
    )
    policy, scripts = players_of(directory, config, checkpoint)
    spec = replace(spec, scripts=scripts)
    env_steps = int(checkpoint.manifest().get("env_steps", 0))
    return run_probe(spec, policy, checkpoint.update, env_steps, progress)


def load_policy(
    run: str | Path,
    *,
    runs_dir: str | Path = "runs",
    update: int | None = None,
    latest: bool = False,
) -> Policy | RolePolicies:
    """Return the frozen policy of a run's best checkpoint (or of `update`, or the newest), or of an exported directory."""
    if (Path(run) / SPEC).is_file():
        return policy_of_weights(Path(run))
    directory = directory_of(run, runs_dir)
    return players_of(directory, directory.config(), _checkpoint(directory, update, latest))[0]


def policy_of_weights(path: Path) -> Policy:
    """Return the policy that `holdfast ckpt export` has written to a directory."""
    weights = read_source(str(path), path.parent).learner("learner")
    return policy_of({"spec": weights.spec, "parameters": weights.parameters, "norm": weights.norm})


def players_of(
    directory: RunDirectory, config: Config, checkpoint: Checkpoint
) -> tuple[Policy | RolePolicies, tuple[tuple[str, str], ...]]:
    """Return the policies that play in a run's evaluations, and the roles that scripts play."""
    kind = world_type(config.world.name)
    policy = policy_from_checkpoint(checkpoint, kind.game_roles)
    if not isinstance(policy, RolePolicies):
        return policy, ()
    roles = policy.roles
    frozen = frozen_of(config.selfplay, roles, directory.path.parent)
    players = {**policy.policies, **{role: policy_of(state) for role, state in frozen.items()}}
    scripts = scripts_of(config.selfplay, roles, kind.scripts)
    return RolePolicies(roles, players), tuple(scripts.items())


def values_at(
    probes: Iterable[Mapping[str, Any]], checkpoint: Checkpoint
) -> tuple[tuple[str, float], ...]:
    """Return the world values that guards had turned: those that the probe of this update was played with, or else those
    that the checkpoint holds; `probes` are the lines of `evals.jsonl`."""
    for line in probes:
        if int(line["update"]) == checkpoint.update:
            values = (line.get("detail") or {}).get("values") or {}
            break
    else:
        values = checkpoint.load()["progress"].get("turned", {})
    return tuple(sorted((str(name), float(value)) for name, value in values.items()))


def directory_of(run: str | Path, runs_dir: str | Path) -> RunDirectory:
    """Return the directory of a run by its name, or by its path."""
    path = Path(run)
    if (path / "run.toml").is_file():
        return RunDirectory(path)
    return RunDirectory.open(Path(runs_dir), str(run))


def _checkpoint(directory: RunDirectory, update: int | None, latest: bool) -> Checkpoint:
    if latest and update is not None:
        raise ConfigError(
            f"The checkpoint of update {update} and the newest one are both asked for. Leave one of them out: update, or "
            "latest."
        )
    checkpoints = directory.checkpoints()
    return checkpoints.find(update) if latest or update is not None else checkpoints.best()
