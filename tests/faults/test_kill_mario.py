"""Real SIGKILLs on a mario run from pictures with tail starts: consoles, frames, ledger and learner come back exactly."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from pathlib import Path

from test_kill import events, finish, holdfast, parameters, untimed

KILLS = 3
SMALL = (
    "--observation pixels --games 3 --steps 16 --learner.net small --minibatch 24 --epochs 2 --updates 60 "
    "--checkpoint-every 1 --probe.every 12 --probe.episodes 2 --seed 5 --threads 2 --world.trail-every 8 "
    "--world.stagnation-steps 30 --world.max-steps 200 --world.noops 3 --guards.tails.enabled true "
    "--guards.tails.mine true --guards.tails.share 0.5 --guards.tails.success-fact ground "
    "--guards.tails.success-min 300 --no-tensorboard"
).split()


def newest(run: Path) -> str:
    """Return the name of the newest checkpoint, or nothing."""
    latest = run / "checkpoints" / "LATEST"
    return latest.read_text().strip() if latest.is_file() else ""


def wait_for_checkpoint(process: subprocess.Popen[str], run: Path) -> None:
    """Return when the process has saved an update of its own, or has ended."""
    before = max(newest(run), "u00000000")
    while process.poll() is None and newest(run) <= before:
        time.sleep(0.01)


def test_random_sigkills_leave_the_same_parameters_journal_and_records(tmp_path: Path) -> None:
    words = ["train", "mario", "--run", "r", *SMALL]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    code, said = finish(holdfast(*words, "--runs-dir", str(whole)))
    assert code == 0, said
    dice = random.Random(7)
    for _ in range(KILLS):
        process = holdfast(*words, "--runs-dir", str(killed))
        wait_for_checkpoint(process, killed / "r")
        time.sleep(dice.uniform(0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL, "the run was over: make it longer"
        words = ["resume", "r"]
    code, said = finish(holdfast("resume", "r", "--runs-dir", str(killed)))
    assert code == 0, said
    assert "resumed at update" in said
    assert parameters(killed, "r") == parameters(whole, "r")
    assert events(killed / "r") == events(whole / "r")
    for name in ("metrics.jsonl", "episodes.jsonl", "evals.jsonl"):
        assert untimed(killed / "r", name) == untimed(whole / "r", name), name
    starts = {e["start"]["type"] for e in untimed(whole / "r", "episodes.jsonl")}
    assert "tail" in starts, "no episode began before a place of death"
