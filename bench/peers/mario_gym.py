"""gym-super-mario-bros in its usual wrappers and an AsyncVectorEnv; steps when it is told to.

    python bench/peers/mario_gym.py --envs 16

Each line on standard input is a number of seconds; the answer is a line of JSON, `{"steps": ..., "seconds": ...}`. The
first line that it writes says what is measured.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from typing import Any

import gym
import gym_super_mario_bros
import numpy as np
from gym.vector import AsyncVectorEnv
from gym.wrappers import FrameStack, GrayScaleObservation, ResizeObservation
from gym_super_mario_bros.actions import SIMPLE_MOVEMENT
from nes_py.wrappers import JoypadSpace


class Pads(JoypadSpace):
    """The pad combinations as actions; `reset` takes what today's Gym passes to it."""

    def reset(self, **given: Any) -> Any:
        return self.env.reset(**given)


class MaxAndSkip(gym.Wrapper):
    """Holds an action for four frames; shows the brighter of the last two."""

    def step(self, action: Any) -> tuple[Any, ...]:
        total, frames = 0.0, []
        for _ in range(4):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total += reward
            frames.append(obs)
            if terminated or truncated:
                break
        return np.max(frames[-2:], axis=0), total, terminated, truncated, info


def make() -> gym.Env:
    """Return one wrapped environment: grey 84 x 84, four stacked."""
    warnings.simplefilter("ignore")
    env = gym_super_mario_bros.make(
        "SuperMarioBros-1-1-v0", apply_api_compatibility=True, disable_env_checker=True
    )
    env = MaxAndSkip(Pads(env, SIMPLE_MOVEMENT))
    env = ResizeObservation(GrayScaleObservation(env), 84)
    return FrameStack(env, 4)


def main() -> None:
    """Step in turns until standard input ends."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--envs", type=int, default=16)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    gym.logger.set_level(gym.logger.ERROR)
    envs = AsyncVectorEnv([make] * args.envs)
    rng = np.random.default_rng(0)
    envs.reset(seed=0)
    about = f"gym-super-mario-bros 7.4.0, nes-py 8.2.1, AsyncVectorEnv of {args.envs}"
    print(json.dumps({"about": about, "shape": list(envs.observation_space.shape)}), flush=True)
    for line in sys.stdin:
        began, steps = time.perf_counter(), 0
        while time.perf_counter() - began < float(line):
            envs.step(rng.integers(0, len(SIMPLE_MOVEMENT), args.envs))
            steps += args.envs
        seconds = time.perf_counter() - began
        print(json.dumps({"steps": steps, "seconds": seconds}), flush=True)
    envs.close()


if __name__ == "__main__":
    main()
