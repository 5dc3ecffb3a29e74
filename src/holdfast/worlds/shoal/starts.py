"""Starts of the shoal: made from seeds, from a running game or from a velocity; kept in JSON files.

Our file:

    {"format": "holdfast-starts/1", "world": "shoal", "starts": [
        {"seed": 7, "label": "worst-12", "type": "ne", "origin": "run a, update 40", "id": "a1",
         "snapshot": {"predator_vel": [0.83, 1.76]}}]}

A snapshot may hold any of the keys of `reset.SNAPSHOT_SHAPES`; what it leaves out is drawn from the seed.
The original's mixes (`velocities`, and `summary.clusters[].sample.predator_velocity`) are read as well.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.errors import AssetError, ConfigError
from holdfast.records import Array, Start
from holdfast.store.files import write_atomic
from holdfast.worlds.shoal.arrays import empty_shoals
from holdfast.worlds.shoal.options import ShoalOptions
from holdfast.worlds.shoal.reset import (
    BEFORE_ROLL,
    SNAPSHOT_SHAPES,
    StartLaw,
    begin_games,
    check_snapshot,
)
from holdfast.worlds.shoal.world import ShoalWorld

FORMAT = "holdfast-starts/1"


def snapshot_start(
    world: ShoalWorld,
    game: int,
    *,
    label: str = "",
    type: str = "tail",
    origin: str = "",
    id: str = "",
) -> Start:
    """Return the present bodies of a game as a start: fish, who is alive, and the predator."""
    bodies = world.bodies()
    snapshot = {key: bodies[key][game].copy() for key in SNAPSHOT_SHAPES if key in bodies}
    return _named(Start(snapshot=snapshot, label=label, type=type, origin=origin, id=id))


def start_from_seed(
    seed: int,
    options: ShoalOptions | None = None,
    *,
    label: str = "",
    type: str = "tail",
    origin: str = "",
    id: str = "",
) -> Start:
    """Return a start by seed; with `options` it also holds what they make of the seed, for good.

    A bare seed begins differently once a guard has turned the escape boost or a jitter.
    """
    snapshot: dict[str, Array] | None = None
    if options is not None:
        law, s = StartLaw.of(options), empty_shoals(1, options.fish)
        begin_games(s, [0], law, [seed], [None], np.zeros((1, law.record_size)))
        snapshot = {
            "fish_pos": np.stack([s.x[0], s.y[0]], axis=-1),
            "fish_vel": np.stack([s.vx[0], s.vy[0]], axis=-1),
            "alive": s.alive[0],
            "predator_pos": s.predator[0, :2].copy(),
            "predator_vel": s.predator[0, 2:].copy(),
        }
    return _named(Start(seed, snapshot, label=label, type=type, origin=origin, id=id))


def velocity_start(
    velocity: Sequence[float],
    *,
    before_roll: bool = False,
    seed: int | None = None,
    label: str = "",
    type: str = "tail",
    origin: str = "",
    id: str = "",
) -> Start:
    """Return a start whose predator has this velocity when the episode begins.

    With `before_roll` it enters the pre-roll instead, which mostly washes it out: what the original did.
    """
    key = BEFORE_ROLL if before_roll else "predator_vel"
    snapshot = {key: np.asarray(velocity, np.float32)}
    return _named(Start(seed, snapshot, label=label, type=type, origin=origin, id=id))


def write_starts(path: str | Path, starts: Sequence[Start]) -> Path:
    """Write starts to a JSON file, whole or not at all, and return its path."""
    target = Path(path)
    content = {
        "format": FORMAT,
        "world": "shoal",
        "starts": [_to_json(start) for start in starts],
    }
    write_atomic(target, json.dumps(content, indent=1))
    return target


def read_starts(
    path: str | Path,
    *,
    type: str = "",
    label: str = "",
    limit: int = 0,
    before_roll: bool = False,
) -> list[Start]:
    """Return the starts of our file or of an original mix; `limit` > 0 cycles them to that many.

    `type` and `label`, if given, replace those of the file; `before_roll` is for original mixes.
    """
    source = Path(path)
    content = _load(source)
    if content.get("format") == FORMAT:
        if content.get("world", "shoal") != "shoal":
            raise AssetError(
                f"{source} holds starts of {content['world']}. Allowed: those of shoal."
            )
        starts = [_from_json(entry, source) for entry in _list(content.get("starts"))]
        starts = [_retagged(start, type, label) for start in starts]
    else:
        starts = [
            velocity_start(
                velocity,
                before_roll=before_roll,
                label=label or source.stem,
                type=type or "tail",
                origin=str(source),
                id=f"{source.stem}:{k}",
            )
            for k, velocity in enumerate(_mix_velocities(content))
        ]
    if not starts:
        raise AssetError(
            f"{source} holds no starts. Allowed: a '{FORMAT}' file, or an original mix with 'velocities' "
            "or 'summary.clusters[].sample.predator_velocity'."
        )
    return [starts[k % len(starts)] for k in range(limit)] if limit > 0 else starts


def check_fish(starts: Sequence[Start], fish: int, where: str) -> None:
    """Raise a `ConfigError` if a start holds fish and the world has another number of them."""
    for start in starts:
        held = _fish_of(start.snapshot or {})
        if held not in (None, fish):
            raise ConfigError(
                f"{where}: a start holds {held} fish, and the world has {fish}. Make the file with --hold predator, "
                "which goes with any number of fish."
            )


def _fish_of(snapshot: Mapping[str, Array]) -> int | None:
    """Return how many fish a snapshot is about; None if it holds the predator alone."""
    held = [
        snapshot[key]
        for key, shape in SNAPSHOT_SHAPES.items()
        if "fish" in shape and key in snapshot
    ]
    return len(np.atleast_1d(held[0])) if held else None


def _load(source: Path) -> dict[str, Any]:
    try:
        content = json.loads(source.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise AssetError(f"There is no file of starts at {source}. Check the path.") from None
    except (OSError, ValueError) as error:
        raise AssetError(f"{source} cannot be read as JSON: {error}.") from None
    if not isinstance(content, dict):
        raise AssetError(f"{source} holds a {type(content).__name__}. Allowed: a JSON object.")
    return content


def _mix_velocities(content: Mapping[str, Any]) -> list[list[float]]:
    found = _list(content.get("velocities"))
    clusters = _list(_dict(content.get("summary")).get("clusters"))
    samples = [_dict(_dict(cluster).get("sample")) for cluster in clusters]
    found = found + [sample.get("predator_velocity") for sample in samples]
    return [[float(v) for v in entry] for entry in found if _is_velocity(entry)]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_velocity(entry: Any) -> bool:
    return (
        isinstance(entry, list)
        and len(entry) == 2
        and all(isinstance(v, int | float) and math.isfinite(v) for v in entry)
    )


def _to_json(start: Start) -> dict[str, Any]:
    entry = start.brief()
    entry["snapshot"] = None
    if start.snapshot is not None:
        entry["snapshot"] = {key: np.asarray(v).tolist() for key, v in start.snapshot.items()}
    return entry


def _from_json(entry: Any, source: Path) -> Start:
    try:
        snapshot = entry.get("snapshot")
        arrays = None
        if snapshot is not None:
            kinds = {"alive": np.bool_}
            arrays = {k: np.array(v, kinds.get(k, np.float32)) for k, v in snapshot.items()}
            check_snapshot(arrays, _fish_of(arrays) or 0)
        seed = entry.get("seed")
        if seed is not None and (not isinstance(seed, int) or seed < 0):
            raise ValueError(f"the seed {seed!r} is not a whole number of 0 or more")
        texts = {key: str(entry.get(key) or "") for key in ("label", "type", "origin", "id")}
        texts["type"] = texts["type"].lower() or "tail"
        return _named(Start(seed, arrays, **texts))
    except (AttributeError, TypeError, ValueError, ConfigError) as error:
        raise AssetError(
            f"{source} has a start that cannot be read ({str(error).rstrip('.')}): {str(entry)[:200]}. Allowed: objects with "
            "seed, snapshot, label, type, origin, id."
        ) from None


def _retagged(start: Start, type: str, label: str) -> Start:
    return Start(
        start.seed,
        start.snapshot,
        label=label or start.label,
        type=type or start.type,
        origin=start.origin,
        id=start.id,
    )


def _named(start: Start) -> Start:
    """Return the start with an id: its own, or one made from what it holds."""
    if start.id:
        return start
    digest = hashlib.blake2b(repr(start.seed).encode(), digest_size=8)
    for key in sorted(start.snapshot or {}):
        digest.update(key.encode())
        digest.update(np.ascontiguousarray((start.snapshot or {})[key]).tobytes())
    return Start(
        start.seed,
        start.snapshot,
        label=start.label,
        type=start.type,
        origin=start.origin,
        id=digest.hexdigest(),
    )
