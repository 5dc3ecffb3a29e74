"""Area resize of grey pictures in exact integers.

Every pixel of the small picture is the mean of the area that it covers in the large one. Widths are
counted in units of 1/w source pixels, so all weights are whole numbers, the sum is exact, and the
result is the mean rounded half up: no float, no dependence on the processor.
"""

from __future__ import annotations

import numpy as np

from holdfast.jit import kernel
from holdfast.worlds.mario.machine import Bytes, widen


@kernel
def shrink(screen: Bytes, top: int, out: Bytes) -> None:
    """Set `out [h, w]` to the area resize of the lines of `screen [H, W]` from `top` on.

    `out` must not be larger than the source in either direction, which is at most 256 high or wide.
    """
    height, width = screen.shape[0] - top, screen.shape[1]
    rows, columns = out.shape
    # Division by height*width as a multiplication: exact, for sums stay below 2**24.
    inverse = (1 << 40) // (height * width) + 1
    half = height * width // 2
    sums = np.empty(width, np.uint16)  # of the lines under one row of `out`, at most 255 * height
    areas = np.empty(width + 2, np.int64)  # areas[x]: sum over everything left of x
    places = np.empty(columns + 1, np.int64)  # where the edge of a column lies: in which pixel,
    parts = np.empty(columns + 1, np.int64)  # and how far into it
    for column in range(columns + 1):
        places[column] = column * width // columns
        parts[column] = column * width % columns
    for row in range(rows):
        begin, end = row * height, (row + 1) * height
        for x in range(width):
            sums[x] = 0
        for line in range(begin // rows, (end + rows - 1) // rows):
            weight = np.uint16(min(end, (line + 1) * rows) - max(begin, line * rows))
            source = screen[top + line]
            for x in range(width):
                sums[x] += weight * np.uint16(source[x])
        area = widen(0)
        for x in range(width):
            areas[x] = area
            area += sums[x]
        areas[width] = areas[width + 1] = area
        before = widen(0)
        for column in range(1, columns + 1):
            x = places[column]
            upto = columns * areas[x] + parts[column] * (areas[x + 1] - areas[x])
            out[row, column - 1] = ((upto - before + half) * inverse) >> 40
            before = upto


@kernel
def keep_brightest(other: Bytes, screen: Bytes) -> None:
    """Set every pixel of `screen` to the larger of itself and `other`: undoes sprite flicker."""
    height, width = screen.shape
    for y in range(height):
        for x in range(width):
            screen[y, x] = max(screen[y, x], other[y, x])
