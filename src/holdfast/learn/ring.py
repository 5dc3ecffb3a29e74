"""The memory of soft actor-critic: single transitions, the newest over the oldest, drawn evenly.

    ring = Ring(capacity, max_gb, save)
    ring.push(rollout, cuts)              # every rollout
    batch = ring.take(rng.integers(ring.size, size=256))

A transition of an episode that was cut is followed by the last observation of that episode, not by the first of the next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.errors import StorageError
from holdfast.learn.replay import fitting
from holdfast.records import F32, Array, Bools, Rollout


@dataclass(frozen=True)
class Cut:
    """Episodes that were cut in step `t` of a rollout, and what was seen last in each."""

    t: int
    slots: Array
    obs: F32
    """`[len(slots), D]`."""


@dataclass(frozen=True)
class Transitions:
    """What was seen and done, what it brought, and what followed."""

    obs: F32
    actions: F32
    rewards: F32
    next_obs: F32
    ended: Bools
    """Nothing follows."""


class Ring:
    """Transitions in arrays that are made by the first push, from the shapes of its rollout."""

    def __init__(self, capacity: int, max_gb: float, save: bool = True) -> None:
        self.capacity, self.max_gb, self.save = capacity, max_gb, save
        self.pushed = 0
        """Transitions that were ever pushed."""
        self._stores: dict[str, Array] = {}

    @property
    def size(self) -> int:
        """Transitions that can be drawn."""
        return min(self.pushed, self.room)

    @property
    def room(self) -> int:
        """Transitions that fit; 0 before the first push."""
        return len(self._stores["rewards"]) if self._stores else 0

    def push(self, rollout: Rollout, cuts: list[Cut]) -> None:
        """Keep every decision of a rollout whose observations, rewards and actions are as the world knows them."""
        following = rollout.obs[1:].reshape(rollout.steps, rollout.slots, -1).copy()
        for cut in cuts:
            following[cut.t, cut.slots] = cut.obs
        mask = rollout.mask[:-1]
        rows = {
            "obs": rollout.obs[:-1].reshape(following.shape)[mask],
            "actions": rollout.actions[mask],
            "rewards": rollout.rewards[mask].astype(np.float32),
            "next_obs": following[mask],
            "ended": rollout.terminations[mask],
        }
        if not self._stores:
            self._make(rows)
        count, room = len(rows["rewards"]), self.room
        newest = np.arange(max(count - room, 0), count)
        places = (self.pushed + newest) % room
        for name, store in self._stores.items():
            store[places] = rows[name][newest]
        self.pushed += count

    def take(self, index: Array) -> Transitions:
        """Return copies of these transitions."""
        return Transitions(**{name: store[index] for name, store in self._stores.items()})

    def bytes_after(self, steps: int) -> int:
        """Return how much a checkpoint holds of it after so many steps; what they are like the first push has shown."""
        if not self.save or not self._stores:
            return 0
        return min(steps, self.room) * sum(
            store.itemsize * math.prod(store.shape[1:]) for store in self._stores.values()
        )

    def state_dict(self) -> dict[str, Any]:
        """Return everything; arrays are views of what is filled, to be written before the next push."""
        if not self.save or not self._stores:
            return {"pushed": 0, "room": 0, "stores": None}
        stores = {name: store[: self.size] for name, store in self._stores.items()}
        return {"pushed": self.pushed, "room": self.room, "stores": stores}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become the memory that returned `state`."""
        self.pushed, self._stores = int(state["pushed"]), {}
        if state["stores"] is None:
            return
        self._make(state["stores"])
        if self.room != int(state["room"]):
            raise StorageError(
                f"The memory of the checkpoint has room for {state['room']} transitions, this one for {self.room}. "
                "Resume with the sac.capacity and sac.max_gb that it was made with."
            )
        for name, store in self._stores.items():
            store[: self.size] = state["stores"][name]

    def _make(self, rows: dict[str, Array]) -> None:
        """Make room for as many transitions like these as are wanted and fit."""
        each = sum(row.dtype.itemsize * int(np.prod(row.shape[1:])) for row in rows.values())
        room = max(fitting(self.capacity, each, self.max_gb), 1)
        self._stores = {k: np.zeros((room, *row.shape[1:]), row.dtype) for k, row in rows.items()}
