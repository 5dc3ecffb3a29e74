"""The tables that a study of pursuit adds, from lines as a run writes them, and from a real run of self-play."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from study_calls import call

from holdfast.store.journal import read_lines
from holdfast.study.child import Probed
from holdfast.study.pursuit import count_rollbacks, phase_rows, stability_row, variance_row

CONFIG = """
[run]
tensorboard = false
[world]
name = "pursuit"
games = 8
max_steps = 40
[learner]
steps = 16
hidden = [8, 8]
minibatch = 64
[probe]
every = 2
episodes = 4
[selfplay]
enabled = true
history = 0.5
pool_every = 1
[guards.plateau]
enabled = false
[guards.collapse]
enabled = true
keep_every = 1
wait_steps = 0
rate_below = 0.99
evaluations = 1
[guards.protocol]
enabled = true
cold_start = true
phase_steps = 256
[[phase]]
updates = 4
[[phase]]
updates = 8
"""


def probed(update: int, rate: float) -> Probed:
    metrics = {"capture_rate": rate, "escape_rate": 1 - rate, "win_gap": abs(2 * rate - 1)}
    return Probed(update, update * 1000, metrics)


def decided(update: int, guard: str, kind: str, name: str, roles: Any = None) -> dict[str, Any]:
    about = {"event": "decision", "guard": guard, "kind": kind, "name": name}
    return {**about, "update": update, "applied": roles}


def test_phases_are_read_from_the_journal() -> None:
    journal = [
        decided(0, "protocol", "train_roles", "cold start", ["evader"]),
        decided(10, "protocol", "train_roles", "S1", ["pursuer"]),
        {"event": "probe", "update": 15},
        decided(20, "protocol", "train_roles", "warm start", ["evader"]),
        decided(25, "protocol", "train_roles", "S2", ["evader"]),
        decided(28, "protocol", "train_roles", "S2", ["evader"]),
    ]
    rates = {5: 0.1, 10: 0.17, 15: 0.4, 20: 0.5, 24: 0.8, 40: 0.96}
    probes = [probed(update, rate) for update, rate in rates.items()]
    rows = phase_rows(journal, probes)
    assert [row["phase"] for row in rows] == ["cold start", "S1", "S2"]
    assert [row["trains"] for row in rows] == [["evader"], ["pursuer"], ["evader"]]
    found = variance_row(rows)
    assert found["cold_start_escape"] == pytest.approx(0.83)
    assert (found["s1_capture"], found["s1_gap"]) == (0.5, 0.0)
    assert found["phases"] == {"S1": 0.5, "S2": 0.96}


def test_a_phase_without_an_evaluation_has_no_figures() -> None:
    journal = [decided(0, "protocol", "train_roles", "S1", ["pursuer"])]
    assert variance_row(phase_rows(journal, []))["s1_capture"] is None


def test_only_going_back_after_a_collapse_is_a_rollback() -> None:
    journal = [
        decided(5, "collapse", "rollback", "u1"),
        decided(6, "balance", "rollback", "u5"),
        decided(7, "health", "rollback", "last_good"),
        decided(8, "protocol", "rollback", "S2:evader"),
        decided(9, "collapse", "keep_pair", "u9"),
        {"event": "update", "update": 9},
    ]
    assert count_rollbacks(journal) == 2


def test_stability_is_judged_after_the_first_steps_and_the_edges_are_inside() -> None:
    probes = [probed(1, 0.0), probed(2, 0.0), probed(3, 0.1), probed(4, 0.9), probed(5, 0.91)]
    row = stability_row(probes, after=2000)
    assert row["evaluations"] == 3
    assert row["inside"] == pytest.approx(2 / 3)
    assert (row["lowest"], row["highest"], row["final"]) == (0.1, 0.91, 0.91)
    assert row["first_outside"] == 5000
    assert stability_row(probes, after=4000)["inside"] == 0.0
    assert stability_row(probes, after=9000)["inside"] is None


def test_a_real_run_of_the_protocol_fills_both_tables(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(CONFIG)
    words = ["p.toml", "--seeds", "1", "--name", "p", "--stable-after", "300"]
    call("study", *words, cwd=tmp_path)
    study = tmp_path / "runs" / "p"
    record = json.loads((study / "study.json").read_text())
    (row,) = record["pursuit"]["seed_variance"]
    journal = list(read_lines(study / "s1" / "journal.jsonl"))
    ends = {d["name"]: d["update"] for d in journal if d.get("kind") == "train_roles"}
    evals = {e["update"]: e["metrics"] for e in read_lines(study / "s1" / "evals.jsonl")}
    cold = evals[max(u for u in evals if u <= ends["S1"])]
    first = evals[max(u for u in evals if u <= ends["S2"])]
    assert row["cold_start_escape"] == cold["escape_rate"]
    assert (row["s1_capture"], row["s1_gap"]) == (first["capture_rate"], first["win_gap"])
    assert row["rollbacks"] == sum(d.get("kind") == "rollback" for d in journal) > 0
    (held,) = record["pursuit"]["stability"]
    assert held["evaluations"] == sum(
        e["env_steps"] > 300 for e in read_lines(study / "s1" / "evals.jsonl")
    )
    page = (study / "table.md").read_text()
    assert "| seed | cold-start escape | S1 capture | gap | rollbacks |" in page
    assert "## Stability after 300 environment steps" in page
