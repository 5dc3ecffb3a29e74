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
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}


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


def student(freedom: int) -> float:
    """Return the 97.5 % point of Student's distribution; from 5 degrees of freedom on by the series of Fisher and Cornish."""
    z, n = 1.959964, freedom
    series = (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )
    return STUDENT.get(freedom, series)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return Student's 95 % interval of a mean: with so few seeds a bootstrap would be too narrow."""
    data = np.asarray(values, np.float64)
    if len(data) < 2:
        return float("nan"), float("nan")
    half = student(len(data) - 1) * data.std(ddof=1) / np.sqrt(len(data))
    return float(data.mean() - half), float(data.mean() + half)


def margin(values: np.ndarray) -> float:
    """Return half the 95 % interval of the difference of two rows' means, from what all rows and columns show.

    Rows are variants, columns seeds; what is left after the means of both is taken to be equally large everywhere.
    """
    rows, columns = values.shape
    if rows < 2 or columns < 2:
        return float("nan")
    left = values - values.mean(0) - values.mean(1, keepdims=True) + values.mean()
    freedom = (rows - 1) * (columns - 1)
    return student(freedom) * float(np.sqrt(np.square(left).sum() / freedom * 2 / columns))


def insert(path: Path, text: str, mark: str) -> None:
    """Replace what stands between `<!-- mark: begin -->` and `<!-- mark: end -->` of a Markdown file."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    content = path.read_text()
    if begin not in content or end not in content:
        raise SystemExit(f"{path} has no markers {begin} and {end}.")
    head, _, rest = content.partition(begin)
    _, _, tail = rest.partition(end)
    path.write_text(f"{head}{begin}\n{text}\n{end}{tail}")
