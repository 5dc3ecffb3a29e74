"""How fast the torch learners are: transitions/s of acting and updating, without the world.

    python -m holdfast.learn.net_bench                                  # small and nature, PPO and V-trace
    python -m holdfast.learn.net_bench --nets impala --memory gru --epochs 1

Frames are random bytes of 84 x 84, four of which are stacked; nets and learners take turns.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from holdfast.learn.learner import Learner, make_learner
from holdfast.learn.options import LearnerConfig
from holdfast.learn.spec import NetSpec
from holdfast.parallel import cores
from holdfast.records import Rollout
from holdfast.rng import Streams

SIDE, STACK, CHOICES = 84, 4, 7


class NetBench:
    """One learner and one rollout of random frames; every `run` is a rollout's acting and its update."""

    def __init__(self, kind: str, net: str, slots: int, **options: Any) -> None:
        config = LearnerConfig(kind=kind, net=net, **options)  # type: ignore[arg-type]
        spec = NetSpec(
            SIDE * SIDE,
            "discrete",
            nvec=(CHOICES,),
            trunk=net,  # type: ignore[arg-type]
            picture=(SIDE, SIDE, 1),
            stack=STACK,
            memory=config.memory,
            memory_size=config.memory_size,
            noisy=config.noisy,
        )
        self.learner: Learner = make_learner(spec, config, Streams(0), slots)
        self.rollout: Rollout = self.learner.new_rollout(slots)
        rng = np.random.default_rng(0)
        self.rollout.obs[:] = rng.integers(0, 256, self.rollout.obs.shape, np.uint8)
        self.rollout.rewards[:] = rng.normal(size=self.rollout.rewards.shape)
        self.rollout.terminations[:] = rng.random(self.rollout.terminations.shape) < 0.01
        self.transitions = self.rollout.rewards.size

    def run(self) -> tuple[float, float]:
        """Return the seconds of (acting in all steps, the update)."""
        learner, rollout = self.learner, self.rollout
        start = time.perf_counter()
        learner.begin(rollout)
        for t in range(rollout.steps):
            learner.act(rollout, t)
        middle = time.perf_counter()
        learner.update(rollout)
        return middle - start, time.perf_counter() - middle


def bench_nets(
    nets: tuple[str, ...] = ("small", "nature"),
    kinds: tuple[str, ...] = ("torch", "vtrace"),
    slots: int = 32,
    repeats: int = 3,
    **options: Any,
) -> dict[tuple[str, str], dict[str, float]]:
    """Return transitions/s (median and best) and the best seconds by part, by (net, learner)."""
    benches = {(n, k): NetBench(k, n, slots, **options) for n in nets for k in kinds}
    times: dict[tuple[str, str], list[tuple[float, float]]] = {key: [] for key in benches}
    for repeat in range(repeats + 1):
        for key, bench in benches.items():
            found = bench.run()
            if repeat:  # the first round warms up
                times[key].append(found)
    result = {}
    for key, bench in benches.items():
        whole = np.array([a + b for a, b in times[key]])
        best = times[key][int(whole.argmin())]
        result[key] = {
            "transitions_per_s": float(bench.transitions / np.median(whole)),
            "transitions_per_s_best": float(bench.transitions / whole.min()),
            "act_s": best[0],
            "update_s": best[1],
        }
    return result


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nets", default="small,nature")
    parser.add_argument("--learners", default="torch,vtrace")
    parser.add_argument("--memory", default="none")
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--slots", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--minibatch", type=int, default=256)
    parser.add_argument("--threads", type=int, default=cores())
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    rows = bench_nets(
        tuple(args.nets.split(",")),
        tuple(args.learners.split(",")),
        args.slots,
        args.repeats,
        steps=args.steps,
        epochs=args.epochs,
        minibatch=args.minibatch,
        threads=args.threads,
        memory=args.memory,
    )
    print(
        f"{args.slots} slots, {args.steps} steps, {args.epochs} epochs (PPO), {args.threads} threads"
    )
    print("net     learner  transitions/s   (best)   act s  update s")
    for (net, kind), row in rows.items():
        print(
            f"{net:7s} {kind:7s}  {row['transitions_per_s']:13,.0f} {row['transitions_per_s_best']:8,.0f} "
            f"{row['act_s']:7.2f} {row['update_s']:9.2f}"
        )


if __name__ == "__main__":
    main()
