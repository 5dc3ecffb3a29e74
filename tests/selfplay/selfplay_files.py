"""What tests of whole runs compare: their files without times, and copies that were cut back to an earlier checkpoint."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from holdfast.run import RunDirectory


def untimed(run: Path, name: str) -> list[dict[str, Any]]:
    lines = (json.loads(line) for line in (run / name).read_text().splitlines())
    return [
        {k: v for k, v in line.items() if k != "at" and not k.startswith("time/")} for line in lines
    ]


def cut_back(run: Path, folder: Path, update: int) -> Path:
    """Copy a run into a folder, without the checkpoints after an update; return the copy."""
    copy = folder / run.name
    shutil.copytree(run, copy)
    for checkpoint in RunDirectory(copy).checkpoints().all():
        if checkpoint.update > update:
            shutil.rmtree(checkpoint.path)
    return copy
