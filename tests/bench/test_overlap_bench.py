"""The overlap benchmark runs and writes its columns. No speed is judged here."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "bench" / "overlap.py"
COLUMNS = (
    "mode,num_envs,rollout,steps_per_sec_mean,updates_per_sec_mean,replay_fill_final,"
    "gpu_util_mean_window,duration_sec,error"
)


def measure(folder: Path, *words: str) -> tuple[str, list[dict[str, str]]]:
    done = subprocess.run(
        [sys.executable, str(BENCH), *words, "--updates", "3", "--out", str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    (file,) = folder.glob("bench_overlap_sleep_*.csv")
    assert file.read_text().splitlines()[0] == COLUMNS
    with open(file) as lines:
        return done.stdout, list(csv.DictReader(lines))


def test_a_pair_is_measured_side_by_side(tmp_path: Path) -> None:
    said, rows = measure(
        tmp_path, "--cases", "sleep", "--num-envs", "2", "--rollout", "8", "--warmup", "0.5"
    )
    assert [row["mode"] for row in rows] == ["sync", "overlap"]
    assert all(float(row["steps_per_sec_mean"]) > 0 and not row["error"] for row in rows)
    assert "efficiency" in said


def test_a_pair_that_fails_says_why_in_its_rows(tmp_path: Path) -> None:
    _, rows = measure(tmp_path, "--cases", "sleep", "--num-envs", "0", "--rollout", "8")
    assert [row["mode"] for row in rows] == ["sync", "overlap"]
    assert all("games = 0 is not allowed" in row["error"] for row in rows)
