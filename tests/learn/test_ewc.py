"""Elastic weight consolidation: the right Fisher diagonal, and old behaviour that really holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from holdfast.collect import whole
from holdfast.errors import ConfigError
from holdfast.learn.ewc import SAMPLES, anchor_of, decisions, fisher, penalty, squared_scores
from holdfast.learn.fisher import Scores
from holdfast.learn.fused import FusedLearner
from holdfast.learn.learner import Learner, make_learner
from holdfast.learn.nets import ActorCritic
from holdfast.learn.options import LearnerConfig
from holdfast.learn.ppo import TorchLearner
from holdfast.learn.spec import NetSpec, spec_for, spec_from
from holdfast.records import Rollout
from holdfast.rng import Streams
from holdfast.selfplay.duel import duel
from holdfast.store.checkpoint import Checkpoints
from holdfast.worlds.pursuit import PursuitOptions, PursuitWorld
from holdfast.worlds.pursuit.policies import Scripted

GAUSSIAN = NetSpec(6, "gaussian", action_size=2, low=(0.0, -1.0), high=(1.0, 1.0), hidden=(12, 10))
SPECS = {
    "gaussian": GAUSSIAN,
    "shared": replace(GAUSSIAN, shared=True),
    "relu": replace(GAUSSIAN, activation="relu"),
    "linear": replace(GAUSSIAN, hidden=()),
    "discrete": NetSpec(6, "discrete", nvec=(4,), hidden=(12,)),
    "several": NetSpec(6, "multi_discrete", nvec=(3, 5), hidden=(12, 7)),
}


@pytest.fixture(autouse=True)
def one_torch_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def learner_of(kind: type[Learner], spec: NetSpec, seed: int = 0, **options: Any) -> Learner:
    """A learner whose parameters are all of ordinary size."""
    options = {"threads": 1, "steps": 8, **options}
    made = kind(spec, LearnerConfig(**options), Streams(seed), 4)
    rng = np.random.default_rng(seed)
    made.load_parameters(
        {
            name: rng.normal(0, 0.5, value.shape).astype(np.float32)
            for name, value in sorted(made.parameters().items())
        }
    )
    return made


def by_autograd(spec: NetSpec, parameters: Any, rows: Any, actions: Any) -> dict[str, Any]:
    """The same by one backward pass a sample."""
    net = ActorCritic(spec)
    net.load_state_dict({k: torch.tensor(v) for k, v in parameters.items()})
    total = {k: np.zeros(v.shape) for k, v in parameters.items()}
    for row, action in zip(rows, actions, strict=True):
        net.zero_grad()
        head, _ = net(torch.tensor(row[None]))
        log_prob, _ = net.log_prob_entropy(head, torch.tensor(np.asarray(action)[None]))
        log_prob.sum().backward()
        for name, parameter in net.named_parameters():
            if parameter.grad is not None:
                total[name] += parameter.grad.numpy().astype(np.float64) ** 2
    return {k: v / len(rows) for k, v in total.items()}


def some_actions(spec: NetSpec, rng: np.random.Generator, count: int) -> np.ndarray:
    if spec.action == "gaussian":
        return rng.normal(size=(count, 2)).astype(np.float32)
    return np.stack([rng.integers(0, n, count) for n in spec.nvec], 1)


@pytest.mark.parametrize("name", SPECS)
def test_the_diagonal_is_the_mean_square_of_the_score_of_each_sample(name: str) -> None:
    spec = SPECS[name]
    learner = learner_of(FusedLearner, spec)
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(40, 6)).astype(np.float32)
    actions = some_actions(spec, rng, 40)
    ours = squared_scores(spec, learner.parameters(), rows, actions)
    theirs = by_autograd(spec, learner.parameters(), rows, actions)
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        np.testing.assert_allclose(ours[key], value, rtol=1e-5, atol=1e-5, err_msg=key)
    assert not any(ours[key].any() for key in ours if key.startswith("vf"))


@pytest.mark.parametrize("name", SPECS)
def test_gradients_of_each_sample_give_the_closed_form_of_a_plain_mlp(name: str) -> None:
    spec = SPECS[name]
    parameters = learner_of(FusedLearner, spec).parameters()
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(37, 6)).astype(np.float32)
    actions = some_actions(spec, rng, 37)
    found = Scores(spec, parameters).squares(rows, actions)
    expected = squared_scores(spec, parameters, rows, actions)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-4, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("name", ["gaussian", "several"])
def test_both_learners_have_the_same_diagonal(name: str) -> None:
    obs = np.random.default_rng(1).normal(size=(300, 6)).astype(np.float32)
    found = [
        fisher(learner_of(kind, SPECS[name], normalise_obs=True), obs)
        for kind in (FusedLearner, TorchLearner)
    ]
    for key in found[0]:
        np.testing.assert_allclose(found[0][key], found[1][key], rtol=1e-6)
        assert found[0][key].dtype == np.float32


@pytest.mark.parametrize("log_std", [0.3, 3.0])
def test_with_many_samples_the_diagonal_is_that_of_the_gaussian(log_std: float) -> None:
    """For a linear head the Fisher information is known: E[x^2] / std^2 of a weight, 2 of log_std."""
    learner = learner_of(FusedLearner, SPECS["linear"])
    wide = np.full(2, log_std, np.float32)
    learner.load_parameters({**learner.parameters(), "log_std": wide})
    obs = np.random.default_rng(1).normal(size=(200_000, 6)).astype(np.float32)
    found = fisher(learner, obs, samples=200_000)
    std = np.exp(learner.parameters()["log_std"])
    np.testing.assert_allclose(
        found["pi_out.weight"], (1 / std**2)[:, None] * np.ones(6), rtol=0.05
    )
    np.testing.assert_allclose(found["pi_out.bias"], 1 / std**2, rtol=0.02)
    np.testing.assert_allclose(found["log_std"], 2.0, rtol=0.05)


def test_squares_of_averaged_gradients_would_be_another_thing() -> None:
    learner = learner_of(FusedLearner, GAUSSIAN)
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(64, 6)).astype(np.float32)
    actions = rng.normal(size=(64, 2)).astype(np.float32)
    each = squared_scores(GAUSSIAN, learner.parameters(), rows, actions)["pi_out.bias"]
    singles = [
        squared_scores(GAUSSIAN, learner.parameters(), rows[k : k + 1], actions[k : k + 1])
        for k in range(64)
    ]
    np.testing.assert_allclose(each, np.mean([s["pi_out.bias"] for s in singles], 0), rtol=1e-9)


def collected(learner: Learner, masked: float = 0.0) -> Rollout:
    rng = np.random.default_rng(2)
    rollout = learner.new_rollout(4)
    rollout.obs[:] = rng.normal(3.0, 2.0, rollout.obs.shape)
    rollout.mask[:] = rng.random(rollout.mask.shape) >= masked
    learner.begin(rollout)
    for t in range(rollout.steps):
        learner.act(rollout, t)
    return rollout


def test_rows_of_a_rollout_are_taken_as_the_policy_saw_them_and_masked_ones_left_out() -> None:
    learner = learner_of(FusedLearner, GAUSSIAN, normalise_obs=True)
    learner.norm.load_state_dict({"mean": np.full(6, 3.0), "var": np.full(6, 4.0), "count": 9.0})
    rollout = collected(learner, masked=0.4)
    rows = decisions(learner, rollout)
    assert len(rows) == rollout.mask[:-1].sum() < rollout.mask[:-1].size
    raw = rows * 2.0 + 3.0
    np.testing.assert_allclose(decisions(learner, raw), rows, atol=1e-5)


def test_no_more_samples_are_used_than_asked_for() -> None:
    learner = learner_of(FusedLearner, GAUSSIAN)
    obs = np.zeros((5000, 6), np.float32)
    obs[:, 0] = np.arange(5000)
    few = fisher(learner, obs, samples=3, rng=np.random.default_rng(0))
    assert np.isfinite(few["pi.0.weight"]).all()
    assert SAMPLES == 1024
    again = fisher(learner, obs, samples=3, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(few["pi.0.weight"], again["pi.0.weight"])


def test_the_draws_go_on_from_a_checkpoint() -> None:
    first = learner_of(FusedLearner, GAUSSIAN)
    obs = np.random.default_rng(1).normal(size=(50, 6)).astype(np.float32)
    one = fisher(first, obs)
    place = first.streams.state_dict()
    two = fisher(first, obs)
    assert not np.array_equal(one["log_std"], two["log_std"])
    first.streams.load_state_dict(place)
    np.testing.assert_array_equal(fisher(first, obs)["log_std"], two["log_std"])


def test_online_anchors_keep_a_decayed_sum_and_plain_ones_only_the_newest() -> None:
    learner = learner_of(FusedLearner, GAUSSIAN)
    obs = np.random.default_rng(1).normal(size=(50, 6)).astype(np.float32)

    def at(seed: int) -> np.random.Generator:
        return np.random.default_rng(seed)

    alone = [fisher(learner, obs, rng=at(k)) for k in range(3)]
    for k in range(3):
        learner.protect(anchor_of(learner, obs, 5.0, decay=0.5, rng=at(k)))
    assert learner.anchor is not None
    for name, value in learner.anchor.fisher.items():
        expected = alone[2][name] + 0.5 * alone[1][name] + 0.25 * alone[0][name]
        np.testing.assert_allclose(value, expected, rtol=1e-6)
    newest = anchor_of(learner, obs, 5.0, rng=at(2))
    np.testing.assert_array_equal(newest.fisher["log_std"], alone[2]["log_std"])


def test_the_penalty_is_zero_at_the_anchor_and_grows_with_the_square() -> None:
    learner = learner_of(FusedLearner, GAUSSIAN)
    assert penalty(learner) == 0.0
    obs = np.random.default_rng(1).normal(size=(50, 6)).astype(np.float32)
    learner.protect(anchor_of(learner, obs, 3.0))
    assert penalty(learner) == 0.0
    anchor = learner.anchor
    moved = learner.parameters()
    moved["pi_out.bias"] += np.float32(0.1)
    learner.load_parameters(moved)
    once = penalty(learner)
    assert once == pytest.approx(0.5 * 3.0 * 0.01 * anchor.fisher["pi_out.bias"].sum(), rel=1e-4)
    moved["pi_out.bias"] += np.float32(0.1)
    learner.load_parameters(moved)
    assert penalty(learner) == pytest.approx(4 * once, rel=1e-4)


@pytest.mark.parametrize("kind", [FusedLearner, TorchLearner])
def test_an_anchor_survives_a_checkpoint(kind: type[Learner], tmp_path: Path) -> None:
    learner = learner_of(kind, GAUSSIAN)
    learner.protect(anchor_of(learner, collected(learner), 7.0))
    store = Checkpoints(tmp_path)
    store.save(1, {"learner": learner.state_dict()}, {}, frozenset())
    other = learner_of(kind, GAUSSIAN, seed=5)
    other.load_state_dict(store.find(1).load()["learner"])
    assert other.anchor is not None
    assert other.anchor.weight == 7.0
    for name, value in learner.anchor.fisher.items():
        np.testing.assert_array_equal(other.anchor.fisher[name], value)


@pytest.mark.parametrize("kind", [FusedLearner, TorchLearner])
def test_observations_from_sensors_have_a_fisher_diagonal_too(kind: type[Learner]) -> None:
    """The original failed at the first advance of every run with this observation."""
    world = PursuitWorld(games=4, observation="sensors", n_obstacles=2, fixed_speed=True)
    spec = spec_for(world.single_observation_space, world.single_action_space, (16,))
    learner = learner_of(kind, spec)
    obs, _ = world.reset(seed=1)
    found = fisher(learner, obs)
    assert found["pi.0.weight"].shape == (16, 473)
    assert found["pi.0.weight"].any()


@pytest.mark.parametrize("encoder", ["bimdn", "lstm", "mlp"])
def test_the_network_for_sensors_has_a_fisher_diagonal_and_is_held_by_it(encoder: Any) -> None:
    options = PursuitOptions(games=4, observation="sensors", lidar_rays=6, history_length=3)
    world = PursuitWorld(options)
    config = LearnerConfig(
        net="sensors", encoder=encoder, hidden=(8,), threads=1, steps=4, minibatch=32, lr=1e-3,
        max_grad_norm=0.0,
    )  # fmt: skip
    spaces = world.single_observation_space, world.single_action_space
    spec = spec_from(config, *spaces, 1, world.sensors, world.truth_size)
    learner = make_learner(spec, config, Streams(0), 8)
    obs, _ = world.reset(seed=1)
    found = fisher(learner, obs, rng=np.random.default_rng(3))
    assert found.keys() == learner.parameters().keys()
    rng = np.random.default_rng(3)
    heads = Scores(spec, learner.parameters()).heads(obs)
    actions = (heads + rng.standard_normal(heads.shape)).astype(np.float32)
    for name, value in by_autograd(spec, learner.parameters(), obs, actions).items():
        np.testing.assert_allclose(found[name], value, rtol=1e-3, atol=1e-6, err_msg=name)
    silent = [n for n in found if n.startswith(("vf", "trunk.mixture"))]
    assert all(not found[name].any() for name in silent) and found["trunk.latent.weight"].any()
    strong = found["trunk.latent.weight"] > np.quantile(found["trunk.latent.weight"], 0.9)
    moved = []
    for weight in (0.0, 1e9):
        learner, world = make_learner(spec, config, Streams(0), 8), PursuitWorld(options)
        world.reset(seed=1)
        before = learner.parameters()["trunk.latent.weight"]
        learner.protect(anchor_of(learner, obs, weight))
        collector = whole(world, learner)
        for _ in range(6):
            collector.collect()
            learner.update(collector.seats[0].rollout)
        change = np.abs(learner.parameters()["trunk.latent.weight"] - before)
        moved.append(change[strong].max())
    assert penalty(learner) > 0
    assert moved[1] < 0.2 * moved[0]


def test_networks_with_memory_are_refused() -> None:
    config = LearnerConfig(memory="gru", memory_size=8, hidden=(8,), threads=1)
    spec = replace(GAUSSIAN, memory="gru", memory_size=8, hidden=(8,))
    with pytest.raises(ConfigError, match="EWC covers networks that answer one observation"):
        fisher(make_learner(spec, config, Streams(0), 2), np.zeros((3, 6), np.float32))


def test_bad_requests_are_refused() -> None:
    learner = learner_of(FusedLearner, GAUSSIAN)
    with pytest.raises(ConfigError, match="there are none"):
        fisher(learner, np.zeros((0, 6), np.float32))
    with pytest.raises(ConfigError, match="5 numbers; the policy reads 6"):
        fisher(learner, np.zeros((3, 5), np.float32))
    for weight, decay in ((-1.0, 0.0), (float("nan"), 0.0), (1.0, 1.5)):
        with pytest.raises(ConfigError, match="EWC got"):
            anchor_of(learner, np.zeros((3, 6), np.float32), weight, decay=decay)


NEAR = PursuitOptions(
    games=64,
    arena_width=8.0,
    arena_height=8.0,
    max_steps=80,
    min_init_distance=1.0,
    max_init_distance=2.0,
    distance_scale=20.0,
    capture_bonus=5.0,
    timeout_penalty=0.0,
)
"""The old task: catch an evader that stands near."""
FAR = replace(
    NEAR, min_init_distance=4.0, max_init_distance=7.0, distance_scale=-20.0, capture_bonus=-5.0
)
"""The new task: keep away from one that stands far off."""
STILL = Scripted("static", "evader")


def train(learner: Learner, options: PursuitOptions, updates: int, seed: int) -> Rollout:
    """Train the pursuer and return its last rollout."""
    world = PursuitWorld(options)
    obs, _ = world.reset(seed=seed)
    rollout = learner.new_rollout(world.games)
    actions = np.zeros((world.num_envs, 2), np.float32)
    for _ in range(updates):
        learner.begin(rollout)
        for t in range(rollout.steps):
            rollout.obs[t] = obs[0::2]
            actions[0::2] = learner.act(rollout, t)
            actions[1::2] = STILL.act(world)
            obs, rewards, terminations, truncations, info = world.step(actions)
            rollout.rewards[t] = rewards[0::2]
            rollout.terminations[t] = terminations[0::2]
            rollout.truncations[t] = truncations[0::2]
            cut = np.flatnonzero(truncations[0::2])
            if len(cut):
                rollout.final_values[t, cut] = learner.values_of(info["final_obs"][0::2][cut])
        rollout.obs[-1] = obs[0::2]
        learner.update(rollout)
    return rollout


def test_a_protected_learner_learns_the_new_task_and_still_does_the_old_one() -> None:
    world = PursuitWorld(NEAR)
    spec = spec_for(world.single_observation_space, world.single_action_space, (32, 32))
    config = LearnerConfig(
        steps=64, epochs=4, minibatch=512, lr=3e-3, entropy=0.0, log_std=-0.5, gamma=0.98, threads=1
    )
    caught, kept_away = {}, {}
    for weight in (0.0, 10.0):
        learner = FusedLearner(spec, config, Streams(2), 64)
        rollout = train(learner, NEAR, 30, 2)
        assert duel(learner.policy(), STILL, NEAR, 300, 7).rate.low > 0.9
        if weight:
            learner.protect(anchor_of(learner, rollout, weight))
        last = train(learner, FAR, 60, 12)
        caught[weight] = duel(learner.policy(), STILL, NEAR, 300, 7).rate
        kept_away[weight] = float(last.rewards.mean())
    assert caught[0.0].high < 0.2
    assert caught[10.0].low > 0.8
    # At the beginning of the new task the policy runs to the evader: about -0.09 a step.
    assert kept_away[10.0] > -0.03
