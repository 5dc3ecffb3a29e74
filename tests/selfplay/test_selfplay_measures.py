"""Each countermeasure against one-sided self-play acts in a small real run.

| countermeasure | test |
|---|---|
| bilateral rollback | a_side_that_wins_nothing..., a_policy_without_entropy..., the_balance_guard_takes_both_back... |
| evader checkpoints from the cold start on | the_cold_start_trains_the_evader_alone_and_keeps_it |
| evader first on advance | the_evader_trains_first_after_every_advance |
| warm start | test_selfplay_runs: every_countermeasure_of_the_protocol_acts |
| mixed levels | a_share_of_the_games_stays_at_the_level_before |
| smooth and discrete levels, NE-gap advancement | discrete_levels_rise_on_a_small_gap, test_selfplay_runs |
| regression | levels_fall_when_the_evader_never_escapes |
| EWC | parameters_that_were_held_have_a_penalty_from_then_on |
| RND | novelty_pays_the_roles_that_it_is_meant_for |
| opponent pool | pools_keep_and_meet_past_opponents_by_their_mode |
| health monitor | a_policy_without_entropy..., test_selfplay_runs (capture dominance) |
| adaptive ratio | the_loser_trains_alone_while_the_boost_lasts |
| LR dampening | small_gaps_make_small_steps |
| forced switch, alternate freeze | the_frozen_side_changes_when_the_other_wins_or_when_it_must |
| collapse rollback | a_side_that_wins_nothing_takes_both_back... |
| micro-phases, phase warm-up | sides_take_turns_by_the_lengths_of_their_phases |
| balance | test_selfplay_runs: both_sides_learn_at_once_and_the_balance_guard_acts |
| convergence | a_run_that_stays_even_is_done |
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
from holdfast.run import Outcome, RunDirectory

CONFIG = """
[run]
updates = 8
checkpoint_every = 1
keep_last = 100
stagger = 0
tensorboard = false
seed = 3
[world]
name = "pursuit"
games = 8
arena_width = 10.0
arena_height = 10.0
max_steps = 30
fixed_speed = true
obstacle_capacity = 4
{world}
[learner]
steps = 16
epochs = 1
minibatch = 64
hidden = [8, 8]
threads = 1
lr_schedule = "constant"
[probe]
every = 2
episodes = 20
[selfplay]
enabled = true
{selfplay}
[guards.plateau]
enabled = false
{guards}
"""
SOME = "capture_radius = 4.0\nmin_init_distance = 3.0"
"""The pursuer wins some games."""
ALL = "capture_radius = 20.0"
"""It wins all of them."""
NONE = "capture_radius = 0.1\nmin_init_distance = 4.0"
"""It wins none."""
STEPS = 8 * 16
"""Steps that a side learns from in one update."""


def play(folder: Path, world: str, guards: str, selfplay: str = "", **settings: Any) -> Outcome:
    path = folder / "run.toml"
    path.write_text(CONFIG.format(world=world, guards=guards, selfplay=selfplay))
    return holdfast.train(str(path), runs_dir=folder, run="r", say=lambda text: None, **settings)


def lines(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "r" / name).read_text().splitlines()]


def decisions(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [d for d in lines(folder, "journal.jsonl") if d.get("kind") == kind]


def learned(folder: Path) -> str:
    """Return who learned in each update, as letters: p, e, or b for both."""
    found = ""
    for line in lines(folder, "metrics.jsonl"):
        parts = [key.split("/") for key in line if key.startswith("train/")]
        roles = {words[1] for words in parts if len(words) == 3}
        found += "b" if len(roles) == 2 else min(roles)[0]
    return found


def state(folder: Path, update: int) -> dict[str, Any]:
    return RunDirectory(folder / "r").checkpoints().find(update).load()


def test_sides_take_turns_by_the_lengths_of_their_phases(tmp_path: Path) -> None:
    play(tmp_path, SOME, "[guards.protocol]\nenabled = true\nphase_steps = 0")
    assert learned(tmp_path) == "pepepepe"
    longer = tmp_path / "longer"
    longer.mkdir()
    phases = f"phase_steps = {3 * STEPS}\nwarmup = [{STEPS}, {2 * STEPS}]"
    play(longer, SOME, f"[guards.protocol]\nenabled = true\n{phases}", probe__every=0, updates=9)
    assert learned(longer) == "p" + "ee" + "ppp" + "eee"
    phases_seen = [line["phase"] for line in lines(longer, "selfplay.jsonl")]
    assert phases_seen == ["S1", "S2", "S3", "S4"]


def test_the_loser_trains_alone_while_the_boost_lasts(tmp_path: Path) -> None:
    boost = "phase_steps = 0\nboost_gap = 0.3\nboost_phases = 3"
    play(tmp_path, NONE, f"[guards.protocol]\nenabled = true\n{boost}", probe__every=4)
    assert learned(tmp_path) == "pepe" + "ppp" + "p"


@pytest.mark.parametrize(
    ("world", "force", "expected"),
    [(ALL, 0, "ppeeeeee"), (NONE, 0, "pppppppp"), (NONE, 4 * STEPS, "ppppeepp")],
)
def test_the_frozen_side_changes_when_the_other_wins_or_when_it_must(
    tmp_path: Path, world: str, force: int, expected: str
) -> None:
    freeze = f'[guards.protocol.freeze]\nrole = "evader"\nforce_first_steps = {force}'
    play(tmp_path, world, f"[guards.protocol]\nenabled = true\nphase_steps = 0\n{freeze}")
    assert learned(tmp_path) == expected


def test_the_cold_start_trains_the_evader_alone_and_keeps_it(tmp_path: Path) -> None:
    guards = f"""
[guards.protocol]
enabled = true
cold_start = true
phase_steps = {2 * STEPS}
[[phase]]
name = "cold start"
updates = 3
[phase.world]
task = "navigation"
flee_probability = 1.0
[[phase]]
name = "game"
updates = 5
"""
    play(tmp_path, SOME, guards, probe__every=0)
    assert learned(tmp_path) == "eee" + "pp" + "ee" + "p"
    kept = state(tmp_path, 4)["pairs"]["kept"]
    assert [(pair["label"], pair["milestone"]) for pair in kept] == [("S0:evader", True)]
    after = state(tmp_path, 3)["learner.evader"]["parameters"]
    for name, value in kept[0]["states"]["evader"]["parameters"].items():
        assert np.array_equal(value, after[name]), name


def test_the_evader_trains_first_after_every_advance(tmp_path: Path) -> None:
    guards = f"""
[guards.protocol]
enabled = true
phase_steps = {STEPS}
evader_first = true
[guards.protocol.curriculum]
kind = "smooth"
increment = 3.0
regress_evaluations = 100
"""
    play(tmp_path, ALL, guards, probe__every=0)
    advances = {d["update"] for d in decisions(tmp_path, "set_world") if d["update"] > 0}
    assert len(advances) == 3
    turns = learned(tmp_path)
    assert all(turns[update] == "e" for update in advances)
    # The first advance is paid by the evader's own turn, the other two by phases that are inserted.
    assert turns == "pe" + "ee" + "pepe"


def test_a_share_of_the_games_stays_at_the_level_before(tmp_path: Path) -> None:
    guards = f"""
[guards.protocol]
enabled = true
phase_steps = {STEPS}
mixed_share = 0.5
[guards.protocol.curriculum]
kind = "smooth"
increment = 7.0
regress_evaluations = 100
"""
    play(tmp_path, ALL, guards, probe__every=0, updates=4)
    late = [line for line in lines(tmp_path, "episodes.jsonl") if line["update"] >= 3]
    reach = {line["game"]: 0.0 for line in late}
    for line in late:
        reach[line["game"]] = max(reach[line["game"]], line["facts/init_distance_m"])
    assert [reach[game] <= 5.0 for game in range(8)] == [True] * 4 + [False] * 4


def test_discrete_levels_rise_on_a_small_gap(tmp_path: Path) -> None:
    guards = """
[guards.balance]
enabled = true
low = 0.0
high = 1.0
[guards.balance.curriculum]
kind = "discrete"
rule = "gap"
gap_below = 1.0
gap_by = "point"
gap_evaluations = 2
"""
    play(tmp_path, SOME, guards)
    made = [d for d in decisions(tmp_path, "set_world") if d["update"] > 0]
    values = {(d["update"], d["name"]): d["applied"] for d in made}
    assert values[4, "min_init_distance"] == pytest.approx(0.32 * 200**0.5)
    assert [line["level"] for line in lines(tmp_path, "selfplay.jsonl")] == [1, 1, 2, 2]


def test_levels_fall_when_the_evader_never_escapes(tmp_path: Path) -> None:
    guards = """
[guards.balance]
enabled = true
[guards.balance.curriculum]
kind = "smooth"
rule = "capture"
increment = 4.0
"""
    play(tmp_path, ALL, guards, probe__every=1)
    reach = [
        d["applied"] for d in decisions(tmp_path, "set_world") if d["name"] == "max_init_distance"
    ]
    steps = np.diff(reach)
    assert steps[0] > 0
    assert (steps < 0).any()


def test_parameters_that_were_held_have_a_penalty_from_then_on(tmp_path: Path) -> None:
    guards = """
[guards.balance]
enabled = true
protect = 10.0
protect_samples = 64
protect_decay = 0.5
[guards.balance.curriculum]
kind = "smooth"
rule = "capture"
increment = 4.0
regress_evaluations = 100
"""
    play(tmp_path, ALL, guards, probe__every=3)
    held = decisions(tmp_path, "protect")
    assert [d["update"] for d in held] == [3, 6]
    assert held[0]["value"] == {"weight": 10.0, "samples": 64, "decay": 0.5}
    found = lines(tmp_path, "metrics.jsonl")
    first = [line["update"] for line in found if "train/evader/ewc_penalty" in line]
    assert first == [4, 5, 6, 7, 8]
    assert all(line["train/evader/ewc_penalty"] > 0 for line in found[3:])
    one, two = (state(tmp_path, u)["learner.pursuer"]["anchor"]["fisher"] for u in (3, 6))
    assert all((two[name] >= 0.5 * one[name] - 1e-12).all() for name in one)


def test_novelty_pays_the_roles_that_it_is_meant_for(tmp_path: Path) -> None:
    selfplay = 'novelty_roles = ["evader"]\n[novelty]\nweight = 0.1'
    play(tmp_path, SOME, "", selfplay, updates=3)
    for line in lines(tmp_path, "metrics.jsonl"):
        assert line["train/evader/novelty_bonus"] > 0
        assert "train/pursuer/novelty_bonus" not in line


@pytest.mark.parametrize("mode", ["fifo", "reservoir", "pfsp"])
def test_pools_keep_and_meet_past_opponents_by_their_mode(tmp_path: Path, mode: str) -> None:
    selfplay = f"""
history = 0.5
pool = "{mode}"
pool_size = 3
pool_every = 2
pool_weighting = "variance"
pool_estimate = "interval"
pool_memory = 4.0
pool_floor = 0.3
pool_seed = 5
"""
    play(tmp_path, SOME, "", selfplay, updates=12, games=16)
    for role in ("pursuer", "evader"):
        pool = state(tmp_path, 12)["cast"]["pools"][role]["pool"]
        updates = [member["update"] for member in pool["members"]]
        assert len(updates) == 3
        assert (sorted(updates) == [8, 10, 12]) == (mode == "fifo")
        assert any(member["games"] > 0 for member in pool["members"])
        assert all(member["games"] <= 4.0 for member in pool["members"])
        met = {
            int(i) for u in range(1, 13) for i in state(tmp_path, u)["cast"]["pools"][role]["who"]
        }
        assert len(met) > 3


def test_small_gaps_make_small_steps(tmp_path: Path) -> None:
    play(tmp_path, SOME, "[guards.dampen]\nenabled = true\ngap = 1.0\nleast = 0.05", updates=4)
    evaluation = lines(tmp_path, "selfplay.jsonl")[0]
    found = {line["update"]: line for line in lines(tmp_path, "metrics.jsonl")}
    assert found[2]["train/evader/lr_scale"] == 1.0
    assert found[3]["train/evader/lr_scale"] == pytest.approx(max(0.05, evaluation["ne_gap"]))
    assert found[3]["train/evader/lr_scale"] < 1.0


def went_back(folder: Path, guard: str) -> list[dict[str, Any]]:
    """Return the rollbacks after checking that both sides became the pair that each names."""
    found = [d for d in decisions(folder, "rollback") if d["guard"] == guard]
    for decision in found:
        after = state(folder, decision["update"])
        pair = next(p for p in after["pairs"]["kept"] if p["label"] == decision["name"])
        for role in ("pursuer", "evader"):
            for name, value in pair["states"][role]["parameters"].items():
                assert np.array_equal(value, after[f"learner.{role}"]["parameters"][name]), name
    return found


def test_a_policy_without_entropy_takes_both_sides_back_and_never_further_each_time(
    tmp_path: Path,
) -> None:
    health = "keep_every = 1\nmin_entropy = 100.0\nwait_steps = 0"
    play(tmp_path, SOME, f"[guards.collapse]\nenabled = true\n{health}")
    found = went_back(tmp_path, "collapse")
    assert len(found) > 1
    assert {d["cause"]["signal"] for d in found} == {"train/pursuer/entropy_mean"}
    updates = [int(d["applied"].split()[-1]) for d in found]
    assert updates == sorted(updates)


def test_a_side_that_wins_nothing_takes_both_back_to_the_best_balanced_pair(tmp_path: Path) -> None:
    rule = "keep_every = 1\nrate_below = 0.05\nevaluations = 2\ncapture_low = 0.0\nmin_entropy = -100.0"
    play(tmp_path, NONE, f"[guards.collapse]\nenabled = true\nwait_steps = 0\n{rule}")
    found = went_back(tmp_path, "collapse")
    assert found[0]["update"] == 4
    assert found[0]["cause"]["signal"] == "pursuer win rate"
    # No game had ended when u1 was kept; the pairs after it were known to win nothing.
    assert found[0]["name"] == "u1"


def test_the_balance_guard_takes_both_back_when_one_side_collapses(tmp_path: Path) -> None:
    balance = "[guards.balance]\nenabled = true\nlow = 0.0\nhigh = 1.0"
    never = "collapse_low = 0.0\ncollapse_high = 1.0"
    world = "capture_radius = 1.5\nmin_init_distance = 2.0\nmax_init_distance = 4.0"
    quick: dict[str, Any] = {"probe__every": 1, "lr": 0.03, "max_steps": 80, "updates": 12}
    play(tmp_path, world, f"{balance}\n{never}", **quick)
    rates = [line["sr_p"] for line in lines(tmp_path, "selfplay.jsonl")]
    # The threshold is laid where the rate moves for the first time: there the same run loses a side.
    k = next(k for k in range(len(rates) - 1) if rates[k + 1] != rates[k])
    side = "high" if rates[k + 1] > rates[k] else "low"
    again = tmp_path / "again"
    again.mkdir()
    ends = {"low": 0.0, "high": 1.0, side: rates[k]}
    rule = f"collapse_low = {ends['low']}\ncollapse_high = {ends['high']}\ncollapse_evaluations = 1"
    play(again, world, f"{balance}\n{rule}", **quick)
    first = went_back(again, "balance")[0]
    assert (first["update"], first["name"]) == (k + 2, f"u{k + 1}")


def test_a_run_that_stays_even_is_done(tmp_path: Path) -> None:
    rule = "phase_steps = 0\nconverged_gap = 1.0\nconverged_evaluations = 2"
    outcome = play(tmp_path, SOME, f"[guards.protocol]\nenabled = true\n{rule}")
    assert outcome.state == "finished"
    assert outcome.update == 4
    end = decisions(tmp_path, "finish")[0]
    assert (end["name"], end["cause"]["threshold"]) == ("converged", 1.0)
