"""Training with and without collecting ahead, side by side: is `--overlap` worth it here?

    python bench/overlap.py                               # every case, about four minutes
    python bench/overlap.py --cases sleep --num-envs 4 8 --rollout 32 64 --updates 30 --out benchmarks

| case  | what steps                                              | what learns          |
|-------|---------------------------------------------------------|----------------------|
| shoal | our compiled world, in this process                     | fused PPO            |
| sleep | worker processes that wait 1 ms a step (remote, a GPU)  | torch PPO, 256 x 256 |
| busy  | worker processes that compute for 1 ms a step           | torch PPO, 256 x 256 |
| mario | our compiled NES with pictures (needs the ROM)          | torch PPO, small CNN |

Both runs of a pair live at the same time and take turns of one update, so that whatever else the machine does hits
both alike. The first `--warmup` of the updates is dropped. The ratio is the median over the turns of the seconds
without overlap through those with it. For each case a CSV `bench_overlap_<case>_<time>.csv` is written.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

COLUMNS = (
    *("mode", "num_envs", "rollout", "steps_per_sec_mean", "updates_per_sec_mean"),
    *("replay_fill_final", "gpu_util_mean_window", "duration_sec", "error"),
)
MODES = {"sync": "off", "overlap": "on"}
STEP_S = 0.001


class Sleeps(gym.Env[Any, Any]):
    """An environment whose work is done elsewhere: a step waits."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (16,), np.float32)
    action_space = gym.spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self.np_random.normal(size=16).astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.work()
        self.t += 1
        obs = self.np_random.normal(size=16).astype(np.float32)
        return obs, float(action == 1), self.t >= 200, False, {}

    def work(self) -> None:
        """Take the time of a step."""
        time.sleep(STEP_S)


class Busy(Sleeps):
    """An environment that computes: a step needs the processor."""

    def work(self) -> None:
        end = time.thread_time() + STEP_S
        while time.thread_time() < end:
            pass


@dataclass(frozen=True)
class Case:
    """A world, its settings, and the sizes that are measured unless others are asked for."""

    world: str
    settings: dict[str, Any]
    envs: tuple[int, ...]
    rollout: tuple[int, ...]


WORKERS = {"mode": "process", "workers": 2, "learner.kind": "torch", "hidden": "256,256"}
CASES = {
    "shoal": Case("shoal", {"learner.kind": "fused"}, (16,), (128,)),
    "sleep": Case("overlap:Sleeps", {**WORKERS, "minibatch": 64}, (4, 8), (32, 64)),
    "busy": Case("overlap:Busy", {**WORKERS, "minibatch": 64}, (4, 8), (32, 64)),
    "mario": Case("mario", {"observation": "pixels", "learner.net": "small"}, (8,), (32,)),
}


@dataclass
class Runner:
    """One run that is measured update by update."""

    loop: Any
    seconds: list[float] = field(default_factory=list)
    signals: list[dict[str, Any]] = field(default_factory=list)

    def turn(self) -> None:
        """Make one update."""
        began = time.perf_counter()
        self.loop.update()
        self.seconds.append(time.perf_counter() - began)
        self.signals.append(dict(self.loop.signals))

    def mean(self, name: str, first: int) -> float:
        """Return the mean of a signal over the updates from `first` on."""
        found = [s[name] for s in self.signals[first:] if s.get(name) is not None]
        return statistics.fmean(found) if found else 0.0


def runner(case: Case, overlap: str, envs: int, rollout: int, updates: int, folder: Path) -> Runner:
    """Return a run of a case, ready for its first update."""
    from holdfast.config import resolve
    from holdfast.run import RunDirectory, build

    settings: dict[str, Any] = {
        **case.settings,
        "games": envs,
        "learner.steps": rollout,
        "overlap": overlap,
        "updates": updates + 1,  # nothing is played ahead of the last one
        "run": overlap,
        "probe.every": 0,
        "tensorboard": False,
        "checkpoint_every": 1_000_000,
    }
    config = resolve(case.world, list(settings.items()))
    loop = build(config, RunDirectory.create(folder, config), lambda line: None, print)
    loop.recorder.load_state_dict(dict.fromkeys(loop.recorder.lines, 0))
    loop.begin()
    return Runner(loop)


def measure(case: Case, envs: int, rollout: int, updates: int, warmup: float) -> dict[str, Any]:
    """Return the rows of a pair by mode, its ratio and how the time was shared."""
    began, first = time.perf_counter(), max(1, round(updates * warmup))
    with tempfile.TemporaryDirectory() as folder:
        pair = {}
        try:
            for mode, overlap in MODES.items():
                pair[mode] = runner(case, overlap, envs, rollout, updates, Path(folder))
            for k in range(updates):
                for mode in list(MODES)[:: 1 if k % 2 else -1]:
                    pair[mode].turn()
        finally:
            for one in pair.values():
                one.loop.recorder.close()
                one.loop.world.close()
    rows = []
    for mode, one in pair.items():
        spent = one.seconds[first:]
        steps = one.loop.progress.env_steps / updates
        about = {
            "mode": mode,
            "num_envs": envs,
            "rollout": rollout,
            "steps_per_sec_mean": round(len(spent) * steps / sum(spent), 1),
            "updates_per_sec_mean": round(len(spent) / sum(spent), 3),
            "duration_sec": round(time.perf_counter() - began, 2),
        }
        rows.append(about)
    off, on = pair["sync"], pair["overlap"]
    ratios = [a / b for a, b in zip(off.seconds[first:], on.seconds[first:], strict=True)]
    shares = {
        name: on.mean(f"time/{name}", first)
        for name in ("wait_collect_s", "wait_learn_s", "overlap_efficiency")
    }
    split = {name: off.mean(f"time/{name}", first) for name in ("collect_s", "learn_s")}
    return {"rows": rows, "ratio": statistics.median(ratios), **shares, **split}


def main() -> None:
    """Measure every case, print a table and write the CSVs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--num-envs", type=int, nargs="+", default=[])
    parser.add_argument("--rollout", type=int, nargs="+", default=[])
    parser.add_argument("--updates", type=int, default=30)
    parser.add_argument("--warmup", type=float, default=0.3, help="share of updates left out")
    parser.add_argument("--out", type=Path, default=Path("benchmarks"))
    args = parser.parse_args()
    stamp = time.strftime("%Y%m%d-%H%M%S")
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.cases:
        case = CASES[name]
        with open(args.out / f"bench_overlap_{name}_{stamp}.csv", "w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, restval="")
            writer.writeheader()
            for envs in args.num_envs or case.envs:
                for rollout in args.rollout or case.rollout:
                    for row in pair_rows(name, case, envs, rollout, args):
                        writer.writerow(row)
                        file.flush()


def pair_rows(
    name: str, case: Case, envs: int, rollout: int, args: argparse.Namespace
) -> list[dict[str, Any]]:
    """Measure one pair and print it; one that fails gives rows that say why."""
    try:
        found = measure(case, envs, rollout, args.updates, args.warmup)
    except Exception as error:  # the others are still of use
        print(f"{name:<6} {envs:>3} x {rollout:<4} failed: {error}", file=sys.stderr)
        return [
            {"mode": mode, "num_envs": envs, "rollout": rollout, "error": str(error).split("\n")[0]}
            for mode in MODES
        ]
    rows: list[dict[str, Any]] = found["rows"]
    print(
        f"{name:<6} {envs:>3} x {rollout:<4} off {rows[0]['steps_per_sec_mean']:>11,.0f} steps/s "
        f"(collect {1e3 * found['collect_s']:.1f} ms, learn {1e3 * found['learn_s']:.1f} ms)   "
        f"on {rows[1]['steps_per_sec_mean']:>11,.0f}   {found['ratio']:.2f}x   "
        f"efficiency {found['overlap_efficiency']:.2f}"
    )
    return rows


if __name__ == "__main__":
    main()
