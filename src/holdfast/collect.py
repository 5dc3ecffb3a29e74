"""Collecting rollouts: who plays which slots, and the rows that the learners read.

A *seat* is a learner and the slots that it plays and learns from. With one seat for all slots the world
writes straight into the rollout that the learner reads; with several (pursuer and evader) each seat gets its
own rollout. Slots of no seat are played by `others`: frozen opponents, which may change only between
episodes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from holdfast.learn.learner import Learner
from holdfast.records import Array, Bools, Episode, Rollout
from holdfast.worlds.contract import World

Slots = npt.NDArray[np.int64]


class Others(Protocol):
    """Players of the slots that nobody learns from."""

    slots: Slots

    def act(self, world: World, obs: Array) -> Array:
        """Return the world's actions for the rows of `slots`."""
        ...

    def overrule(self, world: World, obs: Array, actions: Array) -> None:
        """Replace the actions of learners for whom somebody else plays."""
        ...

    def hide(self, mask: Bools) -> None:
        """Leave slots of learners out of learning that somebody else plays."""
        ...

    def ended(self, episodes: Sequence[Episode]) -> None:
        """These episodes are over: others may play in their games from now on."""
        ...


@dataclass
class Seat:
    """A learner and the slots that it plays."""

    learner: Learner
    slots: Slots
    rollout: Rollout = field(init=False)

    def __post_init__(self) -> None:
        self.rollout = self.learner.new_rollout(len(self.slots))


class Collector:
    """Plays all slots of a world for the length of a rollout."""

    def __init__(self, world: World, seats: Sequence[Seat], others: Others | None = None) -> None:
        self.world, self.seats, self.others = world, list(seats), others
        self.world_s = 0.0
        self.policy_s = 0.0
        self._obs, self._mask = world.observe()
        played = np.concatenate([seat.slots for seat in seats] + ([others.slots] if others else []))
        if not np.array_equal(np.sort(played), np.arange(world.num_envs)):
            raise ValueError("every slot must be played exactly once")
        if len({seat.rollout.steps for seat in self.seats}) != 1:
            raise ValueError("all seats must collect the same number of steps")
        self._whole = len(self.seats) == 1 and others is None
        self._taught = [seat for seat in self.seats if seat.rollout.truth.size]

    @property
    def steps(self) -> int:
        """Steps of one rollout."""
        return self.seats[0].rollout.steps

    def state_dict(self) -> dict[str, Any]:
        """Return what the next actions answer."""
        return {"obs": self._obs, "mask": self._mask}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from these observations; a world that cannot be restored has begun new episodes."""
        if self.world.saves_state:
            self._obs, self._mask = state["obs"], state["mask"]
        else:
            self._obs, self._mask = self.world.observe()
            for seat in self.seats:
                seat.learner.restart()

    def collect(self) -> list[Episode]:
        """Fill the rollouts and return the games that ended meanwhile."""
        self.begin()
        return self.play()

    def begin(self) -> None:
        """Draw all that is random in the coming rollout, and fix the weights that play it."""
        for seat in self.seats:
            seat.learner.begin(seat.rollout)

    def play(self) -> list[Episode]:
        """Fill the rollouts that were begun and return the games that ended meanwhile."""
        self.world_s = self.policy_s = 0.0
        return self._collect_whole() if self._whole else self._collect_seats()

    def _collect_whole(self) -> list[Episode]:
        """One seat plays every slot: the world writes into its rollout."""
        seat, world = self.seats[0], self.world
        rollout, learner = seat.rollout, seat.learner
        rollout.obs[0] = self._obs.reshape(rollout.obs[0].shape)
        rollout.mask[0] = self._mask
        rows = rollout.obs.reshape(
            rollout.obs.shape[:2] + (world.single_observation_space.shape or ())
        )
        episodes: list[Episode] = []
        clock = time.perf_counter
        for t in range(rollout.steps):
            began = clock()
            if self._taught:
                self._tell(t)
            actions = learner.act(rollout, t)
            acted = clock()
            info = world.step_into(
                actions,
                rows[t + 1],
                rollout.rewards[t],
                rollout.terminations[t],
                rollout.truncations[t],
                rollout.mask[t + 1],
            )
            self.world_s += clock() - acted
            if "final_obs" in info:
                learner.end(rollout, t, self._over(info["episodes"]), info["final_obs"])
                episodes += info["episodes"]
            self.policy_s += acted - began
        self._obs = rows[-1].copy()
        self._mask = rollout.mask[-1].copy()
        return episodes

    def _collect_seats(self) -> list[Episode]:
        """Several players: rows are gathered for each seat and scattered back as actions."""
        world, others = self.world, self.others
        n = world.num_envs
        space = world.single_action_space
        actions = np.zeros((n, *(space.shape or ())), space.dtype)
        obs, mask = self._obs.copy(), self._mask.copy()
        rewards = np.zeros(n)
        terminations, truncations = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
        episodes: list[Episode] = []
        clock = time.perf_counter
        for seat in self.seats:
            self._see(seat, 0, obs, mask)
        for t in range(self.steps):
            began = clock()
            if self._taught:
                self._tell(t)
            for seat in self.seats:
                actions[seat.slots] = seat.learner.act(seat.rollout, t)
            if others is not None:
                if len(others.slots):
                    actions[others.slots] = others.act(world, obs[others.slots])
                others.overrule(world, obs, actions)
            acted = clock()
            info = world.step_into(actions, obs, rewards, terminations, truncations, mask)
            self.world_s += clock() - acted
            if others is not None:
                if "episodes" in info:
                    others.ended(info["episodes"])
                others.hide(mask)
            for seat in self.seats:
                rollout = seat.rollout
                rollout.rewards[t] = rewards[seat.slots]
                rollout.terminations[t] = terminations[seat.slots]
                rollout.truncations[t] = truncations[seat.slots]
                self._see(seat, t + 1, obs, mask)
                if "final_obs" in info:
                    over = self._over(info["episodes"])[seat.slots]
                    seat.learner.end(rollout, t, over, info["final_obs"][seat.slots])
            episodes += info.get("episodes", [])
            self.policy_s += acted - began
        self._obs, self._mask = obs, mask
        return episodes

    def _over(self, episodes: Sequence[Episode]) -> Bools:
        """Return which slots begin a new episode after these ended."""
        games = np.zeros(self.world.games, np.bool_)
        games[[episode.game for episode in episodes]] = True
        return np.repeat(games, self.world.slots_per_game)

    def _tell(self, t: int) -> None:
        """Write what the world knows of step t for the learners that are taught by it."""
        truth = self.world.truth()
        for seat in self._taught:
            seat.rollout.truth[t] = truth[seat.slots]

    def _see(self, seat: Seat, t: int, obs: Array, mask: Bools) -> None:
        seat.rollout.obs[t] = obs[seat.slots].reshape(len(seat.slots), -1)
        seat.rollout.mask[t] = mask[seat.slots]


def whole(world: World, learner: Learner) -> Collector:
    """Return the collector of one learner that plays every slot."""
    return Collector(world, [Seat(learner, np.arange(world.num_envs))])
