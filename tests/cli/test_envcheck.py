"""`holdfast envcheck` classifies what hangs, dies or only pretends, and summarises what was collected."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main
from holdfast.parallel import cores

ENVS = Path(__file__).parents[1] / "worlds"
KEYS = (
    "schema ts mode trial seed num_envs backend backend_version python numpy ok phase_failed error_type "
    "error construct_s reset_s steps steps_per_s first_obs_hash worker_exitcodes diag_dir"
).split()


def envcheck(*words: str, cwd: Path) -> tuple[int, str]:
    command = [sys.executable, "-m", "holdfast", "envcheck", *words]
    env = {**os.environ, "PYTHONPATH": str(ENVS)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=240, env=env)
    return done.returncode, done.stdout + done.stderr


def check(name: str, cwd: Path, *words: str) -> tuple[int, list[dict[str, Any]], str]:
    out, report = cwd / "out.jsonl", cwd / "report.md"
    # Only what hangs has to be waited for; a busy machine may be slow.
    timeout = "2" if "Sleeps" in name else "60"
    settings = ["--trials", "1", "--games", "2", "--steps", "150", "--timeout", timeout]
    files = ["--json", str(out), "--report", str(report)]
    code, text = envcheck(name, *settings, *files, *words, cwd=cwd)
    assert out.is_file(), text
    return code, [json.loads(line) for line in out.read_text().splitlines()], report.read_text()


def test_a_sound_environment_passes_every_mode(tmp_path: Path) -> None:
    code, records, report = check("pool_envs:Walk", tmp_path, "--trials", "2")
    assert code == 0, report
    assert [r["mode"] for r in records] == ["serial"] * 2 + ["threads"] * 2 + ["process"] * 2
    assert all(set(KEYS) <= set(r) and r["schema"] == 2 and r["ok"] for r in records)
    assert all(r["steps"] == 150 and r["episodes"] > 0 and r["steps_per_s"] > 0 for r in records)
    for seed in (1, 2):
        assert len({r["first_obs_hash"] for r in records if r["seed"] == seed}) == 1
    assert records[-1]["worker_exitcodes"] == [0] * min(2, cores())
    assert "| process | 2 of 2 | 100% | 34% to 100% |" in report
    assert not list(tmp_path.glob("envcheck_diag_*")), "nothing is kept of trials that went well"


@pytest.mark.parametrize(
    ("name", "phase", "kinds"),
    [
        ("SleepsInStep", "step", {"Hang"}),
        ("SleepsInClose", "close", {"Hang"}),
        ("RaisesInConstruct", "construct", {"OSError"}),
        ("RaisesInReset", "reset", {"KeyError"}),
        ("Dies", "step", {"SIGABRT"}),
        ("Nan", "step", {"ContractViolation"}),
        ("Frozen", "liveness", {"ObservationsFrozen"}),
        ("Endless", "liveness", {"NoEpisodeEnded"}),
    ],
)
def test_every_failure_is_classified_the_same_in_every_mode(
    name: str, phase: str, kinds: set[str], tmp_path: Path
) -> None:
    code, records, report = check(f"pool_envs:{name}", tmp_path)
    assert code == 6
    assert len(records) == 3
    assert not any(r["ok"] for r in records)
    assert {r["phase_failed"] for r in records} == {phase}, records
    assert {r["error_type"] for r in records} == kinds, records
    assert f"| {phase} | 1 | 1 | 1 |" in report
    assert all(Path(tmp_path, r["diag_dir"]).is_dir() for r in records)
    code, text = envcheck("diag", str(next(tmp_path.glob("envcheck_diag_*"))), cwd=tmp_path)
    assert code == 0 and "last phase" in text


def test_an_environment_without_ends_passes_when_that_is_meant(tmp_path: Path) -> None:
    code, records, _ = check("pool_envs:Endless", tmp_path, "--endless", "--modes", "serial")
    assert code == 0 and records[0]["ok"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["CartPol-v1"], 2, "Did you mean 'CartPole-v1'"),
        (["CartPole-v1", "--modes", "serial,proces"], 2, "Did you mean 'process'"),
        (["CartPole-v1", "--trials", "0"], 2, "--trials 0"),
        (["shoal"], 2, "holdfast doctor shoal"),
        (["diag"], 2, "Which diagnostics?"),
        (["diag", "nowhere"], 5, "is not there"),
        (["diag", "."], 5, "no diagnostics"),
    ],
)
def test_bad_input_is_explained(words: list[str], code: int, said: str, tmp_path: Path) -> None:
    got, text = envcheck(*words, cwd=tmp_path)
    assert got == code, text
    assert said in text and "Traceback" not in text


def test_diag_reads_the_logs_of_the_original_system(tmp_path: Path) -> None:
    """Eight synthetic logs: one native stop, one overflow, five starved, one that went well."""
    logs = {
        0: [(0.0, "startup_wait"), (0.1, "start"), (0.2, "calling_mario_make")],
        1: [
            (0.0, "startup_wait"),
            (1.0, "calling_mario_make"),
            (1.5, "error:OverflowError: Python integer 1024 out of bounds for uint8"),
        ],
        7: [(0.0, "startup_wait"), (0.5, "start"), (30.2, "mario_make_done"), (30.3, "done")],
    }
    for k in range(2, 7):
        logs[k] = [(0.0, "startup_wait")]
    for k, marks in logs.items():
        lines = [f"{1_700_000_000 + at:.6f}\t{tag}" for at, tag in marks]
        (tmp_path / f"env_init_idx{k}_pid{100 + k}.log").write_text("\n".join(lines) + "\n")
    code, text = envcheck("diag", str(tmp_path), "--json", cwd=tmp_path)
    assert code == 0, text
    found = json.loads(text)
    assert found["last_phases"] == {
        "startup_wait": 5,
        "calling_mario_make": 1,
        "error (error)": 1,
        "done": 1,
    }
    assert found["longest_gap"]["longest_gap_s"] == pytest.approx(30.3)
    by_env = {row["env"]: row for row in found["workers"]}
    assert "native initialisation" in by_env[0]["signature"]
    assert by_env[0]["time_in_last_phase_s"] == pytest.approx(30.1)
    assert "overflow uint8" in by_env[1]["signature"]
    assert all("starved" in by_env[k]["signature"] for k in range(2, 7))
    assert by_env[7]["signature"] == ""


def test_an_environment_is_tried_with_the_keywords_that_it_is_made_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ENVS))
    monkeypatch.chdir(tmp_path)
    call = ["envcheck", "pool_envs:Corridor", "--modes", "serial", "--trials", "1", "--games", "1"]
    call += ["--steps", "100", "--json", "--world.kwargs.length"]
    assert main([*call, "5"]) == 0
    hashes = [json.loads(capsys.readouterr().out)["first_obs_hash"]]
    assert main([*call, "text"]) == 6
    record = json.loads(capsys.readouterr().out)
    assert record["error_type"] not in (None, "Hang") and hashes[0]
    assert main([*call[:-1], "--updates", "5"]) == 2
