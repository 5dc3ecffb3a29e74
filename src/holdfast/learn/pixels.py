"""From frames that are kept once to the stacks that a network reads.

    view = View(spec)
    inputs = view.empty(64)                                    # float32 [64, h, w, channels]
    view.fill(frames, begun, rows, slots, inputs[:len(rows)])

A stack is the newest frame and those before it in the same episode; where the episode has fewer, its first frame is
repeated (as `worlds.mario.frames.stack_rows` says).

The first layer of most networks is a convolution whose side is a multiple of its stride p. Laid out as blocks of p x p
pixels, channels last, it is a convolution of stride 1 with p * p times as many channels and p times smaller sides: the
same numbers, but two to four times as fast on a CPU, because its vectors are full.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from holdfast.jit import kernel
from holdfast.learn.spec import NetSpec
from holdfast.records import F32, Array, Bools

if TYPE_CHECKING:
    from torch import Tensor

Longs = npt.NDArray[np.int64]
MIDDLE, SPREAD = 128.0, 40.0
"""What the network reads of a byte is (byte - MIDDLE) / SPREAD. A figure differs from its background by a tenth of the
range: over 255, without the shift, the first layer would see little but the background's grey."""
BLOCK = {"small": 6, "nature": 4, "impala": 1, "big": 1}
"""Side of the blocks that the first layer of a network reads."""


def _filler(side: int) -> Callable[..., None]:
    """Return the kernel for blocks of `side` x `side` pixels: a constant there lets the inner loops be unrolled."""

    @kernel
    def fill(
        frames: Array,
        begun: Bools,
        rows: Longs,
        slots: Longs,
        stack: int,
        middle: np.float32,
        scale: np.float32,
        out: F32,
    ) -> None:
        """Write the stacks of `frames [R, N, H, W, C]` that end at (rows[b], slots[b]) to `out`."""
        height, width, channels = out.shape[1], out.shape[2], frames.shape[4]
        for b in range(len(rows)):
            row, slot = rows[b], slots[b]
            for k in range(stack - 1, -1, -1):
                frame = frames[row, slot]
                for c in range(channels):
                    at = (k * channels + c) * side * side
                    for y in range(height):
                        for x in range(width):
                            for i in range(side):
                                for j in range(side):
                                    out[b, y, x, at + i * side + j] = (
                                        frame[y * side + i, x * side + j, c] - middle
                                    ) * scale
                if row > 0 and not begun[row, slot]:
                    row -= 1

    return fill


FILL = {side: _filler(side) for side in sorted(set(BLOCK.values()))}


class View:
    """How a network sees pictures: size, stack, and the layout of its first layer."""

    def __init__(self, spec: NetSpec) -> None:
        self.block = BLOCK[spec.trunk]
        self.stack = spec.stack
        self.picture = spec.picture
        height, width, channels = spec.picture
        self.shape = (
            height // self.block,
            width // self.block,
            spec.stack * channels * self.block**2,
        )
        middle, spread = (MIDDLE, SPREAD) if spec.pixel == "uint8" else (0.0, 1.0)
        self.middle, self.scale = np.float32(middle), np.float32(1 / spread)
        self._fill = FILL[self.block]

    def empty(self, count: int) -> F32:
        """Return room for `count` stacks."""
        return np.empty((count, *self.shape), np.float32)

    def fill(self, frames: Array, begun: Bools, rows: Longs, slots: Longs, out: F32) -> None:
        """Write the stacks that end at row `rows[b]` of slot `slots[b]` of `frames [R, N, D]`."""
        pictures = frames.reshape(*frames.shape[:2], *self.picture)
        self._fill(pictures, begun, rows, slots, self.stack, self.middle, self.scale, out)

    def stacks(self, frames: Array, begun: Bools, rows: Longs, slots: Longs) -> Array:
        """Return the same stacks as they are stored, `[n, stack, H, W, C]`: a quarter of the bytes, for a device that lays
        them out itself."""
        places = np.empty((len(rows), self.stack), np.int64)
        at = rows
        for k in range(self.stack - 1, -1, -1):
            places[:, k] = at
            at = np.where((at > 0) & ~begun[at, slots], at - 1, at)
        pictures: Array = frames.reshape(*frames.shape[:2], *self.picture)
        return pictures[places, slots[:, None]]

    def lay_out(self, stacks: Tensor) -> Tensor:
        """Return `[n, channels, h, w]` of the stacks, where they are: what `fill` writes."""
        (height, width, _), side = self.shape, self.block
        count, stack, channels = len(stacks), self.stack, stacks.shape[4]
        whole = stacks[:, :, : height * side, : width * side].float()
        blocks = whole.reshape(count, stack, height, side, width, side, channels)
        read = (blocks - float(self.middle)) * float(self.scale)
        return read.permute(0, 1, 6, 3, 5, 2, 4).reshape(count, -1, height, width)

    def floats(self) -> int:
        """Return how many numbers one stack has."""
        return math.prod(self.shape)
