"""One game of pursuit as a PettingZoo parallel environment (extra `multi`).

env = PursuitParallelEnv(n_obstacles=3, n_obstacle_obs=3)
observations, infos = env.reset(seed=1)
"""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from pettingzoo import ParallelEnv

from holdfast.records import Array
from holdfast.worlds.pursuit.layout import ROLES
from holdfast.worlds.pursuit.world import PursuitWorld


class PursuitParallelEnv(ParallelEnv):  # type: ignore[misc, unused-ignore]
    """A single game; the agents are `pursuer` and `evader`, each with its own speed bound."""

    metadata: ClassVar[dict[str, Any]] = {
        "name": "holdfast_pursuit_v0",
        "render_modes": ["rgb_array"],
        "is_parallelizable": True,
    }

    def __init__(self, render_mode: str | None = None, **options: Any) -> None:
        """Make a game with the options of `PursuitOptions` (one game)."""
        self.world = PursuitWorld(**{**options, "games": 1})
        self.render_mode = render_mode
        self.possible_agents = list(ROLES)
        self.agents: list[str] = []
        space = self.world.single_observation_space
        self.observation_spaces = {role: _copy_space(space) for role in ROLES}
        self.action_spaces = {role: self._own_action_space(role) for role in ROLES}
        self._trace: Any = None
        """What pictures show: the episode so far."""

    def _own_action_space(self, role: str) -> gym.spaces.Box:
        """Return the role's own limits, which may be below the shared bounds of the world."""
        options, me = self.world.options, ROLES.index(role)
        speed = (options.pursuer_v_max, options.evader_v_max)[me]
        turn = options.turn_limits[me]
        if options.unit_actions:
            speed, turn = 1.0, 1.0
        first = 1 if options.fixed_speed else 0
        low, high = [0.0, -turn][first:], [speed, turn][first:]
        return gym.spaces.Box(np.array(low, np.float32), np.array(high, np.float32))

    def observation_space(self, agent: str) -> gym.Space[Any]:
        """Return the observation space of one agent, always the same object."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> gym.Space[Any]:
        """Return the action space of one agent, always the same object."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, dict[str, Any]]]:
        """Begin a new episode and return observations and infos by agent."""
        obs, _ = self.world.reset(seed=seed)
        self.agents = list(ROLES)
        if self.render_mode is not None:
            from holdfast.worlds.pursuit.draw import Trace

            self._trace = Trace.begin(self.world, 0)
        return self._by_role(obs), {role: {} for role in ROLES}

    def step(
        self, actions: dict[str, Array]
    ) -> tuple[
        dict[str, Array],
        dict[str, float],
        dict[str, bool],
        dict[str, bool],
        dict[str, dict[str, Any]],
    ]:
        """Step once; at the end of the game `agents` is empty and the infos hold the episode's facts."""
        if not self.agents:
            return {}, {}, {}, {}, {}
        rows = np.stack([np.asarray(actions[role], np.float32) for role in ROLES])
        obs, rewards, terminations, truncations, info = self.world.step(rows)
        infos: dict[str, dict[str, Any]] = {role: {} for role in ROLES}
        if "episodes" in info:
            # The world has begun its next episode; here the last observation is due.
            obs = info["final_obs"]
            infos = {role: {"episode": dict(info["episodes"][0].facts)} for role in ROLES}
            self.agents = []
        if self._trace is not None:
            self._trace.follow(self.world, 0, info["episodes"][0] if "episodes" in info else None)
        return (
            self._by_role(obs),
            {role: float(rewards[me]) for me, role in enumerate(ROLES)},
            {role: bool(terminations[me]) for me, role in enumerate(ROLES)},
            {role: bool(truncations[me]) for me, role in enumerate(ROLES)},
            infos,
        )

    def state(self) -> Array:
        """Return poses and last actions of both agents, `[10]`; after the end of a game those of its last moment."""
        record = (self.world.records if self.agents else self.world.finished)[0]
        return np.concatenate([record["pose"].ravel(), record["last_action"].ravel()]).astype(
            np.float32
        )

    def render(self) -> Array | None:
        """Return the episode so far as an RGB image `[H, W, 3]`; None without a `render_mode`, and before a reset."""
        if self._trace is None:
            return None
        from holdfast.worlds.pursuit.draw import render_frame

        return render_frame([self._trace])

    def close(self) -> None:
        """Let the world go."""
        self.world.close()

    def _by_role(self, rows: Array) -> dict[str, Array]:
        return {role: rows[me].copy() for me, role in enumerate(ROLES)}


def _copy_space(space: gym.Space[Any]) -> gym.spaces.Box:
    assert isinstance(space, gym.spaces.Box)
    return gym.spaces.Box(space.low, space.high, dtype=np.float32)
