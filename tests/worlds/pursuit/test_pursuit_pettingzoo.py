"""The PettingZoo face of the world."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from holdfast.worlds.pursuit.pettingzoo import PursuitParallelEnv

with warnings.catch_warnings():
    # PettingZoo's test package imports its own games in a way that it has itself deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from pettingzoo.test import parallel_api_test, parallel_seed_test


@pytest.mark.parametrize(
    "options",
    [
        {"n_obstacles": 3, "n_obstacle_obs": 3, "max_steps": 50},
        {"observation": "sensors", "max_steps": 30, "fixed_speed": True},
        {"partial_obs": True, "sensing_radius": 3.0, "evader_v_max": 1.2, "max_steps": 40},
    ],
)
def test_pettingzoos_own_api_test_passes(options):
    parallel_api_test(PursuitParallelEnv(**options), num_cycles=200)


def test_pettingzoos_own_seed_test_passes():
    parallel_seed_test(lambda: PursuitParallelEnv(n_obstacles=2, max_steps=50))


def test_the_end_of_a_game_empties_the_agents_and_shows_the_last_observation():
    env = PursuitParallelEnv(max_steps=3)
    first, _ = env.reset(seed=0)
    still = {agent: np.zeros(2, np.float32) for agent in env.agents}
    for _ in range(3):
        obs, rewards, _, trunc, infos = env.step(still)
    assert env.agents == []
    assert trunc == {"pursuer": True, "evader": True}
    assert rewards == {"pursuer": -100.0, "evader": 100.0}
    np.testing.assert_allclose(obs["pursuer"], first["pursuer"], atol=1e-6)
    assert infos["evader"]["episode"]["escaped"] == 1


def test_each_agent_has_its_own_speed_bound_and_a_picture():
    env = PursuitParallelEnv(evader_v_max=1.2, render_mode="rgb_array")
    env.reset(seed=0)
    assert env.action_space("pursuer").high[0] == np.float32(1.0)
    assert env.action_space("evader").high[0] == np.float32(1.2)
    image = env.render()
    assert image.dtype == np.uint8
    assert image.ndim == 3
    env.close()


def test_state_and_picture_after_the_end_are_of_the_game_that_ended():
    env = PursuitParallelEnv(max_steps=4, render_mode="rgb_array")
    env.reset(seed=0)
    pictures = []
    for _ in range(4):
        obs, *_ = env.step({agent: env.action_space(agent).high for agent in env.agents})
        pictures.append(env.render())
        place = env.state()[:2] / 10.0
        np.testing.assert_allclose(place, obs["pursuer"][:2], atol=1e-6)
    assert env.agents == [] and env._trace.label == "escaped  0.2 s"
    assert all((one != pictures[-1]).any() for one in pictures[:-1])
    env.close()
