"""Studies of seeds and variants with real children: killed, stopped, failed, and gone on with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from study_calls import SHORT, TINY, begin, call, record, refusal

from holdfast.run import RunDirectory
from holdfast.store.journal import read_lines
from holdfast.study.table import spread

LONG = [*TINY, "--updates", "200", "--probe.every", "100", "--checkpoint-every", "20"]


def wait_until(true: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Return when `true` holds; fail if the process ends first."""
    while not true():
        if process.poll() is not None:
            raise AssertionError(process.communicate())
        time.sleep(0.01)


def update_of(run: Path) -> int:
    try:
        return int(json.loads((run / "heartbeat.json").read_text())["update"])
    except (OSError, ValueError, KeyError):
        return -1


def pid_of(run: Path) -> int:
    owner = RunDirectory(run).locked_by()
    assert owner is not None
    return int(owner["pid"])


def hashes(run: Path) -> list[Any]:
    """Return the parameters after every update."""
    return [
        line["parameters"]
        for line in read_lines(run / "journal.jsonl")
        if line["event"] == "update"
    ]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("finished")
    call("study", "shoal", "--seeds", "1,3", "--name", "a", *SHORT, cwd=where)
    return where


def test_every_seed_is_a_run_of_its_own_and_the_tables_hold_them(finished: Path) -> None:
    study = finished / "runs" / "a"
    found = record(study)
    assert [(r["run"], r["seed"], r["state"]) for r in found["runs"]] == [
        ("s1", 1, "finished"),
        ("s3", 3, "finished"),
    ]
    assert hashes(study / "s1") != hashes(study / "s3")
    values = []
    for run in found["runs"]:
        evals = list(read_lines(study / run["run"] / "evals.jsonl"))
        assert run["final"]["metrics"]["return_mean"] == evals[-1]["metrics"]["return_mean"]
        best = max(evals, key=lambda e: (e["metrics"]["return_mean"], -e["update"]))
        assert run["best"]["update"] == best["update"]
        assert (study / run["best"]["checkpoint"]).is_dir()
        values.append(run["final"]["metrics"]["return_mean"])
    summary = found["summary"]["base"]["final"]["return_mean"]
    expected = spread(values)
    assert (summary["iqm"], summary["median"], summary["low"]) == pytest.approx(
        (expected.iqm, expected.median, expected.low)
    )
    page = (study / "table.md").read_text()
    assert "| metric | median | IQM | mean | min | max | seed 1 | seed 3 |" in page
    assert "`return_mean`" in page and "`ed100`" in page
    assert (study / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_a_second_call_reads_what_is_finished_and_trains_only_new_seeds(finished: Path) -> None:
    study = finished / "runs" / "a"
    before = (study / "s1" / "sessions.jsonl").read_text()
    _, said = call("study", "shoal", "--seeds", "1-3", "--name", "a", *SHORT, cwd=finished)
    assert "2 of 3 runs are done already" in said
    assert (study / "s1" / "sessions.jsonl").read_text() == before
    assert [r["run"] for r in record(study)["runs"]] == ["s1", "s2", "s3"]
    assert record(study)["summary"]["base"]["final"]["return_mean"]["count"] == 3


def test_other_settings_under_the_same_name_are_refused(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["study", "shoal", "--seeds", "1", "--name", "a", *SHORT]
    said = refusal(*words, "--learner.lr", "0.5", cwd=finished, capsys=capsys)
    assert "learner.lr: 0.002 -> 0.5" in said and "--name" in said
    assert "Traceback" not in said


def test_a_killed_child_is_reported_the_others_go_on_and_the_next_call_resumes_it(
    tmp_path: Path,
) -> None:
    words = [
        "study",
        "shoal",
        "--seeds",
        "1-2",
        "--jobs",
        "2",
        "--name",
        "k",
        "--threads",
        "1",
        *LONG,
    ]
    study = tmp_path / "runs" / "k"
    process = begin(*words, cwd=tmp_path)
    wait_until(lambda: update_of(study / "s1") >= 1, process)
    os.kill(pid_of(study / "s1"), signal.SIGKILL)
    printed, said = process.communicate(timeout=300)
    assert process.returncode == 1, printed + said
    assert "killed by SIGKILL" in said
    states = {r["run"]: r["state"] for r in record(study)["runs"]}
    assert states == {"s1": "killed", "s2": "finished"}
    assert "killed by SIGKILL" in (study / "table.md").read_text()
    assert record(study)["summary"]["base"]["final"]["return_mean"]["count"] == 1

    _, said = call(*words, cwd=tmp_path)
    assert "1 of 2 runs are done already" in said
    assert {r["state"] for r in record(study)["runs"]} == {"finished"}
    begun = [s for s in read_lines(study / "s1" / "sessions.jsonl") if s["event"] == "begin"]
    assert [s["resumed"] for s in begun] == [False, True]

    whole = [
        "train",
        "shoal",
        "--run",
        "whole",
        "--seed",
        "1",
        "--threads",
        "1",
        "--no-report",
        *LONG,
    ]
    call(*whole, cwd=tmp_path)
    assert hashes(study / "s1") == hashes(tmp_path / "runs" / "whole")


def test_ctrl_c_stops_the_children_after_a_save_and_the_next_call_goes_on(tmp_path: Path) -> None:
    words = ["study", "shoal", "--seeds", "1-2", "--jobs", "1", "--name", "c", *LONG]
    study = tmp_path / "runs" / "c"
    process = begin(*words, cwd=tmp_path)
    wait_until(lambda: update_of(study / "s1") >= 1, process)
    child = pid_of(study / "s1")
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to the whole group
    printed, said = process.communicate(timeout=300)
    assert process.returncode == 130, printed + said
    assert "type the same again" in said and "Traceback" not in said
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    states = {r["run"]: r["state"] for r in record(study)["runs"]}
    assert states == {"s1": "interrupted", "s2": "waiting"}
    newest = max(p.name for p in (study / "s1" / "checkpoints").glob("u*"))
    assert int(newest[1:]) == len(hashes(study / "s1")) >= 1
    call(*words, cwd=tmp_path)
    assert {r["state"] for r in record(study)["runs"]} == {"finished"}


def test_a_child_that_outlives_a_killed_study_is_waited_for(tmp_path: Path) -> None:
    words = ["study", "shoal", "--seeds", "1", "--name", "o", *LONG]
    run = tmp_path / "runs" / "o" / "s1"
    process = begin(*words, cwd=tmp_path)
    wait_until(lambda: update_of(run) >= 1, process)
    orphan = pid_of(run)
    os.kill(orphan, signal.SIGSTOP)  # so that it is still there when the second call looks
    process.kill()
    process.communicate()
    process = begin(*words, cwd=tmp_path)
    assert process.stderr is not None
    for line in process.stderr:
        if "s1: another process trains it; it is waited for" in line:
            break
    os.kill(orphan, signal.SIGCONT)
    printed, said = process.communicate(timeout=300)
    assert process.returncode == 0, printed + said
    assert [s["event"] for s in read_lines(run / "sessions.jsonl")] == ["begin", "end"]
    assert record(run.parent)["runs"][0]["state"] == "finished"


def test_variants_are_compared_with_the_first_pair_by_pair(tmp_path: Path) -> None:
    words = [
        "study",
        "shoal",
        "--seeds",
        "1-2",
        "--name",
        "v",
        "--vary",
        "learner.lr=1e-3,0.3",
        *SHORT,
    ]
    call(*words, cwd=tmp_path)
    study = tmp_path / "runs" / "v"
    found = record(study)
    assert [r["run"] for r in found["runs"]] == [
        "base-s1",
        "learner.lr-0.3-s1",
        "base-s2",
        "learner.lr-0.3-s2",
    ]
    (row,) = [
        d for d in found["differences"] if d["metric"] == "return_mean" and d["end"] == "final"
    ]
    final = {r["run"]: r["final"]["metrics"]["return_mean"] for r in found["runs"]}
    changes = [final[f"learner.lr-0.3-s{s}"] - final[f"base-s{s}"] for s in (1, 2)]
    assert row["mean"] == pytest.approx(sum(changes) / 2)
    assert row["above"] == sum(change > 0 for change in changes)
    page = (study / "table.md").read_text()
    assert "| learner.lr=0.3 |" in page and "base: `learner.lr=1e-3`" in page


def test_a_failing_variant_shows_its_error_and_the_others_finish(tmp_path: Path) -> None:
    vary = ["--vary", "probe.best_by=return_mean,mood", "--vary", "learner.lr=1e-3,2e-3"]
    words = ["study", "shoal", "--seeds", "1", "--name", "f", "--jobs", "1", *vary, *SHORT]
    _, said = call(*words, cwd=tmp_path, code=1)
    assert "error: probe.best_by" in said and "'mood'" in said
    assert "Traceback" not in said
    found = record(tmp_path / "runs" / "f")
    states = {r["run"]: r["state"] for r in found["runs"]}
    assert states == {
        "base-s1": "finished",
        "probe.best_by-mood-s1": "failed",
        "learner.lr-2e-3-s1": "finished",
    }
    assert found["summary"]["probe.best_by=mood"]["final"] == {}
    assert {d["variant"] for d in found["differences"]} == {"learner.lr=2e-3"}
    assert "error: probe.best_by" in (tmp_path / "runs" / "f" / "table.md").read_text()
