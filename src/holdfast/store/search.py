"""Checkpoints below a directory, ranked, each with the reasons why it is not what is wanted.

A reason has a kind: `damage` (files are missing or changed), `format` (not readable here, or of the other
system), `world`, `spec` (the network does not fit), and `settings` (world and learner settings differ; left out
when the search is relaxed). Those without reasons come first, then the most updates, numbered ones before
`latest` ones, the most steps, and the path. Only files are read; nothing is loaded as a policy.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.errors import StorageError
from holdfast.store.checkpoint import FORMAT, MANIFEST, STATE
from holdfast.store.files import TEMPORARY, read_json
from holdfast.store.original import PREFIX, Original, open_original
from holdfast.store.settings import flat, read_settings
from holdfast.store.weights import checkpoint_at, is_learner, locate

LIMIT = 10_000
OURS = re.compile(r"(corrupt-)?u\d+")
WORLD_KEYS = ("world", "stage")
SETTINGS_KEYS = ("num_envs", "asynchronous", "random_start_stage", "base_seed", "stage_schedule")
"""What the original compared besides, unless asked to be relaxed."""


@dataclass(frozen=True)
class Reason:
    """Why a candidate is not what is wanted."""

    kind: str
    text: str


@dataclass
class Candidate:
    """One checkpoint that was found."""

    path: Path
    kind: str
    """`holdfast` or `original`."""
    update: int = 0
    env_steps: int = 0
    numbered: bool = True
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What is compared, by kind of reason: `world`, `spec`, `settings`."""
    reasons: list[Reason] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "path": str(self.path),
            "kind": self.kind,
            "match": not self.reasons,
            "update": self.update,
            "env_steps": self.env_steps,
            "world": self.facts.get("world", {}).get("world"),
            "reasons": [vars(reason) for reason in self.reasons],
        }


@dataclass(frozen=True)
class Wanted:
    """What is looked for; empty facts fit everything."""

    kind: str = ""
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """All candidates in order of rank."""

    candidates: list[Candidate]
    cut: bool
    """Whether there were more than the limit, and the search ended early."""


def wanted_like(text: str, runs_dir: Path) -> Wanted:
    """Return what fits a checkpoint that is there: its world, network and settings."""
    path = locate(text, runs_dir)
    if path.suffix == ".safetensors" or (path.is_dir() and not (path / MANIFEST).is_file()):
        raise StorageError(
            f"{path} says nothing of a world, so nothing can be like it. Give a run."
        )
    found = ours(path) if path.is_dir() else original(open_original(path))
    broken = [reason.text for reason in found.reasons]
    if broken:
        raise StorageError(f"{path} is broken: {'; '.join(broken)}.")
    return Wanted(found.kind, found.facts)


def find(root: Path, wanted: Wanted, relaxed: bool = False, limit: int = LIMIT) -> Found:
    """Return the checkpoints below `root`, ranked, with the reasons why each one does not fit."""
    if not root.is_dir():
        raise StorageError(f"There is no directory {root}. Type: holdfast ckpt find DIRECTORY")
    candidates: list[Candidate] = []
    cut = False
    for candidate in walk(root):
        if len(candidates) == limit:
            cut = True
            break
        candidate.reasons += compare(candidate, wanted, relaxed)
        candidates.append(candidate)
    candidates.sort(key=rank)
    return Found(candidates, cut)


def rank(candidate: Candidate) -> tuple[Any, ...]:
    """Return the key by which candidates are ordered."""
    return (
        bool(candidate.reasons),
        -candidate.update,
        not candidate.numbered,
        -candidate.env_steps,
        str(candidate.path),
    )


def walk(root: Path) -> Iterator[Candidate]:
    """Yield every checkpoint below `root`, of both systems."""
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        checkpoints = [
            name
            for name in folders
            if OURS.fullmatch(name)
            and (here.name == "checkpoints" or (here / name / MANIFEST).is_file())
        ]
        folders[:] = sorted(
            name for name in folders if name not in checkpoints and not name.startswith(TEMPORARY)
        )
        for name in sorted(checkpoints):
            yield ours(here / name)
        if OURS.fullmatch(here.name) and MANIFEST in names:
            yield ours(here)  # the search began inside a checkpoint
        stems = {
            Path(n).stem for n in names if n.startswith(PREFIX) and n.endswith((".json", ".pt"))
        }
        for stem in sorted(stems):
            yield _original_at(here / f"{stem}.pt")


def ours(path: Path) -> Candidate:
    """Return a checkpoint of Holdfast as a candidate."""
    checkpoint = checkpoint_at(path)
    digits = re.sub(r"\D", "", path.name)
    found = Candidate(path, "holdfast", int(digits) if digits else 0)
    if path.name.startswith("corrupt-"):
        found.reasons.append(Reason("damage", "it was set aside as corrupt"))
    try:
        manifest = checkpoint.manifest()
        version = manifest.get("format")
        if version != FORMAT:
            found.reasons.append(
                Reason("format", f"format {version}, and this Holdfast reads {FORMAT}")
            )
            return found
        found.reasons += [Reason("damage", text) for text in checkpoint.problems()]
        found.env_steps = int(manifest.get("env_steps") or 0)
        found.facts["world"] = {"world": manifest.get("world")}
        found.facts["spec"] = _specs(path)
    except (StorageError, AttributeError, ValueError, TypeError) as error:
        found.reasons.append(Reason("damage", str(error)))
        return found
    settings = read_settings(path.parent.parent)
    found.facts["settings"] = {
        key: value
        for key, value in settings.items()
        if key.startswith(("world.", "learner.")) and key != "world.name"
    }
    return found


def original(checkpoint: Original) -> Candidate:
    """Return a checkpoint of the original as a candidate."""
    found = Candidate(
        checkpoint.path,
        "original",
        checkpoint.update,
        checkpoint.env_steps,
        checkpoint.numbered,
    )
    if not checkpoint.path.is_file():
        found.reasons.append(Reason("damage", f"{checkpoint.path.name} is missing"))
    elif not zipfile.is_zipfile(checkpoint.path) and not _old_format(checkpoint.path):
        found.reasons.append(
            Reason("damage", f"{checkpoint.path.name} is cut or is no PyTorch file")
        )
    meta = checkpoint.meta
    if not meta:
        name = checkpoint.path.with_suffix(".json").name
        found.reasons.append(
            Reason("damage", f"{name} is missing, so it is not known what this is for")
        )
        return found
    vector = meta.get("vector_env") if isinstance(meta.get("vector_env"), dict) else {}
    model = meta.get("model") if isinstance(meta.get("model"), dict) else {}
    shown = ("action_type", "frame_skip", "frame_stack")
    found.facts = {
        "world": {key: meta.get(key) for key in WORLD_KEYS},
        "spec": {**{key: meta.get(key) for key in shown}, **flat(model or {}, "model")},
        "settings": {key: (vector or {}).get(key) for key in SETTINGS_KEYS},
    }
    return found


def compare(candidate: Candidate, wanted: Wanted, relaxed: bool) -> list[Reason]:
    """Return the reasons why a candidate does not fit."""
    if wanted.kind and candidate.kind != wanted.kind:
        system = {"holdfast": "Holdfast", "original": "the original"}
        text = (
            f"a checkpoint of {system[candidate.kind]}, and one of {system[wanted.kind]} is wanted"
        )
        return [Reason("format", text)]
    reasons: list[Reason] = []
    for kind in ("world", "spec", "settings"):
        if kind == "settings" and (relaxed or any(reason.kind == "world" for reason in reasons)):
            continue  # the settings of another world say nothing
        has, needs = candidate.facts.get(kind, {}), wanted.facts.get(kind, {})
        # A key that only one of them knows came with a later version, and means nothing.
        for key in sorted(has.keys() & needs.keys()):
            if has[key] != needs[key]:
                text = f"{key} is {_text(has[key])}, wanted {_text(needs[key])}"
                reasons.append(Reason(kind, text))
    return reasons


def _specs(path: Path) -> dict[str, Any]:
    parts = {p: s for p, s in read_json(path / STATE).items() if is_learner(p, s)}
    return {"learners": sorted(parts), **flat({part: s["spec"] for part, s in parts.items()})}


def _original_at(path: Path) -> Candidate:
    try:
        return original(open_original(path))
    except StorageError as error:
        return Candidate(path, "original", reasons=[Reason("damage", str(error))])


def _old_format(path: Path) -> bool:
    """Return whether a file may be of torch's format before the zip one."""
    with open(path, "rb") as file:
        return file.read(1) == b"\x80"


def _text(value: Any) -> str:
    return "not set" if value is None else str(value)
