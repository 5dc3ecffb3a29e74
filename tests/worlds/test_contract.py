from __future__ import annotations

from contextlib import closing
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import holdfast
from holdfast.errors import ConfigError, EnvironmentFault
from holdfast.worlds.check import check_world
from holdfast.worlds.foreign import ForeignOptions, ForeignWorld


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("shoal", {"games": 3, "fish": 5, "max_steps": 60}),
        (
            "shoal",
            {"games": 2, "fish": 8, "max_steps": 40, "neighbors": True, "density_penalty": 0.1},
        ),
        ("shoal", {"games": 2, "fish": 4, "force_reset_steps": 25}),
        ("pursuit", {"games": 3, "max_steps": 50, "n_obstacles": 2}),
        ("CartPole-v1", {"games": 3}),
        ("Pendulum-v1", {"games": 2}),
    ],
)
def test_the_checker_finds_nothing_wrong_with_our_worlds(
    name: str, options: dict[str, Any]
) -> None:
    assert check_world(lambda: holdfast.make(name, **options), steps=250) == []


@pytest.mark.parametrize(
    ("name", "options"), [("shoal", {"fish": 2}), ("pursuit", {}), ("CartPole-v1", {})]
)
def test_seeds_mean_the_same_in_every_world(name: str, options: dict[str, Any]) -> None:
    with closing(holdfast.make(name, games=2, **options)) as world:
        each = world.slots_per_game

        def first(seed: Any) -> Any:
            world.reset(seed=seed)
            return [start.seed for start in world.current_starts()]

        assert first(7) == first([7, 8]) == first([7] * each + [8] * each) == [7, 8]
        assert first(2**63 - 1) == [2**63 - 1, 0]
        for wrong in (-1, [1], [1, 2, 3], [1, -2], 2**63):
            with pytest.raises(ConfigError, match="A world got"):
                world.reset(seed=wrong)


class Broken(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    fault = "nan"

    def reset(self, seed=None, options=None):
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.t += 1
        obs = np.zeros(2, np.float32)
        reward = 0.0
        if self.t == 3:
            if self.fault == "nan":
                obs[0] = np.nan
            elif self.fault == "huge":
                obs = np.array([0.0, -1e299])
            elif self.fault == "shape":
                obs = np.zeros(3, np.float32)
            elif self.fault == "reward":
                reward = float("inf")
        return obs, reward, False, False, {}


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("nan", r"NaN or infinity for slot 0: nan at \[0\] \("),
        ("huge", r"-inf at \[1\] \(float32 holds nothing beyond 3.4e\+38\)"),
        ("shape", r"shape \(3,\)"),
        ("reward", "not finite"),
    ],
)
def test_a_foreign_environment_that_breaks_the_contract_is_named(
    monkeypatch, fault: str, words: str
) -> None:
    monkeypatch.setattr(Broken, "fault", fault)
    world = ForeignWorld(f"{__name__}:Broken", ForeignOptions(games=2))
    world.reset(seed=5)
    with pytest.raises(EnvironmentFault, match=words) as caught:
        for _ in range(4):
            world.step(np.zeros(2, np.int64))
    assert "game 0, seed 5, step 3" in str(caught.value)


def test_a_foreign_time_limit_is_a_truncation_with_its_last_observation() -> None:
    world = ForeignWorld("Pendulum-v1", ForeignOptions(games=1))
    world.reset(seed=0)
    for _ in range(200):
        obs, _, terminated, truncated, info = world.step(np.zeros((1, 1), np.float32))
    assert truncated[0] and not terminated[0]
    assert not np.array_equal(info["final_obs"][0], obs[0])
    assert info["episodes"][0].steps == 200


def test_a_foreign_world_equals_gymnasium_step_by_step() -> None:
    world, env = ForeignWorld("CartPole-v1", ForeignOptions(games=1)), gym.make("CartPole-v1")
    obs, _ = world.reset(seed=3)
    want, _ = env.reset(seed=3)
    np.testing.assert_array_equal(obs[0], want)
    for t in range(8):
        got = world.step(np.array([t % 2]))
        want, reward, *_ = env.step(t % 2)
        np.testing.assert_array_equal(got[0][0], want)
        assert got[1][0] == reward


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("CartPol-v1", "Did you mean 'CartPole-v1'"),
        ("no_such_module:make", "cannot be imported"),
        ("math:no_such", "has no function 'no_such'"),
        ("builtins:list", "returned a list"),
    ],
)
def test_an_unknown_environment_is_explained(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ForeignWorld(name)


def test_the_checker_explains_what_is_wrong() -> None:
    class Liar(ForeignWorld):
        def step_into(self, *args: Any) -> dict[str, Any]:
            info = super().step_into(*args)
            if "final_obs" in info:
                del info["final_obs"]
            return info

    problems = check_world(lambda: Liar("Pendulum-v1", ForeignOptions(games=1)), steps=201)
    assert any("truncated without info['final_obs']" in p for p in problems)
