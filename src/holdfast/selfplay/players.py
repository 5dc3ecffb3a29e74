"""Players of one role for a whole batch of games: a script, a policy, or a policy made fast.

A frozen policy that plays thousands of games needs neither its critic nor its log-probabilities:
`prepare` packs its actor alone into the compiled network of the fused learner.
"""

from __future__ import annotations

import numpy as np

from holdfast.learn.learner import FUSED_WIDTH
from holdfast.learn.policy import Policy, to_box
from holdfast.learn.roles import Player
from holdfast.learn.spec import NetSpec
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


class FastPlayer:
    """The actor of a plain policy in compiled code; the same actions as `Policy.act` up to rounding."""

    def __init__(self, policy: Policy) -> None:
        from holdfast.learn.fused import FusedNet

        spec = policy.spec
        self.spec, self.norm = spec, policy.norm
        # One trunk for both heads: the value costs one column of the last layer instead of a network.
        self._net = FusedNet(NetSpec.from_state({**spec.state(), "shared": True}))
        for name, view in self._net.views(self._net.theta).items():
            source = name if spec.shared else name.replace("trunk.", "pi.")
            if not name.startswith("vf_out."):
                view[...] = policy.parameters[source]
        self._net.pack()

    def play(self, world: PursuitWorld, obs: Array, rng: Draws, begun: Bools) -> Array:
        """Return the best actions, or sampled ones."""
        from holdfast.learn.fused_act import BEST, SAMPLE

        spec, n = self.spec, len(obs)
        rows = obs if self.norm is None else self.norm.apply(obs)
        noise = np.zeros((n, spec.noise_size), np.float32)
        if rng is not None and spec.action == "gaussian":
            rng.standard_normal(dtype=np.float32, out=noise)
        elif rng is not None:
            rng.random(dtype=np.float32, out=noise)
        actions = np.empty((n, *spec.action_shape), spec.action_dtype)
        unused = np.empty(n, np.float32)
        mode = BEST if rng is None else SAMPLE
        self._net.act(np.ascontiguousarray(rows), noise, actions, unused, unused, mode)
        return to_box(spec, actions) if spec.action == "gaussian" else actions


Ready = ScriptPlayer | ActingPlayer | FastPlayer
"""A side that is ready to play."""


def prepare(side: Side | Ready) -> Ready:
    """Return the side ready to play; one that is ready is returned as it is."""
    if isinstance(side, ScriptPlayer | ActingPlayer | FastPlayer):
        return side
    if isinstance(side, Scripted):
        return ScriptPlayer(side)
    if isinstance(side, Policy) and side.spec.plain and widest(side.spec) <= FUSED_WIDTH:
        return FastPlayer(side)
    return ActingPlayer(side)


def widest(spec: NetSpec) -> int:
    """Return the width of the widest hidden layer."""
    return max(spec.hidden, default=0)
