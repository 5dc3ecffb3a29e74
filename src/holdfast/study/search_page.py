"""table.md of a search: the trials from best to worst, and how to go on with the best."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from holdfast.study.page import NONE, table, value
from holdfast.view.numbers import short


def search_markdown(record: Mapping[str, Any]) -> str:
    """Return the whole page."""
    rows = record["runs"]
    states: dict[str, int] = {}
    for row in rows:
        states[row["state"]] = states.get(row["state"], 0) + 1
    told = ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in states.items())
    parts = [
        f"# Search {record['name']}",
        f"`{record['command']}`",
        f"{len(rows)} of {record['trials']} trials: {told or NONE}. "
        f"Value: {record['objective']} `{record['main']}` of a run, seed {record['seed']}.",
        "Space: " + ", ".join(f"`{text}`" for text in record["space"]),
    ]
    if record["best"]:
        parts.append("## Best\n\n" + best_words(record))
    parts.append("## Trials\n\n" + trials_table(record))
    for row in rows:
        if row["error"]:
            said = "\n".join(f"    {line}" for line in row["error"].splitlines())
            parts.append(f"`{row['run']}` {row['state']}:\n\n{said}")
    return "\n\n".join(parts) + "\n"


def best_words(record: Mapping[str, Any]) -> str:
    """Return the best trial, and the command that tells whether it is good or was lucky."""
    best = record["best"]
    chosen = [f"--{key}={setting}" for key, setting in best["settings"]]
    given = [f"--{key}={setting}" for key, setting in record["settings"]]
    used = int(record.get("seed", 1))
    others = ",".join(str(seed) for seed in range(1, 7) if seed != used)
    command = shlex.join(
        ["holdfast", "study", record["target"], "--seeds", others, *given, *chosen]
    )
    return (
        f"`{best['run']}`: {record['main']} {value(best['value'])} with {' '.join(chosen)}\n\n"
        "One seed chose it, so it flatters. What it is worth on others:\n\n"
        f"    {command}"
    )


def trials_table(record: Mapping[str, Any]) -> str:
    """Return one row a trial, the best first."""
    keys = [text.partition("=")[0] for text in record["space"]]
    rows = []
    for row in record["runs"]:
        settings = dict(row["settings"])
        rows.append(
            [
                row["run"],
                row["state"].replace("_", " "),
                value(row["value"]),
                *(_setting(settings.get(key)) for key in keys),
                f"{row['update']}/{row['updates'] or '?'}",
                short(row["env_steps"]),
                value((row["final"] or {}).get("metrics", {}).get(record["main"])),
            ]
        )
    return table(["run", "state", "value", *keys, "updates", "steps", "last evaluation"], rows)


def _setting(text: str | None) -> str:
    if text is None:
        return NONE
    try:
        return f"{float(text):.4g}"
    except ValueError:
        return text
