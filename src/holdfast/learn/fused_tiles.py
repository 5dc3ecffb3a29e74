"""Register-blocked matrix products over one block of samples: the arithmetic of the fused learner.

Everything is a product `C[r, :] (+)= sum_k A[r, k] * B[k, :]` in tiles of 6 rows by 16 (or 8) columns:
twelve accumulators, two loads and six broadcasts for twelve multiply-adds. Strides are in bytes, so
one tile serves all three products of a layer:

    forward   rows = samples,  k = inputs,   columns = outputs  (B packed by `pack`)
    backward  rows = samples,  k = outputs,  columns = inputs   (B packed by `pack`)
    gradient  rows = outputs,  k = samples,  columns = inputs   (A and B are activations as they lie)

Rows are padded to six and columns to eight in every buffer; what lands in the padding is never read
as a result.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import numpy as np

from holdfast.jit import kernel
from holdfast.learn.fused_simd import (
    fill,
    fma,
    load,
    peek,
    poke,
    prefetch,
    splat,
    store,
    tanh,
    total,
    upper_of,
    where_less,
)

ROWS = 6
WIDE = 16
LINEAR, TANH, RELU, TANH_SLOPE, RELU_SLOPE, ADD, SET, MINUS = range(8)
"""What becomes of a product: + bias [and activation]; times the slope of the activation whose
output C holds; or added to C; or written to C, as it is or with the other sign."""

FEW = 5
"""Outputs of a linear layer up to which `few_product` is faster than tiles of eight columns."""
ZERO = np.float32(0.0)
ONE = np.float32(1.0)


@kernel
def finish(v, at, bias, mode):
    """Store one finished vector at `at` as `mode` (not TANH: see `_tanh_rows`) says."""
    if mode == TANH_SLOPE:
        h = load(at)
        store(at, v - v * (h * h))
    elif mode == LINEAR:
        store(at, v + load(bias))
    elif mode == RELU:
        store(at, upper_of(v + load(bias), fill(ZERO)))
    elif mode == RELU_SLOPE:
        store(at, where_less(fill(ZERO), load(at), v, fill(ZERO)))
    elif mode == ADD:
        store(at, load(at) + v)
    elif mode == MINUS:
        store(at, fill(ZERO) - v)
    else:
        store(at, v)


@kernel
def _tanh_rows(at, row, columns):
    """Replace six rows by their hyperbolic tangents.

    In a loop of its own, because inside a tile the accumulators leave no registers to overlap them in.
    """
    for r in range(ROWS):
        for k in range(at + r * row, at + r * row + 4 * columns, 32):
            store(k, tanh(load(k)))


@kernel
def finish_row(x, y, at, bias, mode):
    """`finish` 16 columns of one row."""
    finish(x, at, bias, mode)
    finish(y, at + 32, bias + 32, mode)


@kernel(inline=True)
def _step6(a, a_row, b, x0, x1, x2, x3, x4, x5, y0, y1, y2, y3, y4, y5):
    """Add what one k gives six rows of 16 columns."""
    p, q = load(b), load(b + 32)
    s = splat(a)
    x0, y0 = fma(s, p, x0), fma(s, q, y0)
    s = splat(a + a_row)
    x1, y1 = fma(s, p, x1), fma(s, q, y1)
    s = splat(a + 2 * a_row)
    x2, y2 = fma(s, p, x2), fma(s, q, y2)
    s = splat(a + 3 * a_row)
    x3, y3 = fma(s, p, x3), fma(s, q, y3)
    s = splat(a + 4 * a_row)
    x4, y4 = fma(s, p, x4), fma(s, q, y4)
    s = splat(a + 5 * a_row)
    x5, y5 = fma(s, p, x5), fma(s, q, y5)
    return x0, x1, x2, x3, x4, x5, y0, y1, y2, y3, y4, y5


@kernel(inline=True)
def _step4(a, a_row, b, x0, x1, x2, x3, y0, y1, y2, y3):
    """Add what one k gives four rows of 16 columns."""
    p, q = load(b), load(b + 32)
    s = splat(a)
    x0, y0 = fma(s, p, x0), fma(s, q, y0)
    s = splat(a + a_row)
    x1, y1 = fma(s, p, x1), fma(s, q, y1)
    s = splat(a + 2 * a_row)
    x2, y2 = fma(s, p, x2), fma(s, q, y2)
    s = splat(a + 3 * a_row)
    x3, y3 = fma(s, p, x3), fma(s, q, y3)
    return x0, x1, x2, x3, y0, y1, y2, y3


@kernel(inline=True)
def add6(depth, a, a_row, a_k, b, b_k, x0, x1, x2, x3, x4, x5, y0, y1, y2, y3, y4, y5):
    """Return the sums of six rows of 16 columns, x the left eight and y the right, after `depth` more products.

    Two at a time, because a core that shares its front end with another's load runs out of instructions first.
    """
    for _ in range(depth // 2):
        x0, x1, x2, x3, x4, x5, y0, y1, y2, y3, y4, y5 = (
            _step6(a, a_row, b, x0, x1, x2, x3, x4, x5, y0, y1, y2, y3, y4, y5)
        )  # fmt: skip
        x0, x1, x2, x3, x4, x5, y0, y1, y2, y3, y4, y5 = (
            _step6(a + a_k, a_row, b + b_k, x0, x1, x2, x3, x4, x5, y0, y1, y2, y3, y4, y5)
        )  # fmt: skip
        a += 2 * a_k
        b += 2 * b_k
    if depth % 2:
        x0, x1, x2, x3, x4, x5, y0, y1, y2, y3, y4, y5 = (
            _step6(a, a_row, b, x0, x1, x2, x3, x4, x5, y0, y1, y2, y3, y4, y5)
        )  # fmt: skip
    return x0, x1, x2, x3, x4, x5, y0, y1, y2, y3, y4, y5


@kernel(inline=True)
def add4(depth, a, a_row, a_k, b, b_k, x0, x1, x2, x3, y0, y1, y2, y3):
    """`add6` for four rows."""
    for _ in range(depth // 2):
        x0, x1, x2, x3, y0, y1, y2, y3 = (
            _step4(a, a_row, b, x0, x1, x2, x3, y0, y1, y2, y3)
        )  # fmt: skip
        x0, x1, x2, x3, y0, y1, y2, y3 = (
            _step4(a + a_k, a_row, b + b_k, x0, x1, x2, x3, y0, y1, y2, y3)
        )  # fmt: skip
        a += 2 * a_k
        b += 2 * b_k
    if depth % 2:
        x0, x1, x2, x3, y0, y1, y2, y3 = (
            _step4(a, a_row, b, x0, x1, x2, x3, y0, y1, y2, y3)
        )  # fmt: skip
    return x0, x1, x2, x3, y0, y1, y2, y3


@kernel
def _tile16(a, a_row, a_k, b, b_k, depth, c, c_row, bias, mode):
    """Finish the 6 x 16 tile at `c`."""
    zero = fill(ZERO)
    x0 = x1 = x2 = x3 = x4 = x5 = zero
    y0 = y1 = y2 = y3 = y4 = y5 = zero
    x0, x1, x2, x3, x4, x5, y0, y1, y2, y3, y4, y5 = (
        add6(depth, a, a_row, a_k, b, b_k, x0, x1, x2, x3, x4, x5, y0, y1, y2, y3, y4, y5)
    )  # fmt: skip
    finish_row(x0, y0, c, bias, mode)
    finish_row(x1, y1, c + c_row, bias, mode)
    finish_row(x2, y2, c + 2 * c_row, bias, mode)
    finish_row(x3, y3, c + 3 * c_row, bias, mode)
    finish_row(x4, y4, c + 4 * c_row, bias, mode)
    finish_row(x5, y5, c + 5 * c_row, bias, mode)


@kernel
def _tile4(a, a_row, a_k, b, b_k, depth, c, c_row, bias, mode):
    """Finish the 4 x 16 tile at `c`: what six rows leave over of 16, 64 or 256 rows."""
    zero = fill(ZERO)
    x0 = x1 = x2 = x3 = zero
    y0 = y1 = y2 = y3 = zero
    x0, x1, x2, x3, y0, y1, y2, y3 = (
        add4(depth, a, a_row, a_k, b, b_k, x0, x1, x2, x3, y0, y1, y2, y3)
    )  # fmt: skip
    finish_row(x0, y0, c, bias, mode)
    finish_row(x1, y1, c + c_row, bias, mode)
    finish_row(x2, y2, c + 2 * c_row, bias, mode)
    finish_row(x3, y3, c + 3 * c_row, bias, mode)


@kernel
def tile(left, a, a_row, a_k, b, b_k, depth, c, c_row, bias, mode):
    """Finish the tile at `c`: 16 columns of six rows, or of four if no more are `left`."""
    if left <= 4:
        _tile4(a, a_row, a_k, b, b_k, depth, c, c_row, bias, mode)
    else:
        _tile16(a, a_row, a_k, b, b_k, depth, c, c_row, bias, mode)


@kernel
def _tile8(a, a_row, a_k, b, b_k, depth, c, c_row, bias, mode):
    """Finish the 6 x 8 tile at `c`; odd and even k have accumulators of their own, to hide latency."""
    zero = fill(ZERO)
    x0 = x1 = x2 = x3 = x4 = x5 = zero
    y0 = y1 = y2 = y3 = y4 = y5 = zero
    a3 = a + 3 * a_row
    for _ in range(depth // 2):
        p, q = load(b), load(b + b_k)
        x0, y0 = fma(splat(a), p, x0), fma(splat(a + a_k), q, y0)
        x1, y1 = fma(splat(a + a_row), p, x1), fma(splat(a + a_row + a_k), q, y1)
        x2, y2 = fma(splat(a + 2 * a_row), p, x2), fma(splat(a + 2 * a_row + a_k), q, y2)
        x3, y3 = fma(splat(a3), p, x3), fma(splat(a3 + a_k), q, y3)
        x4, y4 = fma(splat(a3 + a_row), p, x4), fma(splat(a3 + a_row + a_k), q, y4)
        x5, y5 = fma(splat(a3 + 2 * a_row), p, x5), fma(splat(a3 + 2 * a_row + a_k), q, y5)
        a += 2 * a_k
        a3 += 2 * a_k
        b += 2 * b_k
    if depth % 2:
        p = load(b)
        x0, x1 = fma(splat(a), p, x0), fma(splat(a + a_row), p, x1)
        x2, x3 = fma(splat(a + 2 * a_row), p, x2), fma(splat(a3), p, x3)
        x4, x5 = fma(splat(a3 + a_row), p, x4), fma(splat(a3 + 2 * a_row), p, x5)
    finish(x0 + y0, c, bias, mode)
    finish(x1 + y1, c + c_row, bias, mode)
    finish(x2 + y2, c + 2 * c_row, bias, mode)
    finish(x3 + y3, c + 3 * c_row, bias, mode)
    finish(x4 + y4, c + 4 * c_row, bias, mode)
    finish(x5 + y5, c + 5 * c_row, bias, mode)


@kernel
def row_gradient(z, z_row, x, x_row, columns, samples, g, mode):
    """`gradient` of a layer with one output: G[columns] = (or +=) sum of Z[s, 0] * X[s, columns]."""
    for j in range(0, columns, 8):
        s = fill(ZERO)
        t = fill(ZERO)
        at, of = x + 4 * j, z
        for _ in range(samples // 2):
            s = fma(splat(of), load(at), s)
            t = fma(splat(of + z_row), load(at + x_row), t)
            at += 2 * x_row
            of += 2 * z_row
        if samples % 2:
            s = fma(splat(of), load(at), s)
        finish(s + t, g + 4 * j, 0, mode)


@kernel
def product(a, a_row, rows, packed, depth, columns, c, c_row, bias, mode):
    """C[rows, columns] = A[rows, depth] @ B for a packed B; `columns` is a multiple of 8.

    Packed: tiles of 16 columns (a last one of 8 if need be), each `[depth, 16]`, one after another.
    """
    wide = columns // WIDE * WIDE
    ending = LINEAR if mode == TANH else mode
    # A panel that fits the first-level cache stays there while the rows pass; a small B stays whole.
    if depth * columns <= 6144:
        for r in range(0, rows, ROWS):
            b = packed
            for j in range(0, wide, WIDE):
                tile(rows - r, a + r * a_row, a_row, 4, b, 64, depth, c + r * c_row + 4 * j, c_row,
                     bias + 4 * j, ending)  # fmt: skip
                b += 64 * depth
            if wide < columns:
                _tile8(a + r * a_row, a_row, 4, b, 32, depth, c + r * c_row + 4 * wide, c_row,
                       bias + 4 * wide, ending)  # fmt: skip
            if mode == TANH:
                _tanh_rows(c + r * c_row, c_row, columns)
        return
    for j in range(0, wide, WIDE):
        b = packed + 4 * j * depth
        for r in range(0, rows, ROWS):
            tile(rows - r, a + r * a_row, a_row, 4, b, 64, depth, c + r * c_row + 4 * j, c_row,
                 bias + 4 * j, ending)  # fmt: skip
            if mode == TANH:
                _tanh_rows(c + r * c_row + 4 * j, c_row, WIDE)
    if wide < columns:
        b = packed + 4 * wide * depth
        for r in range(0, rows, ROWS):
            _tile8(a + r * a_row, a_row, 4, b, 32, depth, c + r * c_row + 4 * wide, c_row,
                   bias + 4 * wide, ending)  # fmt: skip
            if mode == TANH:
                _tanh_rows(c + r * c_row + 4 * wide, c_row, 8)


@kernel
def few_product(a, a_row, rows, b, b_row, outputs, depth, c, c_row, bias):
    """`product` of a linear layer with a few outputs: C[rows, outputs] = A[rows, depth] @ B[outputs, depth].T + bias.

    Rows of B are padded with zeros to whole vectors, and so may those of A be with anything finite. As in `product`, the
    other columns of C receive their bias.
    """
    rest = load(bias)
    for r in range(0, rows, 3):
        at, to = a + r * a_row, c + r * c_row
        store(to, rest)
        store(to + c_row, rest)
        store(to + 2 * c_row, rest)
        o = 0
        while o < outputs:
            w = b + o * b_row
            if outputs - o < 4:
                x0 = y0 = z0 = fill(ZERO)
                for k in range(at, at + 4 * depth, 32):
                    p = load(w)
                    x0, y0, z0 = (
                        fma(load(k), p, x0),
                        fma(load(k + a_row), p, y0),
                        fma(load(k + 2 * a_row), p, z0),
                    )
                    w += 32
                _put(x0, y0, z0, to, c_row, bias, o)
                o += 1
                continue
            x0 = y0 = z0 = x1 = y1 = z1 = fill(ZERO)
            x2 = y2 = z2 = x3 = y3 = z3 = fill(ZERO)
            for k in range(at, at + 4 * depth, 32):
                f, g, h = load(k), load(k + a_row), load(k + 2 * a_row)
                p = load(w)
                x0, y0, z0 = fma(f, p, x0), fma(g, p, y0), fma(h, p, z0)
                p = load(w + b_row)
                x1, y1, z1 = fma(f, p, x1), fma(g, p, y1), fma(h, p, z1)
                p = load(w + 2 * b_row)
                x2, y2, z2 = fma(f, p, x2), fma(g, p, y2), fma(h, p, z2)
                p = load(w + 3 * b_row)
                x3, y3, z3 = fma(f, p, x3), fma(g, p, y3), fma(h, p, z3)
                w += 32
            _put(x0, y0, z0, to, c_row, bias, o)
            _put(x1, y1, z1, to, c_row, bias, o + 1)
            _put(x2, y2, z2, to, c_row, bias, o + 2)
            _put(x3, y3, z3, to, c_row, bias, o + 3)
            o += 4


@kernel
def _put(x, y, z, c, c_row, bias, o):
    """Write column `o` of three rows of C."""
    own = peek(bias + 4 * o)
    poke(c + 4 * o, own + total(x))
    poke(c + c_row + 4 * o, own + total(y))
    poke(c + 2 * c_row + 4 * o, own + total(z))


@kernel
def gradient(z, z_row, outputs, x, x_row, columns, samples, g, g_row, mode):
    """G[outputs, columns] = (or +=) Z[samples, outputs].T @ X[samples, columns]."""
    if outputs == 1:
        row_gradient(z, z_row, x, x_row, columns, samples, g, mode)
        return
    wide = columns // WIDE * WIDE
    for j in range(0, wide, WIDE):
        for o in range(0, outputs, ROWS):
            to = g + o * g_row + 4 * j
            # Gradients of a wide layer come from afar: ask for them before they are added to.
            for line in range(to, to + ROWS * g_row, g_row):
                prefetch(line)
            tile(outputs - o, z + 4 * o, 4, z_row, x + 4 * j, x_row, samples, to, g_row, 0,
                 mode)  # fmt: skip
    if wide < columns:
        for o in range(0, outputs, ROWS):
            _tile8(z + 4 * o, 4, z_row, x + 4 * wide, x_row, samples, g + o * g_row + 4 * wide,
                   g_row, 0, mode)  # fmt: skip


@kernel
def column_sums(z, z_row, columns, samples, g, mode):
    """g[columns] = (or +=) the sums of Z[samples, columns] over its rows."""
    for j in range(0, columns, 8):
        at = z + 4 * j
        s = fill(ZERO)
        t = fill(ZERO)
        for _ in range(samples // 2):
            s = s + load(at)
            t = t + load(at + z_row)
            at += 2 * z_row
        if samples % 2:
            s = s + load(at)
        finish(s + t, g + 4 * j, 0, mode)
