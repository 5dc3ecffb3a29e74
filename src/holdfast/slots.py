"""How many slots learners play in the world of a phase: what a number of env steps is counted in."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

from holdfast.config import Config
from holdfast.selfplay.cast import learned_slots
from holdfast.worlds import make_world
from holdfast.worlds.contract import World


class LearningSlots:
    """The slots that learn, by the options of the world."""

    def __init__(self, config: Config, world: World | None = None, options: Any = None) -> None:
        """Take a world of `options` that is there already."""
        self._config = config
        self._known = [] if world is None else [(replace(options, games=1), world.game_roles)]

    def __call__(self, options: Any) -> int:
        """Return how many there are; a world of one game is made to see, once for all that differ in nothing else."""
        one, games = replace(options, games=1), int(options.games)
        roles = next((roles for known, roles in self._known if known == one), None)
        if roles is None:
            with contextlib.closing(make_world(self._config.world.name, one)) as world:
                roles = world.game_roles
            self._known.append((one, roles))
        return learned_slots(self._config.selfplay, roles, games)
