"""Super Mario Bros on consoles of our own, batched and compiled: pixels or tiles in, buttons out.

`MarioWorld` is imported on first use, so that reading the options does not load the compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.worlds.mario.options import MarioOptions

if TYPE_CHECKING:
    from holdfast.worlds.mario.world import MarioWorld

__all__ = ["MarioOptions", "MarioWorld"]


def __getattr__(name: str) -> Any:
    if name == "MarioWorld":
        from holdfast.worlds.mario.world import MarioWorld

        return MarioWorld
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
