"""`holdfast study` as a user types it: help, wrong words, --json, and the table on a terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli import main

SHORT = (
    "--games 2 --fish 4 --steps 16 --hidden 8,8 --minibatch 64 --epochs 1 --max-steps 40 --stagger 0 "
    "--probe.episodes 2 --probe.protocol= --probe.best-by return_mean --no-tensorboard --updates 3 --probe.every 1"
).split()


def call(*words: str, cwd: Path) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "holdfast", "study", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=cwd)
    return done.returncode, done.stdout, done.stderr


def test_help_shows_every_option_with_examples(tmp_path: Path) -> None:
    code, said, _ = call("--help", cwd=tmp_path)
    assert code == 0
    for word in ("--seeds", "--vary", "--grid", "--optuna", "--space", "--stable-after", "--jobs"):
        assert word in said
    assert "holdfast study configs/pursuit/best.toml --seeds 1-8" in said


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "What shall be studied?"),
        (["shoal"], 2, "Which seeds?"),
        (["shoal", "--seeds", "x"], 2, "'x' is no seed"),
        (["shoal", "--seeds", "1-2", "--jobs", "0"], 2, "--jobs 0"),
        (["shoal", "--seeds", "1-2", "--jobs", "two"], 2, "invalid int value"),
        (["shoal", "--seeds", "1", "--learner.lrr", "1"], 2, "Did you mean 'lr'?"),
        (["shoal", "--seeds", "1", "--seed", "4"], 2, "write: --seeds"),
        (["shoal", "--seeds", "1", "--run", "x"], 2, "write: --name NAME"),
        (["shoal", "--seeds", "1", "--name", "../x"], 2, "is not allowed"),
        (["shaol", "--seeds", "1"], 2, "shoal"),
        (["nothing.toml", "--seeds", "1"], 2, "is not there"),
        (["shoal", "--seeds", "1", "--vary", "learner.lr"], 2, "two or more values"),
        (["shoal", "--seeds", "1", "--vary", "learner.lr=1,x"], 2, "learner.lr = 'x'"),
        (["shoal", "--seeds", "1", "--vary", "learner.lr=1,1.0"], 2, "are the same run"),
        (["shoal", "--seeds", "1", "--vary", "mood=1,2"], 2, "Unknown key 'mood'"),
        (["shoal", "--seeds", "1", "--grid"], 2, "--grid needs keys"),
        (["shoal", "--seeds", "1", "--space", "learner.lr=log:1:2"], 2, "add --optuna N"),
        (["shoal", "--seeds", "1", "--objective", "last"], 2, "add --optuna N"),
        (["shoal", "--seeds", "1", "--stable-after", "-1"], 2, "--stable-after -1"),
        (["shoal", "--optuna", "3"], 2, "--optuna needs a space"),
        (["shoal", "--optuna", "0", "--space", "learner.lr=log:1:2"], 2, "--optuna 0"),
        (["shoal", "--optuna", "2", "--vary", "learner.lr=1,2"], 2, "does not go with --optuna"),
        (
            ["shoal", "--optuna", "2", "--seeds", "1-2", "--space", "learner.lr=log:1:2"],
            2,
            "one seed",
        ),
        (["shoal", "--optuna", "2", "--space", "learner.lr=log:-1:2"], 2, "begins above 0"),
        (["shoal", "--optuna", "2", "--space", "learner.gamma=float:0:2"], 2, "<= 1"),
    ],
)
def test_wrong_words_are_explained(
    words: list[str],
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        got = main(["study", *words])
    except SystemExit as left:
        got = int(left.code or 0)
    text = capsys.readouterr().err
    assert (got, text.count("error: ")) == (code, 1), text
    assert said in text
    assert not (tmp_path / "runs").exists()


def test_a_directory_that_is_no_study_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "a" / "precious").write_text("x")
    code, _, text = call("shoal", "--seeds", "1", "--name", "a", *SHORT, cwd=tmp_path)
    assert code == 2
    assert "is no study" in text
    assert os.listdir(tmp_path / "runs" / "a") == ["precious"]


def test_json_goes_to_standard_output_and_everything_else_to_standard_error(tmp_path: Path) -> None:
    code, printed, said = call("shoal", "--seeds", "1", "--json", *SHORT, cwd=tmp_path)
    assert code == 0, said
    record = json.loads(printed)
    assert record["name"] == "shoal-study"
    assert record["runs"][0]["state"] == "finished"
    assert record == json.loads((tmp_path / "runs" / "shoal-study" / "study.json").read_text())
    assert "s1  finished  3/3" in said


def test_a_terminal_shows_one_line_a_seed(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "holdfast", "study", "shoal", "--seeds", "1-2", *SHORT]
    env = {k: v for k, v in os.environ.items() if k not in ("CI", "NO_COLOR")}
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=slave,
        cwd=tmp_path,
        env={**env, "TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(slave)
    seen = b""
    while True:
        try:
            got = os.read(master, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not got:
            break
        seen += got
    os.close(master)
    assert process.wait(timeout=60) == 0
    text = seen.decode(errors="replace")
    assert "2 of 2 runs" in text
    for word in ("s1", "s2", "steps/s", "return_mean", "finished", "3/3"):
        assert word in text
