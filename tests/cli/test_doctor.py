"""`holdfast doctor`: every finding has a level and numbers, and what stands against a run has its exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast import preflight
from holdfast.checkup import Finding, examine
from holdfast.config import resolve
from holdfast.preflight import Disk, disk_budget, estimate, plan_rows

ENVS = """
import time
import gymnasium as gym
import numpy as np

class Fine(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    paid = 1.0
    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.obs(), {}
    def obs(self):
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)
    def step(self, action):
        self.t += 1
        return self.obs(), self.paid, self.t >= 10, False, {}

class Dice(Fine):
    def obs(self):
        return np.random.default_rng().uniform(-1, 1, 2).astype(np.float32)

class Poor(Fine):
    paid = 0.0

class Rich(Fine):
    paid = 5000.0

class Endless(Fine):
    def step(self, action):
        return self.obs(), 1.0, False, False, {}

class Crash(Fine):
    def step(self, action):
        raise RuntimeError("the simulator is on fire")
"""


@pytest.fixture(autouse=True)
def a_short_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found here needs no seconds of play and training; real processes take them."""
    monkeypatch.setattr("holdfast.checkup.PLAY_S", 0.3)
    monkeypatch.setattr("holdfast.checkup.estimate", partial(estimate, seconds=0.2))


@pytest.fixture
def envs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "doctored.py").write_text(ENVS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("doctored", None)
    return tmp_path


def findings(target: str, runs: Path, *settings: tuple[str, str]) -> dict[str, Finding]:
    small = [("games", "2"), ("learner.steps", "16"), ("minibatch", "32"), ("updates", "3")]
    return {f.check: f for f in examine(resolve(target, [*small, *settings]), runs, steps=40)}


def test_a_sound_environment_passes_every_check(envs: Path) -> None:
    found = findings("doctored:Fine", envs)
    assert [f.check for f in found.values() if f.level == "refused"] == []
    assert {f.check for f in found.values() if f.level == "warning"} <= {"round trip", "machine"}
    for check in ("numbers", "truncation", "contract", "determinism", "workers", "rewards", "ends"):
        assert found[check].level == "ok", found[check]
    assert found["rewards"].numbers["mean"] == 1.0
    assert found["ends"].numbers["length_mean"] == 10.0
    assert found["speed"].numbers["env_steps_per_s"] > 0
    assert found["disk"].numbers["need_mb"] >= 0


@pytest.mark.parametrize(
    ("env", "check", "level", "words"),
    [
        ("Dice", "determinism", "warning", "cannot be repeated"),
        ("Poor", "rewards", "warning", "never paid"),
        ("Endless", "ends", "warning", "no episode ended"),
        ("Crash", "world", "refused", "on fire"),
    ],
)
def test_what_is_wrong_is_found_and_told(
    env: str, check: str, level: str, words: str, envs: Path
) -> None:
    found = findings(f"doctored:{env}", envs)[check]
    assert (found.level, found.code) == (level, 6)
    assert words in found.text


def test_large_rewards_matter_only_when_they_are_not_normalised(envs: Path) -> None:
    assert findings("doctored:Rich", envs)["rewards"].level == "ok"
    raw = findings("doctored:Rich", envs, ("normalise_rewards", "false"))["rewards"]
    assert raw.level == "warning" and "5e+03" in raw.text


def test_too_slow_and_too_large_are_refused_with_the_numbers(
    envs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.checkup.disk_budget", lambda *_: Disk(2_000_000, 1_000_000, 4))
    found = findings("doctored:Fine", envs, ("min_sps", "1e12"))
    assert (found["speed"].level, found["speed"].code) == ("refused", 4)
    assert "run.min_sps = 1e+12" in found["speed"].text
    assert (found["disk"].level, found["disk"].code) == ("refused", 5)
    assert "it does not fit: about 2.0 MB" in found["disk"].text


def test_our_worlds_are_checked_for_round_trip_and_threads(tmp_path: Path) -> None:
    found = findings("shoal", tmp_path, ("fish", "3"))
    assert found["round trip"].level == found["workers"].level == "ok"
    assert found["workers"].text == "the same results with threads 1, threads 2"


def test_an_estimate_leaves_nothing_behind_and_a_slow_world_is_not_waited_for(envs: Path) -> None:
    runs = envs / "runs"
    runs.mkdir()
    slow = ENVS.replace("self.t += 1", "self.t += 1; time.sleep(0.02)")
    (envs / "slowly.py").write_text(slow)
    config = resolve(
        "slowly:Fine", [("games", "2"), ("learner.steps", "100000"), ("mode", "serial")]
    )
    found = estimate(config, runs, seconds=0.4)
    assert list(runs.iterdir()) == []
    assert 0 < found.env_steps_per_s < 50, "two games of 20 ms a step cannot be faster"
    assert 0 < found.world_share <= found.world_share + found.learn_share <= 1
    assert found.env_steps == found.updates * 100_000 * 2


def test_the_disk_budget_grows_with_what_is_kept(tmp_path: Path) -> None:
    config = resolve("shoal", [("games", "2"), ("fish", "3"), ("updates", "1000")])
    found = estimate(config, tmp_path, seconds=0.2)
    few = disk_budget(config, tmp_path, found)
    many = disk_budget(replace(config, run=replace(config.run, keep_last=50)), tmp_path, found)
    assert many.checkpoints > few.checkpoints and many.need_bytes > few.need_bytes


def test_the_plan_counts_the_steps_of_every_phase() -> None:
    rows = plan_rows(resolve("shoal", [("plan.curriculum", "3:2,5:4"), ("games", "2")]))
    assert [row["env_steps_after"] for row in rows] == [2 * 64 * 6, 2 * 64 * 6 + 4 * 64 * 10]
    assert [row["changes"] for row in rows] == [{"world.fish": "3"}, {"world.fish": "5"}]


def test_the_estimate_counts_them_too(tmp_path: Path) -> None:
    config = resolve("shoal", [("plan.curriculum", "3:2,5:4"), ("games", "2")])
    assert estimate(config, tmp_path, seconds=0.1).env_steps == 2 * 64 * 6 + 4 * 64 * 10


def call(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=300,
    )


def test_the_verb_reads_a_config_file_and_prints_json(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(
        '[world]\nname = "shoal"\ngames = 2\nfish = 3\n[run]\nupdates = 2\n[learner]\nsteps = 16\n'
    )
    done = call("doctor", "a.toml", "--json", "--steps", "20", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["problems"] == [] and report["world"] == "shoal"
    assert report["versions"]["python"] and report["cores"] >= 1
    levels = {f["check"]: f["level"] for f in report["findings"]}
    assert levels["determinism"] == "ok" and levels["disk"] == "ok"
    assert not (tmp_path / "runs").exists()


def test_a_hopeless_run_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    words = "train shoal --run r --games 2 --fish 3 --learner.steps 16 --min-sps 1e12"
    done = call(*words.split(), cwd=tmp_path)
    assert done.returncode == 4
    assert "fewer than run.min_sps = 1e+12" in done.stderr and "device cpu" in done.stderr
    assert not (tmp_path / "runs" / "r").exists()


def test_a_dry_run_prints_the_plan_and_begins_nothing(tmp_path: Path) -> None:
    words = "train shoal --dry-run --games 2 --plan.curriculum 3:2,5:4"
    done = call(*words.split(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "phase 2 fish=5: updates 3 to 6, 3,328 env steps after it; world.fish=5" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["sac", "vtrace"])
def test_an_estimate_learns_as_the_run_will_and_counts_a_full_memory(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "_step_s", lambda loop, seconds: 0.01)  # 5 steps a rollout
    settings = {
        "kind": kind,
        "normalise_obs": False,
        "games": 2,
        "mode": "serial",
        "learner.steps": 32,
        "entropy": 0.1,
        "hidden": "4",
        "env_steps": 64_000,
        "learner.sac.capacity": 5000,
        "learner.sac.batch": 4,
    }
    if kind == "vtrace":
        more = {"enabled": True, "length": 16, "batch": 2, "capacity": 5000}
        settings.update({f"learner.replay.{k}": v for k, v in more.items()})
    found = estimate(resolve("Pendulum-v1", list(settings.items())), tmp_path, seconds=0.2)
    assert found.learn_share > 0.01
    assert found.checkpoint_bytes > 5000 * (3 + 1 + 1) * 4
