"""Seven products of quarters give what eight do, to rounding; and updates of wide networks use them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from holdfast.jit import kernel
from holdfast.learn.fused import FusedLearner
from holdfast.learn.fused_kernels import SEVEN_SAMPLES
from holdfast.learn.fused_layout import Layout, aligned
from holdfast.learn.fused_seven import (
    panel_sums,
    row_sums,
    seven_backward,
    seven_forward,
    seven_gradient,
    seven_gradient_end,
)
from holdfast.learn.fused_simd import address
from holdfast.learn.fused_tiles import ADD, LINEAR, RELU, RELU_SLOPE, SET, TANH, TANH_SLOPE, WIDE
from holdfast.learn.options import LearnerConfig
from holdfast.learn.ppo import Samples, TorchLearner
from holdfast.learn.spec import NetSpec
from holdfast.records import Rollout
from holdfast.rng import Streams

NETS = {
    "256x256": NetSpec(11, "discrete", nvec=(5,), hidden=(256, 256)),
    "relu, shared": NetSpec(9, "discrete", nvec=(4,), hidden=(256, 320), shared=True, activation="relu"),
    "depth 3": NetSpec(
        20, "gaussian", action_size=3, low=(-1.0,) * 3, high=(1.0,) * 3, hidden=(320, 512, 256)
    ),
}  # fmt: skip


@kernel
def _multiply(
    mirror, a, a_row, rows, s, s_row, packed, sums, depth, columns, c, c_row, bias, mode, kept
):  # type: ignore[no-untyped-def]
    row_sums(mirror, address(a), a_row, rows, depth, address(s), s_row)
    panel_sums(mirror, address(packed), depth, columns, address(sums))
    if mirror:
        seven_backward(
            address(a), a_row, rows, address(s), s_row, address(packed), address(sums), depth, columns,
            address(c), c_row, mode, address(kept),
        )  # fmt: skip
    else:
        seven_forward(
            address(a), a_row, rows, address(s), s_row, address(packed), address(sums), depth, columns,
            address(c), c_row, address(bias), mode, address(kept),
        )  # fmt: skip


@kernel
def _add_gradient(z, z_row, zs, outputs, x, x_row, xs, columns, s_row, rows, parts, mode):  # type: ignore[no-untyped-def]
    row_sums(True, address(z), z_row, rows, outputs, address(zs), s_row)
    row_sums(False, address(x), x_row, rows, columns, address(xs), s_row)
    seven_gradient(
        address(z), z_row, address(zs), outputs, address(x), x_row, address(xs), columns, s_row, rows,
        address(parts), mode,
    )  # fmt: skip


@kernel
def _end_gradient(parts, outputs, columns, g, g_row, mode):  # type: ignore[no-untyped-def]
    seven_gradient_end(address(parts), outputs, columns, address(g), g_row, mode)


def padded(x: Any) -> Any:
    """Return X in rows of 16 more columns than it has."""
    wide = aligned(len(x) + 6, x.shape[1] + 16)
    wide[: len(x), : x.shape[1]] = x
    return wide


def multiply(mirror: bool, a: Any, b: Any, bias: Any, c: Any, mode: int) -> Any:
    """Return C after the product."""
    rows, depth = a.shape
    columns = b.shape[1]
    left, out = padded(a), padded(c)
    packed = aligned(depth * columns)
    packed[:] = np.concatenate([b[:, j : j + WIDE].ravel() for j in range(0, columns, WIDE)])
    sums, row = aligned(depth * columns), depth // 2 + 16
    spare, kept = aligned(2 * rows * row), aligned(3 * rows * columns // 4)
    wide = aligned(columns)
    wide[:] = bias
    _multiply(
        mirror, left, 4 * left.shape[1], rows, spare, 4 * row, packed, sums, depth, columns, out,
        4 * out.shape[1], wide, mode, kept,
    )  # fmt: skip
    assert not out[:, columns:].any() and not out[rows:].any()
    return out[:rows, :columns]


@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize("rows", [16, 24, 28, 60, 64, 96])
@pytest.mark.parametrize(("depth", "columns"), [(256, 256), (320, 256), (64, 192)])
def test_a_product_is_the_product(mirror: bool, rows: int, depth: int, columns: int) -> None:
    rng = np.random.default_rng(rows)
    a, b = rng.normal(size=(rows, depth)), rng.normal(size=(depth, columns)) / np.sqrt(depth)
    bias, c = rng.normal(size=columns), rng.uniform(-0.9, 0.9, (rows, columns))
    a, b, bias, c = (x.astype(np.float32) for x in (a, b, bias, c))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    near = {"rtol": 0, "atol": 2e-5}
    ends = {LINEAR: exact + bias, TANH: np.tanh(exact + bias), RELU: np.maximum(exact + bias, 0)}
    if mirror:
        ends = {TANH_SLOPE: exact * (1 - c**2), RELU_SLOPE: np.where(c > 0, exact, 0)}
    for mode, end in ends.items():
        assert_allclose(multiply(mirror, a, b, bias, c, mode), end, **near)


@pytest.mark.parametrize(("outputs", "columns"), [(256, 256), (320, 256), (192, 64)])
def test_a_gradient_is_the_gradient_of_all_blocks(outputs: int, columns: int) -> None:
    rng = np.random.default_rng(0)
    parts = aligned(7 * outputs * columns // 4 + 1024)
    row = max(outputs, columns) // 2 + 16
    exact = np.zeros((outputs, columns))
    for k, rows in enumerate([96, 64, 28]):
        z = rng.normal(size=(rows, outputs)).astype(np.float32)
        x = rng.normal(size=(rows, columns)).astype(np.float32)
        exact += z.T.astype(np.float64) @ x
        z, x = padded(z), padded(x)
        zs, xs = aligned(2 * rows * row), aligned(2 * rows * row)
        _add_gradient(
            z, 4 * z.shape[1], zs, outputs, x, 4 * x.shape[1], xs, columns, 4 * row, rows, parts,
            ADD if k else SET,
        )  # fmt: skip
    g = aligned(outputs, columns + 16)
    for mode, times in ((SET, 1), (ADD, 2)):
        _end_gradient(parts, outputs, columns, g, 4 * g.shape[1], mode)
        assert_allclose(g[:, :columns], times * exact, rtol=0, atol=times * 2e-4)
        assert not g[:, columns:].any()


def learner(net: str, kind: type, threads: int = 1, minibatch: int = 600) -> Any:
    config = LearnerConfig(threads=threads, steps=32, minibatch=minibatch, epochs=2, lr=1e-3)
    return kind(NETS[net], config, Streams(0), 40)


def rollout_for(one: FusedLearner) -> Rollout:
    rng = np.random.default_rng(1)
    rollout = one.new_rollout(40)
    rollout.obs[:] = rng.normal(size=rollout.obs.shape)
    one.begin(rollout)
    for t in range(rollout.steps):
        one.act(rollout, t)
    rollout.log_probs += rng.normal(0, 0.2, rollout.log_probs.shape).astype(np.float32)
    rollout.advantages[:] = rng.normal(0.3, 2.0, rollout.advantages.shape)
    rollout.returns[:] = rollout.values[:-1] + rollout.advantages
    return rollout


def test_wide_layers_have_room_for_their_sums_and_others_do_not() -> None:
    for spec in NETS.values():
        sums = Layout(spec).layers["forward_sums"]
        assert (sums >= 0).sum() == (len(spec.hidden) - 1) * (1 if spec.shared else 2)
    for hidden in [(64, 64), (200, 256), (512, 72), (256, 264), (256, 288), (256,)]:
        layers = Layout(NetSpec(300, "discrete", nvec=(3,), hidden=hidden)).layers
        for name in ("forward_sums", "backward_sums", "source_sums", "sevenths"):
            assert (layers[name] < 0).all(), name


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("samples", [SEVEN_SAMPLES - 1, SEVEN_SAMPLES, 1279])
def test_gradients_of_wide_networks_equal_autograd(net: str, samples: int) -> None:
    torch.set_num_threads(1)
    fused, reference = learner(net, FusedLearner), learner(net, TorchLearner)
    reference.load_parameters(fused.parameters())
    rollout = rollout_for(fused)
    order = np.random.default_rng(3).permutation(32 * 40).astype(np.int32)[None, :samples]
    fused._optimise(rollout, order, np.array([0, samples]))
    ours = fused.net.views(fused.net.grad)
    loss, _ = reference.loss(Samples(rollout), torch.from_numpy(order[0].astype(np.int64)))
    loss.backward()
    for name, parameter in reference.net.named_parameters():
        theirs = parameter.grad.numpy()
        gap = np.linalg.norm(ours[name] - theirs) / np.linalg.norm(theirs)
        assert gap < 1e-5, f"{name}: off by {gap:.2e} of its norm"


@pytest.mark.parametrize("net", NETS)
def test_updates_of_wide_networks_do_not_depend_on_threads_and_agree_with_torch(net: str) -> None:
    torch.set_num_threads(1)
    one, two, reference = (
        learner(net, FusedLearner), learner(net, FusedLearner, 2), learner(net, TorchLearner)
    )  # fmt: skip
    reference.load_parameters(one.parameters())
    rollout = rollout_for(one)
    order, borders = one.minibatches(np.arange(32 * 40, dtype=np.int32))
    assert max(np.diff(borders)) >= SEVEN_SAMPLES
    for each in (one, two, reference):
        each._optimise(rollout, order, borders)
    mine, same, other = one.parameters(), two.parameters(), reference.parameters()
    for name, value in other.items():
        assert_array_equal(mine[name], same[name], err_msg=name)
        # A unit of relu whose input is within rounding of 0 may fall on either side.
        if NETS[net].activation == "tanh":
            assert_allclose(mine[name], value, rtol=1e-5, atol=1e-5, err_msg=name)
