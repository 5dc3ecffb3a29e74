"""Checkpoints: hashed, atomic, free of pickle.

    checkpoints/
      LATEST                    name of the newest checkpoint
      u00000010/
        manifest.json           format, update, versions, sizes and SHA-256 of the other files, and its own
        tensors.safetensors     every array of the state, by path
        state.json              the rest of the state; arrays stand as {"$array": path}
      corrupt-u00000020/        set aside because a hash did not match

The state is a tree of dicts, lists, numbers, strings, bytes and arrays; keys are strings.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from holdfast.errors import StorageError
from holdfast.records import Array
from holdfast.store.files import (
    read_json,
    remove_directory,
    replace_directory,
    sweep_temporary,
    write_atomic,
    write_synced,
)

FORMAT = 1
MANIFEST, TENSORS, STATE, LATEST = "manifest.json", "tensors.safetensors", "state.json", "LATEST"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk that was found by name."""

    path: Path
    update: int

    @property
    def name(self) -> str:
        """Directory name, `u` and the update."""
        return self.path.name

    def manifest(self) -> dict[str, Any]:
        """Return the manifest."""
        manifest: dict[str, Any] = read_json(self.path / MANIFEST)
        return manifest

    def problems(self) -> list[str]:
        """Return what is wrong with the files; empty means every byte is as it was written."""
        try:
            manifest = self.manifest()
            if manifest["sha256"] != _manifest_sha256(manifest):
                return [f"{MANIFEST} does not match its SHA-256"]
            if manifest["format"] > FORMAT:
                return [f"format {manifest['format']} is newer than this Holdfast reads ({FORMAT})"]
            expected = manifest["files"]
        except (StorageError, KeyError, TypeError) as error:
            return [f"{MANIFEST}: {error}"]
        found = []
        for name, entry in expected.items():
            file = self.path / name
            if not file.is_file():
                found.append(f"{name} is missing")
            elif file.stat().st_size != entry["bytes"]:
                found.append(f"{name} has {file.stat().st_size} bytes, not {entry['bytes']}")
            elif sha256(file.read_bytes()) != entry["sha256"]:
                found.append(f"{name} does not match its SHA-256")
        return found

    def load(self) -> dict[str, Any]:
        """Return the whole state."""
        tensors = load_tensors((self.path / TENSORS).read_bytes())
        state: dict[str, Any] = _join(read_json(self.path / STATE), tensors)
        return state


class Checkpoints:
    """The checkpoints of one run: save, find, retain."""

    def __init__(self, directory: Path, keep_last: int = 3, keep_every: int = 10) -> None:
        self.directory = directory
        self.keep_last, self.keep_every = keep_last, keep_every

    def save(
        self, update: int, state: dict[str, Any], about: dict[str, Any], keep: frozenset[int]
    ) -> Checkpoint:
        """Write a checkpoint, point LATEST at it, and drop what retention does not hold.

        `about` goes into the manifest; `keep` names updates that are never dropped (the best).
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        tensors: dict[str, Array] = {}
        tree = _split(state, "", tensors)
        contents = {
            TENSORS: save_tensors(tensors),
            STATE: json.dumps(tree, allow_nan=False).encode(),
        }
        manifest = {
            "format": FORMAT,
            "update": update,
            **about,
            "parameters_sha256": parameters_sha256(state),
            "parts": sorted(state),
            "files": {n: {"bytes": len(d), "sha256": sha256(d)} for n, d in contents.items()},
            "versions": versions(),
            "written_at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        }
        manifest["sha256"] = _manifest_sha256(manifest)
        path = self.directory / f"u{update:08d}"
        with replace_directory(path) as temporary:
            for name, data in contents.items():
                write_synced(temporary / name, data)
            write_synced(temporary / MANIFEST, (json.dumps(manifest, indent=2) + "\n").encode())
        write_atomic(self.directory / LATEST, path.name + "\n")
        self._retain(keep | {update})
        return Checkpoint(path, update)

    def all(self) -> list[Checkpoint]:
        """Return the checkpoints, oldest first (whether or not they are intact)."""
        if not self.directory.is_dir():
            return []
        found = [
            Checkpoint(path, int(path.name[1:]))
            for path in self.directory.glob("u*")
            if path.is_dir() and path.name[1:].isdigit()
        ]
        return sorted(found, key=lambda c: c.update)

    def newest(self, warn: Callable[[str], None]) -> Checkpoint | None:
        """Return the newest intact checkpoint; set broken ones aside and say so through `warn`.

        None means that no checkpoint was ever written. If there were some and none is intact, the
        run cannot go on: StorageError, never a silent fresh start.
        """
        if self.directory.is_dir():
            sweep_temporary(self.directory)
        candidates = self.all()
        for checkpoint in reversed(candidates):
            problems = checkpoint.problems()
            if not problems:
                return checkpoint
            aside = checkpoint.path.with_name(f"corrupt-{checkpoint.name}")
            if aside.exists():
                remove_directory(aside)
            checkpoint.path.rename(aside)
            warn(
                f"CORRUPT CHECKPOINT {checkpoint.path}: {'; '.join(problems)}. "
                f"It was set aside as {aside.name}; the one before it is used."
            )
        if candidates or any(self.directory.glob("corrupt-u*")):
            raise StorageError(
                f"No checkpoint in {self.directory} is intact; the broken ones stand there as "
                "'corrupt-*'. Restore one from a backup, or start a new run under another name."
            )
        return None

    def find(self, update: int | None) -> Checkpoint:
        """Return the checkpoint of `update`, or the newest; a broken one is an error, not a guess."""
        candidates = self.all()
        chosen = [c for c in candidates if update is None or c.update == update]
        if not chosen:
            have = ", ".join(str(c.update) for c in candidates) or "none"
            asked = "no checkpoint" if update is None else f"no checkpoint of update {update}"
            raise StorageError(f"There is {asked} in {self.directory}. There are: {have}.")
        problems = chosen[-1].problems()
        if problems:
            raise StorageError(
                f"The checkpoint {chosen[-1].path} is broken: {'; '.join(problems)}."
            )
        return chosen[-1]

    def best(self) -> Checkpoint:
        """Return the checkpoint of the best probe, as the newest one says, or the newest if that is not kept."""
        newest = self.find(None)
        update = int(newest.manifest().get("best_update", 0))
        held = {c.update for c in self.all()}
        return self.find(update) if update > 0 and update in held else newest

    def _retain(self, keep: frozenset[int]) -> None:
        checkpoints = self.all()
        held = {c.update for c in checkpoints[-self.keep_last :]} | keep
        for checkpoint in checkpoints:
            if checkpoint.update not in held and not self._milestone(checkpoint):
                remove_directory(checkpoint.path)

    def _milestone(self, checkpoint: Checkpoint) -> bool:
        """Return whether this is each `keep_every`-th of those that were written in their turn."""
        every = int(checkpoint.manifest().get("checkpoint_every", 1) or 1)
        return self.keep_every > 0 and checkpoint.update % (every * self.keep_every) == 0


def sha256(data: bytes) -> str:
    """Return the hex digest."""
    return hashlib.sha256(data).hexdigest()


def parameters_sha256(state: dict[str, Any]) -> str:
    """Return one hash over the parameters of every learner in the state, by name."""
    digest = hashlib.sha256()
    for part in sorted(state):
        parameters = state[part].get("parameters") if isinstance(state[part], dict) else None
        for name in sorted(parameters or ()):
            digest.update(f"{part}/{name}".encode())
            digest.update(np.ascontiguousarray((parameters or {})[name]).tobytes())
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """Return the versions that a resumed run should share."""
    found = {"python": platform.python_version()}
    for package in ("holdfast", "numpy", "numba", "torch"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "none"
    return found


def _manifest_sha256(manifest: dict[str, Any]) -> str:
    rest = {key: value for key, value in manifest.items() if key != "sha256"}
    return sha256(json.dumps(rest, sort_keys=True).encode())


def _split(tree: Any, path: str, tensors: dict[str, Array]) -> Any:
    if isinstance(tree, dict):
        return {
            str(k): _split(v, f"{path}/{k}" if path else str(k), tensors) for k, v in tree.items()
        }
    if isinstance(tree, list | tuple):
        return [_split(v, f"{path}/{i}", tensors) for i, v in enumerate(tree)]
    if isinstance(tree, np.ndarray):
        tensors[path] = np.ascontiguousarray(tree)
        return {"$array": path}
    if isinstance(tree, bytes):
        tensors[path] = np.frombuffer(tree, np.uint8)
        return {"$bytes": path}
    if isinstance(tree, np.generic):
        return _split(tree.item(), path, tensors)
    if isinstance(tree, float) and not math.isfinite(tree):
        return {"$float": repr(tree)}
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    raise TypeError(f"{path}: a {type(tree).__name__} cannot be saved")


def _join(tree: Any, tensors: dict[str, Array]) -> Any:
    if isinstance(tree, dict):
        if "$array" in tree:
            return tensors[tree["$array"]].copy()
        if "$bytes" in tree:
            return tensors[tree["$bytes"]].tobytes()
        if "$float" in tree:
            return float(tree["$float"])
        return {key: _join(value, tensors) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_join(value, tensors) for value in tree]
    return tree
