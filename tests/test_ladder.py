"""The memory ladder: its tiers, what counts as out of memory, and real runs under a real limit."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
from holdfast.config import Config, resolve, to_toml
from holdfast.errors import ConfigError, EnvironmentFault
from holdfast.ladder import EVENT, TIERS, Sizes, at_tier, climb_down, out_of_memory, refitted
from holdfast.learn.options import ReplayConfig
from holdfast.plan import PhaseConfig, Plan, PlanConfig
from holdfast.run import RunDirectory, resume
from holdfast.store.files import write_atomic
from holdfast.store.journal import Lines, read_lines
from holdfast.worlds import pool_faults
from holdfast.worlds.events import Events
from holdfast.worlds.pool_faults import Fault, Ledger, PoolFault, oom_kills


def config(games: int = 10, steps: int = 128, minibatch: int = 512, **settings: Any) -> Config:
    keys = {"games": games, "learner.steps": steps, "minibatch": minibatch, **settings}
    return resolve("shoal", list(keys.items()))


def fault(error_type: str = "X", **facts: Any) -> Fault:
    return Fault(0, (0,), 0, 0, 0, "step", "killed", error_type, "words", **facts)


def test_the_tiers_are_those_of_ten_games() -> None:
    base = Sizes(10, 128, 512)
    assert [base.at(tier) for tier in range(1, 7)] == [
        Sizes(10, 128, 512),
        Sizes(10, 64, 512),
        Sizes(8, 128, 512),
        Sizes(8, 64, 256),
        Sizes(6, 64, 256),
        Sizes(6, 42, 256),
    ]


def test_sizes_have_a_floor_that_is_never_above_what_was_asked_for() -> None:
    assert Sizes(2, 20, 4).at(6) == Sizes(2, 16, 2)
    assert Sizes(1, 8, 2).at(6) == Sizes(1, 8, 2)


def test_every_restart_needs_less_than_the_one_before_and_the_fifth_is_refused(
    tmp_path: Path,
) -> None:
    now, seen = config(), []
    lines = Lines(tmp_path / "sessions.jsonl")
    while (rung := climb_down(now, tmp_path)) is not None:
        seen.append((rung.number, rung.tier, Sizes.of(rung.config)))
        lines.write({"event": EVENT, "tier": rung.tier, "base": vars(rung.base)})
        lines.flush()
        now = rung.config
    lines.close()
    assert seen == [
        (1, 2, Sizes(10, 64, 512)),
        (2, 4, Sizes(8, 64, 256)),
        (3, 5, Sizes(6, 64, 256)),
        (4, 6, Sizes(6, 42, 256)),
    ]
    assert len(seen) <= 4 < len(TIERS)


def test_restarts_can_be_forbidden(tmp_path: Path) -> None:
    assert climb_down(config(**{"run.memory_restarts": 0}), tmp_path) is None


def test_a_run_that_cannot_be_made_smaller_is_given_up(tmp_path: Path) -> None:
    assert climb_down(config(games=1, steps=16), tmp_path) is None


def test_phases_with_sizes_of_their_own_are_lowered_alike() -> None:
    base = config()
    phases = resolve_phases(base)
    lowered = at_tier(phases, Sizes.of(phases), 4)
    assert lowered.phases[0].world == {"fish": 5, "games": 16}
    assert lowered.phases[0].learner == {"steps": 32, "lr": 0.1}
    assert lowered.run == base.run


def resolve_phases(base: Config) -> Config:
    from holdfast.plan import PhaseConfig

    phase = PhaseConfig("a", 5, {"fish": 5, "games": 20}, {"steps": 64, "lr": 0.1})
    return replace(base, phases=(phase,))


def test_what_counts_as_out_of_memory() -> None:
    import torch

    with pytest.raises(RuntimeError) as cpu:
        torch.empty(2**50)
    with pytest.raises(MemoryError) as arrays:
        np.empty(2**50)
    cuda = torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
    for error in (MemoryError(), arrays.value, cpu.value, cuda):
        assert out_of_memory(error), repr(error)
    assert out_of_memory(OSError(12, "Cannot allocate memory"))
    assert out_of_memory(PoolFault("x", fault("MemoryError")))
    for error in (
        RuntimeError("shape"),
        ConfigError("out of memory"),
        OSError(28, "No space left on device"),
        PoolFault("out of memory", fault()),
    ):
        assert not out_of_memory(error), repr(error)


def test_a_worker_that_the_kernel_killed_for_want_of_memory_stops_the_pool_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = tmp_path / "vmstat"
    counter.write_text("nr_free_pages 7\noom_kill 3\n")
    assert oom_kills([str(tmp_path / "nowhere"), str(counter)]) == 3
    monkeypatch.setattr(pool_faults.oom_kills, "__defaults__", ((str(counter),),))
    ledger = Ledger("env", 5, Events("env", "process"))
    killed = fault(exitcode=-signal.SIGKILL)
    ledger.note(killed)  # killed by somebody else: replaced
    counter.write_text("oom_kill 4\n")
    with pytest.raises(EnvironmentFault, match="want of memory") as caught:
        ledger.note(killed)
    assert out_of_memory(caught.value)


def test_a_checkpoint_of_another_size_keeps_all_that_still_fits() -> None:
    saved = {
        "world": {"x": np.zeros(4)},
        "learner": {"w": np.ones(3), "norm": {"returns": np.ones(4), "count": 5.0}},
        "progress": {"update": 7},
    }
    fresh = {
        "world": {"x": np.full(2, 9.0)},
        "learner": {"w": np.zeros(3), "norm": {"returns": np.zeros(2), "count": 0.0}},
        "progress": {"update": 0},
    }
    made = refitted(saved, fresh)
    assert made["world"]["x"].tolist() == [9, 9]
    assert made["learner"]["w"].tolist() == [1, 1, 1]
    assert made["learner"]["norm"]["returns"].tolist() == [0, 0]
    assert made["learner"]["norm"]["count"] == 5.0 and made["progress"] == {"update": 7}


LIMITED = """
    import resource, sys
    from pathlib import Path
    import numpy as np
    import holdfast
    from holdfast.config import resolve
    from holdfast.errors import HoldfastError
    from holdfast.run import resume, start

    small = dict(games=4, fish=2, minibatch=64, epochs=1, probe__every=0, probe__episodes=1, tensorboard=False)
    quiet = lambda text: None
    holdfast.train("shoal", runs_dir="warm", run="w", updates=1, steps=16, say=quiet, **small)

    def limit(megabytes):
        size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + megabytes * 2**20, resource.RLIM_INFINITY))
"""


def limited(tmp_path: Path, code: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "limited.py"
    script.write_text(textwrap.dedent(LIMITED) + textwrap.dedent(code))
    return subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path, timeout=300
    )


WIDE = """
import gymnasium as gym
import numpy as np

class Wide(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (20_000,), np.float32)
    action_space = gym.spaces.Discrete(2)
    def reset(self, seed=None, options=None):
        self.t = 0
        return np.zeros(20_000, np.float32), {}
    def step(self, action):
        self.t += 1
        return np.full(20_000, 0.1, np.float32), 1.0, self.t >= 20, False, {}
"""


def test_a_run_under_a_real_limit_begins_again_with_less_and_finishes(tmp_path: Path) -> None:
    # A rollout of 512 steps in 8 games takes 328 MB, half of it 164 MB.
    (tmp_path / "wide.py").write_text(WIDE)
    done = limited(
        tmp_path,
        """
        wide = dict(games=8, hidden=4, epochs=1, minibatch=4096, mode="serial", normalise_obs=False,
                    probe__every=0, probe__episodes=1, tensorboard=False)
        holdfast.train("wide:Wide", runs_dir="warm", run="v", updates=1, steps=16, say=quiet, **wide)
        limit(290)
        settings = [("updates", "2"), ("learner.steps", "512"), ("run", "r")]
        settings += [(k.replace("__", "."), str(v)) for k, v in wide.items()]
        outcome = start(resolve("wide:Wide", settings), Path("runs"))
        print(outcome.state, outcome.update)
        """,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "finished 2" in done.stdout
    assert "Out of memory (" in done.stdout and "Restart 1 of 4 at tier 2" in done.stdout
    run = tmp_path / "runs" / "r"
    events = list(read_lines(run / "sessions.jsonl"))
    restarts = [line for line in events if line["event"] == EVENT]
    assert 1 <= len(restarts) <= 4
    assert restarts[0]["base"] == {"games": 8, "steps": 512, "minibatch": 4096}
    assert restarts[0]["changed"] == ["learner.steps: 512 -> 256"]
    assert [line["event"] for line in events][-2:] == ["begin", "end"]
    journal = [line for line in read_lines(run / "journal.jsonl") if line["event"] == EVENT]
    assert [line["tier"] for line in journal] == [restarts[-1]["tier"]]
    assert "steps = 512" not in (run / "run.toml").read_text()


def test_memory_that_runs_out_in_the_middle_goes_on_from_the_checkpoint(tmp_path: Path) -> None:
    done = limited(
        tmp_path,
        """
        from holdfast.loop import Loop

        learn, hold = Loop.learn, []

        def learn_until_full(loop):
            learn(loop)
            if loop.progress.update == 3 and loop.config.world.options.games == 4:
                limit(50)
                hold.append(np.ones(2**30))     # 8 GB

        Loop.learn = learn_until_full
        settings = [("updates", "6"), ("learner.steps", "64"), ("run", "r"), ("checkpoint_every", "2")]
        settings += [(k.replace("__", "."), str(v)) for k, v in small.items()]
        start(resolve("shoal", settings), Path("runs"))
        """,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "resumed at update 2 of 6" in done.stdout and "has another size now" in done.stdout
    run = tmp_path / "runs" / "r"
    updates = [line["update"] for line in read_lines(run / "metrics.jsonl")]
    assert updates == [1, 2, 3, 4, 5, 6]
    steps = [line["env_steps"] for line in read_lines(run / "metrics.jsonl")]
    # Two updates of 64 steps in 4 games of 2 fish; then 32 steps in 3 games.
    assert np.diff(steps).tolist() == [512, 192, 192, 192, 192]
    tiers = [line["tier"] for line in read_lines(run / "sessions.jsonl") if line["event"] == EVENT]
    assert tiers == [2, 4]
    again = subprocess.run(
        [
            sys.executable,
            "-m",
            "holdfast",
            "resume",
            "r",
            "--updates",
            "8",
            "--plain",
            "--no-report",
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=300,
    )
    assert again.returncode == 0, again.stderr
    assert "another size" not in again.stderr, "the checkpoint has the new size"


def test_when_no_tier_is_left_the_run_stops_with_exit_code_4_and_says_why(tmp_path: Path) -> None:
    done = limited(
        tmp_path,
        """
        limit(100)
        settings = [("updates", "1"), ("learner.steps", "90000000"), ("run", "r")]
        settings += [(k.replace("__", "."), str(v)) for k, v in small.items()]
        try:
            start(resolve("shoal", settings), Path("runs"))
        except HoldfastError as error:
            print(error)
            sys.exit(error.exit_code)
        """,
    )
    assert done.returncode == 4, done.stderr[-3000:]
    assert "out of memory" in done.stdout and "no lower tier left" in done.stdout
    events = [line["event"] for line in read_lines(tmp_path / "runs" / "r" / "sessions.jsonl")]
    assert events == [EVENT] * 4 + ["end"]


ENV = """
import gymnasium as gym
import numpy as np
import resource

class Hungry(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    made = 0
    def __init__(self):
        Hungry.made += 1
        if Hungry.made > 2:
            size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (size + 2**20 * 10, resource.RLIM_INFINITY))
            np.ones(2**27)
    def reset(self, seed=None, options=None):
        return np.zeros(2, np.float32), {}
    def step(self, action):
        return np.zeros(2, np.float32), 1.0, True, False, {}
"""


def test_workers_that_run_out_of_memory_lower_the_number_of_games(tmp_path: Path) -> None:
    """A worker has room for two environments: six games do not fit into two workers, four do."""
    (tmp_path / "hungry.py").write_text(ENV)
    words = (
        "train hungry:Hungry --run r --updates 2 --learner.steps 32 --games 6 --workers 2 --mode process "
        "--probe.every 0 --probe.episodes 1 --plain --no-report"
    )
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *words.split()],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "Out of memory (PoolFault" in done.stderr
    run = tmp_path / "runs" / "r"
    assert "games = 4" in (run / "run.toml").read_text()
    assert "MemoryError" in json.dumps([*read_lines(run / "env_events.jsonl")])


@pytest.mark.parametrize(
    "more", [{"overlap": "on"}, {"kind": "vtrace", "learner__replay__enabled": True}]
)
def test_a_run_goes_on_with_shorter_rollouts(more: dict[str, Any], tmp_path: Path) -> None:
    small = {"games": 4, "fish": 3, "hidden": "8", "minibatch": 32, "threads": 1, **more}
    quiet = {"tensorboard": False, "probe__every": 0, "probe__episodes": 1, "checkpoint_every": 1}
    holdfast.train(
        "shoal", runs_dir=tmp_path, run="r", updates=4, learner__steps=32, **small, **quiet
    )
    run = tmp_path / "r"
    shutil.rmtree(run / "checkpoints" / "u00000004")
    now = RunDirectory(run).config()
    write_atomic(run / "run.toml", to_toml(at_tier(now, Sizes.of(now), 2)))
    assert resume("r", tmp_path).state == "finished"
    lines = list(read_lines(run / "metrics.jsonl"))
    assert [line["env_steps"] for line in lines] == [384, 768, 1152, 1344]
    if "kind" in more:
        assert lines[-1]["train/replay_size"] == 4 * 3 * 16


def test_a_phase_of_other_steps_is_refused_where_whole_rollouts_are_kept() -> None:
    base = replace(config().learner, kind="vtrace", replay=ReplayConfig(enabled=True))
    with pytest.raises(ConfigError, match="'steps' cannot change during a run with"):
        Plan((PhaseConfig(updates=2, learner={"steps": 16}),), PlanConfig(), 2, None, base)
