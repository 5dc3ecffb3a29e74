"""Register-blocked matrix products over one block of samples: the arithmetic of the fused learner.

Everything is a product `C[r, :] (+)= sum_k A[r, k] * B[k, :]` in tiles of 6 rows (or of `TALL`) by two vectors of columns:
twelve accumulators, two loads and six broadcasts for twelve multiply-adds. Columns that are left go in tiles of 16, if vectors
have 16 lanes, and of 8. Strides are in bytes, so one tile serves all three products of a layer:

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
from holdfast.learn.fused_products import each_row, products
from holdfast.learn.fused_simd import (
    LANES,
    VECTOR,
    bytes_of,
    fill,
    fill_as,
    fill_wide,
    fma,
    load,
    load_as,
    load_wide,
    peek,
    poke,
    prefetch,
    splat,
    splat_as,
    store,
    tanh,
    total,
    totals,
    upper_of,
    where_less,
)

ROWS = 6
WIDE = 2 * LANES
"""Columns of a tile."""
PANEL = 4 * WIDE
"""Bytes of a row of them."""
TALL = 12 if LANES > 8 else ROWS
"""Rows of a tile where there are enough of them: vectors of 16 lanes come with twice as many registers."""
LINEAR, TANH, RELU, TANH_SLOPE, RELU_SLOPE, ADD, SET, MINUS = range(8)
"""What becomes of a product: + bias [and activation]; times the slope of the activation whose
output C holds; or added to C; or written to C, as it is or with the other sign."""

FEW = 5
"""Outputs of a linear layer up to which `few_product` is faster than tiles of eight columns, and which it can make."""
ZERO = np.float32(0.0)


@kernel
def finish(v, at, bias, mode):
    """Store one finished vector at `at` as `mode` (not TANH or RELU: see `activate`) says."""
    if mode == TANH_SLOPE:
        h = load_as(v, at)
        store(at, v - v * (h * h))
    elif mode == LINEAR:
        store(at, v + load_as(v, bias))
    elif mode == RELU_SLOPE:
        zero = fill_as(v, ZERO)
        store(at, where_less(zero, load_as(v, at), v, zero))
    elif mode == ADD:
        store(at, load_as(v, at) + v)
    elif mode == MINUS:
        store(at, fill_as(v, ZERO) - v)
    else:
        store(at, v)


@kernel
def activate(at, row, rows, columns, mode):
    """Replace what LINEAR has left by its activations, if `mode` is TANH or RELU.

    In loops of their own, because inside a tile the accumulators leave no registers to overlap them in.
    """
    wide = 4 * (columns // LANES * LANES)
    left = wide < 4 * columns
    if mode == TANH:
        for r in range(at, at + rows * row, row):
            for k in range(r, r + wide, VECTOR):
                store(k, tanh(load_wide(k)))
            if left:
                store(r + wide, tanh(load(r + wide)))
    elif mode == RELU:
        for r in range(at, at + rows * row, row):
            for k in range(r, r + wide, VECTOR):
                store(k, upper_of(load_wide(k), fill_wide(ZERO)))
            if left:
                store(r + wide, upper_of(load(r + wide), fill(ZERO)))


@kernel
def finish_row(x, y, at, bias, mode):
    """`finish` the columns of one row of a tile."""
    right = bytes_of(x)
    finish(x, at, bias, mode)
    finish(y, at + right, bias + right, mode)


@kernel(inline=True)
def _eight(depth, a, a_row, a_k, b, b_k, c, c_row, bias, mode):
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


@kernel(inline=True)
def _strip(rows, lanes, b_row, count, a, a_row, b, depth, c, c_row, bias, mode):
    """Finish `count` tiles of `rows` rows, one below the other, of a product with packed columns."""
    last = depth - 1
    e = b + b_row * last
    for _ in range(count):
        t = products(rows, lanes, last, a, a_row, 4, b, b_row)
        if mode == LINEAR:
            each_row(finish_row, a + 4 * last, a_row, e, t, (c,), (c_row,), (bias, LINEAR))
        elif mode == TANH_SLOPE:
            each_row(finish_row, a + 4 * last, a_row, e, t, (c,), (c_row,), (bias, TANH_SLOPE))
        else:
            each_row(finish_row, a + 4 * last, a_row, e, t, (c,), (c_row,), (bias, RELU_SLOPE))
        a += rows * a_row
        c += rows * c_row


@kernel(inline=True)
def _tiles(lanes, b_row, sixes, fours, a, a_row, b, depth, c, c_row, bias, mode):
    """Finish the columns of a product at `c` that are packed at `b`: tall tiles, tiles of six rows, then of four."""
    if lanes > 8:
        _strip(TALL, lanes, b_row, sixes // 2, a, a_row, b, depth, c, c_row, bias, mode)
        done = sixes // 2 * TALL
        a, c, sixes = a + done * a_row, c + done * c_row, sixes % 2
    _strip(6, lanes, b_row, sixes, a, a_row, b, depth, c, c_row, bias, mode)
    a, c = a + 6 * sixes * a_row, c + 6 * sixes * c_row
    _strip(4, lanes, b_row, fours, a, a_row, b, depth, c, c_row, bias, mode)


@kernel
def _tiles_wide(sixes, fours, a, a_row, b, depth, c, c_row, bias, mode):
    _tiles(LANES, PANEL, sixes, fours, a, a_row, b, depth, c, c_row, bias, mode)


@kernel
def _tiles16(sixes, fours, a, a_row, b, depth, c, c_row, bias, mode):
    _tiles(8, 64, sixes, fours, a, a_row, b, depth, c, c_row, bias, mode)


@kernel(inline=True)
def _turned_strip(rows, lanes, count, z, z_row, x, x_row, samples, g, g_row, mode):
    """Finish `count` tiles of `rows` rows, one below the other, of a gradient."""
    last = samples - 1
    e = x + x_row * last
    for _ in range(count):
        # Gradients of a wide layer come from afar: ask for them before they are added to.
        for ahead in range(2 * rows, 3 * rows):
            for line in range(0, 8 * lanes, 64):
                prefetch(g + ahead * g_row + line)
        t = products(rows, lanes, last, z, 4, z_row, x, x_row)
        if mode == ADD:
            each_row(finish_row, z + z_row * last, 4, e, t, (g,), (g_row,), (0, ADD))
        else:
            each_row(finish_row, z + z_row * last, 4, e, t, (g,), (g_row,), (0, SET))
        z += 4 * rows
        g += rows * g_row


@kernel(inline=True)
def turned_tiles(lanes, sixes, fours, z, z_row, x, x_row, samples, g, g_row, mode):
    """Finish the columns of a gradient at `g`: tall tiles, tiles of six rows, then of four."""
    if lanes > 8:
        _turned_strip(TALL, lanes, sixes // 2, z, z_row, x, x_row, samples, g, g_row, mode)
        done = sixes // 2 * TALL
        z, g, sixes = z + 4 * done, g + done * g_row, sixes % 2
    _turned_strip(6, lanes, sixes, z, z_row, x, x_row, samples, g, g_row, mode)
    z, g = z + 24 * sixes, g + 6 * sixes * g_row
    _turned_strip(4, lanes, fours, z, z_row, x, x_row, samples, g, g_row, mode)


@kernel
def _turned_wide(sixes, fours, z, z_row, x, x_row, samples, g, g_row, mode):
    turned_tiles(LANES, sixes, fours, z, z_row, x, x_row, samples, g, g_row, mode)


@kernel
def _turned16(sixes, fours, z, z_row, x, x_row, samples, g, g_row, mode):
    turned_tiles(8, sixes, fours, z, z_row, x, x_row, samples, g, g_row, mode)


@kernel
def _tile8(a, a_row, b, depth, c, c_row, bias, mode):
    _eight(depth, a, a_row, 4, b, 32, c, c_row, bias, mode)


@kernel
def _turned8(z, z_row, x, x_row, samples, g, g_row, mode):
    _eight(samples, z, 4, z_row, x, x_row, g, g_row, 0, mode)


@kernel
def _cut(rows):
    """How many tiles of six rows and of four cover `rows`."""
    fours = 1 if 0 < rows % ROWS <= 4 else 0
    return (rows - 4 * fours + ROWS - 1) // ROWS, fours


@kernel
def panel_of(column, columns):
    """The first column and the width of the tiles that `column` is in, of `columns` (a multiple of 8)."""
    if column < columns // WIDE * WIDE:
        return column // WIDE * WIDE, WIDE
    if column < columns // 16 * 16:
        return column // 16 * 16, 16
    return column // 8 * 8, 8


@kernel
def _row_gradient(zero, z, z_row, x, x_row, samples, g, mode):
    """`row_gradient` of one vector of columns."""
    s = t = zero
    for _ in range(samples // 2):
        s = fma(splat_as(s, z), load_as(s, x), s)
        t = fma(splat_as(t, z + z_row), load_as(t, x + x_row), t)
        x += 2 * x_row
        z += 2 * z_row
    if samples % 2:
        s = fma(splat_as(s, z), load_as(s, x), s)
    finish(s + t, g, 0, mode)


@kernel
def row_gradient(z, z_row, x, x_row, columns, samples, g, mode):
    """`gradient` of a layer with one output: G[columns] = (or +=) sum of Z[s, 0] * X[s, columns]."""
    wide = 4 * (columns // LANES * LANES)
    for j in range(0, wide, VECTOR):
        _row_gradient(fill_wide(ZERO), z, z_row, x + j, x_row, samples, g + j, mode)
    if wide < 4 * columns:
        _row_gradient(fill(ZERO), z, z_row, x + wide, x_row, samples, g + wide, mode)


@kernel
def product(a, a_row, rows, packed, depth, columns, c, c_row, bias, mode):
    """C[rows, columns] = A[rows, depth] @ B for a packed B; `columns` is a multiple of 8.

    Packed: tiles of the widths that `panel_of` says, each `[depth, width]`, one after another. Such a panel stays in
    the first-level cache while the rows pass.
    """
    ending = LINEAR if mode in (TANH, RELU) else mode
    sixes, fours = _cut(rows)
    j = 0
    while j < columns:
        _, width = panel_of(j, columns)
        b, to, plus = packed + 4 * j * depth, c + 4 * j, bias + 4 * j
        if width == WIDE:
            _tiles_wide(sixes, fours, a, a_row, b, depth, to, c_row, plus, ending)
        elif WIDE > 16 and width == 16:
            _tiles16(sixes, fours, a, a_row, b, depth, to, c_row, plus, ending)
        else:
            for r in range(0, rows, ROWS):
                _tile8(a + r * a_row, a_row, b, depth, to + r * c_row, c_row, plus, ending)
        activate(to, c_row, rows, width, mode)
        j += width


@kernel
def few_product(a, a_row, rows, b, b_row, outputs, depth, c, c_row, bias):
    """`product` of a linear layer with a few outputs: C[rows, outputs] = A[rows, depth] @ B[outputs, depth].T + bias.

    Rows of B are padded with zeros to whole vectors, and so may those of A be with anything finite. As in `product`, the
    other columns of C receive their bias.
    """
    rest, zero = load(bias), fill(ZERO)
    for r in range(0, rows, 3):
        at, to = a + r * a_row, c + r * c_row
        if outputs < 4:
            store(to, rest)
            store(to + c_row, rest)
            store(to + 2 * c_row, rest)
            for o in range(outputs):
                x, y, z = _few_sums(at, a_row, depth, b + o * b_row)
                own = peek(bias + 4 * o)
                poke(to + 4 * o, own + total(x))
                poke(to + c_row + 4 * o, own + total(y))
                poke(to + 2 * c_row + 4 * o, own + total(z))
            continue
        x0 = y0 = z0 = x1 = y1 = z1 = x2 = y2 = z2 = x3 = y3 = z3 = zero
        w = b
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
        # Rows are written whole: what reads them next would wait for single numbers.
        x = totals(x0, x1, x2, x3, zero, zero, zero, zero)
        y = totals(y0, y1, y2, y3, zero, zero, zero, zero)
        z = totals(z0, z1, z2, z3, zero, zero, zero, zero)
        if outputs > 4:
            x4, y4, z4 = _few_sums(at, a_row, depth, b + 4 * b_row)
            x = x + totals(zero, zero, zero, zero, x4, zero, zero, zero)
            y = y + totals(zero, zero, zero, zero, y4, zero, zero, zero)
            z = z + totals(zero, zero, zero, zero, z4, zero, zero, zero)
        store(to, rest + x)
        store(to + c_row, rest + y)
        store(to + 2 * c_row, rest + z)


@kernel
def _few_sums(a, a_row, depth, w):
    """The products, not yet added up over lanes, of three rows of A with one of B."""
    x = y = z = fill(ZERO)
    for k in range(a, a + 4 * depth, 32):
        p = load(w)
        x, y, z = fma(load(k), p, x), fma(load(k + a_row), p, y), fma(load(k + 2 * a_row), p, z)
        w += 32
    return x, y, z


@kernel
def gradient(z, z_row, outputs, x, x_row, columns, samples, g, g_row, mode):
    """G[outputs, columns] = (or +=) Z[samples, outputs].T @ X[samples, columns]."""
    if outputs == 1:
        row_gradient(z, z_row, x, x_row, columns, samples, g, mode)
        return
    sixes, fours = _cut(outputs)
    j = 0
    while j < columns:
        _, width = panel_of(j, columns)
        of, to = x + 4 * j, g + 4 * j
        if width == WIDE:
            _turned_wide(sixes, fours, z, z_row, of, x_row, samples, to, g_row, mode)
        elif WIDE > 16 and width == 16:
            _turned16(sixes, fours, z, z_row, of, x_row, samples, to, g_row, mode)
        else:
            for o in range(0, outputs, ROWS):
                _turned8(z + 4 * o, z_row, of, x_row, samples, to + o * g_row, g_row, mode)
        j += width


@kernel
def _column_sums(zero, z, z_row, samples, g, mode):
    """`column_sums` of one vector of columns."""
    s = t = zero
    for _ in range(samples // 2):
        s = s + load_as(s, z)
        t = t + load_as(t, z + z_row)
        z += 2 * z_row
    if samples % 2:
        s = s + load_as(s, z)
    finish(s + t, g, 0, mode)


@kernel
def column_sums(z, z_row, columns, samples, g, mode):
    """g[columns] = (or +=) the sums of Z[samples, columns] over its rows."""
    wide = 4 * (columns // LANES * LANES)
    for j in range(0, wide, VECTOR):
        _column_sums(fill_wide(ZERO), z + j, z_row, samples, g + j, mode)
    if wide < 4 * columns:
        _column_sums(fill(ZERO), z + wide, z_row, samples, g + wide, mode)
