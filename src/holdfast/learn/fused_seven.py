"""Products of large matrices by seven products of quarters instead of eight (Strassen's, in Winograd's form).

In wide layers the tiles run at the machine's multiply-add limit, so what is left to save is multiply-adds. With all
three matrices in quarters,

    s1 = a21 + a22    s2 = s1 - a11    s3 = a11 - a21    s4 = a12 - s2
    t1 = b12 - b11    t2 = b22 - t1    t3 = b22 - b12    t4 = b21 - t2

    c11 = a11 b11 + a12 b21             what stands after the first product, p, is kept
    u = p + s2 t2,   v = u + s3 t3      both are kept
    c21 = v + a22 t4
    w = u + s1 t1,   c12 = w + s4 b22   and on the way
    c22 = v + w - u

Every line is a chain of products in the registers of a tile, so the sums of C cost next to nothing. Those of activations
are made once a block, those of weights once a minibatch. Gradients are too shallow for it: there a block is as deep as it
has samples, and chains of half of that end too often. Results differ from those of eight products by rounding, and a
row's by where in its block it stands; so only updates use them, whose blocks are always cut the same way.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import numpy as np

from holdfast.jit import kernel
from holdfast.learn.fused_simd import fill, fma, load, splat, store, tanh
from holdfast.learn.fused_tiles import LINEAR, SET, TANH, WIDE, finish, product

LEAST_ROWS = 24
"""Samples of a block from which it pays."""
ZERO = np.float32(0.0)


@kernel
def _left_sums(x11, x12, x21, x22, to, size):
    """Write s1 to s4 of one vector of each quarter, `size` bytes apart."""
    a11, a21 = load(x11), load(x21)
    s = a21 + load(x22)
    store(to, s)
    s = s - a11
    store(to + size, s)
    store(to + 2 * size, a11 - a21)
    store(to + 3 * size, load(x12) - s)


@kernel
def _right_sums(x11, x12, x21, x22, to, size):
    """Write t1 to t4 of one vector of each quarter, `size` bytes apart."""
    b12, b22 = load(x12), load(x22)
    t = b12 - load(x11)
    store(to, t)
    t = b22 - t
    store(to + size, t)
    store(to + 2 * size, b22 - b12)
    store(to + 3 * size, load(x21) - t)


@kernel
def panel_sums(packed, depth, columns, to):
    """Write t1 to t4 of packed weights (`fused_tiles.product`), packed likewise."""
    panel = 64 * depth
    half, right = panel // 2, columns // 2 // WIDE * panel
    size = columns // 2 // WIDE * half
    for j in range(columns // 2 // WIDE):
        at, out = packed + j * panel, to + j * half
        for k in range(0, half, 32):
            _right_sums(at + k, at + right + k, at + half + k, at + right + half + k, out + k, size)


@kernel
def _chain6(
    depth, a, a_row, a_k, b, b_k, more, d, d_row, d_k, e, e_k, start, keep, side, u, v, c, c_row, bias,
    side_bias, mode,
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
    a3 = a + 3 * a_row
    for _ in range(depth):
        p, q = load(b), load(b + 32)
        s = splat(a)
        x0, y0 = fma(s, p, x0), fma(s, q, y0)
        s = splat(a + a_row)
        x1, y1 = fma(s, p, x1), fma(s, q, y1)
        s = splat(a + 2 * a_row)
        x2, y2 = fma(s, p, x2), fma(s, q, y2)
        s = splat(a3)
        x3, y3 = fma(s, p, x3), fma(s, q, y3)
        s = splat(a3 + a_row)
        x4, y4 = fma(s, p, x4), fma(s, q, y4)
        s = splat(a3 + 2 * a_row)
        x5, y5 = fma(s, p, x5), fma(s, q, y5)
        a += a_k
        a3 += a_k
        b += b_k
    if keep != 0:
        store(keep + 0, x0)
        store(keep + 32, y0)
        store(keep + 64, x1)
        store(keep + 96, y1)
        store(keep + 128, x2)
        store(keep + 160, y2)
        store(keep + 192, x3)
        store(keep + 224, y3)
        store(keep + 256, x4)
        store(keep + 288, y4)
        store(keep + 320, x5)
        store(keep + 352, y5)
    if side != 0:
        finish(load(v + 0) - load(u + 0) + x0, side, side_bias, mode)
        finish(load(v + 32) - load(u + 32) + y0, side + 32, side_bias + 32, mode)
        finish(load(v + 64) - load(u + 64) + x1, side + c_row, side_bias, mode)
        finish(load(v + 96) - load(u + 96) + y1, side + c_row + 32, side_bias + 32, mode)
        finish(load(v + 128) - load(u + 128) + x2, side + 2 * c_row, side_bias, mode)
        finish(load(v + 160) - load(u + 160) + y2, side + 2 * c_row + 32, side_bias + 32, mode)
        finish(load(v + 192) - load(u + 192) + x3, side + 3 * c_row, side_bias, mode)
        finish(load(v + 224) - load(u + 224) + y3, side + 3 * c_row + 32, side_bias + 32, mode)
        finish(load(v + 256) - load(u + 256) + x4, side + 4 * c_row, side_bias, mode)
        finish(load(v + 288) - load(u + 288) + y4, side + 4 * c_row + 32, side_bias + 32, mode)
        finish(load(v + 320) - load(u + 320) + x5, side + 5 * c_row, side_bias, mode)
        finish(load(v + 352) - load(u + 352) + y5, side + 5 * c_row + 32, side_bias + 32, mode)
    if more:
        d3 = d + 3 * d_row
        for _ in range(depth):
            p, q = load(e), load(e + 32)
            s = splat(d)
            x0, y0 = fma(s, p, x0), fma(s, q, y0)
            s = splat(d + d_row)
            x1, y1 = fma(s, p, x1), fma(s, q, y1)
            s = splat(d + 2 * d_row)
            x2, y2 = fma(s, p, x2), fma(s, q, y2)
            s = splat(d3)
            x3, y3 = fma(s, p, x3), fma(s, q, y3)
            s = splat(d3 + d_row)
            x4, y4 = fma(s, p, x4), fma(s, q, y4)
            s = splat(d3 + 2 * d_row)
            x5, y5 = fma(s, p, x5), fma(s, q, y5)
            d += d_k
            d3 += d_k
            e += e_k
    finish(x0, c, bias, mode)
    finish(y0, c + 32, bias + 32, mode)
    finish(x1, c + c_row, bias, mode)
    finish(y1, c + c_row + 32, bias + 32, mode)
    finish(x2, c + 2 * c_row, bias, mode)
    finish(y2, c + 2 * c_row + 32, bias + 32, mode)
    finish(x3, c + 3 * c_row, bias, mode)
    finish(y3, c + 3 * c_row + 32, bias + 32, mode)
    finish(x4, c + 4 * c_row, bias, mode)
    finish(y4, c + 4 * c_row + 32, bias + 32, mode)
    finish(x5, c + 5 * c_row, bias, mode)
    finish(y5, c + 5 * c_row + 32, bias + 32, mode)


@kernel
def _chain4(
    depth, a, a_row, a_k, b, b_k, more, d, d_row, d_k, e, e_k, start, keep, side, u, v, c, c_row, bias,
    side_bias, mode,
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
    a3 = a + 3 * a_row
    for _ in range(depth):
        p, q = load(b), load(b + 32)
        s = splat(a)
        x0, y0 = fma(s, p, x0), fma(s, q, y0)
        s = splat(a + a_row)
        x1, y1 = fma(s, p, x1), fma(s, q, y1)
        s = splat(a + 2 * a_row)
        x2, y2 = fma(s, p, x2), fma(s, q, y2)
        s = splat(a3)
        x3, y3 = fma(s, p, x3), fma(s, q, y3)
        a += a_k
        a3 += a_k
        b += b_k
    if keep != 0:
        store(keep + 0, x0)
        store(keep + 32, y0)
        store(keep + 64, x1)
        store(keep + 96, y1)
        store(keep + 128, x2)
        store(keep + 160, y2)
        store(keep + 192, x3)
        store(keep + 224, y3)
    if side != 0:
        finish(load(v + 0) - load(u + 0) + x0, side, side_bias, mode)
        finish(load(v + 32) - load(u + 32) + y0, side + 32, side_bias + 32, mode)
        finish(load(v + 64) - load(u + 64) + x1, side + c_row, side_bias, mode)
        finish(load(v + 96) - load(u + 96) + y1, side + c_row + 32, side_bias + 32, mode)
        finish(load(v + 128) - load(u + 128) + x2, side + 2 * c_row, side_bias, mode)
        finish(load(v + 160) - load(u + 160) + y2, side + 2 * c_row + 32, side_bias + 32, mode)
        finish(load(v + 192) - load(u + 192) + x3, side + 3 * c_row, side_bias, mode)
        finish(load(v + 224) - load(u + 224) + y3, side + 3 * c_row + 32, side_bias + 32, mode)
    if more:
        d3 = d + 3 * d_row
        for _ in range(depth):
            p, q = load(e), load(e + 32)
            s = splat(d)
            x0, y0 = fma(s, p, x0), fma(s, q, y0)
            s = splat(d + d_row)
            x1, y1 = fma(s, p, x1), fma(s, q, y1)
            s = splat(d + 2 * d_row)
            x2, y2 = fma(s, p, x2), fma(s, q, y2)
            s = splat(d3)
            x3, y3 = fma(s, p, x3), fma(s, q, y3)
            d += d_k
            d3 += d_k
            e += e_k
    finish(x0, c, bias, mode)
    finish(y0, c + 32, bias + 32, mode)
    finish(x1, c + c_row, bias, mode)
    finish(y1, c + c_row + 32, bias + 32, mode)
    finish(x2, c + 2 * c_row, bias, mode)
    finish(y2, c + 2 * c_row + 32, bias + 32, mode)
    finish(x3, c + 3 * c_row, bias, mode)
    finish(y3, c + 3 * c_row + 32, bias + 32, mode)


@kernel
def _chain(
    six, depth, a, a_row, a_k, b, b_k, more, d, d_row, d_k, e, e_k, start, keep, side, u, v, c, c_row, bias,
    side_bias, mode,
):  # fmt: skip
    """Finish the tile at `c`, 16 columns of six or four rows: `start` + A B [+ D E if `more`].

    What the first product leaves is kept at `keep`; with `side`, the tile there is finished from it, + v - u. Of `start`,
    `keep` and `side`, 0 is none. Tiles that are kept lie row by row.
    """
    if six:
        _chain6(depth, a, a_row, a_k, b, b_k, more, d, d_row, d_k, e, e_k, start, keep, side, u, v, c, c_row,
                bias, side_bias, mode)  # fmt: skip
    else:
        _chain4(depth, a, a_row, a_k, b, b_k, more, d, d_row, d_k, e, e_k, start, keep, side, u, v, c, c_row,
                bias, side_bias, mode)  # fmt: skip


@kernel
def _tanh_tile(at, row, count):
    for k in range(at, at + count * row, row):
        store(k, tanh(load(k)))
        store(k + 32, tanh(load(k + 32)))


@kernel
def _seven(
    rows, depth, columns, a, a_row, a_k, a_below, a_right, s, s_row, s_k, s_size, b, b_k, b_panel, b_below,
    b_right, t, t_k, t_panel, t_size, kept, c, c_row, bias, mode,
):  # fmt: skip
    """C of quarters [rows, columns] from A [rows, depth], B [depth, columns] and their sums at `s` and `t`.

    `rows` is even and at least 8, `columns` a multiple of 16. `_below` and `_right` lead from quarter to quarter, `_panel`
    from 16 columns to the next. `kept` has room for three panels of C.
    """
    ending = LINEAR if mode == TANH else mode
    c_below, c_right = rows * c_row, 4 * columns
    b22, a22 = b_below + b_right, a_below + a_right
    for panel in range(columns // WIDE):
        to, here = c + 64 * panel, bias + 64 * panel
        there = here + c_right
        b0, t1 = b + panel * b_panel, t + panel * t_panel
        t2, t3, t4 = t1 + t_size, t1 + 2 * t_size, t1 + 3 * t_size
        for line in range(4):
            r = 0
            while r < rows:
                six = (rows - r) % 6 == 0
                count = 6 if six else 4
                at = to + r * c_row
                p = kept + 64 * r
                u, v = p + 64 * rows, p + 128 * rows
                ar, s1 = a + r * a_row, s + r * s_row
                done = at
                if line == 0:
                    _chain(six, depth, ar, a_row, a_k, b0, b_k, True, ar + a_right, a_row, a_k, b0 + b_below, b_k,
                           0, p, 0, 0, 0, at, c_row, here, 0, ending)  # fmt: skip
                elif line == 1:
                    _chain(six, depth, s1 + s_size, s_row, s_k, t2, t_k, True, s1 + 2 * s_size, s_row, s_k, t3, t_k,
                           p, u, 0, 0, 0, v, 64, 0, 0, SET)  # fmt: skip
                elif line == 2:
                    done = at + c_below
                    _chain(six, depth, ar + a22, a_row, a_k, t4, t_k, False, 0, 0, 0, 0, 0,
                           v, 0, 0, 0, 0, done, c_row, here, 0, ending)  # fmt: skip
                else:
                    done = at + c_right
                    _chain(six, depth, s1, s_row, s_k, t1, t_k, True, s1 + 3 * s_size, s_row, s_k, b0 + b22, b_k,
                           u, 0, done + c_below, u, v, done, c_row, there, there, ending)  # fmt: skip
                if mode == TANH and line != 1:
                    _tanh_tile(done, c_row, count)
                    if line == 3:
                        _tanh_tile(done + c_below, c_row, count)
                r += count


@kernel
def seven_product(
    a, a_row, rows, packed, sums, depth, columns, c, c_row, bias, mode, spare, spare_row, kept
):  # fmt: skip
    """`fused_tiles.product` of a large layer; `sums` are those of `packed`, `spare` has room for those of A."""
    main = rows // 4 * 4
    if main < LEAST_ROWS:
        product(a, a_row, rows, packed, depth, columns, c, c_row, bias, mode)
        return
    h, k, n = main // 2, depth // 2, columns // 2
    below, right, size = h * a_row, 4 * k, h * spare_row
    for r in range(h):
        at, to = a + r * a_row, spare + r * spare_row
        for i in range(at, at + 4 * k, 32):
            _left_sums(i, i + right, i + below, i + below + right, to + i - at, size)
    _seven(h, k, n, a, a_row, 4, below, right, spare, spare_row, 4, size, packed, 64, 64 * depth, 64 * k,
           4 * n * depth, sums, 64, 64 * k, 4 * n * k, kept, c, c_row, bias, mode)  # fmt: skip
    if main < rows:
        product(a + main * a_row, a_row, rows - main, packed, depth, columns, c + main * c_row, c_row, bias,
                mode)  # fmt: skip
