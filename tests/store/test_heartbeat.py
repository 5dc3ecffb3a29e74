"""The heartbeat: what it holds, how rates and stillness are told, and that its page is up to date."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.lookout import Lookout
from holdfast.store.heartbeat import (
    DOING,
    EVENTS,
    HEARTBEATS,
    STATES,
    Glance,
    Heartbeat,
    HeartbeatConfig,
    markdown,
)
from holdfast.store.journal import read_lines
from holdfast.store.resources import RESOURCES, WINDOW, Monitor, descendants, usage
from holdfast.store.schema import problems
from holdfast.worlds.pool_slow import SlowRules, SlowSteps

DOCS = Path(__file__).parents[2] / "docs" / "heartbeat.md"


class Clock:
    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


def lines(run: Path) -> list[dict[str, Any]]:
    return list(read_lines(run / "heartbeat.jsonl"))


def newest(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "heartbeat.json").read_text())
    return found


def test_a_line_holds_every_field_of_its_schema_and_no_other(tmp_path: Path) -> None:
    beat = Heartbeat(tmp_path)
    beat.beat(Glance("collect", 0.0, 3, 300), {})
    beat.tell("finished", {"update": 4, "updates": 10, "env_steps": 400, "lights": {"a": "green"}})
    for line in [*lines(tmp_path), newest(tmp_path)]:
        assert problems(HEARTBEATS, line) == []
        assert line["state"] in STATES and line["doing"] in DOING and line["event"] in EVENTS
    assert [line["event"] for line in lines(tmp_path)] == ["beat", "end"]
    assert newest(tmp_path)["update"] == 4


def test_rates_are_taken_over_the_last_eight_beats(tmp_path: Path) -> None:
    clock = Clock()
    beat = Heartbeat(tmp_path, clock)
    for update in range(20):
        beat.beat(Glance("learn", clock.at, update, update * 100), {})
        clock.at += 2.0 if update < 10 else 4.0
    last = newest(tmp_path)
    assert last["updates_per_s"] == pytest.approx(0.25)
    assert last["env_steps_per_s"] == pytest.approx(25.0)
    assert lines(tmp_path)[0]["updates_per_s"] is None


def test_updates_renew_the_file_twice_a_second_at_most_but_an_end_at_once(tmp_path: Path) -> None:
    clock = Clock()
    beat = Heartbeat(tmp_path, clock)
    assert beat.tell("running", {"update": 1})
    assert not beat.tell("running", {"update": 2})
    assert newest(tmp_path)["update"] == 1
    clock.at += 0.6
    assert beat.tell("running", {"update": 3})
    assert beat.tell("interrupted", {"update": 4})
    assert (newest(tmp_path)["update"], newest(tmp_path)["state"]) == (4, "interrupted")
    assert len(lines(tmp_path)) == 1


def test_what_the_loop_told_and_what_the_watcher_saw_are_merged(tmp_path: Path) -> None:
    beat = Heartbeat(tmp_path)
    beat.tell("running", {"update": 7, "updates": 9, "lights": {"hints": "yellow"}})
    beat.beat(Glance("probe", 0.0, 7, 700), {"workers_alive": 4, "rss_mb": 12.5})
    assert newest(tmp_path)["workers_alive"] == 4
    assert newest(tmp_path)["lights"] == {"hints": "yellow"}
    assert newest(tmp_path)["doing"] == "probe"


def test_stillness_is_counted_from_the_last_thing_that_moved(tmp_path: Path) -> None:
    clock = Clock()
    beat = Heartbeat(tmp_path, clock)
    glance = Glance("collect", clock.at, 1, 100, moved=5)
    assert beat.see(glance) == 0
    clock.at += 30
    assert beat.see(glance) == 30
    assert beat.see(Glance("collect", glance.since, 1, 100, moved=6)) == 0


def test_two_threads_that_tell_and_beat_leave_only_whole_lines(tmp_path: Path) -> None:
    beat = Heartbeat(tmp_path)

    def tell() -> None:
        for update in range(200):
            beat.tell("interrupted", {"update": update})

    threads = [threading.Thread(target=tell) for _ in range(2)]
    for thread in threads:
        thread.start()
    for update in range(200):
        beat.beat(Glance("save", 0.0, update, update), {})
    for thread in threads:
        thread.join()
    assert len(lines(tmp_path)) == 600
    assert problems(HEARTBEATS, newest(tmp_path)) == []


def test_a_disk_that_refuses_is_told_once_and_stops_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "heartbeat.jsonl").symlink_to("/dev/full")
    beat = Heartbeat(tmp_path, warn=said.append)
    for _ in range(3):
        beat.beat(Glance("save", 0.0, 1, 1), {})
    assert len(said) == 1 and "No heartbeat" in said[0]


def test_the_page_about_the_heartbeat_is_up_to_date() -> None:
    assert DOCS.read_text() == markdown(), (
        "docs/heartbeat.md is stale. Type: python -m holdfast.store.heartbeat > docs/heartbeat.md"
    )


class Still:
    """A loop that does what the test says."""

    def __init__(self, clock: Clock) -> None:
        self.doing, self.since = "collect", clock.at
        self.progress = SimpleNamespace(update=3, env_steps=300)
        self.probe_steps = 0
        self.world = SimpleNamespace(steps_made=0)
        self.signals: dict[str, Any] = {"time/update_s": 0.1, "time/world_s": 0.05}


def lookout(run: Path, **settings: Any) -> tuple[Lookout, Still, Clock, list[str]]:
    clock, said = Clock(), list[str]()
    loop = Still(clock)
    config = HeartbeatConfig(**{"beat_s": 10.0, "stall_s": 60.0, "resources": False, **settings})
    slow = SlowSteps(run, SlowRules(), said.append, clock)
    watcher = Lookout(loop, Heartbeat(run, clock), config, slow, said.append)  # type: ignore[arg-type]
    MADE.append(watcher)
    return watcher, loop, clock, said


MADE: list[Lookout] = []


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    """Close what watchers have opened that were never used in a `with` block."""
    yield
    while MADE:
        MADE.pop()._disarm()


def test_a_stall_is_dumped_at_its_limit_and_again_only_after_the_cooldown(tmp_path: Path) -> None:
    watcher, loop, clock, said = lookout(tmp_path)
    stalls = []
    for second in range(200):
        watcher.tick()
        if watcher.heartbeat.stalls > len(stalls):
            stalls.append(second)
        clock.at += 1
    assert stalls == [60, 120, 180]
    first = next(line for line in lines(tmp_path) if line["event"] == "stall")
    text = Path(first["stacks"]).read_text()
    assert "in 'collect' for 60 s, after update 3 and 300 env steps" in text
    assert "test_heartbeat.py" in text
    assert (first["idle_s"], first["stalls"]) == (60.0, 1)
    loop.progress.update += 1
    watcher.tick()
    assert "moves" in [line["event"] for line in lines(tmp_path)][-2:]
    assert "The run moves again, at update 4." in said


def test_a_world_that_still_steps_is_no_stall(tmp_path: Path) -> None:
    watcher, loop, clock, _ = lookout(tmp_path)
    for step in range(200):
        loop.world.steps_made = step // 10
        watcher.tick()
        clock.at += 1
    assert watcher.heartbeat.stalls == 0


def test_stalls_can_be_left_alone(tmp_path: Path) -> None:
    watcher, _, clock, _ = lookout(tmp_path, stall_s=0.0)
    for _ in range(200):
        watcher.tick()
        clock.at += 10
    assert watcher.heartbeat.stalls == 0


def test_beats_come_at_their_interval(tmp_path: Path) -> None:
    watcher, _, clock, _ = lookout(tmp_path, stall_s=0.0)
    for _ in range(100):
        watcher.tick()
        clock.at += 0.5
    assert len(lines(tmp_path)) == 5


def test_rollouts_that_take_far_longer_than_usual_are_counted(tmp_path: Path) -> None:
    watcher, loop, clock, _ = lookout(tmp_path)
    for update in range(40):
        loop.progress.update, loop.since = update, clock.at
        for _ in range(12 if update in (20, 21, 22, 23, 24) else 1):
            watcher.tick()
            clock.at += 0.5
    assert (watcher.slow.total, watcher.slow.traces) == (5, 1)
    (trace,) = (tmp_path / "stacks").glob("slow-*.txt")
    assert "'collect' of update 25" in trace.read_text()


def test_hints_about_the_machine_are_given_once_an_hour_also_after_a_restart(
    tmp_path: Path,
) -> None:
    for _ in range(2):
        watcher, loop, clock, said = lookout(tmp_path, stall_s=0.0)
        loop.progress.update = 100
        loop.signals["time/world_s"] = 0.09
        for _ in range(10):
            watcher.tick()
            clock.at += 10
    hints = list(read_lines(tmp_path / "hints.jsonl"))
    assert [(hint["rule"], hint["severity"]) for hint in hints] == [
        ("world_takes_the_time", "info")
    ]
    assert hints[0]["evidence"]["world_share"] == pytest.approx(0.9)
    assert not said


def test_a_sample_of_resources_holds_what_its_schema_says(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path)
    for _ in range(3):
        sample = monitor.sample()
    assert problems(RESOURCES, {"at": 0.0, "update": 1, "env_steps": 1, **sample}) == []
    assert sample["own_rss_mb"] > 1 and sample["threads"] >= 1 and sample["disk_free_gb"] > 0


def test_processes_below_are_found_and_counted(tmp_path: Path) -> None:
    import os
    import subprocess
    import sys

    code = "import time\nwhile time.process_time() < 0.4: pass\ntime.sleep(60)"
    monitor = Monitor(tmp_path)
    monitor.sample()
    child = subprocess.Popen([sys.executable, "-c", code])
    try:
        assert child.pid in descendants(os.getpid())
        spent = 0.0
        while spent < 0.3:
            spent, memory = usage(child.pid) or (0.0, 0.0)
        assert memory > 1e6
        for _ in range(12):
            sample = monitor.sample()
        assert str(child.pid) in sample["workers"]
        assert sample["rss_mb"] > sample["own_rss_mb"]
    finally:
        child.kill()
        child.wait()
    monitor.sample()
    assert str(child.pid) not in monitor.sample()["workers"]
    assert usage(child.pid) is None


class FakeNvml:
    """What NVML offers, with numbers of our own."""

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        return SimpleNamespace(gpu=10 + 20 * handle)

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(used=(handle + 1) * 1024 * 1024)


def test_gpus_are_seen_through_nvml_and_their_means_over_the_window(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path, FakeNvml())
    sample = monitor.sample()
    assert (sample["gpu_count"], sample["gpu_0_util_pct"], sample["gpu_1_util_pct"]) == (2, 10, 30)
    assert sample["gpu_util_pct"] == 20 and sample["gpu_1_memory_mb"] == 2
    assert sample["mean_gpu_util_pct"] == 20
    assert problems(RESOURCES, {"at": 0.0, "update": 1, "env_steps": 1, **sample}) == []
    for _ in range(WINDOW + 5):
        monitor._window.append({"gpu_util_pct": 50.0})
    assert monitor.means()["mean_gpu_util_pct"] == 50
