"""What a run writes about itself: described field by field, current, and cut to the checkpoint on resume."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.errors import AssetError, ConfigError
from holdfast.records import EvalReport
from holdfast.store.journal import read_lines
from holdfast.store.parquet import columns, write_columns, write_parquet
from holdfast.store.pieces import pieces
from holdfast.store.query import query
from holdfast.store.recorder import Recorder
from holdfast.store.schema import KINDS, Field, json_schema, markdown, problems

ROOT = Path(__file__).parents[2]


def recorder(directory: Path, **options: Any) -> Recorder:
    return Recorder(directory, False, print, **options)


def line(update: int) -> dict[str, Any]:
    return {
        "update": update,
        "env_steps": 10 * update,
        "train/lr": np.float32(0.5),
        "episode/return_mean": float("nan"),
    }


def probe(update: int) -> EvalReport:
    return EvalReport(
        "p", update, 10 * update, (1, 2), {"return_mean": 3.0}, {}, {"returns": [1.0]}
    )


def latest(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "latest.json").read_text())
    return found


def test_latest_json_holds_the_last_update_and_the_last_probe(tmp_path: Path) -> None:
    record = recorder(tmp_path)
    for update in (1, 2, 3):
        if update == 2:
            record.report(probe(2))
        record.update(line(update))
        assert latest(tmp_path)["update"] == update
        assert latest(tmp_path)["metrics"]["train/lr"] == 0.5
        assert latest(tmp_path)["metrics"]["episode/return_mean"] is None
    assert latest(tmp_path)["eval"] == {
        "probe": "p", "update": 2, "env_steps": 20, "metrics": {"return_mean": 3.0}, "intervals": {},
    }  # fmt: skip
    assert problems(KINDS["latest"], latest(tmp_path)) == []
    record.close()
    (last,) = list(read_lines(tmp_path / "metrics.jsonl"))[-1:]
    assert latest(tmp_path)["metrics"] == last


def test_latest_json_goes_back_with_the_checkpoint(tmp_path: Path) -> None:
    record = recorder(tmp_path, rotate_bytes=300)
    record.report(probe(1))
    for update in range(1, 9):
        record.update(line(update))
        if update == 3:
            state = record.state_dict()
    record.report(probe(8))
    record.close()
    resumed = recorder(tmp_path, rotate_bytes=300)
    resumed.load_state_dict(state)
    assert latest(tmp_path)["update"] == 3
    assert latest(tmp_path)["metrics"]["update"] == 3
    assert latest(tmp_path)["eval"]["update"] == 1
    assert [r["update"] for r in read_lines(tmp_path / "metrics.jsonl")] == [1, 2, 3]
    resumed.load_state_dict(dict.fromkeys(resumed.lines, 0))
    assert not (tmp_path / "latest.json").exists()
    resumed.close()


def test_readers_of_latest_json_never_see_a_part(tmp_path: Path) -> None:
    code = (
        "import sys, json, pathlib\n"
        "path = pathlib.Path(sys.argv[1]); seen = 0\n"
        "print('ready', flush=True)\n"
        "while seen < 400:\n"
        "    now = json.loads(path.read_text())['update']\n"
        "    assert now >= seen; seen = now\n"
    )
    record = recorder(tmp_path)
    record.update(line(1))
    reader = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "latest.json")], stdout=subprocess.PIPE
    )
    assert reader.stdout is not None
    reader.stdout.readline()
    for update in range(2, 401):
        record.update(line(update))
    reader.communicate(timeout=60)
    assert reader.returncode == 0
    record.close()


def test_parquet_is_written_when_a_run_is_closed_and_not_before(tmp_path: Path) -> None:
    record = recorder(tmp_path)
    record.update(line(1))
    record.heartbeat("running")
    record.close()
    assert not (tmp_path / "parquet").exists()
    record = recorder(tmp_path)
    record.update(line(2))
    record.heartbeat("finished")
    record.close()
    found = query(
        tmp_path, f"SELECT \"update\" FROM '{tmp_path}/parquet/metrics.parquet' ORDER BY 1"
    )
    assert found.rows == [(1,), (2,)]


def test_columns_have_the_type_of_their_values(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"i": 1, "f": 1, "s": "a", "b": True, "n": None, "l": [1], "m": 1, "big": 2**70},
        {"i": 2, "f": 1.5, "s": "b", "b": False, "n": None, "l": {"x": 2}, "m": "w", "late": 3},
    ]
    assert columns(iter(rows)) == {
        "i": int, "f": float, "s": str, "b": bool, "n": None, "l": str, "m": str, "big": float, "late": int,
    }  # fmt: skip
    source = tmp_path / "x.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"torn": ')
    assert write_columns(source, tmp_path / "out" / "x.parquet") == 2
    found = query(tmp_path, f"SELECT * FROM '{tmp_path}/out/x.parquet'")
    back = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
    assert back[0] == {
        "i": 1, "f": 1.0, "s": "a", "b": True, "n": None, "l": "[1]", "m": "1", "big": 2.0**70, "late": None,
    }  # fmt: skip
    assert back[1]["l"] == '{"x":2}' and back[1]["late"] == 3 and back[1]["big"] is None


def test_parquet_and_sql_read_all_pieces(tmp_path: Path) -> None:
    record = recorder(tmp_path, rotate_bytes=400)
    for update in range(1, 101):
        record.update(line(update))
        record.lines["metrics"].flush()
    record.close()
    assert len(pieces(tmp_path / "metrics.jsonl")) > 5
    assert write_parquet(tmp_path) == {"metrics": 100}
    asked = 'SELECT count(*), min("update"), max("update"), avg("train/lr") FROM metrics'
    assert query(tmp_path, asked).rows == [(100, 1, 100, 0.5)]


def test_sql_leaves_out_the_half_line_of_a_run_that_was_killed(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"update": 1}\n{"update": 2}\n{"upd')
    (tmp_path / "evals.jsonl").write_text("")
    assert query(tmp_path, 'SELECT count("update") FROM metrics').rows == [(2,)]


def test_a_query_that_fails_names_the_tables(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"update": 1}\n')
    with pytest.raises(ConfigError, match=r"(?s)nothing_here.*metrics.*DESCRIBE metrics"):
        query(tmp_path, "SELECT * FROM nothing_here")


def test_missing_packages_say_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(AssetError, match=r"DuckDB.*pip install 'holdfast\[report\]'"):
        query(tmp_path, "SELECT 1")
    with pytest.raises(AssetError, match=r"pyarrow.*pip install 'holdfast\[report\]'"):
        write_parquet(tmp_path)
    record = recorder(tmp_path)
    record.update(line(1))
    record.heartbeat("finished")
    record.close()
    assert not (tmp_path / "parquet").exists()


def test_the_page_of_the_fields_is_not_stale() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text() == markdown(), (
        "docs/metrics.md is stale. Type: holdfast metrics schema > docs/metrics.md"
    )


def test_a_record_with_an_unknown_field_or_a_wrong_type_is_a_problem() -> None:
    good = {"update": 1, "env_steps": 2, "train/lr": None, "guard/gate/state": "open"}
    assert problems(KINDS["metrics"], good) == []
    assert problems(KINDS["metrics"], {**good, "surprise": 1}) == ["'surprise' is not described"]
    assert problems(KINDS["metrics"], {**good, "train/lr": "x"}) == [
        "'train/lr' is 'x', not of the type number"
    ]
    assert problems(KINDS["metrics"], {"update": True}) == [
        "'env_steps' is missing",
        "'update' is True, not of the type integer",
    ]


def test_places_in_names_stand_for_something() -> None:
    family = Field("guard/<guard>/<name>", "any", "")
    assert family.pattern.fullmatch("guard/gate/state")
    assert not family.pattern.fullmatch("guard/gate/")
    schema = json_schema(KINDS["metrics"])
    assert schema["required"] == ["update", "env_steps"]
    assert schema["properties"]["train/lr"]["type"] == ["number", "null"]
    assert "^guard/.+/.+$" in schema["patternProperties"]


TRAIN = """
import sys
import holdfast.store.recorder as recorder
from holdfast.cli import main
recorder.ROTATE_BYTES = 3000
sys.exit(main(sys.argv[1:]))
"""
SMALL = (
    "--games 4 --fish 6 --steps 16 --hidden 16,16 --minibatch 64 --epochs 1 --updates 60 "
    "--checkpoint-every 3 --probe.every 20 --probe.episodes 2 --seed 5 --threads 1"
).split()


def holdfast(runs: Path, *words: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-c",
        TRAIN,
        *words,
        "--plain",
        "--no-report",
        "--runs-dir",
        str(runs),
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def untimed(run: Path, name: str) -> list[dict[str, Any]]:
    return [
        {k: v for k, v in found.items() if not k.startswith("time/") and k != "at"}
        for found in read_lines(run / f"{name}.jsonl")
    ]


def test_a_killed_run_whose_files_rotate_resumes_exactly(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    process = holdfast(whole, "train", "shoal", "--run", "r", *SMALL)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    words = ["train", "shoal", "--run", "r", *SMALL]
    for _ in range(3):
        process = holdfast(killed, *words)
        newest = killed / "r" / "latest.json"
        before = newest.stat().st_mtime if newest.exists() else 0.0
        while process.poll() is None:
            if newest.exists() and newest.stat().st_mtime > before:
                break
            time.sleep(0.005)
        time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        words = ["resume", "r"]
    process = holdfast(killed, "resume", "r")
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert len(pieces(killed / "r" / "metrics.jsonl")) > 10
    for name in ("metrics", "journal", "episodes", "evals"):
        assert untimed(killed / "r", name) == untimed(whole / "r", name), name
    for run in (whole / "r", killed / "r"):
        assert latest(run)["update"] == 60
        assert latest(run)["eval"]["update"] == 60
    for name, kind in KINDS.items():
        if kind.lines:
            bad = {
                text
                for found in read_lines(whole / "r" / kind.file)
                for text in problems(kind, found)
            }
            assert bad == set(), name


@pytest.mark.parametrize("target", ["CartPole-v1", "pursuit"])
def test_every_field_of_other_worlds_is_described(tmp_path: Path, target: str) -> None:
    process = holdfast(
        tmp_path, "train", target, "--run", "r", "--games", "4", "--steps", "32", "--updates", "4",
        "--probe.every", "2", "--probe.episodes", "2",
    )  # fmt: skip
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    for name in ("metrics", "episodes", "evals", "journal", "sessions"):
        found = list(read_lines(tmp_path / "r" / f"{name}.jsonl"))
        assert found, name
        assert {text for record in found for text in problems(KINDS[name], record)} == set(), name
