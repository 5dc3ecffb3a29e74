"""Worlds by name: ours, any Gymnasium id, or `module:function`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.worlds.contract import World

OURS = {
    "shoal": ("holdfast.worlds.shoal", "ShoalWorld", "ShoalOptions"),
    "pursuit": ("holdfast.worlds.pursuit", "PursuitWorld", "PursuitOptions"),
    "mario": ("holdfast.worlds.mario", "MarioWorld", "MarioOptions"),
}
FOREIGN = ("holdfast.worlds.foreign", "ForeignWorld", "ForeignOptions")


def options_type(name: str) -> type:
    """Return the options dataclass of a world."""
    module, _, options = OURS.get(name, FOREIGN)
    kind: type = getattr(
        importlib.import_module(f"{module}.options" if name in OURS else module), options
    )
    return kind


def check_name(name: str) -> None:
    """Raise a ConfigError if there is no such world."""
    if name not in OURS:
        from holdfast.worlds.foreign import make_game

        make_game(name)


def make_world(name: str, options: Any, seed: int = 0) -> World:
    """Return the world; its first `reset()` uses `seed` unless it is given another."""
    module, kind, _ = OURS.get(name, FOREIGN)
    make = getattr(importlib.import_module(module), kind)
    world: World = make(options, seed=seed) if name in OURS else make(name, options, seed=seed)
    return world
