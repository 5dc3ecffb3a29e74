"""A barrier and other meeting points of Python threads inside compiled code, from LLVM atomics alone.

No threading layer takes part, so it works beside any other Numba code and in forked processes. A
waiting thread spins briefly, then yields, then sleeps, so that a machine with more threads than
cores goes on; and it leaves when the abort flag is set, so that a thread that could not start or
raised never leaves the others waiting.

    sync = np.zeros(SYNC_SIZE, np.int64)     # one for each parallel call, fresh
    sync[PATIENCE] = patience(threads)
    if barrier(address(sync), threads): return ABORTED
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from holdfast.jit import kernel
from holdfast.learn.fused_simd import vector_op
from holdfast.parallel import cores

SYNC_SIZE = 48
"""Length of the int64 array; arrivals, generation, abort, patience and two queues of tickets have cache lines of their own."""
ABORT = 16
"""Index of the abort flag: write 1 to release every waiting thread."""
PATIENCE = 24
"""Index of how long to spin before others are let onto the core: see `patience`."""

_TICKETS = 32
_SPINS = 20_000
_YIELDS = 200
_SLEEP_US = 50
_I64 = ir.IntType(64)
_X86 = platform.machine().lower() in {"x86_64", "amd64", "i686"}


def _pointer(builder: Any, at: Any) -> Any:
    return builder.inttoptr(at, _I64.as_pointer())


@vector_op
def add(typing: Any, at: Any, amount: Any) -> Any:
    """Add to the int64 at byte address `at`; return what it was."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", _pointer(builder, args[0]), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), emit


@vector_op
def read(typing: Any, at: Any) -> Any:
    """Return the int64 at byte address `at`, and see all that its writer wrote before."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load_atomic(_pointer(builder, args[0]), "acquire", 8)

    return types.int64(types.int64), emit


@vector_op
def write(typing: Any, at: Any, value: Any) -> Any:
    """Write the int64 at byte address `at` after all earlier writes."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store_atomic(args[1], _pointer(builder, args[0]), "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@vector_op
def exchange(typing: Any, at: Any, value: Any) -> Any:
    """Write the int64 at byte address `at`; return what it was."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.atomic_rmw("xchg", _pointer(builder, args[0]), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), emit


@vector_op
def replace(typing: Any, at: Any, old: Any, new: Any) -> Any:
    """Write `new` to byte address `at` if that holds `old`; return whether it did."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = _pointer(builder, args[0])
        pair = builder.cmpxchg(pointer, args[1], args[2], "seq_cst", "seq_cst")
        return builder.extract_value(pair, 1)

    return types.boolean(types.int64, types.int64, types.int64), emit


@vector_op
def pause(typing: Any) -> Any:
    """Tell the core that this is a spin loop."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if _X86:
            kind = ir.FunctionType(ir.VoidType(), [])
            name = "llvm.x86.sse2.pause"
            builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [])
        return context.get_dummy_value()

    return types.void(), emit


yield_core: Any = types.ExternalFunction("sched_yield", types.int32())
_sleep: Any = types.ExternalFunction("usleep", types.int32(types.uint32))


def patience(threads: int) -> int:
    """Return how many times a thread may look before it lets others onto its core.

    Whoever comes onto the core stays there for milliseconds, so with a core for each thread it pays to spin
    through some 300 us. With fewer cores the one that is waited for may be the one that needs this core.
    """
    return _SPINS if threads <= cores() else 0


@kernel
def rest(waits, spins):
    """Let a little time pass, more the longer one has waited."""
    if waits < spins:
        pause()
    elif waits < spins + _YIELDS:
        yield_core()
    else:
        _sleep(_SLEEP_US)


@kernel
def ticket(sync, queue):
    """Return 0, 1, 2, ... : each number of a queue, 0 or 1, to one caller only."""
    return add(sync + 8 * _TICKETS + 64 * queue, 1)


@kernel
def barrier(sync, threads):
    """Return 0 when all `threads` have arrived, 1 when the call was aborted."""
    if threads == 1:
        return 0
    generation = read(sync + 64)
    if add(sync, 1) == threads - 1:
        write(sync, 0)
        write(sync + 64, generation + 1)
        return read(sync + 8 * ABORT)
    waits, spins = 0, read(sync + 8 * PATIENCE)
    while read(sync + 64) == generation:
        if read(sync + 8 * ABORT) != 0:
            return 1
        waits += 1
        rest(waits, spins)
    return read(sync + 8 * ABORT)
