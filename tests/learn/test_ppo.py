from __future__ import annotations

import numpy as np
import pytest
import torch

from holdfast.errors import StorageError
from holdfast.learn.nets import ActorCritic
from holdfast.learn.options import LearnerConfig
from holdfast.learn.ppo import Samples, TorchLearner
from holdfast.learn.spec import NetSpec, initial_parameters
from holdfast.records import Rollout
from holdfast.rng import Streams

DISCRETE = NetSpec(4, "discrete", nvec=(3,), hidden=(8,))
GAUSSIAN = NetSpec(
    4, "gaussian", action_size=2, low=(-2.0, 0.0), high=(2.0, 1.0), hidden=(8,), shared=True
)


def learner(spec: NetSpec = DISCRETE, **settings) -> TorchLearner:
    config = LearnerConfig(
        kind="torch", steps=16, epochs=2, minibatch=32, hidden=(8,), threads=1, **settings
    )
    return TorchLearner(spec, config, Streams(3), slots=6)


def filled(who: TorchLearner, seed: int = 0) -> Rollout:
    rng = np.random.default_rng(seed)
    rollout = who.new_rollout(6)
    rollout.obs[:] = rng.normal(size=rollout.obs.shape)
    rollout.rewards[:] = rng.normal(size=rollout.rewards.shape)
    rollout.terminations[:] = rng.random(rollout.terminations.shape) < 0.1
    who.begin(rollout)
    for t in range(rollout.steps):
        who.act(rollout, t)
    return rollout


def test_the_recorded_log_probability_is_that_of_the_recorded_action() -> None:
    for spec in (DISCRETE, GAUSSIAN):
        who = learner(spec)
        rollout = filled(who)
        flat = Samples(rollout)
        head, value = who.net(flat.obs)
        log_prob, _ = who.net.log_prob_entropy(head, flat.actions)
        np.testing.assert_allclose(log_prob.detach(), flat.log_probs, atol=1e-6)
        np.testing.assert_allclose(value.detach(), flat.values, atol=1e-6)


def test_rewards_of_a_script_leave_the_steps_before_it_alone() -> None:
    who = learner()
    rollout = filled(who)
    rollout.terminations[:] = False
    rollout.mask[5:9] = False
    found = []
    for reward in (0.0, -100.0):
        rollout.rewards[5:9] = reward
        who._targets(rollout)
        found.append(rollout.advantages[rollout.mask[:-1]].copy())
    assert np.array_equal(*found)


def test_gaussian_log_prob_and_entropy_equal_torch_distributions() -> None:
    net = ActorCritic(GAUSSIAN)
    mean, actions = torch.randn(5, 2), torch.randn(5, 2)
    normal = torch.distributions.Normal(mean, net.log_std.exp())
    log_prob, entropy = net.log_prob_entropy(mean, actions)
    torch.testing.assert_close(log_prob, normal.log_prob(actions).sum(-1))
    torch.testing.assert_close(entropy, normal.entropy().sum(-1))


def test_multi_discrete_log_prob_is_the_sum_over_dimensions() -> None:
    spec = NetSpec(3, "multi_discrete", nvec=(2, 4), hidden=(5,))
    net = ActorCritic(spec)
    head = torch.randn(6, 6)
    actions = torch.tensor([[0, 3], [1, 0], [0, 1], [1, 2], [0, 0], [1, 3]])
    one = torch.distributions.Categorical(logits=head[:, :2])
    two = torch.distributions.Categorical(logits=head[:, 2:])
    log_prob, entropy = net.log_prob_entropy(head, actions)
    torch.testing.assert_close(log_prob, one.log_prob(actions[:, 0]) + two.log_prob(actions[:, 1]))
    torch.testing.assert_close(entropy, one.entropy() + two.entropy())


def test_sampling_follows_the_softmax() -> None:
    who = learner()
    head = torch.tensor([[0.0, 1.0, 2.0]]).expand(30000, 3)
    from holdfast.learn.policy import pick_discrete

    uniform = np.random.default_rng(0).random((30000, 1), np.float32)
    picks = pick_discrete(head.numpy(), who.spec.nvec, uniform)
    share = np.bincount(picks[:, 0], minlength=3) / 30000
    np.testing.assert_allclose(share, torch.softmax(head[0], 0), atol=0.01)


def test_masked_samples_change_nothing() -> None:
    one, two = learner(), learner()
    a, b = filled(one), filled(two)
    for rollout in (a, b):
        rollout.mask[:-1, 2] = False
    b.rewards[:, 2] = 1e6
    b.obs[:-1, 2] = 77.0
    one.update(a)
    two.update(b)
    for name, value in one.parameters().items():
        np.testing.assert_array_equal(value, two.parameters()[name])


def test_the_first_minibatch_has_ratio_one_and_no_clipping() -> None:
    who = learner()
    rollout = filled(who)
    rollout.advantages[:] = 1.0
    rollout.advantages[0] = -1.0
    _, metrics = who.loss(Samples(rollout), torch.arange(96))
    assert metrics["approx_kl"] == pytest.approx(0.0, abs=1e-6)
    assert metrics["clip_fraction"] == 0.0
    assert metrics["policy_loss"] == pytest.approx(0.0, abs=1e-5)


def test_an_update_with_a_kl_target_ends_early() -> None:
    assert learner().update(filled(learner()))["minibatches"] == 6
    who = learner(target_kl=1e-6, lr=0.1)
    assert who.update(filled(who))["minibatches"] < 6


def test_advantages_push_the_probability_of_good_actions_up() -> None:
    who = learner(entropy=0.0, lr=0.01, gamma=0.0)
    rollout = filled(who)
    rollout.rewards[:] = np.where(rollout.actions == 1, 1.0, -1.0)
    before = float((rollout.actions == 1).mean())
    who.update(rollout)
    for _ in range(5):
        rollout = filled(who)
        rollout.rewards[:] = np.where(rollout.actions == 1, 1.0, -1.0)
        who.update(rollout)
    assert float((filled(who).actions == 1).mean()) > before + 0.3


def test_a_state_restores_parameters_optimiser_normalisation_and_settings() -> None:
    one = learner(normalise_obs=True, normalise_rewards=True)
    one.set_value("lr_scale", 0.25)
    one.update(filled(one))
    two = learner(normalise_obs=True, normalise_rewards=True)
    two.load_state_dict(one.state_dict())
    two.streams.load_state_dict(one.streams.state_dict())
    one.update(filled(one, 1))
    two.update(filled(two, 1))
    for name, value in one.parameters().items():
        np.testing.assert_array_equal(value, two.parameters()[name])
    assert two.value("lr_scale") == 0.25


def test_parameters_of_another_shape_are_refused_with_a_table() -> None:
    other = initial_parameters(
        NetSpec(5, "discrete", nvec=(3,), hidden=(8,)), np.random.default_rng(0)
    )
    with pytest.raises(StorageError, match=r"pi\.0\.weight: checkpoint \(8, 5\), network \(8, 4\)"):
        learner().load_parameters(other)


def test_orthogonal_rows_have_the_gain_as_norm() -> None:
    parameters = initial_parameters(
        NetSpec(16, "discrete", nvec=(3,), hidden=(8,)), np.random.default_rng(0)
    )
    weight = parameters["pi.0.weight"]
    np.testing.assert_allclose(weight @ weight.T, 2.0 * np.eye(8), atol=1e-5)


def test_continuous_actions_reach_the_world_inside_their_bounds() -> None:
    who = learner(GAUSSIAN)
    rollout = who.new_rollout(6)
    who.begin(rollout)
    rollout.noise[:] *= 100
    actions = who.act(rollout, 0)
    assert actions.min() >= -2.0 and actions.max() <= 2.0
    assert (actions[:, 1] >= 0.0).all() and (actions[:, 1] <= 1.0).all()


def test_a_frozen_policy_plays_like_its_learner() -> None:
    who = learner(normalise_obs=True)
    who.update(filled(who))
    policy = who.policy()
    obs = np.random.default_rng(5).normal(size=(20, 4)).astype(np.float32)
    head, value = who.net(torch.from_numpy(who.norm.apply(obs)))
    np.testing.assert_array_equal(policy.act(obs), head.argmax(1).numpy())
    np.testing.assert_allclose(policy.values(obs), value.detach().numpy(), atol=1e-5)
