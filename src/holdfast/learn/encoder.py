"""What reads the sensors of pursuit: lidar, history and state, joined into one vector (`learner.net = "sensors"`).

    history [L, 7 + R]   bimdn  two LSTMs of 64, forward and backward in time -> 128 -> 32, tanh
                         lstm   one LSTM of 64 -> 32, tanh
                         mlp    flat -> 128 -> 128 -> 32, tanh
    lidar [R]            convolutions round the circle of rays: 32, 64 of width 5, mean of each quarter -> 256
    state [7]            64 -> 64
    together 352         256 -> 256

`worlds/pursuit/sensors.py` says where these stand in an observation. With `bimdn`, what the LSTMs hold at the end, 128
numbers, is also read by a mixture density of the opponent's place: see `belief.py`.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from holdfast.learn.layers import SQRT2, Dense, write_orthogonal
from holdfast.learn.memory import Lstm
from holdfast.learn.spec import PLACE, STATE, NetSpec

SIZES = (10.0, 10.0, math.pi, 1.0, 2.0, 10.0, 1.0)
"""What the state is divided by where it comes in metres, radians and their rates: x, y, theta, v, omega, distance,
bearing."""
REACH = 5.0
"""The same for a lidar reading."""
MIXTURES = 5
QUARTERS = 4
LSTM, LATENT = 64, 32


class Circle(nn.Conv1d):
    """A convolution over rays that form a circle, with ReLU after it."""

    def __init__(self, inputs: int, outputs: int, side: int) -> None:
        super().__init__(inputs, outputs, side, padding=side // 2, padding_mode="circular")

    def draw(self, rng: np.random.Generator) -> None:
        """Draw orthogonal weights; biases are zero."""
        write_orthogonal(self.weight, rng, SQRT2)
        assert self.bias is not None
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return `[n, outputs, R]`."""
        return torch.relu(super().forward(x))


class Mixture(nn.Module):
    """A mixture of Gaussians over a place, each with a deviation of its own in x and y."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.weights = Dense(inputs, MIXTURES, 1.0)
        self.means = Dense(inputs, MIXTURES * PLACE, 1.0)
        self.deviations = Dense(inputs, MIXTURES * PLACE, 1.0)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-weights `[n, 5]`, means and deviations `[n, 5, 2]`, in units of `SIZES`."""
        shape = (len(x), MIXTURES, PLACE)
        deviations = functional.softplus(self.deviations(x)) + 1e-6
        return (
            torch.log_softmax(self.weights(x), 1),
            self.means(x).reshape(shape),
            deviations.reshape(shape),
        )


class Sensors(nn.Module):
    """Reads rows `[n, R + L (7 + R) + 7]`."""

    def __init__(self, spec: NetSpec) -> None:
        super().__init__()
        self.rays, self.rows = spec.sensors
        self.encoder, self.metres = spec.encoder, spec.metres
        width = STATE + self.rays
        if self.encoder == "mlp":
            self.flat = nn.ModuleList([Dense(self.rows * width, 128), Dense(128, 128)])
            held = 128
        else:
            self.ahead = Lstm(width, LSTM)
            held = LSTM
        if self.encoder == "bimdn":
            self.back = Lstm(width, LSTM)
            held = 2 * LSTM
            self.mixture = Mixture(held)
        self.latent = Dense(held, LATENT, 1.0)
        self.lidar = nn.ModuleList([Circle(1, 32, 5), Circle(32, 64, 5)])
        self.state = nn.ModuleList([Dense(STATE, 64), Dense(64, 64)])
        self.join = nn.ModuleList([Dense(LATENT + 64 * QUARTERS + 64, 256), Dense(256, 256)])
        self.width = 256
        sizes = SIZES + (REACH,) * self.rays if self.metres else (1.0,) * width
        self.register_buffer("sizes", torch.tensor(sizes), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the features `[n, 256]`."""
        return self.read(x)[0]

    def read(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features `[n, 256]` and what the history has come to, `[n, 128]` (`lstm`: 64)."""
        assert isinstance(self.sizes, Tensor)
        lidar, rows, state = x[:, : self.rays], x[:, self.rays : -STATE], x[:, -STATE:]
        history = rows.reshape(len(x), self.rows, -1) / self.sizes
        held = self._history(history)
        rays = (lidar / self.sizes[STATE:]).unsqueeze(1)
        for ring in self.lidar:
            rays = ring(rays)
        quarters = functional.adaptive_avg_pool1d(rays, QUARTERS).flatten(1)
        own = state / self.sizes[:STATE]
        for layer in self.state:
            own = torch.relu(layer(own))
        joined = torch.cat([torch.tanh(self.latent(held)), quarters, own], 1)
        for layer in self.join:
            joined = torch.relu(layer(joined))
        return joined, held

    def _history(self, rows: Tensor) -> Tensor:
        if self.encoder == "mlp":
            flat = rows.flatten(1)
            for layer in self.flat:
                flat = torch.relu(layer(flat))
            return flat
        steps = rows.transpose(0, 1)
        held = final(self.ahead, steps)
        if self.encoder == "lstm":
            return held
        return torch.cat([held, final(self.back, steps.flip(0))], 1)


def final(cell: Lstm, steps: Tensor) -> Tensor:
    """Return the output `[n, H]` after the last of `steps [L, n, F]`, beginning empty."""
    nothing = steps.new_zeros(steps.shape[1], 2 * cell.width)
    _, state = cell(steps, nothing, steps.new_zeros(steps.shape[:2], dtype=torch.bool))
    held: Tensor = state[:, : cell.width]
    return held
