"""Threads of the fused learner: equal results, company of other compiled code, forks, failures."""

from __future__ import annotations

import multiprocessing
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from holdfast.jit import source_stamp
from holdfast.learn import fused
from holdfast.learn.fused import FusedLearner, FusedNet, in_threads, lane_sizes
from holdfast.learn.fused_simd import address
from holdfast.learn.fused_sync import ABORT, SYNC_SIZE, barrier
from holdfast.learn.options import LearnerConfig
from holdfast.learn.spec import NetSpec
from holdfast.records import Rollout
from holdfast.rng import Streams

SPEC = NetSpec(11, "discrete", nvec=(5,), hidden=(33, 40))


def learner(
    threads: int, seed: int = 0, spec: NetSpec = SPEC, minibatch: int = 100
) -> FusedLearner:
    config = LearnerConfig(threads=threads, steps=32, minibatch=minibatch, epochs=3, lr=1e-3)
    return FusedLearner(spec, config, Streams(seed), 20)


def rollout_for(one: FusedLearner) -> Rollout:
    rng = np.random.default_rng(1)
    rollout = one.new_rollout(20)
    rollout.obs[:] = rng.normal(size=rollout.obs.shape)
    rollout.rewards[:] = rng.normal(size=rollout.rewards.shape)
    rollout.mask[:] = rng.random(rollout.mask.shape) > 0.1
    one.begin(rollout)
    for t in range(rollout.steps):
        one.act(rollout, t)
    return rollout


def trained(threads: int, spec: NetSpec = SPEC, minibatch: int = 100) -> dict[str, Any]:
    """Parameters after two updates."""
    one = learner(threads, spec=spec, minibatch=minibatch)
    for _ in range(2):
        one.update(rollout_for(one))
    return one.parameters()


def assert_equal(a: dict[str, Any], b: dict[str, Any]) -> None:
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_an_update_repeats_bit_for_bit(threads: int) -> None:
    assert_equal(trained(threads), trained(threads))


@pytest.mark.parametrize(("threads", "others"), [(1, 2), (3, 4)])
def test_one_and_two_threads_give_equal_results_and_so_do_three_and_four(
    threads: int, others: int
) -> None:
    assert_equal(trained(threads), trained(others))


@pytest.mark.parametrize("nets", [1, 2])
@pytest.mark.parametrize("threads", range(1, 20))
def test_every_thread_has_a_large_lane(nets: int, threads: int) -> None:
    sizes = lane_sizes(nets, threads)
    assert nets * sum(size == max(sizes) for size in sizes) >= threads
    assert lane_sizes(nets, 1) == lane_sizes(nets, 2)


def test_with_a_shared_trunk_two_threads_give_the_result_of_one() -> None:
    shared = NetSpec.from_state({**SPEC.state(), "shared": True})
    assert_equal(trained(2, shared), trained(1, shared))
    assert_equal(trained(5, shared), trained(5, shared))


@pytest.mark.parametrize("minibatch", [1, 3, 17])
def test_a_minibatch_may_have_fewer_samples_than_lanes(minibatch: int) -> None:
    one = trained(1, minibatch=minibatch)
    assert_equal(trained(2, minibatch=minibatch), one)
    for name, values in trained(9, minibatch=minibatch).items():
        np.testing.assert_allclose(values, one[name], rtol=2e-3, atol=2e-5, err_msg=name)


def test_more_threads_than_cores_still_finish() -> None:
    assert_equal(trained(8), trained(8))


def test_a_forward_pass_does_not_depend_on_threads() -> None:
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(20_001, 11)).astype(np.float32)
    noise = rng.random((20_001, 1), np.float32)
    results = []
    for threads in (1, 2):
        net = FusedNet(SPEC, threads)
        net.theta[:] = np.random.default_rng(2).normal(0, 0.2, net.theta.shape)
        net.pack()
        assert len(obs) * net._flops > fused.SPREAD_FLOPS
        actions, out = np.zeros(len(obs), np.int32), np.zeros((2, len(obs)), np.float32)
        net.act(obs, noise, actions, out[0], out[1])
        results.append((actions, out))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])


@numba.njit(nogil=True, parallel=True)
def _other_kernel(x: Any) -> float:
    s = 0.0
    for i in numba.prange(x.size):
        s += np.sin(x[i])
    return s


def test_other_compiled_threads_may_run_at_the_same_time() -> None:
    expected = trained(2)
    _other_kernel(np.ones(8))
    stop, rounds = threading.Event(), [0]

    def others() -> None:
        x = np.linspace(0, 1, 100_000)
        while not stop.is_set():
            _other_kernel(x)
            rounds[0] += 1

    thread = threading.Thread(target=others)
    thread.start()
    try:
        for _ in range(5):
            assert_equal(trained(2), expected)
    finally:
        stop.set()
        thread.join()
    assert rounds[0] > 0


def test_two_learners_may_update_at_the_same_time() -> None:
    expected = trained(2)
    results: list[dict[str, Any]] = []
    threads = [threading.Thread(target=lambda: results.append(trained(2))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3
    for result in results:
        assert_equal(result, expected)


def _child(queue: Any) -> None:
    queue.put(trained(2))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_an_update_works_in_a_child_process(method: Any) -> None:
    expected = trained(2)
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=_child, args=(queue,))
    child.start()
    result = queue.get(timeout=60)
    child.join(timeout=60)
    assert child.exitcode == 0
    assert_equal(result, expected)


def test_a_thread_that_raises_releases_the_others() -> None:
    barrier(address_of(sync := np.zeros(SYNC_SIZE, np.int64)), 1)
    left = []

    def work(k: int) -> None:
        if k == 1:
            time.sleep(0.05)
            raise RuntimeError("out of luck")
        left.append(barrier(address_of(sync), 2))

    with pytest.raises(RuntimeError, match="out of luck"):
        in_threads(2, work, sync)
    assert left == [1]
    assert sync[ABORT] == 1


def test_a_thread_that_cannot_start_releases_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start
    started = []

    def refuse(self: threading.Thread) -> None:
        if self.name == "holdfast-fused-2":
            raise RuntimeError("can't start new thread")
        started.append(self)
        start(self)

    one = learner(3)
    rollout = rollout_for(one)
    before = one.parameters()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        one.update(rollout)
    assert started
    assert not any(thread.is_alive() for thread in started)
    assert_equal(one.parameters(), before)


@numba.njit
def address_of(array: Any) -> Any:
    return address(array)


def test_a_barrier_holds_every_thread_back_until_the_last() -> None:
    sync = np.zeros(SYNC_SIZE, np.int64)
    at = address_of(sync)
    barrier(at, 1)
    log: list[tuple[int, int]] = []

    def work(k: int) -> None:
        for phase in range(50):
            log.append((phase, k))
            assert barrier(at, 3) == 0

    in_threads(3, work, sync)
    phases = [phase for phase, _ in log]
    assert phases == sorted(phases)
    assert len(log) == 150


_START = """
from holdfast.learn import fused, fused_adam, fused_crew, fused_kernels, fused_order
fused.compile_kernels()
calls = [fused_kernels.update, fused_crew.post, fused_crew.work_on, fused_adam.pack, fused_order._shuffle]
assert all(call.stats.cache_hits for call in calls), "something was not loaded from the cache"
print(sum(sum(call.stats.cache_misses.values()) for call in calls))
"""


def test_a_second_start_compiles_nothing() -> None:
    fused.compile_kernels()
    done = subprocess.run(
        [sys.executable, "-c", _START], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.split() == ["0"]
    assert "compiling" not in done.stderr


def test_a_change_of_any_compiled_source_makes_every_kernel_stale(tmp_path: Path) -> None:
    folder = Path(str(fused.__file__)).parent
    names = [
        "simd",
        "transpose",
        "tiles",
        "loss",
        "sync",
        "adam",
        "act",
        "kernels",
        "crew",
        "order",
    ]
    for path in folder.glob("*.py"):
        shutil.copy(path, tmp_path / path.name)
    stamps = {source_stamp.__wrapped__(tmp_path)}
    for name in names:
        with (tmp_path / f"fused_{name}.py").open("a") as file:
            file.write("\n")
        stamps.add(source_stamp.__wrapped__(tmp_path))
    assert len(stamps) == 1 + len(names)
