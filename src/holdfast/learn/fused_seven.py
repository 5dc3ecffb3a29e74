"""Products of large matrices by seven products of quarters instead of eight (Strassen's, in Winograd's form).

In wide layers the tiles run at the machine's multiply-add limit, so what is left to save is multiply-adds. All three
products of a layer are made so: with X the inputs of a block of samples, Z the derivatives of its outputs, W the weights
and all of them in quarters (samples above and below, features left and right),

    Y = X W     s1 = x21 + x22    s2 = s1 - x11    s3 = x11 - x21    s4 = x12 - s2
                t1 = w12 - w11    t2 = w22 - t1    t3 = w22 - w12    t4 = w21 - t2

                y11 = p + x12 w21       p = x11 w11
                u = p + s2 t2           v = u + s3 t3
                y21 = v + x22 t4
                y12 = w + s4 w22        w = u + s1 t1
                y22 = v - u + w

    X' = Z W    the same of other quarters, W having outputs in rows:
                s1 = z22 - z21    s2 = s1 + z12    s3 = z12 + z22    s4 = z11 - s2
                t1 = w21 - w22    t2 = w12 - t1    t3 = -w12 - w22   t4 = w11 - t2

                x11 = p + z11 w11       p = z12 w21
                u = p + s2 t2           v = -(u + s3 t3)
                x21 = v + z21 t4
                x12 = w + s4 w12        w = u + s1 t1
                x22 = v + u - w

    G = Z' X    of the sums that the other two have made already, s of X and r of Z:
                f1 = z21' x22     f2 = z11' x12     f3 = r2' s2     f4 = r1' s3
                f5 = z12' s4      f6 = r3' s1       f7 = r4' x11

                g12 = f1 + f2                       g22 = f1 + f3 + f4 + f5
                g11 = f6 - f1 - f3 + f7             g21 = f6 - f1 - f3 - f4

Of Y and X', every line is a chain of products in the registers of a tile, so the sums behind the products cost next to
nothing. Those of weights are made once a minibatch. The seven products of G are added up over all blocks of a lane and
put together at its end. Results differ from those of eight products by rounding, and a row's by where in its block it
stands; so only updates use them, whose blocks are always cut the same way.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import numpy as np

from holdfast.jit import kernel
from holdfast.learn.fused_simd import fill, load, prefetch, store, tanh
from holdfast.learn.fused_tiles import (
    LINEAR,
    MINUS,
    SET,
    TANH,
    WIDE,
    add4,
    add6,
    finish,
    finish_row,
    tile,
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
def _aside(mirror, u, v, w):
    """What the last quarter is, of two that were kept and one that is not."""
    if mirror:
        return load(v) + load(u) - w
    return load(v) - load(u) + w


@kernel
def _finish_aside(x, y, mirror, u, v, at, bias, mode):
    """`finish_row` of the last quarter."""
    finish_row(_aside(mirror, u, v, x), _aside(mirror, u + 32, v + 32, y), at, bias, mode)


@kernel
def _chain6(
    depth, a, a_row, b, more, d, d_row, e, start, keep, side, mirror, u, v, c, c_row, bias, side_bias, mode,
):  # fmt: skip
    """`_chain` for six rows."""
    zero = fill(ZERO)
    x0 = x1 = x2 = x3 = x4 = x5 = zero
    y0 = y1 = y2 = y3 = y4 = y5 = zero
    if start != 0:
        x0, y0 = load(start + 0), load(start + 32)
        x1, y1 = load(start + 64), load(start + 96)
        x2, y2 = load(start + 128), load(start + 160)
        x3, y3 = load(start + 192), load(start + 224)
        x4, y4 = load(start + 256), load(start + 288)
        x5, y5 = load(start + 320), load(start + 352)
    x0, x1, x2, x3, x4, x5, y0, y1, y2, y3, y4, y5 = (
        add6(depth, a, a_row, 4, b, 64, x0, x1, x2, x3, x4, x5, y0, y1, y2, y3, y4, y5)
    )  # fmt: skip
    if keep != 0:
        finish_row(x0, y0, keep + 0, 0, SET)
        finish_row(x1, y1, keep + 64, 0, SET)
        finish_row(x2, y2, keep + 128, 0, SET)
        finish_row(x3, y3, keep + 192, 0, SET)
        finish_row(x4, y4, keep + 256, 0, SET)
        finish_row(x5, y5, keep + 320, 0, SET)
    if side != 0:
        _finish_aside(x0, y0, mirror, u + 0, v + 0, side, side_bias, mode)
        _finish_aside(x1, y1, mirror, u + 64, v + 64, side + c_row, side_bias, mode)
        _finish_aside(x2, y2, mirror, u + 128, v + 128, side + 2 * c_row, side_bias, mode)
        _finish_aside(x3, y3, mirror, u + 192, v + 192, side + 3 * c_row, side_bias, mode)
        _finish_aside(x4, y4, mirror, u + 256, v + 256, side + 4 * c_row, side_bias, mode)
        _finish_aside(x5, y5, mirror, u + 320, v + 320, side + 5 * c_row, side_bias, mode)
    if more:
        x0, x1, x2, x3, x4, x5, y0, y1, y2, y3, y4, y5 = (
            add6(depth, d, d_row, 4, e, 64, x0, x1, x2, x3, x4, x5, y0, y1, y2, y3, y4, y5)
        )  # fmt: skip
    finish_row(x0, y0, c, bias, mode)
    finish_row(x1, y1, c + c_row, bias, mode)
    finish_row(x2, y2, c + 2 * c_row, bias, mode)
    finish_row(x3, y3, c + 3 * c_row, bias, mode)
    finish_row(x4, y4, c + 4 * c_row, bias, mode)
    finish_row(x5, y5, c + 5 * c_row, bias, mode)


@kernel
def _chain4(
    depth, a, a_row, b, more, d, d_row, e, start, keep, side, mirror, u, v, c, c_row, bias, side_bias, mode,
):  # fmt: skip
    """`_chain` for four rows."""
    zero = fill(ZERO)
    x0 = x1 = x2 = x3 = zero
    y0 = y1 = y2 = y3 = zero
    if start != 0:
        x0, y0 = load(start + 0), load(start + 32)
        x1, y1 = load(start + 64), load(start + 96)
        x2, y2 = load(start + 128), load(start + 160)
        x3, y3 = load(start + 192), load(start + 224)
    x0, x1, x2, x3, y0, y1, y2, y3 = (
        add4(depth, a, a_row, 4, b, 64, x0, x1, x2, x3, y0, y1, y2, y3)
    )  # fmt: skip
    if keep != 0:
        finish_row(x0, y0, keep + 0, 0, SET)
        finish_row(x1, y1, keep + 64, 0, SET)
        finish_row(x2, y2, keep + 128, 0, SET)
        finish_row(x3, y3, keep + 192, 0, SET)
    if side != 0:
        _finish_aside(x0, y0, mirror, u + 0, v + 0, side, side_bias, mode)
        _finish_aside(x1, y1, mirror, u + 64, v + 64, side + c_row, side_bias, mode)
        _finish_aside(x2, y2, mirror, u + 128, v + 128, side + 2 * c_row, side_bias, mode)
        _finish_aside(x3, y3, mirror, u + 192, v + 192, side + 3 * c_row, side_bias, mode)
    if more:
        x0, x1, x2, x3, y0, y1, y2, y3 = (
            add4(depth, d, d_row, 4, e, 64, x0, x1, x2, x3, y0, y1, y2, y3)
        )  # fmt: skip
    finish_row(x0, y0, c, bias, mode)
    finish_row(x1, y1, c + c_row, bias, mode)
    finish_row(x2, y2, c + 2 * c_row, bias, mode)
    finish_row(x3, y3, c + 3 * c_row, bias, mode)


@kernel
def _chain(
    count, depth, a, a_row, b, more, d, d_row, e, start, keep, side, mirror, u, v, c, c_row, bias, side_bias, mode,
):  # fmt: skip
    """Finish the tile at `c`, 16 columns of `count` rows, six or four: `start` + A B [+ D E if `more`].

    What the first product leaves is kept at `keep`; with `side`, the tile there is finished from it, and from u and v. Of
    `start`, `keep` and `side`, 0 is none. Tiles that are kept lie row by row.
    """
    if count == 6:
        _chain6(depth, a, a_row, b, more, d, d_row, e, start, keep, side, mirror, u, v, c, c_row, bias, side_bias,
                mode)  # fmt: skip
    else:
        _chain4(depth, a, a_row, b, more, d, d_row, e, start, keep, side, mirror, u, v, c, c_row, bias, side_bias,
                mode)  # fmt: skip


@kernel
def _tile_rows(left):
    """How many rows the next tile takes of an even number, not 2, that are `left`: fours first, until sixes come out even."""
    return 6 if left % 6 == 0 else 4


@kernel
def _tanh_tile(at, row, count):
    for k in range(at, at + count * row, row):
        store(k, tanh(load(k)))
        store(k + 32, tanh(load(k + 32)))


@kernel
def seven_product(
    mirror, a, a_row, rows, s, s_row, packed, t, depth, columns, c, c_row, bias, mode, kept
):  # fmt: skip
    """`fused_tiles.product` of a large layer, forward or (`mirror`) backward, with the sums of A and of `packed`.

    `rows` is a multiple of 4, at least 16, `depth` even, `columns` a multiple of 32. `kept` has room for three panels of
    half of the rows.
    """
    ending = LINEAR if mode == TANH else mode
    rows, half, columns = rows // 2, depth // 2, columns // 2
    size, t_size = rows * s_row, 4 * columns * half
    c_below, c_right = rows * c_row, 4 * columns
    a1, a2, a3 = a, a + 4 * half, a + rows * a_row + 4 * half
    right = 4 * columns * depth
    b1, b2, b3 = packed, packed + 64 * half, packed + 64 * half + right
    if mirror:
        a1, a2, a3 = a2, a1, a + rows * a_row
        b1, b2, b3 = b2, b1, packed + right
    for panel in range(columns // WIDE):
        to, here = c + 64 * panel, bias + 64 * panel
        there = here + c_right
        b = 64 * depth * panel
        t1 = t + 64 * half * panel
        t2, t3, t4 = t1 + t_size, t1 + 2 * t_size, t1 + 3 * t_size
        for line in range(4):
            r = 0
            while r < rows:
                count = _tile_rows(rows - r)
                at = to + r * c_row
                p = kept + 64 * r
                u, v = p + 64 * rows, p + 128 * rows
                ar, s1 = r * a_row, s + r * s_row
                done = at
                if line == 0:
                    _chain(count, half, a1 + ar, a_row, b1 + b, True, a2 + ar, a_row, b2 + b, 0, p, 0, mirror, 0, 0,
                           at, c_row, here, 0, ending)  # fmt: skip
                elif line == 1:
                    _chain(count, half, s1 + size, s_row, t2, True, s1 + 2 * size, s_row, t3, p, u, 0, mirror, 0, 0,
                           v, 64, 0, 0, MINUS if mirror else SET)  # fmt: skip
                elif line == 2:
                    done = at + c_below
                    _chain(count, half, a3 + ar, a_row, t4, False, 0, 0, 0, v, 0, 0, mirror, 0, 0,
                           done, c_row, here, 0, ending)  # fmt: skip
                else:
                    done = at + c_right
                    _chain(count, half, s1, s_row, t1, True, s1 + 3 * size, s_row, b3 + b, u, 0, done + c_below,
                           mirror, u, v, done, c_row, there, there, ending)  # fmt: skip
                if mode == TANH and line != 1:
                    _tanh_tile(done, c_row, count)
                    if line == 3:
                        _tanh_tile(done + c_below, c_row, count)
                r += count


@kernel
def _add_quarter(z, z_row, outputs, x, x_row, samples, to, mode):
    """Add Z[samples, outputs]' X[samples, 16] to the panel at `to`, whose rows lie one after another."""
    o = 0
    while o < outputs:
        count = _tile_rows(outputs - o)
        prefetch(to + 12 * 64)
        prefetch(to + 14 * 64)
        prefetch(to + 16 * 64)
        tile(count, z + 4 * o, 4, z_row, x, x_row, samples, to, 64, 0, mode)
        to += 64 * count
        o += count


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
