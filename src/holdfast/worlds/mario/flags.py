"""Small parts of the CPU: memory without side effects, the status byte, interrupts."""

from __future__ import annotations

from holdfast.jit import kernel
from holdfast.worlds.mario.machine import PC, Machine, P, S, widen


@kernel
def peek(m: Machine, address: int) -> int:
    """Return the byte of RAM or program at this address; what has side effects reads 0."""
    value = widen(0)
    if address >= 0x8000:
        value = widen(m.program[address & 0x7FFF])
    elif address < 0x2000:
        value = widen(m.ram[address & 0x7FF])
    return value


@kernel
def pack_flags(nz: int, c: int, v: int, rest: int) -> int:
    """Return the status byte; bit 5 is always 1, bit 4 (B) is the caller's."""
    flags = rest | c | (v << 6) | 0x20
    if nz & 0xFF == 0:
        flags |= 0x02
    if nz & 0x180:
        flags |= 0x80
    return flags


@kernel
def unpack_nz(flags: int) -> int:
    """Return the `nz` that stands for the N and Z of a status byte."""
    return ((flags & 0x80) << 1) | (0 if flags & 0x02 else 1)


@kernel
def interrupt(m: Machine, vector: int, break_bit: int) -> None:
    """Push PC and status, and go on at the address stored at `vector`."""
    regs, ram, program = m.regs, m.ram, m.program
    pc, s = regs[PC], regs[S]
    ram[0x100 + s] = pc >> 8
    ram[0x100 + ((s - 1) & 0xFF)] = pc & 0xFF
    ram[0x100 + ((s - 2) & 0xFF)] = (regs[P] & 0xEF) | break_bit | 0x20
    regs[S] = (s - 3) & 0xFF
    regs[P] |= 0x04
    regs[PC] = program[vector & 0x7FFF] | (program[(vector + 1) & 0x7FFF] << 8)
