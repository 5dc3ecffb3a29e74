"""The arithmetic of the worker benchmark, and that it runs. No speed is judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from test_bench import BENCH, load

workers = load("workers")
RATES = {
    "holdfast process": [30e3, 90e3, 60e3],
    "gymnasium async": [20e3, 10e3, 30e3],
    "sb3 subproc": [50e3, 50e3, 50e3],
}


def test_ratios_are_those_of_the_medians_and_the_bar_is_judged() -> None:
    rows = workers.summarise(RATES)
    assert [row["process_is_times"] for row in rows.values()] == [1.0, 3.0, 1.2]
    assert rows["gymnasium async"] == {
        "steps_per_s": 20_000,
        "min": 10_000,
        "max": 30_000,
        "process_is_times": 3.0,
    }
    assert workers.verdict(rows).endswith("Measured 3.00x: met.")
    assert "| gymnasium async | 20,000 | 10,000 to 30,000 | 3.00x |" in workers.table(rows)
    slow = workers.summarise({**RATES, "gymnasium async": [50e3]})
    assert workers.verdict(slow).endswith("NOT MET.")


def test_it_runs_with_what_is_installed(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    command = [sys.executable, str(BENCH / "workers.py"), "--games=2", "--turns=1"]
    command += ["--seconds=0.02", f"--json={out}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {"holdfast process", "gymnasium async"} <= set(json.loads(out.read_text())["rows"])
    assert "our workers are" in done.stdout
