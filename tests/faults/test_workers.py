"""Real worker processes that raise, leave, are killed or hang: stepping goes on, nothing is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from faulty_envs import plant

from holdfast.errors import EnvironmentFault
from holdfast.store.journal import read_lines
from holdfast.worlds.events import Record
from holdfast.worlds.foreign import ForeignOptions, ForeignWorld

sys.path.insert(0, str(Path(__file__).parent))
NAME = "faulty_envs:Faulty"
QUICK: dict[str, Any] = {
    "mode": "process",
    "games": 4,
    "workers": 2,
    "max_restarts": 1000,
}
LIMIT_S = 0.8
IMPATIENT: dict[str, Any] = {
    **QUICK,
    **dict.fromkeys(("construct_s", "reset_s", "step_s"), LIMIT_S),
}
SLACK_S = 20.0
"""What hangs here hangs for ever; a busy machine may be late by this much."""


@pytest.fixture
def bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "bombs"
    folder.mkdir()
    monkeypatch.setenv("FAULT_DIR", str(folder))
    yield folder
    assert workers_of(os.getpid()) == [], "worker processes were left behind"


def workers_of(pid: int) -> list[psutil.Process]:
    """Return the descendants of a process that are workers (the fork server itself may stay)."""
    found = []
    for process in psutil.Process(pid).children(recursive=True):
        try:
            server = "multiprocessing.forkserver" in " ".join(process.cmdline())
            if process.status() != psutil.STATUS_ZOMBIE and (
                not server or process.parent().pid != pid
            ):
                found.append(process)
        except (psutil.NoSuchProcess, AttributeError):
            continue
    return [p for p in found if "resource_tracker" not in " ".join(p.cmdline())]


def step_until_fault(world: ForeignWorld, limit: int = 120) -> dict[str, Any]:
    """Step until a worker was replaced; check that its episodes were cut and begun anew."""
    before = world.ledger.total
    for _ in range(limit):
        seen, _ = world.observe()
        starts = world.current_starts()
        obs, rewards, terminations, truncations, info = world.step(np.zeros(4, np.int64))
        if world.ledger.total == before:
            continue
        fault = world.ledger.faults[-1]
        for game in fault.games:
            assert terminations[game] != truncations[game]
            assert info["_final_obs"][game]
            if truncations[game]:
                # A step that got through is kept; else nothing was seen after the last one.
                assert info["final_obs"][game][0] == seen[game][0]
                assert info["final_obs"][game][1] == seen[game][1] + rewards[game]
            assert obs[game][1] == 0
            assert world.current_starts()[game].seed != starts[game].seed
        records = {e.game: e for e in info["episodes"]}
        assert set(fault.games) <= set(records)
        assert np.isfinite(obs).all()
        return {"fault": fault, "records": records}
    raise AssertionError("the fault was not noticed")


def go_on(world: ForeignWorld, steps: int = 3) -> None:
    for _ in range(steps):
        obs = world.step(np.zeros(4, np.int64))[0]
        assert np.isfinite(obs).all()
    assert len(world.pids()) == 2


DEATHS = [
    ("raise", "raised", 1, "on fire"),
    ("exit", "exited", 7, "exited with code 7"),
    ("SIGKILL", "killed", -signal.SIGKILL, "was killed by SIGKILL"),
    ("SIGSEGV", "killed", -signal.SIGSEGV, "was killed by SIGSEGV"),
]


@pytest.mark.parametrize(("kind", "reason", "code", "words"), DEATHS)
def test_fifteen_deaths_of_one_kind_are_reported_and_survived(
    kind: str, reason: str, code: int, words: str, bombs: Path
) -> None:
    world = ForeignWorld(NAME, ForeignOptions(**QUICK))
    try:
        world.reset(seed=1)
        dead: list[int] = []
        for number in range(15):
            phase = ("step", "step", "reset")[number % 3]
            plant(bombs / phase, kind)
            fault = step_until_fault(world)["fault"]
            assert (fault.reason, fault.phase, fault.exitcode) == (reason, phase, code)
            assert words in str(fault) and 0 <= fault.game < 4 and fault.seed >= 0
            if kind in ("raise", "SIGSEGV"):  # who leaves or is killed cannot show where it was
                assert "faulty_envs.py" in fault.stacks
            dead.append(fault.pid)
            go_on(world)
        assert world.ledger.total == 15
        assert not any(psutil.pid_exists(pid) for pid in dead)
    finally:
        world.close()


def test_a_death_from_outside_is_noticed_even_between_two_steps(bombs: Path) -> None:
    world = ForeignWorld(NAME, ForeignOptions(**QUICK))
    world.reset(seed=1)
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV):
        go_on(world)
        victim = world.pids()[1]
        os.kill(victim, number)
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(victim).wait(1)
        fault = step_until_fault(world)["fault"]
        assert fault.pid == victim and fault.exitcode == -number
    go_on(world)
    world.close()


@pytest.mark.parametrize("kind", ["sleep", "spin", "SIGSTOP"])
def test_hangs_in_step_and_reset_are_ended_in_time(kind: str, bombs: Path) -> None:
    world = ForeignWorld(NAME, ForeignOptions(**IMPATIENT))
    try:
        world.reset(seed=1)
        for phase in ("step", "reset", "step", "reset"):
            go_on(world)
            plant(bombs / phase, kind)
            before = world.ledger.total
            while world.ledger.total == before:
                world.step(np.zeros(4, np.int64))
            fault = world.ledger.faults[-1]
            assert (fault.reason, fault.phase) == ("hung", phase)
            assert LIMIT_S < fault.duration_s < LIMIT_S + SLACK_S
            assert "faulty_envs.py" in fault.stacks and "blow_up" in fault.stacks
            assert not psutil.pid_exists(fault.pid)
        go_on(world)
    finally:
        world.close()


@pytest.mark.parametrize("kind", ["sleep", "spin", "SIGSTOP", "raise", "exit", "SIGABRT"])
def test_a_fault_in_construction_is_replaced(kind: str, bombs: Path) -> None:
    plant(bombs / "construct", kind)
    world = ForeignWorld(NAME, ForeignOptions(**IMPATIENT))
    try:
        assert [f.phase for f in world.ledger.faults] == ["construct"]
        world.reset(seed=1)
        go_on(world)
        plant(bombs / "construct", kind)
        plant(bombs / "step", "SIGKILL")
        world.step(np.zeros(4, np.int64))
        assert [f.phase for f in world.ledger.faults][1:] == ["step", "construct"]
        go_on(world)
    finally:
        world.close()


@pytest.mark.parametrize("kind", ["sleep", "spin", "SIGSTOP", "raise", "exit"])
def test_close_does_not_wait_for_whatever_the_environment_does(kind: str, bombs: Path) -> None:
    world = ForeignWorld(NAME, ForeignOptions(**IMPATIENT))
    world.reset(seed=1)
    plant(bombs / "close", kind)
    pids = world.pids()
    began = time.monotonic()
    world.close()
    assert time.monotonic() - began < SLACK_S
    assert not (bombs / "close").exists()
    assert not any(psutil.pid_exists(pid) for pid in pids)
    world.close()


def test_a_worker_that_ignores_sigterm_is_killed(bombs: Path) -> None:
    world = ForeignWorld("faulty_envs:Stubborn", ForeignOptions(**IMPATIENT))
    world.reset(seed=1)
    plant(bombs / "step", "sleep")
    while not world.ledger.total:
        world.step(np.zeros(4, np.int64))
    assert world.ledger.faults[-1].reason == "hung"
    go_on(world)
    world.close()


def test_what_an_environment_has_started_dies_with_its_worker(bombs: Path) -> None:
    world = ForeignWorld("faulty_envs:Parent", ForeignOptions(**QUICK))
    world.reset(seed=1)
    children = [c for w in workers_of(os.getpid()) for c in w.children()]
    assert len(children) == 4
    plant(bombs / "step", "SIGKILL")
    while not world.ledger.total:
        world.step(np.zeros(4, np.int64))
    world.close()
    _, alive = psutil.wait_procs(children, 2)
    assert alive == []


def test_too_many_restarts_stop_the_run_with_a_report(bombs: Path, tmp_path: Path) -> None:
    options = ForeignOptions(**{**QUICK, "max_restarts": 3, "workers": 1})
    world = ForeignWorld(NAME, options, record=Record(tmp_path))
    world.reset(seed=1)
    with pytest.raises(EnvironmentFault, match="on fire") as caught:
        for _ in range(10):
            plant(bombs / "step", "raise")
            world.step(np.zeros(4, np.int64))
    world.close()
    text = str(caught.value)
    assert "replaced 3 times" in text and "max_restarts = 3" in text
    (report,) = tmp_path.glob("env_fault_*.md")
    assert str(report) in text
    assert report.read_text().count("the simulator is on fire") >= 4
    errors = [e for e in read_lines(tmp_path / "env_events.jsonl") if e["status"] == "error"]
    assert [e["phase"] for e in errors] == ["step"] * 4
    assert errors[0]["error_type"] == "RuntimeError" and errors[0]["backend"] == "process"


@pytest.mark.parametrize("start", ["forkserver", "spawn"])
@pytest.mark.parametrize("state", ["idle", "spin", "SIGSTOP"])
def test_workers_leave_when_their_parent_is_killed(
    start: str, state: str, bombs: Path, tmp_path: Path
) -> None:
    code = f"""
import sys, os, numpy as np
sys.path.insert(0, {str(Path(__file__).parent)!r})
from holdfast.worlds.foreign import ForeignOptions, ForeignWorld
world = ForeignWorld({NAME!r}, ForeignOptions(games=2, workers=2, mode="process", start={start!r}))
world.reset(seed=1)
print(*world.pids(), flush=True)
while True:
    world.step(np.zeros(2, np.int64))
"""
    script = tmp_path / "script.py"
    script.write_text(code)  # with no __main__ guard: workers must not run it again
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    processes = [psutil.Process(pid) for pid in pids]
    if state != "idle":
        plant(bombs / "step", state)
        while (bombs / "step").exists():
            time.sleep(0.01)
    parent.kill()
    parent.communicate()
    _, alive = psutil.wait_procs(processes, 3)
    assert alive == []


def test_sixty_four_workers_are_constructed_without_a_time_out(bombs: Path) -> None:
    for _ in range(20):
        options = ForeignOptions(games=64, workers=64, mode="process")
        world = ForeignWorld(NAME, options)
        try:
            world.reset(seed=1)
            world.step(np.zeros(64, np.int64))
            assert len(world.pids()) == 64
            assert world.ledger.total == 0
        finally:
            world.close()


def test_a_training_run_survives_every_kind_of_fault_and_leaves_no_process(
    bombs: Path, tmp_path: Path
) -> None:
    words = (
        f"train {NAME} --run r --updates 100000 --learner.steps 8 --games 4 --workers 2 --mode process "
        "--step-s 0.8 --reset-s 0.8 --max-restarts 1000 --probe.every 0 --probe.episodes 1 "
        "--checkpoint-every 10000 --plain --no-report --no-tensorboard --heartbeat.beat-s 0.2"
    )
    where = str(Path(__file__).parent)
    path = os.pathsep.join([where, os.environ.get("PYTHONPATH", "")])
    run = tmp_path / "runs" / "r"
    trainer = subprocess.Popen(
        [sys.executable, "-m", "holdfast", *words.split()],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.PIPE,
        text=True,
    )

    def updates() -> int:
        return int(json.loads((run / "heartbeat.json").read_text()).get("update", 0))

    def wait_until(happened: Callable[[], bool]) -> None:
        while not happened():
            assert trainer.poll() is None, trainer.communicate()[1]
            time.sleep(0.02)

    wait_until(lambda: (run / "heartbeat.json").is_file() and updates() > 0)
    kinds = ["raise", "exit", "SIGKILL", "SIGSEGV", "sleep", "spin", "SIGSTOP"]
    for number, kind in enumerate(kinds):
        bomb = bombs / ("step", "reset")[number % 2]
        plant(bomb, kind)
        wait_until(lambda bomb=bomb: not bomb.exists())
        before = updates()
        wait_until(lambda before=before: updates() > before + 1)
    family = psutil.Process(trainer.pid).children(recursive=True)
    trainer.terminate()
    _, said = trainer.communicate(timeout=60)
    assert trainer.returncode == 143, said
    assert psutil.wait_procs(family, 3)[1] == []
    errors = [e for e in read_lines(run / "env_events.jsonl") if e["status"] == "error"]
    found = [(e["reason"], e["phase"]) for e in errors]
    deaths = [("raised", "step"), ("exited", "reset"), ("killed", "step"), ("killed", "reset")]
    assert found == [*deaths, ("hung", "step"), ("hung", "reset"), ("hung", "step")]
    assert said.count("its episodes count as truncated") == len(kinds)
