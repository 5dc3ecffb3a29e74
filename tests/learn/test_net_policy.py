"""A frozen policy that remembers plays as its learner does, through resets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from learn_games import Noise, collect, config, spec

from holdfast.learn.learner import make_learner
from holdfast.learn.net_policy import NetPolicy
from holdfast.learn.policy import Policy
from holdfast.learn.restore import policy_from_checkpoint
from holdfast.learn.spec import NetSpec
from holdfast.rng import Streams
from holdfast.store.checkpoint import Checkpoints

SLOTS = 5
EVERY = {
    "pictures": spec(stack=4),
    "pictures, GRU": spec(stack=2, memory="gru", memory_size=8),
    "pictures, transformer": spec(memory="transformer", memory_size=8, memory_window=4),
    "numbers, LSTM": NetSpec(5, "discrete", (3,), hidden=(8,), memory="lstm", memory_size=8),
}


def test_a_frozen_policy_reads_pictures_whose_channels_come_first_as_its_world_does() -> None:
    one = NetSpec(40 * 36 * 3, "discrete", (3,), trunk="small", picture=(40, 36, 3))
    policy = make_learner(one, config(), Streams(1), SLOTS).policy()
    last = np.random.default_rng(0).integers(0, 256, (SLOTS, 40, 36, 3)).astype(np.uint8)
    wanted = policy.values(last)
    assert len(set(wanted.tolist())) > 1
    np.testing.assert_array_equal(policy.values(last.transpose(0, 3, 1, 2)), wanted)
    np.testing.assert_array_equal(policy.values(last.reshape(SLOTS, -1)), wanted)


@pytest.mark.parametrize("name", EVERY)
def test_a_frozen_policy_values_a_game_as_its_learner_does(name: str, tmp_path: Path) -> None:
    one = EVERY[name]
    who = make_learner(one, config(normalise_obs=True), Streams(1), SLOTS)
    game, rollout = Noise(SLOTS, one.obs_size, pixels=bool(one.picture)), who.new_rollout(SLOTS)
    collect(who, game, rollout)
    who.update(rollout)
    saved = Checkpoints(tmp_path).save(1, {"learner": who.state_dict()}, {}, frozenset())
    policies = [who.policy(), policy_from_checkpoint(saved)]
    assert all(isinstance(policy, NetPolicy) for policy in policies)
    who.restart()
    raw = []

    class Watched(Noise):
        @property
        def obs(self) -> np.ndarray:
            return self._obs

        @obs.setter
        def obs(self, new: np.ndarray) -> None:
            self._obs = new
            raw.append(new.copy())

    collect(who, Watched(SLOTS, one.obs_size, 7, bool(one.picture)), rollout)
    begun = np.ones(SLOTS, bool)
    for t in range(rollout.steps):
        for policy in policies:
            np.testing.assert_allclose(policy.values(raw[t], begun), rollout.values[t], atol=1e-5)
            assert policy.act(raw[t], begun=begun).shape == (SLOTS,)
        begun = rollout.terminations[t] | rollout.truncations[t]
    assert rollout.begun.sum() > SLOTS * (1 + rollout.history)


def test_a_policy_begins_anew_when_told_and_with_other_rows() -> None:
    one = spec(memory="gru", memory_size=8)
    policy = make_learner(one, config(), Streams(1), SLOTS).policy()
    rng = np.random.default_rng(0)
    first, second = (rng.integers(0, 256, (SLOTS, one.obs_size), np.uint8) for _ in range(2))
    fresh = policy.values(second)
    policy.act(first)
    assert (policy.values(second) != fresh).all()
    np.testing.assert_allclose(policy.values(second, np.ones(SLOTS, bool)), fresh, atol=1e-6)
    np.testing.assert_allclose(policy.values(second[:2]), fresh[:2], atol=1e-6)
    policy.begin()
    np.testing.assert_allclose(policy.values(second), fresh, atol=1e-6)


def test_sampling_follows_the_generator() -> None:
    policy = make_learner(spec(), config(), Streams(1), SLOTS).policy()
    obs = np.random.default_rng(0).integers(0, 256, (200, 36 * 36), np.uint8)
    drawn = []
    for seed in (1, 1, 2):
        policy.begin()
        drawn.append(policy.act(obs, np.random.default_rng(seed)))
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert (drawn[0] != drawn[2]).any() and set(drawn[0]) == {0, 1, 2}


def test_an_mlp_plays_without_torch_and_ignores_what_it_needs_not() -> None:
    one = NetSpec(5, "discrete", (3,), hidden=(8,))
    policy = make_learner(one, config(), Streams(1), SLOTS).policy()
    assert type(policy) is Policy
    obs = np.ones((3, 5), np.float32)
    policy.begin()
    np.testing.assert_array_equal(policy.act(obs), policy.act(obs, begun=np.ones(3, bool)))
