"""Add up a row's gradient, step with Adam, copy rows of parameters to where tiles read them.

Gradients are added up by whole rows, because the last few floats of a row take scalar code that may round otherwise
than the vectors do: which elements those are must not depend on how rows are dealt to threads.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import math

import numpy as np

from holdfast.jit import kernel
from holdfast.learn.fused_simd import (
    LANES,
    VECTOR,
    address,
    fill,
    fill_wide,
    fma,
    load,
    load_wide,
    peek,
    poke,
    sqrt,
    store,
    total,
)
from holdfast.learn.fused_tiles import PANEL, WIDE
from holdfast.learn.fused_transpose import transpose

WEIGHT, BIAS, LOG_STD = range(3)
"""What a row of `theta` is (`fused_layout.ROW`)."""
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-5
ZERO = np.float32(0.0)


@kernel(inline=True)
def copy_here(source, size, to):
    """`copy_row` without a call, which costs more than a few floats do."""
    if size < 8:
        for j in range(size):
            poke(to + 4 * j, peek(source + 4 * j))
    else:
        for j in range(0, size - 8, 8):
            store(to + 4 * j, load(source + 4 * j))
        store(to + 4 * size - 32, load(source + 4 * size - 32))


@kernel
def copy_row(source, size, to):
    """Copy `size` floats, in whole vectors that overlap at the end rather than pass it."""
    copy_here(source, size, to)


@kernel
def clear_rows(at, row, first, last, columns):
    """Write zeros to `columns`, a multiple of 8, of rows `first..last-1`."""
    for r in range(at + first * row, at + last * row, row):
        for k in range(r, r + 4 * columns, 32):
            store(k, fill(ZERO))


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
    squares = np.float64(0.0)
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
def adam(lo, hi, theta, m, v, grad, coefficient, step_size, unbias, spare):
    """One step of torch's Adam on places `lo..hi-1` of `theta`; `unbias` is 1 / sqrt(1 - beta2^t).

    The last few go through `spare` (room for four vectors), so that every place takes the same instructions
    whatever `lo` and `hi` are.
    """
    w1, w2 = fill_wide(np.float32(1.0 - BETA1)), fill_wide(np.float32(1.0 - BETA2))
    w3, e = fill_wide(np.float32(BETA2)), fill_wide(np.float32(EPSILON))
    scale, size, bias = fill_wide(coefficient), fill_wide(step_size), fill_wide(unbias)
    for i in range(lo, hi, LANES):
        left = hi - i
        at, at_m, at_v, at_g = theta + 4 * i, m + 4 * i, v + 4 * i, grad + 4 * i
        if left < LANES:
            copy_row(at, left, spare)
            copy_row(at_m, left, spare + VECTOR)
            copy_row(at_v, left, spare + 2 * VECTOR)
            copy_row(at_g, left, spare + 3 * VECTOR)
            at, at_m, at_v, at_g = spare, spare + VECTOR, spare + 2 * VECTOR, spare + 3 * VECTOR
        g = load_wide(at_g) * scale
        mean = load_wide(at_m)
        mean = fma(g - mean, w1, mean)
        square = fma(g * g, w2, load_wide(at_v) * w3)
        store(at_m, mean)
        store(at_v, square)
        store(at, load_wide(at) - size * mean / fma(sqrt(square), bias, e))
        if left < LANES:
            copy_row(at, left, theta + 4 * i)
            copy_row(at_m, left, m + 4 * i)
            copy_row(at_v, left, v + 4 * i)


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
    for i in range(0, min(row.size, row.backward_wide), WIDE):
        copy_row(at + 4 * i, min(WIDE, row.size - i), to)
        to += PANEL * row.depth
    at, left = at + 4 * row.backward_wide, row.size - row.backward_wide
    if row.backward_half >= 0:
        copy_row(at, min(16, left), packed + row.backward_half)
        at, left = at + 64, left - 16
    if left > 0:
        copy_row(at, left, packed + row.backward_tail)


@kernel
def pack_rows(rows, net, theta, packed):
    """Copy one net of `theta` to where the tiles of one thread read it."""
    k, last = 0, rows.size
    while k < last:
        row = rows[k]
        count = 1
        if row.net != net:
            k += count
            continue
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
def pack(rows, nets, theta, packed):
    """Copy all of `theta` to where the tiles of every thread read it; needed after it was changed from outside."""
    for k in range(packed.shape[0]):
        for net in range(nets):
            pack_rows(rows, net, address(theta), address(packed) + 4 * packed.shape[1] * k)
