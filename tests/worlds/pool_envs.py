"""Environments for the tests of the worker pool; light to import, because every worker process does."""

from __future__ import annotations

import os
import sys
import time
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from pettingzoo import ParallelEnv


class Walk(gym.Env):
    """A random walk that draws from its own seeded generator, ends by chance and has a time limit."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = gym.spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.x = 0, self.np_random.normal(size=3)
        return self.x.copy(), {}

    def step(self, action):
        self.t += 1
        self.x += self.np_random.normal(size=3) + action.sum()
        over = bool(self.np_random.random() < 0.03)
        return self.x.copy(), float(self.x[0]), over, self.t >= 40 and not over, {}


class Pixels(gym.Env):
    observation_space = gym.spaces.Box(0, 255, (12, 12, 1), np.uint8)
    action_space = gym.spaces.MultiDiscrete([3, 2])

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.picture(), {}

    def step(self, action):
        self.t += 1
        return self.picture(), float(action[0] - action[1]), self.t == 17, False, {}

    def picture(self):
        return self.np_random.integers(0, 255, (12, 12, 1), np.uint8)


class Tag(ParallelEnv):
    """Three agents that drop out one after the other."""

    metadata: ClassVar[dict[str, Any]] = {"name": "tag"}
    possible_agents: ClassVar[list[str]] = ["a", "b", "c"]

    def observation_space(self, agent):
        return gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def action_space(self, agent):
        return gym.spaces.Discrete(4)

    def reset(self, seed=None, options=None):
        self.agents, self.t = list(self.possible_agents), 0
        self.rng = np.random.default_rng(seed)
        return {a: self.rng.normal(size=2).astype(np.float32) for a in self.agents}, {}

    def step(self, actions):
        self.t += 1
        obs = {a: self.rng.normal(size=2).astype(np.float32) for a in self.agents}
        rewards = {a: float(actions[a]) for a in self.agents}
        over = {a: self.rng.random() < 0.05 for a in self.agents}
        cut = {a: self.t >= 30 and not over[a] for a in self.agents}
        self.agents = [a for a in self.agents if not (over[a] or cut[a])]
        return obs, rewards, over, cut, {a: {"played": self.t} for a in obs}


class Raises(Walk):
    """Raises in one step in a hundred, by its own generator."""

    def step(self, action):
        if self.t == 25:
            raise ValueError("a bad step")
        return super().step(action)


class Slow(Walk):
    """Takes two milliseconds a step; environment 3 takes longer to construct."""

    made = 0

    def __init__(self) -> None:
        Slow.made += 1
        if os.environ.get("SLOW_THIRD") and Slow.made == 4:
            time.sleep(0.2)

    def step(self, action):
        time.sleep(0.002)
        return super().step(action)


class Nan(Walk):
    def step(self, action):
        out = super().step(action)
        return (np.full(3, np.nan), *out[1:]) if self.t == 3 else out


class Shape(Walk):
    def step(self, action):
        out = super().step(action)
        return (np.zeros(5), *out[1:]) if self.t == 3 else out


class Words(Walk):
    def step(self, action):
        return (np.array(["a", "b", "c"]), 0.0, False, False, {})


class Reward(Walk):
    def step(self, action):
        out = super().step(action)
        return (out[0], float("inf"), *out[2:]) if self.t == 3 else out


class SleepsInStep(Walk):
    def step(self, action):
        time.sleep(3600)


class SleepsInClose(Walk):
    def close(self):
        time.sleep(3600)


class RaisesInConstruct(Walk):
    def __init__(self) -> None:
        raise OSError("no such ROM")


class Frozen(Walk):
    """A dummy: nothing that is done changes anything."""

    def step(self, action):
        return np.zeros(3), 0.0, False, False, {}

    def reset(self, seed=None, options=None):
        return np.zeros(3), {}


class Endless(Walk):
    def step(self, action):
        self.x = self.x + 1
        return self.x.copy(), 0.0, False, False, {}


class Dies(Walk):
    def step(self, action):
        os.abort()


class RaisesInReset(Walk):
    def reset(self, seed=None, options=None):
        raise KeyError("no level")


class Kept(gym.Env):
    """Remembers the actions that it was given; its spaces are set by what is made of it."""

    def __init__(self, observation_space, action_space, length=9):
        self.observation_space, self.action_space, self.length = (
            observation_space, action_space, length,
        )  # fmt: skip
        self.given: list[Any] = []

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.see(), {}

    def step(self, action):
        assert self.action_space.contains(action), (action, type(action))
        self.given.append(action)
        self.t += 1
        return self.see(), 1.0, self.t == self.length, False, {}

    def see(self):
        self.observation_space.seed(int(self.np_random.integers(1 << 30)))
        return self.observation_space.sample()


NUMBERS = gym.spaces.Box(-1, 1, (3,), np.float32)


def late_choices():
    return Kept(NUMBERS, gym.spaces.Discrete(3, start=5))


def switches():
    return Kept(NUMBERS, gym.spaces.MultiBinary(4))


def grid():
    return Kept(NUMBERS, gym.spaces.Box(-2, 3, (2, 3), np.float32))


def dial():
    return Kept(NUMBERS, gym.spaces.Box(-1, 1, (), np.float32))


def doubles():
    return Kept(NUMBERS, gym.spaces.Box(-0.1, 0.1, (2,), np.float64))


def table():
    return Kept(NUMBERS, gym.spaces.MultiDiscrete([[2, 3], [4, 5]]))


def late_pairs():
    return Kept(NUMBERS, gym.spaces.MultiDiscrete([2, 3], start=[1, 5]))


def pictures():
    return Kept(gym.spaces.Box(0, 255, (40, 48, 3), np.uint8), gym.spaces.Discrete(2))


def outside():
    env = Kept(NUMBERS, gym.spaces.Discrete(2))
    env.see = lambda: np.full(3, 5.0, np.float32)
    return env


def endless():
    return Kept(NUMBERS, gym.spaces.Discrete(2), length=-1)


class Fickle(Kept):
    def see(self):
        return np.random.default_rng().uniform(-1, 1, 3).astype(np.float32)


def fickle():
    return Fickle(NUMBERS, gym.spaces.Discrete(2))


class Paid(Tag):
    """Pays one to every agent that is still in."""

    def step(self, actions):
        paid = dict.fromkeys(self.agents, 1.0)
        obs, _, over, cut, about = super().step(actions)
        return obs, paid, over, cut, about


class Crowd(Tag):
    """Agents with spaces of one's choice; it holds them to their actions."""

    def __init__(self, observed, acted):
        self.observed, self.acted = observed, acted

    def observation_space(self, agent):
        return self.observed

    def action_space(self, agent):
        return self.acted

    def reset(self, seed=None, options=None):
        obs, about = super().reset(seed=seed)
        return {a: self.see() for a in obs}, about

    def step(self, actions):
        assert all(self.acted.contains(action) for action in actions.values()), actions
        obs, _, over, cut, about = super().step(dict.fromkeys(actions, 1))
        return {a: self.see() for a in obs}, dict.fromkeys(obs, 1.0), over, cut, about

    def see(self):
        self.observed.seed(int(self.rng.integers(1 << 30)))
        return self.observed.sample()


def crowd_of_grids():
    return Crowd(gym.spaces.Discrete(5), gym.spaces.Box(-2, 3, (2, 3), np.float32))


def crowd_of_tables():
    parts = gym.spaces.Dict(x=NUMBERS, k=gym.spaces.Discrete(3))
    return Crowd(parts, gym.spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 1], [0, 7]]))


class Joins(ParallelEnv):
    """`b` joins at step 3, `a` leaves at step 5, all is over at step 8."""

    metadata: ClassVar[dict[str, Any]] = {"name": "joins", "render_modes": ["rgb_array"]}
    possible_agents: ClassVar[list[str]] = ["a", "b"]
    render_mode = "rgb_array"

    def observation_space(self, agent):
        return gym.spaces.Box(-1, 20, (2,), np.float32)

    def action_space(self, agent):
        return gym.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.t, self.agents = 0, ["a"]
        return self.see(), {"a": {}}

    def step(self, actions):
        assert sorted(actions) == sorted(self.agents)
        self.t += 1
        if self.t == 3:
            self.agents = ["a", "b"]
        obs, paid = self.see(), dict.fromkeys(self.agents, 1.0)
        over = {a: self.t == 8 or (a == "a" and self.t == 5) for a in self.agents}
        self.agents = [a for a in self.agents if not over[a]]
        return obs, paid, over, dict.fromkeys(over, False), {}

    def see(self):
        return {a: np.array([self.t, 1.0], np.float32) for a in self.agents}

    def render(self):
        return np.zeros((16, 16, 3), np.uint8)


class InTurns(Tag):
    """The other interface of PettingZoo."""

    def last(self):
        return np.zeros(2, np.float32), 0.0, False, False, {}

    def agent_iter(self):
        return iter(self.possible_agents)


class Nothing(Tag):
    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)


class Numbered(Tag):
    """Agents that are no text, and one with a slash in its name."""

    possible_agents: ClassVar[list[Any]] = [7, "red/1"]


class Unlucky(Walk):
    """Cannot begin from one seed in two; `tried` holds all of them."""

    tried: ClassVar[list[int]] = []

    def reset(self, seed=None, options=None):
        Unlucky.tried.append(seed)
        if seed % 2 and len(Unlucky.tried) > 1:
            raise RuntimeError("an unlucky seed")
        return super().reset(seed=seed)


class RaisesInRender(Walk):
    render_mode = "rgb_array"

    def render(self):
        raise RuntimeError("no pen")


class SleepsInRender(RaisesInRender):
    def render(self):
        time.sleep(1000)


class Shifting(gym.Env):
    """Its spaces are changed between two sessions of a run."""

    observation_space = gym.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        return np.zeros(self.observation_space.shape, np.float32), {}

    def step(self, action):
        return np.ones(self.observation_space.shape, np.float32), 1.0, True, False, {}


gym.register("Pool/Walk-v0", entry_point="pool_envs:Walk")


class Leaves(Walk):
    """Calls sys.exit in its 25th step."""

    def step(self, action):
        if self.t == 25:
            sys.exit(3)
        return super().step(action)


class LeavesInReset(Walk):
    def reset(self, seed=None, options=None):
        sys.exit("no level")


class LeavesInConstruct(Walk):
    def __init__(self) -> None:
        sys.exit("no licence")


class Corridor(gym.Env):
    """Ends at its end; draws itself when asked to, and tells how far it came."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"]}
    action_space = gym.spaces.Discrete(2)

    def __init__(self, length=4, render_mode=None):
        self.length, self.render_mode = length, render_mode
        self.observation_space = gym.spaces.Box(0, length, (1,), np.float32)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.t = self.x = 0
        return np.array([self.x], np.float32), {}

    def step(self, action):
        self.t, self.x = self.t + 1, max(0, self.x + (1 if action else -1))
        there = self.x >= self.length
        info = {"is_success": there, "place": np.float32(self.x), "note": "text"}
        return np.array([self.x], np.float32), float(there), there, self.t >= 3 * self.length, info

    def render(self):
        return np.full((8, 8, 3), 10 * self.x, np.uint8)
