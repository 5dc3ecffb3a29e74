"""How fast a learner is, and what share of the machine's multiply-add limit it reaches.

The work of one transition, counted in multiply-adds of the matrix products alone: one forward pass in the
rollout, and in every epoch one forward pass, the weight gradients, and the derivatives of all layers but
the first. Activations, losses, Adam and all memory traffic count as nothing. Products are counted as if they were made
from rows and columns: what `fused_seven` saves counts as done.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from holdfast.jit import kernel
from holdfast.learn.fused_simd import LANES, VECTOR, address, fma, load_wide, store
from holdfast.learn.learner import Learner, make_learner
from holdfast.learn.options import LearnerConfig
from holdfast.learn.spec import NetSpec
from holdfast.records import Rollout
from holdfast.rng import Streams


@kernel
def _multiply_add(rounds, data):
    """Ten independent chains of multiply-adds of the machine's widest vectors."""
    at = address(data)
    a, b = load_wide(at), load_wide(at + VECTOR)
    x0, x1, x2, x3 = load_wide(at), load_wide(at + 4), load_wide(at + 8), load_wide(at + 12)
    x4, x5, x6 = load_wide(at + 16), load_wide(at + 20), load_wide(at + 24)
    x7, x8, x9 = load_wide(at + 28), load_wide(at + 32), load_wide(at + 36)
    for _ in range(rounds):
        x0, x1, x2, x3, x4 = (
            fma(x0, a, b),
            fma(x1, a, b),
            fma(x2, a, b),
            fma(x3, a, b),
            fma(x4, a, b),
        )
        x5, x6, x7, x8, x9 = (
            fma(x5, a, b),
            fma(x6, a, b),
            fma(x7, a, b),
            fma(x8, a, b),
            fma(x9, a, b),
        )
    store(at, x0 + x1 + x2 + x3 + x4 + x5 + x6 + x7 + x8 + x9)


def peak_gflops(threads: int = 1, seconds: float = 0.05, tries: int = 5) -> float:
    """Return the best measured float32 multiply-add rate of `threads` threads together."""
    _multiply_add(1, np.full(32, 0.5, np.float32))
    work = 2 * 10 * LANES
    rounds = int(seconds * 60e9 / 160)
    best = 0.0
    for _ in range(tries):
        data = [np.full(32, 0.5, np.float32) for _ in range(threads)]
        workers = [threading.Thread(target=_multiply_add, args=(rounds, d)) for d in data]
        start = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        best = max(best, threads * rounds * work / (time.perf_counter() - start) / 1e9)
    return best


def forward_flops(spec: NetSpec) -> float:
    """Multiply-adds of one forward pass of one sample, times two."""
    return 2.0 * sum(i * o for _, i, o in spec.layers())


def transition_flops(spec: NetSpec, epochs: int) -> float:
    """The work of one transition: acting once and learning `epochs` times."""
    first = 2.0 * sum(i * o for name, i, o in spec.layers() if name.endswith(".0"))
    forward = forward_flops(spec)
    return forward + epochs * (3 * forward - first)


def bench_spec(hidden: tuple[int, ...] = (64, 64), obs_size: int = 11, choices: int = 5) -> NetSpec:
    """The network of the published comparison: 11 observations, 5 actions, separate tanh trunks."""
    return NetSpec(obs_size, "discrete", nvec=(choices,), hidden=hidden)


class LearnerBench:
    """One learner and one rollout; every `run` fills the rollout and learns from it.

    `collect` fills it by playing a world; without it the learner acts on random observations.
    """

    def __init__(
        self, learner: Learner, rollout: Rollout, collect: Callable[[], Any] | None = None
    ) -> None:
        self.learner, self.rollout = learner, rollout
        self.collect = collect or self._act
        self.transitions = rollout.rewards.size

    @classmethod
    def random(cls, kind: str, spec: NetSpec, slots: int, **options: Any) -> LearnerBench:
        """Return the bench of a learner whose observations and rewards are random."""
        config = LearnerConfig(kind=kind, hidden=spec.hidden, **options)  # type: ignore[arg-type]
        learner = make_learner(spec, config, Streams(0), slots)
        rollout = learner.new_rollout(slots)
        rng = np.random.default_rng(0)
        rollout.obs[:] = rng.normal(size=rollout.obs.shape)
        rollout.rewards[:] = rng.normal(size=rollout.rewards.shape)
        return cls(learner, rollout)

    def run(self) -> tuple[float, float]:
        """Return the seconds of (all steps of the rollout, advantages and update)."""
        start = time.perf_counter()
        self.collect()
        middle = time.perf_counter()
        self.learner.update(self.rollout)
        return middle - start, time.perf_counter() - middle

    def _act(self) -> None:
        self.learner.begin(self.rollout)
        for t in range(self.rollout.steps):
            self.learner.act(self.rollout, t)


def bench_learner(
    learners: tuple[str, ...] = ("fused", "torch"),
    hidden: tuple[int, ...] = (64, 64),
    minibatch: int = 1024,
    threads: int = 1,
    steps: int = 128,
    epochs: int = 5,
    slots: int = 256,
    repeats: int = 5,
    obs_size: int = 11,
    choices: int = 5,
) -> dict[str, dict[str, float]]:
    """Return what `take_turns` finds of these learners, without a world: observations and rewards are random."""
    spec = bench_spec(hidden, obs_size, choices)
    options = {"minibatch": minibatch, "threads": threads, "steps": steps, "epochs": epochs}
    return take_turns(
        {kind: LearnerBench.random(kind, spec, slots, **options) for kind in learners}, repeats
    )


def take_turns(benches: Mapping[str, LearnerBench], repeats: int) -> dict[str, dict[str, float]]:
    """Return, per learner, transitions/s (median and best), seconds by part, and share of the limit.

    Learners take turns, and the limit is measured in every turn. The share is of the *highest* limit seen:
    on a busy machine it comes out too low, never too high (`peak_gflops_low` far below tells).
    """
    threads = max(bench.learner.threads for bench in benches.values())
    for bench in benches.values():  # compiles and warms up
        bench.run()
    times: dict[str, list[tuple[float, float]]] = {kind: [] for kind in benches}
    peaks = []
    for _ in range(repeats):
        peaks.append(peak_gflops(threads, tries=2))
        for kind, bench in benches.items():
            times[kind].append(bench.run())
    peak = max(peaks) * 1e9
    result = {}
    for kind, bench in benches.items():
        whole = np.array([a + b for a, b in times[kind]])
        best = times[kind][int(whole.argmin())]
        learner = bench.learner
        work = transition_flops(learner.spec, learner.config.epochs)
        result[kind] = {
            "transitions_per_s": float(bench.transitions / np.median(whole)),
            "transitions_per_s_best": float(bench.transitions / whole.min()),
            "share_of_peak": float(bench.transitions * work / np.median(whole) / peak),
            "share_of_peak_best": float(bench.transitions * work / whole.min() / peak),
            "inference_s": best[0],
            "update_s": best[1],
            "peak_gflops": peak / 1e9,
            "peak_gflops_low": min(peaks),
            "threads": float(learner.threads),
        }
    return result
