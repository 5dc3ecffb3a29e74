"""Prioritised replay beside cpprb and TorchRL: microseconds for adding, sampling and updating 256 steps.

    .venv-bench/bin/python bench/replay.py                        # 100,000 and 1,000,000 steps of 16 numbers
    .venv-bench/bin/python bench/replay.py --capacity 100000 --obs 84x84
    .venv-bench/bin/python bench/replay.py --json out.json

All buffers are full, live in one process and take turns, in an order that rotates, so that whatever else the machine
does hits all alike; torch has one thread, which suits such small tensors best. A round adds 256 new steps, draws 256 and
sets the priorities of what was drawn. `holdfast` draws single steps, as the peers do; `holdfast seq` draws 8 sequences of
32 steps, as `torchrl slices` does.
The figure is the median over the turns; the ratio is the median of the ratios of each turn.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault(
    "NUMBA_CACHE_DIR", str(Path(__file__).resolve().parents[1] / ".numba_cache" / "bench")
)
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

BATCH = 256
STEPS, LENGTH = 16, 32
"""Steps of the rollouts that are added: for single steps, and for sequences."""
ALPHA, BETA = 0.6, 0.4
Part = Callable[[], Any]


class Data:
    """Steps to add, the same for all: `lots` rollouts of 256 steps, `steps` a slot."""

    def __init__(self, shape: tuple[int, ...], steps: int, lots: int = 16) -> None:
        from holdfast.records import Rollout

        rng = np.random.default_rng(0)
        self.shape, self.dtype = shape, np.uint8 if len(shape) > 1 else np.float32
        self.rollouts = []
        for _ in range(lots):
            made = Rollout.empty(steps, BATCH // steps, shape, self.dtype, (), np.int32, 1)
            made.frames[:] = rng.integers(0, 255, made.frames.shape)
            made.actions[:] = rng.integers(0, 7, made.actions.shape)
            made.rewards[:] = rng.normal(size=made.rewards.shape)
            self.rollouts.append(made)
        self.priorities = rng.random((64, BATCH)) + 0.01

    def flat(self, lot: int) -> dict[str, Any]:
        """Return a rollout as single transitions, slot by slot."""
        rollout = self.rollouts[lot % len(self.rollouts)]

        def rows(array: Any) -> Any:
            return np.ascontiguousarray(array.swapaxes(0, 1)).reshape(-1, *array.shape[2:])

        return {
            "obs": rows(rollout.obs[:-1]),
            "act": rows(rollout.actions),
            "rew": rows(rollout.rewards.astype(np.float32)),
            "next_obs": rows(rollout.obs[1:]),
            "done": rows(rollout.terminations),
        }


class Ours:
    """`holdfast.learn.replay`, drawing single steps or sequences."""

    def __init__(self, data: Data, capacity: int, sequences: bool) -> None:
        from holdfast.learn.options import ReplayConfig
        from holdfast.learn.replay import Replay
        from holdfast.rng import Streams

        config = ReplayConfig(
            capacity=capacity,
            max_gb=64,
            alpha=ALPHA,
            beta=BETA,
            mode="sequence" if sequences else "transition",
        )
        self.data, self.replay = data, Replay(config, Streams(1))
        self.count = BATCH // LENGTH if sequences else BATCH
        self.round = 0
        self.sample: Any = None
        while self.replay.size < self.replay.capacity or self.round == 0:
            self.add()

    def add(self) -> None:
        self.round += 1
        self.replay.push(self.data.rollouts[self.round % len(self.data.rollouts)])

    def draw(self) -> None:
        self.sample = self.replay.sample(self.count)

    def update(self) -> None:
        values = self.data.priorities[self.round % 64][: self.count]
        self.replay.update(self.sample.indices, values)


class Cpprb:
    """cpprb's PrioritizedReplayBuffer."""

    def __init__(self, data: Data, capacity: int) -> None:
        from cpprb import PrioritizedReplayBuffer

        fields = {
            "obs": {"shape": data.shape, "dtype": data.dtype},
            "act": {"dtype": np.int32},
            "rew": {},
            "next_obs": {"shape": data.shape, "dtype": data.dtype},
            "done": {},
        }
        self.buffer = PrioritizedReplayBuffer(capacity, fields, alpha=ALPHA)
        self.lots = [data.flat(k) for k in range(len(data.rollouts))]
        self.data, self.round = data, 0
        self.sample: Any = None
        while self.buffer.get_stored_size() < capacity:
            self.add()

    def add(self) -> None:
        self.round += 1
        self.buffer.add(**self.lots[self.round % len(self.lots)])

    def draw(self) -> None:
        self.sample = self.buffer.sample(BATCH, beta=BETA)

    def update(self) -> None:
        self.buffer.update_priorities(self.sample["indexes"], self.data.priorities[self.round % 64])


def load_torchrl_trees() -> None:
    """Make TorchRL's compiled trees loadable: its wheel is built for one torch version only.

    If that is another one, they are built here from the sources that the wheel brings (a minute or two, once).
    """
    import torch
    import torch.utils.cpp_extension as cpp

    try:
        import torchrl._torchrl  # noqa: F401
    except ImportError:
        pass
    else:
        return
    found = importlib.util.find_spec("torchrl")
    assert found is not None and found.origin is not None
    sources = Path(found.origin).parent / "csrc"
    built = Path(os.environ["NUMBA_CACHE_DIR"]) / f"torchrl-trees-torch-{torch.__version__}.so"
    if not built.is_file():
        print(f"building TorchRL's trees for torch {torch.__version__}", file=sys.stderr)
        built.parent.mkdir(parents=True, exist_ok=True)
        libraries = Path(torch.__file__).parent / "lib"
        part = built.with_suffix(".part")
        command = ["g++", "-O3", "-std=c++20", "-shared", "-fPIC", "-fopenmp"]
        command += ["-D_GLIBCXX_USE_CXX11_ABI=" + str(int(torch._C._GLIBCXX_USE_CXX11_ABI))]
        command += [f"-I{path}" for path in cpp.include_paths()]
        command += [f"-I{sysconfig.get_paths()['include']}"]
        command += [str(sources / "pybind.cpp"), str(sources / "utils.cpp"), "-o", str(part)]
        command += [f"-L{libraries}", "-ltorch", "-ltorch_cpu", "-ltorch_python", "-lc10"]
        subprocess.run(command, check=True)
        part.rename(built)
    spec = importlib.util.spec_from_file_location("torchrl._torchrl", built)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["torchrl._torchrl"] = module


class TorchRL:
    """TorchRL's prioritised buffer of TensorDicts, drawing single steps or slices."""

    def __init__(self, data: Data, capacity: int, slices: bool) -> None:
        load_torchrl_trees()
        import torch
        from tensordict import TensorDict
        from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
        from torchrl.data.replay_buffers.samplers import PrioritizedSampler, PrioritizedSliceSampler

        self.lots = []
        for k in range(len(data.rollouts)):
            flat = {name: torch.from_numpy(rows) for name, rows in data.flat(k).items()}
            size = len(flat["rew"])
            flat["trajectory"] = torch.arange(size) // data.rollouts[0].steps
            self.lots.append(TensorDict(flat, [size]))
        if slices:
            sampler = PrioritizedSliceSampler(
                capacity, ALPHA, BETA, slice_len=LENGTH, traj_key="trajectory", strict_length=True
            )
        else:
            sampler = PrioritizedSampler(capacity, ALPHA, BETA)
        self.buffer = TensorDictReplayBuffer(
            storage=LazyTensorStorage(capacity), sampler=sampler, batch_size=BATCH
        )
        self.priorities = torch.from_numpy(data.priorities.astype(np.float32))
        self.round = 0
        self.sample: Any = None
        while len(self.buffer) < capacity:
            self.add()

    def add(self) -> None:
        self.round += 1
        self.buffer.extend(self.lots[self.round % len(self.lots)])

    def draw(self) -> None:
        self.sample = self.buffer.sample()

    def update(self) -> None:
        self.buffer.update_priority(self.sample["index"], self.priorities[self.round % 64])


def contenders(data: Data, long: Data, capacity: int, only: list[str]) -> dict[str, Any]:
    """Return the full buffers by name; one that is not installed is left out and said so."""
    makers: dict[str, Callable[[], Any]] = {
        "holdfast": lambda: Ours(data, capacity, False),
        "cpprb": lambda: Cpprb(data, capacity),
        "torchrl": lambda: TorchRL(data, capacity, False),
        "holdfast seq": lambda: Ours(long, capacity, True),
        "torchrl slices": lambda: TorchRL(long, capacity, True),
    }
    found = {}
    for name, make in makers.items():
        if only and name not in only:
            continue
        try:
            found[name] = make()
        except ImportError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
    return found


def turn(buffer: Any, seconds: float) -> dict[str, float]:
    """Return the microseconds of each part of a round over one turn."""
    parts: dict[str, Part] = {"add": buffer.add, "sample": buffer.draw, "update": buffer.update}
    spent = dict.fromkeys(parts, 0.0)
    rounds, began = 0, time.perf_counter()
    while rounds < 2 or time.perf_counter() - began < seconds:
        for name, part in parts.items():
            at = time.perf_counter()
            part()
            spent[name] += time.perf_counter() - at
        rounds += 1
    found = {name: 1e6 * total / rounds for name, total in spent.items()}
    return {**found, "round": sum(found.values())}


def measure(args: argparse.Namespace, capacity: int) -> dict[str, Any]:
    """Return the figures of every contender at one capacity, and print them."""
    shape = tuple(int(side) for side in args.obs.split("x"))
    data, long = Data(shape, STEPS), Data(shape, LENGTH)
    field = contenders(data, long, capacity, args.only)
    names = list(field)
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for buffer in field.values():
        turn(buffer, 0.1)
    for number in range(args.turns):
        for k in range(len(names)):
            name = names[(k + number) % len(names)]
            turns[name].append(turn(field[name], args.seconds))
    print(f"{capacity:,} steps of {args.obs}, batch {BATCH}; microseconds a round")
    rows = {}
    for name in names:
        peer = name.startswith("torchrl sl")
        base = turns.get("holdfast seq" if peer else "holdfast") or turns[name]
        ratio = statistics.median(
            theirs["round"] / ours["round"] for ours, theirs in zip(base, turns[name], strict=True)
        )
        row = {
            part: round(statistics.median(t[part] for t in turns[name]), 1)
            for part in ("add", "sample", "update", "round")
        }
        rows[name] = {**row, "times_ours": round(ratio, 2)}
        print(
            f"  {name:<15} add {row['add']:>8.1f}  sample {row['sample']:>8.1f}  update {row['update']:>8.1f}  "
            f"round {row['round']:>8.1f}   {ratio:>6.2f} times ours"
        )
    return {"capacity": capacity, "obs": args.obs, "batch": BATCH, "rows": rows}


def main() -> None:
    """Measure and print a table for each capacity."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--capacity", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument(
        "--obs", default="16", help="numbers of an observation, or a picture: 84x84"
    )
    parser.add_argument("--only", nargs="+", default=[], help="some contenders by name")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--json", default="")
    args = parser.parse_args()
    results = [measure(args, capacity) for capacity in args.capacity]
    if args.json:
        with open(args.json, "w") as file:
            json.dump(results, file, indent=2)


if __name__ == "__main__":
    main()
