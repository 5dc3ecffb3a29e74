from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import holdfast
from holdfast.errors import ConfigError
from holdfast.learn.options import LearnerConfig
from holdfast.learn.policy import Policy
from holdfast.learn.restore import policy_of
from holdfast.learn.spec import initial_parameters, spec_for
from holdfast.records import Array, Episode, Start
from holdfast.rng import Streams
from holdfast.selfplay.cast import Cast
from holdfast.selfplay.lineup import Lineup
from holdfast.selfplay.opponents import scripts_of
from holdfast.selfplay.options import SelfPlayConfig


def world(games: int = 8) -> Any:
    made = holdfast.make("pursuit", games=games, max_steps=20)
    made.reset(seed=1)
    return made


def state(seed: int, made: Any) -> dict[str, Any]:
    spec = spec_for(made.single_observation_space, made.single_action_space, (16, 8))
    rng = np.random.default_rng(seed)
    parameters = {
        name: value + rng.normal(0, 0.3, value.shape).astype(np.float32)
        for name, value in initial_parameters(spec, rng).items()
    }
    norm = {
        "mean": rng.normal(0, 0.1, spec.obs_size),
        "var": np.exp(rng.normal(0, 0.3, spec.obs_size)),
        "count": 10.0,
    }
    return {"spec": spec.state(), "parameters": parameters, "norm": norm if seed % 2 else None}


def test_a_lineup_answers_as_each_policy_alone() -> None:
    made = world()
    states = [state(seed, made) for seed in range(3)]
    obs = np.random.default_rng(0).normal(0, 1, (40, 14)).astype(np.float32)
    who = np.arange(40) % 3
    together = Lineup(states).act(obs, who)
    for i, one in enumerate(states):
        alone = policy_of(one).act(obs[who == i])
        np.testing.assert_allclose(together[who == i], alone, atol=2e-5)


def cast(history: float = 0.5, games: int = 8, **settings: Any) -> tuple[Any, Cast]:
    made = world(games)
    config = SelfPlayConfig(enabled=True, history=history, pool_size=3, **settings)
    scripts = scripts_of(config, made.game_roles, made.scripts)
    return made, Cast(config, made, Streams(0), scripts, {})


def test_every_slot_is_played_once_and_each_role_meets_its_past_foes() -> None:
    made, players = cast()
    seats = players.seats
    played = np.concatenate([*seats.values(), players.slots])
    assert sorted(played.tolist()) == list(range(made.num_envs))
    pursuer_games = {int(s) // 2 for s in seats["pursuer"]}
    evader_games = {int(s) // 2 for s in seats["evader"]}
    assert len(pursuer_games & evader_games) == 4
    assert len(pursuer_games - evader_games) == len(evader_games - pursuer_games) == 2


@pytest.mark.parametrize(
    ("games", "history", "past"), [(3, 1.0, 1), (7, 1.0, 3), (4, 0.2, 1), (2, 0.01, 1), (8, 0.5, 2)]
)
def test_both_sides_meet_past_opponents_in_as_many_games_and_in_one_at_least(
    games: int, history: float, past: int
) -> None:
    made, players = cast(history, games)
    assert [len(players._parts[role]) for role in made.game_roles] == [past, past]
    played = np.concatenate([*players.seats.values(), players.slots])
    assert sorted(played.tolist()) == list(range(made.num_envs))
    alone = {int(slot) // 2 for slot in players.slots}
    for guests in players._guests.values():
        assert len(guests.slots) == games - 2 * past
        assert not alone & {int(slot) // 2 for slot in guests.slots}


def test_past_opponents_need_a_second_game() -> None:
    with pytest.raises(ConfigError, match=r"--world\.games"):
        cast(games=1)


def ended(game: int, captured: float) -> Episode:
    return Episode(game, Start(), 5, np.zeros(2), "captured", {"captured": captured})


def test_a_past_opponent_plays_its_episode_to_the_end() -> None:
    made, players = cast()
    for update in range(6):
        for role in ("pursuer", "evader"):
            players.remember(role, state(update, made), update)
    obs = np.zeros((len(players.slots), 14), np.float32)
    first = {role: one.who.copy() for role, one in players._visitors.items()}
    for _ in range(5):
        players.act(made, obs)
        players.remember("evader", state(99, made), 99)
    for role, one in players._visitors.items():
        np.testing.assert_array_equal(one.who, first[role])
    games = [int(slot) // 2 for slot in players._parts["evader"]]
    players.ended([ended(games[0], 1.0)])
    assert players._visitors["evader"].who[1:].tolist() == first["evader"][1:].tolist()
    member = int(first["evader"][0])
    record = [m for m in players.pools["evader"].members if m.id == member]
    assert not record or (record[0].games, record[0].wins) == (1, 0)


def test_what_the_learner_becomes_later_does_not_reach_the_pool() -> None:
    made, players = cast()
    given = state(1, made)
    players.remember("pursuer", given, 0)
    obs = np.ones((len(players.slots), 14), np.float32)
    players.remember("evader", state(2, made), 0)
    players.streams = Streams(5)
    before = players.act(made, obs)
    for value in given["parameters"].values():
        value += 1.0
    players._lineups.clear()
    players.streams = Streams(5)
    np.testing.assert_array_equal(players.act(made, obs), before)


def test_the_players_come_back_from_a_checkpoint() -> None:
    made, players = cast()
    for update in range(5):
        for role in ("pursuer", "evader"):
            players.remember(role, state(update, made), update)
    players.ended([ended(g, 0.0) for g in range(8)])
    _, again = cast()
    again.load_state_dict(players.state_dict())
    obs = np.random.default_rng(3).normal(0, 1, (len(players.slots), 14)).astype(np.float32)
    players.streams, again.streams = Streams(9), Streams(9)
    np.testing.assert_array_equal(players.act(made, obs), again.act(made, obs))


def test_a_tremble_without_past_opponents_is_said() -> None:
    assert cast(history=0.5, tremble=0.2)[1].idle_tremble() == ""
    assert cast(history=0.0)[1].idle_tremble() == ""
    assert "tremble = 0.2 does nothing" in cast(history=0.0, tremble=0.2)[1].idle_tremble()
    scripted = cast(history=0.5, tremble=0.2, evader="flee")[1]
    assert "two learners" in scripted.idle_tremble()


def test_only_past_opponents_tremble() -> None:
    made, steady = cast(history=0.5)
    _, shaky = cast(history=0.5, tremble=0.9, tremble_steps=50.0)
    obs = np.zeros((len(steady.slots), 14), np.float32)
    rows: Array = np.zeros((made.num_envs, 14), np.float32)
    differ, guests = [], []
    for players in (steady, shaky):
        for role in ("pursuer", "evader"):
            players.remember(role, state(1, made), 0)
        players.mix("evader", 0.9)
        players.ended([ended(g, 0.0) for g in range(8)])
    for _ in range(40):
        acts = [players.act(made, obs) for players in (steady, shaky)]
        differ.append(np.abs(acts[0] - acts[1]).max())
        overruled = []
        for players in (steady, shaky):
            actions: Array = np.full((made.num_envs, 2), 7.0, np.float32)
            players.overrule(made, rows, actions)
            overruled.append(actions)
        guests.append(overruled[1])
    assert max(differ) > 0.5
    # Where no guest sits the learners' actions are left alone, and a guest that slips holds what it does.
    assert all((g[guests[0] == 7.0] == 7.0).all() for g in guests)
    taken = np.flatnonzero(guests[0][:, 0] != 7.0)
    held = [np.array_equal(a[taken], b[taken]) for a, b in itertools.pairwise(guests)]
    assert any(held)


def test_a_script_plays_a_role_in_every_game() -> None:
    made, players = cast(history=0.0, pursuer="greedy")
    assert list(players.seats) == ["evader"] and len(players.slots) == made.games
    obs = np.zeros((made.games, 14), np.float32)
    np.testing.assert_array_equal(players.act(made, obs), made.scripted("greedy", "pursuer"))


def test_an_unknown_player_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(ConfigError, match=r"'gredy' is no player.*greedy"):
        cast(pursuer="gredy")


def test_a_stand_in_takes_the_place_of_a_learner_for_a_while() -> None:
    made, players = cast(history=0.0)
    actions: Array = np.full((made.num_envs, 2), 7.0, np.float32)
    players.stand_in("pursuer", "static", made)
    players.overrule(made, np.zeros((made.num_envs, 14), np.float32), actions)
    assert (actions[0::2] == 0).all() and (actions[1::2] == 7).all()
    players.stand_in("pursuer", "", made)
    actions[:] = 7.0
    players.overrule(made, np.zeros((made.num_envs, 14), np.float32), actions)
    assert (actions == 7).all()


def test_guests_play_whole_episodes_for_a_learner_who_learns_nothing_from_them() -> None:
    made, players = cast()
    for role in ("pursuer", "evader"):
        players.remember(role, state(1, made), 0)
    mask = np.ones(made.num_envs, np.bool_)
    players.mix("pursuer", 1.0)
    players.hide(mask)
    assert mask.all(), "episodes under way are played to their end by those who began them"
    players.ended([ended(g, 1.0) for g in range(3)])
    players.hide(mask)
    assert np.flatnonzero(~mask).tolist() == [0, 2, 4]
    assert players.signals()["selfplay/pursuer_past"] == (2 + 3) / 8
    obs = np.random.default_rng(0).normal(0, 1, (made.num_envs, 14)).astype(np.float32)
    actions: Array = np.full((made.num_envs, 2), 7.0, np.float32)
    players.streams = Streams(3)
    players.overrule(made, obs, actions)
    alone = Lineup([state(1, made)]).act(
        obs[[0, 2, 4]], np.zeros(3, np.int64), Streams(3)["selfplay/opponents"]
    )
    np.testing.assert_array_equal(actions[[0, 2, 4]], alone)
    assert (np.delete(actions, [0, 2, 4], 0) == 7).all()
    players.mix("pursuer", 0.0)
    players.ended([ended(1, 1.0)])
    mask[:] = True
    players.hide(mask)
    assert np.flatnonzero(~mask).tolist() == [0, 4]
    [member] = players.pools["pursuer"].members
    assert (member.games, member.wins) == (1, 1)


def test_no_game_has_two_guests_and_none_comes_where_a_past_opponent_plays_anyway() -> None:
    made, players = cast()
    for role in ("pursuer", "evader"):
        players.remember(role, state(1, made), 0)
        players.mix(role, 0.7)
    seen = set()
    for _ in range(30):
        players.ended([ended(g, 0.0) for g in range(8)])
        mask = np.ones(made.num_envs, np.bool_)
        players.hide(mask)
        played = mask.reshape(8, 2)
        assert played.any(1).all() and played[4:].all()
        seen |= {tuple(row) for row in played[:4].tolist()}
    assert seen == {(True, True), (True, False), (False, True)}


def test_guests_come_back_from_a_checkpoint_and_leave_with_a_new_world() -> None:
    made, players = cast()
    for role in ("pursuer", "evader"):
        players.remember(role, state(1, made), 0)
    players.mix("evader", 0.6)
    players.ended([ended(g, 0.0) for g in range(8)])
    _, again = cast()
    again.load_state_dict(players.state_dict())
    obs = np.zeros((made.num_envs, 14), np.float32)
    for _ in range(3):
        both = []
        for one in (players, again):
            one.streams = Streams(4)
            actions: Array = np.zeros((made.num_envs, 2), np.float32)
            one.overrule(made, obs, actions)
            one.ended([ended(g, 0.0) for g in range(0, 8, 2)])
            both.append((actions, one.signals()))
        np.testing.assert_array_equal(both[0][0], both[1][0])
        assert both[0][1] == both[1][1] and both[0][1]["selfplay/evader_past"] > 0.25
    players.fit(world(4))
    assert players.signals()["selfplay/evader_past"] == 0.25


def test_past_opponents_of_a_role_that_has_none_cannot_be_mixed_in() -> None:
    _, players = cast(history=0.0)
    with pytest.raises(ConfigError, match=r"selfplay\.history above 0"):
        players.mix("evader", 0.5)


def test_one_learner_for_all_slots_needs_no_cast() -> None:
    made = world()
    players = Cast(SelfPlayConfig(), made, Streams(0), {}, {})
    assert list(players.seats) == [""] and len(players.slots) == 0
    assert isinstance(policy_of(state(1, made)), Policy) and LearnerConfig().kind == "auto"


def test_a_game_that_was_cut_is_nobodys_win() -> None:
    made, players = cast(pool="pfsp")
    for role in made.game_roles:
        players.remember(role, state(1, made), 1)
    facts = {"captured": 0.0, "escaped": 0.0}
    for cut in (True, False):
        players.ended(
            [Episode(g, Start(seed=1), 3, np.zeros(2), "x", facts, cut=cut) for g in range(8)]
        )
        counted = [member.games > 0 for pool in players.pools.values() for member in pool.members]
        assert counted == [not cut] * 2


def test_what_past_opponents_win_against_a_script_is_not_in_their_records() -> None:
    made, players = cast(pool="pfsp")
    for role in made.game_roles:
        players.remember(role, state(1, made), 1)

    def counted() -> list[bool]:
        players.ended([ended(game, 0.0) for game in range(8)])
        return [member.games > 0 for pool in players.pools.values() for member in pool.members]

    players.stand_in("pursuer", "random", made)
    assert counted() == [True, False], "past pursuers still meet the evader that learns"
    players.stand_in("pursuer", "", made)
    assert counted() == [True, True]


def test_what_past_opponents_do_in_the_cold_start_is_not_in_their_records() -> None:
    made = holdfast.make(
        "pursuit", games=8, task="navigation", flee_probability=1.0, navigation_steps=20
    )
    made.reset(seed=1)
    players = Cast(SelfPlayConfig(enabled=True, history=0.5), made, Streams(0), {}, {})
    for role in made.game_roles:
        players.remember(role, state(1, made), 1)
    players.ended([ended(game, 0.0) for game in range(8)])
    [member] = players.pools["evader"].members
    assert member.games == 0
    players.fit(world())
    players.ended([ended(game, 0.0) for game in range(8)])
    assert member.games > 0
