"""Scripts: fixed buttons for a number of steps, such as `START:8,RIGHT+B:180`.

    script  = entry , { "," , entry }
    entry   = buttons [ ":" count ]          count 1 to 100000, 1 if left out
    buttons = "NOOP" | name { "+" name }     any order and case; START and SELECT are allowed here only

One count is one step of the world (`skip` frames). START pauses the game; when the next entry does not hold
it, the world presses it once more between two steps, so a script never leaves the game paused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from holdfast.errors import ConfigError
from holdfast.worlds.mario.actions import name_buttons, parse_buttons

LONGEST = 100_000
"""Steps that one script may have."""
EXAMPLE = "RIGHT+B:180,RIGHT+A+B:12"


@dataclass(frozen=True)
class Script:
    """What is held for how many steps."""

    entries: tuple[tuple[int, int], ...]
    """(pad byte, steps)."""

    @property
    def steps(self) -> int:
        """Length in steps of the world."""
        return sum(count for _, count in self.entries)

    def pads(self) -> npt.NDArray[np.uint8]:
        """Return the pad byte of every step, `[steps]`."""
        held = np.array([pad for pad, _ in self.entries], np.uint8)
        return np.repeat(held, [count for _, count in self.entries])

    def __str__(self) -> str:
        return ",".join(f"{name_buttons(pad)}:{count}" for pad, count in self.entries)


def parse_script(text: str) -> Script:
    """Return the script in `text`; raise a ConfigError that names the entry which is wrong."""
    if not text.strip():
        raise ConfigError(
            f"A script is empty. Allowed: entries BUTTONS:COUNT separated by commas, such as '{EXAMPLE}'."
        )
    entries = []
    for k, raw in enumerate(text.split(","), 1):
        entry = raw.strip()
        where = f"script entry {k} ('{entry}')"
        buttons, colon, count = entry.partition(":")
        if not buttons.strip():
            raise ConfigError(f"{where} names no buttons. Write it like '{EXAMPLE}'.")
        pad = parse_buttons(buttons, where)
        if colon and not re.fullmatch(r"\s*\d+\s*", count):
            raise ConfigError(
                f"{where}: '{count.strip()}' is not a number of steps. Allowed: 1 to {LONGEST}."
            )
        entries.append((pad, int(count) if colon else 1))
        if entries[-1][1] < 1:
            raise ConfigError(f"{where} lasts 0 steps. Allowed: 1 to {LONGEST}.")
    script = Script(tuple(entries))
    if script.steps > LONGEST:
        raise ConfigError(f"The script lasts {script.steps} steps. Allowed: at most {LONGEST}.")
    return script
