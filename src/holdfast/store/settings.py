"""The settings of a run as it stored them, by dotted key."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE = "run.toml"


def read_settings(run: Path) -> dict[str, Any]:
    """Return every setting of `run.toml` by its dotted key; empty if the file is not there or broken."""
    try:
        tables = tomllib.loads((run / FILE).read_text())
    except (OSError, ValueError):
        return {}
    return flat(tables)


def flat(tree: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Return the leaves of nested tables by dotted key; tables in a list get their number."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{where}.{key}" if where else key
        if isinstance(value, Mapping):
            found.update(flat(value, name))
        elif isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
            for i, table in enumerate(value):
                found.update(flat(table, f"{name}.{i}"))
        else:
            found[name] = value
    return found
