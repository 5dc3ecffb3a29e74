"""A config of three phases, killed once in each of them, ends like one that was not."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from test_kill import events, finish, holdfast, parameters, untimed
from test_kill_guards import MORTAL

CONFIG = """
[run]
seed = 3
checkpoint_every = 4
tensorboard = false
[world]
name = "shoal"
games = 4
fish = 6
max_steps = 60
[learner]
steps = 16
hidden = [16, 16]
minibatch = 64
epochs = 2
threads = 1
[probe]
every = 5
episodes = 2
[[phase]]
name = "bootstrap"
updates = 6
world = { fish = 4, games = 6 }
learner = { lr = 2e-3, steps = 8, entropy = 0.02 }
[[phase]]
name = "main"
updates = 8
[[phase]]
name = "refine"
updates = 6
world = { fish = 8 }
learner = { lr = 1e-4, epochs = 1 }
"""
PHASES = [("bootstrap", 1, 6), ("main", 7, 14), ("refine", 15, 20)]


def mortal(folder: Path, update: int, *words: str) -> None:
    """Let a process train until it kills itself right after its `update`-th update."""
    script = folder / "mortal.py"
    script.write_text(MORTAL)
    command = [sys.executable, str(script), "decide", "decided", str(update), *words]
    command += ["--runs-dir", str(folder), "--plain", "--no-report"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_a_run_of_three_phases_is_killed_in_each_and_ends_the_same(tmp_path: Path) -> None:
    config = tmp_path / "phases.toml"
    config.write_text(CONFIG)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    broken.mkdir()
    train = ["train", str(config), "--run", "r"]
    code, said = finish(holdfast(*train, "--runs-dir", str(whole)))
    assert code == 0, said
    mortal(broken, 3, *train)  # in bootstrap, before its first checkpoint
    mortal(broken, 9, "resume", "r")  # begins anew, dies in main, after update 9
    mortal(broken, 9, "resume", "r")  # from update 8, dies in refine, after update 17
    code, said = finish(holdfast("resume", "r", "--runs-dir", str(broken)))
    assert code == 0, said
    assert "resumed at update 16 of 20" in said
    assert parameters(broken, "r") == parameters(whole, "r")
    assert events(broken / "r") == events(whole / "r")
    assert untimed(broken / "r", "metrics.jsonl") == untimed(whole / "r", "metrics.jsonl")
    begun = [e for e in events(broken / "r") if e["event"] == "phase"]
    assert [(e["name"], e["first"], e["last"]) for e in begun] == PHASES
    code, said = finish(holdfast("resume", "r", "--runs-dir", str(broken)))
    assert code == 0 and "Nothing left to do: 20 of 20" in said
