"""Blocks of eight rows by eight columns, turned over in place: work on short rows goes eight rows at a time."""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from holdfast.jit import kernel
from holdfast.learn.fused_simd import float8, load, store, vector_op

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
def transpose(at, row):
    """Swap rows and columns of the block at byte address `at`, `row` bytes from row to row."""
    a, b, c, d, e, f, g, h = _columns(
        load(at),
        load(at + row),
        load(at + 2 * row),
        load(at + 3 * row),
        load(at + 4 * row),
        load(at + 5 * row),
        load(at + 6 * row),
        load(at + 7 * row),
    )
    store(at, a)
    store(at + row, b)
    store(at + 2 * row, c)
    store(at + 3 * row, d)
    store(at + 4 * row, e)
    store(at + 5 * row, f)
    store(at + 6 * row, g)
    store(at + 7 * row, h)
