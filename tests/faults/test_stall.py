"""Real runs that stand still: their heartbeat tells, and their stacks are on disk while they hang."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.store.heartbeat import DOING, HEARTBEATS
from holdfast.store.journal import read_lines
from holdfast.store.resources import RESOURCES
from holdfast.store.schema import problems

ENV = """
import ctypes, os, time
import gymnasium as gym
import numpy as np

class Base(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    def reset(self, seed=None, options=None):
        self.t = 0
        return np.zeros(2, np.float32), {}
    def step(self, action):
        self.t += 1
        if self.t == 100 and not os.path.exists("rested"):
            open("rested", "w").close()
            self.rest()
        return np.zeros(2, np.float32), 1.0, False, self.t >= 150, {}

class Sleeper(Base):
    def rest(self):
        time.sleep(6)

class Slow(Base):
    def step(self, action):
        time.sleep(0.02)
        return super().step(action)
    def rest(self):
        pass

class Hog(Base):
    def rest(self):
        ctypes.PyDLL(None).sleep(3)     # holds Python's lock
"""


def train(tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    (tmp_path / "dozing.py").write_text(ENV)
    command = (
        "train {} --run r --updates 6 --steps 32 --games 2 --minibatch 32 --epochs 1 --probe.every 0 "
        "--probe.episodes 1 --plain --no-report --heartbeat.beat-s 0.2 --heartbeat.stall-s 1"
    )
    return subprocess.Popen(
        [sys.executable, "-m", "holdfast", *command.format(words[0]).split(), *words[1:]],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    said = process.communicate(timeout=300)[1]
    assert process.returncode == 0, said
    return said


def beats(run: Path) -> list[dict[str, Any]]:
    return list(read_lines(run / "heartbeat.jsonl"))


@pytest.mark.parametrize("mode", ["serial", "process"])
def test_a_run_whose_environment_sleeps_tells_where_and_goes_on(mode: str, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "r"
    said = finish(train(tmp_path, "dozing:Sleeper", "--mode", mode, "--world.step-s", "30"))
    assert "Nothing has moved for" in said and "The run moves again" in said
    stalls = [line for line in beats(run) if line["event"] == "stall"]
    # A machine that is busy may stand still elsewhere too.
    shown = {line["stacks"]: (tmp_path / line["stacks"]).read_text() for line in stalls}
    asleep = next(line for line in stalls if "in rest" in shown[line["stacks"]])
    assert asleep["doing"] in ("collect", "probe")
    text = shown[asleep["stacks"]]
    assert "dozing.py" in text and ("## worker" in text) == (mode == "process")
    assert len(list((run / "stacks").glob("stall-*.txt"))) == len(stalls)
    assert not list((run / "stacks").glob("held-*"))
    for line in beats(run):
        assert problems(HEARTBEATS, line) == []
        assert line["doing"] in DOING
    for line in read_lines(run / "resources.jsonl"):
        assert problems(RESOURCES, line) == []
    workers = {line["workers_alive"] for line in beats(run)}
    assert (max(workers) == 2) == (mode == "process")
    last = json.loads((run / "heartbeat.json").read_text())
    assert (last["state"], last["update"], last["updates"]) == ("finished", 6, 6)
    assert last["last_checkpoint_age_s"] is not None


def test_a_run_that_holds_pythons_lock_leaves_its_stacks_all_the_same(tmp_path: Path) -> None:
    finish(train(tmp_path, "dozing:Hog", "--mode", "serial"))
    (held,) = (tmp_path / "runs" / "r" / "stacks").glob("held-*.txt")
    assert "in rest" in held.read_text()


def test_the_heartbeat_of_a_killed_run_is_whole(tmp_path: Path) -> None:
    process = train(tmp_path, "dozing:Sleeper", "--mode", "serial")
    run = tmp_path / "runs" / "r"
    end = time.monotonic() + 60
    while time.monotonic() < end and not any(b["event"] == "stall" for b in beats(run)):
        time.sleep(0.05)
    process.kill()
    process.communicate()
    assert problems(HEARTBEATS, json.loads((run / "heartbeat.json").read_text())) == []
    assert (run / "heartbeat.jsonl").read_bytes().endswith(b"\n")
    shown = subprocess.run(
        [sys.executable, "-m", "holdfast", "runs", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(shown.stdout)["runs"][0]["state"] == "killed"


def test_a_long_evaluation_is_no_stall(tmp_path: Path) -> None:
    finish(train(tmp_path, "dozing:Slow", "--mode", "serial", "--updates", "2"))
    lines = beats(tmp_path / "runs" / "r")
    assert [line for line in lines if line["event"] == "stall" and line["doing"] == "probe"] == []
    assert max(line["doing_s"] for line in lines if line["doing"] == "probe") > 1.5
