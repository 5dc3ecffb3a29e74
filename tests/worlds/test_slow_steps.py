"""Steps that take far longer than usual are counted while they run, and traced with the stacks of all workers."""

from __future__ import annotations

import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from holdfast.worlds.events import Record
from holdfast.worlds.foreign import ForeignOptions, ForeignWorld
from holdfast.worlds.pool_slow import SlowRules, SlowSteps, Usual, write_stacks

sys.path.insert(0, str(Path(__file__).parent))


class Clock:
    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


def usual(seconds: float) -> Usual:
    found = Usual()
    for _ in range(10):
        found.add(seconds)
    return found


def test_what_is_slow_follows_from_the_median_and_the_floor(tmp_path: Path) -> None:
    slow = SlowSteps(tmp_path, SlowRules(floor_s=0.25, factor=20))
    assert slow.limit(usual(0.001)) == 0.25
    assert slow.limit(usual(0.1)) == pytest.approx(2.0)
    assert slow.limit(Usual()) is None
    assert SlowSteps(tmp_path, SlowRules(floor_s=0.0)).limit(usual(0.1)) is None


def test_a_step_is_counted_once_and_five_within_the_window_make_one_trace(tmp_path: Path) -> None:
    clock, said = Clock(), list[str]()
    rules = SlowRules(count=5, window_s=120, every_s=600)
    slow = SlowSteps(tmp_path, rules, said.append, clock)

    def slow_step(seconds_between: float) -> Path | None:
        clock.at += seconds_between
        began = clock.at
        clock.at += 0.2
        assert slow.look("step", began, usual(0.01)) is None, "not slow yet"
        clock.at += 0.1
        found = slow.look("step", began, usual(0.01))
        clock.at += 0.1
        assert slow.look("step", began, usual(0.01)) is None, "counted already"
        return found

    assert [slow_step(1) for _ in range(4)] == [None] * 4
    trace = slow_step(1)
    assert trace is not None and trace.parent == tmp_path / "stacks"
    assert [slow_step(1) for _ in range(20)] == [None] * 20, "one trace in ten minutes"
    clock.at += 600
    assert [slow_step(100) for _ in range(6)] == [None] * 6, "never five within the window"
    assert [slow_step(1) is None for _ in range(5)].count(False) == 1
    assert (slow.total, slow.traces, len(said)) == (36, 2, 2)
    assert "limit 0.25 s, usual 0.0100 s" in said[0] and str(trace) in said[0]


def test_stacks_of_the_trainer_and_of_others_are_in_the_file(tmp_path: Path) -> None:
    path = write_stacks(tmp_path, "stall", "nothing moves", lambda: {"worker 0": "here it hangs"})
    assert path is not None
    text = path.read_text()
    assert text.startswith("nothing moves")
    assert "test_slow_steps.py" in text and "here it hangs" in text
    (tmp_path / "file").write_text("")
    assert write_stacks(tmp_path / "file", "stall", "no directory can be made here") is None


class Dozes(gym.Env):
    """Every fifth step after the fortieth takes long."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        import time

        self.t += 1
        if self.t > 60 and self.t % 5 == 0:
            time.sleep(0.6)
        return np.zeros(2, np.float32), 0.0, False, False, {}


@pytest.mark.parametrize("mode", ["serial", "threads", "process"])
def test_dozing_environments_leave_one_trace_with_the_line_they_doze_in(
    mode: str, tmp_path: Path
) -> None:
    slow = SlowSteps(tmp_path, SlowRules(floor_s=0.2, count=3))
    options = ForeignOptions(games=2, workers=2, mode=mode)  # type: ignore[arg-type]
    world = ForeignWorld(
        "test_slow_steps:Dozes", options, record=Record(tmp_path, progress="quiet", slow=slow)
    )
    try:
        world.reset(seed=1)
        for _ in range(82):
            world.step(np.zeros(2, np.int64))
    finally:
        world.close()
    assert slow.total >= 4
    (trace,) = (tmp_path / "stacks").glob("slow-*.txt")
    text = trace.read_text()
    assert "step of test_slow_steps:Dozes" in text
    asleep = [
        line for line in text.splitlines() if "test_slow_steps.py" in line and " in step" in line
    ]
    assert asleep, text
    assert ("## worker 1" in text) == (mode == "process")
