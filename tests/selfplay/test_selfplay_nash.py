"""Exploitability: never below the incumbent, chosen on other seeds than it is measured on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from holdfast.learn.fused import FusedLearner
from holdfast.learn.options import LearnerConfig
from holdfast.learn.policy import Policy
from holdfast.learn.spec import initial_parameters, spec_for
from holdfast.rng import Streams
from holdfast.selfplay import nash
from holdfast.selfplay.nash import Pair, exploitability, gains, ne_gap
from holdfast.selfplay.players import Side
from holdfast.selfplay.records import Rate
from holdfast.selfplay.verdict import classify
from holdfast.worlds.pursuit import PursuitOptions, PursuitWorld
from holdfast.worlds.pursuit.policies import Scripted

OPTIONS = PursuitOptions(arena_width=10.0, arena_height=10.0, max_steps=400)
PAIR = Pair(Scripted("pure_pursuit", "pursuer"), Scripted("flee", "evader"))
"""Straight flight is always caught in an arena."""
CIRCLE = Scripted("circling", "evader", radius=4.2)
NEAR = PursuitOptions(
    arena_width=8.0,
    arena_height=8.0,
    max_steps=80,
    min_init_distance=1.0,
    max_init_distance=2.0,
    distance_scale=20.0,
    capture_bonus=5.0,
    timeout_penalty=0.0,
)


class Answers:
    """Stands for a training: yields the checkpoints that it was given."""

    def __init__(self, **found: list[tuple[int, Side]]) -> None:
        self.found, self.asked = found, []

    def __call__(self, role: str, incumbent: Side, opponent: Side) -> Iterator[tuple[int, Side]]:
        self.asked.append((role, incumbent, opponent))
        yield from self.found.get(role, [])


def test_the_best_checkpoint_of_a_response_opens_the_value_interval() -> None:
    still = Scripted("static", "evader")
    answers = Answers(evader=[(100, still), (200, CIRCLE), (300, still)])
    found = exploitability(
        PAIR, answers, OPTIONS, games=300, selection_games=100, update=7, env_steps=9
    )
    assert answers.asked == [("pursuer", *PAIR), ("evader", PAIR.evader, PAIR.pursuer)]
    assert found.incumbent.value == found.value_high == 1.0
    assert found.evader.env_steps == 200
    assert (found.evader.trained_env_steps, found.evader.tried) == (300, 4)
    assert found.value_low == found.evader.sr_p.value < 0.5
    assert found.exploitability.value == pytest.approx(1.0 - found.value_low)
    assert found.exploitability.low < found.exploitability.value < found.exploitability.high
    assert classify(found).level == "L3"
    assert (found.update, found.env_steps) == (7, 9)


def test_a_response_that_was_trained_too_little_never_counts_below_the_incumbent() -> None:
    pair = Pair(PAIR.pursuer, CIRCLE)
    answers = Answers(
        pursuer=[(10, Scripted("flee", "pursuer"))], evader=[(10, Scripted("static", "evader"))]
    )
    found = exploitability(pair, answers, OPTIONS, games=200, selection_games=100)
    assert 0.0 < found.incumbent.value < 1.0
    assert found.value_low == found.incumbent.value == found.value_high
    assert found.exploitability == Rate(0.0, 0.0, 0.0)
    assert found.pursuer.env_steps == found.evader.env_steps == 0
    assert found.pursuer.sr_p == found.incumbent
    assert classify(found).level == "L1"


def test_checkpoints_are_chosen_on_other_seeds_than_those_of_the_measurement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played: list[tuple[int, tuple[int, ...]]] = []
    real = nash.duel

    def spy(*args: Any) -> Any:
        found = real(*args)
        played.append((found.games, found.seeds))
        return found

    monkeypatch.setattr(nash, "duel", spy)
    exploitability(PAIR, Answers(evader=[(1, CIRCLE)]), OPTIONS, games=60, selection_games=50)
    chosen = {s for games, seeds in played if games == 50 for s in seeds}
    measured = [set(seeds) for games, seeds in played if games == 60]
    assert len(measured) == 2
    assert measured[0] == measured[1]
    assert not chosen & measured[0]


def trained(role: str, incumbent: Side, opponent: Side) -> Iterator[tuple[int, Side]]:
    """Train a pursuer from the incumbent with PPO; evaders are not trained."""
    if role != "pursuer":
        return
    assert isinstance(incumbent, Policy)
    assert isinstance(opponent, Scripted)
    world = PursuitWorld(replace(NEAR, games=64))
    config = LearnerConfig(steps=64, epochs=4, minibatch=512, lr=3e-3, entropy=0.0, threads=1)
    learner = FusedLearner(incumbent.spec, config, Streams(1), 64)
    learner.load_parameters(incumbent.parameters)
    obs, _ = world.reset(seed=1)
    rollout = learner.new_rollout(64)
    actions = np.zeros((world.num_envs, 2), np.float32)
    for update in range(1, 25):
        learner.begin(rollout)
        for t in range(rollout.steps):
            rollout.obs[t] = obs[0::2]
            actions[0::2], actions[1::2] = learner.act(rollout, t), opponent.act(world)
            obs, rewards, ends, cuts, _ = world.step(actions)
            rollout.rewards[t], rollout.terminations[t] = rewards[0::2], (ends | cuts)[0::2]
        rollout.obs[-1] = obs[0::2]
        learner.update(rollout)
        if update % 8 == 0:
            yield update * 64 * 64, learner.policy()


def test_a_response_that_really_trains_exploits_a_fresh_pursuer_s_place() -> None:
    world = PursuitWorld(NEAR)
    spec = spec_for(world.single_observation_space, world.single_action_space, (32, 32))
    fresh = Policy(spec, initial_parameters(spec, np.random.default_rng(0), -0.5))
    pair = Pair(fresh, Scripted("static", "evader"))
    found = exploitability(pair, trained, NEAR, games=400, selection_games=200)
    assert found.incumbent.value < 0.6
    assert found.pursuer.env_steps > 0
    assert (found.pursuer.tried, found.evader.tried) == (4, 1)
    assert found.value_high > 0.9
    assert found.value_low == found.incumbent.value
    assert found.pursuer.gain.low > 0.3
    assert classify(found).level == "L2"


def test_gains_are_paired_means_and_losses_count_as_none() -> None:
    up = np.array([1.0] * 30 + [-1.0] * 10 + [0.0] * 60)
    down = np.array([-1.0] * 20 + [0.0] * 80)
    pursuer, evader, both = gains(up, down)
    assert pursuer.value == pytest.approx(0.20)
    assert evader == Rate(0.0, 0.0, 0.0)
    assert both == pursuer
    # The deviation of a difference with these counts is sqrt(0.4 - 0.04) / 10 = 0.06.
    assert pursuer.low == pytest.approx(0.20 - 1.96 * 0.06, abs=0.02)
    assert pursuer.high == pytest.approx(0.20 + 1.96 * 0.06, abs=0.02)


def test_the_interval_of_both_gains_knows_that_they_share_their_games() -> None:
    rng = np.random.default_rng(0)
    base = rng.random(2000) < 0.5
    up, down = (~base).astype(float), base.astype(float)  # every game is won by whoever responds
    _, _, both = gains(up, down)
    assert both.value == pytest.approx(1.0)
    assert both.high - both.low < 1e-9


def test_equal_differences_in_a_few_games_are_no_certainty() -> None:
    few, many = np.zeros(10), np.zeros(5000)
    for zeros, unseen in ((few, 0.2775), (many, 0.0008)):
        pursuer, evader, both = gains(zeros, zeros)
        assert pursuer == evader == Rate(0.0, 0.0, pytest.approx(unseen, abs=1e-4))
        assert both == Rate(0.0, 0.0, pytest.approx(2 * unseen, abs=2e-4))
    pursuer, evader, both = gains(few, np.ones(10), own=(True, False))
    assert pursuer == Rate(0.0, 0.0, 0.0), "the incumbent gains nothing over itself"
    assert evader == both == Rate(1.0, pytest.approx(1 - 2 * 0.2775, abs=1e-3), 1.0)
    pursuer, _, _ = gains(-np.ones(10), few)
    assert pursuer == Rate(0.0, 0.0, 0.0), "a loss is no gain"


def test_the_gap_is_the_distance_from_an_even_game_with_its_interval() -> None:
    assert ne_gap(Rate(0.6, 0.55, 0.65)) == Rate(
        pytest.approx(0.2), pytest.approx(0.1), pytest.approx(0.3)
    )
    assert ne_gap(Rate(0.5, 0.4, 0.65)) == Rate(0.0, 0.0, pytest.approx(0.3))
    assert ne_gap(Rate(0.1, 0.05, 0.2)).low == pytest.approx(0.6)
