"""Training episodes by the type of their start: fresh ones, and every kind of replayed tail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def by_start_type(episodes: Iterable[Mapping[str, Any]], fish: int) -> dict[str, dict[str, float]]:
    """Return what lines of `episodes.jsonl` say by type of start: episodes, fish, survival, step one.

    Episodes that were cut have no outcome and are left out. A line without survivors does not tell its
    number of fish: it has as many as the line before it, the first one `fish`.
    """
    found: dict[str, dict[str, float]] = {}
    size = fish
    for line in episodes:
        kind = str((line.get("start") or {}).get("type") or "fresh")
        survival, alive = line.get("facts/survival"), line.get("facts/final_alive")
        if survival is None or line.get("cut"):
            continue
        size = round(alive / survival) if alive and survival else size
        row = found.setdefault(kind, dict.fromkeys(("episodes", "fish", "alive", "step_one"), 0.0))
        row["episodes"] += 1
        row["fish"] += size
        row["alive"] += survival * size
        row["step_one"] += float(line.get("facts/step_one_deaths") or 0)
    for row in found.values():
        row["survival"] = row.pop("alive") / row["fish"]
        row["step_one_ratio"] = row["step_one"] / row["fish"]
    return found
