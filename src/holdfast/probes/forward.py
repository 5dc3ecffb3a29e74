"""Which action runs forward: every action held from the level start, and how far it came.

A new run with `guards.bootstrap.forward_probe` makes this probe first, stores the best action as
`guards.bootstrap.forward`, and writes the report to `forward.json`. All actions are held side by side, one game each,
from the same frame of the first stage; what they do before the player can steer is not measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from holdfast.errors import ConfigError
from holdfast.worlds.mario import MarioOptions, MarioWorld
from holdfast.worlds.mario.actions import ACTION_SETS
from holdfast.worlds.mario.options import parse_stages, stage_name
from holdfast.worlds.mario.script import parse_script


@dataclass(frozen=True)
class Held:
    """What came of holding one action."""

    buttons: str
    dx: int
    """Pixels from the level start to where it was at the end, or where it died."""
    steps: int
    """Steps that it was held for."""
    ended: str
    """Why the episode ended before the last step; empty if it did not."""


@dataclass(frozen=True)
class ForwardReport:
    """Every action of the set, the best first."""

    stage: str
    steps: int
    rows: tuple[Held, ...]

    @property
    def best(self) -> str:
        """The action that came furthest and lives; those that died come after; empty if none moved forward."""
        return self.rows[0].buttons if self.rows[0].dx > 0 else ""

    def record(self) -> dict[str, Any]:
        """Return the report as plain values, for a file."""
        return {**asdict(self), "rows": [asdict(row) for row in self.rows], "best": self.best}

    def __str__(self) -> str:
        lines = [f"forward probe on {self.stage}, {self.steps} steps an action"]
        for row in self.rows:
            end = f"  {row.ended} after {row.steps} steps" if row.ended else ""
            lines.append(f"  {row.buttons:<14} {row.dx:>+6} px{end}")
        return "\n".join([*lines, f"forward is {self.best or 'none: no action moved forward'}"])


def probe_forward(options: MarioOptions, steps: int) -> ForwardReport:
    """Hold every action of the set for `steps` steps on the first stage; return how far each came."""
    names = ACTION_SETS[options.actions]
    stage = stage_name(parse_stages(options.stages)[0])
    world = MarioWorld(
        replace(
            options,
            games=len(names),
            stages=stage,
            stage_schedule="fixed",
            observation="tiles",
            noops=0,
            max_steps=0,
            stagnation_steps=0,
            trail=0,
            threads=1,
        ),
        seed=0,
    )
    try:
        first = world.records()["x"]
        held: dict[int, Held] = {}
        for step in range(1, steps + 1):
            info = world.step(np.arange(len(names)))[4]
            for episode in info.get("episodes", ()):
                dx = int(episode.facts["x"] - first[episode.game])
                row = Held(names[episode.game], dx, step, episode.ended)
                held.setdefault(episode.game, row)
        last = world.records()["x"]
    finally:
        world.close()
    for game, name in enumerate(names):
        held.setdefault(game, Held(name, int(last[game] - first[game]), steps, ""))
    order = sorted(held, key=lambda game: (held[game].ended not in ("", "clear"), -held[game].dx))
    return ForwardReport(stage, steps, tuple(held[game] for game in order))


def check_scripts(world: str, scripts: Mapping[str, str]) -> None:
    """Raise a ConfigError unless the world can play every script of these settings of `guards.bootstrap`."""
    if world != "mario":
        raise ConfigError(
            f"guards.bootstrap plays scripts of buttons, which the world '{world}' has not. "
            "Leave it out, or train mario."
        )
    for key, text in scripts.items():
        try:
            parse_script(text)
        except ConfigError as error:
            raise ConfigError(f"guards.bootstrap.{key} = '{text}': {error}") from None
