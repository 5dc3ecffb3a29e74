"""What the files of a run say. Files that are missing, empty or cut give empty answers, never errors."""

from __future__ import annotations

import json
import tomllib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.probes.headlines import Headline, by_role, headline, headline_in, with_own
from holdfast.probes.rank import Rule, parse_rule
from holdfast.records import F64
from holdfast.store.metrics import parsed
from holdfast.store.pieces import raw_lines
from holdfast.view.numbers import number

Line = dict[str, Any]


@dataclass(frozen=True)
class RunFiles:
    """A run directory, read when asked."""

    path: Path

    @cached_property
    def config(self) -> dict[str, Any]:
        """Tables of run.toml."""
        try:
            return tomllib.loads((self.path / "run.toml").read_text())
        except (OSError, ValueError):
            return {}

    @cached_property
    def metrics(self) -> list[Line]:
        """One line an update."""
        return list(_lines(self.path / "metrics.jsonl"))

    @cached_property
    def signals(self) -> tuple[str, ...]:
        """Names of all signals that were ever recorded, in the order of their first line."""
        return tuple(dict.fromkeys(name for line in self.metrics for name in line))

    @cached_property
    def evals(self) -> list[Line]:
        """One line a probe."""
        return [e for e in _lines(self.path / "evals.jsonl") if isinstance(e.get("metrics"), dict)]

    @cached_property
    def journal(self) -> list[Line]:
        """Everything that happened."""
        return list(_lines(self.path / "journal.jsonl"))

    @property
    def episodes(self) -> Iterator[Line]:
        """One line a finished game; they are many, so they are not kept."""
        return _lines(self.path / "episodes.jsonl")

    @cached_property
    def sessions(self) -> list[Line]:
        """One line when a process began or ended."""
        return list(_lines(self.path / "sessions.jsonl"))

    @cached_property
    def heartbeat(self) -> Line:
        """Where the run stands."""
        return read_object(self.path / "heartbeat.json")

    @cached_property
    def manifest(self) -> Line:
        """Manifest of the newest checkpoint."""
        newest = sorted((self.path / "checkpoints").glob("u*/manifest.json"))
        return read_object(newest[-1]) if newest else {}

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.path.resolve().name

    @property
    def world(self) -> str:
        """Name of the world."""
        return str(self.config.get("world", {}).get("name", "unknown world"))

    @property
    def headline(self) -> Headline:
        """The main figures of the world; without a config, those of the recorded signals."""
        if self.config:
            main = headline(self.world)
        else:
            main = headline_in({name: 0 for line in self.metrics[-1:] for name in line})
        return with_own(main, self.evals[-1]["metrics"] if self.evals else (), self.signals)

    @property
    def decisions(self) -> list[Line]:
        """What guards decided."""
        return [line for line in self.journal if line.get("event") == "decision"]

    @property
    def rule(self) -> Rule:
        """How probes are ranked."""
        chosen = str(self.config.get("probe", {}).get("best_by", ""))
        return parse_rule(chosen or self.headline.rule)

    @property
    def main(self) -> str:
        """Name of the metric by which probes are ranked."""
        return self.rule.main

    @property
    def best_update(self) -> int:
        """Update of the best probe; 0 before the first."""
        rule = self.rule
        ranked = [
            (rule.key(e["metrics"]), int(e.get("update", 0)))
            for e in self.evals
            if all(number(e["metrics"].get(name)) is not None for name in rule.names)
        ]
        return max(ranked)[1] if ranked else 0

    @property
    def trained_s(self) -> float:
        """Seconds spent in updates, over all sessions."""
        return sum(number(line.get("time/update_s")) or 0.0 for line in self.metrics)

    def has(self, *names: str) -> bool:
        """Return whether every one of these signals was recorded at least once."""
        return all(any(number(line.get(n)) is not None for line in self.metrics) for n in names)

    def by_role(self, signal: str) -> dict[str, str]:
        """Return the names that a signal has: its own, or those of each role that has a learner."""
        return by_role(signal, self.signals)

    def column(self, name: str) -> F64:
        """Return a signal over all updates `[U]`, NaN where it is missing."""
        return _column([line.get(name) for line in self.metrics])

    def probed(self, name: str) -> F64:
        """Return a metric over all probes `[P]`, NaN where it is missing."""
        return _column([e["metrics"].get(name) for e in self.evals])

    def probe_steps(self) -> F64:
        """Return the env_steps of all probes `[P]`."""
        return _column([e.get("env_steps") for e in self.evals])

    def intervals(self, name: str) -> F64:
        """Return the 95 % intervals `[P, 2]` of a metric, the value itself where there is none."""
        rows = []
        for e in self.evals:
            value = e["metrics"].get(name)
            rows.append((e.get("intervals") or {}).get(name) or [value, value])
        return np.stack([_column([row[k] for row in rows]) for k in (0, 1)], axis=1)

    def steps_at(self, update: int) -> float | None:
        """Return the env_steps after an update."""
        for line in self.metrics:
            if line.get("update") == update:
                return number(line.get("env_steps"))
        return None


def read_object(path: Path) -> Line:
    """Return the JSON object of a file, or an empty one."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _lines(path: Path) -> Iterator[Line]:
    """Yield the objects of a file and of its older pieces."""
    try:
        yield from parsed(raw_lines(path))
    except (OSError, EOFError, zlib.error):  # what can be read counts
        return


def _column(values: list[Any]) -> F64:
    found = [number(v) for v in values]
    return np.array([np.nan if v is None else v for v in found], np.float64)
