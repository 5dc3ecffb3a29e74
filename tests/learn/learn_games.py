"""A batch of small games drawn as pictures, and the few lines of a collector, for tests of learners."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.learn.learner import Learner
from holdfast.learn.options import LearnerConfig
from holdfast.learn.spec import NetSpec
from holdfast.records import Rollout


def spec(trunk: str = "small", side: int = 36, stack: int = 3, **more: Any) -> NetSpec:
    return NetSpec(
        side * side,
        "discrete",
        nvec=(3,),
        trunk=trunk,
        picture=(side, side, 1),
        stack=stack,
        **more,
    )


def config(**settings: Any) -> LearnerConfig:
    small = {"kind": "torch", "steps": 8, "epochs": 2, "minibatch": 16, "threads": 1}
    return LearnerConfig(**{**small, **settings})


class Noise:
    """Slots whose pictures are random and whose episodes end and are cut at random."""

    def __init__(self, slots: int, size: int, seed: int = 0, pixels: bool = True) -> None:
        self.slots, self.size, self.pixels = slots, size, pixels
        self.rng = np.random.default_rng(seed)
        self.obs = self.draw()

    def draw(self) -> np.ndarray:
        shape = (self.slots, self.size)
        if self.pixels:
            return self.rng.integers(0, 256, shape, np.uint8)
        return self.rng.normal(size=shape).astype(np.float32)

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:
        ends = self.rng.random(self.slots)
        terminated, truncated = ends < 0.1, ends > 0.9
        self.obs = self.draw()
        return self.rng.normal(size=self.slots), terminated, truncated, self.draw()


class Catch:
    """A ball falls, a paddle moves left or right; the ball's way is seen only in two pictures.

    The ball drifts by -1, 0 or 1 columns a step; in the last row it pays 1 where the paddle is and -1 elsewhere.
    """

    def __init__(self, slots: int, side: int = 36, cell: int = 6, seed: int = 0) -> None:
        self.slots, self.side, self.cell, self.cells = slots, side, cell, side // cell
        self.rng = np.random.default_rng(seed)
        self.ball = np.zeros((slots, 2), int)
        self.drift, self.paddle = np.zeros(slots, int), np.zeros(slots, int)
        self.begin(np.ones(slots, bool))

    def begin(self, where: np.ndarray) -> None:
        for n in np.flatnonzero(where):
            self.ball[n] = 0, self.rng.integers(self.cells)
            self.drift[n] = self.rng.integers(-1, 2)
            self.paddle[n] = self.cells // 2

    @property
    def obs(self) -> np.ndarray:
        cell = self.cell
        pictures = np.zeros((self.slots, self.side, self.side), np.uint8)
        for n in range(self.slots):
            row, column = self.ball[n] * cell
            pictures[n, row : row + cell, column : column + cell] = 255
            left = self.paddle[n] * cell
            pictures[n, -cell:, left : left + cell] = 128
        return pictures.reshape(self.slots, -1)

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:
        self.paddle = np.clip(self.paddle + actions - 1, 0, self.cells - 1)
        column = self.ball[:, 1] + self.drift
        self.drift = np.where((column < 0) | (column >= self.cells), -self.drift, self.drift)
        self.ball[:, 1] = np.clip(column, 0, self.cells - 1)
        self.ball[:, 0] += 1
        ended = self.ball[:, 0] == self.cells - 1
        rewards = np.where(self.ball[:, 1] == self.paddle, 1.0, -1.0) * ended
        last = self.obs
        self.begin(ended)
        return rewards, ended, np.zeros_like(ended), last


def collect(learner: Learner, game: Any, rollout: Rollout) -> None:
    """Fill the rollout as the collector does."""
    learner.begin(rollout)
    rollout.obs[0] = game.obs
    for t in range(rollout.steps):
        actions = learner.act(rollout, t)
        rewards, terminated, truncated, last = game.step(actions)
        rollout.rewards[t], rollout.terminations[t], rollout.truncations[t] = (
            rewards,
            terminated,
            truncated,
        )
        rollout.obs[t + 1] = game.obs
        if (terminated | truncated).any():
            learner.end(rollout, t, terminated | truncated, last)
