"""What goes on from one rollout to the next: the last frames, where episodes began, and the memory of every slot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.records import F32, Array, Bools, Rollout


@dataclass
class Carry:
    """The rows that stand before the first step of a rollout."""

    frames: Array
    """`[H, N, D]`."""
    begun: Bools
    """`[H+1, N]`: of these rows and of the first step's."""
    memory: F32
    """`[N, M]`."""

    @classmethod
    def fresh(cls, rollout: Rollout) -> Carry:
        """Return what stands before a rollout with which all episodes begin."""
        return cls(
            frames=np.zeros_like(rollout.frames[: rollout.history]),
            begun=np.ones((rollout.history + 1, rollout.slots), np.bool_),
            memory=np.zeros_like(rollout.memory[0]),
        )

    @classmethod
    def after(cls, rollout: Rollout) -> Carry:
        """Return what stands before the rollout that follows this one, which is complete."""
        mark_begun(rollout, rollout.steps)
        rows = slice(rollout.steps, rollout.steps + rollout.history)
        return cls(
            frames=rollout.frames[rows].copy(),
            begun=rollout.begun[rollout.steps :].copy(),
            memory=rollout.memory[1].copy(),
        )

    def into(self, rollout: Rollout) -> None:
        """Write the rows before a rollout, and forget what it held of episodes."""
        rollout.frames[: rollout.history] = self.frames
        rollout.begun[: rollout.history + 1] = self.begun
        rollout.begun[rollout.history + 1 :] = False
        rollout.memory[0] = self.memory

    def fits(self, rollout: Rollout) -> bool:
        """Whether it has the slots of this rollout."""
        return bool(self.begun.shape[1] == rollout.slots)

    def state_dict(self) -> dict[str, Any]:
        """Return the three arrays."""
        return {"frames": self.frames, "begun": self.begun, "memory": self.memory}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Carry:
        """Return what `state_dict` described."""
        return cls(state["frames"].copy(), state["begun"].copy(), state["memory"].copy())


def mark_begun(rollout: Rollout, t: int) -> None:
    """Mark row t as the first of an episode where step t-1 ended one."""
    if t > 0:
        row = rollout.begun[rollout.history + t]
        row |= rollout.terminations[t - 1] | rollout.truncations[t - 1]
