"""Several policies that play one world together, each its own role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from holdfast.records import Array, Bools


class Player(Protocol):
    """Anything that acts on rows of observations."""

    def act(self, obs: Array, rng: np.random.Generator | None = None) -> Array:
        """Return one action a row."""
        ...


def begin(player: Player) -> None:
    """Tell a policy with memory that new episodes begin in every row."""
    restart = getattr(player, "begin", None)
    if restart is not None:
        restart()


def act(
    player: Player, obs: Array, rng: np.random.Generator | None = None, begun: Bools | None = None
) -> Array:
    """Return one action a row; a policy with memory is told which rows begin an episode."""
    if begun is not None and hasattr(player, "begin"):
        found: Array = player.act(obs, rng, begun=begun)  # type: ignore[call-arg]
        return found
    return player.act(obs, rng)


class RolePolicies:
    """Plays every slot with the policy of its role; slots of a role without one get zeros.

    `roles` names the slots of one game; observations hold whole games.
    """

    def __init__(self, roles: Sequence[str], policies: Mapping[str, Player]) -> None:
        self.roles, self.policies = tuple(roles), dict(policies)

    def begin(self) -> None:
        """Begin new episodes in every row with the next call of `act`."""
        for policy in self.policies.values():
            begin(policy)

    def act(
        self,
        obs: Array,
        rng: np.random.Generator | None = None,
        begun: Bools | None = None,
    ) -> Array:
        """Return one action a row; `begun` are the rows whose observation is the first of an episode."""
        stride = len(self.roles)
        found: Array | None = None
        for k, role in enumerate(self.roles):
            if role not in self.policies:
                continue
            first = None if begun is None else begun[k::stride]
            actions = act(self.policies[role], obs[k::stride], rng, first)
            if found is None:
                found = np.zeros((len(obs), *actions.shape[1:]), actions.dtype)
            found[k::stride] = actions
        if found is None:
            raise ValueError("no role has a policy")
        return found
