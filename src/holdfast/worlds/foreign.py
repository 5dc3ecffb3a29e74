"""Any Gymnasium environment, or any PettingZoo parallel environment, as a world.

    holdfast train CartPole-v1
    holdfast train my_module:make_env          # a function that returns an environment

A Gymnasium environment is a game with one slot; a PettingZoo parallel environment is a game with one
slot an agent. Every value that comes in is checked: a NaN, a wrong shape or a wrong type is
reported with the game, its seed and its step. Foreign environments cannot save their state, so a resumed
run goes on from fresh episodes; the run says so once.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import gymnasium as gym
import numpy as np
from msgspec import Meta

from holdfast.errors import ConfigError, EnvironmentFault, nearest
from holdfast.records import F64, Array, Bools, Episode, Start, pack_starts, unpack_starts
from holdfast.rng import derive_seed
from holdfast.worlds.contract import State, World


@dataclass(frozen=True)
class ForeignOptions:
    """Settings of a foreign environment."""

    games: Annotated[int, Meta(ge=1, le=4096)] = 8
    """Environments that run at once."""
    max_steps: Annotated[int, Meta(ge=0)] = 0
    """Cut episodes after this many steps; 0 leaves the environment's own limit."""


class Game(Protocol):
    """One environment with one or more slots."""

    roles: tuple[str, ...]
    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]

    def reset(self, seed: int) -> list[Any]:
        """Begin an episode; return one observation a slot."""
        ...

    def step(self, actions: Array) -> tuple[list[Any], list[float], list[bool], list[bool], bool]:
        """Return observations, rewards, terminations, truncations a slot, and whether it is over."""
        ...

    def close(self) -> None:
        """Free the environment."""
        ...


class GymnasiumGame:
    """A Gymnasium environment: one slot."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        if (
            not isinstance(env.observation_space, gym.spaces.Box)
            or env.observation_space.shape == ()
        ):
            env = gym.wrappers.FlattenObservation(env)
        self.env = env
        self.roles: tuple[str, ...] = ("agent",)
        self.observation_space, self.action_space = env.observation_space, env.action_space

    def reset(self, seed: int) -> list[Any]:
        # Environments seed 32-bit generators, so the seed is folded.
        return [self.env.reset(seed=seed % 2**31)[0]]

    def step(self, actions: Array) -> tuple[list[Any], list[float], list[bool], list[bool], bool]:
        action = actions[0]
        discrete = isinstance(self.action_space, gym.spaces.Discrete)
        obs, reward, over, cut, _ = self.env.step(int(action) if discrete else action)
        return [obs], [float(reward)], [bool(over)], [bool(cut)], bool(over or cut)

    def close(self) -> None:
        self.env.close()


class ParallelGame:
    """A PettingZoo parallel environment: one slot an agent; agents that are out are masked."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.roles = tuple(env.possible_agents)
        first = self.roles[0]
        self.observation_space, self.action_space = (
            env.observation_space(first),
            env.action_space(first),
        )
        for agent in self.roles:
            same = (
                env.observation_space(agent) == self.observation_space
                and env.action_space(agent) == self.action_space
            )
            if not same:
                raise ConfigError(
                    f"The agents '{first}' and '{agent}' have different spaces. One policy plays all "
                    "slots; pad the spaces first, for example with the SuperSuit wrappers."
                )

    def reset(self, seed: int) -> list[Any]:
        obs, _ = self.env.reset(seed=seed % 2**31)
        return [obs[agent] for agent in self.roles]

    def step(self, actions: Array) -> tuple[list[Any], list[float], list[bool], list[bool], bool]:
        chosen = {a: actions[k] for k, a in enumerate(self.roles) if a in self.env.agents}
        obs, rewards, over, cut, _ = self.env.step(chosen)
        return (
            [obs.get(a) for a in self.roles],
            [float(rewards.get(a, 0.0)) for a in self.roles],
            [bool(over.get(a, False)) for a in self.roles],
            [bool(cut.get(a, False)) for a in self.roles],
            not self.env.agents,
        )

    def close(self) -> None:
        self.env.close()


def make_game(name: str) -> Callable[[], Game]:
    """Return a function that makes one game of a Gymnasium id or of `module:function`."""
    if ":" in name and name not in gym.registry:
        return _from_function(name)
    if name not in gym.registry:
        raise ConfigError(
            f"'{name}' is neither a world of Holdfast (shoal, pursuit) nor a registered Gymnasium id nor "
            f"'module:function'.{nearest(name, gym.registry)} "
            "Type for example: holdfast train CartPole-v1"
        )

    def make() -> Game:
        try:
            return GymnasiumGame(gym.make(name))
        except gym.error.DependencyNotInstalled as error:
            raise ConfigError(f"{name} needs a package that is not installed: {error}") from None

    return make


def _from_function(name: str) -> Callable[[], Game]:
    module_name, _, function_name = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"The module '{module_name}' of '{name}' cannot be imported: {error}. "
            f"It is searched in {here} and among the installed packages."
        ) from None
    function = getattr(module, function_name, None)
    if not callable(function):
        have = [n for n in vars(module) if callable(getattr(module, n)) and not n.startswith("_")]
        raise ConfigError(
            f"The module '{module_name}' has no function '{function_name}'."
            f"{nearest(function_name, have)} It has: {', '.join(have) or 'none'}."
        )

    def make() -> Game:
        env = function()
        if isinstance(env, gym.Env):
            return GymnasiumGame(env)
        if hasattr(env, "possible_agents"):
            return ParallelGame(env)
        raise ConfigError(
            f"'{name}' returned a {type(env).__name__}, not a Gymnasium environment or a PettingZoo "
            "parallel environment."
        )

    return make


class ForeignWorld(World):
    """Foreign environments stepped one after the other in this process."""

    saves_state = False

    def __init__(self, name: str, options: ForeignOptions | None = None, *, seed: int = 0) -> None:
        self.name, self.options = name, options or ForeignOptions()
        make = make_game(name)
        self._games = [make() for _ in range(self.options.games)]
        first = self._games[0]
        super().__init__(
            games=len(self._games),
            slots_per_game=len(first.roles),
            roles=first.roles,
            observation_space=_float_box(first.observation_space),
            action_space=first.action_space,
        )
        self._shape = self.single_observation_space.shape or ()
        slots = self.num_envs
        self._obs = np.zeros((slots, *self._shape), np.float32)
        self._mask = np.ones(slots, np.bool_)
        self._returns = np.zeros(slots, np.float64)
        self._steps = np.zeros(self.games, np.int64)
        self._episodes = np.zeros(self.games, np.int64)
        self._seeds = [seed + g for g in range(self.games)]
        self._starts = [Start()] * self.games
        self._queues: list[deque[Start]] = [deque() for _ in range(self.games)]
        self._cut = np.zeros(self.games, np.bool_)

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        if isinstance(seed, int | np.integer):
            self._seeds = [int(seed) + g for g in range(self.games)]
        elif seed is not None:
            self._seeds = [int(s) for s in seed]
            if len(self._seeds) != self.games:
                raise ConfigError(
                    f"reset takes {self.games} seeds, one a game, not {len(self._seeds)}"
                )
        if seed is not None:
            self._episodes[:] = 0
        for g in range(self.games):
            self._begin(g)
        return self._obs.copy(), {"mask": self._mask.copy()}

    def step_into(
        self,
        actions: Array,
        obs: Array,
        rewards: F64,
        terminations: Bools,
        truncations: Bools,
        mask: Bools,
    ) -> dict[str, Any]:
        episodes: list[Episode] = []
        final = np.zeros(self.num_envs, np.bool_)
        final_obs: Array | None = None
        for g, game in enumerate(self._games):
            first = g * self.slots_per_game
            slots = slice(first, first + self.slots_per_game)
            self._steps[g] += 1
            try:
                seen, gained, over, cut, ended = game.step(actions[slots])
            except (
                Exception
            ) as error:  # whatever a foreign environment raises is named and re-raised
                raise self._fault(g, f"raised in step: {_where(error)}") from error
            late = 0 < self.options.max_steps <= self._steps[g] or bool(self._cut[g])
            active = self._mask[slots].copy()
            rewards[slots] = np.where(active, gained, 0.0)
            terminations[slots] = np.asarray(over) & active
            still = active & ~np.asarray(over)
            truncations[slots] = still & (np.asarray(cut) | (late and not ended) | ended)
            self._returns[slots] += rewards[slots]
            for k, row in enumerate(seen):
                if active[k] and row is not None:
                    self._obs[first + k] = self._checked(row, g, k)
            if not np.isfinite(rewards[slots]).all():
                raise self._fault(g, f"returned the reward {gained}, which is not finite")
            self._mask[slots] = still & ~np.asarray(cut)
            if ended or late or not self._mask[slots].any():
                if final_obs is None:
                    final_obs = np.zeros_like(self._obs)
                final_obs[slots], final[slots] = self._obs[slots], True
                episodes.append(self._finish(g, bool(terminations[slots].any())))
                self._begin(g)
        obs[...], mask[...] = self._obs, self._mask
        info: dict[str, Any] = {}
        if final_obs is not None:
            info = {"final_obs": final_obs, "_final_obs": final, "episodes": episodes}
        return info

    def observe(self) -> tuple[Array, Bools]:
        return self._obs.copy(), self._mask.copy()

    def get_state(self) -> State:
        """Return the seed counters only: a foreign environment keeps its state to itself."""
        return {
            "episodes": self._episodes.copy(),
            "seeds": np.array(self._seeds, np.int64),
            "queues": pack_starts(self._queues),
        }

    def set_state(self, state: State) -> None:
        """Go on with new episodes after the recorded counters."""
        self._episodes = state["episodes"].copy()
        self._seeds = [int(s) for s in state["seeds"]]
        self._queues = [deque(queue) for queue in unpack_starts(state["queues"])]
        for g in range(self.games):
            self._begin(g)

    def queue_starts(self, slots: Sequence[int], starts: Sequence[Start]) -> None:
        for g, start in zip(self.games_of(slots), starts, strict=True):
            if start.seed is None:
                raise ConfigError(f"{self.name} cannot begin from a snapshot, only from a seed.")
            self._queues[g].append(start)

    def queued(self) -> list[int]:
        return [len(queue) for queue in self._queues]

    def current_starts(self) -> list[Start]:
        return list(self._starts)

    def request_reset(self, slots: Sequence[int]) -> None:
        self._cut[self.games_of(slots)] = True

    def close_extras(self, **_: Any) -> None:
        for game in self._games:
            game.close()

    def _begin(self, g: int) -> None:
        if self._queues[g]:
            start = self._queues[g].popleft()
        else:
            episode = int(self._episodes[g])
            seed = self._seeds[g] if episode == 0 else derive_seed(self._seeds[g], episode)
            start = Start(seed=seed)
        self._episodes[g] += 1
        self._starts[g] = start
        self._steps[g], self._cut[g] = 0, False
        slots = slice(g * self.slots_per_game, (g + 1) * self.slots_per_game)
        self._returns[slots] = 0.0
        assert start.seed is not None
        try:
            rows = self._games[g].reset(start.seed)
        except Exception as error:  # whatever a foreign environment raises is named and re-raised
            raise self._fault(g, f"raised in reset: {_where(error)}") from error
        self._obs[slots] = [self._checked(row, g, k) for k, row in enumerate(rows)]
        self._mask[slots] = True

    def _finish(self, g: int, terminated: bool) -> Episode:
        slots = slice(g * self.slots_per_game, (g + 1) * self.slots_per_game)
        returns = self._returns[slots].copy()
        return Episode(
            game=g,
            start=self._starts[g],
            steps=int(self._steps[g]),
            returns=returns,
            ended="terminated" if terminated else "truncated",
        )

    def _checked(self, row: Any, g: int, k: int) -> Array:
        array = np.asarray(row)
        if array.shape != self._shape:
            raise self._fault(
                g, f"returned an observation of shape {array.shape} for slot {k}, not {self._shape}"
            )
        values = array.astype(np.float32)
        if not np.isfinite(values).all():
            raise self._fault(g, f"returned an observation with NaN or infinity for slot {k}")
        return values

    def _fault(self, g: int, what: str) -> EnvironmentFault:
        return EnvironmentFault(
            f"The environment {self.name} {what} (game {g}, seed {self._starts[g].seed}, step "
            f"{self._steps[g]}). Every observation must fit {self.single_observation_space} and every "
            "reward must be finite; fix the environment, or wrap it, and try 'holdfast doctor' on it."
        )


def _where(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


def _float_box(space: gym.Space[Any]) -> gym.Space[Any]:
    if not isinstance(space, gym.spaces.Box):
        raise ConfigError(
            f"The observation space {space} is not supported. Allowed: Box, or what "
            "gymnasium.wrappers.FlattenObservation turns into a Box."
        )
    return gym.spaces.Box(-np.inf, np.inf, space.shape, np.float32)
