"""The shapes of the shoal, as `worlds/paint.py` draws them: water and fish."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from holdfast.jit import kernel
from holdfast.records import F32, F64, Bools
from holdfast.store.media import Image
from holdfast.worlds.paint import blend


@kernel
def fish_shape(
    image: Image, cx: float, cy: float, hx: float, hy: float, size: float, color: F64, alpha: float
) -> None:
    """Draw a fish of length `2.4 size` that looks along `(hx, hy)`: a drop with a forked tail."""
    reach = 1.8 * size + 1.0
    for row in range(max(int(cy - reach), 0), min(int(cy + reach) + 2, image.shape[0])):
        for column in range(max(int(cx - reach), 0), min(int(cx + reach) + 2, image.shape[1])):
            dx, dy = column - cx, row - cy
            along = (dx * hx + dy * hy) / size
            across = abs(dy * hx - dx * hy) / size
            body = drop(along, across)
            tail = max(max(-1.55 - along, along + 0.9), across - 0.25 - (-0.9 - along) * 0.75)
            share = min(max(0.5 - min(body, tail) * size, 0.0), 1.0) * alpha
            if share > 0.0:
                blend(image, row, column, color[0], color[1], color[2], share)


@kernel
def drop(along: float, across: float) -> Any:
    """Return the distance to a tapered capsule: radius 0.55 at 0.45 ahead, 0.12 at 1.0 behind."""
    t = min(max((0.45 - along) / 1.45, 0.0), 1.0)
    dx = along - (0.45 - 1.45 * t)
    return math.sqrt(dx * dx + across * across) - (0.55 - 0.43 * t)


@kernel
def water(image: Image, top: int, cx: float, cy: float, radius: float) -> None:
    """Fill the image from row `top` on with the stage: a lit disc of water on a dark ground."""
    for row in range(top, image.shape[0]):
        for column in range(image.shape[1]):
            dx, dy = column - cx, row - cy
            away = math.sqrt(dx * dx + dy * dy)
            share = min(max(0.5 - (away - radius), 0.0), 1.0)
            deep = min(away / radius, 1.0) ** 2
            image[row, column, 0] = np.uint8(11 + (24 - 13 * deep - 11) * share)
            image[row, column, 1] = np.uint8(15 + (86 - 48 * deep - 15) * share)
            image[row, column, 2] = np.uint8(21 + (118 - 56 * deep - 21) * share)


@kernel
def shoal(
    image: Image,
    x: F32,
    y: F32,
    vx: F32,
    vy: F32,
    alive: Bools,
    seen: Bools,
    cx: float,
    cy: float,
    scale: float,
    size: float,
    colors: F64,
) -> None:
    """Draw all fish: the dead first, then the living, in the rows of `colors` (dead, calm, alarmed)."""
    for wanted in (False, True):
        for i in range(x.shape[0]):
            if alive[i] != wanted:
                continue
            speed = math.sqrt(vx[i] * vx[i] + vy[i] * vy[i])
            hx = vx[i] / speed if speed > 0.01 else 1.0
            hy = -vy[i] / speed if speed > 0.01 else 0.0
            kind = 0 if not wanted else (2 if seen[i] else 1)
            fish_shape(
                image, cx + x[i] * scale, cy - y[i] * scale, hx, hy,
                size if wanted else 0.8 * size, colors[kind], 0.95 if wanted else 0.45,
            )  # fmt: skip
