"""Runs that collect ahead, killed at random moments and at exact ones, end like one that was not."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_kill import SMALL, events, finish, holdfast, parameters, untimed, wait_for_training
from test_kill_guards import MOMENTS, MORTAL, config, same, state

__all__ = ["config"]  # the fixture

KILLS = 4


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("whole")
    words = ["train", "shoal", "--run", "r", *SMALL, "--overlap", "on"]
    code, said = finish(holdfast(*words, "--runs-dir", str(runs)))
    assert code == 0, said
    assert {line["train/policy_lag"] for line in untimed(runs / "r", "metrics.jsonl")} == {0, 1}
    return runs


def test_sigkills_leave_the_same_parameters_journal_and_records(
    reference: Path, tmp_path: Path
) -> None:
    dice, run = random.Random(2), tmp_path / "r"
    words = ["train", "shoal", "--run", "r", *SMALL, "--overlap", "on"]
    for _ in range(KILLS):
        process = holdfast(*words, "--runs-dir", str(tmp_path))
        wait_for_training(process, run)
        time.sleep(dice.uniform(0, 0.2))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL, "the run was over: make it longer"
        words = ["resume", "r"]
    code, said = finish(holdfast("resume", "r", "--runs-dir", str(tmp_path)))
    assert code == 0, said
    assert parameters(tmp_path, "r") == parameters(reference, "r")
    assert events(run) == events(reference / "r")
    for name in ("metrics.jsonl", "episodes.jsonl", "evals.jsonl"):
        assert untimed(run, name) == untimed(reference / "r", name), name


def test_sigterm_saves_the_rollout_that_was_played_ahead(reference: Path, tmp_path: Path) -> None:
    words = ["train", "shoal", "--run", "r", *SMALL, "--overlap", "on"]
    process = holdfast(*words, "--runs-dir", str(tmp_path))
    wait_for_training(process, tmp_path / "r")
    process.send_signal(signal.SIGTERM)
    code, said = finish(process)
    assert code == 128 + signal.SIGTERM, said
    code, said = finish(holdfast("resume", "r", "--runs-dir", str(tmp_path)))
    assert code == 0, said
    assert parameters(tmp_path, "r") == parameters(reference, "r")
    assert events(tmp_path / "r") == events(reference / "r")


def test_sigkills_with_every_guard_at_work_leave_everything_exact(
    config: Path, tmp_path: Path
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    words = ["train", str(config), "--run", "r", "--overlap", "on"]
    code, said = finish(holdfast(*words, "--runs-dir", str(whole)))
    assert code == 0, said
    for call, wanted, nth in MOMENTS:
        command = [sys.executable, "-c", MORTAL, call, wanted, str(nth), *words]
        process = subprocess.run(
            [*command, "--plain", "--no-report", "--runs-dir", str(killed)],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert process.returncode == -signal.SIGKILL, (call, wanted, nth, process.stderr)
        words = ["resume", "r"]
    code, said = finish(holdfast("resume", "r", "--runs-dir", str(killed)))
    assert code == 0, said
    assert events(killed / "r") == events(whole / "r")
    for name in ("metrics.jsonl", "episodes.jsonl", "evals.jsonl"):
        assert untimed(killed / "r", name) == untimed(whole / "r", name), name
    ours, theirs = state(killed), state(whole)
    assert ours.keys() == theirs.keys() and "overlap" in theirs
    for name in theirs:
        assert same(ours[name], theirs[name]), name
    last = untimed(whole / "r", "metrics.jsonl")[-1]
    assert last["guard/tails/consumed"] > 20, "the ledger's books agree with what was played"
