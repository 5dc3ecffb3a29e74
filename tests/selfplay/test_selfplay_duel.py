"""Duels: every game one episode, the same games as one by one, and the compiled actor the same policy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from holdfast.errors import ConfigError
from holdfast.learn.learner import make_learner
from holdfast.learn.options import LearnerConfig
from holdfast.learn.policy import Policy
from holdfast.learn.spec import initial_parameters, spec_for, spec_from
from holdfast.probes.runner import draw_seeds
from holdfast.probes.stats import wilson
from holdfast.rng import Streams
from holdfast.selfplay import duel as module
from holdfast.selfplay.duel import Duel, duel
from holdfast.selfplay.players import ActingPlayer, prepare
from holdfast.worlds.pursuit import PursuitOptions, PursuitWorld
from holdfast.worlds.pursuit.policies import Scripted

SMALL = PursuitOptions(
    arena_width=8.0, arena_height=8.0, n_obstacles=2, n_obstacle_obs=2, max_steps=150
)
BEGUN = np.zeros(0, np.bool_)
"""What a player without memory does not look at."""
CHASE = Scripted("pure_pursuit", "pursuer")
CIRCLE = Scripted("circling", "evader", radius=3.0)


def network(options: PursuitOptions, seed: int = 0, spread: float = 1.0, **kind: Any) -> Policy:
    world = PursuitWorld(options)
    spec = spec_for(world.single_observation_space, world.single_action_space, (16, 16), **kind)
    parameters = initial_parameters(spec, np.random.default_rng(seed))
    parameters["pi_out.weight"] *= np.float32(100 * spread)
    return Policy(spec, parameters)


def one_by_one(options: PursuitOptions, seeds: tuple[int, ...]) -> list[tuple[bool, int]]:
    """Each seed in a world of its own."""
    found = []
    for seed in seeds:
        world = PursuitWorld(replace(options, games=1))
        world.reset(seed=[seed])
        actions = np.zeros((2, 2), np.float32)
        info: dict[str, Any] = {}
        while "episodes" not in info:
            CHASE.write(world, actions)
            CIRCLE.write(world, actions)
            *_, info = world.step(actions)
        found.append((info["episodes"][0].ended == "captured", info["episodes"][0].steps))
    return found


def test_games_that_wait_for_a_place_are_the_games_of_their_seeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "WIDTH", 8)
    found = duel(CHASE, CIRCLE, SMALL, games=45, seed=5)
    assert found.seeds == draw_seeds(5, 45)
    expected = one_by_one(SMALL, found.seeds)
    assert [(bool(c), int(s)) for c, s in zip(found.captured, found.steps, strict=True)] == expected
    assert 0 < found.captured.sum() < 45


def test_the_width_of_the_batch_does_not_change_the_games(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = duel(CHASE, CIRCLE, SMALL, games=60, seed=1)
    monkeypatch.setattr(module, "WIDTH", 7)
    parts = duel(CHASE, CIRCLE, SMALL, games=60, seed=1)
    for name in ("captured", "steps", "returns", "starts"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(parts, name))


def test_starts_are_the_first_poses_of_the_games(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WIDTH", 5)
    found = duel(CHASE, CIRCLE, SMALL, games=12, seed=2)
    world = PursuitWorld(replace(SMALL, games=12))
    world.reset(seed=list(found.seeds))
    np.testing.assert_array_equal(found.starts, world.records["pose"])


def test_networks_play_the_role_that_they_are_given() -> None:
    """A network that stands still is the static script, on the evader's side and on the pursuer's."""
    still = network(SMALL, spread=0.0)
    still.parameters["pi_out.bias"][:] = (-1.0, 0.0)  # lowest speed, no turn
    as_evader = duel(CHASE, still, SMALL, 40, 3)
    script = duel(CHASE, Scripted("static", "evader"), SMALL, 40, 3)
    np.testing.assert_array_equal(as_evader.steps, script.steps)
    assert as_evader.rate.value > 0.8
    as_pursuer = duel(still, Scripted("flee", "evader"), SMALL, 40, 3)
    assert not as_pursuer.captured.any()
    assert as_pursuer.rate.value == 0.0


def test_sampled_play_follows_from_the_seed_and_differs_from_the_best_actions() -> None:
    pursuer, evader = network(SMALL, 1), network(SMALL, 2)
    best = duel(pursuer, evader, SMALL, 50, 1)
    drawn = duel(pursuer, evader, SMALL, 50, 1, sampled=("pursuer", "evader"))
    again = duel(pursuer, evader, SMALL, 50, 1, sampled=("evader", "pursuer"))
    np.testing.assert_array_equal(drawn.returns, again.returns)
    assert not np.array_equal(drawn.returns, best.returns)
    np.testing.assert_array_equal(drawn.starts, best.starts)
    half = duel(pursuer, evader, SMALL, 50, 1, sampled=("evader",))
    assert not np.array_equal(half.returns, best.returns)
    assert not np.array_equal(half.returns, drawn.returns)


@pytest.mark.parametrize("observation", ["masked", "sensors"])
def test_networks_play_under_every_observation(observation: str) -> None:
    options = replace(SMALL, observation=observation, fixed_speed=True, max_steps=30)
    found = duel(network(options, 1), network(options, 2), options, 20, 1)
    assert found.games == 20


@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_a_policy_with_memory_remembers_each_game_alone(
    memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a narrow batch its rows pass from game to game; in a wide one every game has its own."""
    options = replace(SMALL, max_steps=25)
    world = PursuitWorld(options)
    config = LearnerConfig(memory=memory, memory_size=8, hidden=(8,), threads=1, log_std=-1.0)
    spec = spec_from(config, world.single_observation_space, world.single_action_space)
    learner = make_learner(spec, config, Streams(1), 2)
    big = {k: v * np.float32(3.0) for k, v in learner.parameters().items()}
    learner.load_parameters(big)
    policy = learner.policy()
    assert isinstance(prepare(policy), ActingPlayer)
    whole = duel(policy, CIRCLE, options, 24, 1)
    monkeypatch.setattr(module, "WIDTH", 5)
    parts = duel(policy, CIRCLE, options, 24, 1)
    np.testing.assert_allclose(whole.returns, parts.returns, atol=1e-5)


def test_anything_that_acts_can_play() -> None:
    policy = network(SMALL, 1)

    class Own:
        def act(self, obs: Any, rng: Any = None) -> Any:
            return policy.act(obs, rng)

    assert isinstance(prepare(Own()), ActingPlayer)
    ours = duel(Own(), CIRCLE, replace(SMALL, max_steps=20), 30, 1)
    theirs = duel(policy, CIRCLE, replace(SMALL, max_steps=20), 30, 1)
    np.testing.assert_allclose(ours.returns, theirs.returns, atol=1e-3)


def test_what_is_measured() -> None:
    found = duel(CHASE, CIRCLE, SMALL, 80, 4)
    wins = int(found.captured.sum())
    assert (found.rate.low, found.rate.high) == wilson(wins, 80)
    assert found.rate.value == wins / 80
    assert found.capture_time_mean_s == pytest.approx(found.steps[found.captured].mean() * 0.05)
    assert sum(found.captures_by_time()) == wins
    assert sum(found.return_means) == pytest.approx(0.0, abs=1e-9)
    line = found.evaluation(update=3, env_steps=9, phase="S1", role="pursuer", level=2)
    assert line.ne_gap == pytest.approx(abs(2 * wins / 80 - 1))
    assert line.time_limit_s == pytest.approx(7.5)


def test_no_capture_has_no_capture_time() -> None:
    found = duel(Scripted("static", "pursuer"), Scripted("flee", "evader"), SMALL, 5, 1)
    assert found.capture_time_mean_s is None
    assert found.captures_by_time(4) == (0, 0, 0, 0)


def made(starts: list[list[list[float]]], captured: list[bool]) -> Duel:
    n = len(captured)
    options = PursuitOptions(arena_width=8.0, arena_height=4.0)
    return Duel(options, (0,) * n, np.array(captured), np.ones(n, np.int64), np.zeros((n, 2)),
                np.array(starts))  # fmt: skip


def test_the_grid_counts_captures_where_the_games_began() -> None:
    right, left = [[0.0, 0.0, 0.0], [3.0, 1.0, 0.0]], [[0.0, 0.0, 0.0], [-3.0, -1.0, 0.0]]
    grid = made([right, right, left], [True, False, True]).starts_grid("evader", bins=2)
    assert grid.x_edges == (-4.0, 0.0, 4.0)
    assert grid.y_edges == (-2.0, 0.0, 2.0)
    assert grid.games == ((1, 0), (0, 2))
    assert grid.captures == ((1, 0), (0, 1))


def test_relative_starts_are_seen_from_the_pursuer() -> None:
    # The pursuer looks along +y; the evader stands at +x of it, which is to its right.
    grid = made([[[1.0, 1.0, np.pi / 2], [3.0, 1.0, 0.0]]], [True]).starts_grid("relative", bins=4)
    x, y = np.argwhere(np.array(grid.games) == 1)[0]
    assert grid.y_edges[y] == pytest.approx(-2.0)
    assert grid.x_edges[x] <= 1e-9 <= grid.x_edges[x + 1] + 1e-9


def test_bad_requests_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least one game"):
        duel(CHASE, CIRCLE, SMALL, 0)
    with pytest.raises(ConfigError, match="no role 'evaders'"):
        duel(CHASE, CIRCLE, SMALL, 1, sampled=("evaders",))
    navigation = replace(SMALL, task="navigation", flee_probability=1.0)
    with pytest.raises(ConfigError, match="task is 'navigation'"):
        duel(CHASE, CIRCLE, navigation, 1)
