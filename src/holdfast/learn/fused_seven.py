"""Products of large matrices by seven products of quarters instead of eight (Strassen's, in Winograd's form).

In wide layers the tiles run at the machine's multiply-add limit, so what is left to save is multiply-adds. All three
products of a layer are made so: with X the inputs of a block of samples, Z the derivatives of its outputs, W the weights
and all of them in quarters (samples above and below, features left and right),

    Y = X W     s1 = x21 + x22    s2 = s1 - x11    s3 = x11 - x21    s4 = x12 - s2
                t1 = w12 - w11    t2 = w22 - t1    t3 = w22 - w12    t4 = w21 - t2

                0   p = x11 w11             4   y21 = v + x22 t4
                1   y11 = p + x12 w21       5   q = s1 t1,   y22 = v + q
                2   u = p + s2 t2           6   y12 = u + q + s4 w22
                3   v = u + s3 t3

    X' = Z W    the same of other quarters, W having outputs in rows:
                s1 = z22 - z21    s2 = s1 + z12    s3 = z12 + z22    s4 = z11 - s2
                t1 = w21 - w22    t2 = w12 - t1    t3 = -w12 - w22   t4 = w11 - t2

                0   p = z12 w21             4   x21 = v + z21 t4
                1   x11 = p + z11 w11       5   q = s1 t1,   x22 = v - q
                2   u = p + s2 t2           6   x12 = u + q + s4 w12
                3   v = -(u + s3 t3)

    G = Z' X    of the sums that the other two have made already, s of X and r of Z:
                f1 = z21' x22     f2 = z11' x12     f3 = r2' s2     f4 = r1' s3
                f5 = z12' s4      f6 = r3' s1       f7 = r4' x11

                g12 = f1 + f2                       g22 = f1 + f3 + f4 + f5
                g11 = f6 - f1 - f3 + f7             g21 = f6 - f1 - f3 - f4

One product after another, so that a quarter of activations stays in the first-level cache while the columns pass: a core whose
caches serve another's load as well has little more. What a product is added to is added as its tiles end. Sums of weights are
made once a minibatch. The seven products of G are added up over all blocks of a lane and put together at its end. Results
differ from those of eight products by rounding, and a row's by where in its block it stands; so only updates use them, whose
blocks are always cut the same way.
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
    fill_wide,
    load_as,
    load_wide,
    store,
)
from holdfast.learn.fused_tiles import (
    ADD,
    LINEAR,
    MINUS,
    PANEL,
    RELU_SLOPE,
    SET,
    TALL,
    TANH_SLOPE,
    WIDE,
    activate,
    finish,
    finish_row,
    turned_tiles,
)

LEAST_ROWS = 24
"""Samples of a block from which it pays."""
ZERO = np.float32(0.0)


@kernel
def _sums(mirror, x11, x12, x21, x22, to, size):
    """Write s1 to s4 of one vector of each quarter, `size` bytes apart."""
    if mirror:
        a, b = load_wide(x12), load_wide(x22)
        s = b - load_wide(x21)
        store(to, s)
        s = s + a
        store(to + size, s)
        store(to + 2 * size, a + b)
        store(to + 3 * size, load_wide(x11) - s)
    else:
        a, b = load_wide(x11), load_wide(x21)
        s = b + load_wide(x22)
        store(to, s)
        s = s - a
        store(to + size, s)
        store(to + 2 * size, a - b)
        store(to + 3 * size, load_wide(x12) - s)


@kernel
def _weight_sums(mirror, x11, x12, x21, x22, to, size):
    """Write t1 to t4 of one vector of each quarter, `size` bytes apart."""
    a, b = load_wide(x12), load_wide(x22)
    if mirror:
        t = load_wide(x21) - b
        store(to, t)
        t = a - t
        store(to + size, t)
        store(to + 2 * size, fill_wide(ZERO) - a - b)
        store(to + 3 * size, load_wide(x11) - t)
    else:
        t = a - load_wide(x11)
        store(to, t)
        t = b - t
        store(to + size, t)
        store(to + 2 * size, b - a)
        store(to + 3 * size, load_wide(x21) - t)


@kernel
def row_sums(mirror, x, x_row, rows, columns, to, to_row):
    """Write the sums of the quarters of X[rows, columns], `rows` a multiple of 4: quarters one after another."""
    half, right = rows // 2, 2 * columns
    below, size = half * x_row, half * to_row
    for r in range(half):
        at, out = x + r * x_row, to + r * to_row
        for k in range(0, right, VECTOR):
            i = at + k
            _sums(mirror, i, i + right, i + below, i + below + right, out + k, size)


@kernel
def panel_sums(mirror, packed, depth, columns, to):
    """Write the sums of packed weights (`fused_tiles.product`), packed likewise."""
    panel = PANEL * depth
    half, right = panel // 2, columns // 2 // WIDE * panel
    size = columns // 2 // WIDE * half
    for j in range(columns // 2 // WIDE):
        at, out = packed + j * panel, to + j * half
        for k in range(0, half, VECTOR):
            i = at + k
            _weight_sums(mirror, i, i + right, i + half, i + right + half, out + k, size)


@kernel
def _put(mirror, x, y, at, bias, relu):
    """Finish the columns of one row of a tile: forward with the bias alone, backward with the slope of what is there."""
    if mirror:
        if relu:
            finish_row(x, y, at, bias, RELU_SLOPE)
        else:
            finish_row(x, y, at, bias, TANH_SLOPE)
    else:
        finish_row(x, y, at, bias, LINEAR)


@kernel
def _end(x, y, v, c, number, mirror, size, bias, relu):
    """Do with a row what is to be done with product `number`; p, u and v are kept `size` bytes apart."""
    u = v - size
    p = u - size
    right = bytes_of(x)
    if number == 0:
        finish_row(x, y, p, 0, SET)
    elif number == 1:
        _put(mirror, load_as(x, p) + x, load_as(y, p + right) + y, c, bias, relu)
    elif number == 2:
        finish_row(load_as(x, p) + x, load_as(y, p + right) + y, u, 0, SET)
    elif number == 3:
        v1, v2 = load_as(x, u) + x, load_as(y, u + right) + y
        finish_row(v1, v2, v, 0, MINUS if mirror else SET)
    elif number == 4:
        _put(mirror, load_as(x, v) + x, load_as(y, v + right) + y, c, bias, relu)
    elif number == 5:
        if mirror:
            _put(mirror, load_as(x, v) - x, load_as(y, v + right) - y, c, bias, relu)
        else:
            _put(mirror, load_as(x, v) + x, load_as(y, v + right) + y, c, bias, relu)
        finish_row(x, y, u, 0, ADD)
    else:
        _put(mirror, load_as(x, u) + x, load_as(y, u + right) + y, c, bias, relu)


@kernel(inline=True)
def _strip(rows, count, number, mirror, depth, a, a_row, b, v, size, c, c_row, bias, relu):
    """Make `count` tiles of `rows` rows, one below the other, of one product."""
    last = depth - 1
    for _ in range(count):
        t = products(rows, LANES, last, a, a_row, 4, b, PANEL)
        each_row(
            _end, a + 4 * last, a_row, b + PANEL * last, t, (v, c), (PANEL, c_row),
            (number, mirror, size, bias, relu),
        )  # fmt: skip
        a, v, c = a + rows * a_row, v + PANEL * rows, c + rows * c_row


@kernel
def _cut_evenly(rows):
    """How many tiles of six rows and of four an even number, not 2, comes out even with."""
    fours = rows % 6 // 2 * 2 % 3
    return (rows - 4 * fours) // 6, fours


@kernel
def _rest(sixes, fours, number, mirror, depth, a, a_row, b, v, size, c, c_row, bias, relu):
    """Make the last few tiles of a product: compiled once for all of them."""
    _strip(6, sixes, number, mirror, depth, a, a_row, b, v, size, c, c_row, bias, relu)
    done = 6 * sixes
    a, v, c = a + done * a_row, v + done * PANEL, c + done * c_row
    _strip(4, fours, number, mirror, depth, a, a_row, b, v, size, c, c_row, bias, relu)


@kernel(inline=True)
def _product(
    number, mirror, rows, depth, columns, a, a_row, b, b_panel, kept, c, c_row, bias, mode
):
    """Make one product, panel by panel; those of B are `b_panel` bytes apart."""
    sixes, fours = _cut_evenly(rows)
    tall, sixes = sixes // (TALL // 6), sixes % (TALL // 6)
    size, done, relu = 4 * rows * columns, tall * TALL, mode == RELU_SLOPE
    v = kept + 2 * size
    for _ in range(0, columns, WIDE):
        _strip(TALL, tall, number, mirror, depth, a, a_row, b, v, size, c, c_row, bias, relu)
        if sixes + fours > 0:
            # As numbers that are known later: of constants, Numba would compile a `_rest` for each.
            _rest(sixes, fours, np.int64(number), np.int64(mirror), depth, a + done * a_row, a_row, b,
                  v + done * PANEL, size, c + done * c_row, np.int64(c_row), np.int64(bias), relu)  # fmt: skip
        if not mirror and (number == 1 or number >= 4):
            activate(c, c_row, rows, WIDE, mode)
        b, v, c, bias = b + b_panel, v + PANEL * rows, c + PANEL, bias + PANEL


@kernel
def seven_forward(
    x, x_row, rows, s, s_row, packed, t, depth, columns, y, y_row, bias, mode, kept
):  # fmt: skip
    """`fused_tiles.product` of a large layer, with the sums of X and of `packed`.

    `rows` is a multiple of 4, at least 16, `depth` even, `columns` a multiple of 64. `kept` has room for three quarters of Y.
    """
    rows, half, columns = rows // 2, depth // 2, columns // 2
    y12, y21, y22 = y + 4 * columns, y + rows * y_row, y + rows * y_row + 4 * columns
    s2, s3, s4 = s + rows * s_row, s + 2 * rows * s_row, s + 3 * rows * s_row
    x12, x22 = x + 4 * half, x + rows * x_row + 4 * half
    w_panel, t_panel, t_size = PANEL * depth, PANEL * half, 4 * half * columns
    w21, w22 = packed + t_panel, packed + 2 * t_size + t_panel
    t2, t3, t4 = t + t_size, t + 2 * t_size, t + 3 * t_size
    right = bias + 4 * columns
    _product(0, False, rows, half, columns, x, x_row, packed, w_panel, kept, 0, 0, 0, mode)
    _product(1, False, rows, half, columns, x12, x_row, w21, w_panel, kept, y, y_row, bias, mode)
    _product(2, False, rows, half, columns, s2, s_row, t2, t_panel, kept, 0, 0, 0, mode)
    _product(3, False, rows, half, columns, s3, s_row, t3, t_panel, kept, 0, 0, 0, mode)
    _product(4, False, rows, half, columns, x22, x_row, t4, t_panel, kept, y21, y_row, bias, mode)
    _product(5, False, rows, half, columns, s, s_row, t, t_panel, kept, y22, y_row, right, mode)
    _product(6, False, rows, half, columns, s4, s_row, w22, w_panel, kept, y12, y_row, right, mode)


@kernel
def seven_backward(z, z_row, rows, s, s_row, packed, t, depth, columns, x, x_row, mode, kept):
    """`seven_forward` of derivatives; they are multiplied by the slopes of the activations X, which they replace."""
    rows, half, columns = rows // 2, depth // 2, columns // 2
    x12, x21, x22 = x + 4 * columns, x + rows * x_row, x + rows * x_row + 4 * columns
    s2, s3, s4 = s + rows * s_row, s + 2 * rows * s_row, s + 3 * rows * s_row
    z12, z21 = z + 4 * half, z + rows * z_row
    w_panel, t_panel, t_size = PANEL * depth, PANEL * half, 4 * half * columns
    w21, w12 = packed + t_panel, packed + 2 * t_size
    t2, t3, t4 = t + t_size, t + 2 * t_size, t + 3 * t_size
    _product(0, True, rows, half, columns, z12, z_row, w21, w_panel, kept, 0, 0, 0, mode)
    _product(1, True, rows, half, columns, z, z_row, packed, w_panel, kept, x, x_row, 0, mode)
    _product(2, True, rows, half, columns, s2, s_row, t2, t_panel, kept, 0, 0, 0, mode)
    _product(3, True, rows, half, columns, s3, s_row, t3, t_panel, kept, 0, 0, 0, mode)
    _product(4, True, rows, half, columns, z21, z_row, t4, t_panel, kept, x21, x_row, 0, mode)
    _product(5, True, rows, half, columns, s, s_row, t, t_panel, kept, x22, x_row, 0, mode)
    _product(6, True, rows, half, columns, s4, s_row, w12, w_panel, kept, x12, x_row, 0, mode)


@kernel
def _add_part(z, z_row, outputs, x, x_row, columns, samples, to, mode):
    """Add Z[samples, outputs]' X[samples, columns] to the part at `to`, panel by panel, whose rows lie one after another."""
    sixes, fours = _cut_evenly(outputs)
    for k in range(0, 4 * columns, PANEL):
        turned_tiles(LANES, sixes, fours, z, z_row, x + k, x_row, samples, to, PANEL, mode)
        to += PANEL * outputs


@kernel
def seven_gradient(z, z_row, r, outputs, x, x_row, s, columns, s_row, rows, to, mode):
    """Add f1 to f7 of a block to those at `to`; `r` and `s` are the sums of Z and X, `rows` their samples."""
    half = rows // 2
    size = half * s_row
    r2, r3, r4 = r + size, r + 2 * size, r + 3 * size
    s2, s3, s4 = s + size, s + 2 * size, s + 3 * size
    outputs, columns = outputs // 2, columns // 2
    z12, z21 = z + 4 * outputs, z + half * z_row
    x12, x22 = x + 4 * columns, x + half * x_row + 4 * columns
    part = 4 * outputs * columns
    _add_part(z21, z_row, outputs, x22, x_row, columns, half, to, mode)
    _add_part(z, z_row, outputs, x12, x_row, columns, half, to + part, mode)
    _add_part(r2, s_row, outputs, s2, s_row, columns, half, to + 2 * part, mode)
    _add_part(r, s_row, outputs, s3, s_row, columns, half, to + 3 * part, mode)
    _add_part(z12, z_row, outputs, s4, s_row, columns, half, to + 4 * part, mode)
    _add_part(r3, s_row, outputs, s, s_row, columns, half, to + 5 * part, mode)
    _add_part(r4, s_row, outputs, x, x_row, columns, half, to + 6 * part, mode)


@kernel
def seven_gradient_end(f, outputs, columns, g, g_row, mode):
    """Write or add G, of what `seven_gradient` has left at `f`."""
    half = outputs // 2
    below, right = half * g_row, 2 * columns
    part = half * right
    for k in range(0, right, PANEL):
        for o in range(half):
            for i in range(0, PANEL, VECTOR):
                at, to = f + PANEL * o + i, g + o * g_row + k + i
                f1, f4 = load_wide(at), load_wide(at + 3 * part)
                h = f1 + load_wide(at + 2 * part)
                w = load_wide(at + 5 * part) - h
                finish(w + load_wide(at + 6 * part), to, 0, mode)
                finish(f1 + load_wide(at + part), to + right, 0, mode)
                finish(w - f4, to + below, 0, mode)
                finish(h + f4 + load_wide(at + 4 * part), to + below + right, 0, mode)
        f += PANEL * half
