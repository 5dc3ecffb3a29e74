"""The products of a tile, 16 columns of six rows or of four: what the fused kernels spend their time in.

    t = products(6, depth - 1, a, a_row, 4, b, 64)        # sums: a tuple, two vectors a row
    t = each_row(put, a + 4 * depth - 4, a_row, b + 64 * depth - 64, t, (to,), (64,), (bias,))
    t = add_products(depth, d, d_row, 4, e, 64, t)

Emitted directly, because the number of rows is a number here, and a kernel would have to name every sum. That this file names
`holdfast.jit` makes it part of the cache stamp of the kernels that it is compiled into.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from holdfast.learn.fused_simd import (
    VEC,
    emit_constant,
    emit_fma,
    emit_load,
    emit_peek,
    emit_splat,
    float8,
    literal_op,
    vector_op,
)


def _plus(builder: Any, at: Any, stride: Any, times: int = 1) -> Any:
    """The address that is `times` strides (an LLVM value or a number of bytes) behind `at`."""
    if isinstance(stride, int):
        stride = ir.Constant(at.type, stride)
    return builder.add(at, builder.mul(stride, ir.Constant(at.type, times)))


def _step(
    builder: Any, a: Any, a_row: Any, b: Any, places: list[Any], combine: Callable[..., Any]
) -> None:
    """Emit one step of a tile: combine the product of each row's A and 16 columns of B with what is in `places`."""
    vectors = [emit_load(builder, _plus(builder, b, 32 * j)) for j in range(2)]
    for r in range(len(places) // 2):
        s = emit_splat(builder, emit_peek(builder, _plus(builder, a, a_row, r)))
        for place, v in zip(places[2 * r : 2 * r + 2], vectors, strict=True):
            builder.store(combine(s, v, place), place)


def _steps(builder: Any, strides: Any, depth: Any, a: Any, b: Any, places: list[Any]) -> Any:
    """Emit `depth` steps of a tile, four at a time; return the tuple of its sums."""
    a_row, a_k, b_k = strides
    at, to = (cgutils.alloca_once_value(builder, v) for v in (a, b))
    four = ir.Constant(depth.type, 4)
    for count, steps in ((builder.sdiv(depth, four), 4), (builder.srem(depth, four), 1)):
        with cgutils.for_range(builder, count):
            x, y = builder.load(at), builder.load(to)
            for k in range(steps):
                _step(
                    builder, _plus(builder, x, a_k, k), a_row, _plus(builder, y, b_k, k), places,
                    lambda s, v, place: emit_fma(builder, s, v, builder.load(place)),
                )  # fmt: skip
            builder.store(_plus(builder, x, a_k, steps), at)
            builder.store(_plus(builder, y, b_k, steps), to)
    return cgutils.pack_array(builder, [builder.load(place) for place in places])


@vector_op
def add_products(
    typing: Any, depth: Any, a: Any, a_row: Any, a_k: Any, b: Any, b_k: Any, sums: Any
) -> Any:
    """Return the `sums` of a tile, a tuple of two vectors a row, after `depth` more products.

    sum[r] += A[r, k] * B[k, 16 columns], where A[r, k] is at a + r * a_row + k * a_k and B[k] at b + k * b_k.

    A core that shares its front end with another's load runs out of instructions first. Two of the strides should therefore
    be constants where this is called: addresses then take no instructions of their own.
    """

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        depth, a, a_row, a_k, b, b_k, sums = args
        places = [
            cgutils.alloca_once_value(builder, v) for v in cgutils.unpack_tuple(builder, sums)
        ]
        return _steps(builder, (a_row, a_k, b_k), depth, a, b, places)

    return sums(*[types.int64] * 6, sums), emit


@literal_op
def products(
    typing: Any, rows: Any, depth: Any, a: Any, a_row: Any, a_k: Any, b: Any, b_k: Any
) -> Any:
    """`add_products` to no sums; `rows` is a constant where this is called."""
    if not isinstance(rows, types.IntegerLiteral):
        return None

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        depth, a, a_row, a_k, b, b_k = args[1:]
        places = [cgutils.alloca_once(builder, VEC) for _ in range(2 * rows.literal_value)]
        one, none = ir.Constant(depth.type, 1), ir.Constant(depth.type, 0)
        some = builder.icmp_signed(">", depth, none)
        with builder.if_else(some) as (then, otherwise):
            with then:
                _step(builder, a, a_row, b, places, lambda s, v, _: builder.fmul(s, v))
            with otherwise:
                for place in places:
                    builder.store(emit_constant(0.0), place)
        # The first step was made above, if there was one to make.
        made = builder.select(some, one, none)
        return _steps(
            builder, (a_row, a_k, b_k), builder.sub(depth, made), _plus(builder, a, a_k),
            _plus(builder, b, b_k), places,
        )  # fmt: skip

    return types.UniTuple(float8, 2 * rows.literal_value)(rows, *[types.int64] * 6), emit


@vector_op
def each_row(
    typing: Any, then: Any, a: Any, a_row: Any, b: Any, sums: Any, at: Any, steps: Any, rest: Any
) -> Any:
    """Make the last product of a tile and call `then(x, y, *at, *rest)` with each row of the sums; return what it returns.

    From row to row the addresses `at` grow by `steps`. Row by row, because stores that come all at once hold up the products of
    the next tile.
    """
    call = then.get_call_type(typing, (float8, float8, *at, *rest), {})
    result = types.none if call.return_type == types.none else sums

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        function = context.get_function(then, call)
        a, a_row, b = args[1:4]
        sums, at, steps, rest = (cgutils.unpack_tuple(builder, x) for x in args[4:])
        vectors = [emit_load(builder, _plus(builder, b, 32 * j)) for j in range(2)]
        made = []
        for r in range(len(sums) // 2):
            s = emit_splat(builder, emit_peek(builder, _plus(builder, a, a_row, r)))
            x, y = (
                emit_fma(builder, s, v, t)
                for v, t in zip(vectors, sums[2 * r : 2 * r + 2], strict=True)
            )
            # Added up here: a term of an address that becomes 0 in a compiled kernel makes LLVM take it for null.
            places = [_plus(builder, p, step, r) for p, step in zip(at, steps, strict=True)]
            row = function(builder, [x, y, *places, *rest])
            if result != types.none:
                made += cgutils.unpack_tuple(builder, row)
        return cgutils.pack_array(builder, made) if made else context.get_dummy_value()

    return result(then, *[types.int64] * 3, sums, at, steps, rest), emit
