"""Players of one role for a whole batch of games: a script, or anything that acts on observations."""

from __future__ import annotations

import numpy as np

from holdfast.learn.policy import Policy
from holdfast.learn.roles import Player
from holdfast.records import Array, Bools
from holdfast.worlds.pursuit import PursuitWorld
from holdfast.worlds.pursuit.policies import Scripted

Draws = np.random.Generator | None
"""Where sampled actions come from; None takes the best ones."""
Side = Scripted | Player
"""What can be asked to play a role: a script, a `Policy`, or anything with its `act(obs, rng)`."""


class ScriptPlayer:
    """A script: it reads the true state and draws nothing from `rng`.

    `play` of every player returns the actions `[G, A]` of its role; `obs [G, D]` are that role's rows, and
    `begun [G]` is True where they are the first of an episode.
    """

    def __init__(self, script: Scripted) -> None:
        self.script = script

    def play(self, world: PursuitWorld, obs: Array, rng: Draws, begun: Bools) -> Array:
        """Return the script's actions."""
        return self.script.act(world)


class ActingPlayer:
    """Anything with `act(obs, rng)`, as it is; a policy that remembers is told where episodes begin."""

    def __init__(self, actor: Player) -> None:
        self.actor = actor

    def play(self, world: PursuitWorld, obs: Array, rng: Draws, begun: Bools) -> Array:
        """Return what the actor does."""
        if isinstance(self.actor, Policy):
            return self.actor.act(obs, rng, begun)
        return self.actor.act(obs, rng)


Ready = ScriptPlayer | ActingPlayer
"""A side that is ready to play."""


def prepare(side: Side | Ready) -> Ready:
    """Return the side ready to play; one that is ready is returned as it is."""
    if isinstance(side, ScriptPlayer | ActingPlayer):
        return side
    if isinstance(side, Scripted):
        return ScriptPlayer(side)
    return ActingPlayer(side)
