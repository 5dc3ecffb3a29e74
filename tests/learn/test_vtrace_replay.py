"""V-trace with a memory: sequences of older policies enter the same loss, corrected and weighted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from learn_games import Noise, collect, config, spec

from holdfast.errors import ConfigError
from holdfast.learn.learner import make_learner
from holdfast.learn.options import LearnerConfig, ReplayConfig
from holdfast.learn.vtrace import Again, VTraceLearner
from holdfast.records import Rollout
from holdfast.rng import Streams

SLOTS = 6
REPLAY = ReplayConfig(enabled=True, batch=4, gradients=2, capacity=96, half=False)


def learner(replay: ReplayConfig = REPLAY, **settings: Any) -> VTraceLearner:
    streams = Streams(3)
    made = make_learner(spec(), config(kind="vtrace", replay=replay, **settings), streams, SLOTS)
    assert isinstance(made, VTraceLearner)
    return made


def played(who: VTraceLearner, game: Noise, rollout: Rollout) -> dict[str, float]:
    collect(who, game, rollout)
    return who.update(rollout)


def test_a_sequence_from_the_memory_has_the_loss_that_it_had_in_its_rollout() -> None:
    who = learner(minibatch=10_000)
    assert who.replay is not None
    rollout = who.new_rollout(SLOTS)
    collect(who, Noise(SLOTS, 36 * 36), rollout)
    who._targets(rollout)
    who.replay.push(rollout)
    sample = who.replay.sample(4)
    errors = np.zeros((8, 4), np.float32)
    for b, index in enumerate(sample.indices):
        weights = np.array([1.0, 2.0, 0.5, 1.0], np.float32)
        here, own = who._loss(rollout, np.array([index]), 0, 8)
        there, found = who._loss(
            sample.rollout, np.array([b]), 0, 8, Again(weights, errors, stale=False)
        )
        assert there.item() == pytest.approx(here.item() * weights[b], rel=1e-5)
        assert found["approx_kl"] == pytest.approx(0.0, abs=1e-6)
        assert found["entropy_mean"] == pytest.approx(own["entropy_mean"], rel=1e-5), "not weighted"
        values = rollout.values[:-1, index]
        np.testing.assert_allclose(errors[:, b], abs(rollout.returns[:, index] - values), atol=1e-4)


def test_updates_draw_older_rollouts_and_correct_them() -> None:
    who, game = learner(lr=0.01), Noise(SLOTS, 36 * 36)
    rollout = who.new_rollout(SLOTS)
    first = played(who, game, rollout)
    assert "replay_policy_loss" not in first, "nothing was remembered yet"
    for _ in range(3):
        metrics = played(who, game, rollout)
    assert metrics["replay_samples"] == 6 and metrics["replay_age_mean"] >= 0
    assert metrics["replay_approx_kl"] > 1e-6, "the policy has moved since"
    assert metrics["replay_fill_rate"] == 1.0, "96 steps are two rollouts of 6 x 8"
    assert metrics["replay_size"] == metrics["replay_capacity"] == 96
    spread = [metrics[f"replay_priority_p{percent}"] for percent in (50, 90, 99)]
    assert spread == sorted(spread) and spread[0] > 0
    assert who.seconds["replay_draw"] > 0 and who.seconds["replay_gather"] > 0
    assert who.state_dict()["optimiser"]["step"] == 4 * 3 + 6


def test_rewards_are_kept_as_the_world_gave_them() -> None:
    who, game = learner(normalise_rewards=True), Noise(SLOTS, 36 * 36)
    assert who.replay is not None and who.reward_norm is not None
    rollout = who.new_rollout(SLOTS)
    collect(who, game, rollout)
    who.reward_norm.moments[:] = 1e9, 0.0, 1e9
    rollout.rewards[1, :3] = 1000.0  # far beyond what normalised rewards are clipped to
    given = rollout.rewards.copy()
    who.update(rollout)
    sample = who.replay.sample(5)
    np.testing.assert_allclose(sample.rollout.rewards, given[:, sample.indices], rtol=1e-5)


def test_rewards_from_the_memory_are_divided_by_the_deviation_of_now() -> None:
    found = []
    for scale in (1.0, 100.0):
        who, game = learner(normalise_rewards=scale > 1.0), Noise(SLOTS, 36 * 36)
        if who.reward_norm is not None:
            who.reward_norm.moments[:] = 1e12, 0.0, 1e12 * scale**2
        rollout = who.new_rollout(SLOTS)
        for _ in range(2):
            collect(who, game, rollout)
            rollout.rewards *= scale
            metrics = who.update(rollout)
        found.append(metrics["replay_value_loss"])
    assert found[1] == pytest.approx(found[0], rel=1e-4)


def test_single_steps_with_old_targets_are_learned_as_they_were_pushed() -> None:
    who, game = learner(ReplayConfig(enabled=True, batch=8, mode="transition")), Noise(6, 36 * 36)
    rollout = who.new_rollout(SLOTS)
    played(who, game, rollout)
    metrics = played(who, game, rollout)
    assert metrics["replay_clip_fraction"] == 0.0 and metrics["replay_grad_norm"] > 0.0


def test_a_memory_goes_on_exactly_from_its_state() -> None:
    one, two = learner(), learner()
    game, twin = Noise(SLOTS, 36 * 36), Noise(SLOTS, 36 * 36)
    a, b = one.new_rollout(SLOTS), two.new_rollout(SLOTS)
    for _ in range(3):
        played(one, game, a)
        twin.step(np.zeros(SLOTS))
    assert one.replay is not None and two.replay is not None
    two.load_state_dict(one.state_dict())
    two.replay.load_state_dict(one.replay.state_dict())
    two.streams.load_state_dict(one.streams.state_dict())
    twin.rng.bit_generator.state, twin.obs = game.rng.bit_generator.state, game.obs.copy()
    for _ in range(2):
        assert played(one, game, a) == played(two, twin, b)
    for name, value in one.parameters().items():
        assert np.array_equal(value, two.parameters()[name]), name


@pytest.mark.parametrize("wrong", [{"kind": "torch"}, {"kind": "vtrace", "normalise_obs": True}])
def test_what_replay_cannot_work_with_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"replay\.enabled = true with kind"):
        LearnerConfig(replay=REPLAY, **wrong)


@pytest.mark.parametrize(
    ("settings", "memory", "words"),
    [
        ({"length": 7}, "none", "does not divide the 16 steps"),
        ({"length": 4}, "gru", "must stay whole"),
        ({"mode": "transition"}, "gru", "must stay whole"),
    ],
)
def test_rollouts_are_cut_only_where_a_sequence_can_begin(
    settings: dict[str, Any], memory: Any, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        LearnerConfig(
            kind="vtrace", steps=16, memory=memory, replay=ReplayConfig(enabled=True, **settings)
        )


def test_a_memory_smaller_than_one_rollout_is_refused_before_anything_is_played() -> None:
    with pytest.raises(ConfigError, match=r"replay\.capacity = 8 holds less than one rollout"):
        learner(ReplayConfig(enabled=True, capacity=8))
