"""The products of a tile, two vectors of columns of some rows: what the fused kernels spend their time in.

    t = products(6, 8, depth - 1, a, a_row, 4, b, 64)     # six rows of 8-lane vectors: a tuple of sums, two vectors a row
    each_row(put, a + 4 * depth - 4, a_row, b + 64 * depth - 64, t, (to,), (64,), (bias,))

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
    Floats,
    emit_constant,
    emit_fma,
    emit_load,
    emit_peek,
    emit_splat,
    literal_op,
    llvm_vector,
    vector_op,
)


def _plus(builder: Any, at: Any, stride: Any, times: int = 1) -> Any:
    """The address that is `times` strides (an LLVM value or a number of bytes) behind `at`."""
    if isinstance(stride, int):
        stride = ir.Constant(at.type, stride)
    return builder.add(at, builder.mul(stride, ir.Constant(at.type, times)))


def _multiples(builder: Any, stride: Any, count: int) -> list[Any]:
    """`stride` times 0, 1, 2, ...: as LLVM is to see them in a loop.

    Addresses hold multiples by 1, 2 and 4. The others get registers of their own: unless LLVM cannot see what they are, it
    may prefer to add strides to addresses one after another, an instruction for every row.
    """
    made = [builder.mul(stride, ir.Constant(stride.type, n)) for n in range(count)]
    if isinstance(stride, ir.Constant):
        return made
    return [v if n in (0, 1, 2, 4) else _hidden(builder, v) for n, v in enumerate(made)]


def _hidden(builder: Any, v: Any) -> Any:
    """`v`, in a register, without a history that LLVM could see."""
    return builder.call(ir.InlineAsm(ir.FunctionType(v.type, [v.type]), "", "=r,0"), [v])


def _pair(builder: Any, kind: Any, b: Any) -> list[Any]:
    """The two vectors of B at `b`."""
    return [emit_load(builder, kind, _plus(builder, b, 4 * kind.count * j)) for j in range(2)]


def _step(
    builder: Any, a: Any, a_rows: list[Any], b: Any, places: list[Any], combine: Callable[..., Any]
) -> None:
    """Emit one step of a tile: combine the product of each row's A and two vectors of B with what is in `places`."""
    kind = places[0].type.pointee
    vectors = _pair(builder, kind, b)
    for r, off in enumerate(a_rows):
        s = emit_splat(builder, kind, emit_peek(builder, builder.add(a, off)))
        for place, v in zip(places[2 * r : 2 * r + 2], vectors, strict=True):
            builder.store(combine(s, v, place), place)


def _steps(builder: Any, strides: Any, depth: Any, a: Any, b: Any, places: list[Any]) -> Any:
    """Emit `depth` steps of a tile, four at a time; return the tuple of its sums."""
    a_row, a_k, b_k = strides
    a_rows = _multiples(builder, a_row, len(places) // 2)
    a_ks, b_ks = _multiples(builder, a_k, 4), _multiples(builder, b_k, 4)
    at, to = (cgutils.alloca_once_value(builder, _hidden(builder, v)) for v in (a, b))
    four = ir.Constant(depth.type, 4)
    for count, steps in ((builder.sdiv(depth, four), 4), (builder.srem(depth, four), 1)):
        with cgutils.for_range(builder, count):
            x, y = builder.load(at), builder.load(to)
            for k in range(steps):
                _step(
                    builder, builder.add(x, a_ks[k]), a_rows, builder.add(y, b_ks[k]), places,
                    lambda s, v, place: emit_fma(builder, s, v, builder.load(place)),
                )  # fmt: skip
            builder.store(_plus(builder, x, a_k, steps), at)
            builder.store(_plus(builder, y, b_k, steps), to)
    return cgutils.pack_array(builder, [builder.load(place) for place in places])


@literal_op
def products(
    typing: Any, rows: Any, lanes: Any, depth: Any, a: Any, a_row: Any, a_k: Any, b: Any, b_k: Any
) -> Any:
    """The sums of a tile, a tuple of two vectors a row; `rows` and `lanes` are constants where this is called.

    sum[r] = A[r, k] * B[k, 2 * lanes columns] over k < depth, where A[r, k] is at a + r * a_row + k * a_k and B[k] at
    b + k * b_k.

    A core that shares its front end with another's load runs out of instructions first. Two of the strides should therefore
    be constants where this is called: addresses then take no instructions of their own.
    """
    if not (isinstance(rows, types.IntegerLiteral) and isinstance(lanes, types.IntegerLiteral)):
        return None
    sums = types.UniTuple(Floats(lanes.literal_value), 2 * rows.literal_value)

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        depth, a, a_row, a_k, b, b_k = args[2:]
        kind = llvm_vector(lanes.literal_value)
        places = [cgutils.alloca_once(builder, kind) for _ in range(sums.count)]
        one, none = ir.Constant(depth.type, 1), ir.Constant(depth.type, 0)
        some = builder.icmp_signed(">", depth, none)
        with builder.if_else(some) as (then, otherwise):
            with then:
                a_rows = _multiples(builder, a_row, rows.literal_value)
                _step(builder, a, a_rows, b, places, lambda s, v, _: builder.fmul(s, v))
            with otherwise:
                for place in places:
                    builder.store(emit_constant(kind, 0.0), place)
        # The first step was made above, if there was one to make.
        made = builder.select(some, one, none)
        return _steps(
            builder, (a_row, a_k, b_k), builder.sub(depth, made), _plus(builder, a, a_k),
            _plus(builder, b, b_k), places,
        )  # fmt: skip

    return sums(rows, lanes, *[types.int64] * 6), emit


@vector_op
def each_row(
    typing: Any, then: Any, a: Any, a_row: Any, b: Any, sums: Any, at: Any, steps: Any, rest: Any
) -> Any:
    """Make the last product of a tile and call `then(x, y, *at, *rest)` with each row of the sums.

    From row to row the addresses `at` grow by `steps`. Row by row, because stores that come all at once hold up the products of
    the next tile.
    """
    call = then.get_call_type(typing, (sums.dtype, sums.dtype, *at, *rest), {})

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        function = context.get_function(then, call)
        a, a_row, b = args[1:4]
        sums, at, steps, rest = (cgutils.unpack_tuple(builder, x) for x in args[4:])
        kind = sums[0].type
        vectors = _pair(builder, kind, b)
        for r in range(len(sums) // 2):
            s = emit_splat(builder, kind, emit_peek(builder, _plus(builder, a, a_row, r)))
            x, y = (
                emit_fma(builder, s, v, t)
                for v, t in zip(vectors, sums[2 * r : 2 * r + 2], strict=True)
            )
            # Added up here: a term of an address that becomes 0 in a compiled kernel makes LLVM take it for null.
            places = [_plus(builder, p, step, r) for p, step in zip(at, steps, strict=True)]
            function(builder, [x, y, *places, *rest])
        return context.get_dummy_value()

    return types.none(then, *[types.int64] * 3, sums, at, steps, rest), emit
