"""Hands that tremble: now and then a frozen player holds one random action for a while.

Learners that only meet each other, and what they were, see few of the states that an opponent could lead them to. A past
opponent that slips and then goes on as it would shows them more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.records import Array, Bools

Places = npt.NDArray[np.int64]
Draw = Callable[[int, np.random.Generator], Array]
"""Returns so many random actions."""


class Tremble:
    """Which places slip, and what they hold."""

    def __init__(self, places: int, share: float, steps: float) -> None:
        """Slip in this share of the steps, for `steps` steps in the mean; all begin with a steady hand."""
        self._begins = min(1.0, share / ((1.0 - share) * steps))
        self._ends = 1.0 / steps
        self.slips: Bools = np.zeros(places, np.bool_)
        self.held: Array | None = None
        """`[places, ...]` actions; None before anybody slipped."""

    def shake(
        self, actions: Array, at: Places, begun: Bools, draw: Draw, rng: np.random.Generator
    ) -> None:
        """Replace the actions of those places `at` that slip; episodes that have `begun` do so with a steady hand."""
        before = self.slips[at] & ~begun
        chance = rng.random(len(at))
        now = np.where(before, chance >= self._ends, ~begun & (chance < self._begins))
        if self.held is None:
            self.held = np.zeros((len(self.slips), *actions.shape[1:]), actions.dtype)
        new = at[now & ~before]
        self.held[new] = draw(len(new), rng)
        self.slips[at] = now
        actions[now] = self.held[at[now]]

    def state_dict(self) -> dict[str, Any]:
        """Return who slips and what they hold."""
        held = None if self.held is None else self.held.copy()
        return {"slips": self.slips.copy(), "held": held}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on slipping."""
        self.slips[:] = state["slips"]
        self.held = None if state["held"] is None else np.array(state["held"])
