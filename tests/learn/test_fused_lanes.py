"""How many lanes the machine's vectors have changes the speed and no bit of a result."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core.codegen import get_host_cpu_features
from numpy.testing import assert_array_equal

from holdfast.learn.fused import FusedLearner
from holdfast.learn.fused_simd import LANES
from holdfast.learn.options import LearnerConfig
from holdfast.learn.spec import NetSpec
from holdfast.records import F32
from holdfast.rng import Streams

SPECS = {
    "wide": NetSpec(11, "discrete", nvec=(5,), hidden=(256, 256)),
    "tiles of 32, 16 and 8": NetSpec(
        21, "multi_discrete", nvec=(3, 19), hidden=(56, 40, 24, 16), activation="relu", shared=True
    ),
    "Gaussian": NetSpec(
        40, "gaussian", action_size=2, low=(-1.0,) * 2, high=(1.0,) * 2, hidden=(9, 47)
    ),
}


def trained() -> dict[str, F32]:
    """Return the parameters of some networks after an update, their gradients and what they did."""
    found = {}
    for title, spec in SPECS.items():
        config = LearnerConfig(threads=1, steps=16, minibatch=600, epochs=2, lr=1e-3)
        one = FusedLearner(spec, config, Streams(0), 75)
        rollout = one.new_rollout(75)
        rng = np.random.default_rng(0)
        rollout.obs[:] = rng.normal(size=rollout.obs.shape)
        rollout.rewards[:] = rng.normal(size=rollout.rewards.shape)
        one.begin(rollout)
        for t in range(rollout.steps):
            one.act(rollout, t)
        one.update(rollout)
        found |= {f"{title} {name}": value for name, value in one.parameters().items()}
        found |= {f"{title} gradient": one.net.grad, f"{title} values": rollout.values}
    return found


@pytest.mark.slow
@pytest.mark.skipif(
    LANES == 8, reason="this machine's vectors have eight lanes: nothing to compare"
)
def test_eight_lanes_and_sixteen_learn_the_same_bits(tmp_path: Path) -> None:
    features = get_host_cpu_features().replace("+avx512", "-avx512").replace("+avx10", "-avx10")
    narrow = {**os.environ, "NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": features}
    file = tmp_path / "eight.npz"
    command = [sys.executable, __file__, str(file)]
    done = subprocess.run(
        command, env=narrow, capture_output=True, text=True, check=True, timeout=900
    )
    assert done.stdout.split() == ["8"]
    with np.load(file) as eight:
        for name, value in trained().items():
            assert_array_equal(value, eight[name], err_msg=name)


if __name__ == "__main__":
    print(LANES)
    np.savez(sys.argv[1], **trained())  # type: ignore[arg-type]
