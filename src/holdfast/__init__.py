"""Holdfast trains reinforcement-learning policies and keeps the run under control."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.api import evaluate, load_policy, make, resume, train
    from holdfast.errors import HoldfastError
    from holdfast.guards.guard import Guard
    from holdfast.records import Cause, Decision, EvalReport, Start
    from holdfast.worlds.contract import World

__all__ = [
    "Cause",
    "Decision",
    "EvalReport",
    "Guard",
    "HoldfastError",
    "Start",
    "World",
    "evaluate",
    "load_policy",
    "make",
    "resume",
    "train",
]

_HOMES = {
    "evaluate": "holdfast.api",
    "load_policy": "holdfast.api",
    "make": "holdfast.api",
    "resume": "holdfast.api",
    "train": "holdfast.api",
    "HoldfastError": "holdfast.errors",
    "Cause": "holdfast.records",
    "Decision": "holdfast.records",
    "EvalReport": "holdfast.records",
    "Guard": "holdfast.guards.guard",
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
