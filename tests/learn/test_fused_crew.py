"""Helpers of inference: they never change a result, never hold it up, and leave with their network."""

from __future__ import annotations

import gc
import threading
import time
from typing import Any

import numpy as np
import pytest

from holdfast.learn import fused
from holdfast.learn.fused import FusedNet
from holdfast.learn.spec import NetSpec

SPEC = NetSpec(11, "discrete", nvec=(5,), hidden=(33, 40))


def net(threads: int) -> FusedNet:
    one = FusedNet(SPEC, threads)
    one.theta[:] = np.random.default_rng(2).normal(0, 0.2, one.theta.shape)
    one.pack()
    return one


def acted(one: FusedNet, rows: int) -> list[Any]:
    """Actions, log-probabilities and values of `rows` fixed observations."""
    rng = np.random.default_rng(rows)
    obs = rng.normal(size=(rows, 11)).astype(np.float32)
    noise = rng.random((rows, 1), np.float32)
    actions, out = np.zeros(rows, np.int32), np.zeros((2, rows), np.float32)
    one.act(obs, noise, actions, out[0], out[1])
    return [actions, out]


def helpers() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("holdfast-act-")]


@pytest.mark.parametrize("threads", [2, 3])
def test_jobs_of_any_size_one_after_another_are_those_of_one_thread(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "SPREAD_FLOPS", 0.0)
    alone, together = net(1), net(threads)
    for round_ in range(300):
        rows = (1, 5, 6, 97, 256, 1000)[round_ % 6]
        if round_ % 50 == 49:
            time.sleep(0.01)  # long enough for the helpers to fall asleep
        for a, b in zip(acted(alone, rows), acted(together, rows), strict=True):
            np.testing.assert_array_equal(a, b)


def test_no_rows_are_no_work() -> None:
    assert acted(net(2), 0)[0].size == 0


def test_two_networks_may_act_at_the_same_time() -> None:
    expected = acted(net(1), 500)
    faults: list[BaseException] = []

    def act() -> None:
        try:
            one = net(2)
            for _ in range(100):
                for a, b in zip(acted(one, 500), expected, strict=True):
                    np.testing.assert_array_equal(a, b)
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=act) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


def test_helpers_leave_with_their_network() -> None:
    gc.collect()
    before = set(helpers())
    one = net(3)
    acted(one, 500)
    mine = [t for t in helpers() if t not in before]
    assert len(mine) == 2
    del one
    gc.collect()
    for thread in mine:
        thread.join(timeout=10)
    assert not any(thread.is_alive() for thread in mine)


def test_arrays_of_other_types_are_refused() -> None:
    one = net(1)
    obs, noise = np.zeros((4, 11), np.float32), np.zeros((4, 1), np.float32)
    out = np.zeros(4, np.float32)
    with pytest.raises(TypeError, match="contiguous float32"):
        one.act(obs, noise, np.zeros(4, np.int32), np.zeros(4), out)
    with pytest.raises(TypeError, match="contiguous float32"):
        one.act(obs, noise, np.zeros(4, np.int32), np.zeros(8, np.float32)[::2], out)
    with pytest.raises(TypeError, match="contiguous float32"):
        one.act(obs, noise, np.zeros((4, 2), np.int32)[:, 0], out, out)
