"""Products of large matrices by seven products of quarters instead of eight (Strassen's, in Winograd's form).

In wide layers the tiles run at the machine's multiply-add limit, so what is left to save is multiply-adds. All three
products of a layer are made so: with X the inputs of a block of samples, Z the derivatives of its outputs, W the weights
and all of them in quarters (samples above and below, features left and right),

    Y = X W     s1 = x21 + x22    s2 = s1 - x11    s3 = x11 - x21    s4 = x12 - s2
                t1 = w12 - w11    t2 = w22 - t1    t3 = w22 - w12    t4 = w21 - t2

                p = x11 w11             y11 = p + x12 w21
                u = p + s2 t2           v = u + s3 t3
                y21 = v + x22 t4
                q = s1 t1               y22 = v + q           y12 = u + q + s4 w22

    X' = Z W    the same of other quarters, W having outputs in rows:
                s1 = z22 - z21    s2 = s1 + z12    s3 = z12 + z22    s4 = z11 - s2
                t1 = w21 - w22    t2 = w12 - t1    t3 = -w12 - w22   t4 = w11 - t2

                p = z12 w21             x11 = p + z11 w11
                u = p + s2 t2           v = -(u + s3 t3)
                x21 = v + z21 t4
                q = s1 t1               x22 = v - q           x12 = u + q + s4 w12

    G = Z' X    of the sums that the other two have made already, s of X and r of Z:
                f1 = z21' x22     f2 = z11' x12     f3 = r2' s2     f4 = r1' s3
                f5 = z12' s4      f6 = r3' s1       f7 = r4' x11

                g12 = f1 + f2                       g22 = f1 + f3 + f4 + f5
                g11 = f6 - f1 - f3 + f7             g21 = f6 - f1 - f3 - f4

Of Y and X', every line is a chain of two products (the third: one) in the registers of a tile, so the sums behind the
products cost next to nothing. Those of weights are made once a minibatch. The seven products of G are added up over all blocks of a lane and
put together at its end. Results differ from those of eight products by rounding, and a row's by where in its block it
stands; so only updates use them, whose blocks are always cut the same way.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import numpy as np

from holdfast.jit import kernel
from holdfast.learn.fused_products import add_products, each_row, products
from holdfast.learn.fused_simd import fill, load, store
from holdfast.learn.fused_tiles import (
    LINEAR,
    MINUS,
    RELU_SLOPE,
    SET,
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
        a, b = load(x12), load(x22)
        s = b - load(x21)
        store(to, s)
        s = s + a
        store(to + size, s)
        store(to + 2 * size, a + b)
        store(to + 3 * size, load(x11) - s)
    else:
        a, b = load(x11), load(x21)
        s = b + load(x22)
        store(to, s)
        s = s - a
        store(to + size, s)
        store(to + 2 * size, a - b)
        store(to + 3 * size, load(x12) - s)


@kernel
def _weight_sums(mirror, x11, x12, x21, x22, to, size):
    """Write t1 to t4 of one vector of each quarter, `size` bytes apart."""
    a, b = load(x12), load(x22)
    if mirror:
        t = load(x21) - b
        store(to, t)
        t = a - t
        store(to + size, t)
        store(to + 2 * size, fill(ZERO) - a - b)
        store(to + 3 * size, load(x11) - t)
    else:
        t = a - load(x11)
        store(to, t)
        t = b - t
        store(to + size, t)
        store(to + 2 * size, b - a)
        store(to + 3 * size, load(x21) - t)


@kernel
def row_sums(mirror, x, x_row, rows, columns, to, to_row):
    """Write the sums of the quarters of X[rows, columns], `rows` a multiple of 4: quarters one after another."""
    half, right = rows // 2, 2 * columns
    below, size = half * x_row, half * to_row
    for r in range(half):
        at, out = x + r * x_row, to + r * to_row
        for k in range(0, right, 32):
            i = at + k
            _sums(mirror, i, i + right, i + below, i + below + right, out + k, size)


@kernel
def panel_sums(mirror, packed, depth, columns, to):
    """Write the sums of packed weights (`fused_tiles.product`), packed likewise."""
    panel = 64 * depth
    half, right = panel // 2, columns // 2 // WIDE * panel
    size = columns // 2 // WIDE * half
    for j in range(columns // 2 // WIDE):
        at, out = packed + j * panel, to + j * half
        for k in range(0, half, 32):
            i = at + k
            _weight_sums(mirror, i, i + right, i + half, i + right + half, out + k, size)


@kernel
def _put(mirror, x, y, at, bias, relu):
    """Finish 16 columns of one row: forward with the bias alone, backward with the slope of what is there."""
    if mirror:
        if relu:
            finish_row(x, y, at, bias, RELU_SLOPE)
        else:
            finish_row(x, y, at, bias, TANH_SLOPE)
    else:
        finish_row(x, y, at, bias, LINEAR)


@kernel
def _turn(x, y, p, side, line, mirror, size, bias, relu):
    """Do with a row what is to be done between the two products of a line; return what the second is added to.

    p, u and v are kept `size` bytes apart. The third line ends here.
    """
    u, v = p + size, p + 2 * size
    if line == 0:
        finish_row(x, y, p, 0, SET)
    elif line == 1:
        x, y = x + load(p), y + load(p + 32)
        finish_row(x, y, u, 0, SET)
    elif line == 3 and mirror:
        _put(mirror, load(v) - x, load(v + 32) - y, side, bias, relu)
    else:
        _put(mirror, load(v) + x, load(v + 32) + y, side, bias, relu)
    if line == 3:
        x, y = x + load(u), y + load(u + 32)
    return x, y


@kernel
def _end(x, y, v, at, line, mirror, bias, relu):
    """Do with a row what is to be done behind the second product of a line."""
    if line == 1:
        finish_row(x, y, v, 0, MINUS if mirror else SET)
    else:
        _put(mirror, x, y, at, bias, relu)


@kernel(inline=True)
def _strip(
    rows, count, line, mirror, depth, a, a_row, b, d, d_row, e, p, size, c, side, c_row, bias, relu
):  # fmt: skip
    """Make `count` tiles of `rows` rows, one below the other: A B, what `_turn` makes of it and, with D E added, `_end`."""
    last = depth - 1
    f, g = b + 64 * last, e + 64 * last
    for _ in range(count):
        t = products(rows, last, a, a_row, 4, b, 64)
        t = each_row(
            _turn,
            a + 4 * last,
            a_row,
            f,
            t,
            (p, side),
            (64, c_row),
            (line, mirror, size, bias, relu),
        )
        if line != 2:
            t = add_products(last, d, d_row, 4, e, 64, t)
            v = p + 2 * size
            each_row(
                _end, d + 4 * last, d_row, g, t, (v, c), (64, c_row), (line, mirror, bias, relu)
            )
        a, d, p = a + rows * a_row, d + rows * d_row, p + 64 * rows
        c, side = c + rows * c_row, side + rows * c_row


@kernel
def _cut_evenly(rows):
    """How many tiles of six rows and of four an even number, not 2, comes out even with."""
    fours = rows % 6 // 2 * 2 % 3
    return (rows - 4 * fours) // 6, fours


@kernel(inline=True)
def _line(line, mirror, rows, depth, a, a_row, b, d, d_row, e, p, c, side, c_row, bias, relu):
    """Make 16 columns of one line: of the quarters at `c`, and at `side`."""
    sixes, fours = _cut_evenly(rows)
    size, done = 64 * rows, 6 * sixes
    _strip(
        6, sixes, line, mirror, depth, a, a_row, b, d, d_row, e, p, size, c, side, c_row, bias, relu
    )
    a, d, p = a + done * a_row, d + done * d_row, p + 64 * done
    c, side = c + done * c_row, side + done * c_row
    _strip(
        4, fours, line, mirror, depth, a, a_row, b, d, d_row, e, p, size, c, side, c_row, bias, relu
    )


@kernel
def seven_forward(
    x, x_row, rows, s, s_row, packed, t, depth, columns, y, y_row, bias, mode, kept
):  # fmt: skip
    """`fused_tiles.product` of a large layer, with the sums of X and of `packed`.

    `rows` is a multiple of 4, at least 16, `depth` even, `columns` a multiple of 32. `kept` has room for three panels of
    half of the rows.
    """
    rows, half, columns = rows // 2, depth // 2, columns // 2
    below, right = rows * y_row, 4 * columns
    s2, s3, s4 = s + rows * s_row, s + 2 * rows * s_row, s + 3 * rows * s_row
    x12, x22 = x + 4 * half, x + rows * x_row + 4 * half
    w_right, t_size = depth * right, half * right
    for k in range(0, right, 64):
        y11, y12, bias1, bias2 = y + k, y + k + right, bias + k, bias + k + right
        w11 = packed + depth * k
        w21, w22 = w11 + 64 * half, w11 + w_right + 64 * half
        t1 = t + half * k
        t2, t3, t4 = t1 + t_size, t1 + 2 * t_size, t1 + 3 * t_size
        _line(0, False, rows, half, x, x_row, w11, x12, x_row, w21, kept, y11, 0, y_row, bias1,
              False)  # fmt: skip
        activate(y11, y_row, rows, WIDE, mode)
        _line(1, False, rows, half, s2, s_row, t2, s3, s_row, t3, kept, 0, 0, 0, 0, False)
        _line(2, False, rows, half, x22, x_row, t4, 0, 0, 0, kept, 0, y11 + below, y_row, bias1,
              False)  # fmt: skip
        activate(y11 + below, y_row, rows, WIDE, mode)
        _line(3, False, rows, half, s, s_row, t1, s4, s_row, w22, kept, y12, y12 + below, y_row, bias2,
              False)  # fmt: skip
        activate(y12, y_row, 2 * rows, WIDE, mode)


@kernel
def seven_backward(z, z_row, rows, s, s_row, packed, t, depth, columns, x, x_row, mode, kept):
    """`seven_forward` of derivatives; they are multiplied by the slopes of the activations X, which they replace."""
    relu = mode == RELU_SLOPE
    rows, half, columns = rows // 2, depth // 2, columns // 2
    below, right = rows * x_row, 4 * columns
    s2, s3, s4 = s + rows * s_row, s + 2 * rows * s_row, s + 3 * rows * s_row
    z12, z21 = z + 4 * half, z + rows * z_row
    w_right, t_size = depth * right, half * right
    for k in range(0, right, 64):
        x11, x12 = x + k, x + k + right
        w11 = packed + depth * k
        w21, w12 = w11 + 64 * half, w11 + w_right
        t1 = t + half * k
        t2, t3, t4 = t1 + t_size, t1 + 2 * t_size, t1 + 3 * t_size
        _line(0, True, rows, half, z12, z_row, w21, z, z_row, w11, kept, x11, 0, x_row, 0, relu)
        _line(1, True, rows, half, s2, s_row, t2, s3, s_row, t3, kept, 0, 0, 0, 0, relu)
        _line(2, True, rows, half, z21, z_row, t4, 0, 0, 0, kept, 0, x11 + below, x_row, 0, relu)
        _line(3, True, rows, half, s, s_row, t1, s4, s_row, w12, kept, x12, x12 + below, x_row, 0,
              relu)  # fmt: skip


@kernel
def _add_quarter(z, z_row, outputs, x, x_row, samples, to, mode):
    """Add Z[samples, outputs]' X[samples, 16] to the panel at `to`, whose rows lie one after another."""
    sixes, fours = _cut_evenly(outputs)
    turned_tiles(sixes, fours, z, z_row, x, x_row, samples, to, 64, mode)


@kernel
def seven_gradient(z, z_row, r, outputs, x, x_row, s, columns, s_row, rows, to, mode):
    """Add f1 to f7 of a block to those at `to`, panel by panel; `r` and `s` are the sums of Z and X, `rows` their samples."""
    half = rows // 2
    size = half * s_row
    r2, r3, r4 = r + size, r + 2 * size, r + 3 * size
    z12, z21 = z + 2 * outputs, z + half * z_row
    x12, x22 = x + 2 * columns, x + half * x_row + 2 * columns
    outputs //= 2
    panel = 64 * outputs
    for k in range(0, 2 * columns, 64):
        s1 = s + k
        _add_quarter(z21, z_row, outputs, x22 + k, x_row, half, to, mode)
        _add_quarter(z, z_row, outputs, x12 + k, x_row, half, to + panel, mode)
        _add_quarter(r2, s_row, outputs, s1 + size, s_row, half, to + 2 * panel, mode)
        _add_quarter(r, s_row, outputs, s1 + 2 * size, s_row, half, to + 3 * panel, mode)
        _add_quarter(z12, z_row, outputs, s1 + 3 * size, s_row, half, to + 4 * panel, mode)
        _add_quarter(r3, s_row, outputs, s1, s_row, half, to + 5 * panel, mode)
        _add_quarter(r4, s_row, outputs, x + k, x_row, half, to + 6 * panel, mode)
        to += 7 * panel


@kernel
def seven_gradient_end(f, outputs, columns, g, g_row, mode):
    """Write or add G, of what `seven_gradient` has left at `f`."""
    half = outputs // 2
    panel, below, right = 64 * half, half * g_row, 2 * columns
    for k in range(0, right, 64):
        for o in range(half):
            for i in range(0, 64, 32):
                at, to = f + 64 * o + i, g + o * g_row + k + i
                f1, f4 = load(at), load(at + 3 * panel)
                h = f1 + load(at + 2 * panel)
                w = load(at + 5 * panel) - h
                finish(w + load(at + 6 * panel), to, 0, mode)
                finish(f1 + load(at + panel), to + right, 0, mode)
                finish(w - f4, to + below, 0, mode)
                finish(h + f4 + load(at + 4 * panel), to + below + right, 0, mode)
        f += 7 * panel
