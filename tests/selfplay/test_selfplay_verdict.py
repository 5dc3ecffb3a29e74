"""Verdicts from intervals: what noise cannot fake, against the binomial law and made-up runs."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from holdfast.guards import GuardsConfig
from holdfast.guards.balance import BalanceConfig
from holdfast.guards.curriculum import CurriculumConfig
from holdfast.guards.protocol import ProtocolConfig
from holdfast.probes.stats import wilson
from holdfast.selfplay.records import Evaluation, Exploitability, Rate, Response, Verdict
from holdfast.selfplay.rule import Rule, rule_of
from holdfast.selfplay.verdict import (
    Streak,
    analyse,
    classify,
    cohort,
    converged,
    games_needed,
    judge,
    trend,
)
from holdfast.store.journal import plain
from holdfast.worlds.pursuit import PursuitOptions


def evaluation(wins: int, games: int, update: int = 1, env_steps: int = 0) -> Evaluation:
    rate = wins / games
    return Evaluation(update, env_steps, "S1", "both", 1, rate, *wilson(wins, games), games,
                      abs(2 * rate - 1))  # fmt: skip


def run(rates: list[float], games: int = 5000, every: int = 200_000) -> list[Evaluation]:
    return [evaluation(round(r * games), games, k, every * k) for k, r in enumerate(rates, 1)]


def chance_to_fire(p: float, games: int, eta: float, by: Any) -> float:
    """By the binomial law, over all outcomes of one evaluation."""
    wins = np.arange(games + 1)
    lgamma = np.vectorize(math.lgamma)
    log = math.lgamma(games + 1) - lgamma(wins + 1.0) - lgamma(games - wins + 1.0)
    law = np.exp(log + wins * math.log(p) + (games - wins) * math.log1p(-p))
    likely = np.flatnonzero(law > 1e-9)
    return float(
        sum(law[k] for k in likely if Streak(eta, 1, by).step(evaluation(int(k), games).rate))
    )


@pytest.mark.parametrize(
    ("eta", "chances"), [(0.10, (0.63, 0.43, 0.13, 0.015)), (0.15, (0.87, 0.69, 0.30, 0.06))]
)
def test_the_rule_of_the_original_fires_by_chance(eta: float, chances: tuple[float, ...]) -> None:
    found = [chance_to_fire(p, 100, eta, "point") for p in (0.50, 0.55, 0.60, 0.65)]
    np.testing.assert_allclose(found, chances, atol=0.01)


def test_the_rule_by_interval_fires_for_even_pairs_and_hardly_ever_for_others() -> None:
    assert chance_to_fire(0.50, 5000, 0.10, "interval") > 0.9999
    assert chance_to_fire(0.55, 5000, 0.10, "interval") < 0.03
    assert chance_to_fire(0.60, 5000, 0.10, "interval") < 1e-9
    assert chance_to_fire(0.50, 100, 0.10, "interval") == 0.0


def test_how_many_games_an_even_pair_needs() -> None:
    for eta in (0.05, 0.10, 0.15):
        needed = games_needed(eta)
        enough, few = needed + needed % 2, (needed - 1) // 2 * 2
        assert Streak(eta).step(evaluation(enough // 2, enough).rate)
        assert not Streak(eta).step(evaluation(few // 2, few).rate)


def test_a_streak_must_be_unbroken_and_begins_anew_after_firing() -> None:
    even, lost = evaluation(2500, 5000), evaluation(3500, 5000)
    streak = Streak(0.15, 2)
    assert [streak.step(e.rate) for e in (even, lost, even, even, even, even)] == [
        False, False, False, True, False, True,
    ]  # fmt: skip


def test_a_streak_resumes() -> None:
    streak, other = Streak(0.15, 2), Streak(0.15, 2)
    streak.step(evaluation(2500, 5000).rate)
    other.load_state_dict(streak.state_dict())
    assert other.step(evaluation(2500, 5000).rate)


def test_convergence_needs_the_top_level_and_if_asked_a_small_exploitability() -> None:
    even = run([0.9, 0.5, 0.5])
    assert converged(even, at_top=True, consecutive=2)
    assert not converged(even, at_top=True, consecutive=3)
    assert not converged(even, at_top=False)
    assert not converged([], at_top=True)
    assert not converged(even, at_top=True, limit=0.15)
    assert not converged(even, at_top=True, limit=0.15, exploitability=Rate(0.14, 0.12, 0.16))
    assert converged(even, at_top=True, limit=0.15, exploitability=Rate(0.12, 0.10, 0.14))


def test_an_analysis_finds_convergence_by_the_rule_and_the_level_of_the_run() -> None:
    even = run([0.9, 0.5, 0.5])
    low = [replace(e, level=2.0) for e in even]
    assert analyse(even).converged
    assert not analyse(low, top=3.0).converged
    assert analyse(low, top=2.0, consecutive=2).converged
    assert not analyse(
        [*low[:1], replace(low[1], level=1.0), low[2]], top=2.0, consecutive=2
    ).converged
    assert not analyse(run([0.5, 0.53]), eta=0.05).converged
    assert analyse(run([0.5, 0.52]), eta=0.05, by="point").converged


def test_the_rule_of_a_run_is_that_of_its_guards() -> None:
    smooth = CurriculumConfig(kind="smooth", start=5.0, end=15.0, increment=2.0)
    small = PursuitOptions(arena_width=6.0, arena_height=8.0)
    assert rule_of(GuardsConfig(), small) == Rule()
    balance = GuardsConfig(balance=BalanceConfig(enabled=True, curriculum=smooth))
    assert rule_of(balance, small) == Rule(top=3.0)
    assert rule_of(balance, PursuitOptions()) == Rule(top=6.0)
    protocol = ProtocolConfig(
        enabled=True, converged_gap=0.05, converged_evaluations=3, converged_by="point"
    )
    assert rule_of(GuardsConfig(protocol=protocol), small) == Rule(0.05, 3, "point")


def test_a_rate_is_judged_by_its_whole_interval() -> None:
    assert judge(Rate(0.04, 0.02, 0.05), 0.05) == "below"
    assert judge(Rate(0.04, 0.02, 0.06), 0.05) == "unsure"
    assert judge(Rate(0.08, 0.051, 0.1), 0.05) == "above"


def exploit(pursuer: Rate, evader: Rate) -> Exploitability:
    zero = Rate(0.5, 0.49, 0.51)
    sides = [Response(role, zero, gain, 1, 1, 2) for role, gain in
             (("pursuer", pursuer), ("evader", evader))]  # fmt: skip
    return Exploitability(1, 1, 5000, zero, sides[0], sides[1], 0.4, 0.6, Rate(0.2, 0.1, 0.3))


LOW, HIGH, WIDE = Rate(0.02, 0.01, 0.03), Rate(0.2, 0.15, 0.25), Rate(0.07, 0.03, 0.11)


@pytest.mark.parametrize(
    ("pursuer", "evader", "level", "by_point"),
    [
        (LOW, LOW, "L1", "L1"),
        (HIGH, LOW, "L2", "L2"),
        (LOW, HIGH, "L3", "L3"),
        (HIGH, HIGH, "L4", "L4"),
        (WIDE, LOW, "undecided", "L2"),
        (WIDE, WIDE, "undecided", "L4"),
    ],
)
def test_verdicts_of_a_pair(pursuer: Rate, evader: Rate, level: str, by_point: str) -> None:
    found = classify(exploit(pursuer, evader))
    assert (found.level, found.by_point) == (level, by_point)
    assert found.words


def test_an_undecided_verdict_names_the_side_that_needs_more_games() -> None:
    assert "gain of the evader is" in classify(exploit(LOW, WIDE)).words


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        (["L1", "L1"], "H1"),
        (["L3", "L3", "L3"], "H3"),
        (["L1", "L2"], "H5"),
        (["L1", "undecided"], "undecided"),
        (["L1", "undecided", "L4"], "H5"),
        ([], "undecided"),
    ],
)
def test_verdicts_of_a_cohort(levels: list[str], expected: str) -> None:
    assert cohort([Verdict(level, level, 0.05, "") for level in levels]) == expected


def test_a_settled_run_has_neither_trend_nor_swings() -> None:
    rng = np.random.default_rng(0)
    rates = rng.binomial(5000, 0.5, 40) / 5000
    found = analyse(run(rates.tolist()))
    assert found is not None
    assert (found.swings, found.oscillation) == (0, "settled")
    assert found.gap_trend.words == "flat"
    assert found.converged
    assert found.outside == ()
    assert (found.dominant, found.dominance) == ("", 0)


def test_an_oscillating_run_has_its_period_and_amplitude() -> None:
    steps = 200_000 * np.arange(1, 61)
    rates = 0.5 + 0.45 * np.sin(2 * np.pi * steps / 4_000_000 - 1.0)
    found = analyse(run(rates.tolist()))
    assert found is not None
    assert found.oscillation == "oscillates"
    assert found.swings == 6
    assert found.period_env_steps == pytest.approx(4_000_000, rel=0.05)
    assert found.amplitude == pytest.approx(0.9, abs=0.02)
    assert found.gap_trend.words == "flat"
    assert len(found.outside) > 10


def test_small_samples_do_not_make_a_settled_pair_oscillate() -> None:
    rng = np.random.default_rng(1)
    swings = []
    for _ in range(20):
        found = analyse(run((rng.binomial(100, 0.5, 40) / 100).tolist(), games=100))
        assert found is not None
        swings.append(found.swings)
    assert np.mean(swings) < 2.0


def test_a_run_that_tips_over_is_told_by_whom_and_for_how_long() -> None:
    rates = [0.5, 0.5, 0.6, 0.7, 0.8, 0.95, 1.0, 1.0, 1.0, 1.0]
    found = analyse(run(rates))
    assert found is not None
    assert (found.dominant, found.dominance) == ("pursuer", 5)
    assert found.outside == (6, 7, 8, 9, 10)
    assert found.rate_trend.words == found.gap_trend.words == "rising"
    assert found.oscillation == "drifts"
    assert not found.converged
    evader = analyse(run([1 - r for r in rates]))
    assert evader is not None
    assert evader.dominant == "evader"
    assert evader.rate_trend.words == "falling"


def test_evaluations_of_the_first_million_steps_may_leave_the_band() -> None:
    found = analyse(run([1.0, 1.0, 0.5, 0.5, 0.5, 0.5]))
    assert found is not None
    assert found.outside == ()
    assert found.dominance == 2


def test_the_trend_of_noise_is_flat_nearly_always_even_if_neighbours_resemble_each_other() -> None:
    rng = np.random.default_rng(2)
    steps = 1e5 * np.arange(60)
    wrong = 0
    for _ in range(200):
        noise = rng.normal(size=60)
        for k in range(1, 60):
            noise[k] += 0.6 * noise[k - 1]
        wrong += trend(steps, noise).words != "flat"
    assert wrong / 200 < 0.12
    slope = trend(steps, -0.5 * steps / 1e6 + 0.05 * rng.normal(size=60))
    assert slope.words == "falling"
    assert slope.per_million is not None
    assert slope.per_million.low < -0.5 < slope.per_million.high


@pytest.mark.parametrize("count", [1, 2, 3])
def test_short_runs_are_analysed_too(count: int) -> None:
    found = analyse(run([0.5] * count))
    assert found is not None
    assert found.evaluations == count
    assert plain(asdict(found))["final"]["value"] == 0.5


def test_no_evaluations_have_no_analysis() -> None:
    assert analyse([]) is None
