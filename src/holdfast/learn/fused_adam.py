"""One row of parameters at a time: add up its gradient, step with Adam, copy it to where tiles read it.

Whole rows, because the last few floats of a row take scalar code that may round otherwise than the
vectors do: which elements those are must not depend on how rows are dealt to threads.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import math

import numpy as np

from holdfast.jit import kernel
from holdfast.learn.fused_simd import address, fill, fma, load, peek, poke, sqrt, store, total
from holdfast.learn.fused_transpose import transpose

WEIGHT, BIAS, LOG_STD = range(3)
"""What a row of `theta` is (`fused_layout.ROW`)."""
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-5
ZERO = np.float32(0.0)


@kernel
def copy_row(source, size, to):
    """Copy `size` floats, in whole vectors that overlap at the end rather than pass it."""
    if size < 8:
        for j in range(size):
            poke(to + 4 * j, peek(source + 4 * j))
        return
    for j in range(0, size - 8, 8):
        store(to + 4 * j, load(source + 4 * j))
    store(to + 4 * size - 32, load(source + 4 * size - 32))


@kernel
def reduce_row(row, lanes, grads, lane_bytes, settings, theta, anchor, fisher, grad):
    """Write the lanes' summed gradient of one row, with penalties; return the sum of its squares."""
    at, to = grads + row.grad, grad + 4 * row.theta
    whole = row.size // 8 * 8
    s = fill(ZERO)
    for i in range(0, 4 * whole, 32):
        g = load(at + i)
        for lane in range(1, lanes):
            g = g + load(at + lane * lane_bytes + i)
        store(to + i, g)
        s = fma(g, g, s)
    squares = np.float64(total(s))
    for i in range(4 * whole, 4 * row.size, 4):
        x = peek(at + i)
        for lane in range(1, lanes):
            x += peek(at + lane * lane_bytes + i)
        poke(to + i, x)
        squares += np.float64(x) ** 2
    if row.kind != LOG_STD and not settings.ewc > 0:
        return squares
    squares = 0.0
    for i in range(row.size):
        x = peek(to + 4 * i)
        if row.kind == LOG_STD:
            x -= np.float32(settings.entropy)
        if settings.ewc > 0:
            k = row.theta + i
            x += np.float32(settings.ewc) * fisher[k] * (theta[k] - anchor[k])
        poke(to + 4 * i, x)
        squares += np.float64(x) ** 2
    return squares


@kernel
def adam_row(row, theta, m, v, grad, coefficient, step_size, unbias):
    """One step of torch's Adam on one row; `unbias` is 1 / sqrt(1 - beta2^t)."""
    b1, b2 = np.float32(1.0 - BETA1), np.float32(1.0 - BETA2)
    keep2, eps = np.float32(BETA2), np.float32(EPSILON)
    w1, w2, w3 = fill(b1), fill(b2), fill(keep2)
    scale, size, bias, e = fill(coefficient), fill(step_size), fill(unbias), fill(eps)
    end = row.theta + row.size
    i = row.theta
    while i + 8 <= end:
        o = 4 * i
        g = load(grad + o) * scale
        mean = load(m + o)
        mean = fma(g - mean, w1, mean)
        square = fma(g * g, w2, load(v + o) * w3)
        store(m + o, mean)
        store(v + o, square)
        store(theta + o, load(theta + o) - size * mean / fma(sqrt(square), bias, e))
        i += 8
    while i < end:
        o = 4 * i
        x = peek(grad + o) * coefficient
        mean1 = peek(m + o)
        mean1 += (x - mean1) * b1
        square1 = peek(v + o) * keep2 + x * x * b2
        poke(m + o, mean1)
        poke(v + o, square1)
        poke(
            theta + o,
            peek(theta + o) - step_size * mean1 / (np.float32(math.sqrt(square1)) * unbias + eps),
        )
        i += 1


@kernel
def _pack_forward(row, theta, packed):
    """Copy one row of `theta` to where forward products read it."""
    at = theta + 4 * row.theta
    to = packed + row.forward
    if row.kind == WEIGHT:
        for i in range(row.size):
            poke(to + i * row.forward_step, peek(at + 4 * i))
        return
    copy_row(at, row.size, to)
    if row.kind == LOG_STD:
        for i in range(row.size):
            poke(to + row.forward_step + 4 * i, np.float32(math.exp(-peek(at + 4 * i))))


@kernel
def _pack_backward(row, theta, packed):
    """Copy one row of `theta` to where backward products read it."""
    if row.backward < 0:
        return
    at = theta + 4 * row.theta
    to = packed + row.backward
    for i in range(0, min(row.size, row.backward_wide), 16):
        copy_row(at + 4 * i, min(16, row.size - i), to)
        to += 64 * row.depth
    if row.size > row.backward_wide:
        i = row.backward_wide
        copy_row(at + 4 * i, row.size - i, packed + row.backward_tail)


@kernel
def pack_rows(rows, first, last, theta, packed):
    """Copy rows `first..last-1` of `theta` to where the tiles read them."""
    k = first
    while k < last:
        row = rows[k]
        count = 1
        if row.eight and k + 8 <= last:
            # Blocks that overlap at the end rather than pass it.
            count = 8
            for i in range(0, row.size, 8):
                j = min(i, row.size - 8)
                transpose(theta + 4 * (row.theta + j), 4 * row.size,
                          packed + row.forward + j * row.forward_step, row.forward_step)  # fmt: skip
        else:
            _pack_forward(row, theta, packed)
        for i in range(k, k + count):
            _pack_backward(rows[i], theta, packed)
        k += count


@kernel
def pack(rows, theta, packed):
    """Copy all of `theta` to where the tiles read it; needed after it was changed from outside."""
    pack_rows(rows, 0, rows.size, address(theta), address(packed))
