"""A run goes on as its user expects: longer, never silently anew, and evaluated as it evaluates itself."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.cli.whatif import decide
from holdfast.commands import to_type
from holdfast.errors import ConfigError, StorageError
from holdfast.guards.whatif import compare
from holdfast.learn.restore import learner_states
from holdfast.run import RunDirectory, resume
from holdfast.store.journal import read_lines

CARTPOLE: dict[str, Any] = {
    "games": 2,
    "learner__steps": 16,
    "world__mode": "serial",
    "probe__every": 0,
    "probe__episodes": 1,
}


def quiet(text: str) -> None:
    pass


@pytest.mark.parametrize(("change", "updates"), [(("updates", 5), 5), (("env_steps", 128), 4)])
def test_a_run_whose_length_is_given_in_steps_can_be_made_longer(
    change: tuple[str, int], updates: int, tmp_path: Path
) -> None:
    holdfast.train("CartPole-v1", runs_dir=tmp_path, run="r", say=quiet, env_steps=64, **CARTPOLE)
    made = resume("r", tmp_path, [change], say=quiet)
    assert (made.state, made.update, made.updates) == ("finished", updates, updates)


@pytest.mark.parametrize("lost", ["u*", "*"])
def test_a_run_whose_checkpoints_are_gone_does_not_begin_anew(lost: str, tmp_path: Path) -> None:
    holdfast.train("CartPole-v1", runs_dir=tmp_path, run="r", say=quiet, updates=2, **CARTPOLE)
    for path in (tmp_path / "r" / "checkpoints").glob(lost):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    before = (tmp_path / "r" / "metrics.jsonl").read_bytes()
    with pytest.raises(StorageError, match="are gone, though the run was begun"):
        resume("r", tmp_path, [("updates", 4)], say=quiet)
    assert (tmp_path / "r" / "metrics.jsonl").read_bytes() == before


def test_a_run_may_not_have_the_name_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(StorageError, match="taken"):
        holdfast.train("CartPole-v1", runs_dir=tmp_path, run="taken", say=quiet, **CARTPOLE)


def test_an_evaluation_samples_as_the_probes_of_its_run_do(tmp_path: Path) -> None:
    settings = {**CARTPOLE, "probe__episodes": 8, "probe__deterministic": False}
    holdfast.train("CartPole-v1", runs_dir=tmp_path, run="r", say=quiet, updates=2, **settings)
    probed = list(read_lines(tmp_path / "r" / "evals.jsonl"))[-1]["metrics"]["return_mean"]
    assert holdfast.evaluate("r", runs_dir=tmp_path).metrics["return_mean"] == probed
    best = holdfast.evaluate("r", runs_dir=tmp_path, deterministic=True)
    assert best.metrics["return_mean"] != probed


def test_commands_to_type_name_the_directory_of_the_runs_unless_it_is_the_usual_one() -> None:
    assert to_type("resume", Path("runs/a"), "--updates", 8) == "holdfast resume a --updates 8"
    assert to_type("watch", Path("my runs/a")) == "holdfast watch a --runs-dir 'my runs'"


@pytest.mark.parametrize("kinds", [("fused", "torch"), ("torch", "fused")])
def test_a_run_goes_on_with_the_other_learner_of_its_algorithm(
    kinds: tuple[str, str], tmp_path: Path
) -> None:
    settings = {**CARTPOLE, "learner__kind": kinds[0], "updates": 2}
    holdfast.train("CartPole-v1", runs_dir=tmp_path, run="r", say=quiet, **settings)
    resume("r", tmp_path, [("updates", 3), ("learner.kind", kinds[1])], say=quiet)
    newest = RunDirectory(tmp_path / "r").checkpoints().find(None)
    learner = learner_states(newest)[""]
    minibatches = [
        line["train/minibatches"] for line in read_lines(tmp_path / "r" / "metrics.jsonl")
    ]
    assert newest.update == 3 and learner["optimiser"]["step"] == sum(minibatches)


def test_a_run_does_not_go_on_with_another_algorithm(tmp_path: Path) -> None:
    holdfast.train("CartPole-v1", runs_dir=tmp_path, run="r", say=quiet, updates=1, **CARTPOLE)
    with pytest.raises(ConfigError, match=r"(?s)cannot change.*learner\.kind"):
        resume("r", tmp_path, [("updates", 2), ("learner.kind", "vtrace")], say=quiet)


SHOAL: dict[str, Any] = {
    "games": 4,
    "fish": 3,
    "learner__steps": 8,
    "hidden": "8",
    "minibatch": 32,
    "epochs": 1,
    "threads": 1,
    "probe__every": 0,
    "probe__episodes": 1,
    "tensorboard": False,
    "guards__density__enabled": True,
    "guards__density__lock_until": 0,
}


def test_a_run_that_ended_with_a_phase_begins_the_next_one_with_its_values(tmp_path: Path) -> None:
    more = {
        "plan__curriculum": "3:2,3:2",
        "guards__density__targets": "0.1,0.2",
        "guards__boost__enabled": True,
        "guards__boost__phase_speeds": "1:0.5,2:0.6",
        "guards__boost__phase_floors": "",
        "guards__boost__floor": 0,
        "guards__boost__penalty_caps": "",
    }
    found = []
    for name in ("whole", "longer"):
        first = 4 if name == "whole" else 2
        holdfast.train(
            "shoal", runs_dir=tmp_path, run=name, say=quiet, updates=first, **SHOAL, **more
        )
        if name == "longer":
            resume(name, tmp_path, [("updates", 4)], say=quiet)
        keys = ("world/density_penalty", "world/escape_boost_speed")
        lines = list(read_lines(tmp_path / name / "metrics.jsonl"))
        found.append([tuple(line[key] for key in keys) for line in lines])
    assert found[0] == found[1] == [(0.1, 0.5), (0.1, 0.5), (0.2, 0.6), (0.2, 0.6)]
    config = RunDirectory(tmp_path / "longer").config()
    journal = read_lines(tmp_path / "longer" / "journal.jsonl")
    assert compare(journal, decide(config, lines, True)[0], ["density", "boost"]) == []


def test_a_world_that_is_made_smaller_keeps_what_guards_have_set(tmp_path: Path) -> None:
    more = {"updates": 2, "guards__density__targets": "0.3"}
    holdfast.train("shoal", runs_dir=tmp_path, run="r", say=quiet, **SHOAL, **more)
    path = tmp_path / "r" / "run.toml"
    path.write_text(path.read_text().replace("games = 4", "games = 3"))
    resume("r", tmp_path, [("updates", 4)], say=quiet)
    lines = list(read_lines(tmp_path / "r" / "metrics.jsonl"))
    assert [line["world/games"] for line in lines] == [4, 4, 3, 3]
    assert [line["world/density_penalty"] for line in lines] == [0.3] * 4


def test_the_checkpoint_of_the_best_probe_is_written_and_kept_whatever_its_turn(
    tmp_path: Path,
) -> None:
    settings = {**CARTPOLE, "probe__every": 1, "probe__episodes": 4, "lr": 0.05, "seed": 3}
    keeping = {"checkpoint_every": 100, "keep_last": 1, "keep_every": 0}
    holdfast.train(
        "CartPole-v1", runs_dir=tmp_path, run="r", say=quiet, updates=6, **settings, **keeping
    )
    evals = list(read_lines(tmp_path / "r" / "evals.jsonl"))
    best = max(evals, key=lambda e: (e["metrics"]["return_mean"], e["update"]))["update"]
    assert 0 < best < 6, "or the last one would be kept anyhow"
    checkpoints = RunDirectory(tmp_path / "r").checkpoints()
    assert [c.update for c in checkpoints.all()] == [best, 6]
    assert checkpoints.best().update == best
