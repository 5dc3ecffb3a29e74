"""Steps that the original's checkpoints lack: `global_step = update x num_envs x rollout_steps`.

Some `.json` files of the original say `global_step: 0`. `fix_steps` computes it, writes where it came from
(`reconstructed_step_source`), and keeps the old files as `.bak`. What it does to a file depends on the file
alone: a second time changes nothing. The `.pt` is written before the `.json`, each atomically, so that a crash
in between is mended by doing it again.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigError, HoldfastError, StorageError, UnsafeFileError
from holdfast.store.files import TEMPORARY, fsync_directory, read_json, storage_errors, write_atomic
from holdfast.store.original import PREFIX, load_pt, whole

FORMULA = "global_update * num_envs * rollout_steps"
SOURCE = "reconstructed_step_source"


@dataclass(frozen=True)
class FixOptions:
    """How steps are filled in."""

    rollout_steps: int = 64
    """Steps of one rollout, which the files do not say."""
    update_if_lower: bool = False
    """Also replace a step that is lower than the computed one."""
    dry_run: bool = False
    """Say what would be done, and write nothing."""
    backup: bool = True
    """Keep the old files as `.bak`, once."""
    json_only: bool = False
    """Leave the `.pt` files alone."""


@dataclass
class Fix:
    """What became of one file."""

    path: str
    status: str
    """`updated:N`, `would_update:N`, or why it was skipped."""
    old: int = 0
    new: int = 0
    method: str = ""
    pt: str = ""
    """What became of the `.pt`."""
    note: str = ""
    """What went wrong, in words."""
    backups: list[str] = field(default_factory=list)


def fix_steps(root: Path, options: FixOptions) -> list[Fix]:
    """Fill in the steps of every `a3c_world*.json` below `root`; return what became of each."""
    if not root.is_dir():
        raise ConfigError(
            f"There is no directory {root}. Type: holdfast ckpt migrate DIRECTORY --fix-steps"
        )
    if options.rollout_steps < 1:
        raise ConfigError(
            f"--assume-rollout-steps {options.rollout_steps} is not allowed. It takes 1 or more."
        )
    return [fix_one(path, options) for path in metadata_files(root)]


def metadata_files(root: Path) -> Iterator[Path]:
    """Yield the `.json` files of the original's checkpoints below `root`, by path."""
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            if name.startswith(PREFIX) and name.endswith(".json"):
                yield Path(folder) / name


def fix_one(path: Path, options: FixOptions) -> Fix:
    """Fill in the step of one file if it lacks one."""
    try:
        meta = read_json(path)
    except StorageError as error:
        return Fix(str(path), "unreadable", note=str(error))
    if not isinstance(meta, dict):
        return Fix(str(path), "unreadable", note="it holds no JSON object")
    saved = meta.get("save_state")
    saved = dict(saved) if isinstance(saved, dict) else {}
    update, method, from_pt = whole(saved.get("global_update")), "assumed_rollout_steps", 0
    if update <= 0:
        try:
            from_pt = _update_of(path.with_suffix(".pt"))
        except UnsafeFileError as error:
            return Fix(str(path), "unsafe_checkpoint", note=str(error))
        if from_pt <= 0:
            return Fix(str(path), "no_update_info")
        update, method = from_pt, "checkpoint_plus_rollout"
    vector = meta.get("vector_env")
    envs = whole(vector.get("num_envs")) if isinstance(vector, dict) else 0
    if envs <= 0:
        return Fix(str(path), "missing_num_envs")
    old, new = whole(saved.get("global_step")), update * envs * options.rollout_steps
    skip = _skip(old, new, SOURCE in meta, options.update_if_lower)
    if skip:
        return Fix(str(path), skip, old, new, method)
    if options.dry_run:
        return Fix(str(path), f"would_update:{new}", old, new, method)
    fix = Fix(str(path), f"updated:{new}", old, new, method)
    saved.update(global_step=new, **({"global_update": from_pt} if from_pt else {}))
    source = {
        "method": method,
        "rollout_steps": options.rollout_steps,
        "formula": FORMULA,
        "computed_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **({"checkpoint_global_update": from_pt} if from_pt else {}),
    }
    fix.pt = _fix_pt(path.with_suffix(".pt"), new, options, fix.backups)
    _back_up(path, options, fix.backups)
    changed = {**meta, "save_state": saved, SOURCE: source}
    write_atomic(path, json.dumps(changed, indent=2, ensure_ascii=False) + "\n")
    return fix


def _skip(old: int, new: int, reconstructed: bool, update_if_lower: bool) -> str:
    if old > 0:
        if not update_if_lower:
            return "already_has_step"
        return "" if new > old else "current_step>=computed"
    return "already_reconstructed" if reconstructed and not update_if_lower else ""


def _update_of(path: Path) -> int:
    if not path.is_file():
        return 0
    try:
        return whole(load_pt(path).get("global_update"))
    except StorageError:
        return 0


def _fix_pt(path: Path, new: int, options: FixOptions, backups: list[str]) -> str:
    """Write the step into the `.pt` too; return what became of it."""
    import torch

    if options.json_only:
        return "left alone"
    if not path.is_file():
        return "missing"
    try:
        payload = load_pt(path)
    except HoldfastError as error:
        return f"left alone: {error}"
    if "model" not in payload:
        return "left alone: it has no counters"
    has = whole(payload.get("global_step"))
    if has == new:
        return "has it"
    if has > 0 and not (options.update_if_lower and has < new):
        return f"left alone: it says {has}"
    _back_up(path, options, backups)
    buffer = io.BytesIO()
    torch.save({**payload, "global_step": new}, buffer)
    write_atomic(path, buffer.getvalue())
    return "updated"


def _back_up(path: Path, options: FixOptions, backups: list[str]) -> None:
    """Copy a file to `.bak` unless there is one already; the first state is what is worth keeping."""
    backup = path.with_name(path.name + ".bak")
    if not options.backup or backup.exists():
        return
    temporary = path.with_name(f"{TEMPORARY}{backup.name}-{os.getpid()}")
    with storage_errors(backup):
        shutil.copy2(path, temporary)
        os.replace(temporary, backup)
        fsync_directory(path.parent)
    backups.append(str(backup))


def report(root: Path, fixes: list[Fix], options: FixOptions) -> dict[str, Any]:
    """Return the JSON report: how many of each status, and every file."""
    counts: dict[str, int] = {}
    for fix in fixes:
        status = fix.status.partition(":")[0]
        counts[status] = counts.get(status, 0) + 1
    return {
        "root": str(root),
        "options": vars(options),
        "files": len(fixes),
        "counts": counts,
        "results": [vars(fix) for fix in fixes],
    }
