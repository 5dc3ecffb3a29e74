"""Consistent pairs: what all learners were at the same moment, to go back to together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.learn.learner import Learner

PLAYS = ("parameters", "norm", "reward_norm")
"""Parts of a learner's state that are kept; the optimiser goes on as it is."""


class Pairs:
    """The newest pairs, and all milestones."""

    def __init__(self, capacity: int) -> None:
        """Hold up to `capacity` pairs; milestones do not count and are never dropped."""
        self.capacity = capacity
        self.kept: list[dict[str, Any]] = []

    def keep(
        self,
        label: str,
        update: int,
        learners: Mapping[str, Learner],
        milestone: bool,
        score: float,
    ) -> None:
        """Keep what the learners are now; beyond the capacity the oldest that is no milestone leaves."""
        states = {}
        for role, learner in learners.items():
            whole = learner.state_dict()
            states[role] = {name: whole[name] for name in PLAYS}
        self.kept.append(
            {
                "label": label,
                "update": update,
                "milestone": milestone,
                "score": score,
                "states": states,
            }
        )
        rolling = [i for i, pair in enumerate(self.kept) if not pair["milestone"]]
        if len(rolling) > self.capacity:
            self.kept.pop(rolling[0])

    def restore(self, label: str, learners: Mapping[str, Learner], roles: Sequence[str]) -> int:
        """Put these roles back to what they were; return the update of the pair."""
        pair = next(pair for pair in reversed(self.kept) if pair["label"] == label)
        for role in roles:
            learner, state = learners[role], pair["states"][role]
            learner.load_parameters(state["parameters"])
            if learner.norm is not None:
                learner.norm.load_state_dict(state["norm"])
            if learner.reward_norm is not None:
                learner.reward_norm.load_state_dict(state["reward_norm"])
        return int(pair["update"])

    def list(self) -> list[dict[str, Any]]:
        """Return label, update, score and kind of every pair that is held."""
        return [{k: v for k, v in pair.items() if k != "states"} for pair in self.kept]

    def state_dict(self) -> dict[str, Any]:
        """Return all pairs."""
        return {"kept": self.kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Hold the pairs of `state`."""
        self.kept = list(state["kept"])
