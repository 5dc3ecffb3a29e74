"""Networks that read stacked pictures; all end in one vector that the heads, or the memory, read.

| name   | layers (84 x 84 x 4)                                            | parameters | multiply-adds |
|--------|-----------------------------------------------------------------|------------|---------------|
| small  | 32 of 6x6/6, 32 of 3x3/2, 32 of 3x3, 256                        |     0.24 M |         1.8 M |
| nature | 32 of 8x8/4, 64 of 4x4/2, 64 of 3x3, 512                        |      1.7 M |         9.3 M |
| impala | 3 x (3x3, pool, 2 residual units) of 16, 32, 32, then 256       |      1.1 M |          54 M |
| big    | 32 of 3x3, 3 x (3x3, pool, 2 residual units) of 64 to 256, 512  |       19 M |        1220 M |

None has batch normalisation: its statistics would differ between acting and learning, and the policy with them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from holdfast.learn.layers import SQRT2, BlockConv, Conv, Dense
from holdfast.learn.pixels import BLOCK
from holdfast.learn.spec import NetSpec


class Plain(nn.Module):
    """Convolutions with ReLU, then a dense layer."""

    def __init__(
        self, spec: NetSpec, side: int, width: int, convs: list[tuple[int, int, int, int]], out: int
    ) -> None:
        """`side` and `width` are of the first layer; `convs` holds (outputs, side, stride, padding)."""
        super().__init__()
        height, breadth, channels = spec.picture
        block = BLOCK[spec.trunk]
        self.stem = BlockConv(spec.stack * channels, width, side, block)
        sides = [(s - side) // block + 1 for s in (height, breadth)]
        layers = []
        for outputs, k, stride, padding in convs:
            layers.append(Conv(width, outputs, k, stride, padding))
            sides = [(s + 2 * padding - k) // stride + 1 for s in sides]
            width = outputs
        self.convs = nn.ModuleList(layers)
        self.out = Dense(width * sides[0] * sides[1], out)
        self.width = out

    def forward(self, x: Tensor) -> Tensor:
        """Return `[n, width]`."""
        x = torch.relu(self.stem(x))
        for conv in self.convs:
            x = torch.relu(conv(x))
        return torch.relu(self.out(x.flatten(1)))


class Residual(nn.Module):
    """Two convolutions beside a short cut."""

    def __init__(self, width: int, units: int, first: bool) -> None:
        """`first` applies ReLU before the convolutions (IMPALA), else after the sum; `units` is how many there are."""
        super().__init__()
        self.first = first
        self.one = Conv(width, width, 3, padding=1)
        # All units together add about as much as went in: without batch normalisation it would grow with depth.
        self.two = Conv(width, width, 3, padding=1, gain=SQRT2 / units)

    def forward(self, x: Tensor) -> Tensor:
        """Return a picture like `x`."""
        y = self.two(torch.relu(self.one(torch.relu(x) if self.first else x)))
        return x + y if self.first else torch.relu(x + y)


class Deep(nn.Module):
    """Stages of a convolution, a pooling and residual units, then a dense layer."""

    def __init__(
        self, spec: NetSpec, stem: int, widths: tuple[int, ...], out: int, first: bool
    ) -> None:
        """`stem` is the width of a convolution before the stages, 0 for none."""
        super().__init__()
        height, breadth, channels = spec.picture
        width, units = spec.stack * channels, 2 * len(widths)
        self.first = first
        self.stem = Conv(width, stem, 3, padding=1) if stem else None
        width = stem or width
        self.convs, self.units = nn.ModuleList(), nn.ModuleList()
        for outputs in widths:
            self.convs.append(Conv(width, outputs, 3, padding=1))
            self.units.extend([Residual(outputs, units, first) for _ in range(2)])
            height, breadth, width = (height + 1) // 2, (breadth + 1) // 2, outputs
        self.out = Dense(width * height * breadth, out)
        self.width = out

    def forward(self, x: Tensor) -> Tensor:
        """Return `[n, width]`."""
        if self.stem is not None:
            x = torch.relu(self.stem(x))
        for k, conv in enumerate(self.convs):
            x = conv(x) if self.first else torch.relu(conv(x))
            x = functional.max_pool2d(x, 3, 2, 1)
            x = self.units[2 * k + 1](self.units[2 * k](x))
        return torch.relu(self.out(torch.relu(x).flatten(1)))


def make_trunk(spec: NetSpec) -> Plain | Deep:
    """Return the network that `spec.trunk` names."""
    if spec.trunk == "small":
        return Plain(spec, 6, 32, [(32, 3, 2, 1), (32, 3, 1, 0)], 256)
    if spec.trunk == "nature":
        return Plain(spec, 8, 32, [(64, 4, 2, 0), (64, 3, 1, 0)], 512)
    if spec.trunk == "impala":
        return Deep(spec, 0, (16, 32, 32), 256, first=True)
    if spec.trunk == "big":
        return Deep(spec, 32, (64, 128, 256), 512, first=False)
    raise ValueError(f"{spec.trunk} reads no pictures")
