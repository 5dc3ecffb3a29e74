"""The shoal: many fish with one shared policy, one predator, and a tail of early deaths.

`ShoalWorld` is imported on first use, so that reading the options does not load the compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.worlds.shoal.options import (
    V36_HEADING_BIAS,
    V36_SPEED_BIAS,
    ShoalOptions,
    make_options,
    plain_options,
)

if TYPE_CHECKING:
    from holdfast.worlds.shoal.world import ShoalWorld

__all__ = [
    "V36_HEADING_BIAS",
    "V36_SPEED_BIAS",
    "ShoalOptions",
    "ShoalWorld",
    "make_options",
    "plain_options",
]


def __getattr__(name: str) -> Any:
    if name == "ShoalWorld":
        from holdfast.worlds.shoal.world import ShoalWorld

        return ShoalWorld
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
