"""Every verb on a small run, as a user would type it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast


def call(*words: str, code: int = 0) -> str:
    command = [sys.executable, "-m", "holdfast", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("runs")
    said = call(
        "train", "shoal", "--run", "first", "--games", "8", "--fish", "6", "--steps", "32",
        "--updates", "6", "--probe.every", "3", "--probe.episodes", "2", "--seed", "1", "--json",
        "--runs-dir", str(runs),
    )  # fmt: skip
    assert json.loads(said)["state"] == "finished"
    return runs


def as_json(*words: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(call(*words, "--json"))
    return record


def test_a_run_leaves_everything_that_the_readme_promises(runs: Path) -> None:
    run = runs / "first"
    for name in (
        "run.toml", "journal.jsonl", "metrics.jsonl", "evals.jsonl", "episodes.jsonl",
        "sessions.jsonl", "heartbeat.json", "report.html", "checkpoints/LATEST",
        "media/episode.gif", "media/episode.mp4", "plots/learning.png",
    ):  # fmt: skip
        assert (run / name).is_file(), name
    assert list((run / "tb").glob("events*"))


def test_eval_prints_the_figures_of_the_protocol(runs: Path) -> None:
    record = as_json(
        "eval", "first", "--protocol", "v36", "--episodes", "3", "--seed", "12345",
        "--runs-dir", str(runs),
    )  # fmt: skip
    for name in (
        "avg_final", "min_final", "ed100", "ed150", "p10", "step_one_ratio", "ceiling_avg_final",
        "avoidable_death_fraction",
    ):  # fmt: skip
        assert isinstance(record[name], float), name
    assert record["fish_samples"] == 3 * 96
    low, high = record["intervals"]["avg_final"]
    assert low <= record["avg_final"] <= high <= 1.0


def test_the_same_evaluation_twice_gives_the_same_figures(runs: Path) -> None:
    words = ("eval", "first", "--episodes", "2", "--sampled", "--runs-dir", str(runs))
    assert as_json(*words) == as_json(*words)


def test_runs_and_ckpt_tell_what_is_there(runs: Path) -> None:
    rows = as_json("runs", "--runs-dir", str(runs))["runs"]
    assert [(row["run"], row["state"], row["update"]) for row in rows] == [("first", "finished", 6)]
    shown = as_json("ckpt", "show", "first", "--runs-dir", str(runs))
    assert shown["update"] == 6
    assert len(shown["parameters_sha256"]) == 64
    checked = as_json("ckpt", "verify", "first", "--runs-dir", str(runs))
    assert all(row["problems"] == [] for row in checked["checkpoints"])


def test_the_number_of_threads_does_not_change_the_run(runs: Path, tmp_path: Path) -> None:
    call(
        "train", "shoal", "--run", "one", "--games", "8", "--fish", "6", "--steps", "32",
        "--updates", "6", "--probe.every", "3", "--probe.episodes", "2", "--seed", "1",
        "--threads", "1", "--world.threads", "2", "--no-report", "--runs-dir", str(tmp_path),
    )  # fmt: skip
    one = as_json("ckpt", "show", "one", "--runs-dir", str(tmp_path))
    first = as_json("ckpt", "show", "first", "--runs-dir", str(runs))
    assert one["parameters_sha256"] == first["parameters_sha256"]


def test_a_checkpoint_of_one_learner_loads_in_the_other(runs: Path) -> None:
    from holdfast.learn.options import LearnerConfig
    from holdfast.learn.ppo import TorchLearner
    from holdfast.learn.spec import NetSpec
    from holdfast.rng import Streams
    from holdfast.run import RunDirectory

    state = RunDirectory(runs / "first").checkpoints().find(None).load()["learner"]
    config = LearnerConfig(kind="torch", normalise_rewards=True)
    torch = TorchLearner(NetSpec.from_state(state["spec"]), config, Streams(0), slots=48)
    torch.load_state_dict(state)
    assert torch.state_dict()["optimiser"]["step"] == state["optimiser"]["step"] > 0


def test_the_python_interface_gives_the_same_policy(runs: Path) -> None:
    policy = holdfast.load_policy("first", runs_dir=runs)
    world = holdfast.make("shoal", games=2, fish=3, seed=0)
    obs, _ = world.reset(seed=4)
    actions = policy.act(obs)
    assert actions.shape == (6,)
    assert (policy.act(obs) == actions).all()


def test_doctor_examines_an_environment() -> None:
    report = as_json("doctor", "CartPole-v1")
    assert report["problems"] == []
    assert report["saves_state"] is False
    assert report["env_steps_per_s"] > 0


def test_settings_are_listed_with_their_meaning() -> None:
    text = call("train", "shoal", "--settings")
    assert "--learner.lr" in text
    assert "Learning rate (above 0)" in text
    assert "--world.fish 25" in text


def test_numbers_that_blow_up_are_rolled_back_and_stop_the_run(tmp_path: Path) -> None:
    words = (
        "train", "CartPole-v1", "--run", "boom", "--lr", "1e38", "--updates", "9", "--steps", "16",
        "--probe.every", "0", "--no-report", "--runs-dir", str(tmp_path),
    )  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *words], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 4, done.stderr
    assert "non-finite" in done.stderr
    assert "Traceback" not in done.stderr
    policy = holdfast.load_policy("boom", runs_dir=tmp_path, latest=True)
    import numpy as np

    assert all(np.isfinite(value).all() for value in policy.parameters.values())
    journal = (tmp_path / "boom" / "journal.jsonl").read_text()
    assert '"kind":"rollback"' in journal
    assert '"kind":"stop"' in journal
