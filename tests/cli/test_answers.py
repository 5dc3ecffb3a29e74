"""`--json` prints JSON and nothing else; options may stand anywhere among the words of a verb."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli import main
from holdfast.cli.answer import answer, answers_alone

LOUD = """
import os
import gymnasium as gym
import numpy as np

print("greetings of a package")

class Loud(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    def reset(self, seed=None, options=None):
        print("a new episode")
        os.write(1, b"from a library in C\\n")
        return np.zeros(2, np.float32), {}
    def step(self, action):
        return self.observation_space.sample(), 0.0, True, False, {}
"""


def test_what_an_environment_prints_is_no_part_of_the_answer(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(LOUD)
    small = "--run a --games 2 --updates 1 --learner.steps 4 --learner.hidden 4 --probe.episodes 1"
    words = f"train loud:Loud --mode serial --no-report --json {small}".split()
    command = [sys.executable, "-m", "holdfast", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["state"] == "finished"
    for noise in ("greetings of a package", "a new episode", "from a library in C"):
        assert noise in done.stderr


def test_numbers_that_are_not_finite_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    with answers_alone():
        print("something else")
        answer({"nan": float("nan"), "high": [float("inf"), 1.0]})
    out, err = capsys.readouterr()
    assert out == '{"nan": null, "high": [null, 1.0]}\n'
    assert err == "something else\n"


def test_options_may_stand_between_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "first"
    run.mkdir()
    (run / "run.toml").write_text('[world]\nname = "shoal"\n')
    (run / "metrics.jsonl").write_text('{"update": 7}\n')
    words = ["metrics", "query", "first", "--runs-dir", str(tmp_path), "--json"]
    assert main([*words, "SELECT max(update) AS most FROM metrics"]) == 0
    assert json.loads(capsys.readouterr().out) == {"columns": ["most"], "rows": [[7]]}


def test_a_damaged_run_does_not_hide_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, beat in (("damaged", "[1]"), ("whole", '{"state": "finished"}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.toml").write_text('[world]\nname = "shoal"\n')
        (tmp_path / name / "heartbeat.json").write_text(beat)
    assert main(["runs", "--json", "--runs-dir", str(tmp_path)]) == 0
    rows = json.loads(capsys.readouterr().out)["runs"]
    assert [row["state"] for row in rows] == ["broken", "finished"]


def test_settings_are_listed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "shoal", "--settings", "--json"]) == 0
    settings = json.loads(capsys.readouterr().out)
    assert settings["run.updates"]["takes"] == "a whole number >= 1"


@pytest.mark.parametrize(
    "words",
    [
        ["shoal", "--updates", "7"],
        ["--updates", "7", "shoal"],
        ["--updates=7", "shoal"],
        ["--updates", "7", "--dry-run", "--seed", "3", "shoal"],
        ["--dry-run", "shoal", "--updates", "7"],
    ],
)
def test_settings_may_stand_before_the_target(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--dry-run", "--json", *words]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["world"], told["phases"][-1]["last"]) == ("shoal", 7)
