"""Running statistics of observations and of the scale of rewards; both are part of the checkpoint.

The statistics in use are frozen during a rollout and merged after it, so every step of a rollout
sees the same transformation and the order of slots and threads cannot matter.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.learn.returns import track_returns
from holdfast.records import F64, Array, Bools, Rollout

CLIP = 10.0


class ObsNorm:
    """Shift and scale of every observation entry, clipped to +-10 standard deviations."""

    def __init__(self, size: int) -> None:
        self.mean = np.zeros(size, np.float64)
        self.var = np.ones(size, np.float64)
        self.count = 0.0
        self._batch: list[tuple[float, F64, F64]] = []

    def apply(self, obs: Array) -> Array:
        """Return normalised copies of rows `[n, D]`."""
        scaled = (obs - self.mean) / np.sqrt(self.var + 1e-8)
        return np.clip(scaled, -CLIP, CLIP).astype(np.float32)

    def apply_in_place(self, obs: Array, mask: Bools) -> None:
        """Normalise rows `[n, D]` where they stand and remember the raw moments for `merge`."""
        seen = obs[mask] if not mask.all() else obs
        if len(seen):
            raw = seen.astype(np.float64)
            self._batch.append((float(len(raw)), raw.mean(0), raw.var(0)))
        obs[...] = self.apply(obs)

    def merge(self) -> None:
        """Fold what the rollout showed into the statistics (Chan's parallel update)."""
        for count, mean, var in self._batch:
            total = self.count + count
            shift = mean - self.mean
            self.mean = self.mean + shift * (count / total)
            m2 = self.var * self.count + var * count + shift**2 * (self.count * count / total)
            self.var, self.count = m2 / total, total
        self._batch.clear()

    def drop(self) -> None:
        """Forget what the rollout showed: nobody learns from it."""
        self._batch.clear()

    def adopt(self, other: ObsNorm) -> None:
        """Take over what another has seen since its last `merge`."""
        self._batch, other._batch = other._batch, []

    def seen(self) -> list[list[Any]]:
        """Return what was seen since the last `merge`: count, mean and variance of each step."""
        return [list(moments) for moments in self._batch]

    def load_seen(self, seen: list[list[Any]]) -> None:
        """Have seen what `seen` returned."""
        self._batch = [(float(count), mean, var) for count, mean, var in seen]

    def state_dict(self) -> dict[str, Any]:
        """Return mean, variance and count."""
        return {"mean": self.mean, "var": self.var, "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore mean, variance and count."""
        self.mean, self.var = state["mean"].copy(), state["var"].copy()
        self.count = float(state["count"])
        self._batch.clear()


class RewardNorm:
    """Divides rewards by the running standard deviation of the discounted return."""

    def __init__(self, slots: int, gamma: float) -> None:
        self.gamma = gamma
        self.running = np.zeros(slots, np.float64)
        self.moments = np.zeros(3, np.float64)

    def apply_in_place(self, rollout: Rollout) -> None:
        """Merge the rollout into the statistics, then scale its rewards."""
        self.track(rollout)
        self.scale_in_place(rollout.rewards)

    def track(self, rollout: Rollout) -> None:
        """Merge the rollout into the statistics."""
        if len(self.running) != rollout.slots:
            self.running = np.zeros(rollout.slots, np.float64)
        track_returns(
            rollout.rewards,
            rollout.terminations,
            rollout.truncations,
            rollout.mask,
            self.gamma,
            self.running,
            self.moments,
        )

    def scale_in_place(self, rewards: Array) -> None:
        """Scale rewards by the statistics as they are."""
        rewards /= self.scale
        np.clip(rewards, -CLIP, CLIP, out=rewards)

    @property
    def scale(self) -> float:
        """What rewards are divided by."""
        return float(np.sqrt(self.moments[2] / max(self.moments[0], 1.0) + 1e-8))

    def state_dict(self) -> dict[str, Any]:
        """Return the discounted returns under way and their moments."""
        return {"running": self.running.copy(), "moments": self.moments.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.running, self.moments = state["running"].copy(), state["moments"].copy()
