"""Calls of `holdfast study` as a user makes them, on runs that take a second."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main

TINY = (
    "--games 2 --fish 4 --steps 16 --hidden 8,8 --minibatch 64 --epochs 1 --max-steps 40 --stagger 0 "
    "--probe.episodes 2 --probe.protocol= --probe.best-by return_mean --no-tensorboard"
).split()
SHORT = [*TINY, "--updates", "3", "--probe.every", "1"]


def begin(*words: str, cwd: Path) -> subprocess.Popen[str]:
    """Start a verb in a directory, in a process group of its own, as a shell does."""
    return subprocess.Popen(
        [sys.executable, "-m", "holdfast", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        process_group=0,
    )


def call(*words: str, cwd: Path, code: int = 0) -> tuple[str, str]:
    """Run a verb to its end; return what it printed on both streams."""
    process = begin(*words, cwd=cwd)
    printed, said = process.communicate(timeout=300)
    assert process.returncode == code, printed + said
    return printed, said


def refusal(*words: str, cwd: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Type a verb that is refused before anything begins; return what it says. No process is needed for that."""
    with contextlib.chdir(cwd):
        assert main(words) == 2
    return capsys.readouterr().err


def record(study: Path) -> dict[str, Any]:
    """Return study.json."""
    found: dict[str, Any] = json.loads((study / "study.json").read_text())
    return found
