"""Environments that fail on demand; light to import, because every worker process does.

A file `<phase>` in the directory `FAULT_DIR` is a bomb: the first environment that comes to this phase
takes it away and does what it says.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import gymnasium as gym
import numpy as np


def sleep_for_ever() -> None:
    while True:
        time.sleep(3600)


def spin_for_ever() -> None:
    while True:
        pass


def blow_up(kind: str) -> None:
    if kind == "raise":
        raise RuntimeError("the simulator is on fire")
    if kind == "exit":
        os._exit(7)
    if kind == "leave":
        sys.exit(9)
    if kind == "sleep":
        sleep_for_ever()
    if kind == "spin":
        spin_for_ever()
    os.kill(os.getpid(), getattr(signal, kind))


def look(phase: str) -> None:
    bomb = Path(os.environ["FAULT_DIR"]) / phase
    taken = bomb.with_name(f"{phase}-taken-by-{os.getpid()}-{threading.get_ident()}")
    try:
        bomb.rename(taken)
    except FileNotFoundError:
        return
    kind = taken.read_text()
    taken.unlink()
    blow_up(kind)


def plant(bomb: Path, kind: str) -> None:
    """Write a bomb: all of it is there at once."""
    hidden = bomb.with_name(f"{bomb.name}-planted")
    hidden.write_text(kind)
    hidden.rename(bomb)


class Faulty(gym.Env):
    """Counts; the observation tells the episode's seed and step."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self) -> None:
        look("construct")

    def reset(self, seed=None, options=None):
        look("reset")
        self.seed, self.t = seed % 1000, 0
        return self.obs(), {}

    def step(self, action):
        look("step")
        self.t += 1
        return self.obs(), 1.0, self.t >= 50, False, {}

    def close(self):
        look("close")

    def obs(self):
        return np.array([self.seed, self.t], np.float32)


class Stubborn(Faulty):
    """Ignores SIGTERM."""

    def __init__(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        super().__init__()


class Parent(Faulty):
    """Has a process of its own, as environments round a foreign program do."""

    def __init__(self) -> None:
        self.child = subprocess.Popen(["sleep", "1000"])
        super().__init__()
