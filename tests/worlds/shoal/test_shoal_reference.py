"""The shoal agrees with the original environment, step by step, and with its recorded evaluation."""

from __future__ import annotations

import numpy as np
import pytest
import shoal_reference as reference

from holdfast.records import Array
from holdfast.worlds.shoal import ShoalOptions, ShoalWorld
from holdfast.worlds.shoal.policies import act, act_on

BODIES = {
    "fish_pos": "fish_pos",
    "fish_vel": "fish_vel",
    "predator_pos": "pred_pos",
    "predator_vel": "pred_vel",
}


@pytest.mark.parametrize("config", reference.CONFIGS)
def test_resets_equal_the_reference_bit_for_bit(config: str) -> None:
    world, obs, record = reference.world_at_start(config)
    bodies = world.bodies()
    for ours, theirs in BODIES.items():
        np.testing.assert_array_equal(bodies[ours], record[theirs][:, 0], err_msg=ours)
    np.testing.assert_allclose(
        obs.reshape(record["obs"][:, 0].shape), record["obs"][:, 0], atol=5e-6
    )


@pytest.mark.parametrize("config", reference.CONFIGS)
def test_every_single_step_equals_the_reference(config: str) -> None:
    world, _, record = reference.world_at_start(config)
    for t in range(200):
        state = {ours: record[theirs][:, t] for ours, theirs in BODIES.items()}
        world.set_state({**state, "alive": record["alive"][:, t], "t": np.full(4, t)})
        compare_step(world, record, t, tolerance=5e-6)


@pytest.mark.parametrize("config", reference.CONFIGS)
def test_a_free_run_of_200_steps_equals_the_reference(config: str) -> None:
    world, _, record = reference.world_at_start(config)
    for t in range(200):
        compare_step(world, record, t, tolerance=1e-4)
    np.testing.assert_array_equal(world.get_state()["death_steps"], record["death_step"])


def compare_step(world: ShoalWorld, record: dict[str, Array], t: int, tolerance: float) -> None:
    obs, rewards, terminations, _, info = world.step(record["actions"][:, t].reshape(-1))
    bodies = world.bodies()
    alive = record["alive"][:, t + 1]
    np.testing.assert_array_equal(bodies["alive"], alive)
    np.testing.assert_array_equal(info["mask"].reshape(alive.shape), alive)
    np.testing.assert_array_equal(terminations.reshape(alive.shape), record["alive"][:, t] & ~alive)
    for ours, theirs in BODIES.items():
        np.testing.assert_allclose(bodies[ours], record[theirs][:, t + 1], atol=tolerance, rtol=0)
    seen = record["obs"][:, t + 1]
    np.testing.assert_allclose(obs.reshape(seen.shape), seen, atol=tolerance, rtol=0)
    np.testing.assert_allclose(
        rewards.reshape(alive.shape), record["rewards"][:, t], atol=tolerance, rtol=0
    )


@pytest.mark.parametrize("config", reference.CONFIGS)
def test_step_one_records_and_pre_roll_statistics_equal_the_reference(config: str) -> None:
    world, _, record = reference.world_at_start(config)
    world.step(record["actions"][:, 0].reshape(-1))
    world.request_reset([0, 25, 50, 75])
    *_, info = world.step(record["actions"][:, 1].reshape(-1))
    for episode, deaths, stats in zip(
        info["episodes"],
        record["step_one_deaths_json"],
        record["pre_roll_stats_json"],
        strict=True,
    ):
        assert episode.ended == "forced"
        assert episode.detail["step_one"] == deaths
        ours = episode.detail["pre_roll_stats"]
        assert ours.keys() == stats.keys()
        for key, value in stats.items():
            if value is None or isinstance(value, bool):
                assert ours[key] is value
            else:
                np.testing.assert_allclose(ours[key], value, atol=2e-5, err_msg=key)


@pytest.mark.parametrize(
    ("policy", "key"),
    [("brake", "death_brake"), ("sidestep", "death_dodge"), ("flee_keep", "death_flee_keep")],
)
@pytest.mark.parametrize("sees", ["state", "observation"])
def test_scripted_policies_die_at_exactly_the_recorded_steps(
    policy: str, key: str, sees: str
) -> None:
    data = reference.load("shoal_eval.npz")
    world = ShoalWorld(ShoalOptions(games=6, fish=96, escape_boost_speed=0.8), seed=0)
    obs, _ = world.reset(seed=data["seeds"].tolist())
    for ours, theirs in BODIES.items():
        np.testing.assert_array_equal(world.bodies()[ours], data[f"init_{theirs}"])
    for _ in range(500):
        actions = act(policy, world) if sees == "state" else act_on(policy, obs)
        obs, *_, info = world.step(actions)
    deaths = np.stack([episode.detail["death_steps"] for episode in info["episodes"]])
    np.testing.assert_array_equal(deaths, data[key])
