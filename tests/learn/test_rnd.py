"""Random network distillation: gradients, novelty of old and new states, scale, resume, and a sparse chain solved."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from holdfast.config import resolve
from holdfast.errors import ConfigError, StorageError
from holdfast.learn.learner import make_learner
from holdfast.learn.options import LearnerConfig
from holdfast.learn.rnd import (
    FlatNet,
    Novelty,
    NoveltyConfig,
    PixelNet,
    first_parameters,
    halved,
    halved_shape,
)
from holdfast.learn.spec import NetSpec
from holdfast.records import Rollout
from holdfast.rng import Streams
from holdfast.team import make_team

SMALL = NoveltyConfig(weight=1.0, hidden=(32,), features=16, minibatch=64)


def rollout_of(obs: Any) -> Rollout:
    """Return a rollout whose first T rows are `obs [T, N, ...]`."""
    steps, slots = obs.shape[:2]
    rollout = Rollout.empty(steps, slots, obs.shape[2:], obs.dtype, (), np.int32, 1)
    rollout.obs[:-1] = obs
    return rollout


def around(place: float, seed: int, steps: int = 32, slots: int = 8) -> Rollout:
    noise = np.random.default_rng(seed).normal(size=(steps, slots, 6))
    return rollout_of((place + 0.1 * noise).astype(np.float32))


def mixed(seed: int) -> Rollout:
    """Return steps all over the place, so that the statistics of the observations hold everywhere."""
    rng = np.random.default_rng(seed)
    return rollout_of(rng.normal(scale=3.0, size=(32, 8, 6)).astype(np.float32))


@pytest.mark.parametrize("pixels", [False, True])
def test_the_gradient_is_that_of_finite_differences(pixels: bool) -> None:
    rng = np.random.default_rng(0)
    config = NoveltyConfig(hidden=(7,), features=3)
    net: Any = PixelNet((1, 20, 20), config) if pixels else FlatNet(5, config)
    theta = first_parameters(net.shapes, rng, 0 if pixels else 1)
    rows = rng.normal(size=(4, 400 if pixels else 5)).astype(np.float32)
    goal = rng.normal(size=(4, 3)).astype(np.float32)
    grad = np.zeros_like(theta)
    loss = net.gradient(theta, rows, goal, grad)
    assert loss == pytest.approx(np.mean((net.features(theta, rows) - goal) ** 2), rel=1e-5)
    big = np.argsort(-np.abs(grad))[:12]
    for k in big:
        up, down = theta.copy(), theta.copy()
        up[k] += 1e-2
        down[k] -= 1e-2
        slope = (net.gradient(up, rows, goal, np.zeros_like(theta)) - net.gradient(down, rows, goal, np.zeros_like(theta))) / 2e-2  # fmt: skip
        assert grad[k] == pytest.approx(slope, rel=0.05, abs=1e-3)


def test_large_pictures_are_halved() -> None:
    picture = np.arange(2 * 42 * 41, dtype=np.float32).reshape(1, 2, 42, 41)
    small = halved(picture)
    assert small.shape[1:] == halved_shape((2, 42, 41)) == (2, 21, 20)
    assert small[0, 1, 3, 5] == picture[0, 1, 6:8, 10:12].sum()
    assert halved(picture[:, :, :39]).shape == (1, 2, 39, 41)


def test_the_bonus_falls_where_it_has_been_and_stays_high_where_it_has_not() -> None:
    novelty = Novelty(6, SMALL, Streams(1))
    novelty.learn(mixed(0))
    first = novelty.errors(around(2.0, 1).obs[:-1].reshape(-1, 6)).mean()
    far = novelty.errors(around(-2.0, 2).obs[:-1].reshape(-1, 6)).mean()
    for k in range(60):
        novelty.learn(around(2.0, 10 + k))
    assert novelty.errors(around(2.0, 90).obs[:-1].reshape(-1, 6)).mean() < 0.15 * first
    assert novelty.errors(around(-2.0, 91).obs[:-1].reshape(-1, 6)).mean() > 0.5 * far


def test_pictures_that_were_seen_become_known_and_others_do_not() -> None:
    rng = np.random.default_rng(3)
    seen, other = (rng.integers(0, 255, (1, 1, 24, 24), np.uint8) for _ in range(2))
    config = NoveltyConfig(weight=1.0, hidden=(32,), features=16, samples=64, minibatch=32)
    novelty = Novelty((24, 24), config, Streams(1))
    both = np.concatenate([np.repeat(seen, 4, 1), np.repeat(other, 4, 1)], 1).repeat(4, 0)
    novelty.learn(rollout_of(both))
    before = novelty.errors(np.concatenate([seen[0], other[0]]))
    for _ in range(40):
        novelty.learn(rollout_of(np.tile(seen, (4, 8, 1, 1))))
    after = novelty.errors(np.concatenate([seen[0], other[0]]))
    assert after[0] < 0.1 * before[0] and after[1] > 0.3 * before[1]
    assert novelty.bonus(rollout_of(both)).shape == (4, 8)


def test_errors_are_divided_by_the_deviation_of_their_own_return() -> None:
    novelty = Novelty(6, SMALL, Streams(1))
    running, returns = np.zeros(8), []
    for k in range(5):
        rollout = mixed(k)
        rollout.terminations[3] = True  # what is new does not end with an episode
        rollout.rewards[:] = 7.0
        bonus = novelty.bonus(rollout)
        errors = novelty.errors(rollout.obs[:-1].reshape(-1, 6)).reshape(32, 8)
        for row in errors:
            running = SMALL.gamma * running + row
            returns.append(running)
        np.testing.assert_allclose(novelty.scale, np.std(returns), rtol=1e-6)
        np.testing.assert_allclose(bonus, errors / np.std(returns), rtol=1e-5)
        assert (rollout.rewards == 7.0).all()
        novelty.learn(rollout)


def test_masked_steps_get_no_bonus_and_teach_nothing() -> None:
    novelty = Novelty(6, SMALL, Streams(1))
    rollout = mixed(0)
    rollout.mask[:, :4] = False
    bonus = novelty.bonus(rollout)
    assert (bonus[:, :4] == 0).all() and (bonus[:, 4:] > 0).all()
    assert novelty.learn(rollout)["novelty_samples"] == 32 * 4
    rollout.mask[:] = False
    theta = novelty.theta.copy()
    assert (novelty.bonus(rollout) == 0).all()
    assert novelty.learn(rollout)["novelty_samples"] == 0
    np.testing.assert_array_equal(theta, novelty.theta)


def test_the_predictor_learns_once_a_rollout_from_a_bounded_sample() -> None:
    config = NoveltyConfig(weight=1.0, samples=100, minibatch=40)
    novelty = Novelty(6, config, Streams(1))
    metrics = novelty.learn(mixed(0))
    assert metrics["novelty_samples"] == 100 and novelty._steps == 3


def test_the_weight_goes_down_in_a_straight_line() -> None:
    config = NoveltyConfig(weight=1.0, last_weight=0.2, weight_rollouts=4, hidden=(8,), features=4)
    novelty = Novelty(6, config, Streams(1))
    seen = [novelty.weight]
    for k in range(6):
        novelty.learn(mixed(k))
        seen.append(novelty.weight)
    np.testing.assert_allclose(seen, [1.0, 0.8, 0.6, 0.4, 0.2, 0.2, 0.2])
    assert Novelty(6, NoveltyConfig(weight=0.3), Streams(1)).weight == 0.3


@pytest.mark.parametrize("obs_size", [6, (20, 20)])
def test_it_goes_on_from_its_state_bit_for_bit(obs_size: Any) -> None:
    rng = np.random.default_rng(0)
    shape = (obs_size,) if isinstance(obs_size, int) else obs_size
    rollouts = [
        rollout_of(rng.integers(0, 9, (8, 4, *shape)).astype(np.uint8 if len(shape) > 1 else np.float32))
        for _ in range(6)
    ]  # fmt: skip
    streams = Streams(5)
    whole = Novelty(obs_size, SMALL, streams)
    for rollout in rollouts[:3]:
        whole.bonus(rollout)
        whole.learn(rollout)
    other_streams = Streams(5)
    other = Novelty(obs_size, SMALL, other_streams)
    other.load_state_dict(whole.state_dict())
    other_streams.load_state_dict(streams.state_dict())
    for rollout in rollouts[3:]:
        np.testing.assert_array_equal(whole.bonus(rollout), other.bonus(rollout))
        assert whole.learn(rollout) == other.learn(rollout)
    with pytest.raises(StorageError, match="hidden and features"):
        Novelty(7, SMALL, Streams(1)).load_state_dict(Novelty(6, SMALL, Streams(1)).state_dict())


class Chain:
    """A corridor of rooms: one reward at its far end, which next to no random episode reaches.

    Which action goes on differs from room to room, so that always doing the same leads nowhere.
    """

    length, horizon = 40, 60
    forward = np.random.default_rng(7).integers(0, 2, length)

    def __init__(self, slots: int) -> None:
        self.place = np.zeros(slots, np.int64)
        self.age = np.zeros(slots, np.int64)
        self.last = self.obs()

    def obs(self) -> Any:
        return np.eye(self.length, dtype=np.float32)[self.place]

    def step(self, actions: Any) -> tuple[Any, Any, Any]:
        moved = np.where(actions == self.forward[self.place], 1, -1)
        self.place = np.clip(self.place + moved, 0, self.length - 1)
        self.age += 1
        goal = self.place == self.length - 1
        cut = ~goal & (self.age >= self.horizon)
        self.last = self.obs()
        self.place[goal | cut] = 0
        self.age[goal | cut] = 0
        return goal.astype(np.float64), goal, cut


def train_on_chain(weight: float, updates: int, seed: int) -> float:
    """Return the share of goals among the episodes of the last ten updates."""
    streams, slots = Streams(seed), 16
    spec = NetSpec(Chain.length, "discrete", nvec=(2,), hidden=(32,))
    config = LearnerConfig(
        steps=64, epochs=4, minibatch=256, hidden=(32,), lr=3e-3, entropy=0.01, threads=1
    )
    learner = make_learner(spec, config, streams, slots)
    novelty = Novelty(
        Chain.length, NoveltyConfig(weight=weight, hidden=(64,), features=32), streams
    )
    world, rollout = Chain(slots), learner.new_rollout(slots)
    goals = ends = 0
    rollout.obs[-1] = world.obs()
    for update in range(updates):
        rollout.obs[0] = rollout.obs[-1]
        learner.begin(rollout)
        for t in range(rollout.steps):
            actions = learner.act(rollout, t)
            rewards, over, cut = world.step(actions)
            rollout.rewards[t], rollout.terminations[t], rollout.truncations[t] = rewards, over, cut
            rollout.final_values[t] = learner.values_of(world.last) * cut
            rollout.obs[t + 1] = world.obs()
            if update >= updates - 10:
                goals, ends = goals + int(over.sum()), ends + int((over | cut).sum())
        if weight > 0:
            rollout.rewards += novelty.bonus(rollout)
            novelty.learn(rollout)
        learner.update(rollout)
    return goals / ends


@pytest.mark.parametrize("seed", [1, 2])
def test_a_sparse_chain_is_solved_with_it(seed: int) -> None:
    """After 150 updates two thirds of the seeds have solved it, after 300 nearly all."""
    assert train_on_chain(0.5, 450, seed) > 0.9


def test_a_sparse_chain_is_not_solved_without_it() -> None:
    assert train_on_chain(0.0, 450, seed=1) == 0.0


@pytest.mark.parametrize("shape", [(48, 40, 3), (4, 6)])
def test_pictures_in_colour_and_small_tables_of_numbers_have_a_novelty(shape: Any) -> None:
    world: Any = type(
        "World",
        (),
        {
            "game_roles": ("agent",),
            "single_observation_space": gym.spaces.Box(-1.0, 1.0, shape, np.float32),
            "single_action_space": gym.spaces.Discrete(2),
            "frame_stack": 1,
            "sensors": (),
            "truth_size": 0,
            "num_envs": 4,
            "games": 4,
        },
    )
    net = "small" if len(shape) == 3 else "mlp"
    config = resolve("CartPole-v1", [("novelty.weight", 1.0), ("net", net), ("steps", 3)])
    team = make_team(config, world, Streams(1))
    novelty, rollout = team.novelties[""], team.learners[""].new_rollout(4)
    rollout.obs[:] = np.random.default_rng(0).normal(size=rollout.obs.shape)
    assert novelty.bonus(rollout).min() > 0
    if len(shape) == 3:
        picture = rollout.obs[0, 0].reshape(shape)
        rows = novelty._flatten(rollout.obs[0]).reshape(4, 3, 24, 20)
        assert rows[0, 2, 5, 7] == pytest.approx(picture[10:12, 14:16, 2].sum(), rel=1e-5)


def test_a_last_weight_that_is_never_reached_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--novelty\.weight-rollouts"):
        NoveltyConfig(last_weight=0.5)
