"""Commands to type, as messages and reports name them."""

from __future__ import annotations

import shlex
from pathlib import Path

RUNS = Path("runs")
"""Where runs are looked for when nothing else is said."""


def to_type(verb: str, run: Path, *words: object) -> str:
    """Return what to type about a run: with the directory that it stands in, unless that is the usual one."""
    where = () if run.parent == RUNS else ("--runs-dir", run.parent)
    return shlex.join(map(str, ("holdfast", verb, run.name, *words, *where)))
