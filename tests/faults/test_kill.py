"""Real processes, real signals: a run that is killed at random moments ends like one that was not."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.run import RunDirectory
from holdfast.store.checkpoint import parameters_sha256
from holdfast.store.journal import read_lines

SMALL = (
    "--games 4 --fish 6 --steps 16 --hidden 16,16 --minibatch 64 --epochs 2 --updates 240 "
    "--checkpoint-every 3 --probe.every 100 --probe.episodes 2 --seed 5 --stagger 64 --threads 2"
).split()


def holdfast(*words: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "holdfast", *words, "--plain", "--no-report"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, said = process.communicate(timeout=300)
    return process.returncode, said


def events(run: Path) -> list[dict[str, Any]]:
    return [
        {k: v for k, v in line.items() if k != "at"} for line in read_lines(run / "journal.jsonl")
    ]


def untimed(run: Path, name: str) -> list[dict[str, Any]]:
    return [
        {k: v for k, v in line.items() if not k.startswith("time/")}
        for line in read_lines(run / name)
    ]


def parameters(runs: Path, name: str) -> str:
    """Return one hash over the parameters that the newest checkpoint holds."""
    return parameters_sha256(RunDirectory(runs / name).checkpoints().find(None).load())


def newest(run: Path) -> int:
    """Return the update of the newest checkpoint, 0 if there is none."""
    names = (path.name for path in (run / "checkpoints").glob("u????????"))
    return max((int(name[1:]) for name in names), default=0)


def wait_for_training(process: subprocess.Popen[str], run: Path, updates: int = 1) -> None:
    """Return when a checkpoint says that so many updates were made since the process was started, or it has ended.

    Checkpoints, because the heartbeat comes by the clock: on a fast machine a run is over after a few of them.
    """
    goal = newest(run) + updates
    while process.poll() is None and newest(run) < goal:
        time.sleep(0.002)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("whole")
    code, said = finish(holdfast("train", "shoal", "--run", "r", *SMALL, "--runs-dir", str(runs)))
    assert code == 0, said
    return runs


def test_twenty_sigkills_leave_the_same_parameters_journal_and_records(
    reference: Path, tmp_path: Path
) -> None:
    dice = random.Random(1)
    kills, run = 0, tmp_path / "r"
    words = ["train", "shoal", "--run", "r", *SMALL]
    while kills < 20:
        process = holdfast(*words, "--runs-dir", str(tmp_path))
        if kills == 7:
            time.sleep(dice.uniform(0, 0.5))  # sometimes before training begins at all
        else:
            # Updates, not time, so that a slow machine comes to a checkpoint too.
            wait_for_training(process, run, dice.randint(1, 5))
            time.sleep(dice.uniform(0, 0.02))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += 1
        if (run / "run.toml").is_file():
            words = ["resume", "r"]
        assert process.returncode in (-signal.SIGKILL, 0)
        if process.returncode == 0:
            break
    assert kills >= 20, f"the run was over after {kills} kills: make it longer"
    code, said = finish(holdfast("resume", "r", "--runs-dir", str(tmp_path)))
    assert code == 0, said
    begun = [line["update"] for line in read_lines(run / "sessions.jsonl") if "resumed" in line]
    assert len(set(begun)) > 5, "it went on from several checkpoints"
    assert parameters(tmp_path, "r") == parameters(reference, "r")
    assert events(run) == events(reference / "r")
    for name in ("metrics.jsonl", "episodes.jsonl", "evals.jsonl"):
        assert untimed(run, name) == untimed(reference / "r", name), name


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_first_signal_finishes_the_update_saves_and_tells(
    number: signal.Signals, reference: Path, tmp_path: Path
) -> None:
    process = holdfast("train", "shoal", "--run", "r", *SMALL, "--runs-dir", str(tmp_path))
    wait_for_training(process, tmp_path / "r")
    process.send_signal(number)
    code, said = finish(process)
    assert code == 128 + number, said
    assert "holdfast resume r" in said
    done = [line["update"] for line in events(tmp_path / "r") if line["event"] == "update"]
    newest = max(p.name for p in (tmp_path / "r" / "checkpoints").glob("u*"))
    assert newest == f"u{done[-1]:08d}"
    code, said = finish(holdfast("resume", "r", "--runs-dir", str(tmp_path)))
    assert code == 0, said
    assert parameters(tmp_path, "r") == parameters(reference, "r")
    assert events(tmp_path / "r") == events(reference / "r")


def test_a_second_trainer_is_refused_and_a_stale_lock_is_not(tmp_path: Path) -> None:
    first = holdfast("train", "shoal", "--run", "r", *SMALL, "--runs-dir", str(tmp_path))
    wait_for_training(first, tmp_path / "r")
    os.kill(first.pid, signal.SIGSTOP)
    code, said = finish(holdfast("resume", "r", "--runs-dir", str(tmp_path)))
    assert code == 5
    assert "Another process trains" in said and str(first.pid) in said
    first.kill()
    os.kill(first.pid, signal.SIGCONT)
    first.communicate()
    code, said = finish(holdfast("resume", "r", "--runs-dir", str(tmp_path)))
    assert code == 0, said


def test_a_finished_run_has_nothing_left_to_do_and_says_so(reference: Path) -> None:
    code, said = finish(holdfast("resume", "r", "--runs-dir", str(reference)))
    assert code == 0
    assert "Nothing left to do: 240 of 240" in said


def test_a_corrupted_newest_checkpoint_is_set_aside_and_the_run_ends_the_same(
    reference: Path, tmp_path: Path
) -> None:
    process = holdfast("train", "shoal", "--run", "r", *SMALL, "--runs-dir", str(tmp_path))
    wait_for_training(process, tmp_path / "r")
    time.sleep(0.3)
    process.kill()
    process.communicate()
    folder = tmp_path / "r" / "checkpoints"
    newest = max(folder.glob("u*"))
    data = bytearray((newest / "tensors.safetensors").read_bytes())
    data[-5] ^= 1
    (newest / "tensors.safetensors").write_bytes(bytes(data))
    code, said = finish(holdfast("resume", "r", "--runs-dir", str(tmp_path)))
    assert code == 0, said
    assert "CORRUPT CHECKPOINT" in said and newest.name in said
    assert (folder / f"corrupt-{newest.name}").is_dir()
    assert parameters(tmp_path, "r") == parameters(reference, "r")
    assert events(tmp_path / "r") == events(reference / "r")
