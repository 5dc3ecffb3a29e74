"""Opponents that are no plain MLPs: their memory is their own, and runs with them resume exactly."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selfplay_files import cut_back, untimed

import holdfast
from holdfast.errors import ConfigError
from holdfast.learn.net_policy import NetPolicy
from holdfast.learn.nets import ActorCritic
from holdfast.learn.options import LearnerConfig
from holdfast.learn.policy import Policy
from holdfast.learn.restore import policy_of
from holdfast.learn.spec import NetSpec, spec_from
from holdfast.records import Episode, Start
from holdfast.rng import Streams
from holdfast.run import RunDirectory, resume
from holdfast.selfplay.cast import Cast
from holdfast.selfplay.lineups import Lineups
from holdfast.selfplay.options import SelfPlayConfig

CONFIG = """
[run]
updates = 8
checkpoint_every = 1
keep_last = 100
tensorboard = false
seed = 2
[world]
name = "pursuit"
games = 8
max_steps = 20
capture_radius = 2.4
[learner]
steps = 12
epochs = 1
minibatch = 64
hidden = [8]
memory = "lstm"
memory_size = 8
threads = 1
normalise_obs = true
[probe]
every = 0
episodes = 4
[selfplay]
enabled = true
history = 0.5
pool_size = 3
pool_every = 2
"""


def world(games: int = 8) -> Any:
    made = holdfast.make("pursuit", games=games, max_steps=20)
    made.reset(seed=1)
    return made


def state(seed: int, made: Any, **settings: Any) -> dict[str, Any]:
    """Return what a learner's state holds of a policy whose actions differ clearly from those of others."""
    config = LearnerConfig(**{"hidden": (8,), "memory_size": 8, **settings})
    spec = spec_from(config, made.single_observation_space, made.single_action_space)
    rng = np.random.default_rng(seed)
    first = ActorCritic(spec).first_parameters(rng, -20.0)
    parameters = {
        k: v if k == "log_std" else v + rng.normal(0, 0.3, v.shape).astype(np.float32)
        for k, v in first.items()
    }
    return {"spec": spec.state(), "parameters": parameters, "norm": None}


def looks(steps: int, rows: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(0, 1, (steps, rows, 14)).astype(np.float32)


def ended(game: int) -> Episode:
    return Episode(game, Start(), 5, np.zeros(2), "captured", {"captured": 1.0})


def test_policies_of_several_shapes_answer_as_each_alone() -> None:
    made = world()
    states = [
        state(0, made),
        state(1, made, memory="lstm"),
        state(2, made, memory="gru"),
        state(3, made, memory="lstm"),
        state(4, made, memory="transformer", memory_window=3),
    ]
    who = np.arange(20) % 5
    together = Lineups(states)
    memory = np.zeros((20, together.memory_floats), np.float32)
    alone = [policy_of(one) for one in states]
    for t, obs in enumerate(looks(6, 20)):
        begun = np.full(20, t == 0) | (np.arange(20) == t)
        found = together.act(obs, who, memory, begun)
        for k, policy in enumerate(alone):
            mine = who == k
            expected = policy.act(obs[mine], begun=begun[mine])
            np.testing.assert_allclose(found[mine], expected, atol=2e-5)


@pytest.mark.parametrize("memory", ["lstm", "gru", "transformer"])
def test_the_memory_of_a_past_opponent_is_its_own_and_empty_when_an_episode_begins(
    memory: Any,
) -> None:
    made = world()
    config = SelfPlayConfig(enabled=True, history=0.5, pool_size=3)
    players = Cast(config, made, Streams(0), {}, {})
    for update in range(3):
        for role in ("pursuer", "evader"):
            players.remember(role, state(update, made, memory=memory), update)
    n = len(players.slots)
    alone: list[Policy] = []
    for role in ("pursuer", "evader"):
        alone += [
            policy_of(players.pools[role].member(i).state) for i in players._visitors[role].who
        ]
    begun = np.ones(n, np.bool_)
    for t, obs in enumerate(looks(12, n)):
        found = players.act(made, obs)
        for row, policy in enumerate(alone):
            expected = policy.act(obs[row : row + 1], begun=begun[row : row + 1])
            np.testing.assert_allclose(found[row : row + 1], expected, atol=1e-4, err_msg=str(t))
        over = [4, 7] if t == 5 else [6] if t == 8 else []
        players.ended([ended(game) for game in over])
        begun = np.isin(players.slots // 2, over)
        for row in np.flatnonzero(begun):
            role = "pursuer" if row < len(players._parts["pursuer"]) else "evader"
            place = int(row) - (0 if role == "pursuer" else len(players._parts["pursuer"]))
            number = int(players._visitors[role].who[place])
            alone[row] = policy_of(players.pools[role].member(number).state)


def test_what_opponents_remember_comes_back_from_a_checkpoint() -> None:
    made = world()
    config = SelfPlayConfig(enabled=True, history=0.5)
    players, again = (Cast(config, made, Streams(0), {}, {}) for _ in range(2))
    for role in ("pursuer", "evader"):
        players.remember(role, state(1, made, memory="lstm"), 0)
    first, second, third = looks(3, len(players.slots))
    players.act(made, first)
    players.act(made, second)
    again.load_state_dict(players.state_dict())
    players.streams, again.streams = Streams(9), Streams(9)
    np.testing.assert_array_equal(players.act(made, third), again.act(made, third))


def test_opponents_begin_anew_in_a_world_of_another_size() -> None:
    made, other = world(16), world(15)
    config = SelfPlayConfig(enabled=True, history=0.5)
    players, again = (Cast(config, w, Streams(0), {}, {}) for w in (made, other))
    for role in ("pursuer", "evader"):
        players.remember(role, state(1, made, memory="lstm"), 0)
    players.act(made, looks(1, len(players.slots))[0])
    saved = players.state_dict()
    assert len(saved["pools"]["evader"]["who"]) == len(again._visitors["evader"].who)
    again.load_state_dict(saved)
    assert all(one.begun.all() for one in again._visitors.values())


def test_a_frozen_policy_with_memory_plays_a_role_and_is_told_where_episodes_begin() -> None:
    made = world()
    frozen = state(5, made, memory="gru")
    config = SelfPlayConfig(enabled=True, evader="run:other")
    players = Cast(config, made, Streams(0), {}, {"evader": frozen})
    alone = policy_of(frozen)
    assert isinstance(alone, NetPolicy)
    begun = np.ones(made.games, np.bool_)
    for t, obs in enumerate(looks(5, made.games)):
        expected = alone.act(obs, begun=begun)
        np.testing.assert_allclose(players.act(made, obs), expected, atol=1e-4)
        over = [t]
        players.ended([ended(game) for game in over])
        begun = np.isin(np.arange(made.games), over)


def test_a_frozen_policy_that_cannot_play_here_is_refused() -> None:
    made = world()
    config = SelfPlayConfig(enabled=True, evader="run:other")
    wide = holdfast.make("pursuit", games=1, n_obstacle_obs=2)
    with pytest.raises(ConfigError, match=r"reads 18 numbers.*have 14"):
        Cast(config, made, Streams(0), {}, {"evader": state(0, wide)})
    turns = holdfast.make("pursuit", games=1, fixed_speed=True)
    with pytest.raises(ConfigError, match=r"with 1 numbers.*have 2 numbers.*fixed_speed"):
        Cast(config, made, Streams(0), {}, {"evader": state(0, turns)})
    picks = NetSpec(14, "discrete", nvec=(35,))
    with pytest.raises(ConfigError, match=r"with 35 choices.*have 2 numbers"):
        Cast(config, made, Streams(0), {}, {"evader": {"spec": picks.state()}})
    spec = NetSpec(14, "gaussian", action_size=2, stack=4)
    with pytest.raises(ConfigError, match="stacks of 4 frames"):
        Cast(config, made, Streams(0), {}, {"evader": {"spec": spec.state()}})


@pytest.fixture(scope="module", params=["off", "on"])
def trained(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("memory")
    path = folder / "small.toml"
    path.write_text(CONFIG)
    holdfast.train(
        str(path), runs_dir=folder, run="whole", say=lambda text: None, overlap=request.param
    )
    return folder


def test_two_learners_with_memory_meet_their_past(trained: Path) -> None:
    run = RunDirectory(trained / "whole")
    held = {c.update: c.load() for c in run.checkpoints().all()}
    first, last = held[1], held[8]
    assert len(last["cast"]["pools"]["evader"]["pool"]["members"]) == 3
    carried = last["cast"]["carried"]["evader"]
    assert carried["memory"].shape == (2, 16) and (carried["memory"] != 0).any()
    for role in ("pursuer", "evader"):
        before, after = (s[f"learner.{role}"]["parameters"] for s in (first, last))
        assert (before["core.weight_hh"] != after["core.weight_hh"]).any()


@pytest.mark.parametrize("at", [2, 5])
def test_a_run_with_memory_goes_on_exactly(trained: Path, tmp_path: Path, at: int) -> None:
    copy = cut_back(trained / "whole", tmp_path, at)
    resume("whole", tmp_path, say=lambda text: None)
    for name in ("journal.jsonl", "metrics.jsonl", "evals.jsonl", "episodes.jsonl"):
        assert untimed(copy, name) == untimed(trained / "whole", name), name


def test_best_responses_are_trained_against_a_policy_with_memory(
    trained: Path, tmp_path: Path
) -> None:
    from holdfast.study.exploit import Effort, exploit

    shutil.copytree(trained / "whole", tmp_path / "whole")
    run = RunDirectory(tmp_path / "whole")
    effort = Effort(steps=400, choices=1, games=20, checkpoints=0)
    found = exploit(
        run, run.checkpoints().find(None), effort, lambda text: None, lambda what, done, total: None
    )
    one = found.exploitability[0]
    assert one.value_low <= one.incumbent.value <= one.value_high
