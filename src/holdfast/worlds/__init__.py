"""Worlds by name: ours, any Gymnasium id, or `module:function`."""

from __future__ import annotations

import contextlib
import importlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.worlds.contract import World
    from holdfast.worlds.events import Record

OURS = {
    "shoal": ("holdfast.worlds.shoal", "ShoalWorld", "ShoalOptions"),
    "pursuit": ("holdfast.worlds.pursuit", "PursuitWorld", "PursuitOptions"),
    "mario": ("holdfast.worlds.mario", "MarioWorld", "MarioOptions"),
}
FACTS = "facts"
"""Begins the signals that a foreign environment tells of its episodes; those of our worlds begin with their names."""
FOREIGN = ("holdfast.worlds.foreign", "ForeignWorld", "ForeignOptions")


def options_type(name: str) -> type:
    """Return the options dataclass of a world."""
    module, _, options = OURS.get(name, FOREIGN)
    kind: type = getattr(
        importlib.import_module(f"{module}.options" if name in OURS else module), options
    )
    return kind


def world_type(name: str) -> type[World]:
    """Return the class of a world."""
    module, kind, _ = OURS.get(name, FOREIGN)
    found: type[World] = getattr(importlib.import_module(module), kind)
    return found


def check_name(name: str) -> None:
    """Raise a ConfigError if there is no such world."""
    if name not in OURS:
        from holdfast.worlds.foreign import make_game

        make_game(name)


def make_world(name: str, options: Any, seed: int = 0, record: Record | None = None) -> World:
    """Return the world; its first `reset()` uses `seed` unless it is given another.

    `record` says where a foreign world writes its events and fault reports, and to whom it speaks.
    """
    make: Any = world_type(name)
    world: World = (
        make(options, seed=seed) if name in OURS else make(name, options, seed=seed, record=record)
    )
    return world


def prewarm(name: str, options: Any, record: Record) -> None:
    """Build, reset and close one game; what fails here would fail in every game."""
    from holdfast.worlds.events import Events

    if name in OURS:
        options = replace(options, games=1)
    else:
        from holdfast.worlds.pool_modes import one_game

        options = one_game(name, options)
    events = Events(name, "prewarm", record)
    events.begin(-1, "prewarm")
    try:
        world = make_world(name, options, record=replace(record, progress="quiet"))
        with contextlib.closing(world):
            world.reset(seed=0)
    except HoldfastError as error:
        events.error(-1, "prewarm", type(error).__name__, str(error))
        error.args = (f"Prewarm of the phase '{record.stage}' failed: {error}", *error.args[1:])
        raise
    else:
        events.ok(-1, "prewarm")
    finally:
        events.close()
