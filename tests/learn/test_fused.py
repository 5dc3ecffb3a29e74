"""The fused learner is the torch learner, to rounding: gradients, updates, inference, checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from holdfast.learn.fused import FusedLearner
from holdfast.learn.fused_act import BEST
from holdfast.learn.fused_crew import post, work_on
from holdfast.learn.fused_kernels import update
from holdfast.learn.learner import Anchor
from holdfast.learn.options import LearnerConfig
from holdfast.learn.ppo import Samples, TorchLearner
from holdfast.learn.spec import NetSpec
from holdfast.records import Rollout
from holdfast.rng import Streams

Pair = tuple[FusedLearner, TorchLearner]


@pytest.fixture(autouse=True)
def one_torch_thread() -> Iterator[None]:
    """Torch's pool would fight ours for the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def discrete(obs: int = 5, choices: int = 3, **options: Any) -> NetSpec:
    return NetSpec(obs, "discrete", nvec=(choices,), **options)


def pair(spec: NetSpec, seed: int = 0, **options: Any) -> Pair:
    """A fused and a torch learner with equal parameters, all of ordinary size."""
    options = {"threads": 1, "steps": 16, "minibatch": 64, "lr": 1e-3, **options}
    config = LearnerConfig(**options)
    fused = FusedLearner(spec, config, Streams(seed), 8)
    threads = torch.get_num_threads()
    reference = TorchLearner(spec, config, Streams(seed), 8)
    torch.set_num_threads(threads)
    rng = np.random.default_rng(seed)
    parameters = {}
    for name, value in fused.parameters().items():
        scale = 1.0 / np.sqrt(value.shape[-1]) if name.endswith("weight") else 0.3
        parameters[name] = rng.normal(0, scale, value.shape).astype(np.float32)
    fused.load_parameters(parameters)
    reference.load_parameters(parameters)
    return fused, reference


def random_rollout(
    learner: FusedLearner, slots: int = 8, seed: int = 1, masked: float = 0.0
) -> Rollout:
    """A rollout whose old policy differs from the present one, so that clipping bites."""
    rng = np.random.default_rng(seed)
    rollout = learner.new_rollout(slots)
    rollout.obs[:] = rng.normal(size=rollout.obs.shape)
    rollout.mask[:] = rng.random(rollout.mask.shape) >= masked
    learner.begin(rollout)
    for t in range(rollout.steps):
        learner.act(rollout, t)
    rollout.log_probs += rng.normal(0, 0.2, rollout.log_probs.shape).astype(np.float32)
    rollout.values += rng.normal(0, 0.3, rollout.values.shape).astype(np.float32)
    rollout.advantages[:] = rng.normal(0.3, 2.0, rollout.advantages.shape)
    rollout.returns[:] = rollout.values[:-1] + rollout.advantages
    return rollout


def gradients(fused: FusedLearner, reference: TorchLearner, rollout: Rollout) -> tuple[Any, Any]:
    """Gradients of the whole rollout as one minibatch, by both."""
    rows = np.flatnonzero(rollout.mask[:-1]).astype(np.int32)
    order = np.random.default_rng(3).permutation(rows)[None]
    before = fused.state_dict()
    fused._optimise(rollout, order, np.array([0, len(rows)]))
    ours = {k: v.copy() for k, v in fused.net.views(fused.net.grad).items()}
    fused.load_state_dict(before)
    reference.adam.zero_grad(set_to_none=True)
    loss, _ = reference.loss(Samples(rollout), torch.from_numpy(order[0].astype(np.int64)))
    loss.backward()
    theirs = {k: p.grad.numpy() for k, p in reference.net.named_parameters()}
    return ours, theirs


def assert_close(ours: dict[str, Any], theirs: dict[str, Any], tolerance: float = 1e-5) -> None:
    """Every tensor agrees within `tolerance` of its own norm, or of a thousandth of the whole
    gradient's norm where it nearly cancels."""
    assert set(ours) == set(theirs)
    whole = np.sqrt(sum(float((v.astype(np.float64) ** 2).sum()) for v in theirs.values()))
    for name, value in theirs.items():
        gap = np.linalg.norm(ours[name].astype(np.float64) - value)
        size = max(np.linalg.norm(value.astype(np.float64)), 1e-3 * whole)
        assert gap <= tolerance * size, f"{name}: off by {gap / size:.2e} of its norm"


NETS = {
    "64x64 tanh": discrete(11, 5),
    "depth 1": discrete(3, 2, hidden=(33,)),
    "depth 3 odd": discrete(50, 9, hidden=(7, 33, 64)),
    "one input, one unit": discrete(1, 2, hidden=(1,)),
    "wide": discrete(17, 4, hidden=(200, 200)),
    "widest": discrete(9, 20, hidden=(512, 72)),
    "relu": discrete(11, 5, hidden=(64, 33), activation="relu"),
    "shared": discrete(11, 5, shared=True),
    "shared relu depth 3": discrete(8, 6, hidden=(40, 24, 16), shared=True, activation="relu"),
    "many choices": discrete(6, 70),
    "multi": NetSpec(7, "multi_discrete", nvec=(3, 2, 9), hidden=(48, 7)),
    "multi shared": NetSpec(12, "multi_discrete", nvec=(8, 8), hidden=(20,), shared=True),
    "gaussian": NetSpec(11, "gaussian", action_size=3, low=(-1.0,) * 3, high=(1.0,) * 3),
    "gaussian wide shared": NetSpec(
        30, "gaussian", action_size=17, low=(-1.0,) * 17, high=(1.0,) * 17, hidden=(33, 200),
        shared=True, activation="relu",
    ),
    "no hidden layer": discrete(10, 4, hidden=()),
}  # fmt: skip


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("value_clip", [0.0, 0.2])
def test_gradients_equal_autograd(net: str, value_clip: float) -> None:
    fused, reference = pair(NETS[net], value_clip=value_clip, entropy=0.05, max_grad_norm=0.0)
    rollout = random_rollout(fused, slots=13, masked=0.3 if value_clip else 0.0)
    assert_close(*gradients(fused, reference, rollout))


@pytest.mark.parametrize("seed", range(12))
def test_gradients_equal_autograd_for_random_shapes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    hidden = tuple(int(n) for n in rng.integers(1, 90, rng.integers(1, 4)))
    options: dict[str, Any] = {
        "hidden": hidden,
        "activation": str(rng.choice(["tanh", "relu"])),
        "shared": bool(rng.integers(2)),
    }
    kind = ("discrete", "multi_discrete", "gaussian")[seed % 3]
    size = int(rng.integers(1, 12))
    if kind == "gaussian":
        options |= {"action_size": size, "low": (-1.0,) * size, "high": (1.0,) * size}
    else:
        count = 1 if kind == "discrete" else int(rng.integers(2, 5))
        options |= {"nvec": tuple(int(n) for n in rng.integers(2, 20, count))}
    spec = NetSpec(int(rng.integers(1, 51)), kind, **options)  # type: ignore[arg-type]
    fused, reference = pair(spec, seed, entropy=0.02, value_clip=float(rng.integers(2)) * 0.3)
    rollout = random_rollout(fused, slots=int(rng.integers(1, 40)), seed=seed, masked=0.2)
    assert_close(*gradients(fused, reference, rollout))


@pytest.mark.parametrize("net", ["64x64 tanh", "relu", "shared", "multi", "gaussian", "wide"])
@pytest.mark.parametrize("threads", [1, 2])
def test_parameters_and_metrics_agree_after_one_update(net: str, threads: int) -> None:
    fused, reference = pair(NETS[net], threads=threads, epochs=3, entropy=0.01, value_clip=0.2)
    rollout = random_rollout(fused, slots=21, masked=0.15)
    rows = np.flatnonzero(rollout.mask[:-1]).astype(np.int32)
    order, borders = fused.minibatches(rows)
    ours = fused._optimise(rollout, order, borders)
    theirs = reference._optimise(rollout, order, borders)
    assert ours["minibatches"] == theirs["minibatches"] == 3 * (len(borders) - 1)
    for key, value in theirs.items():
        assert ours[key] == pytest.approx(value, rel=1e-4, abs=1e-5), key
    mine, other = fused.parameters(), reference.parameters()
    for name, value in other.items():
        np.testing.assert_allclose(mine[name], value, rtol=1e-5, atol=1e-5, err_msg=name)


def test_the_penalty_of_ewc_enters_the_gradient_before_clipping() -> None:
    fused, reference = pair(NETS["gaussian"], max_grad_norm=0.0, entropy=0.01)
    rollout = random_rollout(fused)
    plain, theirs = gradients(fused, reference, rollout)
    assert_close(plain, theirs)
    rng = np.random.default_rng(5)
    parameters = fused.parameters()
    fisher = {k: rng.random(v.shape, np.float32) for k, v in parameters.items()}
    anchor = {k: rng.normal(size=v.shape).astype(np.float32) for k, v in parameters.items()}
    fused.protect(Anchor(0.7, fisher, anchor))
    ours, _ = gradients(fused, reference, rollout)
    expected = {k: theirs[k] + 0.7 * fisher[k] * (parameters[k] - anchor[k]) for k in theirs}
    assert_close(ours, expected)


def test_both_learners_are_pulled_back_to_an_anchor_alike_and_keep_it_in_their_state() -> None:
    fused, reference = pair(NETS["shared"], epochs=2)
    rollout = random_rollout(fused)
    anchor = Anchor(
        50.0,
        {k: np.ones_like(v) for k, v in fused.parameters().items()},
        {k: np.zeros_like(v) for k, v in fused.parameters().items()},
    )
    fused.protect(anchor)
    reference.protect(anchor)
    order, borders = fused.minibatches(np.arange(128, dtype=np.int32))
    fused._optimise(rollout, order, borders)
    reference._optimise(rollout, order, borders)
    for name, value in reference.parameters().items():
        np.testing.assert_allclose(fused.parameters()[name], value, atol=1e-5, err_msg=name)
    other, _ = pair(NETS["shared"], epochs=2)
    other.load_state_dict(reference.state_dict())
    assert other.anchor is not None
    assert other.net.ewc == 50.0


def test_gradients_are_clipped_to_the_largest_norm_as_torch_does() -> None:
    fused, reference = pair(NETS["64x64 tanh"], max_grad_norm=1e-3, epochs=2)
    rollout = random_rollout(fused)
    order, borders = fused.minibatches(np.arange(128, dtype=np.int32))
    ours = fused._optimise(rollout, order, borders)
    theirs = reference._optimise(rollout, order, borders)
    assert ours["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=1e-5)
    assert ours["grad_norm"] > 1e-2
    state, other = fused.state_dict()["optimiser"], reference.state_dict()["optimiser"]
    assert state["step"] == other["step"] == len(order) * (len(borders) - 1)
    for name in other["m"]:
        np.testing.assert_allclose(state["m"][name], other["m"][name], rtol=1e-4, atol=1e-8)


def test_an_update_ends_before_the_step_whose_kl_is_too_large() -> None:
    fused, reference = pair(NETS["64x64 tanh"], lr=0.005, epochs=10, target_kl=0.05)
    rollout = random_rollout(fused)
    for t in range(rollout.steps):
        fused._forward(
            rollout.obs[t], rollout.noise[t], rollout.actions[t], rollout.log_probs[t],
            rollout.values[t],
        )  # fmt: skip
    order, borders = fused.minibatches(np.arange(128, dtype=np.int32))
    before = fused.parameters()
    ours = fused._optimise(rollout, order, borders)
    theirs = reference._optimise(rollout, order, borders)
    assert 1 < ours["minibatches"] == theirs["minibatches"] < 10 * (len(borders) - 1)
    assert ours["approx_kl"] == pytest.approx(theirs["approx_kl"], rel=1e-3)
    assert fused.net.step == ours["minibatches"]
    assert any(not np.array_equal(v, before[k]) for k, v in fused.parameters().items())


def test_an_update_is_not_ended_by_what_another_policy_played() -> None:
    # With overlap the policy that played lags behind: the KL is large from the first minibatch on.
    for who in pair(NETS["64x64 tanh"], lr=1e-6, epochs=4, target_kl=1e-3):
        rollout = random_rollout(who)
        order, _ = who.minibatches(np.arange(128, dtype=np.int32))
        metrics = who._optimise(rollout, order, np.array([0, 128]))
        assert metrics["minibatches"] == 4
        assert metrics["approx_kl"] > 0.01 and metrics["entropy_mean"] > 0.0


@pytest.mark.parametrize("net", NETS)
def test_actions_log_probabilities_and_values_equal_torchs(net: str) -> None:
    fused, reference = pair(NETS[net])
    slots = 150
    ours, theirs = fused.new_rollout(slots), reference.new_rollout(slots)
    fused.begin(ours)
    ours.obs[:] = np.random.default_rng(2).normal(size=ours.obs.shape)
    theirs.obs[:], theirs.noise[:] = ours.obs, ours.noise
    for t in range(ours.steps):
        fused.act(ours, t)
        reference.act(theirs, t)
    same = (ours.actions == theirs.actions).reshape(ours.steps, slots, -1).all(-1)
    if fused.spec.action == "gaussian":
        np.testing.assert_allclose(ours.actions, theirs.actions, rtol=1e-5, atol=1e-5)
        same[:] = True
    assert same.mean() > 0.998, "only a noise value at the edge between two choices may differ"
    np.testing.assert_allclose(ours.log_probs[same], theirs.log_probs[same], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(ours.values[:-1], theirs.values[:-1], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        fused.values_of(ours.obs[-1]), reference.values_of(ours.obs[-1]), rtol=1e-5, atol=1e-5
    )


def test_sampled_actions_follow_the_probabilities() -> None:
    fused, reference = pair(NETS["multi"])
    n = 40_000
    obs = np.tile(np.linspace(-1, 1, 7, dtype=np.float32), (n, 1))
    noise = np.random.default_rng(0).random((n, 3), np.float32)
    actions, out = np.zeros((n, 3), np.int32), np.zeros((2, n), np.float32)
    fused.net.act(obs, noise, actions, out[0], out[1])
    logits = reference.net(torch.from_numpy(obs[:1]))[0].detach()
    for k, part in enumerate(torch.split(logits, [3, 2, 9], dim=1)):
        counts = np.bincount(actions[:, k], minlength=part.shape[1]) / n
        np.testing.assert_allclose(counts, torch.softmax(part, 1)[0].numpy(), atol=0.012)


@pytest.mark.parametrize("net", ["64x64 tanh", "multi", "gaussian"])
def test_the_best_action_is_the_most_probable_one(net: str) -> None:
    fused, _ = pair(NETS[net])
    spec, n = fused.spec, 64
    obs = np.random.default_rng(1).normal(size=(n, spec.obs_size)).astype(np.float32)
    actions = np.zeros((n, spec.noise_size), spec.action_dtype)
    out = np.zeros((2, n), np.float32)
    fused.net.act(obs, np.zeros((n, spec.noise_size), np.float32), actions, out[0], out[1], BEST)
    expected = fused.policy().act(obs).reshape(n, -1)
    if spec.action == "gaussian":
        np.testing.assert_allclose(np.clip(actions, -1, 1), expected, rtol=1e-5, atol=1e-5)
    else:
        np.testing.assert_array_equal(actions, expected)


@pytest.mark.parametrize("net", ["64x64 tanh", "gaussian", "multi shared"])
def test_a_checkpoint_of_either_learner_goes_on_in_the_other(net: str) -> None:
    fused, reference = pair(NETS[net], epochs=2)
    rollout = random_rollout(fused)
    order, borders = fused.minibatches(np.arange(128, dtype=np.int32))
    fused._optimise(rollout, order, borders)
    other_fused, other_reference = pair(NETS[net], seed=9, epochs=2)
    other_reference.load_state_dict(fused.state_dict())
    reference._optimise(rollout, order, borders)
    other_fused.load_state_dict(reference.state_dict())
    for learner in (fused, reference, other_fused, other_reference):
        learner._optimise(rollout, order, borders)
    a, b = fused.state_dict(), other_reference.state_dict()
    assert (
        a["optimiser"]["step"] == b["optimiser"]["step"] == 2 * order.shape[0] * (len(borders) - 1)
    )
    for mine, theirs in ((fused, other_reference), (other_fused, reference)):
        one, two = mine.parameters(), theirs.parameters()
        assert set(one) == set(two)
        for name in two:
            np.testing.assert_allclose(one[name], two[name], rtol=1e-5, atol=1e-5, err_msg=name)


def test_a_reloaded_learner_goes_on_bit_for_bit() -> None:
    fused, _ = pair(NETS["shared"])
    rollout = random_rollout(fused)
    order, borders = fused.minibatches(np.arange(128, dtype=np.int32))
    fused._optimise(rollout, order, borders)
    other, _ = pair(NETS["shared"], seed=4)
    other.load_state_dict(fused.state_dict())
    for learner in (fused, other):
        learner._optimise(rollout, order, borders)
    for name, value in fused.parameters().items():
        np.testing.assert_array_equal(other.parameters()[name], value)


def test_masked_samples_have_no_influence() -> None:
    fused, _ = pair(NETS["64x64 tanh"])
    rollout = random_rollout(fused, masked=0.5)
    rows = np.flatnonzero(rollout.mask[:-1]).astype(np.int32)
    order, borders = fused.minibatches(rows)
    before = fused.state_dict()
    fused._optimise(rollout, order, borders)
    expected = fused.parameters()
    fused.load_state_dict(before)
    hidden = ~rollout.mask[:-1]
    rollout.obs[:-1][hidden] = np.nan
    rollout.advantages[hidden] = np.inf
    rollout.returns[hidden] = np.nan
    rollout.log_probs[hidden] = np.nan
    fused._optimise(rollout, order, borders)
    for name, value in fused.parameters().items():
        np.testing.assert_array_equal(value, expected[name])


def test_a_number_that_is_not_finite_shows_in_the_metrics() -> None:
    fused, _ = pair(NETS["64x64 tanh"])
    rollout = random_rollout(fused)
    rollout.obs[3, 2, 1] = np.nan
    order, borders = fused.minibatches(np.arange(128, dtype=np.int32))
    assert not np.isfinite(fused._optimise(rollout, order, borders)["grad_norm"])


def test_the_rollout_is_read_where_it_lies() -> None:
    fused, _ = pair(NETS["64x64 tanh"])
    rollout = random_rollout(fused)
    rollout.obs = np.asfortranarray(rollout.obs)
    with pytest.raises(TypeError, match="contiguous float32"):
        fused.net.act(rollout.obs[0], *(np.zeros((8, 1), np.float32),) * 2, *np.zeros((2, 8)))


def test_one_compilation_serves_every_network() -> None:
    for net in ("64x64 tanh", "relu", "multi shared", "gaussian"):
        fused, _ = pair(NETS[net])
        fused.update(random_rollout(fused))
    assert len(update.signatures) == 1
    assert len(work_on.signatures) == len(post.signatures) == 1


@pytest.mark.parametrize("nvec", [(), (3, 4)])
def test_a_discrete_action_is_one_choice(nvec: tuple[int, ...]) -> None:
    """Kernels write as many numbers a row as `nvec` has, and rollouts have room for one."""
    with pytest.raises(ValueError, match="multi_discrete"):
        NetSpec(3, "discrete", nvec=nvec)
