"""V-trace: its targets against a plain reference, and the learner that uses them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from learn_games import Noise, collect, config, spec

from holdfast.errors import ConfigError
from holdfast.learn.learner import make_learner
from holdfast.learn.options import LearnerConfig
from holdfast.learn.returns import gae
from holdfast.learn.spec import NetSpec, spec_from
from holdfast.learn.vtrace import VTraceLearner
from holdfast.learn.vtrace_kernels import vtrace
from holdfast.rng import Streams

SLOTS = 6
FLAT = NetSpec(5, "discrete", nvec=(3,), hidden=(8,))


def case(seed: int, steps: int = 40, slots: int = 5) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    ends = rng.random((steps, slots))
    return {
        "log_weights": rng.normal(0, 0.7, (steps, slots)).astype(np.float32),
        "mask": rng.random((steps + 1, slots)) > 0.1,
        "rewards": rng.normal(size=(steps, slots)),
        "values": rng.normal(size=(steps + 1, slots)).astype(np.float32),
        "terminations": ends < 0.08,
        "truncations": ends > 0.92,
        "final_values": rng.normal(size=(steps, slots)).astype(np.float32),
    }


def kernel(
    given: dict[str, np.ndarray], gamma: float, lam: float, rho_bar: float, c_bar: float
) -> tuple[np.ndarray, np.ndarray, float]:
    advantages, targets = (np.empty(given["rewards"].shape, np.float32) for _ in range(2))
    cut = vtrace(*given.values(), gamma, lam, rho_bar, c_bar, advantages, targets)
    return advantages, targets, cut


def reference(
    given: dict[str, np.ndarray], gamma: float, lam: float, rho_bar: float, c_bar: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """The sum of definition (1) of the paper, in float64, one step and one product at a time."""
    steps, slots = given["rewards"].shape
    values = given["values"].astype(np.float64)
    mask = given["mask"][:-1]
    weights = np.where(mask, np.exp(given["log_weights"].astype(np.float64)), 1.0)
    rho, c = np.minimum(rho_bar, weights), lam * np.minimum(c_bar, weights)
    handed_over = mask & ~given["mask"][1:]
    ended = given["terminations"] | given["truncations"] | handed_over
    follow = np.where(
        given["terminations"],
        0.0,
        np.where(given["truncations"], given["final_values"], values[1:]),
    )
    targets = np.zeros((steps + 1, slots))
    targets[-1] = values[-1]
    for n in range(slots):
        for s in range(steps):
            total, product = values[s, n], 1.0
            for t in range(s, steps):
                delta = rho[t, n] * (given["rewards"][t, n] + gamma * follow[t, n] - values[t, n])
                total += gamma ** (t - s) * product * delta
                product *= c[t, n]
                if ended[t, n]:
                    break
            targets[s, n] = total
    after = np.where(ended, follow, targets[1:])
    advantages = rho * (given["rewards"] + gamma * after - values[:-1])
    return advantages, targets[:-1], float((mask & (weights > 1.01 * rho_bar)).sum())


@pytest.mark.parametrize(
    "settings",
    [(0.97, 1.0, 1.0, 1.0), (0.9, 0.8, 1.0, 0.5), (0.99, 1.0, 1e9, 1e9), (0.95, 0.95, 2.0, 1.5)],
)
def test_the_kernel_equals_the_definition(settings: tuple[float, ...]) -> None:
    given = case(1)
    ours, theirs = kernel(given, *settings), reference(given, *settings)
    scale = max(1.0, abs(theirs[1]).max())
    np.testing.assert_allclose(ours[0] / scale, theirs[0] / scale, atol=2e-6)
    np.testing.assert_allclose(ours[1] / scale, theirs[1] / scale, atol=2e-6)
    assert ours[2] == theirs[2]


def column(*numbers: float, dtype: type = np.float32) -> np.ndarray:
    return np.array(numbers, dtype).reshape(-1, 1)


def written(weight: float) -> dict[str, np.ndarray]:
    none = column(0, 0, 0, dtype=np.bool_)
    return {
        "log_weights": np.full((3, 1), np.log(weight), np.float32),
        "mask": column(1, 1, 1, 1, dtype=np.bool_),
        "rewards": column(1, 0, 2, dtype=np.float64),
        "values": column(0.2, 0.3, 0.4, 0.7),
        "terminations": none,
        "truncations": none,
        "final_values": column(0, 0, 0),
    }


@pytest.mark.parametrize(
    ("weight", "targets", "advantages"),
    [
        (1.0, [3.1303, 2.3670, 2.6300], [2.9303, 2.0670, 2.2300]),
        (3.0, [3.1303, 2.3670, 2.6300], [2.9303, 2.0670, 2.2300]),
        (0.5, [0.9742875, 0.83175, 1.515], [0.7742875, 0.53175, 1.115]),
    ],
)
def test_numbers_written_out(weight: float, targets: list[float], advantages: list[float]) -> None:
    found = kernel(written(weight), 0.9, 1.0, 1.0, 1.0)
    np.testing.assert_allclose(found[1][:, 0], targets, atol=1e-6)
    np.testing.assert_allclose(found[0][:, 0], advantages, atol=1e-6)


def test_on_policy_it_is_the_return_of_n_steps() -> None:
    """With all weights 1: targets and advantages of lambda 1, truncation and termination included."""
    given = case(2)
    given["log_weights"][:] = 0.0
    advantages, targets, cut = kernel(given, 0.97, 1.0, 1.0, 1.0)
    expected, returns = np.empty_like(advantages), np.empty_like(advantages)
    names = ("rewards", "values", "mask", "terminations", "truncations", "final_values")
    gae(*(given[name] for name in names), 0.97, 1.0, expected, returns)
    np.testing.assert_allclose(targets, returns, atol=1e-5)
    np.testing.assert_allclose(advantages, expected, atol=1e-5)
    assert cut == 0.0


def test_rounding_above_the_bound_is_no_cut() -> None:
    """Half precision moves a log-probability of 4 to 8 by up to 0.002."""
    assert kernel(written(1.002), 0.9, 1.0, 1.0, 1.0)[2] == 0.0
    assert kernel(written(1.1), 0.9, 1.0, 1.0, 1.0)[2] == 3.0


def learner(one: NetSpec = FLAT, **settings: Any) -> VTraceLearner:
    made = make_learner(one, config(kind="vtrace", **settings), Streams(3), SLOTS)
    assert isinstance(made, VTraceLearner)
    return made


def test_an_update_on_policy_has_the_gradient_of_an_actor_critic() -> None:
    """One step of plain autograd with lambda-1 returns, when the rollout is used by the policy that made it."""
    import torch

    who = learner(minibatch=10_000, lam=1.0, lr=1e-3)
    rollout = who.new_rollout(SLOTS)
    collect(who, Noise(SLOTS, 5, pixels=False), rollout)
    twin = learner(minibatch=10_000, lam=1.0, lr=1e-3)
    metrics = who.update(rollout)
    assert metrics["minibatches"] == 1 and metrics["clip_fraction"] < 0.6
    advantages, returns = np.empty_like(rollout.advantages), np.empty_like(rollout.returns)
    gae(
        rollout.rewards, rollout.values, rollout.mask, rollout.terminations, rollout.truncations,
        rollout.final_values, 0.99, 1.0, advantages, returns,
    )  # fmt: skip
    np.testing.assert_allclose(rollout.returns, returns, atol=1e-5)
    head, value = twin.net(torch.from_numpy(rollout.obs[:-1].reshape(-1, 5)))
    log_prob, entropy = twin.net.log_prob_entropy(head, torch.from_numpy(rollout.actions.ravel()))
    policy = -(torch.from_numpy(advantages.ravel()) * log_prob).mean()
    critic = 0.5 * ((value - torch.from_numpy(returns.ravel())) ** 2).mean()
    (policy + 0.5 * critic - 0.01 * entropy.mean()).backward()
    twin.step(1)
    for name, value in who.parameters().items():
        np.testing.assert_allclose(value, twin.parameters()[name], atol=1e-6, err_msg=name)


def test_an_older_policys_rollout_is_corrected() -> None:
    """Collected one update earlier: weights differ from 1, and the targets are those of the present network."""
    who = learner(lr=0.05, minibatch=10_000)
    game, first, second = (
        Noise(SLOTS, 5, pixels=False),
        who.new_rollout(SLOTS),
        who.new_rollout(SLOTS),
    )
    collect(who, game, first)
    collect(who, game, second)
    assert who.update(first)["approx_kl"] == pytest.approx(0.0, abs=1e-8)
    now = who.parameters()
    metrics = who.update(second)
    assert metrics["approx_kl"] > 1e-4 and metrics["clip_fraction"] > 0.0
    fresh = learner()
    fresh.load_parameters(now)
    np.testing.assert_allclose(second.values[-1], fresh.values_of(second.obs[-1]), atol=1e-5)


def test_the_observation_after_the_last_step_is_normalised_like_the_others() -> None:
    who = learner(lr=1e-12, minibatch=10_000, normalise_obs=True)
    game = Noise(SLOTS, 5, pixels=False)
    rollout = who.new_rollout(SLOTS)
    for _ in range(2):
        game.obs = game.obs * 9 + 5  # far from normal, so that it matters
        collect(who, game, rollout)
        last = rollout.obs[-1].copy()
        expected = who.values_of(last)
        who.update(rollout)
        np.testing.assert_allclose(rollout.values[-1], expected, atol=1e-5)
    assert not np.allclose(rollout.obs[-1], last, atol=0.1)


def test_every_sequence_is_used_once_in_minibatches_of_whole_sequences() -> None:
    who = learner(spec(), steps=8, minibatch=16, accumulate=2)
    rollout = who.new_rollout(SLOTS)
    collect(who, Noise(SLOTS, 36 * 36), rollout)
    metrics = who.update(rollout)
    assert metrics["minibatches"] == 3
    assert who.state_dict()["optimiser"]["step"] == 2


def test_rmsprop_moves_as_torchs_does() -> None:
    who = learner(optimiser="rmsprop", minibatch=10_000, max_grad_norm=0.0)
    before = who.parameters()["vf_out.bias"].copy()
    rollout = who.new_rollout(SLOTS)
    collect(who, Noise(SLOTS, 5, pixels=False), rollout)
    who.update(rollout)
    state = who.state_dict()["optimiser"]
    assert state["m"] == {} and state["step"] == 1
    grad = np.sqrt(state["v"]["vf_out.bias"] / 0.01)
    moved = abs(who.parameters()["vf_out.bias"] - before)
    np.testing.assert_allclose(moved, 3e-4 * grad / (0.1 * grad + 1e-5), rtol=1e-3)


def test_bounds_of_the_weights_must_be_in_order() -> None:
    with pytest.raises(ConfigError, match="c_bar = 2 is above rho_bar = 1"):
        LearnerConfig(c_bar=2.0)


class Poles:
    """CartPole in a vector, with final observations."""

    def __init__(self, slots: int, seed: int) -> None:
        self.envs = [gym.make("CartPole-v1") for _ in range(slots)]
        self.obs = np.stack([env.reset(seed=seed + k)[0] for k, env in enumerate(self.envs)])
        self.lengths, self.done = np.zeros(slots), []

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, ...]:
        rows = [env.step(int(a)) for env, a in zip(self.envs, actions, strict=True)]
        last = np.stack([row[0] for row in rows])
        terminated, truncated = (np.array([row[k] for row in rows]) for k in (2, 3))
        truncated &= ~terminated
        self.lengths += 1
        self.obs = last.copy()
        for k in np.flatnonzero(terminated | truncated):
            self.done.append(self.lengths[k])
            self.lengths[k], self.obs[k] = 0, self.envs[k].reset()[0]
        return np.ones(len(rows)), terminated, truncated, last


def test_cartpole_is_learned_with_a_lag_of_one() -> None:
    """Every rollout is learned from one update after it was played, as with overlapped collection."""
    slots = 16
    settings = {
        "steps": 32, "minibatch": 128, "lr": 1e-3, "entropy": 0.01,
        "normalise_rewards": True,
    }  # fmt: skip
    space = gym.make("CartPole-v1")
    one = spec_from(LearnerConfig(), space.observation_space, space.action_space)
    who = make_learner(one, config(kind="vtrace", **settings), Streams(1), slots)
    game, pair = Poles(slots, 0), [who.new_rollout(slots) for _ in range(2)]
    collect(who, game, pair[0])
    for k in range(125):
        collect(who, game, pair[(k + 1) % 2])
        metrics = who.update(pair[k % 2])
        if len(game.done) > 40 and np.mean(game.done[-20:]) > 195:
            break
    assert metrics["approx_kl"] > 0.0
    assert np.mean(game.done[:20]) < 40
    assert np.mean(game.done[-20:]) > 195
