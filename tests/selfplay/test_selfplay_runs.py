"""Small real runs of self-play: every countermeasure acts, and a killed run comes back exactly."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selfplay_files import cut_back, untimed

import holdfast
from holdfast.errors import ConfigError
from holdfast.learn.restore import learner_states
from holdfast.run import RunDirectory

CONFIG = """
[run]
updates = 30
checkpoint_every = 2
keep_last = 100
tensorboard = false
seed = 2
[world]
name = "pursuit"
games = 8
arena_width = 10.0
arena_height = 10.0
max_steps = 30
fixed_speed = true
n_obstacle_obs = 3
capture_radius = 2.4
[learner]
steps = 16
epochs = 2
minibatch = 64
hidden = [16, 16]
threads = 1
normalise_obs = true
normalise_rewards = true
lr_schedule = "constant"
[probe]
every = 0
episodes = 20
[selfplay]
enabled = true
history = 0.25
pool = "pfsp"
pool_size = 3
pool_every = 2
novelty_roles = ["evader"]
[novelty]
weight = 0.1
[guards.plateau]
enabled = false
"""
PHASES = """
[guards.protocol]
enabled = true
phase_steps = 230
evader_first = true
warm_start_steps = 120
mixed_share = 0.25
protect = 10.0
[guards.protocol.curriculum]
kind = "smooth"
capture_above = 0.05
[guards.collapse]
enabled = true
keep_every = 1
rate_below = 0.4
evaluations = 1
capture_high = 1.0
capture_low = 0.0
wait_steps = 500
[guards.dampen]
enabled = true
"""


def write(folder: Path, more: str) -> Path:
    path = folder / "small.toml"
    path.write_text(CONFIG + more)
    return path


def decisions(run: Path) -> list[dict[str, Any]]:
    lines = (json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == "decision"]


@pytest.fixture(scope="module")
def phased(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("selfplay")
    holdfast.train(str(write(folder, PHASES)), runs_dir=folder, run="whole", say=lambda text: None)
    return folder


def test_every_countermeasure_of_the_protocol_acts(phased: Path) -> None:
    made = decisions(phased / "whole")
    kinds = {line["kind"] for line in made}
    assert {"train_roles", "keep_pair", "rollback", "protect", "stand_in", "set_world"} <= kinds
    values = {line["name"]: line["applied"] for line in made if line["kind"] == "set_world"}
    assert values["max_init_distance"] > 5.0
    assert values["mixed_max_init_distance"] == pytest.approx(values["max_init_distance"] - 0.5)
    both = [line for line in made if line["guard"] == "collapse" and line["kind"] == "rollback"]
    assert both and all(line["role"] == "" for line in both)


def test_only_the_side_whose_turn_it_is_learns(phased: Path) -> None:
    run = RunDirectory(phased / "whole")
    lines = {line["update"]: line for line in untimed(run.path, "metrics.jsonl")}
    held = {c.update: learner_states(c) for c in run.checkpoints().all()}
    touched = {
        line["update"] for line in decisions(run.path) if line["kind"] in ("rollback", "protect")
    }
    seen = set()
    for update in sorted(held):
        if update + 2 not in held or {update + 1, update + 2} & touched:
            continue
        trained = set()
        for u in (update + 1, update + 2):
            trained |= {k.split("/")[1] for k in lines[u] if k.startswith("train/")}
        for role in ("pursuer", "evader"):
            before, after = held[update][role], held[update + 2][role]
            same = all(
                np.array_equal(before["parameters"][k], after["parameters"][k])
                for k in before["parameters"]
            )
            assert same == (role not in trained), (update, role, trained)
            seen.add((role, same))
    assert len(seen) == 4


@pytest.mark.parametrize("at", [3, 8, 13, 18, 23])
def test_a_run_goes_on_exactly_from_any_checkpoint(phased: Path, tmp_path: Path, at: int) -> None:
    copy = cut_back(phased / "whole", tmp_path, at)
    from holdfast.run import resume

    resume("whole", tmp_path, say=lambda text: None)
    files = ("journal.jsonl", "metrics.jsonl", "evals.jsonl", "episodes.jsonl", "selfplay.jsonl")
    for name in files:
        assert untimed(copy, name) == untimed(phased / "whole", name), name


def test_a_killed_run_of_self_play_comes_back_exactly(phased: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "holdfast", "train", str(write(tmp_path, PHASES))]
    words += ["--run", "whole", "--runs-dir", str(tmp_path), "--plain", "--no-report"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    journal = tmp_path / "whole" / "journal.jsonl"
    while process.poll() is None:
        if journal.is_file() and journal.read_text().count('"event":"update"') >= 11:
            os.kill(process.pid, signal.SIGKILL)
            break
    process.wait()
    again = [sys.executable, "-m", "holdfast", "resume", "whole", "--runs-dir", str(tmp_path)]
    subprocess.run([*again, "--plain", "--no-report"], check=True, capture_output=True)
    for name in ("journal.jsonl", "metrics.jsonl", "evals.jsonl", "selfplay.jsonl"):
        assert untimed(tmp_path / "whole", name) == untimed(phased / "whole", name), name


COLD = """
[guards.protocol]
enabled = true
cold_start = true
phase_steps = 230
warm_start_steps = 120
[guards.protocol.curriculum]
kind = "smooth"
capture_above = 0.05
[guards.collapse]
enabled = true
[[phase]]
name = "cold start"
updates = 4
[phase.world]
task = "navigation"
flee_probability = 1.0
[[phase]]
name = "game"
updates = 10
"""


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cold")
    quick = {"runs_dir": folder, "run": "whole", "say": lambda text: None, "checkpoint_every": 1}
    holdfast.train(str(write(folder, COLD)), **quick)
    return folder


def test_the_cold_start_is_evaluated_in_the_game(cold: Path) -> None:
    found = untimed(cold / "whole", "selfplay.jsonl")
    assert [(e["update"], e["phase"], e["role"]) for e in found[:2]] == [
        (4, "S0", "evader"),
        (7, "S1", "pursuer"),
    ]
    kept = {d["name"]: d["value"] for d in decisions(cold / "whole") if d["kind"] == "keep_pair"}
    assert kept["S0:evader"] == {"milestone": True, "score": found[0]["sr_p"]}


@pytest.mark.parametrize("at", [3, 4, 5])
def test_a_run_goes_on_exactly_from_around_its_cold_start(
    cold: Path, tmp_path: Path, at: int
) -> None:
    from holdfast.run import resume

    copy = cut_back(cold / "whole", tmp_path, at)
    resume("whole", tmp_path, say=lambda text: None)
    for name in ("journal.jsonl", "metrics.jsonl", "evals.jsonl", "selfplay.jsonl"):
        assert untimed(copy, name) == untimed(cold / "whole", name), name


def test_both_sides_learn_at_once_and_the_balance_guard_acts(tmp_path: Path) -> None:
    more = """
[guards.balance]
enabled = true
low = 0.9
high = 0.95
[guards.balance.curriculum]
kind = "smooth"
rule = "gap"
increment = 4.0
gap_below = 1.0
gap_evaluations = 1
"""
    path = write(tmp_path, more)
    holdfast.train(
        str(path), runs_dir=tmp_path, run="b", say=lambda text: None, probe__every=5, updates=15
    )
    made = decisions(tmp_path / "b")
    assert ["pursuer"] in [line["applied"] for line in made if line["kind"] == "train_roles"]
    assert any(line["name"] == "n_obstacles" and line["applied"] == 3 for line in made)


PAST = """
[guards.balance]
enabled = true
low = 0.9
high = 0.95
budget = 2
past = 0.8
"""


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixed")
    path = write(folder, PAST)
    settings = {
        "probe__every": 2,
        "updates": 16,
        "run__checkpoint_every": 1,
        "selfplay__tremble": 0.3,
    }
    holdfast.train(str(path), runs_dir=folder, run="whole", say=lambda text: None, **settings)
    return folder


def test_who_learns_alone_meets_past_opponents_in_more_of_its_games(mixed: Path) -> None:
    made = [line for line in decisions(mixed / "whole") if line["kind"] == "mix"]
    assert [(d["role"], d["applied"]) for d in made[:2]] == [("evader", 0.8), ("evader", 0.0)]
    lines = untimed(mixed / "whole", "metrics.jsonl")
    least = min(line["selfplay/evader_past"] for line in lines)
    assert lines[0]["selfplay/evader_past"] == least
    assert max(line["selfplay/evader_past"] for line in lines) > least + 0.3
    assert len({line["selfplay/pursuer_past"] for line in lines}) == 1
    # The evader learns again while guests still play episodes of its seats, and learns nothing from these.
    shares = [line.get("train/evader/masked_share") for line in lines]
    assert any(share for share in shares) and shares[0] == 0.0


@pytest.mark.parametrize("at", [3, 5, 8])
def test_a_run_goes_on_exactly_with_its_guests(mixed: Path, tmp_path: Path, at: int) -> None:
    from holdfast.run import resume

    copy = cut_back(mixed / "whole", tmp_path, at)
    resume("whole", tmp_path, say=lambda text: None)
    for name in ("journal.jsonl", "metrics.jsonl", "evals.jsonl", "selfplay.jsonl"):
        assert untimed(copy, name) == untimed(mixed / "whole", name), name


def test_the_opponent_is_hidden_step_by_step_in_training_and_wholly_in_evaluations(
    tmp_path: Path,
) -> None:
    more = """
[guards.masking]
enabled = true
anneal_steps = 2000
residual = 0.25
"""
    masked = {"world__partial_obs": True, "world__sensing_radius": 2.0, "updates": 14}
    holdfast.train(
        str(write(tmp_path, more)), runs_dir=tmp_path, run="m", say=lambda text: None, **masked
    )
    lines = untimed(tmp_path / "m", "metrics.jsonl")
    chances = [line["world/p_full"] for line in lines]
    steps = [line["env_steps"] for line in lines]
    # What the world reports is what held during the update: the chance that followed from the update before.
    for chance, before in zip(chances[1:], steps[:-1], strict=True):
        assert chance == pytest.approx(0.25 + 0.75 * max(0.0, 1.0 - before / 2000), abs=0.01)
    assert chances[0] == 1.0 and chances[-1] == 0.25
    from holdfast.study.exploit import played_options

    run = RunDirectory(tmp_path / "m")
    turned = run.checkpoints().find(None).load()["progress"]["turned"]
    assert turned["p_full"] == 0.25
    assert played_options(run.config(), turned).p_full == 0.0


def test_a_best_response_plays_the_game_as_it_is(tmp_path: Path) -> None:
    from holdfast.config import resolve
    from holdfast.study.exploit import played_options
    from holdfast.study.response import Effort, response_config

    more = "[guards.masking]\nenabled = true\n"
    masked = [("world.observation", "masked"), ("world.sensing_radius", 2.0)]
    past = [("selfplay.history", 0.5), ("selfplay.tremble", 0.2)]
    config = resolve(str(write(tmp_path, PHASES + more)), [*masked, *past])
    run, options = RunDirectory(tmp_path / "r"), config.world.options
    full = played_options(config, {"max_init_distance": 6.0, "n_obstacles": 0})
    assert full.max_init_distance == pytest.approx(0.8 * math.hypot(10.0, 10.0))
    assert full.n_obstacles == 3
    own = response_config(config, run, 4, "pursuer", options, Effort(), "pursuer-u4")
    assert own.guards.on() == ["nonfinite", "hints"]
    assert own.guards.protocol.phase_steps == 230
    assert own.selfplay.history == own.selfplay.tremble == 0
    assert config.novelty.weight > 0 and own.novelty.weight == own.novelty.last_weight == 0


def test_a_learner_against_a_script_and_against_a_frozen_run(tmp_path: Path) -> None:
    from holdfast.study.exploit import Effort, exploit

    path = write(tmp_path, "")
    quick = {"updates": 4, "say": lambda text: None, "runs_dir": tmp_path}
    holdfast.train(str(path), run="first", selfplay__pursuer="greedy", **quick)
    run = RunDirectory(tmp_path / "first")
    assert list(learner_states(run.checkpoints().find(None))) == ["evader"]
    report = holdfast.evaluate("first", runs_dir=tmp_path, latest=True)
    assert 0 <= report.metrics["capture_rate"] <= 1
    checkpoint, silent = run.checkpoints().find(None), lambda text: None
    with pytest.raises(ConfigError, match=r"'greedy'.*holdfast exploit first --steps 0"):
        exploit(run, checkpoint, Effort(steps=1500, games=20), silent)
    assert exploit(run, checkpoint, Effort(steps=0, games=20), silent).elo is not None
    holdfast.train(str(path), run="second", selfplay__evader="run:first", **quick)
    newest = RunDirectory(tmp_path / "second").checkpoints().find(None)
    assert list(learner_states(newest)) == ["pursuer"]
    assert holdfast.evaluate("second", runs_dir=tmp_path, latest=True).metrics["episodes"] == 20


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pair")
    path = write(folder, "")
    holdfast.train(str(path), runs_dir=folder, run="pair", say=lambda text: None, updates=6)
    return folder


def test_best_responses_never_do_worse_than_the_incumbent(pair: Path) -> None:
    words = [sys.executable, "-m", "holdfast", "exploit", "pair", "--runs-dir", str(pair)]
    words += ["--steps", "1500", "--games", "200", "--checkpoints", "2", "--update", "4", "6"]
    said = subprocess.run([*words, "--json"], check=True, capture_output=True, text=True).stdout
    found = json.loads(said)
    assert [one["update"] for one in found["exploitability"]] == [4, 6]
    for one in found["exploitability"]:
        assert one["value_low"] <= one["incumbent"]["value"] <= one["value_high"]
    assert [grid["of"] for grid in found["starts"]] == ["pursuer", "evader", "relative"]
    assert sum(map(sum, found["starts"][1]["games"])) == 200
    assert found["analysis"]["evaluations"] == 1
    assert len(found["crossplay"]["pursuers"]) == 2
    assert json.loads((pair / "pair" / "selfplay.json").read_text()) == found
    report = (pair / "pair" / "report.html").read_text()
    assert "<h2>Self-play</h2>" in report
    assert "Success by start position" in report
    told = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    for text in ("value interval", "with 95 % confidence", "verdict at epsilon 0.05:", "course:"):
        assert text in told


def test_a_best_response_goes_on_where_it_was_interrupted(pair: Path, tmp_path: Path) -> None:
    from holdfast.study.exploit import Effort, exploit

    effort = Effort(steps=1500, choices=4, games=100, checkpoints=0)
    found, steps = [], []
    for copy in ("whole", "cut"):
        shutil.copytree(pair / "pair", tmp_path / copy / "pair")
    for copy in ("whole", "cut", "cut"):
        run = RunDirectory(tmp_path / copy / "pair")
        made: list[int] = []
        found.append(
            exploit(
                run,
                run.checkpoints().find(None),
                effort,
                lambda text: None,
                lambda what, done, total, made=made: made.append(done),
            )
        )
        steps.append(len(made))
        if copy == "cut" and len(found) == 2:
            response = RunDirectory(run.path / "exploit" / "evader-u6")
            for checkpoint in response.checkpoints().all():
                if checkpoint.update > 4:
                    shutil.rmtree(checkpoint.path)
    assert found[0].exploitability[0].evader == found[2].exploitability[0].evader
    assert steps[0] == steps[1] == 24
    assert 0 < steps[2] < 12
    # Where games were won is told of the newest pair that was measured.
    run = RunDirectory(tmp_path / "whole" / "pair")
    none = Effort(steps=0, games=50, checkpoints=0)
    assert exploit(run, run.checkpoints().find(4), none, print).starts == found[0].starts
    assert exploit(run, run.checkpoints().find(6), none, print).starts != found[0].starts
