"""Frozen players on the slots of one role: who plays where, and what each of them remembers of its episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.records import F32, Array, Bools, Episode
from holdfast.selfplay.lineups import Lineups
from holdfast.selfplay.tremble import Tremble

Slots = npt.NDArray[np.int64]
NOBODY = -1


class Visitors:
    """Places for frozen players, one a slot; `who` says which player has a place, or NOBODY."""

    def __init__(
        self, slots: Slots, who: int = NOBODY, tremble: tuple[float, float] = (0.0, 1.0)
    ) -> None:
        """Give every place to one player, or to nobody; all begin an episode.

        `tremble` is the share of steps in which they hold a random action, and for how many steps.
        """
        self.slots = slots
        self.who: Slots = np.full(len(slots), who, np.int64)
        self.memory: F32 = np.zeros((len(slots), 0), np.float32)
        self.begun: Bools = np.ones(len(slots), np.bool_)
        self.tremble = Tremble(len(slots), *tremble) if tremble[0] > 0 else None

    @property
    def players(self) -> set[int]:
        """Those who have a place."""
        return set(self.who[self.who != NOBODY].tolist())

    @property
    def taken(self) -> Slots:
        """Slots that somebody plays."""
        found: Slots = self.slots[self.who != NOBODY]
        return found

    def act(
        self, obs: Array, ids: Sequence[int], lineups: Lineups, rng: np.random.Generator
    ) -> Array:
        """Return the actions for the rows of `taken`; `lineups` are the players `ids`, in rising order."""
        at = np.flatnonzero(self.who != NOBODY)
        missing = lineups.memory_floats - self.memory.shape[1]
        if missing > 0:
            self.memory = np.pad(self.memory, ((0, 0), (0, missing)))
        memory = self.memory[at]
        who = np.searchsorted(np.asarray(ids), self.who[at])
        actions = lineups.act(obs, who, memory, self.begun[at], rng)
        self.memory[at] = memory
        if self.tremble is not None:
            self.tremble.shake(actions, at, self.begun[at], lineups.draw, rng)
        self.begun[at] = False
        return actions

    def ended(self, episodes: Sequence[Episode], stride: int) -> dict[int, Episode]:
        """Begin new episodes where these ended; return them by place. A game has `stride` slots."""
        places = {int(slot) // stride: i for i, slot in enumerate(self.slots)}
        found = {places[one.game]: one for one in episodes if one.game in places}
        self.begun[list(found)] = True
        return found

    def memories(self) -> dict[str, Any]:
        """Return what the players remember, where an episode begins, and whose hands tremble."""
        found = {"memory": self.memory.copy(), "begun": self.begun.copy()}
        return found if self.tremble is None else {**found, "tremble": self.tremble.state_dict()}

    def remember(self, memories: Mapping[str, Any] | None) -> None:
        """Remember what `memories` returned; with None, new episodes begin in all places."""
        self.begun[:] = True
        if memories is not None:
            self.begun[:] = memories["begun"]
            self.memory = np.array(memories["memory"], np.float32)
            if self.tremble is not None and "tremble" in memories:
                self.tremble.load_state_dict(memories["tremble"])
