"""Collecting a rollout: the world writes into the rows that the learner reads."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from holdfast.learn.learner import Learner
from holdfast.records import Episode, Rollout
from holdfast.worlds.contract import World


class Collector:
    """Plays one learner in all slots of a world."""

    def __init__(self, world: World, learner: Learner) -> None:
        self.world, self.learner = world, learner
        self.rollout: Rollout = learner.new_rollout(world.num_envs)
        self.world_s = 0.0
        self.policy_s = 0.0
        self._obs, self._mask = world.observe()

    def state_dict(self) -> dict[str, Any]:
        """Return what the next actions answer."""
        return {"obs": self._obs, "mask": self._mask}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from these observations; a world that cannot be restored has begun new episodes."""
        if self.world.saves_state:
            self._obs, self._mask = state["obs"], state["mask"]
        else:
            self._obs, self._mask = self.world.observe()

    def collect(self) -> list[Episode]:
        """Fill the rollout and return the games that ended meanwhile."""
        rollout, world, learner = self.rollout, self.world, self.learner
        flat = (rollout.slots, -1)
        rollout.obs[0] = self._obs.reshape(flat)
        rollout.mask[0] = self._mask
        shape = rollout.obs.shape[:2] + (world.single_observation_space.shape or ())
        rows = rollout.obs.reshape(shape)
        episodes: list[Episode] = []
        self.world_s = self.policy_s = 0.0
        clock = time.perf_counter
        learner.begin(rollout)
        for t in range(rollout.steps):
            began = clock()
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
            stepped = clock()
            if "final_obs" in info:
                cut = np.flatnonzero(rollout.truncations[t])
                if len(cut):
                    last = info["final_obs"][cut].reshape(len(cut), -1)
                    rollout.final_values[t, cut] = learner.values_of(last)
                episodes += info["episodes"]
            self.policy_s += acted - began
            self.world_s += stepped - acted
        self._obs = rollout.obs[-1].copy()
        self._mask = rollout.mask[-1].copy()
        return episodes
