"""Checkpoints of the original Mario system: `a3c_world1_stage1_0001000.pt` with a `.json` beside it.

They are read with torch's `weights_only` loader, which knows tensors and plain values and nothing else: a
file that would run code is refused (exit code 7), never executed.
"""

from __future__ import annotations

import pickle
import re
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.errors import StorageError, UnsafeFileError
from holdfast.records import Array
from holdfast.store.files import read_json

PREFIX = "a3c_world"
NAME = re.compile(r"a3c_world(?P<world>\d+)_stage(?P<stage>\d+)_(?P<update>\d{7}|latest)")
WRAPPERS = ("_orig_mod.", "module.")
"""What torch.compile and DistributedDataParallel put before the names of parameters."""


@dataclass(frozen=True)
class Original:
    """One checkpoint of the original; either file may be missing."""

    path: Path
    """The `.pt` file."""
    meta: dict[str, Any]
    """The `.json` beside it; empty if it is not there."""

    @property
    def counters(self) -> dict[str, Any]:
        """The `save_state` table of the `.json`."""
        saved = self.meta.get("save_state")
        return saved if isinstance(saved, dict) else {}

    @property
    def update(self) -> int:
        """Updates made, by the `.json`, else by the name of the file."""
        if whole(self.counters.get("global_update")) > 0:
            return whole(self.counters.get("global_update"))
        match = NAME.fullmatch(self.path.stem)
        return int(match["update"]) if match and match["update"].isdigit() else 0

    @property
    def env_steps(self) -> int:
        """Steps of all environments, by the `.json`."""
        return whole(self.counters.get("global_step"))

    @property
    def numbered(self) -> bool:
        """Whether it is a numbered checkpoint and not the `latest` snapshot."""
        return not self.path.stem.endswith("_latest")

    def payload(self) -> dict[str, Any]:
        """Return what the `.pt` file holds."""
        return load_pt(self.path)

    def parameters(self) -> dict[str, Array]:
        """Return the parameters by name, without the names of wrappers."""
        return model_of(self.payload(), self.path)


def open_original(path: Path) -> Original:
    """Return the checkpoint of a `.pt` or `.json` file."""
    pt, meta = path.with_suffix(".pt"), path.with_suffix(".json")
    if not pt.is_file() and not meta.is_file():
        raise StorageError(f"There is no checkpoint {path}. Type: holdfast ckpt find {path.parent}")
    found = read_json(meta) if meta.is_file() else {}
    if not isinstance(found, dict):
        raise StorageError(f"{meta} holds no JSON object, so it describes no checkpoint.")
    return Original(pt, found)


def load_pt(path: Path) -> dict[str, Any]:
    """Return the tensors and plain values of a `.pt` file; anything that could run code is refused."""
    import torch

    if not path.is_file():
        raise StorageError(f"The file {path} is not there.")
    with open(path, "rb") as file:
        head = file.read(2)
    if head != b"PK" and head[:1] != b"\x80":
        raise StorageError(f"{path} is not a PyTorch file: it begins with {head!r}.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of pickle protocols, which our own message covers
            found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UnsafeFileError(
            f"{path} was refused, because reading it could run code: {_reason(error)}. Holdfast reads tensors and "
            "plain values only. Where you trust the file, load it there, save only its state_dict "
            "(torch.save(model.state_dict(), ...)), and use that."
        ) from None
    except (RuntimeError, EOFError, OSError, ValueError, zipfile.BadZipFile) as error:
        raise StorageError(f"{path} is damaged: {str(error).splitlines()[0]}.") from None
    if not isinstance(found, dict):
        raise StorageError(f"{path} holds a {type(found).__name__}, not a table of parameters.")
    return found


def model_of(payload: dict[str, Any], path: Path) -> dict[str, Array]:
    """Return the parameters of a payload: its `model`, or the payload itself if it is a state dict."""
    import torch

    model = payload.get("model", payload)
    if not isinstance(model, dict) or not any(torch.is_tensor(v) for v in model.values()):
        raise StorageError(
            f"{path} holds no parameters. Its parts are: {', '.join(map(str, payload))}."
        )
    tensors = {str(k): v for k, v in model.items() if torch.is_tensor(v)}
    return {
        # NumPy knows no bfloat16.
        name: (t.float() if t.is_floating_point() else t).detach().cpu().numpy()
        for name, t in unwrapped(tensors).items()
    }


def unwrapped(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return parameters with the names of wrappers stripped, however deep they stand."""
    found: dict[str, Any] = {}
    for name, value in parameters.items():
        bare = bare_name(name)
        if bare in found:
            raise StorageError(
                f"Two parameters are both called '{bare}' once '{name}' is stripped of its wrapper. "
                "The file mixes two models; save one state_dict alone."
            )
        found[bare] = value
    return found


def bare_name(name: str) -> str:
    """Return a parameter's name without the names of wrappers."""
    while name.startswith(WRAPPERS):
        for wrapper in WRAPPERS:
            name = name.removeprefix(wrapper)
    return name


def summary(original: Original) -> dict[str, Any]:
    """Return what a person wants to know: settings, counters, and the state dict in numbers."""
    meta, vector = original.meta, _table(original.meta, "vector_env")
    replay = _table(meta, "replay")
    payload = original.payload()
    raw = payload.get("model", payload)
    parameters = model_of(payload, original.path)
    dtypes: dict[str, int] = {}
    for value in parameters.values():
        dtypes[str(value.dtype)] = dtypes.get(str(value.dtype), 0) + 1
    return {
        "kind": "original",
        "path": str(original.path),
        "update": original.update or whole(payload.get("global_update")),
        "env_steps": original.env_steps or whole(payload.get("global_step")),
        "type": original.counters.get("type"),
        "reason": original.counters.get("reason"),
        "world": meta.get("world"),
        "stage": meta.get("stage"),
        "action_type": meta.get("action_type"),
        "frame_skip": meta.get("frame_skip"),
        "frame_stack": meta.get("frame_stack"),
        "num_envs": vector.get("num_envs"),
        "asynchronous": vector.get("asynchronous"),
        "base_seed": vector.get("base_seed"),
        "replay": {k: replay.get(k) for k in ("enable", "capacity", "per_sample_interval")},
        "parts": sorted(map(str, payload)),
        "tensors": len(parameters),
        "parameters": int(sum(value.size for value in parameters.values())),
        "dtypes": dtypes,
        "compiled": any(str(name).startswith("_orig_mod.") for name in raw),
    }


def problems(original: Original) -> list[str]:
    """Return what is wrong with a checkpoint; an unsafe file raises."""
    found = []
    if not original.meta:
        found.append(f"{original.path.with_suffix('.json').name} is missing")
    try:
        payload = original.payload()
        parameters = model_of(payload, original.path)
    except StorageError as error:
        return [*found, str(error)]
    for name in ("global_step", "global_update"):
        ours, theirs = original.counters.get(name), payload.get(name)
        if ours is not None and theirs is not None and whole(ours) != whole(theirs):
            found.append(f"{name} is {ours} in the .json and {theirs} in the .pt")
    bad = [name for name, value in parameters.items() if not np.isfinite(value).all()]
    if bad:
        found.append(f"not finite: {', '.join(bad[:5])}")
    return found


def whole(value: Any) -> int:
    """Return a whole number, or 0 for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _table(meta: dict[str, Any], name: str) -> dict[str, Any]:
    found = meta.get(name)
    return found if isinstance(found, dict) else {}


def _reason(error: Exception) -> str:
    """Return the part of torch's message that names what the file wanted."""
    text = " ".join(str(error).split())
    match = re.search(r"(Unsupported (?:global|operand|class)[^.]*\.[\w.]*|GLOBAL [\w.]+)", text)
    return match[1].rstrip(".") if match else text[:160]
