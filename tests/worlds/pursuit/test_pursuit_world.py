"""The world contract: resets, ends, starts, state, threads."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.errors import ConfigError
from holdfast.records import Start
from holdfast.worlds.check import check_world
from holdfast.worlds.pursuit import PursuitWorld

SMALL = {
    "arena_width": 10.0,
    "arena_height": 10.0,
    "min_init_distance": 2.0,
    "max_init_distance": 8.0,
}
RICH = {
    **SMALL,
    "n_obstacles_min": 0,
    "n_obstacles_max": 3,
    "n_obstacle_obs": 3,
    "max_steps": 40,
    "w_vis_pursuer": 0.1,
    "w_wall": 0.5,
    "w_collision": 0.5,
    "survival_bonus": 0.05,
    "w_obs_approach": 5.0,
    "w_occlusion": 0.3,
}
MODES = {
    "full": {},
    "masked": {
        "partial_obs": True,
        "sensing_radius": 3.0,
        "combined_masking": True,
        "p_full": 0.3,
        "w_search": 0.01,
    },
    "sensors": {"observation": "sensors", "w_search": 0.01},
    "frame": {"observation": "frame"},
    "guarded": {"safety": "both"},
    "navigation": {"observation": "sensors", "task": "navigation", "navigation_steps": 30},
}


def actions_of(world, seed, steps):
    rng = np.random.default_rng(seed)
    space = world.action_space
    return [rng.uniform(space.low, space.high).astype(np.float32) for _ in range(steps)]


def run(world, actions):
    """Return everything that the steps gave, as one list of arrays, and the episodes."""
    seen, episodes = [], []
    for act in actions:
        obs, rewards, term, trunc, info = world.step(act)
        seen += [obs, rewards, term, trunc, info["mask"]]
        if "final_obs" in info:
            seen.append(info["final_obs"][info["_final_obs"]])
        episodes += info.get("episodes", [])
    return seen, episodes


def assert_same(a, b):
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x, y)


def still(pose, **options):
    """A one-game world that stands at `pose`, without obstacles."""
    world = PursuitWorld(games=1, **{**SMALL, **options})
    world.queue_starts([0], [Start(snapshot={"pose": np.array(pose, float)})])
    world.reset(seed=0)
    return world


@pytest.mark.parametrize("mode", [name for name in MODES if name != "navigation"])
def test_the_contract_checker_finds_nothing(mode):
    options = {**RICH, **MODES[mode], "games": 3}
    assert check_world(lambda: PursuitWorld(**options), steps=120) == []


def test_the_first_reset_uses_the_seed_of_the_world():
    a, b = PursuitWorld(games=3, seed=21), PursuitWorld(games=3)
    np.testing.assert_array_equal(a.reset()[0], b.reset(seed=21)[0])


def test_waiting_and_running_starts_can_be_asked_for():
    world = PursuitWorld(games=2)
    start = Start(seed=5, label="mine")
    world.reset(seed=0)
    world.queue_starts([2, 3], [start, start])
    assert world.queued() == [0, 2]
    world.reset()
    assert world.queued() == [0, 1]
    assert world.current_starts()[1] == start
    assert world.current_starts()[0].seed == world.records["seed"][0]


def test_slots_alternate_pursuer_and_evader():
    world = PursuitWorld(games=3)
    assert world.num_envs == 6
    assert world.roles == ("pursuer", "evader") * 3


def test_an_integer_seed_gives_game_g_the_seed_plus_g():
    a, b = PursuitWorld(games=4, **SMALL), PursuitWorld(games=4, **SMALL)
    first, _ = a.reset(seed=10)
    second, _ = b.reset(seed=[10, 11, 12, 13])
    np.testing.assert_array_equal(first, second)
    again, _ = b.reset()
    assert not np.array_equal(again, second)
    with pytest.raises(ConfigError, match="3 seeds for 4 games"):
        b.reset(seed=[1, 2, 3])
    with pytest.raises(ConfigError, match="0 to 2"):
        b.reset(seed=-4)
    np.testing.assert_array_equal(b.reset(seed=np.int64(10))[0], first)


def test_every_later_episode_can_be_replayed_from_the_seed_that_it_reports():
    world = PursuitWorld(games=2, **RICH, **MODES["masked"])
    world.reset(seed=5)
    acts = actions_of(world, 0, 120)
    _, episodes = run(world, acts)
    third = [e for e in episodes if e.game == 1][2]
    first_step = sum(e.steps for e in [e for e in episodes if e.game == 1][:2])
    other = PursuitWorld(games=1, **RICH, **MODES["masked"])
    other.reset(seed=third.start.seed)
    _, replayed = run(other, [act[2:4] for act in acts[first_step : first_step + third.steps]])
    assert replayed[0].steps == third.steps
    assert dict(replayed[0].facts) == dict(third.facts)
    np.testing.assert_array_equal(replayed[0].returns, third.returns)


def test_capture_terminates_both_slots_and_returns_the_next_first_observation():
    world = still([[0, 0, 0], [0.54, 0, 0]])
    obs, rewards, term, trunc, info = world.step(np.array([[1.0, 0], [0, 0]]))
    assert term.all()
    assert not trunc.any()
    assert rewards[0] == pytest.approx(100 + 0.05 / np.hypot(10, 10))
    assert rewards[1] == -rewards[0]
    assert info["_final_obs"].all()
    assert info["final_obs"][0, 10] == pytest.approx(0.49 / np.hypot(10, 10), abs=1e-6)
    np.testing.assert_array_equal(obs, world.observe()[0])
    assert world.records["t"][0] == 0
    episode = info["episodes"][0]
    assert (episode.ended, episode.steps) == ("captured", 1)
    assert episode.facts["capture_time_s"] == pytest.approx(0.05)
    assert episode.facts["init_distance_m"] == pytest.approx(0.54)
    assert episode.facts["min_distance_m"] == pytest.approx(0.49)


@pytest.mark.parametrize("terminates", [False, True])
def test_a_time_out_truncates_unless_it_is_told_to_terminate(terminates):
    world = still([[-2, 0, 0], [2, 0, 0]], max_steps=3, timeout_terminates=terminates)
    for _ in range(3):
        _, rewards, term, trunc, info = world.step(np.zeros((2, 2)))
    assert term.all() == terminates
    assert trunc.all() != terminates
    np.testing.assert_allclose(rewards, [-100, 100])
    assert info["episodes"][0].ended == "escaped"
    assert info["episodes"][0].facts["escaped"] == 1
    assert "capture_time_s" not in info["episodes"][0].facts


def test_a_requested_reset_cuts_only_its_own_game():
    world = PursuitWorld(games=3, **SMALL)
    world.reset(seed=0)
    world.request_reset([2])
    _, _, term, trunc, info = world.step(np.zeros((6, 2)))
    np.testing.assert_array_equal(trunc, [False, False, True, True, False, False])
    assert not term.any()
    assert [e.ended for e in info["episodes"]] == ["cut"]
    *_, info = world.step(np.zeros((6, 2)))
    assert "episodes" not in info


def test_queued_starts_are_used_in_order_and_reported():
    world = PursuitWorld(games=2, n_obstacles=2, **SMALL)
    pose = np.array([[-1.0, 0, 0], [3.0, 1.0, 2.0]])
    rock = np.array([[0.0, 3.0, 0.5]])
    snap = Start(
        snapshot={"pose": pose, "obstacles": rock, "n_obstacles": np.int64(1)}, label="rock", seed=9
    )
    world.queue_starts([0, 2], [Start(seed=77, label="known"), snap])
    world.queue_starts([0], [snap])
    world.reset(seed=0)
    alone = PursuitWorld(games=1, n_obstacles=2, **SMALL)
    alone.reset(seed=77)
    np.testing.assert_array_equal(world.records["pose"][0], alone.records["pose"][0])
    np.testing.assert_array_equal(world.records["pose"][1], pose)
    np.testing.assert_array_equal(world.obstacles[1, 0], rock[0])
    world.request_reset([0, 2])
    *_, info = world.step(np.zeros((4, 2)))
    assert [e.start.label for e in info["episodes"]] == ["known", "rock"]
    np.testing.assert_array_equal(world.records["pose"][0], pose)
    assert world.records["n_obstacles"][1] == 2
    world.request_reset([0])
    *_, info = world.step(np.zeros((4, 2)))
    assert info["episodes"][0].start.label == "rock"
    assert world.records["n_obstacles"][0] == 2


def test_a_start_without_seed_or_with_a_bad_snapshot_is_refused():
    world = PursuitWorld()
    for start in (
        Start(),
        Start(seed=-1),
        Start(snapshot={"pose": np.zeros(3)}),
        Start(snapshot={"pose": np.zeros((2, 3)), "n_obstacles": np.int64(2)}),
    ):
        with pytest.raises(ConfigError):
            world.queue_starts([0], [start])


@pytest.mark.parametrize("mode", MODES)
def test_stepping_goes_on_bit_for_bit_from_a_saved_state(mode):
    options = {**RICH, **MODES[mode], "games": 6}
    world = PursuitWorld(**options)
    world.queue_starts([0, 2], [Start(seed=3, label="a"), Start(seed=4, label="b")])
    world.reset(seed=1)
    acts = actions_of(world, 2, 100)
    run(world, acts[:33])
    world.queue_starts([4], [Start(seed=8, label="c")])
    world.set_value("survival_bonus", 0.2)
    state = world.get_state()
    obs, mask = world.observe()
    ours, episodes = run(world, acts[33:])
    other = PursuitWorld(**options)
    other.reset(seed=99)
    other.set_state(state)
    np.testing.assert_array_equal(other.observe()[0], obs)
    np.testing.assert_array_equal(other.observe()[1], mask)
    theirs, theirs_episodes = run(other, acts[33:])
    assert_same(ours, theirs)
    assert len(episodes) > 3
    assert [(e.start.brief(), e.facts) for e in episodes] == [
        (e.start.brief(), e.facts) for e in theirs_episodes
    ]


@pytest.mark.parametrize("mode", MODES)
def test_one_thread_and_two_threads_give_the_same_numbers(mode):
    results = []
    for threads in (1, 2):
        world = PursuitWorld(**{**RICH, **MODES[mode], "games": 5, "threads": threads})
        world.reset(seed=1)
        results.append(run(world, actions_of(world, 2, 90))[0])
        world.close()
    assert_same(*results)


def test_an_edited_state_recomputes_what_follows_from_it():
    world = PursuitWorld(games=2, n_obstacles=1, **SMALL)
    world.reset(seed=0)
    state = world.get_state()
    state["pose"][0] = [[-2, 0, 0], [2, 0, 0]]
    state["n_obstacles"][0] = 0
    for given in (
        state,
        {k: state[k] for k in ("pose", "obstacles", "n_obstacles", "last_action", "t")},
    ):
        world.set_state(given)
        assert world.observe()[0][0, 10] == pytest.approx(4 / np.hypot(10, 10), abs=1e-7)
        _, rewards, *_ = world.step(np.array([[1.0, 0], [0, 0], [0, 0], [0, 0]]))
        assert rewards[0] == pytest.approx(0.05 / np.hypot(10, 10), abs=1e-12)


def test_headings_of_many_turns_are_brought_back():
    turned = still([[-2, 0, 4 * np.pi], [2, 0, -7.0]])
    plain = still([[-2, 0, 0], [2, 0, -7.0 + 2 * np.pi]])
    np.testing.assert_allclose(turned.observe()[0], plain.observe()[0], atol=1e-6)
    state = turned.get_state()
    state["pose"][0, :, 2] += 6 * np.pi
    turned.set_state(state)
    np.testing.assert_allclose(turned.observe()[0], plain.observe()[0], atol=1e-6)


def test_padding_of_edited_obstacles_is_not_kept():
    world = PursuitWorld(games=1, **SMALL)
    world.reset(seed=0)
    state = world.get_state()
    state["obstacles"] = np.full((1, 9, 3), np.nan)
    state["obstacles"][0, 0] = [0.0, 0.0, 0.5]
    state["n_obstacles"][0] = 1
    world.set_state(state)
    kept = world.get_state()["obstacles"]
    np.testing.assert_array_equal(kept[0, 0], [0.0, 0.0, 0.5])
    assert np.isfinite(kept).all()


def test_a_state_that_does_not_fit_is_refused():
    world, other = PursuitWorld(games=2), PursuitWorld(games=3)
    world.reset(seed=0)
    other.reset(seed=0)
    with pytest.raises(ConfigError, match="as many games"):
        world.set_state(other.get_state())
    state = world.get_state()
    del state["t"]
    with pytest.raises(ConfigError, match="missing: t"):
        world.set_state(state)
    state = world.get_state()
    state["pose"][0, 0, 0] = np.nan
    with pytest.raises(ConfigError, match="not finite"):
        world.set_state(state)
    state = world.get_state()
    state["n_obstacles"][:] = 9
    with pytest.raises(ConfigError, match="obstacle_capacity=9"):
        world.set_state(state)


def test_reward_components_add_up_to_the_returns():
    world = PursuitWorld(games=20, **RICH, **MODES["masked"])
    world.reset(seed=0)
    _, episodes = run(world, actions_of(world, 0, 120))
    assert len(episodes) > 20
    for e in episodes:
        for me, role in enumerate(("pursuer", "evader")):
            parts = sum(v for k, v in e.facts.items() if k.startswith(f"reward/{role}/"))
            assert parts == pytest.approx(e.returns[me], abs=1e-9)
    for part in ("pursuer/search", "pursuer/wall", "evader/survival", "evader/approach"):
        assert any(e.facts[f"reward/{part}"] != 0 for e in episodes), part


def test_values_act_from_the_next_reset_on():
    world = PursuitWorld(games=50, **SMALL)
    world.reset(seed=0)
    world.set_values({"min_init_distance": 2.0, "max_init_distance": 2.5, "n_obstacles": 2})
    assert (world.records["n_obstacles"] == 0).all()
    world.reset()
    assert (world.records["distance"] <= 2.5).all()
    assert (world.records["n_obstacles"] == 2).all()


def test_a_weight_turned_on_in_mid_episode_pays_from_the_present_state_on():
    worlds = [PursuitWorld(games=4, n_obstacles=2, w_obs_approach=w, **SMALL) for w in (5.0, 0.0)]
    acts = actions_of(worlds[0], 0, 12)
    for world in worlds:
        world.reset(seed=0)
        run(world, acts[:6])
    worlds[1].set_value("w_obs_approach", 5.0)
    assert_same(run(worlds[0], acts[6:])[0], run(worlds[1], acts[6:])[0])


def test_games_of_another_level_keep_their_own_values():
    world = PursuitWorld(games=40, **SMALL)
    world.set_levels([1] * 10 + [0] * 30)
    world.set_value("max_init_distance", 3.0, level=1)
    world.reset(seed=0)
    assert (world.records["distance"][:10] <= 3.0).all()
    assert (world.records["distance"][10:] > 3.0).any()
    other = PursuitWorld(games=40, **SMALL)
    other.set_state(world.get_state())
    assert other.value("max_init_distance", level=1) == 3.0
    np.testing.assert_array_equal(other.records["row"], world.records["row"])


@pytest.mark.parametrize(
    ("share", "games", "old"), [(0.1, 4, 1), (0.6, 1, 1), (0.0, 4, 0), (0.25, 8, 2), (1.5, 4, 4)]
)
def test_a_share_of_mixed_levels_is_one_game_at_least(share: float, games: int, old: int) -> None:
    world = PursuitWorld(games=games)
    world.set_value("mixed_share", share)
    assert world.value("mixed_share") == old / games


def test_mixed_games_begin_at_distances_of_their_own():
    world = PursuitWorld(games=40, **SMALL)
    values = {"mixed_min_init_distance": 2.0, "mixed_max_init_distance": 3.0, "mixed_share": 0.25}
    for name, value in {**values, "min_init_distance": 5.0}.items():
        world.set_value(name, value)
    assert {name: world.value(name) for name in values} == values
    world.reset(seed=0)
    distance = world.records["distance"]
    assert (distance[:10] >= 2.0).all() and (distance[:10] <= 3.0).all()
    assert (distance[10:] >= 5.0).all()
    world.set_value("mixed_min_init_distance", -1)
    assert (world.value("mixed_max_init_distance"), world.value("mixed_share")) == (-1, 0)


def test_the_pursuer_may_turn_but_not_drive_in_the_preparation():
    world = still([[-2, 0, 0], [2, 0, 0]], prep_steps=2)
    for step in range(3):
        world.step(np.array([[1.0, 1.0], [0, 0]]))
        moved = world.records["pose"][0, 0, 0] > -2
        assert moved == (step == 2)
    assert world.records["pose"][0, 0, 2] == pytest.approx(0.15)


def test_fixed_speed_takes_omega_alone_and_unit_actions_are_parts_of_the_own_limits():
    world = still([[-2, 0, 0], [2, 0, 0]], fixed_speed=True, evader_v_max=0.5)
    assert world.single_action_space.shape == (1,)
    world.step(np.zeros((2, 1)))
    np.testing.assert_allclose(world.records["pose"][0, :, 0], [-1.95, 2.025])
    world = still(
        [[-2, 0, 0], [2, 0, 0]], unit_actions=True, evader_v_max=0.5, evader_omega_max=10.0
    )
    world.step(np.array([[1.0, 1.0], [1.0, -1.0]]))
    np.testing.assert_allclose(
        world.records["last_action"][0], [[1.0, 2.84], [0.5, -10.0]], rtol=1e-6
    )


def test_each_role_keeps_its_own_speed_limit_in_the_shared_action_space():
    world = still([[-2, 0, 0], [2, 0, 0]], evader_v_max=1.2)
    assert world.single_action_space.high[0] == np.float32(1.2)
    world.step(np.array([[1.2, 0.0], [1.2, 0.0]]))
    np.testing.assert_allclose(world.records["last_action"][0, :, 0], [1.0, 1.2], rtol=1e-6)


def test_an_action_that_is_no_number_counts_as_zero():
    world = still([[-2, 0, 0], [2, 0, 0]])
    obs, rewards, *_ = world.step(np.array([[np.nan, np.inf], [-np.inf, np.nan]]))
    assert np.isfinite(obs).all()
    assert (rewards == 0).all()


def test_rows_of_any_layout_can_be_stepped_into():
    a, b = PursuitWorld(games=3, **SMALL), PursuitWorld(games=3, **SMALL)
    a.reset(seed=0)
    b.reset(seed=0)
    act = actions_of(a, 0, 1)[0]
    wide = np.zeros((6, 2, 14))
    n = 6
    rest = [np.zeros(n), np.zeros(n, bool), np.zeros(n, bool), np.zeros(n, bool)]
    b.step_into(act, wide[:, 1], *rest)
    np.testing.assert_array_equal(a.step(act)[0], wide[:, 1].astype(np.float32))


def test_games_begin_at_a_distance_that_chance_would_not_find():
    world = PursuitWorld(games=32, n_obstacles=2, min_init_distance=4.0, max_init_distance=4.0)
    world.reset(seed=3)
    pose = world.get_state()["pose"]
    apart = np.linalg.norm(pose[:, 0, :2] - pose[:, 1, :2], axis=1)
    np.testing.assert_allclose(apart, 4.0, atol=1e-5)
    assert len(np.unique(pose[:, 0, 0])) == 32
    assert (np.abs(pose[:, :, :2]) <= world.options.arena_width / 2).all()
