"""The text forms of tail stages and of `name:number` lists, read into plain records.

A stage spec is `updates:path|type=ne|label=x|count=2560;...`:

    20:mixes/ne.json;24:mixes/tail.json                    as up to v36
    20:mixes/ne.json|type=ne|label=north;24:mixes/tail.json as since v38

`updates` is for how many updates the stage feeds every game: its capacity is updates x games, or `count`
starts. `stage_type` is another word for `type`. Types are lower-cased. Without a label a stage is called
`stage1:ne`. Nothing is read from disk here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from holdfast.errors import ConfigError, nearest
from holdfast.records import Start

UNTYPED = "unknown"
"""Type of a stage that names none."""
FRESH = "fresh"
"""Type of the world's own draws."""
KEYS = ("type", "stage_type", "label", "count")
EXAMPLE = "20:mixes/ne.json|type=ne|label=north;24:mixes/tail.json"


@dataclass(frozen=True)
class StageSpec:
    """One stage as written: which file feeds it, for how long, and under which names."""

    updates: int
    path: str
    label: str
    type: str = UNTYPED
    count: int = 0
    """Capacity as a number of starts; 0 means updates x games."""


@dataclass(frozen=True)
class TailStage:
    """A stage with its starts, as the ledger takes it."""

    label: str
    type: str
    updates: int
    starts: Sequence[Start]
    """Each has an id; they are used in this order and again from the front when they run out."""
    count: int = 0
    """Capacity as a number of starts; 0 means updates x games."""


def parse_stages(text: str, key: str = "guards.tails.stages") -> tuple[StageSpec, ...]:
    """Read a stage spec; `key` is the setting that an error names."""
    items = [item.strip() for item in text.split(";")]
    return tuple(_parse_stage(item, k + 1, key) for k, item in enumerate(filter(None, items)))


def anchor_stages(text: str, folder: str) -> str:
    """Return a stage spec whose relative paths are below `folder`; what is not a stage stays as it is."""
    anchored = []
    for item in text.split(";"):
        updates, colon, rest = item.partition(":")
        path, bar, options = rest.partition("|")
        if colon and path.strip():
            path = str(PurePosixPath(folder) / path.strip())
        anchored.append(updates + colon + path + bar + options)
    return ";".join(anchored)


def _parse_stage(item: str, index: int, key: str) -> StageSpec:
    head, *options = (part.strip() for part in item.split("|"))
    updates, colon, path = (part.strip() for part in head.partition(":"))
    if not colon or not path:
        raise _wrong(key, item, index, "it has no 'updates:path'")
    found: dict[str, str] = {}
    for option in options:
        name, equals, value = (part.strip() for part in option.partition("="))
        name = name.lower()
        if name not in KEYS:
            hint = nearest(name, KEYS)
            raise _wrong(
                key, item, index, f"'{option}' is none of {', '.join(f'{k}=' for k in KEYS)}.{hint}"
            )
        name = name.removeprefix("stage_")
        if not equals or not value:
            raise _wrong(key, item, index, f"'{option}' has no value")
        if name in found:
            raise _wrong(key, item, index, f"'{name}' is given twice")
        found[name] = value
    kind = found.get("type", UNTYPED).lower()
    if wrong := wrong_type(kind):
        raise _wrong(key, item, index, wrong)
    return StageSpec(
        _whole(updates, key, item, index, "updates"),
        path,
        found.get("label", f"stage{index}:{PurePosixPath(path).stem}"),
        kind,
        _whole(found["count"], key, item, index, "count") if "count" in found else 0,
    )


def wrong_type(kind: str) -> str:
    """Return what is wrong with a type of starts, or ""; statistics are kept by type, and fresh ones are a type too."""
    if kind == FRESH:
        return f"the type '{FRESH}' is that of starts which are not replayed"
    if not re.fullmatch(r"[a-z0-9_-]+", kind):
        return f"the type '{kind}' is not made of small letters, digits, _ and -"
    return ""


def _whole(text: str, key: str, item: str, index: int, what: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise _wrong(key, item, index, f"{what} = '{text}' is not a whole number >= 1")
    return int(text)


def _wrong(key: str, item: str, index: int, what: str) -> ConfigError:
    return ConfigError(
        f"{key}: stage {index} '{item}': {what}. Write 'updates:path', with '|type=', '|label=' or "
        f"'|count=' if wanted, stages joined by ';', for example '{EXAMPLE}'."
    )


def parse_pairs(
    text: str, key: str, *, low: float = -math.inf, high: float = math.inf, whole: bool = False
) -> dict[str, float]:
    """Read `ne:0.13,main:0.10` into numbers by lower-case name, each from `low` to `high`."""
    pairs: dict[str, float] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, colon, value = (part.strip() for part in item.partition(":"))
        name = name.lower()
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        good = bool(colon and name) and math.isfinite(number) and low <= number <= high
        if not good or (whole and not number.is_integer()) or name in pairs:
            kind = "whole number" if whole else "number"
            bounds = [f" >= {low:g}"] * math.isfinite(low) + [f" <= {high:g}"] * math.isfinite(high)
            one, two = (min(max(low, n), high) for n in (3, 2))
            raise ConfigError(
                f"{key}: '{item}' is not allowed. Write 'name:value' with each name once and a {kind}"
                f"{' and'.join(bounds)}, joined by commas, for example 'ne:{one:g},main:{two:g}'."
            )
        pairs[name] = number
    return pairs


def parse_numbered(
    text: str, key: str, *, low: float = -math.inf, high: float = math.inf
) -> dict[int, float]:
    """Read `3:0.76,4:0.78` into numbers by whole number (a phase, a gate stage)."""
    pairs = parse_pairs(text, key, low=low, high=high)
    for name in pairs:
        if not (name.isascii() and name.isdigit()):
            raise ConfigError(
                f"{key}: '{name}' is not a whole number. Write 'number:value' joined by commas, for "
                "example '3:0.76,4:0.78'."
            )
    if len({int(name) for name in pairs}) < len(pairs):
        raise ConfigError(f"{key}: '{text}' names a number twice. Each may stand once.")
    return {int(name): value for name, value in pairs.items()}
