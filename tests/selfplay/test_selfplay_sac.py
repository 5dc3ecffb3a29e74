"""Soft actor-critic in self-play: past opponents, frozen ones of another kind, best responses, and what is exported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import holdfast
from holdfast.learn.restore import learner_states, policy_of
from holdfast.run import RunDirectory

SETTINGS: dict[str, Any] = {
    "updates": 6, "seed": 2, "tensorboard": False, "checkpoint_every": 1,
    "games": 8, "arena_width": 10.0, "arena_height": 10.0, "max_steps": 30, "fixed_speed": True,
    "capture_radius": 2.4, "learner__steps": 16, "hidden": (32, 32), "threads": 1, "lr_schedule": "constant",
    "probe__every": 0, "probe__episodes": 4, "selfplay__enabled": True,
}  # fmt: skip
SAC = {"learner": "sac", "learner__sac__warmup": 200, "learner__sac__batch": 32}


def train(folder: Path, run: str, **settings: Any) -> Path:
    more = {**SETTINGS, **settings}
    holdfast.train("pursuit", runs_dir=folder, run=run, say=lambda text: None, **more)
    return folder / run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sac")
    train(folder, "soft", selfplay__history=0.25, selfplay__pool_every=2, **SAC)
    train(folder, "ppo")
    return folder


def test_both_sides_learn_and_meet_their_past(runs: Path) -> None:
    lines = [json.loads(x) for x in (runs / "soft" / "metrics.jsonl").read_text().splitlines()]
    for role in ("pursuer", "evader"):
        assert lines[0][f"train/{role}/minibatches"] == 0, "fewer transitions than the warm-up"
        assert lines[-1][f"train/{role}/minibatches"] == 16
        assert lines[-1][f"selfplay/{role}_pool"] >= 2
        assert lines[-1][f"train/{role}/alpha"] == lines[-1][f"train/{role}/entropy"]


def test_either_kind_plays_against_a_frozen_one_of_the_other(runs: Path) -> None:
    train(runs, "against_ppo", selfplay__evader="run:ppo", **SAC)
    train(runs, "against_soft", selfplay__pursuer="run:soft")
    for run in ("against_ppo", "against_soft"):
        report = holdfast.evaluate(run, runs_dir=runs, episodes=4, seed=5, latest=True)
        assert 0.0 <= report.metrics["capture_rate"] <= 1.0


def test_an_actor_begins_with_the_layers_of_a_ppo_run_and_plays_at_once(runs: Path) -> None:
    run = train(
        runs, "seeded", updates=1, init_from="ppo", init_scope="policy", init_mode="shape", **SAC
    )
    (line,) = [
        json.loads(x)
        for x in (run / "journal.jsonl").read_text().splitlines()
        if '"init"' in x and "learner.evader" in x
    ]
    assert "pi.0.weight" in line["loaded"] and "pi_out.weight" in line["skipped"]
    source = learner_states(RunDirectory(runs / "ppo").checkpoints().find(None))
    mine = learner_states(RunDirectory(run).checkpoints().find(None))
    for name in ("pi.0.weight", "pi.1.bias"):
        np.testing.assert_array_equal(
            mine["evader"]["parameters"][name], source["evader"]["parameters"][name]
        )


def test_best_responses_are_soft_too(runs: Path) -> None:
    words = [sys.executable, "-m", "holdfast", "exploit", "soft", "--runs-dir", str(runs), "--json"]
    words += ["--steps", "1500", "--games", "100", "--checkpoints", "2", "--update", "6"]
    found = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    (one,) = found["exploitability"]
    assert one["value_low"] <= one["incumbent"]["value"] <= one["value_high"]


def test_an_exported_program_answers_as_the_policy_does(runs: Path, tmp_path: Path) -> None:
    words = ["ckpt", "export", "soft", "--runs-dir", str(runs), "--program"]
    words += ["--part", "learner.evader", "--out", str(tmp_path / "out")]
    words = [sys.executable, "-m", "holdfast", *words]
    subprocess.run(words, check=True, capture_output=True)
    about = json.loads((tmp_path / "out" / "policy.json").read_text())
    assert about["action"].startswith("tanh of the first half")
    state = learner_states(RunDirectory(runs / "soft").checkpoints().find(None))["evader"]
    policy = policy_of(state)
    obs = np.random.default_rng(0).normal(size=(5, policy.spec.obs_size)).astype(np.float32)
    program = torch.export.load(tmp_path / "out" / "policy.pt2").module()
    head, value = (part.detach().numpy() for part in program(torch.from_numpy(obs)))
    np.testing.assert_allclose(head, policy._head("pi", obs), atol=1e-5)
    np.testing.assert_allclose(value, policy.values(obs), atol=1e-5)
