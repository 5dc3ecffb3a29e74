"""The parameters of a policy, wherever they stand.

A place is written as

    first                  the newest checkpoint of the run 'first'
    first@60               its checkpoint of update 60
    runs/first, runs/first/checkpoints/u00000060
    exported/              what `holdfast ckpt export` wrote, or any .safetensors file
    a3c_world1_stage1_latest.pt   a checkpoint of the original, or any state dict of torch

Nothing is unpickled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from holdfast.errors import ConfigError, StorageError, nearest
from holdfast.records import Array
from holdfast.store.checkpoint import MANIFEST, Checkpoint, Checkpoints, parameters_sha256
from holdfast.store.files import read_json
from holdfast.store.original import Original, model_of, open_original, unwrapped, whole
from holdfast.store.settings import FILE as SETTINGS
from holdfast.store.settings import read_settings

POLICY, SPEC = "policy.safetensors", "policy.json"
NORM = "norm."
"""How the running statistics of observations are called in an exported file."""


@dataclass(frozen=True)
class Weights:
    """The parameters of one learner and what is needed to use them."""

    parameters: dict[str, Array]
    spec: dict[str, Any] | None = None
    """The network's spec; None where the file does not say."""
    norm: dict[str, Any] | None = None
    """Mean, variance and count of observations; None if they are not normalised."""

    @property
    def sha256(self) -> str:
        """Hash over names and values."""
        return parameters_sha256({"learner": {"parameters": self.parameters}})


@dataclass(frozen=True)
class Source:
    """All learners that one place holds, with its counters and settings."""

    path: Path
    kind: str
    """`holdfast`, `original`, or `file`."""
    learners: dict[str, Weights]
    """By part: `learner`, or `learner.<role>`."""
    counters: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def learner(self, part: str) -> Weights:
        """Return a learner by its part; a place that holds only one gives that one."""
        if part in self.learners:
            return self.learners[part]
        if len(self.learners) == 1:
            return next(iter(self.learners.values()))
        raise ConfigError(
            f"{self.path} holds no '{part}'.{nearest(part, self.learners)} It holds: "
            f"{', '.join(self.learners)}. 'holdfast ckpt export' takes one of them with --part."
        )


def locate(text: str, runs_dir: Path) -> Path:
    """Return the checkpoint directory or the file that `text` means."""
    name, at, number = text.rpartition("@")
    if not at or not number.isdigit():
        name, number = text, ""
    path = Path(name)
    if path.suffix in (".pt", ".json", ".safetensors") and not number:
        return path
    if (path / MANIFEST).is_file() or (path / POLICY).is_file():
        return path
    if re.fullmatch(r"u\d{8}", path.name) and path.is_dir():
        return path
    run = path if (path / SETTINGS).is_file() else runs_dir / name
    if not (run / SETTINGS).is_file():
        have = sorted(p.parent.name for p in runs_dir.glob(f"*/{SETTINGS}"))
        raise StorageError(
            f"There is no run '{name}' in {runs_dir} and no checkpoint of that name.{nearest(name, have)} "
            f"Runs: {', '.join(have) or 'none'}. A place is written RUN, RUN@UPDATE, or as a path; "
            "look elsewhere with --runs-dir, or search: holdfast ckpt find DIRECTORY"
        )
    found = Checkpoints(run / "checkpoints").find(int(number) if number else None)
    return found.path


def read_source(text: str, runs_dir: Path) -> Source:
    """Return everything that a place holds; a damaged or unsafe file is an error."""
    path = locate(text, runs_dir)
    if path.is_dir() and (path / POLICY).is_file():
        return _exported(path)
    if path.is_dir():
        return _holdfast(path)
    if path.suffix == ".safetensors":
        return Source(path, "file", {"learner": Weights(unwrapped(_tensors(path)))})
    return _original(open_original(path))


def checkpoint_at(path: Path) -> Checkpoint:
    """Return the checkpoint in a directory."""
    digits = path.name[1:]
    return Checkpoint(path, int(digits) if digits.isdigit() else 0)


def is_learner(part: str, state: Any) -> bool:
    """Return whether a part of a checkpoint is a learner."""
    named = part == "learner" or part.startswith("learner.")
    return named and isinstance(state, Mapping) and "parameters" in state


def intact_at(path: Path) -> Checkpoint:
    """Return the checkpoint in a directory, or raise if it is broken."""
    checkpoint = checkpoint_at(path)
    problems = checkpoint.problems()
    if problems:
        raise StorageError(
            f"The checkpoint {path} is broken: {'; '.join(problems)}. For intact ones, type: "
            f"holdfast ckpt find {path.parent}"
        )
    return checkpoint


def _holdfast(path: Path) -> Source:
    checkpoint = intact_at(path)
    state, manifest = checkpoint.load(), checkpoint.manifest()
    learners = {
        part: Weights(dict(found["parameters"]), dict(found["spec"]), found.get("norm"))
        for part, found in state.items()
        if is_learner(part, found)
    }
    progress = state.get("progress", {})
    counters = {"update": manifest["update"], "env_steps": manifest.get("env_steps")}
    for name in ("episodes", "probes", "best_update", "best_value"):
        counters[name] = progress.get(name)
    for part in learners:
        counters[f"{part}.optimiser_step"] = (state[part].get("optimiser") or {}).get("step")
    return Source(
        path,
        "holdfast",
        learners,
        counters,
        read_settings(path.parent.parent),
        dict(manifest.get("versions", {})),
    )


def _exported(path: Path) -> Source:
    about = read_json(path / SPEC)
    tensors = _tensors(path / POLICY)
    norm: dict[str, Any] = {
        name.removeprefix(NORM): tensors.pop(name)
        for name in list(tensors)
        if name.startswith(NORM)
    }
    if norm:
        norm["count"] = float(norm["count"])
    weights = Weights(unwrapped(tensors), about.get("spec"), norm or None)
    counters = {"update": about.get("update"), "env_steps": about.get("env_steps")}
    return Source(path, "file", {"learner": weights}, counters)


def _original(original: Original) -> Source:
    payload = original.payload()
    weights = Weights(model_of(payload, original.path))
    counters = {
        "update": original.update or whole(payload.get("global_update")),
        "env_steps": original.env_steps or whole(payload.get("global_step")),
    }
    settings = {k: v for k, v in original.meta.items() if k not in ("save_state", "timestamp")}
    return Source(original.path, "original", {"learner": weights}, counters, settings)


def _tensors(path: Path) -> dict[str, Array]:
    try:
        return dict(load_file(path))
    except FileNotFoundError:
        raise StorageError(f"The file {path} is not there.") from None
    except (SafetensorError, OSError, ValueError, json.JSONDecodeError) as error:
        raise StorageError(f"{path} is no safetensors file, or damaged: {error}.") from None


def finite_problems(source: Source) -> list[str]:
    """Return the parameters that are not finite, as problems."""
    return [
        f"{part}/{name} has {int((~np.isfinite(value)).sum())} numbers that are not finite"
        for part, weights in source.learners.items()
        for name, value in weights.parameters.items()
        if np.issubdtype(value.dtype, np.floating) and not np.isfinite(value).all()
    ]
