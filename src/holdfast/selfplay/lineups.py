"""Frozen policies of any shapes that play one role together: those of one shape form a group.

    players = Lineups(states)
    actions = players.act(obs, who, memory, begun, rng)     # row r is answered by policy who[r]

Plain MLPs of one shape are evaluated in one call (`lineup.py`). Of others, each takes one batched pass of its
network; what it remembers of a row is held by whoever asks, so that a seat has one memory, whoever sits there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.errors import ConfigError
from holdfast.learn.policy import random_actions
from holdfast.learn.restore import policy_of
from holdfast.learn.spec import NetSpec, action_fields
from holdfast.records import F32, Array, Bools
from holdfast.selfplay.lineup import Lineup
from holdfast.worlds.contract import World

Who = npt.NDArray[np.int64]
Draws = np.random.Generator | None


class NetLineup:
    """Policies with memory, an encoder or pictures, all of one shape."""

    def __init__(self, members: Sequence[Mapping[str, Any]]) -> None:
        """Make the network of each member."""
        from holdfast.learn.net_policy import NetPolicy

        self.policies = []
        for member in members:
            policy = policy_of(member)
            assert isinstance(policy, NetPolicy)
            self.policies.append(policy)
        self.spec = self.policies[0].spec

    def act(self, obs: Array, who: Who, memory: F32, begun: Bools, rng: Draws = None) -> Array:
        """Return one action a row, and carry `memory [n, M]` on in place."""
        found: Array | None = None
        with one_thread():
            for k in np.unique(who):
                rows = np.flatnonzero(who == k)
                actions, memory[rows] = self.policies[k].answer(
                    obs[rows], memory[rows], begun[rows], rng
                )
                if found is None:
                    found = np.empty((len(who), *actions.shape[1:]), actions.dtype)
                found[rows] = actions
        assert found is not None
        return found


class Lineups:
    """Frozen policies, grouped by their shape."""

    def __init__(self, members: Sequence[Mapping[str, Any]]) -> None:
        """Take the members' `spec`, `parameters` and `norm` states."""
        specs = [NetSpec.from_state(dict(member["spec"])) for member in members]
        kinds = list(dict.fromkeys(specs))
        self._group = np.array([kinds.index(spec) for spec in specs], np.int64)
        self._place = np.zeros(len(specs), np.int64)
        self._lineups: list[Lineup | NetLineup] = []
        self._spec = specs[0]
        for k, spec in enumerate(kinds):
            of_kind = np.flatnonzero(self._group == k)
            self._place[of_kind] = np.arange(len(of_kind))
            own = [members[int(i)] for i in of_kind]
            self._lineups.append(Lineup(own) if spec.plain else NetLineup(own))
        self.memory_floats = max(spec.memory_floats for spec in specs)
        """Numbers that a row carries from step to step, at most."""

    def act(self, obs: Array, who: Who, memory: F32, begun: Bools, rng: Draws = None) -> Array:
        """Return one action a row; sampled when `rng` is given.

        `memory [n, memory_floats or more]` is carried on in place, and begins empty where `begun [n]` is True.
        """
        memory[begun] = 0.0
        groups = self._group[who]
        if (groups == groups[:1]).all():
            return self._play(groups[0], obs, self._place[who], memory, begun, rng)
        found: Array | None = None
        for k in np.unique(groups):
            rows = np.flatnonzero(groups == k)
            carried = memory[rows]
            actions = self._play(k, obs[rows], self._place[who[rows]], carried, begun[rows], rng)
            memory[rows] = carried
            if found is None:
                found = np.empty((len(who), *actions.shape[1:]), actions.dtype)
            found[rows] = actions
        assert found is not None
        return found

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """Return random actions of the world that all of them play."""
        return random_actions(self._spec, count, rng)

    def _play(
        self, group: int, obs: Array, who: Who, memory: F32, begun: Bools, rng: Draws
    ) -> Array:
        lineup = self._lineups[group]
        if isinstance(lineup, Lineup):
            return lineup.act(obs, who, rng)
        return lineup.act(obs, who, memory[:, : lineup.spec.memory_floats], begun, rng)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread inside: opponents play beside the learner, which wants the cores."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def check_player(role: str, state: Mapping[str, Any], world: World) -> None:
    """Refuse a frozen policy that cannot play a role of this world."""
    spec = NetSpec.from_state(dict(state["spec"]))
    size = int(np.prod(world.single_observation_space.shape or ()))
    if spec.obs_size != size:
        raise ConfigError(
            f"selfplay.{role}: that policy reads {spec.obs_size} numbers, and this world's observations have {size}. "
            "Give the world the options that it was trained with (holdfast runs shows them), or take another run."
        )
    theirs = action_fields(world.single_action_space)
    numbers = "nvec" not in theirs
    wanted = (theirs["action_size"],) if numbers else theirs["nvec"]
    given = (spec.action_size,) if spec.continuous else spec.nvec
    if (spec.continuous, given) != (numbers, wanted):
        names = {True: "numbers", False: "choices"}
        raise ConfigError(
            f"selfplay.{role}: that policy answers with {_words(given)} {names[spec.continuous]}, and this world's actions "
            f"have {_words(wanted)} {names[numbers]}. Give the world the options that it was trained with "
            "(holdfast runs shows them; in pursuit fixed_speed), or take another run."
        )
    if spec.stack > 1:
        raise ConfigError(
            f"selfplay.{role}: that policy reads stacks of {spec.stack} frames, which no opponent keeps. "
            "Allowed: policies that read one observation at a time, with or without memory."
        )


def _words(sizes: tuple[int, ...]) -> str:
    return " x ".join(map(str, sizes))
