"""What a run leaves in its directory about its environments, whatever happens to them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.store.journal import read_lines

ENVS = """
import gymnasium as gym
import numpy as np

class Fine(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    def reset(self, seed=None, options=None):
        self.t = 0
        return np.zeros(2, np.float32), {}
    def step(self, action):
        self.t += 1
        return np.zeros(2, np.float32), 1.0, self.t >= 10, False, {}

class Crash(Fine):
    def step(self, action):
        raise RuntimeError("the simulator is on fire")
"""
SMALL = "--run r --updates 2 --learner.steps 16 --games 4 --probe.every 0 --probe.episodes 1 --plain --no-report"


def train(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "some.py").write_text(ENVS)
    return subprocess.run(
        [sys.executable, "-m", "holdfast", "train", *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=300,
    )


@pytest.mark.parametrize("mode", ["serial", "process"])
def test_events_of_the_environments_are_in_the_run_directory(mode: str, tmp_path: Path) -> None:
    done = train(tmp_path, "some:Fine", *SMALL.split(), "--mode", mode)
    assert done.returncode == 0, done.stderr
    assert "4 envs ready in" in done.stderr
    events = list(read_lines(tmp_path / "runs" / "r" / "env_events.jsonl"))
    built = {e["env"] for e in events if (e["phase"], e["status"]) == ("construct", "ok")}
    assert built >= {0, 1, 2, 3}
    assert {e["world"] for e in events} == {"some:Fine"}
    assert {e["backend"] for e in events} == {mode}
    assert {e["stage"] for e in events} == {"main", "probe"}


@pytest.mark.parametrize(("progress", "lines"), [("quiet", 0), ("summary", 1), ("verbose", 12)])
def test_what_is_said_of_the_environments_is_a_setting(
    progress: str, lines: int, tmp_path: Path
) -> None:
    words = [*SMALL.split(), "--mode", "serial", "--env-progress", progress]
    done = train(tmp_path, "some:Fine", *words)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if "env 0" in line or "envs ready" in line]
    said += [
        line for line in done.stderr.splitlines() if line.startswith(("env 1", "env 2", "env 3"))
    ]
    assert len(said) == lines, done.stderr


@pytest.mark.parametrize("mode", ["serial", "process"])
def test_an_environment_that_keeps_failing_stops_the_run_with_6_and_names_the_report(
    mode: str, tmp_path: Path
) -> None:
    done = train(tmp_path, "some:Crash", *SMALL.split(), "--mode", mode)
    assert done.returncode == 6
    (report,) = (tmp_path / "runs" / "r").glob("env_fault_*.md")
    assert f"runs/r/{report.name}" in done.stderr and "Traceback" not in done.stderr
    assert "the simulator is on fire" in report.read_text()
    ends = [
        e for e in read_lines(tmp_path / "runs" / "r" / "sessions.jsonl") if e["event"] == "end"
    ]
    assert [e["reason"] for e in ends] == ["PoolFault"]


def test_prewarm_tries_every_phase_with_options_of_its_own_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(
        '[world]\nname = "some:Fine"\ngames = 2\nmode = "serial"\n'
        '[run]\nname = "r"\nprewarm = "per-stage"\n[learner]\nsteps = 8\nminibatch = 16\n'
        "[probe]\nevery = 0\nepisodes = 1\n"
        + "".join(
            f'[[phase]]\nname = "{name}"\nupdates = 1\nworld = {{max_steps = {steps}}}\n'
            for name, steps in (("a", 5), ("b", 6), ("c", 5), ("d", 7), ("e", 8))
        )
    )
    done = train(tmp_path, "a.toml", "--plain", "--no-report")
    assert done.returncode == 0, done.stderr
    events = list(read_lines(tmp_path / "runs" / "r" / "env_events.jsonl"))
    warm = [e for e in events if e["phase"] == "prewarm" and e["status"] == "ok"]
    assert [e["stage"] for e in warm] == ["a", "b", "d", "e"], "four distinct settings"
    built = [e for e in events if (e["phase"], e["status"]) == ("construct", "ok")]
    begun = events.index(warm[-1])
    assert [e["stage"] for e in built if events.index(e) < begun] == ["a", "b", "d", "e"]
    # Then two games of every phase as it comes, and the probe at the end.
    after = [e["stage"] for e in built if events.index(e) > begun]
    assert after == [*"aabbccddee", "probe"]


def test_a_failing_prewarm_stops_the_run_and_names_the_phase(tmp_path: Path) -> None:
    words = [*SMALL.split(), "--mode", "process", "--prewarm", "once"]
    done = train(tmp_path, "some:missing_reset", *words)
    assert done.returncode == 2
    (tmp_path / "some.py").write_text(
        ENVS
        + "\nclass NoReset(Fine):\n    def reset(self, **_):\n        raise RuntimeError('no level')\n"
    )
    again = subprocess.run(
        [sys.executable, "-m", "holdfast", "train", "some:NoReset", *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=300,
    )
    assert again.returncode == 6, again.stderr
    assert "Prewarm of the phase 'main' failed" in again.stderr and "no level" in again.stderr


def test_a_bug_leaves_its_traceback_in_the_run_and_a_failed_state(tmp_path: Path) -> None:
    code = (
        "from holdfast.loop import Loop\n"
        "def broken(loop): raise ZeroDivisionError('a bug')\n"
        "Loop.decide = broken\n"
        "from holdfast.cli import main\n"
        f"main(['train', 'shoal', '--fish', '3', *{SMALL.split()!r}])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=300
    )
    assert done.returncode == 1
    (crash,) = (tmp_path / "runs" / "r").glob("crash-*.txt")
    assert "ZeroDivisionError: a bug" in crash.read_text()
    (end,) = [
        e for e in read_lines(tmp_path / "runs" / "r" / "sessions.jsonl") if e["event"] == "end"
    ]
    assert (end["reason"], end["traceback"]) == ("ZeroDivisionError", crash.name)
    assert '"state": "failed"' in (tmp_path / "runs" / "r" / "heartbeat.json").read_text()
