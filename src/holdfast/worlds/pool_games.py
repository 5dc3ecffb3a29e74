"""One foreign environment as a game: Gymnasium (one slot) or PettingZoo parallel (one slot an agent)."""

from __future__ import annotations

import importlib
import inspect
import math
import sys
import traceback
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import gymnasium as gym
import numpy as np

from holdfast.errors import ConfigError, nearest
from holdfast.records import Array, channels_last, is_picture
from holdfast.worlds import OURS

Stepped = tuple[list[Any], list[float], list[bool], list[bool], bool]
"""Observations (None: the slot is out), rewards, terminations, truncations a slot, and whether the game is over."""
Turn = Callable[[Any], Any]
"""Makes an action of the environment of a learner's, or a learner's observation of the environment's."""


class Game(Protocol):
    """One environment with one or more slots."""

    roles: tuple[str, ...]
    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]

    def reset(self, seed: int) -> list[Any]:
        """Begin an episode; return one observation a slot, None for one that is not in yet."""
        ...

    def step(self, actions: Array) -> Stepped:
        """Return observations, rewards, terminations, truncations a slot, and whether it is over."""
        ...

    def told(self, name: str) -> tuple[float, bool]:
        """Return the number `name` of the last `info` of the episode, NaN where there is none, and whether it is a truth."""
        ...

    def close(self) -> None:
        """Free the environment."""
        ...


@dataclass(frozen=True)
class GameSpec:
    """What all games of one world have in common."""

    roles: tuple[str, ...]
    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]


def spec_of(game: Game) -> GameSpec:
    """Return the roles and spaces of a game."""
    return GameSpec(game.roles, game.observation_space, game.action_space)


def is_bytes(space: gym.Space[Any]) -> bool:
    """Return whether observations are pictures, which stay bytes; all others become float32."""
    return space.dtype == np.uint8 and is_picture(space.shape or ())


def plain_actions(space: gym.Space[Any]) -> tuple[gym.Space[Any], Turn]:
    """Return the flat space that a learner acts in, and what makes an action of it one of `space`."""
    if isinstance(space, gym.spaces.Discrete):
        first = int(space.start)
        return gym.spaces.Discrete(int(space.n)), lambda action: int(action) + first
    if isinstance(space, gym.spaces.MultiBinary):
        shape = space.shape
        twos = np.full(int(np.prod(shape)), 2)
        return gym.spaces.MultiDiscrete(twos), lambda a: np.asarray(a, np.int8).reshape(shape)
    if isinstance(space, gym.spaces.MultiDiscrete):
        return _plain_choices(space)
    if isinstance(space, gym.spaces.Box):
        return _plain_box(space)
    raise ConfigError(
        f"The action space {space} is not supported. Allowed: Discrete, MultiDiscrete, MultiBinary, Box with finite "
        "bounds; wrap the environment so that it takes one of these."
    )


def _plain_choices(space: gym.spaces.MultiDiscrete) -> tuple[gym.Space[Any], Turn]:
    shape, first, dtype = space.shape, space.start, space.dtype
    flat = gym.spaces.MultiDiscrete(space.nvec.ravel(), dtype=dtype.type)
    return flat, lambda action: (np.reshape(action, shape) + first).astype(dtype)


def _plain_box(space: gym.spaces.Box) -> tuple[gym.Space[Any], Turn]:
    shape, low, high, dtype = space.shape, space.low, space.high, space.dtype
    flat = gym.spaces.Box(low.ravel(), high.ravel(), dtype=dtype.type)
    # A copy: the row is written anew at the next step, and an environment may keep what it got.
    if dtype != np.float64:
        return flat, lambda action: np.array(action, dtype).reshape(shape)
    # Learners count in float32, whose nearest number to a bound may lie beyond it.
    return flat, lambda action: np.asarray(np.clip(np.reshape(action, shape), low, high), dtype)


def plain_number(value: Any) -> float:
    """Return a number or truth of an `info`, of Python or NumPy; NaN for anything else."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    plain = isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating)
    return float(value) if plain and math.isfinite(value) else math.nan


def is_truth(value: Any) -> bool:
    """Return whether a value of an `info` is true or false, of Python or NumPy."""
    return isinstance(value, bool | np.bool_) or getattr(value, "dtype", None) == np.bool_


def plain_observations(space: gym.Space[Any]) -> tuple[gym.Space[Any], Turn]:
    """Return the space of what a learner sees, and what makes it of an observation of `space`."""
    if isinstance(space, gym.spaces.Box) and space.shape != ():
        return _plain_pictures(space) or (space, _as_is)
    return gym.spaces.flatten_space(space), lambda seen: gym.spaces.flatten(space, seen)


def _as_is(seen: Any) -> Any:
    return seen


def _plain_pictures(space: gym.spaces.Box) -> tuple[gym.Space[Any], Turn] | None:
    """Return the space of pictures whose channels, or stacked frames, come first, with them last; None for all others."""
    shape = space.shape
    if space.dtype != np.uint8 or is_picture(shape) or len(shape) not in (3, 4):
        return None
    height, breadth = shape[1:3]
    if not is_picture((height, breadth)):
        return None

    def turn(seen: Any) -> Any:
        rows = np.asarray(seen)
        if rows.shape != shape:
            return rows  # the player says what is wrong with it
        return channels_last(rows[None], height, breadth)[0]

    return gym.spaces.Box(turn(space.low), turn(space.high), dtype=np.uint8), turn


class GymnasiumGame:
    """A Gymnasium environment: one slot."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        self.env = env
        self.roles: tuple[str, ...] = ("agent",)
        self._info: Mapping[str, Any] = {}
        self.observation_space, self._seen = plain_observations(env.observation_space)
        self.action_space, self._action = plain_actions(env.action_space)

    def reset(self, seed: int) -> list[Any]:
        # Environments seed 32-bit generators, so the seed is folded.
        return [self._seen(self.env.reset(seed=seed % 2**31)[0])]

    def step(self, actions: Array) -> Stepped:
        obs, reward, over, cut, self._info = self.env.step(self._action(actions[0]))
        return [self._seen(obs)], [float(reward)], [bool(over)], [bool(cut)], bool(over or cut)

    def told(self, name: str) -> tuple[float, bool]:
        value = self._info.get(name)
        return plain_number(value), is_truth(value)

    def close(self) -> None:
        self.env.close()


class ParallelGame:
    """A PettingZoo parallel environment: one slot an agent; agents that are out are masked."""

    def __init__(self, env: Any) -> None:
        if callable(getattr(env, "last", None)) and callable(getattr(env, "agent_iter", None)):
            raise _in_turns(env)
        self.env = env
        self._agents = tuple(env.possible_agents)
        self._infos: dict[Any, Mapping[str, Any]] = {}
        if not self._agents:
            raise ConfigError(f"{type(env).__name__} has no possible_agents: nobody would play.")
        # Agents may be anything; roles are part of names in files, where a slash parts the area from the name.
        self.roles = tuple(str(agent).replace("/", "_") for agent in self._agents)
        first = self._agents[0]
        spaces = env.observation_space(first), env.action_space(first)
        self.observation_space, self._seen = plain_observations(spaces[0])
        self.action_space, self._action = plain_actions(spaces[1])
        for agent in self._agents:
            if (env.observation_space(agent), env.action_space(agent)) != spaces:
                raise ConfigError(
                    f"The agents '{first}' and '{agent}' have different spaces. All agents of a world, with one "
                    "learner or with one each, see and do the same kind of thing; pad the spaces first, for example "
                    "with pad_observations_v0 and pad_action_space_v0 of SuperSuit."
                )

    def reset(self, seed: int) -> list[Any]:
        self._infos = {}
        begun = self.env.reset(seed=seed % 2**31)
        if begun is None:
            raise _in_turns(self.env)
        return self._rows(begun[0], self.env.agents)

    def step(self, actions: Array) -> Stepped:
        playing = [(k, a) for k, a in enumerate(self._agents) if a in self.env.agents]
        chosen = {agent: self._action(actions[k]) for k, agent in playing}
        obs, rewards, over, cut, infos = self.env.step(chosen)
        self._infos.update(infos)
        return (
            self._rows(obs, [*chosen, *self.env.agents]),
            [float(rewards.get(a, 0.0)) for a in self._agents],
            [bool(over.get(a, False)) for a in self._agents],
            [bool(cut.get(a, False)) for a in self._agents],
            not self.env.agents,
        )

    def told(self, name: str) -> tuple[float, bool]:
        """Return the mean over the agents that tell it, each in its last `info`."""
        given = [info.get(name) for info in self._infos.values()]
        found = [value for value in map(plain_number, given) if not math.isnan(value)]
        return sum(found) / len(found) if found else math.nan, any(map(is_truth, given))

    def _rows(self, obs: Mapping[Any, Any], present: Collection[Any]) -> list[Any]:
        """Return the observations of the agents that are in, and None for the others."""
        return [self._seen(obs[a]) if a in obs and a in present else None for a in self._agents]

    def close(self) -> None:
        self.env.close()


def _in_turns(env: Any) -> ConfigError:
    return ConfigError(
        f"{type(env).__name__} is a PettingZoo environment whose agents act in turns (AEC). Return its "
        "parallel_env() instead, or pettingzoo.utils.aec_to_parallel(env) if all agents may act at once."
    )


def make_game(
    name: str, kwargs: Mapping[str, Any] | None = None, **given: Any
) -> Callable[[], Game]:
    """Return a function that makes one game of a Gymnasium id, of `module:id`, or of `module:function`.

    It is called with `kwargs`, and with those of the keywords `given` that they leave open and it has a name for.
    """
    kwargs = dict(kwargs or {})
    if ":" in name and name not in gym.registry:
        return _from_module(name, kwargs, given)
    if name not in gym.registry:
        raise ConfigError(
            f"'{name}' is neither a world of Holdfast ({', '.join(OURS)}) nor a registered Gymnasium id nor "
            f"'module:function'.{nearest(name, [*OURS, *gym.registry])} "
            "Type for example: holdfast train CartPole-v1"
        )
    return _from_registry(name, {**given, **kwargs})


def _from_registry(name: str, given: Mapping[str, Any]) -> Callable[[], Game]:
    def make() -> Game:
        try:
            return GymnasiumGame(gym.make(name, **given))
        except gym.error.DependencyNotInstalled as error:
            raise ConfigError(f"{name} needs a package that is not installed: {error}") from None

    return make


def _from_module(
    name: str, kwargs: Mapping[str, Any], given: Mapping[str, Any]
) -> Callable[[], Game]:
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
    except (Exception, SystemExit) as error:  # whatever the user's file does when it is imported
        raise ConfigError(
            f"The module '{module_name}' of '{name}' cannot be imported: {where(error)}. A module is named as Python "
            "imports it, from here or from the installed packages; for example: my_module:make_env"
        ) from None
    function = getattr(module, function_name, None)
    if not callable(function) and function_name in gym.registry:
        return _from_registry(function_name, {**given, **kwargs})
    if not callable(function):
        have = [n for n in vars(module) if callable(getattr(module, n)) and not n.startswith("_")]
        raise ConfigError(
            f"The module '{module_name}' has no function '{function_name}'."
            f"{nearest(function_name, have)} It has: {', '.join(have) or 'none'}."
        )

    taken = _takes(function)
    keywords = {**{key: value for key, value in given.items() if key in taken}, **kwargs}

    def make() -> Game:
        env = function(**keywords)
        if isinstance(env, gym.Env):
            return GymnasiumGame(env)
        if hasattr(env, "possible_agents"):
            return ParallelGame(env)
        raise ConfigError(
            f"'{name}' returned a {type(env).__name__}, not a Gymnasium environment or a PettingZoo "
            "parallel environment."
        )

    return make


def _takes(function: Callable[..., Any]) -> Collection[str]:
    """Return the names of a function's parameters, as far as Python knows them."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return ()


def where(error: BaseException) -> str:
    """Return an error's type, text and place on one line."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {error}{place}"
