"""Holdfast trains reinforcement-learning policies and keeps the run under control."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.api import evaluate, load_policy, make, train
    from holdfast.errors import HoldfastError
    from holdfast.records import EvalReport, Start
    from holdfast.worlds.contract import World

__all__ = [
    "EvalReport",
    "HoldfastError",
    "Start",
    "World",
    "evaluate",
    "load_policy",
    "make",
    "train",
]

_HOMES = {
    "evaluate": "holdfast.api",
    "load_policy": "holdfast.api",
    "make": "holdfast.api",
    "train": "holdfast.api",
    "HoldfastError": "holdfast.errors",
    "EvalReport": "holdfast.records",
    "Start": "holdfast.records",
    "World": "holdfast.worlds.contract",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `import holdfast` is quick."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'holdfast' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
