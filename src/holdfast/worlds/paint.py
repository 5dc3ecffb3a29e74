"""Compiled, antialiased shapes on RGB arrays, and text.

Each shape is a signed distance to its edge; the colour is blended over about one pixel round it. Places are in
pixels, y down; a colour is three floats. Text is drawn once and kept: a film says the same words again and again.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from PIL import Image as Pillow
from PIL import ImageDraw, ImageFont

from holdfast.jit import kernel
from holdfast.records import F64
from holdfast.store.media import Image


@kernel
def blend(image: Image, row: int, column: int, r: float, g: float, b: float, share: float) -> None:
    """Mix a colour into one pixel."""
    old = image[row, column]
    old[0] = np.uint8(old[0] + (r - old[0]) * share + 0.5)
    old[1] = np.uint8(old[1] + (g - old[1]) * share + 0.5)
    old[2] = np.uint8(old[2] + (b - old[2]) * share + 0.5)


@kernel
def ring(
    image: Image,
    cx: float,
    cy: float,
    radius: float,
    width: float,
    color: F64,
    alpha: float,
    dashes: int,
) -> None:
    """Draw a circle line of this width; with `dashes` > 0 it is cut into that many dashes. Width 0 fills."""
    reach = radius + width / 2.0 + 1.0
    for row in range(max(int(cy - reach), 0), min(int(cy + reach) + 2, image.shape[0])):
        for column in range(max(int(cx - reach), 0), min(int(cx + reach) + 2, image.shape[1])):
            dx, dy = column - cx, row - cy
            away = math.sqrt(dx * dx + dy * dy)
            edge = away - radius if width == 0.0 else abs(away - radius) - width / 2.0
            share = min(max(0.5 - edge, 0.0), 1.0) * alpha
            if share <= 0.0:
                continue
            if dashes > 0:
                turn = math.atan2(dy, dx) / (2.0 * math.pi) * dashes
                if turn - math.floor(turn) > 0.5:
                    continue
            blend(image, row, column, color[0], color[1], color[2], share)


@kernel
def segment(
    image: Image,
    x0: float,
    y0: float,
    x1: float,
    y1: float,
    width: float,
    color: F64,
    alpha: float,
) -> None:
    """Draw a straight line with round ends."""
    reach = width / 2.0 + 1.0
    top, bottom = min(y0, y1) - reach, max(y0, y1) + reach
    left, right = min(x0, x1) - reach, max(x0, x1) + reach
    dx, dy = x1 - x0, y1 - y0
    length = max(dx * dx + dy * dy, 1e-12)
    for row in range(max(int(top), 0), min(int(bottom) + 2, image.shape[0])):
        for column in range(max(int(left), 0), min(int(right) + 2, image.shape[1])):
            t = min(max(((column - x0) * dx + (row - y0) * dy) / length, 0.0), 1.0)
            ax, ay = column - x0 - t * dx, row - y0 - t * dy
            edge = math.sqrt(ax * ax + ay * ay) - width / 2.0
            share = min(max(0.5 - edge, 0.0), 1.0) * alpha
            if share > 0.0:
                blend(image, row, column, color[0], color[1], color[2], share)


@kernel
def path(image: Image, points: F64, width: float, color: F64, alpha: float) -> None:
    """Draw a line through all points `[n, 2]`."""
    for k in range(points.shape[0] - 1):
        segment(
            image, points[k, 0], points[k, 1], points[k + 1, 0], points[k + 1, 1], width, color, alpha
        )  # fmt: skip


@kernel
def wedge(
    image: Image,
    cx: float,
    cy: float,
    radius: float,
    heading: float,
    half_angle: float,
    color: F64,
    alpha: float,
    top: int,
    left: int,
    bottom: int,
    right: int,
) -> None:
    """Fill a sector of a disc, clipped to the given rectangle of the image; its rim is three times as strong."""
    for row in range(max(int(cy - radius) - 1, top), min(int(cy + radius) + 2, bottom)):
        for column in range(max(int(cx - radius) - 1, left), min(int(cx + radius) + 2, right)):
            dx, dy = column - cx, row - cy
            away = math.sqrt(dx * dx + dy * dy)
            edge = away - radius
            if edge >= 0.5:
                continue
            if half_angle < math.pi:
                turn = abs((math.atan2(dy, dx) - heading + math.pi) % (2.0 * math.pi) - math.pi)
                off = turn - half_angle
                side = away * math.sin(min(max(off, -math.pi / 2.0), math.pi / 2.0))
                edge = max(edge, side)
            share = min(max(0.5 - edge, 0.0), 1.0)
            if share > 0.0:
                rim = 3.0 if edge > -1.5 else 1.0
                blend(
                    image, row, column, color[0], color[1], color[2], min(share * alpha * rim, 1.0)
                )


@kernel
def arrow(
    image: Image, cx: float, cy: float, hx: float, hy: float, size: float, color: F64, rim: F64
) -> None:
    """Draw an arrowhead that looks along `(hx, hy)`, with a thin rim of another colour."""
    reach = 1.5 * size + 2.0
    for row in range(max(int(cy - reach), 0), min(int(cy + reach) + 2, image.shape[0])):
        for column in range(max(int(cx - reach), 0), min(int(cx + reach) + 2, image.shape[1])):
            dx, dy = column - cx, row - cy
            along, across = (dx * hx + dy * hy) / size, abs(dy * hx - dx * hy) / size
            # The outer edge runs from the tip (1.25, 0) to a barb (-0.85, 0.8), the inner one from the notch to it.
            outer = (along - 1.25) * 0.356 + across * 0.934
            inner = -(along + 0.45) * 0.894 - across * 0.447
            edge = max(outer, inner) * size
            outside = min(max(1.5 - edge, 0.0), 1.0)
            if outside <= 0.0:
                continue
            blend(image, row, column, rim[0], rim[1], rim[2], outside)
            share = min(max(0.5 - edge, 0.0), 1.0)
            if share > 0.0:
                blend(image, row, column, color[0], color[1], color[2], share)


def write(
    image: Image,
    x: float,
    y: float,
    text: str,
    color: tuple[int, int, int],
    size: int,
    anchor: str = "lm",
) -> None:
    """Write one line of text; `anchor` is l, m or r and then m (middle) or s (baseline), as in Pillow."""
    mask = _mask(text, size)
    height, width = mask.shape
    left = round(x - {"l": 0.0, "m": width / 2, "r": float(width)}[anchor[0]])
    top = round(y - {"m": height / 2, "s": height * 0.78}[anchor[1]])
    rows = slice(max(top, 0), min(top + height, image.shape[0]))
    columns = slice(max(left, 0), min(left + width, image.shape[1]))
    if rows.start >= rows.stop or columns.start >= columns.stop:
        return
    part = mask[rows.start - top : rows.stop - top, columns.start - left : columns.stop - left]
    place = image[rows, columns]
    place[...] = place + (np.array(color) - place) * part[:, :, None] + 0.5


def text_width(text: str, size: int) -> int:
    """Return how many pixels wide a line of text is."""
    return int(_mask(text, size).shape[1])


@lru_cache(maxsize=4096)
def _mask(text: str, size: int) -> Any:
    """Return how much of each pixel the text covers, `[height, width]` in 0 to 1; all heights are the same."""
    font: Any = ImageFont.load_default(size)
    width = max(round(font.getlength(text)), 1)
    height = round(1.3 * size)
    sheet = Pillow.new("L", (width, height))
    ImageDraw.Draw(sheet).text((0, height / 2), text, 255, font, anchor="lm")
    return np.asarray(sheet, np.float32) / 255.0
