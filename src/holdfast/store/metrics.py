"""Reading the record files of a run: the last lines, lines as they come, and what each signal did."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigError, StorageError, nearest
from holdfast.store.journal import read_lines
from holdfast.store.pieces import read_from, record_files

POLL_S = 0.2

Line = dict[str, Any]


def records_of(run: Path, kind: str) -> Path:
    """Return the file of one kind of record; an unknown kind is an error that lists those there are."""
    files = record_files(run)
    if kind not in files:
        raise ConfigError(
            f"The run '{run.name}' has no records '{kind}'.{nearest(kind, files)} "
            f"There are: {', '.join(files) or 'none'}."
        )
    return files[kind]


def follow(path: Path, alive: Callable[[], bool], position: int) -> Iterator[Line]:
    """Yield lines as they are written, from `position` on, until nobody writes any more.

    A file that a resumed run has cut goes on from its new end.
    """
    while True:
        writing = alive()
        lines, position = read_from(path, position)
        yield from parsed(lines)
        if not writing:
            return
        if not lines:
            time.sleep(POLL_S)


def parsed(lines: Iterable[bytes]) -> Iterator[Line]:
    """Yield the objects of JSON lines; what is no object is left out."""
    for line in lines:
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found


def check_names(path: Path, names: Iterable[str]) -> None:
    """Raise a ConfigError if there are lines, and no line of the file has a value of one of these names."""
    known = {name for line in read_lines(path, strict=False) for name in line}
    for name in names:
        if known and name not in known:
            raise ConfigError(
                f"No line of {path.name} has '{name}'.{nearest(name, known)} "
                f"There are: {', '.join(sorted(known))}."
            )


@dataclass
class Course:
    """What one signal did over a run."""

    name: str
    count: int = 0
    first: float = math.nan
    last: float = math.nan
    least: float = math.inf
    greatest: float = -math.inf
    total: float = 0.0

    def add(self, value: float) -> None:
        """Take the next value."""
        if self.count == 0:
            self.first = value
        self.last = value
        self.least, self.greatest = min(self.least, value), max(self.greatest, value)
        self.total += value
        self.count += 1

    def row(self) -> dict[str, float | int | str]:
        """Return it as plain values."""
        return {
            "name": self.name,
            "count": self.count,
            "first": self.first,
            "last": self.last,
            "min": self.least,
            "max": self.greatest,
            "mean": self.total / self.count,
        }


def courses(lines: Iterable[Line], match: str = "*") -> list[Course]:
    """Return what every numeric signal whose name fits the pattern did, by name."""
    found: dict[str, Course] = {}
    for line in lines:
        for name, value in line.items():
            if is_number(value) and fnmatchcase(name, match):
                found.setdefault(name, Course(name)).add(float(value))
    return [found[name] for name in sorted(found)]


def series(path: Path, names: Sequence[str], x: str) -> dict[str, tuple[list[float], list[float]]]:
    """Return (x, value) of every signal in `names`, which may be patterns such as `train/*`."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    known: set[str] = set()
    for line in read_lines(path, strict=False):
        at = line.get(x)
        for name, value in line.items():
            if not is_number(value):
                continue
            known.add(name)
            if is_number(at) and any(fnmatchcase(name, pattern) for pattern in names):
                xs, ys = found.setdefault(name, ([], []))
                xs.append(float(at or 0))
                ys.append(float(value))
    if not known:
        raise StorageError(f"{path} holds no update yet. Wait for the first one.")
    for pattern in [*names, x]:
        if not any(fnmatchcase(name, pattern) for name in known):
            raise ConfigError(
                f"No number in {path.name} is called '{pattern}'.{nearest(pattern, known)} "
                f"For all names, type: holdfast metrics summary {path.parent.name}"
            )
    return {name: found[name] for name in sorted(found)}


def is_number(value: Any) -> bool:
    """Return whether a JSON value is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)
