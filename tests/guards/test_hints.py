"""Hints: every rule of the table, its evidence, its cooldown, and the run that never ends an episode."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.guards.hint_rules import RULES, WALL_RULES, Rule, Table
from holdfast.guards.hints import SOURCES, HintsConfig, HintsGuard
from holdfast.records import Decision
from holdfast.store.journal import read_lines

HEALTHY: dict[str, Any] = {
    "episode/return_mean": 5.0,
    "episode/count": 40,
    "train/policy_loss": 0.01,
    "train/value_loss": 0.3,
    "train/entropy_mean": 0.8,
    "train/entropy_max": math.log(4),
    "train/explained_variance": 0.6,
    "world/games": 4,
    "world/slots_per_game": 1,
}


def feed(guard: HintsGuard, updates: range, ends: bool = True, **signals: Any) -> list[Decision]:
    found = []
    for update in updates:
        line = {**HEALTHY, "update": update, "env_steps": update * 4 * 100, **signals}
        if ends and "episode/count" not in signals:
            line["episode/count"] = update
        found += guard.step(line)
    return found


CASES: list[tuple[str, int, dict[str, Any]]] = [
    ("no_progress", 10, {"guard/progress/gain_mean": 0.0, "guard/progress/positive_ratio": 0.0}),
    (
        "script_without_progress",
        50,
        {"guard/progress/gain_mean": 0.0, "guard/bootstrap/injections": 2},
    ),
    (
        "ends_at_one_place",
        60,
        {"guard/progress/same_place_rate": 0.9, "guard/progress/same_place": 783.0},
    ),
    ("return_stays_low", 200, {"episode/return_mean": -1.0}),
    ("progress_without_end", 200, {"train/reward_mean": 0.3, "episode/count": 0}),
    ("replay_stays_empty", 300, {"train/replay_fill_rate": 0.01}),
    ("loss_is_large", 50, {"train/value_loss": 9.0}),
    ("policy_stays_uniform", 500, {"train/entropy_mean": 0.999 * math.log(4)}),
    ("policy_collapsed", 10, {"train/entropy_mean": 0.01}),
    ("values_predict_nothing", 100, {"train/explained_variance": -0.2}),
    ("policy_lags", 10, {"train/policy_lag": 5}),
]


@pytest.mark.parametrize(("rule", "update", "signals"), CASES)
def test_a_rule_fires_at_its_update_and_not_before(
    rule: str, update: int, signals: dict[str, Any]
) -> None:
    guard = HintsGuard(HintsConfig(longest_episode=10**9))
    before = feed(guard, range(1, update), **signals)
    assert rule not in {d.name for d in before}
    (made,) = [d for d in feed(guard, range(update, update + 1), **signals) if d.name == rule]
    assert made.kind == "warn"
    assert isinstance(made.value, dict) and made.value, "evidence"
    assert "nan" not in made.message and "{" not in made.message
    condition = next(r for r in RULES if r.id == rule).conditions[-1]
    assert (made.cause.signal, made.cause.threshold) == (condition[0], condition[2])
    assert made.value[condition[0]] == made.cause.value


def test_every_rule_has_a_case_and_an_id_of_its_own() -> None:
    tested = {case[0] for case in CASES} | {"never_ends", "no_longer_ends", "got_worse"}
    assert {rule.id for rule in RULES} == tested
    ids = [rule.id for rule in RULES + WALL_RULES]
    assert len(set(ids)) == len(ids)


def test_a_healthy_run_hears_nothing() -> None:
    assert feed(HintsGuard(HintsConfig()), range(1, 1500)) == []


def test_returns_that_are_negative_by_nature_but_rise_are_no_reason_for_a_hint() -> None:
    guard = HintsGuard(HintsConfig())
    for update in range(1, 400):
        value = -1000 + 2 * update
        assert feed(guard, range(update, update + 1), **{"episode/return_mean": value}) == []


def test_a_signal_that_is_not_there_fulfils_nothing() -> None:
    guard = HintsGuard(HintsConfig())
    assert [d for u in range(1, 1000) for d in guard.step({"update": u})] == []


def test_the_same_hint_waits_for_the_cooldown_also_across_a_restart() -> None:
    guard, bad = HintsGuard(HintsConfig(cooldown=50)), {"train/entropy_mean": 0.01}
    assert [d.name for d in feed(guard, range(1, 40), **bad)] == ["policy_collapsed"]
    again = HintsGuard(HintsConfig(cooldown=50))
    again.load_state_dict(json.loads(json.dumps(guard.state_dict())))
    assert again.status() == guard.status() == {"given": 1, "last": "policy_collapsed"}
    assert feed(again, range(40, 60), **bad) == []
    assert [d.name for d in feed(again, range(60, 100), **bad)] == ["policy_collapsed"]


def test_a_condition_must_hold_in_a_row() -> None:
    guard = HintsGuard(HintsConfig())
    for update in range(1, 500):
        entropy = 0.8 if update % 9 == 0 else 0.01
        assert feed(guard, range(update, update + 1), **{"train/entropy_mean": entropy}) == []


def test_a_probe_far_below_the_best_is_told_once_with_both_numbers() -> None:
    guard = HintsGuard(HintsConfig())
    assert feed(guard, range(20, 21), **{"probe/clear_rate": 0.9}) == []
    assert feed(guard, range(40, 41), **{"probe/clear_rate": 0.75}) == []
    (made,) = feed(guard, range(60, 61), **{"probe/clear_rate": 0.6})
    assert made.name == "got_worse"
    assert made.value["probe_best"] == 0.9 and made.value["probe_now"] == 0.6


def test_a_run_without_a_single_end_is_stopped_at_three_lengths() -> None:
    guard = HintsGuard(HintsConfig(longest_episode=1000))
    assert feed(guard, range(1, 30), **{"episode/count": 0}) == []
    (stop,) = feed(guard, range(30, 31), **{"episode/count": 0})
    assert (stop.kind, stop.name) == ("stop", "never_ends")
    assert stop.value["steps_without_end"] == 3000
    assert "max-steps" in stop.message
    mild = HintsGuard(HintsConfig(longest_episode=1000, stop_when_endless=False))
    assert [d.kind for d in feed(mild, range(1, 31), **{"episode/count": 0})] == ["warn"]


def test_a_run_whose_episodes_end_no_more_is_warned_not_stopped() -> None:
    guard = HintsGuard(HintsConfig(longest_episode=1000))
    made = feed(guard, range(1, 60), **{"episode/count": 7})
    assert [(d.kind, d.name) for d in made] == [("warn", "no_longer_ends")]


def test_the_light_shows_a_fresh_hint() -> None:
    guard = HintsGuard(HintsConfig())
    assert guard.light() == "green"
    feed(guard, range(1, 11), **{"train/entropy_mean": 0.01})
    assert guard.light() == "yellow"
    feed(guard, range(11, 40))
    assert guard.light() == "green"


WALL: list[tuple[str, dict[str, float]]] = [
    ("world_takes_the_time", {"world_share": 0.9}),
    ("gpu_idles", {"gpu_util_pct": 2.0}),
    ("disk_nearly_full", {"disk_free_gb": 0.5}),
    ("memory_nearly_full", {"system_memory_pct": 97.0, "rss_mb": 900.0}),
    ("environments_fail", {"env_restarts": 4.0, "restarts_an_hour": 2.0}),
]


@pytest.mark.parametrize(("rule", "facts"), WALL)
def test_a_rule_about_the_machine_fires_with_its_numbers(
    rule: str, facts: dict[str, float]
) -> None:
    table = Table(WALL_RULES, cooldown=200)
    made = [hint for update in range(1000, 1005) for hint in table.look(update, facts)]
    assert [hint.rule.id for hint in made] == [rule]
    assert made[0].evidence == facts
    assert "nan" not in made[0].message


def test_rules_are_data_with_texts_that_format() -> None:
    for rule in RULES + WALL_RULES:
        assert isinstance(rule, Rule) and rule.severity in ("info", "warning", "fatal")
        facts = {name: 1.0 for name, _, _ in rule.conditions}
        assert rule.message.format_map(
            type("All", (dict,), {"__missing__": lambda s, k: 1.0})(facts)
        )


ENDLESS = """
import gymnasium as gym
import numpy as np

class Endless(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    def reset(self, seed=None, options=None):
        return np.zeros(2, np.float32), {}
    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}
"""


def test_a_real_run_in_a_world_without_ends_is_stopped_with_exit_code_4(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS)
    words = (
        "train endless:Endless --run e --updates 200 --steps 32 --games 4 --mode serial --plain --no-report "
        "--guards.hints.longest-episode 100 --probe.every 2 --probe.episodes 3"
    )
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *words.split()],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=300,
    )
    assert done.returncode == 4, done.stderr
    assert "no episode has ended in 320 steps a slot" in done.stderr
    assert "Traceback" not in done.stderr
    stops = [
        line
        for line in read_lines(tmp_path / "runs" / "e" / "journal.jsonl")
        if line.get("kind") == "stop"
    ]
    assert [line["name"] for line in stops] == ["never_ends"]
    assert stops[0]["value"]["lengths_without_end"] == pytest.approx(3.2)
    probes = list(read_lines(tmp_path / "runs" / "e" / "evals.jsonl"))
    assert [p["metrics"]["length_mean"] for p in probes] == [300.0] * 5, "probes are cut as well"
    line = list(read_lines(tmp_path / "runs" / "e" / "metrics.jsonl"))[-1]
    read = {name for names in SOURCES.values() for name in names if name.startswith("train/")}
    assert read - set(line) == {"train/replay_fill_rate"}, "what only some learners say"


def test_the_fill_of_a_real_replay_reaches_its_rule(tmp_path: Path) -> None:
    replay = {"enabled": True, "capacity": 100_000}
    holdfast.train(
        "shoal", runs_dir=tmp_path, run="v", say=lambda _: None, games=2, fish=2, updates=2,
        probe__episodes=2, learner__kind="vtrace", learner__steps=8,
        **{f"learner__replay__{name}": value for name, value in replay.items()},
    )  # fmt: skip
    line = list(read_lines(tmp_path / "v" / "metrics.jsonl"))[-1]
    facts = HintsGuard(HintsConfig()).facts(line)
    assert 0.0 < facts["replay_fill"] < 0.05
    assert "replay_stays_empty" in {hint.rule.id for hint in Table(RULES, 200).look(300, facts)}
