"""Cross-play tables and Elo ratings against closed forms and known strengths."""

from __future__ import annotations

import json

import numpy as np
import pytest

from holdfast.errors import ConfigError
from holdfast.probes.stats import wilson
from holdfast.selfplay.crossplay import crossplay
from holdfast.selfplay.duel import duel
from holdfast.selfplay.ratings import POINTS, ratings
from holdfast.selfplay.records import CrossPlay, Elo, read, to_plain
from holdfast.worlds.pursuit import PursuitOptions
from holdfast.worlds.pursuit.policies import Scripted

OPTIONS = PursuitOptions(arena_width=10.0, arena_height=10.0, max_steps=300)


def table(captures: list[list[int]], games: int) -> CrossPlay:
    rows = tuple(tuple(row) for row in captures)
    none = tuple(tuple(0.0 for _ in row) for row in rows)
    names = [f"p{i}" for i in range(len(rows))], [f"e{j}" for j in range(len(rows[0]))]
    return CrossPlay(tuple(names[0]), tuple(names[1]), games, rows, none, none)


def test_every_pursuer_meets_every_evader() -> None:
    pursuers = {n: Scripted(n, "pursuer") for n in ("greedy", "pure_pursuit", "static")}
    evaders = {n: Scripted(n, "evader") for n in ("static", "circling")}
    calls: list[tuple[int, int]] = []
    found = crossplay(
        pursuers, evaders, OPTIONS, games=40, progress=lambda *done: calls.append(done)
    )
    assert found.pursuers == ("greedy", "pure_pursuit", "static")
    assert found.evaders == ("static", "circling")
    shares = np.array(found.captures) / 40
    np.testing.assert_array_equal(shares[:2, 0], 1.0)
    assert shares[2, 0] == 0.0
    assert shares[1, 1] < 0.9
    assert (found.low[1][1], found.high[1][1]) == wilson(found.captures[1][1], 40)
    assert calls == [(k, 6) for k in range(1, 7)]
    assert read(CrossPlay, json.loads(json.dumps(to_plain(found)))) == found


def test_pairs_play_seeds_of_their_own_that_do_not_depend_on_who_else_is_there() -> None:
    greedy, circle = Scripted("greedy", "pursuer"), Scripted("circling", "evader", radius=4.2)
    alone = crossplay({"g": greedy}, {"c": circle}, OPTIONS, games=60)
    among = crossplay({"a": greedy, "g": greedy}, {"b": circle, "c": circle}, OPTIONS, games=60)
    assert among.captures[1][1] == alone.captures[0][0]
    assert len({count for row in among.captures for count in row}) > 1
    assert duel(greedy, circle, OPTIONS, 60, 0).games == 60


def test_cross_play_without_players_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one pursuer"):
        crossplay({}, {"e": Scripted("flee", "evader")}, OPTIONS)
    with pytest.raises(ConfigError, match="at least one game"):
        ratings(table([[0]], 0))


def test_one_pair_has_the_advantage_that_its_odds_mean() -> None:
    found = ratings(table([[75]], 100))
    assert found.advantage.value == pytest.approx(400 * np.log10(75.5 / 25.5), abs=1e-4)
    assert found.pursuers["p0"].value == found.evaders["e0"].value == 1200.0
    # The deviation of the log-odds is 1 / sqrt(n p (1 - p)).
    half = 1.96 * POINTS / np.sqrt(100 * 0.75 * 0.25)
    assert found.advantage.high - found.advantage.low == pytest.approx(2 * half, rel=0.2)


def test_a_side_that_always_wins_has_a_finite_rating() -> None:
    found = ratings(table([[100, 100], [50, 0]], 100))
    values = [r.value for r in [*found.pursuers.values(), *found.evaders.values()]]
    assert np.isfinite(values).all()
    assert found.pursuers["p0"].value > found.pursuers["p1"].value
    assert found.evaders["e1"].value > found.evaders["e0"].value


def played(pursuers: np.ndarray, evaders: np.ndarray, advantage: float, games: int, seed: int):
    logit = (pursuers[:, None] - evaders[None] + advantage) / POINTS
    wins = np.random.default_rng(seed).binomial(games, 1 / (1 + np.exp(-logit)))
    return table(wins.tolist(), games)


def test_known_strengths_lie_in_their_intervals() -> None:
    pursuers = np.array([1000.0, 1150.0, 1250.0, 1400.0])
    evaders = np.array([1100.0, 1200.0, 1300.0])
    inside, count = 0, 0
    for seed in range(40):
        found = ratings(played(pursuers, evaders, 60.0, 200, seed), resamples=200, seed=seed)
        for truth, rate in zip(
            [*pursuers, *evaders, 60.0],
            [*found.pursuers.values(), *found.evaders.values(), found.advantage],
            strict=True,
        ):
            inside += rate.low <= truth <= rate.high
            count += 1
        assert found.misfit < 0.2
    assert 0.90 <= inside / count <= 0.99


def test_each_role_has_the_mean_1200() -> None:
    found = ratings(table([[10, 50, 90], [20, 70, 95]], 100))
    for rated in (found.pursuers, found.evaders):
        assert np.mean([r.value for r in rated.values()]) == pytest.approx(1200)


def test_a_cycle_shows_as_misfit_that_more_games_do_not_cure() -> None:
    cycle = [[900, 500, 100], [100, 900, 500], [500, 100, 900]]
    assert ratings(table(cycle, 1000)).misfit > 0.3
    ordered = played(np.array([1100.0, 1300.0]), np.array([1100.0, 1300.0]), 0.0, 10_000, 1)
    assert ratings(ordered).misfit < 0.02


def test_ratings_come_back_from_a_file() -> None:
    found = ratings(table([[10, 50], [20, 70]], 100))
    assert read(Elo, json.loads(json.dumps(to_plain(found)))) == found
