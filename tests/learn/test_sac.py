"""Soft actor-critic: its densities, targets and memory, and that a run of it is saved whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from learn_games import Noise, collect
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

import holdfast
from holdfast.errors import ConfigError
from holdfast.learn.ewc import anchor_of, fisher, squared_scores
from holdfast.learn.fisher import Scores
from holdfast.learn.learner import make_learner
from holdfast.learn.options import LearnerConfig, SacConfig
from holdfast.learn.policy import LOG_STD, Policy
from holdfast.learn.ring import Cut, Ring
from holdfast.learn.sac import SacLearner
from holdfast.learn.spec import NetSpec, spec_from
from holdfast.records import Rollout
from holdfast.rng import Streams

SLOTS, SIZE = 6, 5
SPEC = NetSpec(SIZE, "squashed", action_size=2, low=(-1.0, 0.0), high=(1.0, 4.0), hidden=(16, 16))
SMALL = {"capacity": 64, "batch": 32, "warmup": 0}


def learner(sac: dict[str, Any] | None = None, **settings: Any) -> SacLearner:
    config = LearnerConfig(
        kind="sac", steps=8, entropy=0.1, sac=SacConfig(**{**SMALL, **(sac or {})}), **settings
    )
    made = make_learner(SPEC, config, Streams(3), SLOTS)
    assert isinstance(made, SacLearner)
    return made


def played(who: SacLearner, game: Noise, rollout: Rollout) -> dict[str, float]:
    collect(who, game, rollout)
    return who.update(rollout)


def test_actions_have_the_density_that_torch_gives_them() -> None:
    who = learner()
    obs, noise = torch.randn(40, SIZE), 2.0 * torch.randn(40, 2)
    with torch.no_grad():
        actions, logs = who.actor(obs, noise)
        mean, log_std = who.actor.run("pi", obs).chunk(2, 1)
        base = Independent(Normal(mean.double(), log_std.double().exp()), 1)
        known = TransformedDistribution(base, [TanhTransform()])
        before = mean + log_std.exp() * noise
        wanted = base.log_prob(before.double()) - TanhTransform().log_abs_det_jacobian(
            before.double(), torch.tanh(before.double())
        ).sum(1)
    assert known.event_shape == (2,)
    torch.testing.assert_close(logs.double(), wanted, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(actions, torch.tanh(before))


def test_one_step_is_that_of_the_paper() -> None:
    who = learner(max_grad_norm=0.0, gamma=0.9)
    game, rollout = Noise(SLOTS, SIZE, pixels=False), who.new_rollout(SLOTS)
    collect(who, game, rollout)
    who.replay.push(rollout, who._cuts)
    rows = who.replay.take(np.arange(32))
    assert rows.ended.any() and not rows.ended.all()
    noise, next_noise = torch.randn(32, 2), torch.randn(32, 2)
    obs, next_obs = torch.from_numpy(rows.obs), torch.from_numpy(rows.next_obs)
    with torch.no_grad():
        after, logs = who.actor(next_obs, next_noise)
        low = torch.minimum(*who.target(next_obs, after)) - 0.1 * logs
    target = torch.from_numpy(rows.rewards) + 0.9 * low * torch.from_numpy(~rows.ended)
    with torch.no_grad():
        both = who.critic(obs, torch.from_numpy(rows.actions))
        wanted = sum(0.5 * float(torch.nn.functional.mse_loss(q, target)) for q in both)
    slow = {k: v.clone() for k, v in who.target.state_dict().items()}
    metrics = who._step(np.arange(32), noise, next_noise)
    assert metrics["value_loss"] == pytest.approx(wanted, rel=1e-5)
    for name, value in who.target.state_dict().items():
        fast = who.critic.state_dict()[name.replace("_target", "")]
        torch.testing.assert_close(value, 0.995 * slow[name] + 0.005 * fast)


def test_rewards_from_the_memory_are_divided_by_the_deviation_of_now() -> None:
    losses = []
    for scale in (1.0, 2.0):
        who = learner(normalise_rewards=scale > 1.0)
        rollout = who.new_rollout(SLOTS)
        collect(who, Noise(SLOTS, SIZE, pixels=False), rollout)
        rollout.rewards *= scale
        who.replay.push(rollout, who._cuts)
        if who.reward_norm is not None:
            who.reward_norm.moments[:] = 4.0, 0.0, 4.0 * scale**2
        losses.append(who._step(np.arange(32), torch.zeros(32, 2), torch.zeros(32, 2)))
    assert losses[1]["value_loss"] == pytest.approx(losses[0]["value_loss"], rel=1e-5)


def test_the_weight_of_the_entropy_rises_below_the_target_and_falls_above_it() -> None:
    learned = {}
    for target in (-20.0, 20.0):
        who = learner({"auto_entropy": True, "target_entropy": target})
        found = played(who, Noise(SLOTS, SIZE, pixels=False), who.new_rollout(SLOTS))
        assert -20.0 < found["entropy_mean"] < 20.0
        learned[target] = who.alpha
    assert learned[-20.0] < 0.1 < learned[20.0]
    assert learner({"auto_entropy": True})._target_entropy == -2.0, "minus the actions"


def test_an_episode_that_was_cut_goes_on_from_its_last_observation() -> None:
    rollout = learner().new_rollout(2)
    rollout.obs[...] = np.arange(9 * 2 * SIZE, dtype=np.float32).reshape(9, 2, SIZE)
    rollout.mask[:] = True
    rollout.mask[3, 0] = False
    rollout.terminations[2, 1] = True
    rollout.truncations[5, 0] = True
    ring = Ring(100, 1.0)
    ring.push(rollout, [Cut(5, np.array([0]), np.full((1, SIZE), -7.0, np.float32))])
    rows = ring.take(np.arange(ring.size))
    assert ring.size == 15, "a step without a decision is not kept"
    at = {tuple(obs): k for k, obs in enumerate(rows.obs)}
    cut, ended = at[tuple(rollout.obs[5, 0])], at[tuple(rollout.obs[2, 1])]
    assert (rows.next_obs[cut] == -7.0).all() and not rows.ended[cut]
    assert rows.ended[ended] and rows.ended.sum() == 1
    others = [k for k in range(15) if k != cut]
    assert all(rows.next_obs[k][0] - rows.obs[k][0] == 2 * SIZE for k in others)


def test_the_memory_keeps_the_newest() -> None:
    who = learner({"capacity": 60})
    rollout = who.new_rollout(SLOTS)
    for k in range(4):
        collect(who, Noise(SLOTS, SIZE, seed=k, pixels=False), rollout)
        rollout.rewards[...] = k
        who.replay.push(rollout, who._cuts)
    kept = who.replay.take(np.arange(who.replay.size)).rewards
    assert who.replay.size == who.replay.room == 60 and who.replay.pushed == 4 * 48
    assert (kept == 3).sum() == 48 and (kept == 2).sum() == 12


def test_a_memory_takes_no_more_than_it_may() -> None:
    ring = Ring(10**9, max_gb=1e-5)
    rollout = learner().new_rollout(SLOTS)
    ring.push(rollout, [])
    assert ring.room == int(1e-5 * 2**30 / (4 * (2 * SIZE + 2 + 1) + 1))


def test_a_learner_goes_on_exactly_from_its_state() -> None:
    one, game = (
        learner({"auto_entropy": True}, normalise_rewards=True),
        Noise(SLOTS, SIZE, pixels=False),
    )
    rollout = one.new_rollout(SLOTS)
    for _ in range(3):
        played(one, game, rollout)
    two = learner({"auto_entropy": True}, normalise_rewards=True)
    state, streams = one.state_dict(), one.streams.state_dict()
    two.load_state_dict(state)
    two.streams.load_state_dict(streams)
    two.replay.load_state_dict(one.replay.state_dict())
    games = Noise(SLOTS, SIZE, 9, pixels=False), Noise(SLOTS, SIZE, 9, pixels=False)
    for who, same in zip((one, two), games, strict=True):
        for _ in range(2):
            played(who, same, who.new_rollout(SLOTS))
    for name, value in one.parameters().items():
        np.testing.assert_array_equal(value, two.parameters()[name], err_msg=name)
    assert one.alpha != pytest.approx(0.1), "the weight of the entropy was learned"


def test_the_weight_of_the_entropy_that_is_told_is_the_one_in_use() -> None:
    for sac, own in (({"auto_entropy": True}, False), ({}, True)):
        who, game = learner(sac), Noise(SLOTS, SIZE, pixels=False)
        for _ in range(3):
            told = played(who, game, who.new_rollout(SLOTS))
        assert told["entropy"] == who.alpha
        assert (told["entropy"] == who.config.entropy) == own
        assert "clip" not in told, "it clips no ratio"


def test_actions_are_even_until_learning_begins_and_a_given_policy_plays_at_once() -> None:
    who = learner({"warmup": 60})
    game, rollout = Noise(SLOTS, SIZE, pixels=False), who.new_rollout(SLOTS)
    first = played(who, game, rollout)
    assert first["minibatches"] == 0 and (rollout.log_probs == rollout.log_probs[0, 0]).all()
    assert abs(rollout.actions.mean()) < 0.2 and 0.5 < rollout.actions.std() < 0.66
    assert played(who, game, rollout)["minibatches"] == 8
    played(who, game, rollout)
    assert rollout.log_probs.std() > 0.1, "now it plays by its network"
    other = learner({"warmup": 60})
    other.load_parameters(who.parameters())
    collect(other, game, rollout)
    assert rollout.log_probs.std() > 0.1


def test_a_frozen_policy_plays_as_the_learner_does() -> None:
    who = learner()
    game, rollout = Noise(SLOTS, SIZE, pixels=False), who.new_rollout(SLOTS)
    for _ in range(2):
        played(who, game, rollout)
    obs = game.draw()
    policy = who.policy()
    zero = np.zeros((SLOTS, 2), np.float32)
    actions, unused = np.empty_like(zero), np.empty(SLOTS, np.float32)
    who.begin(rollout)
    who._forward(obs, zero, actions, unused, unused)
    low, high = np.array(SPEC.low), np.array(SPEC.high)
    best = policy.act(obs)
    np.testing.assert_allclose(best, low + (actions + 1) * (high - low) / 2, atol=1e-5)
    np.testing.assert_allclose(policy.values(obs), who.values_of(obs), atol=1e-5)
    wide = Policy(SPEC, who.parameters())
    np.testing.assert_allclose(best, wide._pick(wide._head("pi", obs), None), atol=1e-5)
    many = policy.act(np.tile(obs[:1], (4000, 1)), np.random.default_rng(0))
    head = policy._head("pi", obs[:1])[0]
    inner = np.arctanh(np.clip((many - low) / (high - low) * 2 - 1, -0.999999, 0.999999))
    np.testing.assert_allclose(inner.mean(0), head[:2], atol=0.08)
    np.testing.assert_allclose(inner.std(0), np.exp(np.clip(head[2:], *LOG_STD)), rtol=0.08)


def test_what_matters_to_the_actor_is_found_and_held() -> None:
    who = learner()
    game, rollout = Noise(SLOTS, SIZE, pixels=False), who.new_rollout(SLOTS)
    played(who, game, rollout)
    obs = game.draw()
    rng = np.random.default_rng(1)
    found = fisher(who, np.repeat(obs, 3000, 0), samples=10**6, rng=rng)
    # A Gaussian's Fisher matrix: 1/deviation^2 for its mean, 2 for the log of its deviation.
    log_std = who.policy()._head("pi", obs)[:, 2:]
    known = np.concatenate([np.exp(-2 * log_std).mean(0), [2.0, 2.0]])
    np.testing.assert_allclose(found["pi_out.bias"], known, rtol=0.08)
    one = Scores(SPEC, who.parameters())
    before = rng.normal(size=(SLOTS, 2))
    exact = squared_scores(SPEC, who.parameters(), obs, before)
    for name, value in one.squares(obs, before).items():
        np.testing.assert_allclose(value, exact[name], rtol=1e-4, atol=1e-7, err_msg=name)
    assert all(not found[name].any() for name in found if name.startswith("q"))
    free, held = learner(), learner()
    held.load_parameters(who.parameters())
    free.load_parameters(who.parameters())
    held.protect(anchor_of(who, obs, weight=1e6))
    moved = []
    for one in (free, held):
        game = Noise(SLOTS, SIZE, 2, pixels=False)
        for _ in range(3):
            played(one, game, one.new_rollout(SLOTS))
        moved.append(
            np.abs(one.parameters()["pi_out.bias"] - who.parameters()["pi_out.bias"]).max()
        )
    assert moved[1] < 0.7 * moved[0]


def test_what_soft_actor_critic_cannot_work_with_is_refused() -> None:
    import gymnasium as gym

    box = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
    picture = gym.spaces.Box(0, 255, (84, 84, 1), np.uint8)
    config = LearnerConfig(kind="sac")
    with pytest.raises(ConfigError, match="continuous"):
        spec_from(config, box, gym.spaces.Discrete(3))
    with pytest.raises(ConfigError, match="has no net = 'nature'"):
        spec_from(config, picture, box)
    for wrong in ({"memory": "gru"}, {"normalise_obs": True}, {"shared": True}, {"noisy": True}):
        with pytest.raises(ConfigError, match=f"kind = 'sac' has no {next(iter(wrong))}"):
            LearnerConfig(kind="sac", **wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="above 0"):
        make_learner(
            SPEC,
            LearnerConfig(kind="sac", entropy=0.0, sac=SacConfig(auto_entropy=True)),
            Streams(1),
            1,
        )


def test_a_pendulum_is_swung_up(tmp_path: Any) -> None:
    holdfast.train(
        "Pendulum-v1", runs_dir=tmp_path, run="r", seed=1, updates=220, games=4, learner="sac",
        learner__steps=16, hidden=(64, 64), activation="relu", lr=1e-3, lr_schedule="constant",
        gamma=0.98, entropy=0.2, learner__sac__auto_entropy=True, max_grad_norm=0.0,
        normalise_obs=False, normalise_rewards=False, probe__every=0, probe__episodes=1,
        tensorboard=False, say=lambda text: None,
    )  # fmt: skip
    report = holdfast.evaluate("r", runs_dir=tmp_path, episodes=20, seed=99, latest=True)
    assert report.metrics["return_mean"] > -500, "about -1200 at random, -150 at best"


def test_sensors_are_read_by_the_networks_of_the_original() -> None:
    import gymnasium as gym

    config = LearnerConfig(kind="sac", net="sensors", hidden=(256, 256), sac=SacConfig(warmup=0))
    size = 36 + 10 * 43 + 7
    observations = gym.spaces.Box(-10.0, 10.0, (size,), np.float32)
    box = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    spec = spec_from(config, observations, box, sensors=(36, 10), truth=2)
    who = make_learner(spec, config, Streams(1), SLOTS)
    assert isinstance(who, SacLearner)
    counts = [sum(p.numel() for p in net.parameters()) for net in (who.actor, who.critic)]
    assert counts == [367_101, 499_195]
    rollout = Rollout.empty(2, SLOTS, (size,), np.float32, (2,), np.float32, 2)
    game = Noise(SLOTS, size, pixels=False)
    before = who.parameters()
    played(who, game, rollout)
    moved = {name for name, value in who.parameters().items() if (value != before[name]).any()}
    assert {
        "trunk.back.weight_ih",
        "q_trunk.back.weight_ih",
        "q_trunk_target.join.0.weight",
    } <= moved
    obs, policy = game.draw(), who.policy()
    np.testing.assert_allclose(policy.values(obs), who.values_of(obs), atol=1e-5)
    best = who.actor.best(torch.from_numpy(obs)).detach().numpy()
    np.testing.assert_allclose(policy.act(obs), best, atol=1e-5)
