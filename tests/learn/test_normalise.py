"""The running statistics of observations and rewards are those of all that was seen, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.learn.normalise import CLIP, ObsNorm, RewardNorm
from holdfast.records import Rollout


def steps(seed: int, count: int = 12) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return observations `[5, 3]` whose level drifts, with masks."""
    rng = np.random.default_rng(seed)
    return [
        (rng.normal(3.0 * k, 2.0, (5, 3)).astype(np.float32), rng.random(5) < 0.7)
        for k in range(count)
    ]


def test_mean_and_variance_are_those_of_every_unmasked_row_seen_so_far() -> None:
    norm, made = ObsNorm(3), steps(1)
    for lo in (0, 4, 8):  # three rollouts of four steps
        for obs, mask in made[lo : lo + 4]:
            norm.apply_in_place(obs.copy(), mask)
        norm.merge()
    rows = np.concatenate([obs[mask] for obs, mask in made]).astype(np.float64)
    assert norm.count == len(rows)
    np.testing.assert_allclose(norm.mean, rows.mean(0), rtol=1e-12)
    np.testing.assert_allclose(norm.var, rows.var(0), rtol=1e-12)


def test_within_a_rollout_every_step_is_normalised_with_the_statistics_of_its_beginning() -> None:
    norm, made = ObsNorm(3), steps(2)
    for obs, mask in made[:4]:
        norm.apply_in_place(obs.copy(), mask)
    norm.merge()
    mean, var = norm.mean.copy(), norm.var.copy()
    for obs, mask in made[4:]:
        seen = obs.copy()
        norm.apply_in_place(seen, mask)
        np.testing.assert_allclose(seen, np.clip((obs - mean) / np.sqrt(var + 1e-8), -10, 10), 1e-5)


def test_observations_are_cut_at_ten_deviations() -> None:
    norm = ObsNorm(2)
    norm.mean, norm.var, norm.count = np.array([1.0, 0.0]), np.array([4.0, 1.0]), 9.0
    found = norm.apply(np.array([[5.0, -3.0], [1e6, -1e6]], np.float32))
    np.testing.assert_allclose(found, [[2.0, -3.0], [CLIP, -CLIP]], rtol=1e-6)
    assert found.dtype == np.float32


def test_what_nobody_learns_from_leaves_no_trace_and_what_another_saw_is_taken_over() -> None:
    norm, other, made = ObsNorm(3), ObsNorm(3), steps(3, 2)
    norm.apply_in_place(made[0][0].copy(), made[0][1])
    norm.drop()
    other.apply_in_place(made[1][0].copy(), made[1][1])
    norm.adopt(other)
    norm.merge()
    other.merge()
    assert norm.count == made[1][1].sum() and other.count == 0


def rollout(seed: int, slots: int = 4, length: int = 30) -> Rollout:
    rng = np.random.default_rng(seed)
    made = Rollout.empty(length, slots, (1,), np.float32, (), np.int32, 1)
    made.rewards[:] = rng.normal(0.5, 3.0, (length, slots))
    made.mask[:] = rng.random((length + 1, slots)) < 0.8
    made.terminations[:] = rng.random((length, slots)) < 0.1
    made.truncations[:] = (rng.random((length, slots)) < 0.1) & ~made.terminations
    return made


def returns_of(rollouts: list[Rollout], gamma: float) -> np.ndarray:
    """Return the discounted return so far at every unmasked step, by hand."""
    running, found = np.zeros(rollouts[0].slots), []
    for one in rollouts:
        for t in range(one.steps):
            running = gamma * running + one.rewards[t]
            found += list(running[one.mask[t]])
            running[one.terminations[t] | one.truncations[t]] = 0.0
    return np.array(found)


def test_rewards_are_divided_by_the_deviation_of_the_discounted_return() -> None:
    norm, made = RewardNorm(4, 0.9), [rollout(1), rollout(2)]
    expected = returns_of(made, 0.9).std()
    given = made[1].rewards.copy()
    for one in made:
        norm.apply_in_place(one)
    assert norm.scale == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(made[1].rewards, given / expected, rtol=1e-9)


def test_rewards_are_cut_at_ten_deviations() -> None:
    norm = RewardNorm(1, 0.9)
    norm.moments[:] = 4.0, 0.0, 16.0  # a deviation of 2
    rewards = np.array([[-6.0], [1e3], [-1e3]])
    norm.scale_in_place(rewards)
    np.testing.assert_allclose(rewards, [[-3.0], [CLIP], [-CLIP]], rtol=1e-6)


def test_returns_under_way_go_on_after_a_restart_and_begin_anew_with_other_slots() -> None:
    whole, first, second = (RewardNorm(4, 0.9) for _ in range(3))
    for norm in (whole, first):
        norm.track(rollout(1))
    second.load_state_dict(first.state_dict())
    for norm in (whole, second):
        norm.track(rollout(2))
    assert np.array_equal(whole.moments, second.moments)
    assert np.array_equal(whole.running, second.running)
    whole.track(rollout(3, slots=6))
    alone = RewardNorm(6, 0.9)
    alone.track(rollout(3, slots=6))
    assert np.array_equal(whole.running, alone.running)
