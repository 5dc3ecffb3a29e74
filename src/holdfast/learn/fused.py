"""PPO as compiled, fused kernels: the learner for MLPs on a CPU.

Same contract, parameter names and checkpoint as `ppo.TorchLearner`; the same numbers up to rounding.
Results depend on `lanes` (the fixed shares that every minibatch is cut into), never on the threads that
work on them.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.learn import fused_kernels as kernels
from holdfast.learn.fused_act import SAMPLE, VALUES
from holdfast.learn.fused_adam import pack
from holdfast.learn.fused_crew import Crew
from holdfast.learn.fused_layout import Layout, aligned
from holdfast.learn.fused_order import permutations
from holdfast.learn.fused_stage import record_width
from holdfast.learn.fused_sync import ABORT, PATIENCE, SYNC_SIZE, patience
from holdfast.learn.fused_tiles import ROWS
from holdfast.learn.learner import Anchor, Index, Learner, RolloutLearner
from holdfast.learn.options import LearnerConfig
from holdfast.learn.spec import NetSpec, check_parameters
from holdfast.parallel import cores
from holdfast.records import F32, Array, Rollout
from holdfast.rng import Streams

FEW_LANES = 27, 3, 2
"""Shares of a minibatch for up to two threads with a net each: of 1024, nine whole blocks of 96, and small lanes that even
out what the large one left uneven."""
LARGE, SMALL = 7, 1
"""The first and the last half of the lanes otherwise."""
SPREAD_FLOPS = 1e6
"""Work of one forward call from which waking other threads (a few us for the caller) pays."""


class FusedNet:
    """Parameters, Adam's state and buffers of one network, and the calls of its kernels.

    `theta`, `m`, `v` and `grad` are flat vectors `[P]`; `views(x)` names their parts. After writing to
    `theta`, call `pack()`. One call at a time: to act while an update runs, act with a copy.
    """

    def __init__(self, spec: NetSpec, threads: int = 1) -> None:
        if max(spec.hidden, default=1) > 4096:
            raise ValueError(f"hidden widths go up to 4096, not {spec.hidden}")
        self.spec = spec
        layout = self.layout = Layout(spec)
        nets = int(layout.plan["nets"])
        self.threads = max(1, threads)
        sizes = lane_sizes(nets, self.threads)
        self.lanes = len(sizes)
        self.theta = aligned(layout.size)
        self.m = aligned(layout.size)
        self.v = aligned(layout.size)
        self.grad = aligned(layout.size)
        self.step = 0
        self.anchor = np.zeros(0, np.float32)
        self.fisher = np.zeros(0, np.float32)
        self.ewc = 0.0
        self._packed = aligned(self.threads, layout.packed_size // 4)
        self._grads = aligned(self.lanes, layout.grads_size // 4)
        self._shares = np.cumsum([0, *sizes], dtype=np.int64)
        self._work = aligned(self.threads, -(-layout.work_size // 64) * 16 + 16)
        self._records = aligned(0, 0)
        self._squares = np.zeros(len(layout.rows), np.float64)
        self._sums = np.zeros((self.lanes * nets, 8), np.float64)
        self._plan = layout.plan.reshape(1)
        self._cuts = layout.cut_rows(self.threads)
        self._flops = 2.0 * layout.size
        self._crew: Crew | None = None

    def views(self, flat: F32) -> dict[str, F32]:
        """Return the named parts of a vector laid out like `theta`."""
        return self.layout.views(flat)

    def pack(self) -> None:
        """Make `theta` take effect."""
        pack(self.layout.rows, int(self.layout.plan["nets"]), self.theta, self._packed)

    def act(
        self,
        obs: F32,
        noise: F32,
        actions: Array,
        log_probs: F32,
        values: F32,
        mode: int = SAMPLE,
    ) -> None:
        """Write actions `[n]` or `[n, K]`, log-probabilities `[n]` and values `[n]` of `obs [n, D]`."""
        n = len(obs)
        if n == 0:
            return
        floats = (noise, log_probs, values)
        if (
            any(x.dtype != np.float32 for x in floats)
            or actions.itemsize != 4
            or not all(x.flags.c_contiguous for x in (*floats, actions))
        ):
            raise TypeError(
                "act takes contiguous float32 arrays, and actions as contiguous int32 or float32, not "
                f"{[str(x.dtype) for x in (noise, actions, log_probs, values)]}. Make them with new_rollout."
            )
        flat = actions.reshape(n, -1).view(np.float32)
        crew = self._crew
        if crew is None or crew.owner != os.getpid():
            buffers = (
                self._plan,
                self.layout.layers,
                self.layout.segments,
                self._packed,
                self._work,
            )
            crew = self._crew = Crew(self.threads - 1, buffers)
        parts = -(-n // self.layout.block)
        if self.threads > 1 and n * self._flops >= SPREAD_FLOPS:
            # As many for every thread, and two at least.
            parts = max(2, -(-parts // self.threads)) * self.threads
        part = -(-n // (parts * ROWS)) * ROWS
        crew.act(mode, part, _rows(obs), noise, flat, log_probs, values)

    def values(self, obs: F32) -> F32:
        """Return the values `[n]` of `obs [n, D]`."""
        values = np.empty(len(obs), np.float32)
        nothing = np.empty((len(obs), 1), np.float32)
        self.act(obs, nothing, nothing, values, values, VALUES)
        return values

    def update(
        self,
        rollout: Rollout,
        order: Index,
        borders: npt.NDArray[np.int64],
        *,
        lr: float,
        clip: float,
        value_clip: float = 0.0,
        entropy: float = 0.0,
        value_coef: float = 0.5,
        max_grad_norm: float = 0.0,
        target_kl: float = 0.0,
        normalise: bool = True,
    ) -> dict[str, float]:
        """Make the gradient steps of all minibatches; return their mean metrics.

        `order [epochs, S]` are flat positions t * N + n, `borders [M+1]` cut an epoch into minibatches.
        `grad` is left holding the last minibatch's gradient, before clipping.
        """
        options = np.zeros(1, kernels.SETTINGS)
        settings = {
            "lr": lr, "clip": clip, "value_clip": value_clip, "entropy": entropy,
            "value_coef": value_coef, "max_grad_norm": max_grad_norm, "target_kl": target_kl,
            "ewc": self.ewc, "normalise": float(normalise), "step": self.step,
        }  # fmt: skip
        for key, value in settings.items():
            options[key] = value
        count = rollout.steps * rollout.slots
        actions = rollout.actions.reshape(count, -1)
        width = record_width(actions.shape[1], self.spec.obs_size)
        if self._records.shape != (count, width):
            self._records = aligned(count, width)
        sync = np.zeros(SYNC_SIZE, np.int64)
        sync[PATIENCE] = patience(self.threads)
        out = np.zeros(len(kernels.OUT) + 1, np.float64)
        layout = self.layout
        args = (
            self._plan, layout.layers, layout.rows, self._cuts, layout.segments, options,
            self.theta, self.m, self.v, self.grad, self._squares, self.anchor, self.fisher,
            self._packed, self._grads, self._shares, self._work,
            _rows(rollout.obs[:-1].reshape(count, -1)),
            actions.view(np.float32),
            rollout.log_probs.reshape(count), rollout.values[:-1].reshape(count),
            rollout.advantages.reshape(count), rollout.returns.reshape(count),
            self._records,
            np.ascontiguousarray(order, np.int32), np.ascontiguousarray(borders, np.int64),
            np.empty((len(order) * (len(borders) - 1), 2), np.float32), self._sums, sync, out,
        )  # fmt: skip

        def work(k: int) -> None:
            kernels.update(k, self.threads, *args)

        in_threads(self.threads, work, sync)
        done = int(out[-1])
        self.step += done
        metrics = {key: float(out[k]) / max(done, 1) for k, key in enumerate(kernels.OUT)}
        metrics["minibatches"] = float(done)
        return metrics


def lane_sizes(nets: int, threads: int) -> list[int]:
    """Return the shares of a minibatch that lanes have: a large one, of every net, for every thread.

    They are equal for one and two threads, and so are results; those of three and four are equal too if policy and value
    have separate trunks.
    """
    if threads <= nets == 2:
        return list(FEW_LANES)
    half = max(2, -(-threads // nets))
    return [LARGE] * half + [SMALL] * half


def _rows(obs: Array) -> F32:
    rows = obs.reshape(len(obs), -1)
    if rows.dtype != np.float32 or not rows.flags.c_contiguous:
        raise TypeError(
            f"The fused learner reads contiguous float32 observations, not {rows.dtype} with strides "
            f"{rows.strides}. Convert them where they are made, or use learner.kind = 'torch'."
        )
    return rows


def in_threads(
    count: int, work: Callable[[int], None], sync: npt.NDArray[np.int64] | None = None
) -> None:
    """Call `work(k)` for k < count at the same time, k = 0 in this thread; raise what any raised.

    Threads are made for each call: nothing is left over that a fork would lose. If one fails, the abort
    flag of `sync` lets the others out of their barriers.
    """
    if count == 1:
        work(0)
        return
    faults: list[BaseException] = []

    def guarded(k: int) -> None:
        try:
            work(k)
        except BaseException as fault:
            faults.append(fault)
            if sync is not None:
                sync[ABORT] = 1

    threads = []
    try:
        for k in range(1, count):
            thread = threading.Thread(target=guarded, args=(k,), name=f"holdfast-fused-{k}")
            thread.start()
            threads.append(thread)
    except BaseException as fault:
        faults.append(fault)
        if sync is not None:
            sync[ABORT] = 1
    else:
        guarded(0)
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]


class FusedLearner(RolloutLearner):
    """Clipped PPO with Adam in compiled kernels."""

    def __init__(
        self,
        spec: NetSpec,
        config: LearnerConfig,
        streams: Streams,
        slots: int,
        name: str = "policy",
    ) -> None:
        compile_kernels()
        threads = config.threads or cores()
        self.net = FusedNet(spec, threads)
        super().__init__(spec, config, streams, slots, name)

    def shadow(self) -> Learner:
        other = super().shadow()
        assert isinstance(other, FusedLearner)
        other.net = FusedNet(self.spec, self.net.threads)
        return other

    def _follow(self, source: Learner) -> None:
        super()._follow(source)
        assert isinstance(source, FusedLearner)
        self.net.theta[:] = source.net.theta
        self.net.pack()

    def parameters(self) -> dict[str, F32]:
        return {k: v.copy() for k, v in self.net.views(self.net.theta).items()}

    def load_parameters(self, parameters: dict[str, F32]) -> None:
        _write(self.net.views(self.net.theta), parameters)
        self.net.pack()

    def protect(self, anchor: Anchor | None) -> None:
        super().protect(anchor)
        net = self.net
        net.ewc = 0.0 if anchor is None else float(anchor.weight)
        net.fisher, net.anchor = np.zeros_like(net.theta), np.zeros_like(net.theta)
        if anchor is not None:
            _write(net.views(net.fisher), anchor.fisher)
            _write(net.views(net.anchor), anchor.values)

    def _forward(self, obs: F32, noise: F32, actions: Array, log_probs: F32, values: F32) -> None:
        self.net.act(obs, noise, actions, log_probs, values)

    def _values(self, obs: F32) -> F32:
        return self.net.values(np.ascontiguousarray(obs))

    def _optimise(
        self, rollout: Rollout, order: Index, borders: npt.NDArray[np.int64]
    ) -> dict[str, float]:
        config, settings = self.config, self.settings
        return self.net.update(
            rollout,
            order,
            borders,
            lr=settings["lr"] * settings["lr_scale"],
            clip=settings["clip"],
            value_clip=config.value_clip,
            entropy=settings["entropy"],
            value_coef=config.value_coef,
            max_grad_norm=config.max_grad_norm,
            target_kl=config.target_kl,
            normalise=config.normalise_advantages,
        )

    def _optimiser_state(self) -> dict[str, Any]:
        net = self.net
        return {
            "step": net.step,
            "m": {k: v.copy() for k, v in net.views(net.m).items()},
            "v": {k: v.copy() for k, v in net.views(net.v).items()},
        }

    def _load_optimiser_state(self, state: dict[str, Any]) -> None:
        net = self.net
        net.step = int(state["step"])
        _write(net.views(net.m), state["m"])
        _write(net.views(net.v), state["v"])


def _write(views: Mapping[str, F32], given: Mapping[str, F32]) -> None:
    check_parameters(dict(views), dict(given))
    for name, view in views.items():
        view[...] = given[name]


_compiled = threading.Lock(), threading.Event()


def compile_kernels() -> float:
    """Have every kernel compiled or loaded from the disk cache; return the seconds it took.

    One set of argument types serves all networks, so this is all that is ever compiled.
    """
    lock, done = _compiled
    with lock:
        if done.is_set():
            return 0.0
        start = time.perf_counter()
        net = FusedNet(NetSpec(1, "discrete", nvec=(2,), hidden=(1,)))
        net.pack()
        rollout = Rollout.empty(1, 2, (1,), np.float32, (), np.int32, 1)
        net.act(rollout.obs[0], rollout.noise[0], rollout.actions[0], rollout.log_probs[0],
                rollout.values[0])  # fmt: skip
        order = np.zeros((1, 2), np.int32)
        net.update(rollout, order, np.array([0, 2], np.int64), lr=0.0, clip=0.2)
        permutations(np.random.default_rng(0), order[0], 1)
        took = time.perf_counter() - start
        done.set()
        return took
