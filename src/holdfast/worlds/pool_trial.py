"""One trial of `holdfast envcheck`: construct, reset, step, look for life, close, in a process of its own.

`run_trial` starts the process and reads its JSON lines; what hangs or dies there, in whatever mode, is
classified here by its last phase. The record is schema 2:

    schema ts mode trial seed num_envs backend backend_version python numpy ok phase_failed error_type
    error construct_s reset_s steps steps_per_s first_obs_hash worker_exitcodes diag_dir
    episodes obs_changed
"""

from __future__ import annotations

import contextlib
import faulthandler
import hashlib
import json
import os
import platform
import select
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import psutil

from holdfast.errors import HoldfastError
from holdfast.worlds.events import Record
from holdfast.worlds.foreign import ForeignOptions, ForeignWorld
from holdfast.worlds.pool_faults import PoolFault, death
from holdfast.worlds.pool_worker import STACK_SIGNAL

GRACE_S = 4.0
"""What a pool may take beyond a deadline to end its workers and to tell."""
BOOT_S = 60.0


@dataclass(frozen=True)
class Trial:
    """What one trial does."""

    env: str
    mode: str
    trial: int
    seed: int
    games: int
    steps: int
    timeout_s: float
    """Longest time of one phase."""
    endless: bool
    """Episodes need not end."""
    folder: str
    """Directory for diagnostics."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """Keywords that the environment is made with."""


def run_trial(trial: Trial) -> dict[str, Any]:
    """Run one trial in a new process and return its record."""
    folder = Path(trial.folder)
    folder.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {
        "schema": 2,
        "ts": time.time(),
        "mode": trial.mode,
        "trial": trial.trial,
        "seed": trial.seed,
        "num_envs": trial.games,
        "backend": "gymnasium",
        "backend_version": gym.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "ok": False,
        "phase_failed": None,
        "error_type": None,
        "error": None,
        "construct_s": None,
        "reset_s": None,
        "steps": 0,
        "steps_per_s": None,
        "first_obs_hash": None,
        "worker_exitcodes": [],
        "diag_dir": str(folder),
        "episodes": 0,
        "obs_changed": None,
    }
    with open(folder / "stderr.txt", "wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.worlds.pool_trial", json.dumps(asdict(trial))],
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
    phase, finished = _follow(process, trial, record, folder)
    if not finished and record["error_type"] is None:
        _, kind, text = death(process.returncode)
        record.update(phase_failed=phase, error_type=kind, error=f"the trial {text} in {phase}")
        record["worker_exitcodes"] = record["worker_exitcodes"] or [process.returncode]
    record["ok"] = finished and record["error_type"] is None
    return record


def _follow(
    process: subprocess.Popen[bytes], trial: Trial, record: dict[str, Any], folder: Path
) -> tuple[str, bool]:
    """Read what the trial says until it ends or is late; return its last phase, and whether it finished."""
    assert process.stdout is not None
    grace = GRACE_S if trial.mode != "serial" else 0.0
    phase, finished, rest = "boot", False, b""
    heard = time.monotonic()
    while True:
        limit = BOOT_S if phase == "boot" else trial.timeout_s + grace
        left = heard + limit - time.monotonic()
        if left <= 0:
            _kill(process, folder)
            text = f"no sign of life for {limit:g} s in {phase}"
            record.update(phase_failed=phase, error_type="Hang", error=text)
            record["worker_exitcodes"] = [process.returncode]
            break
        if not select.select([process.stdout], [], [], min(left, 0.5))[0]:
            continue
        data = os.read(process.stdout.fileno(), 65536)
        if not data:
            process.wait()
            break
        heard = time.monotonic()
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            said = json.loads(line)
            phase = said.pop("phase", phase)
            finished = said.pop("finished", finished)
            record.update(said)
    process.stdout.close()
    return phase, finished


def _kill(process: subprocess.Popen[bytes], folder: Path) -> None:
    """End a trial that hangs, with its stack on disk and everything that it has started."""
    children = []
    with contextlib.suppress(psutil.NoSuchProcess):
        children = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, STACK_SIGNAL)
    os.kill(process.pid, signal.SIGCONT)
    end = time.monotonic() + 0.5
    while time.monotonic() < end and not (folder / "stacks.txt").stat().st_size:
        time.sleep(0.01)
    process.kill()
    process.wait()
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    psutil.wait_procs(children, 1.0)


def main(trial: Trial) -> None:
    """Be the process of one trial."""
    out = os.dup(1)
    os.dup2(2, 1)  # whatever an environment prints is not a record
    folder = Path(trial.folder)
    stacks = open(folder / "stacks.txt", "w")  # noqa: SIM115 (open as long as the process lives)
    faulthandler.enable(stacks)
    faulthandler.register(STACK_SIGNAL, stacks, all_threads=True, chain=False)
    state = {"phase": "construct"}

    def say(**fields: Any) -> None:
        state["phase"] = fields.get("phase", state["phase"])
        os.write(out, json.dumps(fields).encode() + b"\n")

    try:
        _live(trial, folder, say)
    except PoolFault as error:
        fault = error.fault
        codes = [fault.exitcode] if fault.exitcode is not None else []
        say(
            phase_failed=fault.phase,
            error_type=fault.error_type,
            error=str(error),
            worker_exitcodes=codes,
            finished=True,
        )
    except Exception as error:  # whatever goes wrong is what the trial is about
        kind = type(error).__name__
        text = str(error) if isinstance(error, HoldfastError) else f"{kind}: {error}"
        say(phase_failed=state["phase"], error_type=kind, error=text, finished=True)
    stacks.flush()
    os._exit(0)  # a thread that hangs must not keep the trial alive


def _live(trial: Trial, folder: Path, say: Any) -> None:
    say(phase="construct")
    usual = ForeignOptions()
    options = ForeignOptions(
        games=trial.games,
        mode=trial.mode,  # type: ignore[arg-type]
        kwargs=trial.kwargs,
        max_restarts=0,
        construct_s=min(usual.construct_s, trial.timeout_s),
        reset_s=min(usual.reset_s, trial.timeout_s),
        step_s=min(usual.step_s, trial.timeout_s),
    )
    began = time.perf_counter()
    world = ForeignWorld(trial.env, options, record=Record(folder, progress="quiet"))
    try:
        _exercise(trial, world, began, say)
    except Exception:
        if world.mode == "process":  # the others may hang in closing what has failed
            world.close()
        raise
    say(phase="close")
    world.close()
    for kind, text in world.events.failed_close[:1]:
        say(phase_failed="close", error_type=kind, error=text)
    say(finished=True, worker_exitcodes=world.exitcodes())


def _exercise(trial: Trial, world: ForeignWorld, began: float, say: Any) -> None:
    """Reset, step, and look for life."""
    say(phase="reset", construct_s=time.perf_counter() - began)
    began = time.perf_counter()
    first, _ = world.reset(seed=trial.seed)
    say(
        phase="step",
        reset_s=time.perf_counter() - began,
        first_obs_hash=hashlib.sha256(first.tobytes()).hexdigest()[:16],
    )
    world.action_space.seed(trial.seed)
    changed, episodes, told = np.zeros(world.num_envs, np.bool_), 0, 0.0
    axes = tuple(range(1, first.ndim))
    began = time.perf_counter()
    for t in range(1, trial.steps + 1):
        obs, _, _, _, info = world.step(world.action_space.sample())
        changed |= (obs != first).any(axes)
        episodes += len(info.get("episodes", ()))
        now = time.perf_counter()
        if now - told > 0.2 or t == trial.steps:
            told = now
            rate = t * world.num_envs / max(now - began, 1e-9)
            say(steps=t, steps_per_s=rate, episodes=episodes, obs_changed=bool(changed.all()))
    say(phase="liveness")
    if not changed.all():
        slot = int(np.flatnonzero(~changed)[0])
        say(
            phase_failed="liveness",
            error_type="ObservationsFrozen",
            error=f"the observation of slot {slot} never changed in {trial.steps} steps: a dummy?",
        )
    elif not episodes and not trial.endless:
        say(
            phase_failed="liveness",
            error_type="NoEpisodeEnded",
            error=f"no episode ended in {trial.steps} steps of {trial.games} games; raise --steps, or "
            "say --endless if that is meant",
        )


if __name__ == "__main__":
    main(Trial(**json.loads(sys.argv[1])))
