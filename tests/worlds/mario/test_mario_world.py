"""The mario world: the contract, exact states, starts, scripts, threads, and what an episode records.

Needs the user's ROM: `pip install --no-deps gym-super-mario-bros==7.4.0`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.errors import AssetError, ConfigError, EnvironmentFault
from holdfast.records import Episode, Start
from holdfast.tables import field_docs
from holdfast.worlds import make_world, options_type
from holdfast.worlds.check import check_world
from holdfast.worlds.mario import MarioOptions, MarioWorld
from holdfast.worlds.mario import memory as at
from holdfast.worlds.mario.books import ENDS
from holdfast.worlds.mario.machine import FRAMES
from holdfast.worlds.mario.rewards import COMPONENTS
from holdfast.worlds.mario.stages import booted
from holdfast.worlds.mario.starts import snapshot_start, stage_start

PRESSES = json.loads((Path(__file__).parents[2] / "golden" / "nes_smb.json").read_text())[
    "1-1 searched 0"
]["presses"]
"""Buttons and frames of a run that clears 1-1."""


def make(**settings: Any) -> MarioWorld:
    seed = settings.pop("seed", 3)
    return MarioWorld(MarioOptions(**{"games": 2, "observation": "tiles", **settings}), seed=seed)


def act(world: MarioWorld, name: str) -> Any:
    return np.full(world.games, world.action_names.index(name))


def hold(world: MarioWorld, name: str, steps: int) -> list[Episode]:
    """Hold one action and return the episodes that ended."""
    found: list[Episode] = []
    for _ in range(steps):
        found += world.step(act(world, name))[4].get("episodes", [])
    return found


def poke(world: MarioWorld, game: int, address: int, *values: int) -> None:
    world._machines.ram[game, address : address + len(values)] = values


def trace(world: MarioWorld, actions: Any) -> list[Any]:
    return [world.step(row)[:4] for row in actions]


def assert_same(first: list[Any], second: list[Any]) -> None:
    for t, (one, two) in enumerate(zip(first, second, strict=True)):
        for a, b in zip(one, two, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"step {t + 1}")


@pytest.mark.parametrize("observation", ["pixels", "tiles"])
def test_the_checker_finds_nothing(observation: str) -> None:
    problems = check_world(lambda: make(observation=observation, noops=5), steps=120)
    assert problems == []


def test_the_checker_finds_nothing_with_limits_clips_and_stages() -> None:
    options = {
        "stages": "1-1,1-4,2-2",
        "stage_schedule": "curriculum",
        "max_steps": 40,
        "stagnation_steps": 12,
        "reward_clip": 0.5,
        "anneal": "death>-50@500",
        "trail_every": 7,
    }
    assert check_world(lambda: make(games=3, **options), steps=150) == []


def test_it_is_made_by_name_with_pictures_to_stack() -> None:
    options = options_type("mario")(games=2, stack=3)
    world = make_world("mario", options, seed=1)
    assert isinstance(world, MarioWorld)
    assert world.single_observation_space.shape == (84, 84)
    assert world.single_observation_space.dtype == np.uint8
    assert world.frame_stack == 3 and make().frame_stack == 1
    assert world.roles == ("mario", "mario")
    obs, _ = world.reset(seed=1)
    assert obs.dtype == np.uint8 and obs.std() > 10


def test_holding_right_dies_at_the_first_goomba_and_is_recorded_so() -> None:
    episodes = hold(make(noops=0), "RIGHT", 45)
    assert len(episodes) == 2
    episode = episodes[0]
    assert episode.ended == "death_enemy"
    assert episode.start.label == "1-1"
    assert 290 <= episode.facts["x"] <= 302 and episode.facts["best_x"] == episode.facts["x"]
    assert episode.facts["end_death_enemy"] == 1.0 and episode.facts["clear"] == 0.0
    assert episode.facts["lives"] == 2.0 and episode.facts["timer"] == 392.0
    assert episode.detail["actions"]["RIGHT"] == episode.steps
    assert episode.detail["place"].startswith("1-1:37:2")


def test_a_tick_of_the_timer_lasts_as_many_frames_as_the_settings_say() -> None:
    world = make(games=1, skip=1, stagnation_steps=0, noops=0)
    timers = []
    for _ in range(200):
        world.step(act(world, "NOOP"))
        timers.append(int(world.records()["timer"][0]))
    assert timers[0] - timers[-1] == 10 and timers.count(timers[0] - 5) == 20
    assert "(20 frames)" in field_docs(MarioOptions)["reward_time"]


def test_the_golden_run_clears_1_1() -> None:
    """Played frame by frame as a script: the presses were searched for single frames."""
    world = make(games=1, skip=1, stagnation_steps=0, noops=0, trail=0)
    # The recorded run begins on the booted frame itself, and a script after one step of the policy's.
    machine = stage_machine(world)
    pads = [buttons for buttons, frames in PRESSES for _ in range(frames)]
    episodes = []
    world._books.script_at[:] = 0
    world._books = world._books._replace(script=np.array([pads], np.uint8))
    world._books.script_end[:] = len(pads)
    world._books.forced[:] = True
    world._machines.load_machine(0, machine)
    for _ in range(len(pads)):
        _, rewards, terminations, truncations, info = world.step(act(world, "NOOP"))
        assert rewards[0] == 0.0
        if "episodes" in info:
            episodes = info["episodes"]
            break
    assert terminations[0] and not truncations[0]
    (episode,) = episodes
    assert episode.ended == "clear" and episode.facts["clear"] == 1.0
    assert episode.facts["x"] == 3161.0 and episode.facts["timer"] == 339.0
    assert episode.steps == episode.facts["scripted"] == 1203
    # The next episode has begun, at the start of the stage and without the rest of the script.
    assert info["mask"][0] and world.records()["x"][0] == 40


def stage_machine(world: MarioWorld) -> Any:
    return booted(world.options.rom, world.options.any_rom, (1, 1))


def golden_moment(x: int) -> dict[str, Any]:
    """Return the console of the golden run when Mario has come as far as `x`."""
    world = make(games=1)
    machines = world._machines
    machines.load_machine(0, stage_machine(world))
    for pad in (buttons for buttons, frames in PRESSES for _ in range(frames)):
        machines.run(pad, 1)
        if int(machines.ram[0, at.X_PAGE]) * 256 + int(machines.ram[0, at.X_LOW]) >= x:
            break
    return world.machine(0)


@pytest.mark.parametrize("observation", ["pixels", "tiles"])
def test_a_clear_pays_its_bonus_and_terminates(observation: str) -> None:
    world = make(games=1, observation=observation, reward_progress=0.0, reward_time=0.0)
    world.queue_starts([0], [Start(snapshot=golden_moment(3120))])
    world.reset()
    assert hold(world, "RIGHT+B", 3) == []  # A was held: it must be released before the next jump
    (episode,) = hold(world, "RIGHT+A+B", 20)
    assert episode.ended == "clear" and episode.start.type == "fresh"
    assert episode.returns[0] == pytest.approx(50 / 15)
    assert 3155 < episode.facts["x"] < 3165


def test_a_fall_into_a_pit_and_running_out_of_time_have_their_own_reasons() -> None:
    world = make(noops=0)
    poke(world, 0, at.Y_PAGE, 2)
    poke(world, 1, at.TIMER, 0, 0, 1)
    found = {e.game: e for e in hold(world, "NOOP", 12)}
    assert found[0].ended == "death_pit" and found[1].ended == "time_up"
    assert found[0].facts["death"] == found[1].facts["death"] == 1.0


def test_a_warp_ends_the_episode_without_a_clear() -> None:
    world = make(noops=0)
    poke(world, 0, at.WORLD, 3)
    (episode,) = hold(world, "NOOP", 1)
    assert (episode.ended, episode.facts["clear"]) == ("warp", 0.0)


def test_the_step_limit_cuts_with_a_final_observation_and_stagnation_terminates() -> None:
    world = make(max_steps=10, stagnation_steps=0)
    for _ in range(9):
        _, _, terminations, truncations, _ = world.step(act(world, "RIGHT"))
        assert not (terminations | truncations).any()
    obs, _, terminations, truncations, info = world.step(act(world, "RIGHT"))
    assert truncations.all() and not terminations.any()
    assert info["_final_obs"].all() and info["episodes"][0].ended == "timeout_steps"
    assert not np.array_equal(info["final_obs"], obs)

    world = make(stagnation_steps=10, reward_stagnation=-15.0)
    for k in range(10):
        _, _, terminations, truncations, info = world.step(act(world, "LEFT"))
        assert terminations.all() == (k == 9) and not truncations.any()
    assert info["episodes"][0].ended == "stagnation"
    assert info["episodes"][0].facts["reward_stagnation"] == -1.0


def test_a_reset_that_was_asked_for_is_forced() -> None:
    world = make()
    world.request_reset([1])
    _, _, terminations, truncations, info = world.step(act(world, "NOOP"))
    assert truncations.tolist() == [False, True] and not terminations.any()
    assert info["episodes"][0].ended == "forced" and info["episodes"][0].cut


def test_every_reason_is_in_the_closed_list() -> None:
    assert ENDS == (
        "", "clear", "death_enemy", "death_pit", "time_up", "warp",
        "stagnation", "timeout_steps", "forced", "env_restart",
    )  # fmt: skip


def test_the_components_of_an_episode_add_up_to_its_return() -> None:
    world = make(games=8, reward_score=1.0, reward_coins=2.0, reward_milestone=3.0, reward_clip=0.4)
    world.action_space.seed(5)
    total, episodes = np.zeros(8), []
    for _ in range(300):
        _, rewards, _, _, info = world.step(world.action_space.sample())
        total += rewards
        for e in info.get("episodes", []):
            episodes.append(e)
            parts = sum(e.facts[f"reward_{name}"] for name in COMPONENTS)
            assert e.returns[0] == pytest.approx(parts)
            assert e.returns[0] == pytest.approx(total[e.game])
            total[e.game] = 0.0
    assert episodes


@pytest.mark.parametrize("observation", ["pixels", "tiles"])
def test_a_snapshot_start_replays_bit_for_bit(observation: str) -> None:
    world = make(observation=observation)
    rng = np.random.default_rng(2)
    for _ in range(25):
        world.step(rng.integers(0, 7, 2))
    start = snapshot_start(world, 0, label="here")
    here = world.observe()[0][0]
    actions = rng.integers(0, 7, (60, 2))
    actions[20:] = world.action_names.index("RIGHT")
    first = trace(world, actions)
    other = make(observation=observation, seed=77)
    other.queue_starts([0, 1], [start, start])
    obs, _ = other.reset()
    np.testing.assert_array_equal(obs[0], here)
    second = trace(other, np.stack([actions[:, 0]] * 2, axis=1))
    assert any(step[2][0] for step in first), "the stretch ends with a death"
    for one, two in zip(first, second, strict=True):
        over = bool(one[2][0])  # then the observation is of the next episode, whose seed is another
        for a, b in zip(one[over:], two[over:], strict=True):
            np.testing.assert_array_equal(a[0], b[0])
            np.testing.assert_array_equal(b[0], b[1])
        if over:
            break


def test_a_start_before_a_death_comes_with_its_episode() -> None:
    world = make(games=1, trail_every=10, noops=0)
    (episode,) = hold(world, "RIGHT", 41)
    start = episode.detail["before"]
    assert (start.type, start.id) == ("tail", episode.detail["place"])
    world.queue_starts([0], [start])
    world.reset()
    assert 100 < world.records()["x"][0] < 290
    (again,) = hold(world, "RIGHT", 20)
    assert again.ended == "death_enemy" and again.start.id == start.id
    assert 10 <= again.steps < 20
    assert again.facts["x"] == episode.facts["x"]


def test_there_is_no_start_before_the_time_is_up() -> None:
    world = make(games=1, skip=60, trail_every=2, noops=0, stagnation_steps=0)
    (episode,) = hold(world, "NOOP", 140)
    assert episode.ended == "time_up" and episode.facts["death"] == 1.0
    assert episode.detail["before"] is None, "from there every episode would end the same way"


def test_a_start_of_another_stage_can_be_queued_anywhere() -> None:
    world = make()
    world.queue_starts([0], [stage_start(world.options, "4-2", seed=7)])
    world.reset()
    records = world.records()
    assert (records["world"].tolist(), records["stage"].tolist()) == ([4, 1], [2, 1])
    assert [s.label for s in world.current_starts()] == ["4-2", "1-1"]


def test_a_snapshot_that_does_not_fit_is_refused() -> None:
    world = make()
    with pytest.raises(ConfigError, match="'ram' with nothing"):
        world.queue_starts([0], [Start(snapshot={"vram": np.zeros(2048, np.uint8)})])
    for name, shape in (("area_best", (128,)), ("frame", (84, 84))):
        wrong = {**world.snapshot(0), name: np.zeros(3, np.int64)}
        with pytest.raises(
            ConfigError, match=re.escape(f"'{name}' with shape (3,). Allowed: shape {shape}")
        ):
            world.queue_starts([0], [Start(snapshot=wrong)])
    snapshot = {**world.snapshot(0)}
    snapshot["ram"] = snapshot["ram"].copy()
    snapshot["ram"][at.SUBROUTINE] = 4
    with pytest.raises(ConfigError, match="taken in a cut-scene"):
        world.queue_starts([0], [Start(snapshot=snapshot)])


@pytest.mark.parametrize("observation", ["pixels", "tiles"])
def test_the_state_goes_on_bit_for_bit_in_another_world(observation: str) -> None:
    settings = {
        "games": 3, "observation": observation, "stages": "1-1,1-2,1-4",
        "stage_schedule": "random", "anneal": "progress>0.5@200", "trail_every": 8,
    }  # fmt: skip
    world = make(**settings)
    rng = np.random.default_rng(4)
    for _ in range(30):
        world.step(rng.integers(0, 7, 3))
    world.override([1], "LEFT:20")
    world.set_value("reward_death", -3.0)
    world.step(rng.integers(0, 7, 3))
    state = world.get_state()
    actions = rng.integers(0, 7, (70, 3))
    first = trace(world, actions)
    other = make(seed=99, **settings)
    other.set_state(state)
    assert other.value("reward_death") == -3.0
    np.testing.assert_array_equal(other.observe()[1], [True, False, True])
    assert_same(first, trace(other, actions))
    assert world.get_state().keys() == other.get_state().keys()
    for name, value in world.get_state().items():
        assert np.array_equal(value, other.get_state()[name]), name


def test_a_state_of_other_options_is_refused() -> None:
    with pytest.raises(EnvironmentFault, match="with the options that the state was saved under"):
        make(games=3).set_state(make().get_state())


def test_cut_scenes_are_skipped_and_saved_exactly() -> None:
    """Mario goes down the pipe at x 912 of 1-1: the next thing that anybody sees is the bonus room."""
    world = make(games=1, observation="pixels", actions="complex", stagnation_steps=0, trail=0)
    world.queue_starts([0], [Start(snapshot=on_the_pipe())])
    world.reset()
    state, frames = world.get_state(), int(world._machines.bank.regs[0, FRAMES])
    down = world.action_names.index("DOWN")
    first = trace(world, np.full((3, 1), down))
    assert world.records()["area"][0] != 37, "Mario is in the bonus room"
    assert int(world._machines.bank.regs[0, FRAMES]) - frames > 60, "within three steps"
    assert world._machines.ram[0, at.SUBROUTINE] == at.CONTROLLED
    assert all(step[1][0] <= 0.0 for step in first), "arriving somewhere else is no ground won"
    assert not any(step[2][0] or step[3][0] for step in first)
    world.set_state(state)
    assert_same(first, trace(world, np.full((3, 1), down)))


def on_the_pipe() -> dict[str, Any]:
    """Return the golden run's console with Mario lifted onto the pipe: 57 blocks in, 4 high."""
    moment = golden_moment(900)
    ram = moment["ram"]
    ram[at.X_PAGE], ram[at.X_LOW] = divmod(57 * 16 + 8, 256)
    ram[at.Y_LOW] = 208 - 4 * 16 - 32
    ram[[at.X_SPEED, at.Y_SPEED, at.FLOAT]] = 0
    return moment


def test_a_script_plays_after_the_next_step_masked_and_without_reward() -> None:
    world = make(noops=0)
    assert world.override([1], "RIGHT+B:5") == 5
    masks, xs = [], [world.records()["x"][1]]
    for _ in range(8):
        _, rewards, _, _, info = world.step(act(world, "NOOP"))
        if masks and not masks[-1][1]:
            assert rewards[1] == 0.0
        masks.append(info["mask"].tolist())
        xs.append(world.records()["x"][1])
    assert [m[1] for m in masks] == [False] * 5 + [True] * 3
    assert all(m[0] for m in masks)
    assert xs[1] == xs[0] and xs[6] > xs[2] > xs[1]
    assert world.records()["scripted"].tolist() == [0, 5]
    # The ground that the script won is not paid to the policy afterwards.
    assert world._books.sums[1, 0] <= world.records()["x"][1] / 15 - xs[6] / 15 + 1e-9


def test_a_script_that_presses_start_does_not_leave_the_game_paused() -> None:
    world = make(games=1, noops=0)
    world.override([0], "START:8,RIGHT+B:20")
    world.step(act(world, "NOOP"))
    for _ in range(8):
        world.step(act(world, "NOOP"))
    assert world._machines.ram[0, at.PAUSED] & 1
    assert world.records()["x"][0] == 40
    for _ in range(20):
        world.step(act(world, "NOOP"))
    assert world._machines.ram[0, at.PAUSED] & 1 == 0
    assert world.records()["x"][0] > 150


def test_a_death_in_a_script_ends_the_script() -> None:
    world = make(games=1, noops=0)
    world.override([0], "RIGHT:500")
    episodes = hold(world, "NOOP", 45)
    assert episodes[0].ended == "death_enemy" and episodes[0].returns[0] == 0.0
    assert world.observe()[1].all()


def test_what_a_script_did_is_not_in_the_rates_of_the_stages() -> None:
    world = make(games=1, noops=0)
    world.override([0], "RIGHT:500")
    assert hold(world, "NOOP", 45)[0].facts["scripted"] > 0
    assert world.stage_rates()["1-1"] == (0.0, 0)
    assert hold(world, "RIGHT", 60)[0].facts["scripted"] == 0
    assert world.stage_rates()["1-1"] == (0.0, 1)


@pytest.mark.parametrize("observation", ["pixels", "tiles"])
def test_one_and_two_threads_agree_bit_for_bit(observation: str) -> None:
    actions = np.random.default_rng(1).integers(0, 7, (80, 5))
    runs = []
    for threads in (1, 2):
        world = make(games=5, observation=observation, threads=threads, stages="1-1,1-2,3-1")
        world.override([2], "RIGHT+A:10")
        runs.append(trace(world, actions))
        world.close()
    assert_same(*runs)


def test_values_are_read_back_clipped_and_end_annealing() -> None:
    world = make(anneal="death>-50@100,scale>0.1@1000")
    assert world.value("reward_death") == -25.0
    for _ in range(25):
        world.step(act(world, "NOOP"))
    assert world.env_steps == 50
    assert world.value("reward_death") == pytest.approx(-37.5)
    world.set_value("reward_death", -5.0)
    for _ in range(5):
        world.step(act(world, "NOOP"))
    assert world.value("reward_death") == -5.0
    world.set_value("reward_progress", -1.0)
    assert world.value("reward_progress") == 0.0
    world.set_value("stagnation_steps", 33.4)
    assert world.value("stagnation_steps") == 33.0
    with pytest.raises(ConfigError, match="Did you mean 'reward_death'"):
        world.set_value("reward_deth", 1.0)


def test_a_value_that_is_unset_is_annealed_by_the_clock_of_the_run() -> None:
    world = make(anneal="death>-50@100")
    world.set_value("reward_death", -5.0)
    world.set_value("max_steps", 7)
    world.set_clock(40)
    assert world.value("reward_death") == -5.0
    world.unset_value("reward_death")
    world.unset_value("max_steps")
    assert world.value("reward_death") == pytest.approx(-35.0)
    assert world.value("max_steps") == world.options.max_steps
    world.step(act(world, "NOOP"))
    assert world.env_steps == 42
    world.set_clock(50, ticks=False)
    world.step(act(world, "NOOP"))
    assert world.env_steps == 50 and world.value("reward_death") == pytest.approx(-37.5)


def test_a_missing_cartridge_is_an_asset_error() -> None:
    with pytest.raises(AssetError, match="does not exist") as caught:
        make(rom="/nowhere/smb.nes")
    assert caught.value.exit_code == 3


def test_actions_out_of_range_are_refused() -> None:
    with pytest.raises(EnvironmentFault, match="each from 0 to 6"):
        make().step(np.array([0, 7]))
