"""One measured case: its arguments, its world, its clock, and the JSON line that an adapter prints.

Every adapter is a script with the same arguments that trains PPO on the same shoal world and prints one line:

    {"peer": ..., "version": ..., "transitions_per_s": [one a timed update], "seconds": [...],
     "cpu_s": processor seconds of all threads (on a busy machine steadier than wall time),
     "split": {"env": s, "inference": s, "advantages": s, "update": s} or null,   medians of one update
     "transitions": T x slots of one update, "gradient_steps": of one update, "world_steps": of one update,
     "settings": [what was chosen for speed], "rss_mb": peak memory, "case": the arguments}

The counts are measured, not computed: gradient steps by a hook on the optimiser, world steps in the world. An
adapter that does another amount of work than it was asked for fails instead of printing a figure.

With `--burst N` it says that it is ready and waits for a line before the warm-up and before every N timed updates.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from turns import READY

FISH = 25
GAMMA, LAMBDA, CLIP, ENTROPY, VALUE_COEF, MAX_GRAD_NORM, LR = 0.99, 0.95, 0.2, 0.01, 0.5, 0.5, 3e-4
OBS, CHOICES = 11, 5


@dataclass(frozen=True)
class Case:
    """What to train, and for how long."""

    hidden: tuple[int, ...] = (64, 64)
    minibatch: int = 1024
    steps: int = 128
    epochs: int = 5
    threads: int = 1
    games: int = 64
    updates: int = 2
    """Timed updates."""
    warmup: int = 1
    """Updates before the clock runs: they compile, allocate and fill caches."""
    uneven: int = 0
    """1: an epoch may be cut into minibatches of slightly uneven size, as ours is (growth only)."""
    burst: int = 0
    """Timed updates of a turn; 0: all of them at once."""
    variant: str = ""

    @property
    def slots(self) -> int:
        return self.games * FISH

    @property
    def transitions(self) -> int:
        """Transitions of one update."""
        return self.steps * self.slots

    @property
    def minibatches(self) -> int:
        """Minibatches of one epoch; the cases are chosen so that they come out whole."""
        if self.uneven:
            return max(1, round(self.transitions / self.minibatch))
        if self.transitions % self.minibatch:
            raise SystemExit(
                f"{self.transitions} transitions ({self.steps} steps x {self.slots} slots) are not a whole "
                f"number of minibatches of {self.minibatch}: peers would differ in gradient steps. "
                "64 games fit 8192, 8 games fit 1024."
            )
        return self.transitions // self.minibatch

    @property
    def gradient_steps(self) -> int:
        """Gradient steps of one update."""
        return self.epochs * self.minibatches


def read_case(argv: list[str] | None = None, pin: bool = True) -> Case:
    """Read the arguments, and keep this process to `threads` cores: nobody borrows the second one."""
    parser = argparse.ArgumentParser()
    for name, value in asdict(Case()).items():
        kind = str if name in ("hidden", "variant") else int
        text = ",".join(map(str, value)) if name == "hidden" else value
        parser.add_argument(f"--{name}", type=kind, default=text)
    given = vars(parser.parse_args(argv))
    given["hidden"] = tuple(int(w) for w in given["hidden"].split(","))
    case = Case(**given)
    cores = sorted(os.sched_getaffinity(0))
    if pin and case.threads < len(cores):
        os.sched_setaffinity(0, cores[-case.threads :])
    return case


class Meter:
    """Counts and times the updates of one adapter."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.rows: list[dict[str, float]] = []
        self._env_s = self._advantages_s = 0.0
        self._world_steps = self._gradient_steps = 0
        self._began = self._learning = 0.0
        self._early_advantages_s = self._cpu = 0.0
        self._limit = 0.0

    def start(self) -> None:
        """An update begins with its rollout."""
        timed = len(self.rows) - self.case.warmup
        if self.case.burst and (not self.rows or (timed >= 0 and timed % self.case.burst == 0)):
            print(f"\n{READY}", file=sys.__stdout__, flush=True)
            sys.stdin.readline()
            self._limit = 0.0
        self._limit = self._limit or limit_gflops(self.case.threads)
        self._env_s = self._advantages_s = self._early_advantages_s = self._learning = 0.0
        self._world_steps = self._gradient_steps = 0
        self._cpu = time.process_time()
        self._began = time.perf_counter()

    def learn(self) -> None:
        """The rollout is complete; what follows is the update."""
        self._learning = time.perf_counter()
        self._early_advantages_s = self._advantages_s

    def end(self) -> None:
        """The update is done. Raise if it was not the work that was asked for."""
        ended = time.perf_counter()
        case = self.case
        did = (self._world_steps, self._gradient_steps)
        if did != (case.steps, case.gradient_steps):
            raise SystemExit(
                f"An update made {did[0]} world steps of {case.slots} slots and {did[1]} gradient steps; "
                f"asked were {case.steps} and {case.gradient_steps}."
            )
        late = self._advantages_s - self._early_advantages_s
        rollout_s = self._learning - self._began
        self.rows.append(
            {
                "seconds": ended - self._began,
                "cpu": time.process_time() - self._cpu,
                "env": self._env_s,
                "inference": rollout_s - self._env_s - self._early_advantages_s,
                "advantages": self._advantages_s,
                "update": ended - self._learning - late,
                "world_steps": did[0],
                "gradient_steps": did[1],
            }
        )
        before, self._limit = self._limit, limit_gflops(case.threads)
        self.rows[-1]["limit"] = (before + self._limit) / 2

    def count_gradient_step(self, *_: Any) -> None:
        """One more optimiser step was made."""
        self._gradient_steps += 1

    def count_gradient_steps(self, steps: int) -> None:
        """This many optimiser steps were made in a compiled loop."""
        self._gradient_steps += steps

    def count_world_steps(self, steps: int) -> None:
        """This many steps of all slots were made in a compiled loop."""
        self._world_steps += steps

    def watch_optimiser(self, optimiser: Any) -> None:
        """Count the steps of a torch optimiser."""
        optimiser.register_step_post_hook(self.count_gradient_step)

    @contextlib.contextmanager
    def advantages(self) -> Iterator[None]:
        """What runs inside is the computation of advantages."""
        began = time.perf_counter()
        yield
        self._advantages_s += time.perf_counter() - began

    def timed_advantages(self, function: Any) -> Any:
        """Return `function` with its time booked as advantages."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.advantages():
                return function(*args, **kwargs)

        return timed

    def make_world(self) -> Any:
        """Return the world of the case; its steps are counted and timed where they happen."""
        import holdfast

        world: Any = holdfast.make(
            "shoal",
            seed=0,
            games=self.case.games,
            fish=FISH,
            view_reward=5.0,
            force_reset_steps=150,
        )
        assert world.num_envs == self.case.slots and world.single_observation_space.shape == (OBS,)
        inner = world.step_into

        def step_into(*args: Any) -> Any:
            began = time.perf_counter()
            info = inner(*args)
            self._env_s += time.perf_counter() - began
            self._world_steps += 1
            return info

        world.step_into = step_into
        return world

    def report(
        self, peer: str, version: str, settings: list[str], *, split: bool = True, **more: Any
    ) -> None:
        """Print the line of this adapter."""
        rows = self.rows[self.case.warmup :]
        assert len(rows) == self.case.updates, f"{len(rows)} timed updates, not {self.case.updates}"
        parts = ("env", "inference", "advantages", "update")
        line = {
            "peer": peer,
            "version": version,
            "transitions_per_s": [self.case.transitions / row["seconds"] for row in rows],
            "seconds": [row["seconds"] for row in rows],
            "cpu_s": [row["cpu"] for row in rows],
            "warmup_s": sum(row["seconds"] for row in self.rows[: self.case.warmup]),
            "limit_gflops": [row["limit"] for row in rows],
            "split": {p: statistics.median(r[p] for r in rows) for p in parts} if split else None,
            "transitions": self.case.transitions,
            "gradient_steps": int(rows[0]["gradient_steps"]),
            "world_steps": int(rows[0]["world_steps"]),
            "settings": settings,
            "rss_mb": peak_memory_mb(),
            "case": asdict(self.case),
            **more,
        }
        print("\n" + json.dumps(line), flush=True)


def limit_gflops(threads: int) -> float:
    """Return the multiply-add limit of this moment: the host of a virtual machine takes and gives by the second."""
    from holdfast.learn.fused_bench import peak_gflops

    return peak_gflops(threads, seconds=0.03, tries=3)


def peak_memory_mb() -> float:
    """Return the largest resident size of this process (getrusage would give the parent's if that was larger)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def ready_torch(case: Case) -> str:
    """Give torch its threads, skip its argument checks, and return its version."""
    import torch

    torch.set_num_threads(case.threads)
    torch.set_num_interop_threads(1)
    torch.distributions.Distribution.set_default_validate_args(False)
    torch.manual_seed(0)
    return torch.__version__


TORCH_SETTINGS = [
    "torch.set_num_threads(threads)",
    "distribution argument checks off",
    "no logging, no checkpoints",
]
NO_MASKS = "trains on all slots, dead ones too (knows no masks)"
