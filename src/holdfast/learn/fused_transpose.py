"""Rows and columns of a block of eight by eight floats swapped: what is done to eight rows is done at once."""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from holdfast.jit import kernel
from holdfast.learn.fused_simd import float8, load, store, upper_of, vector_op

_MASK = ir.VectorType(ir.IntType(32), 8)
_STEPS = {
    1: ([0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15]),
    2: ([0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]),
    4: ([0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]),
}
"""Distance of two vectors, and the lanes of both that make their successors: one instruction each."""


@vector_op
def _columns(
    typing: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any
) -> Any:  # fmt: skip
    """The columns of the block that has these rows."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        v = list(args)
        for distance, lanes in _STEPS.items():
            for i in range(8):
                if i & distance == 0:
                    pair = v[i], v[i + distance]
                    v[i], v[i + distance] = (
                        builder.shuffle_vector(*pair, ir.Constant(_MASK, mask)) for mask in lanes
                    )
        found = [v[i] for i in (0, 2, 1, 3, 4, 6, 5, 7)]
        return context.make_tuple(builder, sig.return_type, found)

    return types.UniTuple(float8, 8)(*[float8] * 8), emit


@kernel
def transpose(source, source_row, to, to_row):
    """Write the columns of the block at byte address `source` as rows to `to`, which may be the same.

    `source_row` and `to_row` are the bytes from row to row.
    """
    a, b, c, d, e, f, g, h = _columns(
        load(source),
        load(source + source_row),
        load(source + 2 * source_row),
        load(source + 3 * source_row),
        load(source + 4 * source_row),
        load(source + 5 * source_row),
        load(source + 6 * source_row),
        load(source + 7 * source_row),
    )
    store(to, a)
    store(to + to_row, b)
    store(to + 2 * to_row, c)
    store(to + 3 * to_row, d)
    store(to + 4 * to_row, e)
    store(to + 5 * to_row, f)
    store(to + 6 * to_row, g)
    store(to + 7 * to_row, h)


@kernel
def choice(at, row, j):
    """Where column `j` of eight rows lies when the blocks at `at` are turned over in place."""
    return at + 32 * (j >> 3) + row * (j & 7)


@kernel
def turn_over(at, row, choices, vectors):
    """Turn over the blocks of a segment's logits in place; return the highest logit of each of the eight rows."""
    for k in range(vectors):
        transpose(at + 32 * k, row, at + 32 * k, row)
    highest = load(at)
    for j in range(1, choices):
        highest = upper_of(load(choice(at, row, j)), highest)
    return highest
