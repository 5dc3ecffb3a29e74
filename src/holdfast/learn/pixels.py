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

import numpy as np
import numpy.typing as npt

from holdfast.jit import kernel
from holdfast.learn.spec import NetSpec
from holdfast.records import F32, Array, Bools

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

    def floats(self) -> int:
        """Return how many numbers one stack has."""
        return math.prod(self.shape)
