"""Vectors of float32 lanes as Numba values, and the arithmetic on them that the fused kernels need.

    acc = fma(splat(a), load(b), acc)      # acc, load(b): float8; a, b: byte addresses (int64)
    y = tanh(acc + load(bias))
    z = load_wide(b)                       # floats: as many lanes as this machine's vectors have
    z = z + load_as(z, b)                  # ... as many as z has

Explicit vectors, because whether LLVM finds a register-blocked form of a scalar loop nest differs
between its versions. `float8` has eight lanes on every machine (two SSE or NEON halves where there is no AVX), `floats` has
`LANES`. Use `floats` only where lanes do not meet (products by columns, element by element): then how many there are
changes no bit of a result. Addresses are plain integers: the caller keeps the arrays alive and in
bounds. Operators carry only the `contract` flag, so NaN and infinity keep their meaning.

This file defines no kernel but is compiled into many; that it names `holdfast.jit` makes it part of their
cache stamp.
"""

# mypy: allow-untyped-calls, allow-subclassing-any, allow-untyped-decorators

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, config, types
from numba.core.codegen import get_host_cpu_features
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

_F32 = ir.FloatType()
_I32 = ir.IntType(32)
_CONTRACT = ("contract",)


def _host_lanes() -> int:
    """Return how many float32 lanes the vectors have of the machine that Numba compiles for."""
    features = config.CPU_FEATURES  # type: ignore[attr-defined]
    features = get_host_cpu_features() if features is None else features
    return 16 if "+avx512f" in features.split(",") else 8


LANES = _host_lanes()
"""Lanes of `floats`."""
VECTOR = 4 * LANES
"""Bytes of `floats`."""


def vector_op(function: Any) -> Any:
    """Make a Numba intrinsic; untyped, because what it takes in a kernel is not what Python sees."""
    return intrinsic(function)


def literal_op(function: Any) -> Any:
    """`vector_op` that is told the values of arguments that are constants."""
    return intrinsic(prefer_literal=True)(function)


class Floats(types.Type):
    """The Numba type of some float32 lanes."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        super().__init__(name=f"Floats({lanes})")


float8, floats = Floats(8), Floats(LANES)


@register_model(Floats)
class _FloatsModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, llvm_vector(fe_type.lanes))


def llvm_vector(lanes: int) -> Any:
    return ir.VectorType(_F32, lanes)


def _operator(op: Callable[..., Any], emit: str) -> None:
    class Template(ConcreteTemplate):
        key = op
        cases = [signature(v, v, v) for v in {float8, floats}]  # noqa: RUF012

    infer_global(op)(Template)

    @lower_builtin(op, Floats, Floats)
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return getattr(builder, emit)(*args, flags=_CONTRACT)


_operator(operator.add, "fadd")
_operator(operator.sub, "fsub")
_operator(operator.mul, "fmul")
_operator(operator.truediv, "fdiv")


def emit_constant(kind: Any, x: float) -> Any:
    """`x` in all lanes of a vector of LLVM type `kind`."""
    return ir.Constant(kind, [ir.Constant(_F32, float(np.float32(x)))] * kind.count)


def _integers(kind: Any) -> Any:
    """The LLVM type of as many int32 lanes."""
    return ir.VectorType(_I32, kind.count)


def _int_constant(kind: Any, x: int) -> Any:
    return ir.Constant(_integers(kind), [ir.Constant(_I32, x)] * kind.count)


def _call(builder: Any, name: str, *args: Any) -> Any:
    """Emit a call of the LLVM intrinsic `name` on vectors."""
    kind = args[0].type
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(kind, [kind] * len(args)), f"llvm.{name}.v{kind.count}f32"
    )
    return builder.call(function, args)


def emit_fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return _call(builder, "fmuladd", a, b, c)


def _pick(builder: Any, compare: str, a: Any, b: Any) -> Any:
    """`a` where it compares true with `b`, else `b`: one min/max instruction, b when NaN."""
    return builder.select(builder.fcmp_ordered(compare, a, b), a, b)


def _poly(builder: Any, x: Any, coefficients: list[float]) -> Any:
    """Horner's scheme, highest power first."""
    y = emit_constant(x.type, coefficients[0])
    for c in coefficients[1:]:
        y = emit_fma(builder, y, x, emit_constant(x.type, c))
    return y


def emit_splat(builder: Any, kind: Any, scalar: Any) -> Any:
    nothing = ir.Constant(kind, ir.Undefined)
    one = builder.insert_element(nothing, scalar, ir.Constant(_I32, 0))
    return builder.shuffle_vector(one, nothing, _int_constant(kind, 0))


def emit_load(builder: Any, kind: Any, at: Any) -> Any:
    """The vector of LLVM type `kind` at an LLVM value that is a byte address."""
    value = builder.load(builder.inttoptr(at, kind.as_pointer()))
    value.align = 4
    return value


def emit_peek(builder: Any, at: Any) -> Any:
    """The float32 at an LLVM value that is a byte address."""
    return builder.load(builder.inttoptr(at, _F32.as_pointer()))


def _horizontal(builder: Any, v: Any, combine: Callable[[Any, Any], Any]) -> Any:
    """Reduce eight lanes in a fixed tree: (0,4) (1,5) (2,6) (3,7), then (0,2) (1,3), then (0,1)."""
    for step in (4, 2, 1):
        mask = ir.Constant(_integers(v.type), [ir.Constant(_I32, (i + step) % 8) for i in range(8)])
        v = combine(v, builder.shuffle_vector(v, v, mask))
    return builder.extract_element(v, ir.Constant(_I32, 0))


@vector_op
def address(typing: Any, array: Any) -> Any:
    """The byte address of an array's first element."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        view = context.make_array(sig.args[0])(context, builder, args[0])
        return builder.ptrtoint(view.data, ir.IntType(64))

    return types.int64(array), emit


def _emit_here(emit: Callable[..., Any]) -> Any:
    """How `emit(builder, kind, x)` is emitted for a call whose last argument is x."""

    def emitted(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return emit(builder, llvm_vector(sig.return_type.lanes), args[-1])

    return emitted


def _emit_splat_at(builder: Any, kind: Any, at: Any) -> Any:
    return emit_splat(builder, kind, emit_peek(builder, at))


@vector_op
def load(typing: Any, at: Any) -> Any:
    """The eight floats at byte address `at`."""
    return float8(types.int64), _emit_here(emit_load)


@vector_op
def load_wide(typing: Any, at: Any) -> Any:
    """The `LANES` floats at byte address `at`."""
    return floats(types.int64), _emit_here(emit_load)


@vector_op
def load_as(typing: Any, v: Any, at: Any) -> Any:
    """As many floats at byte address `at` as `v` has."""
    return v(v, types.int64), _emit_here(emit_load)


@vector_op
def store(typing: Any, at: Any, v: Any) -> Any:
    """Write a vector to byte address `at`."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store(args[1], builder.inttoptr(args[0], args[1].type.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(types.int64, v), emit


@vector_op
def bytes_of(typing: Any, v: Any) -> Any:
    """The size of a vector in memory."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return ir.Constant(ir.IntType(64), 4 * sig.args[0].lanes)

    return types.int64(v), emit


@vector_op
def peek(typing: Any, at: Any) -> Any:
    """The float32 at byte address `at`."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return emit_peek(builder, args[0])

    return types.float32(types.int64), emit


@vector_op
def peek_int(typing: Any, at: Any) -> Any:
    """The int32 at byte address `at`."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        value = builder.load(builder.inttoptr(args[0], _I32.as_pointer()))
        return builder.sext(value, ir.IntType(64))

    return types.int64(types.int64), emit


@vector_op
def poke(typing: Any, at: Any, x: Any) -> Any:
    """Write a float32 to byte address `at`."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store(args[1], builder.inttoptr(args[0], _F32.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, types.float32), emit


@vector_op
def poke_int(typing: Any, at: Any, x: Any) -> Any:
    """Write an integer as int32 to byte address `at`."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        value = builder.trunc(args[1], _I32)
        builder.store(value, builder.inttoptr(args[0], _I32.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@vector_op
def prefetch(typing: Any, at: Any) -> Any:
    """Ask for the cache line of byte address `at`; any address is allowed."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, _I32, _I32, _I32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        read, near, data = (ir.Constant(_I32, n) for n in (0, 3, 1))
        builder.call(function, [builder.inttoptr(args[0], pointer), read, near, data])
        return context.get_dummy_value()

    return types.void(types.int64), emit


@vector_op
def splat(typing: Any, at: Any) -> Any:
    """The float32 at byte address `at`, in eight lanes."""
    return float8(types.int64), _emit_here(_emit_splat_at)


@vector_op
def splat_as(typing: Any, v: Any, at: Any) -> Any:
    """The float32 at byte address `at`, in as many lanes as `v` has."""
    return v(v, types.int64), _emit_here(_emit_splat_at)


@vector_op
def fill(typing: Any, x: Any) -> Any:
    """The float32 `x` in eight lanes."""
    return float8(types.float32), _emit_here(emit_splat)


@vector_op
def fill_wide(typing: Any, x: Any) -> Any:
    """The float32 `x` in `LANES` lanes."""
    return floats(types.float32), _emit_here(emit_splat)


@vector_op
def fill_as(typing: Any, v: Any, x: Any) -> Any:
    """The float32 `x` in as many lanes as `v` has."""
    return v(v, types.float32), _emit_here(emit_splat)


@vector_op
def fma(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, fused where the machine can."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return emit_fma(builder, *args)

    return a(a, a, a), emit


def _binary(name: str, compare: str) -> Any:
    def typed(typing: Any, a: Any, b: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return _pick(builder, compare, args[0], args[1])

        return a(a, a), emit

    typed.__name__ = name
    return vector_op(typed)


lower_of = _binary("lower_of", "<")
upper_of = _binary("upper_of", ">")


@vector_op
def where_less(typing: Any, a: Any, b: Any, x: Any, y: Any) -> Any:
    """Lane by lane: x if a < b, else y."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", args[0], args[1]), args[2], args[3])

    return a(a, a, a, a), emit


@vector_op
def sqrt(typing: Any, a: Any) -> Any:
    """Correctly rounded square roots."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _call(builder, "sqrt", args[0])

    return a(a), emit


@vector_op
def total(typing: Any, a: Any) -> Any:
    """The sum of the lanes, in a fixed order."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _horizontal(builder, args[0], builder.fadd)

    return types.float32(float8), emit


_TREE = (
    (4, [0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]),
    (2, [0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]),
    (1, [0, 8, 2, 10, 4, 12, 6, 14], [1, 9, 3, 11, 5, 13, 7, 15]),
)
"""Of vectors i and i + the first number: the lanes of both that `total` adds to each other."""


@vector_op
def totals(
    typing: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any
) -> Any:  # fmt: skip
    """The `total` of each of eight vectors, in one vector."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        v = list(args)
        for count, *masks in _TREE:
            v = [
                builder.fadd(
                    *(
                        builder.shuffle_vector(
                            v[i], v[i + count], ir.Constant(_integers(v[i].type), m)
                        )
                        for m in masks
                    )
                )
                for i in range(count)
            ]
        return v[0]

    return float8(*[float8] * 8), emit


# x * P(x^2) / Q(x^2), fitted for the least relative error on [-7.9, 7.9]; beyond, tanh is 1 - 3e-7. Scaled so that Q
# begins with 1, which saves a multiplication.
_TANH_P = [4.626524717e01, 1.187728630e04, 5.189229060e05, 4.011953386e06]
_TANH_Q = [1.0, 9.629178306e02, 9.570149742e04, 1.856236598e06, 4.011953910e06]
_TANH_LIMIT = 7.9


@vector_op
def tanh(typing: Any, a: Any) -> Any:
    """Hyperbolic tangent, relative error below 5e-7, never beyond +-1; NaN stays NaN."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        x = args[0]
        kind = x.type
        # The bound stands first: a comparison with NaN is false, which picks x itself.
        x = _pick(builder, "<", emit_constant(kind, _TANH_LIMIT), x)
        x = _pick(builder, ">", emit_constant(kind, -_TANH_LIMIT), x)
        square = builder.fmul(x, x)
        p = builder.fmul(x, _poly(builder, square, _TANH_P))
        return builder.fdiv(p, _poly(builder, square, _TANH_Q))

    return a(a), emit


_EXP_POLY = [
    1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
    5.0000001201e-1,
]  # fmt: skip


_EXP_LIMITS = -87.3, 88.376
_SHIFT_127 = 12582912.0 + 127.0
"""Added to a small number, leaves it rounded to an integer, plus 127, in the lowest bits."""


@vector_op
def exp(typing: Any, a: Any) -> Any:
    """Exponential (Cephes), relative error about 1e-7; exactly 0 below -87.3, inf above 88.376; NaN stays NaN."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = args[0].type

        def constant(x: float) -> Any:
            return emit_constant(kind, x)

        low, high = (constant(x) for x in _EXP_LIMITS)
        x = _pick(builder, ">", low, _pick(builder, "<", high, args[0]))
        shifted = emit_fma(builder, x, constant(1.44269504088896341), constant(_SHIFT_127))
        n = builder.fsub(shifted, constant(_SHIFT_127))
        r = emit_fma(builder, n, constant(-0.693359375), x)
        r = emit_fma(builder, n, constant(2.12194440e-4), r)
        y = emit_fma(builder, _poly(builder, r, _EXP_POLY), builder.fmul(r, r), r)
        y = builder.fadd(y, constant(1.0))
        exponent = builder.shl(builder.bitcast(shifted, _integers(kind)), _int_constant(kind, 23))
        y = builder.fmul(y, builder.bitcast(exponent, kind))
        small = builder.fcmp_ordered("<", args[0], low)
        y = builder.select(small, constant(0.0), y)
        big = builder.fcmp_ordered(">", args[0], high)
        return builder.select(big, constant(float("inf")), y)

    return a(a), emit


_LOG_POLY = [
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
]  # fmt: skip


@vector_op
def log(typing: Any, a: Any) -> Any:
    """Natural logarithm (Cephes) of positive, normal numbers; NaN stays NaN."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = args[0].type
        bits = builder.bitcast(args[0], _integers(kind))
        # Mantissa in [sqrt(1/2), sqrt(2)): shift the exponent boundary there by integer arithmetic.
        shifted = builder.sub(bits, _int_constant(kind, 0x3F3504F3))
        whole = builder.ashr(shifted, _int_constant(kind, 23))
        mantissa = builder.sub(bits, builder.shl(whole, _int_constant(kind, 23)))
        n = builder.sitofp(whole, kind)
        x = builder.fsub(builder.bitcast(mantissa, kind), emit_constant(kind, 1.0))
        square = builder.fmul(x, x)
        y = builder.fmul(builder.fmul(_poly(builder, x, _LOG_POLY), x), square)
        y = emit_fma(builder, n, emit_constant(kind, -2.12194440e-4), y)
        y = emit_fma(builder, square, emit_constant(kind, -0.5), y)
        y = builder.fadd(x, y)
        y = emit_fma(builder, n, emit_constant(kind, 0.693359375), y)
        nan = builder.fcmp_unordered("uno", args[0], args[0])
        return builder.select(nan, args[0], y)

    return a(a), emit
