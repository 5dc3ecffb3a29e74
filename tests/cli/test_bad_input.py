"""Bad input gives one clear message, the right exit code, and no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def call(*words: str, cwd: Path) -> tuple[int, str]:
    command = [sys.executable, "-m", "holdfast", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=120)
    return done.returncode, done.stdout + done.stderr


ENVS = """
import gymnasium as gym
import numpy as np

class Nan(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    def reset(self, seed=None, options=None):
        return np.zeros(2, np.float32), {}
    def step(self, action):
        return np.array([np.nan, 0], np.float32), 0.0, False, False, {}

class Shape(Nan):
    def step(self, action):
        return np.zeros(5, np.float32), 0.0, False, False, {}

class Crash(Nan):
    def step(self, action):
        raise RuntimeError("the simulator is on fire")

def number():
    return 3
"""


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["tarin"], 2, "Did you mean 'train'"),
        (["train"], 2, "What shall be trained"),
        (["train", "shaol"], 2, "neither a world"),
        (["train", "nowhere.toml"], 2, "is not there"),
        (["train", "shoal", "--updatse", "3"], 2, "Did you mean 'updates'"),
        (["train", "shoal", "--updates", "-5"], 2, "run.updates = '-5'"),
        (["train", "shoal", "--updates", "many"], 2, "whole number"),
        (["train", "shoal", "--games", "-1"], 2, "games"),
        (["train", "shoal", "--fish", "0"], 2, "fish"),
        (["train", "shoal", "--heading-bias", "north"], 2, "heading_bias"),
        (["train", "shoal", "--run", "../evil"], 2, "run name '../evil' is not allowed"),
        (["train", "shoal", "--run", "a/b"], 2, "is not allowed"),
        (["train", "shoal", "oops"], 2, "'oops' is not understood"),
        (["train", "shoal", "--learner", "jax"], 2, "one of auto, torch, fused"),
        (["train", "shoal", "--runs-dir", "/proc/none"], 5, "Cannot write"),
        (["train", "envs:Nan", "--updates", "1"], 6, "NaN or infinity"),
        (["train", "envs:Shape", "--updates", "1"], 6, "shape (5,)"),
        (["train", "envs:Crash", "--updates", "1"], 6, "the simulator is on fire"),
        (["train", "envs:number", "--updates", "1"], 2, "returned a int"),
        (["train", "envs:missing"], 2, "has no function 'missing'"),
        (["resume", "nothing"], 5, "There is no run 'nothing'"),
        (["resume", "../nothing"], 2, "is not allowed"),
        (["eval", "nothing"], 5, "There is no run"),
        (["eval", "nothing", "--episodes", "-3"], 2, "--episodes -3"),
        (["eval", "nothing", "--episodes", "x"], 2, "invalid int value"),
        (["ckpt", "show", "nothing"], 5, "There is no run"),
        (["ckpt", "dance", "nothing"], 2, "invalid choice"),
        (["report", "nothing"], 5, "There is no run"),
        (["bench", "mood"], 2, "invalid choice"),
        (["train", "shoal", "--min-sps", "-1"], 2, "run.min_sps = '-1'"),
        (["train", "shoal", "--env-progress", "loud"], 2, "one of quiet, summary, verbose"),
        (["train", "shoal", "--prewarm", "twice"], 2, "one of none, once, per-stage"),
        (["train", "shoal", "--memory-restarts", "9"], 2, "a whole number >= 0 and <= 4"),
        (["train", "shoal", "--heartbeat.stall-s", "never"], 2, "heartbeat.stall_s = 'never'"),
        (["train", "shoal", "--heartbeat.stal-s", "3"], 2, "Did you mean 'stall_s'"),
        (["train", "shoal", "--guards.adaptive.enabled", "true"], 2, "channels is empty"),
        (
            ["train", "shoal", "--guards.adaptive.channels", "learner.lr:1..0@1"],
            2,
            "MIN must be below MAX",
        ),
        (["train", "shoal", "--guards.hints.cooldown", "0"], 2, "guards.hints.cooldown"),
        (["train", "shoal", "--dry-run", "--plan.curriculum", "15:x"], 2, "is not a phase"),
        (["train", "shoal", "--dry-run", "--fish", "none"], 2, "fish"),
        (["train", "broken.toml"], 2, "not valid TOML"),
        (["train", "nameless.toml"], 2, "needs a name"),
        (["train", "envs:Nan", "--run", "n", "--updates", "1"], 6, "runs/n/env_fault_"),
        (
            ["train", "envs:Crash", "--run", "c", "--updates", "1", "--prewarm", "once"],
            6,
            "on fire",
        ),
        (["resume", "nothing", "--updates", "3"], 5, "There is no run 'nothing'"),
        (["doctor", "shaol"], 2, "neither a world"),
        (["doctor", "--steps", "1"], 2, "--steps 1 is not allowed"),
        (["doctor", "--updates", "3"], 2, "is neither a world"),
        (["doctor", "envs:Nan"], 6, "NaN or infinity"),
        (["envcheck", "shoal"], 2, "holdfast doctor shoal"),
        (["envcheck", "CartPole-v1", "--modes", "fast"], 2, "there is no mode 'fast'"),
    ],
)
def test_bad_input_is_explained(words: list[str], code: int, said: str, tmp_path: Path) -> None:
    (tmp_path / "envs.py").write_text(ENVS)
    (tmp_path / "broken.toml").write_text("[run")
    (tmp_path / "nameless.toml").write_text("[run]\nupdates = 3")
    got, text = call(*words, cwd=tmp_path)
    assert got == code, text
    assert said in text
    assert "Traceback" not in text


def test_an_existing_run_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "a" / "precious").write_text("x")
    code, text = call("train", "shoal", "--run", "a", cwd=tmp_path)
    assert code == 2
    assert "holdfast resume a" in text
    assert os.listdir(tmp_path / "runs" / "a") == ["precious"]
