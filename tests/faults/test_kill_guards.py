"""SIGKILL at exact moments of a run with every guard at work: ledger, gate windows and counters come back.

Each process kills itself (a real SIGKILL, no handler runs) right after a named call of the loop has returned: a phase
was entered and its world rebuilt, starts were injected, an evaluation was recorded, a checkpoint was written.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_kill import events, finish, holdfast, parameters, untimed

from holdfast.run import RunDirectory
from holdfast.worlds.shoal.starts import velocity_start, write_starts

CONFIG = """
[run]
seed = 3
updates = 72
checkpoint_every = 5
tensorboard = false
[world]
name = "shoal"
games = 4
max_steps = 60
[learner]
steps = 16
hidden = [16, 16]
minibatch = 64
epochs = 2
threads = 1
[plan]
curriculum = "4:12,6:12,6:12,5:12,4:12,6:12"
[probe]
every = 6
episodes = 2
seeds = "fresh"
world = { fish = 6 }
[guards.tails]
enabled = true
stages = "8:north.json|type=ne;10:south.json|type=south|count=60"
share = 0.8
depth = 2
force_reset_steps = 20
mine = true
mine_share = 0.3
warn_ratio = 0.6
warn_patience = 2
[guards.gate]
enabled = true
allowance = [1, 2, 3, 4, 5, 6]
required_successes = 1
freeze = 0
success_freeze = 0
success_step_one = -1
success_step_one_ratio = 0.0
success_early_death = 0.5
success_p10 = 10
failure_p10 = 5
failure_min_final = 0.3
[guards.density]
enabled = true
targets = [0.0, 0.02, 0.04, 0.06]
ramp_phases = [3]
plateaus = [0, 0, 3, 0]
lock_until = 8
[guards.boost]
enabled = true
min_update = 3
phase_speeds = "1:0.9,2:0.7,3:0.8"
"""

MORTAL = """
import os, signal, sys
import holdfast.loop as loop
from holdfast.cli import main

call, wanted, nth = sys.argv[1], sys.argv[2], int(sys.argv[3])
home = loop if call == "probe" else loop.Loop
old, seen = getattr(home, call), 0

def mortal(self, *words, **more):
    global seen
    before = (self.progress.built, self.progress.probes)
    result = old(self, *words, **more)
    hit = {
        "rebuilt": self.progress.built != before[0],
        "injected": wanted == "injected" and words[1].kind == "inject_starts",
        "turned": wanted == "turned" and words[1].kind == "set_world",
        "evaluated": self.progress.probes != before[1],
        "saved": result is not None,
        "decided": call == "decide",
    }[wanted]
    seen += hit
    if hit and seen == nth:
        os.kill(os.getpid(), signal.SIGKILL)
    return result

setattr(home, call, mortal)
sys.exit(main(sys.argv[4:]))
"""

MOMENTS = [
    ("take", "injected", 3),
    ("probe", "evaluated", 1),
    ("enter", "rebuilt", 1),
    ("take", "turned", 2),
    ("save", "saved", 2),
    ("decide", "decided", 9),
    ("probe", "evaluated", 2),
    ("enter", "rebuilt", 1),
]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("config")
    for name, heading in (("north", 75.0), ("south", 255.0)):
        angles = np.deg2rad(heading + np.arange(-15, 16, 5))
        starts = [
            velocity_start((1.8 * np.cos(a), 1.8 * np.sin(a)), seed=k, id=f"{name}-{k}")
            for k, a in enumerate(angles)
        ]
        write_starts(folder / f"{name}.json", starts)
    (folder / "run.toml").write_text(CONFIG)
    return folder / "run.toml"


@pytest.fixture(scope="module")
def whole(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("whole")
    process = holdfast("train", str(config), "--run", "r", "--runs-dir", str(runs))
    code, said = finish(process)
    assert code == 0, said
    return runs


def state(runs: Path) -> dict[str, Any]:
    """What the last checkpoint holds of everything but the sizes of files."""
    held = RunDirectory(runs / "r").checkpoints().find(None).load()
    return {name: part for name, part in held.items() if name != "recorder"}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=True)
    return bool(one == other or (one != one and other != other))


def test_the_run_gives_every_guard_something_to_do(whole: Path) -> None:
    made = {(e["guard"], e["kind"]) for e in events(whole / "r") if e["event"] == "decision"}
    assert {
        ("tails", "inject_starts"),
        ("tails", "advance_phase"),
        ("tails", "warn"),
        ("density", "set_world"),
        ("boost", "set_world"),
    } <= made
    assert {kind for guard, kind in made if guard == "gate"}
    last = list(untimed(whole / "r", "metrics.jsonl"))[-1]
    assert last["guard/tails/mined"] > 0
    assert last["guard/tails/consumed"] > 20


def test_sigkills_at_borders_injections_and_evaluations_leave_ledger_gate_and_counters_exact(
    config: Path, whole: Path, tmp_path: Path
) -> None:
    words = ["train", str(config), "--run", "r"]
    for call, wanted, nth in MOMENTS:
        command = [sys.executable, "-c", MORTAL, call, wanted, str(nth), *words]
        process = subprocess.run(
            [*command, "--plain", "--no-report", "--runs-dir", str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert process.returncode == -signal.SIGKILL, (call, wanted, nth, process.stderr)
        words = ["resume", "r"]
    code, said = finish(holdfast("resume", "r", "--runs-dir", str(tmp_path)))
    assert code == 0, said
    assert events(tmp_path / "r") == events(whole / "r")
    for name in ("metrics.jsonl", "episodes.jsonl", "evals.jsonl"):
        assert untimed(tmp_path / "r", name) == untimed(whole / "r", name), name
    assert parameters(tmp_path, "r") == parameters(whole, "r")
    ours, theirs = state(tmp_path), state(whole)
    for name in theirs:
        assert same(ours[name], theirs[name]), name
    assert (tmp_path / "r" / "worst_starts.json").read_text() == (
        whole / "r" / "worst_starts.json"
    ).read_text()
