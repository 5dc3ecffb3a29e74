"""Options, grammars, schedules, rewards and stacks of the mario world: what needs no cartridge."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.cli import eval as cli_eval
from holdfast.cli import train as cli_train
from holdfast.config import resolve
from holdfast.errors import ConfigError
from holdfast.probes.mario import PROTOCOLS
from holdfast.refuse import refuse_unfit
from holdfast.worlds import OURS
from holdfast.worlds.mario import rewards as r
from holdfast.worlds.mario.actions import (
    ACTION_SETS,
    forward_action,
    name_buttons,
    pads_of,
    parse_buttons,
)
from holdfast.worlds.mario.books import (
    AREA,
    AREAS,
    BEST_X,
    CLEARED,
    COLUMNS,
    RUNNING,
    STAGNATED,
    STALL,
    STEPS,
    STUCK,
    TIMED_OUT,
    Rules,
    X,
)
from holdfast.worlds.mario.frames import Stacker, stack_rows
from holdfast.worlds.mario.machine import Bank
from holdfast.worlds.mario.options import MarioOptions, parse_anneal, parse_stages
from holdfast.worlds.mario.play import settle_step
from holdfast.worlds.mario.rewards import COMPONENTS, Weights
from holdfast.worlds.mario.script import parse_script
from holdfast.worlds.mario.stages import Schedule
from holdfast.worlds.mario.trail import Trail


def test_action_sets_have_the_golden_pad_bytes() -> None:
    assert pads_of("right").tolist() == [0, 128, 129, 130, 131]
    assert pads_of("simple").tolist() == [0, 128, 129, 130, 131, 1, 64]
    assert pads_of("complex").tolist() == [0, 128, 129, 130, 131, 1, 64, 65, 66, 67, 32, 16]
    assert pads_of("extended").tolist()[12:] == [160, 162, 33, 3, 2]


def test_no_policy_can_press_start_or_select() -> None:
    for name in ACTION_SETS:
        assert not (pads_of(name) & 0b1100).any()
        assert ACTION_SETS[name][forward_action(name)] == "RIGHT+B"


def test_button_names_are_order_insensitive() -> None:
    assert parse_buttons("RIGHT+A+B") == parse_buttons("b + a+right") == 131
    assert name_buttons(131) == "RIGHT+A+B" and name_buttons(0) == "NOOP"


def test_a_script_says_what_is_held_for_how_many_steps() -> None:
    script = parse_script("START:8, right+b:180,NOOP")
    assert script.entries == ((8, 8), (130, 180), (0, 1))
    assert script.steps == len(script.pads()) == 189
    assert parse_script(str(script)) == script


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "A script is empty"),
        ("RIGTH:3", r"entry 1 \('RIGTH:3'\): 'RIGTH' is not a button. Did you mean 'RIGHT'"),
        ("RIGHT:3,:4", "entry 2 .* names no buttons"),
        ("RIGHT:x", "'x' is not a number of steps"),
        ("RIGHT:-3", "'-3' is not a number of steps"),
        ("RIGHT:0", "lasts 0 steps"),
        ("RIGHT+RIGHT:1", "names RIGHT twice"),
        ("NOOP+A", "'NOOP' is not a button"),
        ("A:100001", "at most 100000"),
        ("A:1,", "entry 2"),
    ],
)
def test_a_wrong_script_is_refused_with_its_entry(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_script(text)


def test_stages_are_names_ranges_or_all() -> None:
    assert parse_stages("1-1") == ((1, 1),)
    assert parse_stages("1-3..2-2") == ((1, 3), (1, 4), (2, 1), (2, 2))
    assert parse_stages("4-2, 1-1") == ((4, 2), (1, 1))
    assert len(parse_stages("all")) == 32


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stages": "9-1"}, "stages from 1-1 to 8-4"),
        ({"stages": "1-5"}, "stages from 1-1 to 8-4"),
        ({"stages": ""}, "stages from 1-1 to 8-4"),
        ({"stages": "2-1..1-1"}, "stages from 1-1 to 8-4"),
        ({"stages": "1-1,1-1"}, "1-1 stands there twice"),
        ({"actions": "compelx"}, "Did you mean 'complex'"),
        ({"observation": "pixel"}, "Did you mean 'pixels'"),
        ({"stage_schedule": "all"}, "fixed, cycle, random, curriculum"),
        ({"skip": 0}, "a whole number from 1 to 60"),
        ({"skip": 2.5}, "a whole number"),
        ({"reward_time": -1.0}, "from 0 to 1000"),
        ({"crop": 1}, "true or false"),
        ({"anneal": "deth>1@10"}, "Did you mean 'reward_death'"),
        ({"anneal": "death:1"}, "name>last@env_steps"),
        ({"anneal": "death>-1@0"}, "1 or more"),
        ({"anneal": "progress>-1@10"}, "a last value from 0"),
        ({"anneal": "death>1@5,death>1@5"}, "stands there twice"),
    ],
)
def test_wrong_options_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MarioOptions(**settings)


def test_options_are_read_without_the_compiler() -> None:
    code = (
        "import sys, holdfast.worlds; holdfast.worlds.options_type('mario')(games=3);"
        "assert not {'numba', 'numpy', 'torch'} & set(sys.modules), set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_annealing_is_linear_in_env_steps() -> None:
    (entry,) = parse_anneal("death>-50@1e3")
    assert (entry.name, entry.last, entry.env_steps) == ("reward_death", -50.0, 1000)
    weights = Weights(MarioOptions(anneal="death>-50@1000,scale>0.2@100", reward_scale=0.1))
    assert weights.at(0)[r.DEATH] == -25.0
    assert weights.at(500)[r.DEATH] == -37.5
    assert weights.at(50)[r.SCALE] == pytest.approx(0.15)
    assert weights.at(5000)[r.DEATH] == -50.0


class Step:
    """One step of the reward on hand-made RAM: 1-1, x 100, timer 400, nothing won."""

    def __init__(self, **settings: Any) -> None:
        self.weights = Weights(MarioOptions(**settings)).at(0)
        self.rules = Rules(
            pads=np.zeros(1, np.uint8), skip=4, pixels=False, brightest=False, top=0,
            max_steps=0, stagnation_steps=3, milestone_pixels=64,
        )  # fmt: skip
        self.ram = np.zeros(2048, np.uint8)
        self.counts = np.zeros(len(COLUMNS), np.int64)
        self.area_best = np.full(AREAS, -1, np.int64)
        self.area_best[0] = self.counts[X] = self.counts[BEST_X] = 100
        self.move(100)
        self.time(400)
        self.counts[COLUMNS.index("timer")] = 400

    def move(self, x: int) -> None:
        self.ram[0x6D], self.ram[0x86] = divmod(x, 256)

    def time(self, timer: int) -> None:
        self.ram[0x7F8:0x7FB] = [int(d) for d in f"{timer:03}"]

    def settle(self, end: int = RUNNING, scripted: bool = False) -> tuple[dict[str, float], int]:
        parts = np.zeros(len(COMPONENTS))
        end = settle_step(
            self.ram, self.rules, self.weights, self.counts, self.area_best, parts, end, scripted, False
        )  # fmt: skip
        return {k: v for k, v in zip(COMPONENTS, parts.tolist(), strict=True) if v}, end


def test_new_ground_pays_a_fifteenth_a_pixel_and_time_costs_a_tenth_of_that_a_tick() -> None:
    step = Step()
    step.move(115)
    step.time(398)
    assert step.settle()[0] == pytest.approx({"progress": 1.0, "time": -2 * 0.1 / 15})


def test_going_back_and_forth_pays_nothing_twice() -> None:
    step = Step(reward_time=0.0)
    step.move(110)
    assert step.settle()[0] == pytest.approx({"progress": 10 / 15})
    step.move(90)
    assert step.settle()[0] == {}
    step.move(112)
    assert step.settle()[0] == pytest.approx({"progress": 2 / 15})


def test_a_maze_that_leads_back_pays_nothing_until_new_ground() -> None:
    step = Step(reward_time=0.0)
    step.move(160)
    step.settle()
    step.move(20)
    assert step.settle()[0] == {}
    step.move(80)
    assert step.settle()[0] == {} and step.counts[STALL] == 2


def test_a_maze_may_lead_back_to_before_the_beginning() -> None:
    step = Step(reward_time=0.0)
    step.ram[0x6D], step.ram[0x86] = 255, 252
    assert step.settle()[0] == {}
    assert (step.counts[X], step.counts[BEST_X]) == (-4, 100)


def test_another_area_pays_from_where_mario_arrives() -> None:
    step = Step(reward_time=0.0)
    step.ram[0x74F] = 5
    step.move(300)
    assert step.settle()[0] == {}
    assert (step.counts[AREA], step.counts[BEST_X]) == (5, 300)
    step.move(303)
    assert step.settle()[0] == pytest.approx({"progress": 3 / 15})
    step.ram[0x74F] = 0
    step.move(101)
    assert step.settle()[0] == {}, "coming back is no ground won"
    step.move(400)
    assert step.settle()[0] == {}, "nobody runs 299 pixels in a step"


def test_score_coins_and_power_have_their_own_components() -> None:
    step = Step(
        reward_time=0.0, reward_score=0.5, reward_coins=2.0, reward_power=3.0, reward_scale=0.1
    )
    step.ram[0x7DD:0x7E3] = [0, 0, 0, 0, 2, 0]  # 200 points
    step.ram[0x75E] = 1
    step.ram[0x756] = 1
    assert step.settle()[0] == pytest.approx({"score": 0.1, "coins": 0.2, "power": 0.3})
    step.ram[0x75E], step.ram[0x756] = 0, 0  # the hundredth coin starts from 0; Mario was hit
    step.counts[COLUMNS.index("coins")] = 99
    assert step.settle()[0] == pytest.approx({"coins": 0.2, "power": -0.3})


def test_milestones_are_paid_once_an_episode() -> None:
    step = Step(reward_time=0.0, reward_progress=0.0, reward_milestone=15.0)
    step.move(127)
    assert step.settle()[0] == {}
    step.move(128)
    assert step.settle()[0] == pytest.approx({"milestone": 1.0})
    step.move(120)
    step.settle()
    step.move(129)
    assert step.settle()[0] == {}


def test_the_clip_spares_the_ends_and_is_accounted_for() -> None:
    step = Step(reward_time=0.0, reward_clip=0.5)
    step.move(115)
    parts, end = step.settle(CLEARED)
    assert end == CLEARED
    assert parts == pytest.approx({"progress": 1.0, "clipped": -0.5, "clear": 50 / 15})


def test_a_death_costs_and_a_hang_costs_nothing() -> None:
    step = Step(reward_time=0.0)
    assert step.settle(2)[0] == pytest.approx({"death": -25 / 15})
    step.move(110)
    assert step.settle(STUCK)[0] == {}


def test_a_script_earns_nothing_but_its_ground_is_gone() -> None:
    step = Step(reward_time=0.0)
    step.move(110)
    assert step.settle(scripted=True)[0] == {}
    step.move(111)
    assert step.settle()[0] == pytest.approx({"progress": 1 / 15})


def test_stagnation_counts_steps_without_new_ground() -> None:
    step = Step(reward_time=0.0)
    assert [step.settle()[1] for _ in range(3)] == [RUNNING, RUNNING, STAGNATED]
    step = Step()
    step.rules = step.rules._replace(max_steps=2)
    assert [step.settle()[1] for _ in range(2)] == [RUNNING, TIMED_OUT]


def test_fixed_and_cycled_stages_go_round() -> None:
    fixed = Schedule(MarioOptions(stages="1-1..1-3"))
    assert [fixed.choose(9, g, 5) for g in range(4)] == [(1, 1), (1, 2), (1, 3), (1, 1)]
    cycle = Schedule(MarioOptions(stages="1-1..1-3", stage_schedule="cycle"))
    assert [cycle.choose(9, 1, e) for e in range(3)] == [(1, 2), (1, 3), (1, 1)]


def test_random_stages_follow_from_the_seed_alone() -> None:
    schedule = Schedule(MarioOptions(stages="all", stage_schedule="random"))
    drawn = [schedule.choose(seed, 0, 0) for seed in range(3200)]
    assert drawn == [schedule.choose(seed, 7, 3) for seed in range(3200)]
    counts = [drawn.count(stage) for stage in schedule.stages]
    assert min(counts) > 60 and max(counts) < 145


def test_the_curriculum_unlocks_by_clear_rate_and_prefers_what_is_not_cleared() -> None:
    options = MarioOptions(stages="1-1..1-3", stage_schedule="curriculum", stage_episodes=5)
    schedule = Schedule(options)
    assert {schedule.choose(seed, 0, 0) for seed in range(50)} == {(1, 1)}
    for cleared in (False, True, True, True):
        schedule.count((1, 1), cleared)
    assert schedule.unlocked == 1, "four episodes are not five"
    schedule.count((1, 1), True)
    assert schedule.unlocked == 2 and schedule.rates[0] == pytest.approx(0.8)
    np.testing.assert_allclose(schedule.weights(), [0.3, 1.1])
    drawn = [schedule.choose(seed, 0, 0) for seed in range(2000)]
    assert drawn.count((1, 1)) / 2000 == pytest.approx(0.3 / 1.4, abs=0.03)
    other = Schedule(options)
    other.load(schedule.state())
    assert [other.choose(s, 0, 0) for s in range(50)] == drawn[:50]
    schedule.count((1, 2), True)
    assert schedule.unlocked == 2, "one clear is not enough"


def test_stacks_by_index_equal_stacks_by_hand() -> None:
    rng = np.random.default_rng(0)
    steps, slots, stack = 1000, 3, 4
    frames = rng.integers(0, 256, (steps, slots, 84, 84), dtype=np.uint8)[:, :, :2, :2]
    begun = rng.random((steps, slots)) < 0.1
    begun[0] = True
    rows = stack_rows(begun, stack)
    for n in range(slots):
        held: list[Any] = []
        for t in range(steps):
            held = [frames[t, n]] * stack if begun[t, n] else [*held[1:], frames[t, n]]
            np.testing.assert_array_equal(frames[rows[t, n], n], held)


def test_the_stacker_agrees_with_the_index() -> None:
    rng = np.random.default_rng(1)
    frames = rng.integers(0, 256, (30, 2, 84, 84), dtype=np.uint8)
    begun = rng.random((30, 2)) < 0.2
    begun[0] = True
    rows, stacker = stack_rows(begun, 4), Stacker(2, 4)
    for t in range(30):
        found = stacker.push(frames[t], begun[t])
        for n in range(2):
            np.testing.assert_array_equal(found[n], frames[rows[t, n], n])


def test_a_schedule_takes_over_what_another_one_has_unlocked() -> None:
    settings = {"stage_schedule": "curriculum", "stage_episodes": 1, "stage_unlock": 0.0}
    before = Schedule(MarioOptions(stages="1-1,2-1,3-1", **settings))
    before.count((1, 1), True)
    same = Schedule(MarioOptions(stages="1-1,2-1,3-1", **settings))
    same.inherit(before)
    assert same.unlocked == 2 and np.array_equal(same.rates, before.rates)
    other = Schedule(MarioOptions(stages="4-1,1-1", **settings))
    other.inherit(before)
    assert other.unlocked == 1 and other.rates.tolist() == [0.0, 1.0]


REPLAY = {"learner.kind": "vtrace", "learner.replay.enabled": True}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"world.stages": "1-1..1-4", "world.games": 3}, "1-4 and what follows.*--games 4"),
        ({"world.trail": 0, "guards.tails.mine": True}, "'trail' is 0.*--trail 4"),
        ({**REPLAY, "learner.replay.length": 5}, "length = 5 does not divide the 128 steps"),
        ({**REPLAY, "learner.memory": "gru", "learner.replay.length": 8}, "policy with memory"),
        ({**REPLAY, "learner.replay.capacity": 4095}, "32 slots x 128.*Allowed: 4096"),
    ],
)
def test_a_run_whose_settings_could_do_nothing_is_refused(
    settings: dict[str, Any], said: str
) -> None:
    given = {"guards.tails.enabled": True, **settings}
    with pytest.raises(ConfigError, match=said):
        refuse_unfit(resolve("mario", list(given.items())), Path("runs"))


def test_more_stages_than_games_are_played_in_turn() -> None:
    given = {"world.stages": "1-1..1-4", "world.games": 3, "world.stage_schedule": "cycle"}
    refuse_unfit(resolve("mario", list(given.items())), Path("runs"))


def test_a_trail_of_one_moment_still_reaches_back_far_enough() -> None:
    bank = Bank(*(np.zeros((1, 4), np.uint8) for _ in Bank._fields))
    for count in (1, 2, 4):
        trail = Trail(bank, np.zeros((0, 84, 84), np.uint8), count, every=10)
        counts = np.zeros((1, len(COLUMNS)), np.int64)
        for step in range(1, 38):
            counts[0, STEPS] = step
            trail.keep(counts, np.zeros((1, AREAS), np.int64))
        start = trail.before(0, 38, "1-1:37:160")
        assert start is not None and start.origin == "18 steps before the death at 1-1:37:160"


def test_help_names_our_worlds_and_their_protocols() -> None:
    train, evaluate = argparse.ArgumentParser(), argparse.ArgumentParser()
    cli_train.add(train)
    cli_eval.add(evaluate)
    assert all(world in train.format_help() for world in OURS)
    assert f"mario: {PROTOCOLS[0]}" in " ".join(evaluate.format_help().split())
