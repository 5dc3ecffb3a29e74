"""Random network distillation: a bonus for states that a predictor does not know yet (Burda et al. 2018).

    novelty = Novelty(spec.obs_size, NoveltyConfig(weight=0.5), streams)
    bonus = novelty.bonus(rollout)         # [T, N], ready to be added to the rewards
    metrics = novelty.learn(rollout)       # once a rollout

A fixed random network maps an observation to features; a predictor learns to do the same, once a rollout, on a bounded
sample of all slots together. Where its error is large, few have been before. The error is divided by the running
deviation of its own discounted return, which does not end with an episode: what was new stays new for the next one.

Row t of the bonus belongs to `obs[t]`, the state in which action t was taken: all of these rows have the same form
(a learner normalises rows 0 to T-1 in place), and none lies beyond the end of an episode. Masked steps get none.

Observations `[D]` go through an MLP in NumPy (torch is not loaded); pictures `[H, W]` or `[H, W, C]` are halved, if they
are large enough, and go through a small CNN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from holdfast.errors import ConfigError, StorageError
from holdfast.learn.normalise import ObsNorm
from holdfast.learn.returns import track_returns
from holdfast.records import F32, Array, Rollout
from holdfast.rng import Streams

if TYPE_CHECKING:
    from torch import Tensor

CHUNK = 1024
"""Rows that are normalised and mapped at once."""
HALVED_FROM = 40
"""Side from which pictures are halved: the CNN needs 20 pixels."""
BETAS, EPSILON = (0.9, 0.999), 1e-8
"""Of Adam."""


@dataclass(frozen=True)
class NoveltyConfig:
    """How much new states are worth, and how fast they become old."""

    weight: Annotated[float, Meta(ge=0)] = 0.0
    """Weight of the bonus, whose return has a deviation of 1 before it; 0 is off."""
    last_weight: Annotated[float, Meta(ge=0)] = 0.0
    """Weight after `weight_rollouts`."""
    weight_rollouts: Annotated[int, Meta(ge=0)] = 0
    """Rollouts over which the weight goes to `last_weight` in a straight line; 0 keeps `weight`."""
    hidden: Annotated[tuple[int, ...], Meta(ge=1, le=4096)] = (128, 128)
    """Widths of the hidden layers; for pictures those after the convolutions."""
    features: Annotated[int, Meta(ge=1, le=4096)] = 64
    """Numbers that the networks give."""
    lr: Annotated[float, Meta(gt=0)] = 1e-3
    """Learning rate of the predictor."""
    samples: Annotated[int, Meta(ge=1)] = 2048
    """Most steps of a rollout that the predictor learns from."""
    minibatch: Annotated[int, Meta(ge=1)] = 256
    """Samples of one gradient step."""
    gamma: Annotated[float, Meta(ge=0, lt=1)] = 0.99
    """Discount of the return whose deviation scales the bonus."""
    clip: Annotated[float, Meta(gt=0)] = 5.0
    """Bound of normalised observations, standard deviations."""

    def __post_init__(self) -> None:
        if self.last_weight > 0 and not self.weight_rollouts:
            raise ConfigError(
                f"last_weight = {self.last_weight:g} is never reached with weight_rollouts = 0. Say over how many "
                "rollouts the weight goes there, for example: --novelty.weight-rollouts 100"
            )


class Net(Protocol):
    """A network whose parameters are one flat vector."""

    shapes: list[tuple[int, ...]]
    """Of its weights and biases, in turn."""

    def features(self, theta: F32, rows: F32) -> F32:
        """Return `[n, F]` of normalised rows `[n, D]`."""
        ...

    def gradient(self, theta: F32, rows: F32, goal: F32, grad: F32) -> float:
        """Write the gradient of the mean squared distance to `goal [n, F]`; return that distance."""
        ...


def split(flat: F32, shapes: list[tuple[int, ...]]) -> list[F32]:
    """Return the parts of a flat vector as arrays of these shapes, without copying."""
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    parts = np.split(flat, ends[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


class FlatNet:
    """An MLP with ReLU between its layers."""

    def __init__(self, inputs: int, config: NoveltyConfig) -> None:
        sizes = (inputs, *config.hidden, config.features)
        self.shapes: list[tuple[int, ...]] = []
        for a, b in pairwise(sizes):
            self.shapes += [(a, b), (b,)]

    def _layers(self, theta: F32, rows: F32) -> list[F32]:
        parts = split(theta, self.shapes)
        found, last = [rows], len(parts) // 2 - 1
        for k in range(last + 1):
            x = found[-1] @ parts[2 * k]
            x += parts[2 * k + 1]
            found.append(np.maximum(x, 0.0, out=x) if k < last else x)
        return found

    def features(self, theta: F32, rows: F32) -> F32:
        return self._layers(theta, rows)[-1]

    def gradient(self, theta: F32, rows: F32, goal: F32, grad: F32) -> float:
        found = self._layers(theta, rows)
        parts, out = split(theta, self.shapes), split(grad, self.shapes)
        error = found[-1] - goal
        loss = float(np.mean(error * error))
        error *= np.float32(2.0 / error.size)
        for k in range(len(parts) // 2 - 1, -1, -1):
            np.matmul(found[k].T, error, out=out[2 * k])
            np.sum(error, axis=0, out=out[2 * k + 1])
            if k:
                error = error @ parts[2 * k].T
                error *= found[k] > 0
        return loss


class PixelNet:
    """Two strided convolutions, then an MLP: enough to tell pictures apart."""

    kernels = ((16, 8, 4), (32, 4, 2))
    """Channels, side and stride of each convolution."""

    def __init__(self, shape: tuple[int, int, int], config: NoveltyConfig) -> None:
        self.shape = shape
        channels, height, width = shape
        self.shapes: list[tuple[int, ...]] = []
        for count, side, stride in self.kernels:
            self.shapes += [(count, channels, side, side), (count,)]
            channels, height, width = (
                count,
                (height - side) // stride + 1,
                (width - side) // stride + 1,
            )
        if height < 1 or width < 1:
            raise ValueError(f"pictures of {shape} are too small; the smallest side is 20")
        sizes = (channels * height * width, *config.hidden, config.features)
        for a, b in pairwise(sizes):
            self.shapes += [(b, a), (b,)]

    def _map(self, parts: list[Tensor], rows: F32) -> Tensor:
        import torch
        from torch.nn import functional

        x = torch.from_numpy(rows).reshape(len(rows), *self.shape)
        for k, (_, _, stride) in enumerate(self.kernels):
            x = torch.relu(functional.conv2d(x, parts[2 * k], parts[2 * k + 1], stride))
        x = x.flatten(1)
        last = len(parts) // 2 - 1
        for k in range(len(self.kernels), last + 1):
            x = functional.linear(x, parts[2 * k], parts[2 * k + 1])
            x = torch.relu(x) if k < last else x
        return x

    def features(self, theta: F32, rows: F32) -> F32:
        import torch

        with torch.no_grad():
            parts = [torch.from_numpy(part) for part in split(theta, self.shapes)]
            found: F32 = self._map(parts, rows).numpy()
        return found

    def gradient(self, theta: F32, rows: F32, goal: F32, grad: F32) -> float:
        import torch

        parts = [torch.from_numpy(part).requires_grad_() for part in split(theta, self.shapes)]
        loss = (self._map(parts, rows) - torch.from_numpy(goal)).square().mean()
        for out, found in zip(
            split(grad, self.shapes), torch.autograd.grad(loss, parts), strict=True
        ):
            out[...] = found.numpy()
        return float(loss.detach())


def halved_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the shape of a picture `[C, H, W]` after `halved`."""
    channels, height, width = shape
    if min(height, width) < HALVED_FROM:
        return channels, height, width
    return channels, height // 2, width // 2


def halved(pictures: Array) -> Array:
    """Return pictures `[n, C, H, W]` at half the side, each pixel the sum of four; small ones as they are."""
    if min(pictures.shape[2:]) < HALVED_FROM:
        return pictures
    even = pictures[:, :, : pictures.shape[2] // 2 * 2, : pictures.shape[3] // 2 * 2]
    found = even[:, :, 0::2, 0::2].astype(np.float32)
    for y, x in ((0, 1), (1, 0), (1, 1)):
        found += even[:, :, y::2, x::2]
    return found


def first_parameters(shapes: list[tuple[int, ...]], rng: np.random.Generator, out: int) -> F32:
    """Return He-normal weights and zero biases; `out` is the axis of a matrix that counts outputs."""
    parts = []
    for weight, bias in zip(shapes[::2], shapes[1::2], strict=True):
        inputs = math.prod(weight) // weight[0 if len(weight) > 2 else out]
        parts.append(rng.standard_normal(math.prod(weight)) * math.sqrt(2.0 / inputs))
        parts.append(np.zeros(math.prod(bias)))
    return np.concatenate(parts).astype(np.float32)


class Novelty:
    """The bonus of a world's states; `obs_size` is D of flat observations or the shape `(H, W)` or `(H, W, C)` of a picture."""

    def __init__(
        self,
        obs_size: int | tuple[int, ...],
        config: NoveltyConfig,
        streams: Streams,
        name: str = "novelty",
    ) -> None:
        self.config, self.streams, self.name = config, streams, name
        shape = (obs_size,) if isinstance(obs_size, int) else tuple(obs_size)
        flat = len(shape) == 1
        height, width, channels = (0, 0, 0) if flat else (*shape, 1)[:3]
        self._picture = () if flat else (channels, height, width)
        self.net: Net = (
            FlatNet(shape[0], config) if flat else PixelNet(halved_shape(self._picture), config)
        )
        self.size = shape[0] if flat else math.prod(halved_shape(self._picture))
        rng = streams[f"{name}/init"]
        self.target = first_parameters(self.net.shapes, rng, 1 if flat else 0)
        self.theta = first_parameters(self.net.shapes, rng, 1 if flat else 0)
        self.norm = ObsNorm(self.size)
        self.rollouts = 0
        self._m, self._v = np.zeros_like(self.theta), np.zeros_like(self.theta)
        self._grad = np.zeros_like(self.theta)
        self._steps = 0
        self._running = np.zeros(0)
        self._moments = np.zeros(3)

    @property
    def weight(self) -> float:
        """Weight of the bonus now."""
        config = self.config
        if not config.weight_rollouts:
            return config.weight
        done = min(self.rollouts / config.weight_rollouts, 1.0)
        return config.weight + (config.last_weight - config.weight) * done

    @property
    def scale(self) -> float:
        """Deviation of the discounted return of the errors: what they are divided by."""
        return float(np.sqrt(self._moments[2] / max(self._moments[0], 1.0) + 1e-8))

    def bonus(self, rollout: Rollout) -> F32:
        """Return the weighted bonus of every step `[T, N]`; the rewards are left as they are."""
        if self.norm.count == 0:
            self._sampled(rollout)
            self.norm.merge()
        mask = rollout.mask[:-1]
        errors = np.zeros(mask.shape)
        errors[mask] = self.errors(_rows(rollout)[mask.ravel()])
        if len(self._running) != rollout.slots:
            self._running = np.zeros(rollout.slots)
        never = np.zeros(mask.shape, np.bool_)
        track_returns(errors, never, never, mask, self.config.gamma, self._running, self._moments)
        return (errors * (self.weight / self.scale)).astype(np.float32)

    def errors(self, obs: Array) -> npt.NDArray[np.float64]:
        """Return how badly the predictor knows raw observations `[n, ...]`: `[n]`."""
        found = np.empty(len(obs))
        for lo in range(0, len(obs), CHUNK):
            part = self._clipped(self.norm.apply(self._flatten(obs[lo : lo + CHUNK])))
            apart = self.net.features(self.theta, part) - self.net.features(self.target, part)
            found[lo : lo + CHUNK] = np.mean(apart * apart, axis=1)
        return found

    def learn(self, rollout: Rollout) -> dict[str, float]:
        """Teach the predictor a sample of the rollout; return loss, scale, weight and samples."""
        config = self.config
        self.rollouts += 1
        rows = self._sampled(rollout)
        losses = []
        for lo in range(0, len(rows), config.minibatch):
            part = rows[lo : lo + config.minibatch]
            goal = self.net.features(self.target, part)
            losses.append(self.net.gradient(self.theta, part, goal, self._grad))
            self._adam()
        self.norm.merge()
        return {
            "novelty_loss": float(np.mean(losses)) if losses else 0.0,
            "novelty_scale": self.scale,
            "novelty_weight": self.weight,
            "novelty_samples": float(len(rows)),
        }

    def _sampled(self, rollout: Rollout) -> F32:
        """Return normalised rows of steps drawn without repetition; their raw moments wait for `merge`."""
        open_steps = np.flatnonzero(rollout.mask[:-1])
        rng = self.streams[f"{self.name}/samples"]
        chosen = rng.permutation(open_steps)[: self.config.samples]
        rows = self._flatten(_rows(rollout)[chosen])
        self.norm.apply_in_place(rows, np.ones(len(rows), np.bool_))
        return self._clipped(rows)

    def _flatten(self, obs: Array) -> F32:
        """Return observations as fresh rows `[n, D]`, pictures halved."""
        if self._picture:
            channels, height, width = self._picture
            obs = halved(obs.reshape(len(obs), height, width, channels).transpose(0, 3, 1, 2))
        return obs.reshape(len(obs), self.size).astype(np.float32)

    def _clipped(self, rows: Array) -> F32:
        clip = self.config.clip
        return np.clip(rows, -clip, clip, out=rows)

    def _adam(self) -> None:
        (one, two), grad = BETAS, self._grad
        self._steps += 1
        self._m += (1 - one) * (grad - self._m)
        self._v += (1 - two) * (grad * grad - self._v)
        rate = self.config.lr * math.sqrt(1 - two**self._steps) / (1 - one**self._steps)
        self.theta -= np.float32(rate) * self._m / (np.sqrt(self._v) + np.float32(EPSILON))

    def state_dict(self) -> dict[str, Any]:
        """Return both networks, Adam, all statistics and the clock of the weight."""
        return {
            "target": self.target.copy(),
            "theta": self.theta.copy(),
            "m": self._m.copy(),
            "v": self._v.copy(),
            "steps": self._steps,
            "rollouts": self.rollouts,
            "norm": self.norm.state_dict(),
            "running": self._running.copy(),
            "moments": self._moments.copy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become the novelty that returned `state`; its networks must have the same sizes."""
        if len(state["theta"]) != len(self.theta):
            raise StorageError(
                f"The novelty '{self.name}' has {len(self.theta)} parameters, the checkpoint "
                f"{len(state['theta'])}. Resume with the observations, hidden and features it was made with."
            )
        self.target, self.theta = state["target"].copy(), state["theta"].copy()
        self._m, self._v = state["m"].copy(), state["v"].copy()
        self._steps, self.rollouts = int(state["steps"]), int(state["rollouts"])
        self.norm.load_state_dict(state["norm"])
        self._running, self._moments = state["running"].copy(), state["moments"].copy()


def _rows(rollout: Rollout) -> Array:
    """Return the observations of all steps, `[T * N, ...]`."""
    obs = rollout.obs[:-1]
    return obs.reshape(-1, *obs.shape[2:])
