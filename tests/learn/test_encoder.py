"""The network for the sensors of pursuit: its size, what it reads, and where it can be used."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import holdfast
from holdfast.errors import ConfigError
from holdfast.learn.encoder import SIZES, Sensors, final
from holdfast.learn.learner import make_learner
from holdfast.learn.memory import Lstm
from holdfast.learn.nets import ActorCritic
from holdfast.learn.options import LearnerConfig
from holdfast.learn.policy import make_policy
from holdfast.learn.ppo import TorchLearner
from holdfast.learn.spec import NetSpec, spec_from
from holdfast.rng import Streams

ENCODERS = ("bimdn", "lstm", "mlp")


def world(**options: Any) -> Any:
    small = {"games": 2, "observation": "sensors", "lidar_rays": 6, "history_length": 3}
    made = holdfast.make("pursuit", **{**small, **options})
    made.reset(seed=1)
    return made


def config(**settings: Any) -> LearnerConfig:
    small = {"net": "sensors", "hidden": (8,), "threads": 1, "steps": 6, "minibatch": 16}
    return LearnerConfig(**{**small, **settings})


def spec_in(made: Any, **settings: Any) -> NetSpec:
    spaces = made.single_observation_space, made.single_action_space
    return spec_from(config(**settings), *spaces, 1, made.sensors, made.truth_size)


def net_of(spec: NetSpec, seed: int = 0) -> ActorCritic:
    net = ActorCritic(spec)
    net.first_parameters(np.random.default_rng(seed), 0.0)
    return net


def test_it_has_as_many_parameters_as_the_original() -> None:
    made = world(lidar_rays=36, history_length=10, fixed_speed=True)
    net = ActorCritic(spec_in(made, hidden=(256, 256)))
    assert made.single_observation_space.shape == (473,)
    assert sum(p.numel() for p in net.parameters()) == 498_172


def test_names_are_those_of_a_trunk_and_two_towers() -> None:
    names = set(net_of(spec_in(world())).state_dict())
    expected = {"pi.0.weight", "vf.0.bias", "pi_out.weight", "vf_out.bias", "log_std"}
    assert expected <= names
    rest = names - expected - {"pi.0.bias", "vf.0.weight", "pi_out.bias", "vf_out.weight"}
    assert rest and all(name.startswith("trunk.") for name in rest)


def test_a_gated_cell_ends_as_torchs_lstm_does() -> None:
    cell, theirs = Lstm(5, 4), torch.nn.LSTM(5, 4)
    cell.draw(np.random.default_rng(0))
    pairs = {f"{k}_l0": v for k, v in cell.state_dict().items()}
    theirs.load_state_dict(pairs)
    steps = torch.randn(7, 3, 5, generator=torch.Generator().manual_seed(1))
    expected = theirs(steps)[1][0][0]
    torch.testing.assert_close(final(cell, steps), expected)


def test_each_direction_of_time_has_read_the_whole_history() -> None:
    net = net_of(spec_in(world())).trunk
    assert isinstance(net, Sensors)
    rows = torch.randn(1, 3, 13, generator=torch.Generator().manual_seed(1))
    held = net._history(rows)[0]
    for k in range(3):
        other = rows.clone()
        other[0, k] += 1.0
        moved = (net._history(other)[0] - held).abs() > 0
        assert moved[:64].any() and moved[64:].any(), k


@pytest.mark.parametrize("encoder", ENCODERS)
def test_every_part_of_the_observation_is_read(encoder: Any) -> None:
    made = world(games=8)
    net = net_of(spec_in(made, encoder=encoder))
    obs = torch.from_numpy(made.observe()[0]).requires_grad_()
    head, value = net(obs)
    (slope,) = torch.autograd.grad(head.sum() + value.sum(), obs)
    touched = slope.abs().sum(0) > 0
    assert touched[:6].any() and touched[-7:].any()
    history = touched[6:-7].reshape(3, 13)
    assert history.any(1).all() and history.any(0).all()


def test_rays_form_a_circle() -> None:
    net = net_of(spec_in(world(lidar_rays=8))).trunk
    rays = torch.rand(1, 1, 8, generator=torch.Generator().manual_seed(1))
    for ring in net.lidar:
        turned = ring(rays.roll(3, 2))
        rays = ring(rays)
        torch.testing.assert_close(turned, rays.roll(3, 2))


def test_metres_are_scaled_and_normalised_numbers_are_not() -> None:
    made = world()
    raw, normal = spec_in(made), spec_in(made, normalise_obs=True)
    assert raw.metres and not normal.metres
    one, two = net_of(raw), net_of(normal)
    obs = torch.from_numpy(made.observe()[0])
    sizes = torch.tensor([5.0] * 6 + [*SIZES, *[5.0] * 6] * 3 + list(SIZES))
    torch.testing.assert_close(one(obs)[0], two(obs / sizes)[0])
    assert math.isclose(SIZES[2], math.pi)


@pytest.mark.parametrize("kind", ["auto", "vtrace"])
@pytest.mark.parametrize("memory", ["none", "gru"])
def test_it_learns_with_and_without_memory_and_its_policy_plays_as_the_learner(
    kind: Any, memory: Any
) -> None:
    from holdfast.collect import whole

    made = world()
    settings = {"kind": kind, "memory": memory, "memory_size": 8, "normalise_obs": True}
    learner = make_learner(spec_in(made, **settings), config(**settings), Streams(0), 4)
    assert kind == "vtrace" or isinstance(learner, TorchLearner)
    before = learner.parameters()
    collector = whole(made, learner)
    for _ in range(2):
        collector.collect()
        metrics = learner.update(collector.seats[0].rollout)
    assert "belief_nll" not in metrics
    after = learner.parameters()
    still = {name for name in after if np.array_equal(before[name], after[name])}
    assert all(name.startswith("trunk.mixture.") for name in still) and len(still) == 6
    obs, _ = made.observe()
    policy = learner.policy()
    again = make_policy(learner.spec, after, policy.norm)
    np.testing.assert_array_equal(policy.act(obs), again.act(obs))
    learner.load_parameters(after)  # into the copy that acts, too
    policy.begin()
    np.testing.assert_allclose(policy.values(obs), learner.values_of(obs), rtol=1e-4, atol=1e-5)


def test_a_world_without_sensors_is_refused() -> None:
    plain = holdfast.make("pursuit", games=1)
    assert plain.sensors == () and plain.truth_size == 0 and plain.truth().shape == (2, 0)
    with pytest.raises(ConfigError, match="--observation sensors"):
        spec_in(plain)
    with pytest.raises(ConfigError, match="cannot read 3 lidar rays"):
        spec_in(world(lidar_rays=3))


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="Only the mixture density"):
        config(belief=1.0, encoder="lstm")
    with pytest.raises(ConfigError, match="Only the mixture density"):
        config(belief=1.0, net="mlp")
    with pytest.raises(ConfigError, match="share the encoder already"):
        config(shared=True)
    with pytest.raises(ConfigError, match="cannot have net = 'sensors'"):
        made = world()
        make_learner(spec_in(made), config(kind="fused"), Streams(0), 4)
