from __future__ import annotations

import numpy as np
import pytest

from holdfast.learn.returns import explained_variance, gae, track_returns


def run_gae(rewards, values, terminated, truncated, final, gamma, lam, mask=None):
    t = len(rewards)
    mask = [1] * (t + 1) if mask is None else mask
    column = lambda x, kind: np.array(x, kind).reshape(-1, 1)  # noqa: E731
    advantages, returns = np.zeros((t, 1), np.float32), np.zeros((t, 1), np.float32)
    gae(
        column(rewards, np.float64),
        column(values, np.float32),
        column(mask, np.bool_),
        column(terminated, np.bool_),
        column(truncated, np.bool_),
        column(final, np.float32),
        gamma,
        lam,
        advantages,
        returns,
    )
    return advantages[:, 0], returns[:, 0]


def slow_gae(rewards, values, terminated, truncated, final, gamma, lam):
    """The definition: sum of (gamma lam)^k delta over the rest of the episode."""
    steps = len(rewards)
    deltas = []
    for t in range(steps):
        follow = 0.0 if terminated[t] else final[t] if truncated[t] else values[t + 1]
        deltas.append(rewards[t] + gamma * follow - values[t])
    result = []
    for t in range(steps):
        total, weight = 0.0, 1.0
        for k in range(t, steps):
            total += weight * deltas[k]
            if terminated[k] or truncated[k]:
                break
            weight *= gamma * lam
        result.append(total)
    return np.array(result)


def test_gae_equals_its_definition_on_random_episodes() -> None:
    rng = np.random.default_rng(0)
    steps = 200
    rewards, values = rng.normal(size=steps), rng.normal(size=steps + 1)
    ends = rng.random(steps)
    terminated, truncated = ends < 0.05, ends > 0.95
    final = rng.normal(size=steps)
    args = (rewards, values, terminated, truncated, final, 0.97, 0.9)
    advantages, returns = run_gae(*args)
    np.testing.assert_allclose(advantages, slow_gae(*args), atol=2e-6)
    np.testing.assert_allclose(returns, advantages + values[:-1], atol=2e-6)


def test_gae_numbers_written_out() -> None:
    # gamma 0.5, lambda 0.5: deltas 1 + 1 - 1 = 1, 2 + 0.5 - 2 = 0.5, then 0.25 chained.
    advantages, _ = run_gae([1.0, 2.0], [1.0, 2.0, 1.0], [0, 0], [0, 0], [0, 0], 0.5, 0.5)
    np.testing.assert_allclose(advantages, [1.0 + 0.25 * 0.5, 0.5])


def test_a_terminated_step_is_followed_by_nothing() -> None:
    advantages, _ = run_gae([1.0, 5.0], [0.0, 9.0, 9.0], [1, 0], [0, 0], [7.0, 0.0], 0.9, 1.0)
    assert advantages[0] == pytest.approx(1.0)


def test_a_truncated_step_is_followed_by_the_value_of_its_last_observation() -> None:
    advantages, _ = run_gae([1.0, 5.0], [0.0, 9.0, 9.0], [0, 0], [1, 0], [7.0, 0.0], 0.9, 1.0)
    assert advantages[0] == pytest.approx(1.0 + 0.9 * 7.0)


def test_what_a_script_does_next_is_not_the_policys_merit() -> None:
    """A script plays steps 3 to 5, without reward: the steps before it are those of an episode cut there."""
    rng = np.random.default_rng(3)
    rewards, values = rng.normal(size=8), rng.normal(size=9).astype(np.float32)
    rewards[3:6] = 0.0
    mask, none = [1, 1, 1, 0, 0, 0, 1, 1, 1], [0] * 8
    advantages, returns = run_gae(rewards, values, none, none, none, 0.97, 0.95, mask)
    cut = run_gae(rewards[:3], values[:4], none[:3], none[:3], none[:3], 0.97, 0.95)
    after = run_gae(rewards[6:], values[6:], none[6:], none[6:], none[6:], 0.97, 0.95)
    assert np.array_equal(advantages[:3], cut[0]) and np.array_equal(returns[:3], cut[1])
    assert np.array_equal(advantages[6:], after[0]) and np.array_equal(returns[6:], after[1])


def test_what_is_masked_after_an_end_changes_nothing_before_it() -> None:
    """A dead fish: masked from the step after its end to the next episode."""
    values = np.random.default_rng(4).normal(size=6).astype(np.float32)
    given = ([1.0, 2.0, 0.0, 0.0, 3.0], values, [0, 1, 0, 0, 0], [0, 0, 0, 1, 0], [0] * 5, 0.9, 0.8)
    plain, masked = run_gae(*given), run_gae(*given, mask=[1, 1, 0, 0, 1, 1])
    assert np.array_equal(plain[0], masked[0]) and np.array_equal(plain[1], masked[1])


def test_constant_reward_without_end_has_zero_advantage_at_the_true_value() -> None:
    value = 1.0 / (1.0 - 0.99)
    advantages, _ = run_gae([1.0] * 50, [value] * 51, [0] * 50, [0] * 50, [0] * 50, 0.99, 0.95)
    np.testing.assert_allclose(advantages, 0.0, atol=1e-3)


def test_discounted_returns_are_tracked_across_rollouts_and_reset_at_ends() -> None:
    running, moments = np.zeros(1), np.zeros(3)
    ends = np.array([[False], [True], [False]])
    none, all_ = np.zeros((3, 1), np.bool_), np.ones((3, 1), np.bool_)
    track_returns(np.ones((3, 1)), ends, none, all_, 0.5, running, moments)
    # Returns seen: 1, 1.5, then 1 after the end.
    assert running[0] == pytest.approx(1.0)
    assert moments[0] == 3
    assert moments[1] == pytest.approx(3.5 / 3)
    assert moments[2] / 3 == pytest.approx(np.var([1.0, 1.5, 1.0]))


def test_masked_steps_do_not_enter_the_reward_scale() -> None:
    running, moments = np.zeros(2), np.zeros(3)
    mask = np.array([[True, False]])
    none = np.zeros((1, 2), np.bool_)
    track_returns(np.array([[1.0, 1e9]]), none, none, mask, 0.9, running, moments)
    assert moments[0] == 1 and moments[1] == 1.0


def test_explained_variance_is_one_for_a_perfect_critic_and_zero_for_a_constant_one() -> None:
    returns = np.random.default_rng(1).normal(size=(8, 4)).astype(np.float32)
    mask = np.ones((8, 4), np.bool_)
    assert explained_variance(returns, returns, mask) == pytest.approx(1.0)
    assert explained_variance(np.zeros_like(returns), returns, mask) == pytest.approx(0.0, abs=1e-6)
