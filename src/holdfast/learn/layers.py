"""Torch layers that draw their first parameters from a NumPy stream: torch's own generator is never used."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from holdfast.learn.device import take
from holdfast.learn.spec import orthogonal
from holdfast.records import F32

SQRT2 = math.sqrt(2.0)


def write_orthogonal(weight: Tensor, rng: np.random.Generator, gain: float) -> None:
    """Make the matrix `[out, inputs]` that a weight stands for orthogonal, with rows of length `gain`."""
    rows = orthogonal(rng, len(weight), weight.numel() // len(weight), gain)
    with torch.no_grad():
        weight.copy_(torch.from_numpy(rows).reshape(weight.shape))


class Dense(nn.Linear):
    """A linear layer."""

    def __init__(self, inputs: int, outputs: int, gain: float = SQRT2) -> None:
        super().__init__(inputs, outputs)
        self.gain = gain

    def draw(self, rng: np.random.Generator) -> None:
        """Draw orthogonal weights; biases are zero."""
        write_orthogonal(self.weight, rng, self.gain)
        nn.init.zeros_(self.bias)


class Conv(nn.Conv2d):
    """A convolution with square kernels."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        side: int,
        stride: int = 1,
        padding: int = 0,
        gain: float = SQRT2,
    ) -> None:
        super().__init__(inputs, outputs, side, stride, padding)
        self.gain = gain

    def draw(self, rng: np.random.Generator) -> None:
        """Draw orthogonal weights; biases are zero."""
        write_orthogonal(self.weight, rng, self.gain)
        assert self.bias is not None
        nn.init.zeros_(self.bias)


class BlockConv(nn.Module):
    """A convolution whose stride is `block` and whose side is a multiple of it, for inputs laid out in blocks.

    `weight [outputs, channels, side, side]` is that of the ordinary convolution of the picture.
    """

    def __init__(self, channels: int, outputs: int, side: int, block: int) -> None:
        super().__init__()
        if side % block:
            raise ValueError(f"the side {side} is not a multiple of the stride {block}")
        self.block, self.parts = block, side // block
        self.weight = nn.Parameter(torch.empty(outputs, channels, side, side))
        self.bias = nn.Parameter(torch.empty(outputs))

    def draw(self, rng: np.random.Generator) -> None:
        """Draw orthogonal weights; biases are zero."""
        write_orthogonal(self.weight, rng, SQRT2)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return `[n, outputs, ...]` of blocks `[n, channels * block * block, h, w]`."""
        outputs, channels = self.weight.shape[:2]
        parts, block = self.parts, self.block
        weight = self.weight.reshape(outputs, channels, parts, block, parts, block)
        weight = weight.permute(0, 1, 3, 5, 2, 4).reshape(outputs, -1, parts, parts)
        return functional.conv2d(x, weight, self.bias)


class Norm(nn.LayerNorm):
    """Layer normalisation."""

    def draw(self, rng: np.random.Generator) -> None:
        """Begin with scale 1 and shift 0."""
        self.reset_parameters()


def draw_all(net: nn.Module, rng: np.random.Generator) -> None:
    """Draw the parameters of every layer of a network anew."""
    for module in net.modules():
        draw = getattr(module, "draw", None)
        if draw is not None:
            draw(rng)


def arrays(net: nn.Module) -> dict[str, F32]:
    """Return copies of all parameters by name."""
    return {k: take(v).copy() for k, v in net.state_dict().items()}


def load(net: nn.Module, parameters: Mapping[str, F32]) -> None:
    """Give a network its parameters, which may stand among those of others."""
    net.load_state_dict({k: torch.tensor(parameters[k]) for k in net.state_dict()})
