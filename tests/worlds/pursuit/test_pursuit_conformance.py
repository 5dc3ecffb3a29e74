"""Our world against recorded trajectories of the original (spec section 9)."""

from __future__ import annotations

import numpy as np
import pytest
from pursuit_reference import config, options, reference, replay

from holdfast.worlds.pursuit import PursuitWorld
from holdfast.worlds.pursuit.safety import INFEASIBLE, UNTOUCHED, safe_actions

LETTERS = "ABCDE"
NOISELESS = {"observation": "sensors", "lidar_noise": 0.0}


def assert_close(ours, theirs, tolerance, what):
    """Absolute below one, relative above: a float32 of 5 m has an ulp of 5e-7."""
    error = np.abs(np.asarray(ours, np.float64) - theirs) / np.maximum(1.0, np.abs(theirs))
    assert np.max(error) <= tolerance, f"{what}: {np.max(error):.2e}"


@pytest.mark.parametrize("letter", LETTERS)
def test_recorded_actions_reproduce_states_rewards_flags_and_observations(letter):
    ref = reference()
    moments = 0
    for m in replay(letter):
        at = (m.g, m.t)
        where = f"{letter} game {m.g} step {m.t}"
        state = np.stack([ref[f"{letter}_state_p"][at], ref[f"{letter}_state_e"][at]])
        assert_close(m.record["pose"], state, 1e-12, f"state {where}")
        assert_close(m.record["distance"], ref[f"{letter}_dist"][at], 1e-12, f"distance {where}")
        if m.reward is not None:
            at = (m.g, m.t - 1)
            assert_close(m.reward, ref[f"{letter}_rew"][at], 1e-9, f"reward {where}")
            assert m.terminated == ref[f"{letter}_term"][at], where
            assert m.truncated == ref[f"{letter}_trunc"][at], where
            np.testing.assert_array_equal(
                m.record["obstacle_contact"], ref[f"{letter}_hit_obst"][at]
            )
            np.testing.assert_array_equal(m.record["wall_contact"], ref[f"{letter}_hit_wall"][at])
        recorded = np.stack([ref[f"{letter}_obs_p"][m.g, m.t], ref[f"{letter}_obs_e"][m.g, m.t]])
        assert_close(m.obs, recorded, 2e-7, f"observation {where}")
        moments += 1
    assert moments == int(ref[f"{letter}_length"].sum()) + 5


@pytest.mark.parametrize("letter", "DE")
def test_visibility_and_line_of_sight_are_the_recorded_ones(letter):
    ref = reference()
    for m in replay(letter):
        np.testing.assert_array_equal(m.record["visible"], ref[f"{letter}_visible"][m.g, m.t])
        assert m.record["los_blocked"] == ref[f"{letter}_los_blocked"][m.g, m.t]


def test_line_of_sight_of_the_hiding_reward_is_the_recorded_one():
    ref = reference()
    for m in replay("B"):
        assert m.record["los_blocked"] == ref["B_los_blocked"][m.g, m.t]


@pytest.mark.parametrize("letter", LETTERS)
def test_resets_are_bit_exact(letter):
    ref = reference()
    world = PursuitWorld(options(letter, games=100))
    world.reset(seed=0)
    np.testing.assert_array_equal(world.records["pose"][:, 0], ref[f"{letter}_reset_p"])
    np.testing.assert_array_equal(world.records["pose"][:, 1], ref[f"{letter}_reset_e"])
    count = ref[f"{letter}_reset_nobst"]
    np.testing.assert_array_equal(world.records["n_obstacles"], count)
    for g in range(100):
        ours, theirs = world.obstacles[g, : count[g]], ref[f"{letter}_reset_obst"][g, : count[g]]
        np.testing.assert_array_equal(ours, theirs)


def test_sensor_rows_in_the_legacy_frame_are_the_recorded_ones():
    ref = reference()
    for m in replay("C", **NOISELESS, legacy_lidar=True):
        raw = np.stack([ref["C_raw_p"][m.g, m.t], ref["C_raw_e"][m.g, m.t]])
        where = f"game {m.g} step {m.t}"
        assert_close(m.obs[:, :36], raw[:, 7:], 2e-7, f"lidar {where}")
        assert_close(m.obs[:, -7:], raw[:, :7], 2e-7, f"state {where}")
        assert_close(m.obs[:, 36 + 9 * 43 : 36 + 10 * 43], raw, 2e-7, f"newest row {where}")
        history = m.obs[:, 36:466].reshape(2, 10, 43)
        for me, role in enumerate("pe"):
            if m.t == 3:
                assert_close(history[me], ref[f"C_hist_t3_{role}"][m.g], 2e-7, f"history {where}")
            if m.t == ref["C_length"][m.g]:
                assert_close(history[me], ref[f"C_hist_last_{role}"][m.g], 2e-7, f"history {where}")


def test_lidar_in_the_right_frame_sees_the_real_walls():
    ref = reference()
    for m in replay("C", **NOISELESS):
        right = np.stack([ref["C_lidarfix_p"][m.g, m.t], ref["C_lidarfix_e"][m.g, m.t]])
        assert_close(m.obs[:, :36], right, 2e-7, f"lidar game {m.g} step {m.t}")


def test_cold_start_episodes_are_the_recorded_ones():
    ref = reference()
    for episode in range(3):
        obstacles = ref["N_obst"][episode]
        count = int(np.isfinite(obstacles[:, 0]).sum())
        world = PursuitWorld(
            task="navigation",
            arena_width=10.0,
            arena_height=10.0,
            n_obstacles=count,
            flee_probability=float(ref["N_flee"][episode]),
            legacy_lidar=True,
            legacy_goals=True,
            **NOISELESS,
        )
        world.reset(seed=0)
        pose = np.stack([ref["N_state_p"][episode, 0], ref["N_state_e"][episode, 0]])[None]
        kept = np.zeros((1, 4, 3))
        kept[0, :count] = obstacles[:count]
        world.set_state(
            {
                "pose": pose,
                "obstacles": kept,
                "n_obstacles": np.array([count]),
                "last_action": np.zeros((1, 2, 2)),
                "t": np.array([0]),
            }
        )
        obs, _ = world.observe()
        assert_close(obs[1, -7:], ref["N_raw"][episode, 0, :7], 2e-7, "state at the start")
        for t in range(int(ref["N_length"][episode])):
            actions = np.stack([np.full(2, np.nan), ref["N_act"][episode, t]])
            obs, rewards, term, trunc, info = world.step(actions)
            done = term[1] or trunc[1]
            record = (world.finished if done else world.records)[0]
            row = (info["final_obs"] if done else obs)[1]
            where = f"episode {episode} step {t}"
            ours = np.concatenate([row[-7:], row[:36]])
            assert_close(record["last_action"][0], ref["N_act_opp"][episode, t], 1e-6, where)
            assert_close(record["pose"][0], ref["N_state_p"][episode, t + 1], 1e-12, where)
            assert_close(record["pose"][1], ref["N_state_e"][episode, t + 1], 1e-12, where)
            assert_close(rewards[1], ref["N_rew"][episode, t], 1e-9, where)
            assert_close(ours, ref["N_raw"][episode, t + 1], 2e-7, where)
            assert (term[1], trunc[1]) == (ref["N_term"][episode, t], ref["N_trunc"][episode, t])
            assert not info["mask"][0]
            assert info["mask"][1]


@pytest.mark.parametrize(("method", "name"), [("dcbf", "dcbf"), ("ctcbf", "ctcbf")])
def test_safety_filter_gives_the_recorded_actions(method, name):
    ref, constants = reference(), config("S")
    world = PursuitWorld(
        arena_width=2 * constants["half"],
        arena_height=2 * constants["half"],
        safety="pursuer",
        safety_method=method,
        safety_gamma=constants["gamma"],
        safety_alpha=constants["alpha"],
    )
    poses = np.stack([ref["S_state"], ref["S_opp"]], axis=1)
    out, status = safe_actions(world.params, poses, ref["S_obst"].copy(), ref["S_nominal"])
    solved = ref[f"S_{name}_ok"]
    np.testing.assert_array_equal(status != INFEASIBLE, solved)
    assert_close(out[solved, :2], ref[f"S_{name}"][solved], 1e-5, "action")
    assert_close(out[:, 2], ref["S_hmin"], 1e-9, "least barrier")
    if name == "dcbf":
        intervened = ref["S_dcbf_intervened"][solved]
        np.testing.assert_array_equal(status[solved] != UNTOUCHED, intervened)
