"""The memory of a policy: one step at a time or a rollout at once, it is the same; episodes are kept apart."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from learn_games import Noise, collect, config, spec
from torch import nn

from holdfast.errors import ConfigError
from holdfast.learn.learner import make_learner
from holdfast.learn.memory import Gru, Lstm, make_core
from holdfast.learn.options import LearnerConfig
from holdfast.learn.spec import NetSpec
from holdfast.rng import Streams

MEMORIES = ("gru", "lstm", "transformer")
STEPS, SLOTS, INPUTS, WIDTH = 25, 4, 6, 8


def core_of(memory: str, layers: int = 2) -> tuple[NetSpec, nn.Module]:
    one = NetSpec(
        INPUTS,
        "discrete",
        (3,),
        memory=memory,
        memory_size=WIDTH,
        memory_window=5,
        memory_layers=layers,
    )
    core = make_core(one, INPUTS)
    rng = np.random.default_rng(0)
    for module in core.modules():
        if hasattr(module, "draw"):
            module.draw(rng)
    if memory == "transformer":
        for block in core.blocks:
            nn.init.normal_(block.distance, generator=torch.Generator().manual_seed(1))
            block.mix.weight.data *= 10
    return one, core


def sequence(seed: int = 1, ends: float = 0.2) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.normal(size=(STEPS, SLOTS, INPUTS)).astype(np.float32))
    return x, torch.from_numpy(rng.random((STEPS, SLOTS)) < ends)


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("ends", [0.0, 0.2, 0.6])
def test_a_rollout_at_once_equals_one_step_at_a_time(memory: str, ends: float) -> None:
    one, core = core_of(memory)
    x, begun = sequence(ends=ends)
    state = torch.zeros(SLOTS, one.memory_floats)
    whole, last = core(x, state, begun)
    for t in range(STEPS):
        y, state = core(x[t : t + 1], state, begun[t : t + 1])
        torch.testing.assert_close(y[0], whole[t], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(state, last, atol=1e-5, rtol=1e-5)
    # And in two halves, as rollouts follow each other.
    state = torch.zeros(SLOTS, one.memory_floats)
    _, state = core(x[:11], state, begun[:11])
    second, _ = core(x[11:], state, begun[11:])
    torch.testing.assert_close(second, whole[11:], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("memory", MEMORIES)
def test_nothing_crosses_the_beginning_of_an_episode_in_either_direction(memory: str) -> None:
    one, core = core_of(memory)
    x, begun = sequence(ends=0.0)
    begun[10, 1] = True
    state = torch.randn(SLOTS, one.memory_floats, generator=torch.Generator().manual_seed(0))
    if memory == "transformer":
        state[:, :4] = 1.0
    x.requires_grad_()
    y, _ = core(x, state, begun)
    fresh, _ = core(x[10:, 1:2], torch.zeros(1, one.memory_floats), begun[10:, 1:2])
    torch.testing.assert_close(y[10:, 1:2], fresh, atol=1e-5, rtol=1e-5)
    (grad,) = torch.autograd.grad(y[10:, 1].square().sum(), x)
    assert not grad[:10].any() and grad[10:, 1].any() and not grad[10:, [0, 2, 3]].any()


@pytest.mark.parametrize("memory", MEMORIES)
def test_what_came_before_matters_within_an_episode(memory: str) -> None:
    one, core = core_of(memory)
    x, begun = sequence(ends=0.0)
    y, _ = core(x, torch.zeros(SLOTS, one.memory_floats), begun)
    changed = x.clone()
    changed[7] += 1.0
    z, _ = core(changed, torch.zeros(SLOTS, one.memory_floats), begun)
    torch.testing.assert_close(y[:7], z[:7])
    assert (y[8] - z[8]).abs().max() > 1e-4


def test_a_transformer_of_one_layer_looks_back_exactly_its_window() -> None:
    one, core = core_of("transformer", layers=1)
    x, begun = sequence(ends=0.0)
    y, _ = core(x, torch.zeros(SLOTS, one.memory_floats), begun)
    changed = x.clone()
    changed[3] += 1.0
    z, _ = core(changed, torch.zeros(SLOTS, one.memory_floats), begun)
    moved = (y - z).abs().amax((1, 2)) > 1e-6
    assert moved.nonzero().flatten().tolist() == [3, 4, 5, 6, 7]


@pytest.mark.parametrize(("ours", "theirs"), [(Gru, nn.GRU), (Lstm, nn.LSTM)])
def test_gates_are_torchs(ours, theirs) -> None:
    core, other = ours(INPUTS, WIDTH), theirs(INPUTS, WIDTH)
    core.draw(np.random.default_rng(0))
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        getattr(other, f"{name}_l0").data.copy_(getattr(core, name).data)
    x, begun = sequence(ends=0.0)
    y, _ = core(x, torch.zeros(SLOTS, WIDTH * (2 if ours is Lstm else 1)), begun)
    torch.testing.assert_close(y, other(x)[0], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("pictures", [True, False])
def test_what_acting_wrote_is_what_the_update_computes_again(memory: str, pictures: bool) -> None:
    more = {"memory": memory, "memory_size": 8, "memory_window": 5}
    one = spec(**more) if pictures else NetSpec(5, "discrete", (3,), hidden=(8,), **more)
    who = make_learner(one, config(steps=15), Streams(1), SLOTS)
    game, rollout = Noise(SLOTS, one.obs_size, pixels=pictures), who.new_rollout(SLOTS)
    for _ in range(3):
        collect(who, game, rollout)
    assert rollout.memory[0].any() and rollout.begun.any()
    with torch.no_grad():
        head, value, _ = who.unroll(rollout, 15, np.arange(SLOTS), 0)
        log_prob, _ = who.net.log_prob_entropy(head, torch.from_numpy(rollout.actions.ravel()))
    np.testing.assert_allclose(value, rollout.values[:-1].ravel(), atol=1e-5)
    np.testing.assert_allclose(log_prob, rollout.log_probs.ravel(), atol=1e-5)


@pytest.mark.parametrize("memory", MEMORIES)
def test_remembering_the_first_observation_is_learned(memory: str) -> None:
    """The first of six observations says which action pays in the last; the rest say only the time."""
    slots, length = 64, 6
    one = NetSpec(3, "discrete", (2,), hidden=(16,), memory=memory, memory_size=16, memory_window=8)
    settings = {"steps": 12, "epochs": 4, "minibatch": 384, "lr": 5e-3, "gamma": 0.99}
    who = make_learner(one, config(**settings), Streams(2), slots)
    rng, rollout = np.random.default_rng(0), who.new_rollout(slots)

    class Recall:
        def __init__(self) -> None:
            self.clock, self.sign = 0, rng.integers(0, 2, slots)

        @property
        def obs(self) -> np.ndarray:
            rows = np.zeros((slots, 3), np.float32)
            rows[:, 2] = self.clock / length
            if self.clock == 0:
                rows[np.arange(slots), self.sign] = 1.0
            return rows

        def step(self, actions: np.ndarray) -> tuple[np.ndarray, ...]:
            last = np.full(slots, self.clock == length - 1)
            rewards = np.where(last, np.where(actions == self.sign, 1.0, -1.0), 0.0)
            self.clock = (self.clock + 1) % length
            if self.clock == 0:
                self.sign = rng.integers(0, 2, slots)
            return rewards, last, np.zeros(slots, bool), self.obs

    game, shares = Recall(), []
    for _ in range(40):
        collect(who, game, rollout)
        shares.append(float((rollout.rewards == 1).sum() / (rollout.rewards != 0).sum()))
        if np.mean(shares[-3:]) > 0.9:
            break
        who.update(rollout)
    assert 0.3 < np.mean(shares[:3]) < 0.7
    assert np.mean(shares[-3:]) > 0.9


def test_a_transformer_needs_a_width_that_its_heads_share() -> None:
    with pytest.raises(ConfigError, match="memory_size = 10 is not a multiple of 4"):
        LearnerConfig(memory="transformer", memory_size=10)


def test_layers_are_torchs() -> None:
    spec, core = core_of("lstm", layers=2)
    assert spec.memory_floats == 2 * 2 * spec.memory_size
    known = nn.LSTM(core.layers[0].weight_ih.shape[1], spec.memory_size, num_layers=2)
    for k, layer in enumerate(core.layers):
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            getattr(known, f"{name}_l{k}").data = getattr(layer, name).data
    x, _ = sequence()
    begun = torch.zeros(x.shape[:2], dtype=torch.bool)
    found, _ = core(x, torch.zeros(x.shape[1], spec.memory_floats), begun)
    torch.testing.assert_close(found, known(x)[0], rtol=1e-4, atol=1e-5)
