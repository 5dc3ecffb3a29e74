"""The three ways of running foreign environments: the same results, checks, events."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
import pytest

from holdfast.errors import ConfigError, EnvironmentFault
from holdfast.records import Start
from holdfast.store.journal import read_lines
from holdfast.worlds import pool_modes, prewarm
from holdfast.worlds.check import check_world
from holdfast.worlds.events import Record
from holdfast.worlds.foreign import ForeignOptions, ForeignWorld
from holdfast.worlds.pool_options import ranges
from holdfast.worlds.pool_process import portable_entry

sys.path.insert(0, str(Path(__file__).parent))
MODES = ["serial", "threads", "process"]

FAR_BELOW_FOR_EVER = 20.0
"""Seconds; what hangs here sleeps for ever, and a busy machine may be slow."""


def world_of(name: str, record: Record | None = None, **options: Any) -> ForeignWorld:
    settings = {"games": 4, "workers": 2, **options}
    return ForeignWorld(name, ForeignOptions(**settings), record=record or Record(progress="quiet"))


def play(world: ForeignWorld, steps: int) -> tuple[list[Any], list[Any]]:
    """Return all arrays and all episodes of a play with queued starts, forced resets and a second reset."""
    arrays, episodes = [world.reset(seed=11)[0]], []
    world.action_space.seed(5)
    for t in range(steps):
        if t == 60:
            world.queue_starts([0, 0], [Start(seed=77, id="x"), Start(seed=78, id="y")])
        if t in (70, 150):
            world.request_reset([world.num_envs - 1, 0])
        if t == 200:
            arrays.append(world.reset()[0])
        obs, rewards, terminations, truncations, info = world.step(world.action_space.sample())
        arrays += [obs, rewards, terminations, truncations, info["mask"]]
        if "final_obs" in info:
            arrays += [info["final_obs"], info["_final_obs"]]
        for e in info.get("episodes", ()):
            episodes.append((t, e.game, e.start, e.steps, tuple(e.returns), e.ended))
    assert world.ledger.total == 0
    arrays += [world.get_state()["episodes"], world.get_state()["seeds"]]
    return arrays, episodes


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("CartPole-v1", {}),
        ("pool_envs:Walk", {}),
        ("pool_envs:Walk", {"max_steps": 13, "games": 5, "workers": 3}),
        ("pool_envs:Pixels", {}),
        ("pool_envs:Tag", {}),
        ("pool_envs:Joins", {}),
    ],
)
def test_all_modes_give_the_same_results_bit_for_bit(name: str, options: dict[str, Any]) -> None:
    results = []
    for mode in MODES:
        world = world_of(name, mode=mode, **options)
        try:
            results.append(play(world, 400))
        finally:
            world.close()
    (arrays, episodes), *others = results
    assert len(episodes) > 20
    assert max(e[2].seed for e in episodes) > 2**40, "later episodes have derived seeds"
    for other_arrays, other_episodes in others:
        assert other_episodes == episodes
        assert len(other_arrays) == len(arrays)
        for a, b in zip(arrays, other_arrays, strict=True):
            np.testing.assert_array_equal(a, b)


def test_the_number_of_workers_does_not_change_the_results() -> None:
    results = []
    for workers in (1, 3, 4):
        world = world_of("pool_envs:Walk", mode="process", workers=workers)
        results.append(play(world, 120))
        world.close()
    for arrays, episodes in results[1:]:
        assert episodes == results[0][1]
        assert all(map(np.array_equal, arrays, results[0][0]))


@pytest.mark.parametrize("mode", ["threads", "process"])
def test_the_checker_finds_nothing_wrong_in_the_other_modes(mode: str) -> None:
    assert check_world(lambda: world_of("pool_envs:Walk", mode=mode), steps=120) == []
    assert check_world(lambda: world_of("pool_envs:Tag", mode=mode), steps=120) == []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Nan", "NaN or infinity"),
        ("Shape", r"shape \(5,\)"),
        ("Reward", r"reward \[inf\], which is not finite"),
        ("Words", "type <U1"),
    ],
)
def test_a_broken_contract_stops_every_mode_with_the_same_words(
    mode: str, name: str, words: str
) -> None:
    world = world_of(f"pool_envs:{name}", mode=mode)
    world.reset(seed=5)
    with pytest.raises(EnvironmentFault, match=words) as caught:
        for _ in range(4):
            world.step(np.zeros((4, 2), np.float32))
    world.close()
    assert f"game 0, seed 5, step {1 if name == 'Words' else 3}" in str(caught.value)


@pytest.mark.parametrize("mode", MODES)
def test_a_game_that_raises_is_made_anew_and_its_episode_is_truncated(mode: str) -> None:
    world = world_of("pool_envs:Raises", mode=mode, games=2, workers=2, max_restarts=100)
    world.reset(seed=1)
    cut = []
    for _ in range(200):
        seen, _ = world.observe()
        _, rewards, terminations, truncations, info = world.step(np.zeros((2, 2), np.float32))
        for e in info.get("episodes", ()):
            if "fault" in e.detail:
                cut.append(e)
                assert (
                    e.steps == 25 and e.ended == "truncated" and "a bad step" in e.detail["fault"]
                )
                assert truncations[e.game] and not terminations[e.game] and rewards[e.game] == 0
                np.testing.assert_array_equal(info["final_obs"][e.game], seen[e.game])
    assert len(cut) == world.ledger.total >= 2
    world.close()


@pytest.mark.parametrize("mode", MODES)
def test_a_game_that_always_raises_stops_the_run_with_its_own_words(
    mode: str, tmp_path: Path
) -> None:
    world = world_of("pool_envs:RaisesInReset", Record(tmp_path, progress="quiet"), mode=mode)
    with pytest.raises(EnvironmentFault, match="no level") as caught:
        world.reset(seed=1)
    world.close()
    assert "replaced 3 times" in str(caught.value)
    assert len(list(tmp_path.glob("env_fault_*.md"))) == 1
    with pytest.raises(EnvironmentFault, match="no such ROM"):
        world_of("pool_envs:RaisesInConstruct", mode=mode)


@pytest.mark.parametrize("mode", MODES)
def test_a_game_that_calls_exit_has_failed_and_does_not_end_the_run(mode: str) -> None:
    world = world_of("pool_envs:Leaves", mode=mode, games=2, max_restarts=100)
    world.reset(seed=1)
    faults = []
    for _ in range(120):
        info = world.step(np.zeros((2, 2), np.float32))[4]
        faults += [e.detail["fault"] for e in info.get("episodes", ()) if "fault" in e.detail]
    world.close()
    assert faults and all("raised in step: SystemExit: 3 at" in fault for fault in faults)
    for name, words in [("LeavesInReset", "no level"), ("LeavesInConstruct", "no licence")]:
        with pytest.raises(EnvironmentFault, match=f"SystemExit: {words}"):
            world_of(f"pool_envs:{name}", mode=mode).reset(seed=1)


@pytest.mark.parametrize("mode", ["serial", "process"])
def test_an_id_is_known_when_the_module_before_it_is_imported(mode: str) -> None:
    world, same = (world_of(f"pool_envs:{name}", mode=mode) for name in ("Pool/Walk-v0", "Walk"))
    np.testing.assert_array_equal(world.reset(seed=3)[0], same.reset(seed=3)[0])
    world.close()
    same.close()


def test_a_seed_that_cannot_be_begun_from_is_not_tried_again() -> None:
    import pool_envs

    pool_envs.Unlucky.tried.clear()
    world = world_of("pool_envs:Unlucky", games=1, workers=1, mode="serial", max_restarts=1000)
    world.reset(seed=12)
    for _ in range(400):
        world.step(world.action_space.sample())
    world.close()
    tried = pool_envs.Unlucky.tried
    assert world.ledger.total > 3
    assert len(set(tried)) == len(tried)


@pytest.mark.parametrize("mode", MODES)
def test_no_restarts_allowed_means_the_first_fault_stops_the_run(mode: str) -> None:
    world = world_of("pool_envs:Raises", mode=mode, max_restarts=0)
    world.reset(seed=1)
    with pytest.raises(EnvironmentFault, match="a bad step"):
        for _ in range(200):
            world.step(np.zeros((4, 2), np.float32))
    assert world.ledger.total == 1
    world.close()


def test_a_thread_that_hangs_stops_the_run_with_its_stack_and_close_does_not_wait() -> None:
    world = world_of("pool_envs:SleepsInStep", mode="threads", step_s=0.2)
    world.reset(seed=1)
    with pytest.raises(EnvironmentFault, match="hung for") as caught:
        world.step(np.zeros((4, 2), np.float32))
    report = next(word for word in str(caught.value).split() if "env_fault_" in word)
    assert "SleepsInStep" in str(caught.value) and "--mode process" in str(caught.value)
    assert "pool_envs.py" in Path(report.rstrip(".")).read_text()
    began = time.monotonic()
    world.close()
    assert time.monotonic() - began < FAR_BELOW_FOR_EVER


def test_closing_threads_does_not_wait_for_an_environment_that_does_not_close() -> None:
    world = world_of("pool_envs:SleepsInClose", mode="threads", close_s=0.3)
    world.reset(seed=1)
    began = time.monotonic()
    world.close()
    assert time.monotonic() - began < FAR_BELOW_FOR_EVER


def test_a_game_that_hangs_in_the_calling_thread_is_reported() -> None:
    code = (
        "import sys, numpy as np; sys.path.insert(0, sys.argv[1])\n"
        "from holdfast.worlds.foreign import ForeignOptions, ForeignWorld\n"
        "world = ForeignWorld('pool_envs:SleepsInStep', ForeignOptions(mode='serial', step_s=0.2))\n"
        "world.reset(seed=1)\n"
        "world.step(np.zeros((8, 2), np.float32))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(Path(__file__).parent)],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    process.kill()
    process.communicate()
    assert "hung for" in line and "--mode process" in line
    report = next(word for word in line.split() if "holdfast-hang-" in word)
    assert "pool_envs.py" in Path(report.rstrip(".")).read_text()


def test_auto_takes_processes_for_slow_environments_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_modes, "cores", lambda: 2)
    monkeypatch.setattr(pool_modes, "_timed", {})
    for name, games, mode in [
        ("pool_envs:Walk", 4, "serial"),
        ("pool_envs:Slow", 4, "process"),
        ("pool_envs:Slow", 1, "serial"),
    ]:
        if name == "pool_envs:Walk":
            pool_modes._timed[name] = 2e-5  # a busy machine must not decide this test
        world = world_of(name, games=games)
        assert world.mode == mode
        world.close()
    monkeypatch.setattr(pool_modes, "cores", lambda: 1)
    world = world_of("pool_envs:Slow")
    assert world.mode == "serial"
    world.close()


def test_auto_takes_processes_when_the_first_step_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_modes, "cores", lambda: 2)
    monkeypatch.setattr(pool_modes, "_timed", {})
    options = {"construct_s": 0.2, "reset_s": 0.2, "step_s": 0.2, "max_restarts": 0}
    world = world_of("pool_envs:SleepsInStep", **options)
    assert world.mode == "process"
    world.close()


def test_an_environment_that_is_registered_by_the_caller_runs_in_workers() -> None:
    gym.register("PoolWalk-v0", entry_point="pool_envs:Walk")
    try:
        world = world_of("PoolWalk-v0", mode="process")
        world.reset(seed=1)
        world.close()
        gym.registry["PoolWalk-v0"].entry_point = lambda: None  # type: ignore[assignment,return-value]
        with pytest.raises(ConfigError, match="cannot be sent to worker processes"):
            world_of("PoolWalk-v0", mode="process")
    finally:
        del gym.registry["PoolWalk-v0"]


@pytest.mark.parametrize("entry", ["Slow", "'__main__:Slow'"])
def test_an_id_that_a_script_registers_for_a_class_of_its_own_is_played_there(
    entry: str, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"""
import time
import gymnasium as gym
import numpy as np
from holdfast.worlds.foreign import ForeignOptions, ForeignWorld

class Slow(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {{}}
    def step(self, action):
        time.sleep(0.001)
        return np.zeros(2, np.float32), 0.0, False, False, {{}}

gym.register("Slow-v0", entry_point={entry})
world = ForeignWorld("Slow-v0", ForeignOptions(games=2))
world.reset(seed=1)
world.step(np.zeros(2, np.int64))
print(world.mode)
""")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, "serial\n"), done.stderr


def test_bad_environments_are_config_errors_in_every_mode() -> None:
    for mode in MODES:
        with pytest.raises(ConfigError, match="returned a list"):
            world_of("builtins:list", mode=mode)
    with pytest.raises(ConfigError, match="the script that was started"):
        portable_entry("__main__:main")


def test_events_name_the_slow_environment_and_the_summary_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLOW_THIRD", "1")
    said: list[str] = []
    record = Record(tmp_path, said.append, stage="main")
    world = world_of("pool_envs:Slow", record, mode="process", games=8, workers=1)
    world.reset(seed=1)
    world.close()
    assert len(said) == 1
    assert said[0].startswith("8 envs ready in ") and "slowest env 3 " in said[0]
    events = list(read_lines(tmp_path / "env_events.jsonl"))
    keys = (
        "ts mono env pid phase status duration_s error_type error_msg backend world stage".split()
    )
    assert all(set(keys) <= set(event) for event in events)
    assert {(e["world"], e["stage"]) for e in events} == {("pool_envs:Slow", "main")}
    slow = [e for e in events if e["phase"] == "construct" and e["env"] == 3]
    assert [e["status"] for e in slow] == ["begin", "ok"]
    built = {e["env"]: e["duration_s"] for e in events if e["phase"] == "construct"}
    assert slow[1]["duration_s"] == max(built.values()) >= 0.2
    assert sum(e["phase"] == "reset" and e["status"] == "ok" for e in events) == 8
    assert {e["backend"] for e in events} == {"process"}


@pytest.mark.parametrize(("progress", "lines"), [("quiet", 0), ("summary", 1), ("verbose", 9)])
def test_progress_says_nothing_one_line_or_every_construction(
    progress: str, lines: int, tmp_path: Path
) -> None:
    said: list[str] = []
    record = Record(tmp_path, said.append, progress)  # type: ignore[arg-type]
    world_of("pool_envs:Walk", record, mode="serial").close()
    assert len(said) == lines


def test_prewarm_builds_one_environment_and_its_failure_names_the_phase(tmp_path: Path) -> None:
    record, options = Record(tmp_path, stage="refine"), ForeignOptions(games=4, mode="process")
    prewarm("pool_envs:Walk", options, record)
    phases = [(e["phase"], e["status"]) for e in read_lines(tmp_path / "env_events.jsonl")]
    assert phases[:3] == [("prewarm", "begin"), ("construct", "begin"), ("construct", "ok")]
    assert phases[-1] == ("prewarm", "ok")
    assert sum(phase == "construct" for phase, _ in phases) == 2
    with pytest.raises(EnvironmentFault, match=r"phase 'refine' failed: .*no level"):
        prewarm("pool_envs:RaisesInReset", options, record)
    last = list(read_lines(tmp_path / "env_events.jsonl"))[-1]
    assert (last["phase"], last["status"], last["stage"]) == ("prewarm", "error", "refine")


def test_an_event_file_that_cannot_be_written_does_not_stop_the_world(tmp_path: Path) -> None:
    (tmp_path / "env_events.jsonl").symlink_to("/dev/full")
    said: list[str] = []
    world = world_of("pool_envs:Walk", Record(tmp_path, said.append), mode="serial")
    world.reset(seed=1)
    world.step(np.zeros((4, 2), np.float32))
    assert any("switched off" in text for text in said)
    world.close()


def test_games_are_dealt_out_evenly() -> None:
    assert [len(r) for r in ranges(10, 4)] == [2, 3, 2, 3]
    assert [g for r in ranges(10, 4) for g in r] == list(range(10))


def test_an_idle_pool_burns_no_processor_time() -> None:
    world = world_of("pool_envs:Walk", mode="process")
    world.reset(seed=1)
    workers = [psutil.Process(pid) for pid in world.pids()]
    before = sum(sum(w.cpu_times()[:2]) for w in workers)
    time.sleep(0.5)
    assert sum(sum(w.cpu_times()[:2]) for w in workers) - before < 0.05
    world.close()


def test_many_pools_one_after_the_other_lose_no_answer() -> None:
    for number in range(12):
        worlds = [world_of("pool_envs:Walk", mode="process", reset_s=3) for _ in range(2)]
        for world in worlds:
            world.reset(seed=number)
        for _ in range(5):
            for world in worlds:
                world.step(np.zeros((4, 2), np.float32))
        for world in worlds:
            assert world.ledger.total == 0
            world.close()
