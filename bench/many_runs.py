"""What scripts that train many runs share: train or resume by command, side by side, tables between markers."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np

T = TypeVar("T")
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306}


def holdfast(*words: str) -> str:
    """Run one verb and return what it printed; a failure shows what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"holdfast {' '.join(words)} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def trained(runs: Path, name: str, config: Path, settings: Sequence[str]) -> Path:
    """Return the directory of a run that has made its last update; train or resume it first."""
    where = ["--runs-dir", str(runs), "--plain", "--no-report"]
    if (runs / name / "run.toml").is_file():
        holdfast("resume", name, *where)
    else:
        holdfast("train", str(config), "--run", name, *settings, *where)
    return runs / name


def side_by_side(jobs: Sequence[tuple[str, Callable[[], T]]], at_once: int) -> list[T]:
    """Do all jobs, `at_once` of them at a time, and return their results in order; say when each is done."""
    began = time.monotonic()

    def one(job: tuple[str, Callable[[], T]]) -> T:
        found = job[1]()
        print(f"{time.monotonic() - began:7.0f} s  {job[0]}", file=sys.stderr, flush=True)
        return found

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(one, jobs))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return Student's 95 % interval of a mean: with so few seeds a bootstrap would be too narrow."""
    data = np.asarray(values, np.float64)
    if len(data) < 2:
        return float("nan"), float("nan")
    half = STUDENT.get(len(data), 2.262) * data.std(ddof=1) / np.sqrt(len(data))
    return float(data.mean() - half), float(data.mean() + half)


def insert(path: Path, text: str, mark: str) -> None:
    """Replace what stands between `<!-- mark: begin -->` and `<!-- mark: end -->` of a Markdown file."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    content = path.read_text()
    if begin not in content or end not in content:
        raise SystemExit(f"{path} has no markers {begin} and {end}.")
    head, _, rest = content.partition(begin)
    _, _, tail = rest.partition(end)
    path.write_text(f"{head}{begin}\n{text}\n{end}{tail}")
