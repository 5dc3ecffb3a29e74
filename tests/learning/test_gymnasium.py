"""Agents really get good. Thresholds are those that people know; seeds are fixed."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast


def trained(tmp_path: Path, env: str, env_steps: int, **settings: object) -> float:
    """Train and return the mean return over 100 episodes on seeds that training never saw."""
    outcome = holdfast.train(
        env,
        runs_dir=tmp_path,
        run="r",
        env_steps=env_steps,
        probe__every=0,
        probe__episodes=1,
        tensorboard=False,
        say=lambda text: None,
        **settings,
    )
    assert outcome.state == "finished"
    report = holdfast.evaluate("r", runs_dir=tmp_path, episodes=100, seed=99, latest=True)
    return report.metrics["return_mean"]


@pytest.mark.parametrize("learner", ["fused", "torch"])
def test_cartpole_is_solved_within_150k_steps(tmp_path: Path, learner: str) -> None:
    steps = 100_000 if learner == "fused" else 60_000
    floor = 475 if learner == "fused" else 300
    assert trained(tmp_path, "CartPole-v1", steps, seed=1, learner=learner, threads=1) >= floor


@pytest.mark.slow
def test_acrobot_swings_up_within_500k_steps(tmp_path: Path) -> None:
    assert trained(tmp_path, "Acrobot-v1", 100_000, seed=1) >= -100


@pytest.mark.slow
def test_pendulum_balances_within_a_million_steps(tmp_path: Path) -> None:
    assert trained(tmp_path, "Pendulum-v1", 300_000, seed=1) >= -300
