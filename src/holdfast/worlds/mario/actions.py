"""Buttons by name, and the action sets that a policy chooses from.

A combination is names joined by `+` in any order and case (`b+right`); `NOOP` presses nothing. No set holds
START or SELECT: START pauses the game, and a policy that can press it learns to stand still.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from holdfast.errors import ConfigError, nearest

BUTTONS = ("A", "B", "SELECT", "START", "UP", "DOWN", "LEFT", "RIGHT")
"""By bit of a pad byte: A is bit 0, RIGHT bit 7."""
NOOP = "NOOP"

_RIGHT = (NOOP, "RIGHT", "RIGHT+A", "RIGHT+B", "RIGHT+A+B")
_SIMPLE = (*_RIGHT, "A", "LEFT")
_COMPLEX = (*_SIMPLE, "LEFT+A", "LEFT+B", "LEFT+A+B", "DOWN", "UP")
_EXTENDED = (*_COMPLEX, "RIGHT+DOWN", "RIGHT+DOWN+B", "DOWN+A", "A+B", "B")

ACTION_SETS: dict[str, tuple[str, ...]] = {
    "right": _RIGHT,
    "simple": _SIMPLE,
    "complex": _COMPLEX,
    "extended": _EXTENDED,
}
"""The combinations of each set, in the order of the action numbers."""


def parse_buttons(text: str, where: str = "buttons") -> int:
    """Return the pad byte of a combination such as `RIGHT+B`; raise a ConfigError for anything else."""
    words = [word.strip().upper() for word in text.split("+")]
    if words == [NOOP]:
        return 0
    pad = 0
    for word in words:
        if word not in BUTTONS:
            known = (NOOP, *BUTTONS)
            raise ConfigError(
                f"{where}: '{word or text}' is not a button.{nearest(word, known)} "
                f"Allowed: {', '.join(BUTTONS)} joined by '+', or {NOOP} alone."
            )
        bit = 1 << BUTTONS.index(word)
        if pad & bit:
            raise ConfigError(f"{where}: '{text}' names {word} twice. Name each button once.")
        pad |= bit
    return pad


def name_buttons(pad: int) -> str:
    """Return the combination of a pad byte, directions first: what `parse_buttons` reads."""
    order = ("RIGHT", "LEFT", "UP", "DOWN", "A", "B", "START", "SELECT")
    held = [name for name in order if pad >> BUTTONS.index(name) & 1]
    return "+".join(held) or NOOP


def pads_of(name: str) -> npt.NDArray[np.uint8]:
    """Return the pad bytes `[A]` of an action set."""
    if name not in ACTION_SETS:
        raise ConfigError(
            f"mario option 'actions' is '{name}'.{nearest(name, ACTION_SETS)} "
            f"Allowed: {', '.join(ACTION_SETS)}."
        )
    return np.array([parse_buttons(combo) for combo in ACTION_SETS[name]], np.uint8)


def forward_action(name: str) -> int:
    """Return the number of the action of a set that runs to the right: RIGHT+B, found by its buttons."""
    return int(np.flatnonzero(pads_of(name) == parse_buttons("RIGHT+B"))[0])
