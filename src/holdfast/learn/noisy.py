"""Parameter noise (Fortunato 2018): weights with a learned deviation, factorised Gaussian noise.

The noise is drawn when it is asked for, never by a forward pass: `set_noise(seed)` once a rollout, so that every action
of it and the log-probabilities that are kept belong to one policy. Without noise (`set_noise(None)`) the layer is linear
with its mean weights, as a frozen policy plays it.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from holdfast.learn.device import put
from holdfast.learn.layers import Dense
from holdfast.records import F32

SIGMA = 0.5
"""First deviation of a layer's output, as a share of that of its inputs."""


class NoisyLinear(Dense):
    """A linear layer whose weights are `weight + weight_sigma * noise`."""

    def __init__(self, inputs: int, outputs: int, gain: float) -> None:
        super().__init__(inputs, outputs, gain)
        self.weight_sigma = nn.Parameter(torch.empty(outputs, inputs))
        self.bias_sigma = nn.Parameter(torch.empty(outputs))
        self._noise: tuple[Tensor, Tensor] | None = None

    def draw(self, rng: np.random.Generator) -> None:
        """Draw the mean weights; the deviations are constant."""
        super().draw(rng)
        nn.init.constant_(self.weight_sigma, SIGMA / math.sqrt(self.in_features))
        nn.init.constant_(self.bias_sigma, SIGMA / math.sqrt(self.in_features))

    def set_noise(self, rng: np.random.Generator | None) -> None:
        """Use new noise from `rng` from now on, or none."""
        self._noise = None
        if rng is not None:
            inputs = _shaped(rng.standard_normal(self.in_features, np.float32))
            outputs = _shaped(rng.standard_normal(self.out_features, np.float32))
            device = self.weight.device
            self._noise = put(np.outer(outputs, inputs), device), put(outputs, device)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output for rows `[..., inputs]`."""
        if self._noise is None:
            return functional.linear(x, self.weight, self.bias)
        weight = self.weight + self.weight_sigma * self._noise[0]
        return functional.linear(x, weight, self.bias + self.bias_sigma * self._noise[1])


def _shaped(normal: F32) -> F32:
    """Return sign(x) * sqrt(|x|), so that products of two have about unit size."""
    return np.sign(normal) * np.sqrt(np.abs(normal))
