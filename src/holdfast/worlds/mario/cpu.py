"""The 6502 of the NES: all 151 official instructions with their cycles, no decimal mode.

`run_cpu` is one loop over instructions with the registers in local variables. The opcodes that
make up most of a game's instructions have a branch of their own; every other one, and every access
to something that is neither RAM nor program, goes through the tables of `opcodes.py`: first the
addressing mode, then the operation. So the kernel is quick and still compiles in seconds.

Flags are kept apart while running: `c` and `v` are 0 or 1, `rest` holds I and D in place, and
`nz` stands for both N and Z: Z is `nz & $FF == 0`, N is `nz & $180 != 0` (bit 8 lets N be set
together with Z, which only BIT and PLP can do).

A register access happens at the end of its instruction, when all its cycles have passed.
"""

from __future__ import annotations

from holdfast.jit import kernel
from holdfast.worlds.mario import opcodes as op
from holdfast.worlds.mario.bus import needs_settling, polls_to_skip, read_io, write_io
from holdfast.worlds.mario.flags import pack_flags, peek, unpack_nz
from holdfast.worlds.mario.machine import (
    BREAK,
    CLOCK,
    JAM,
    PC,
    REQUEST,
    SETTLE,
    SETTLE_AT,
    A,
    Machine,
    P,
    S,
    X,
    Y,
    widen,
)


@kernel
def run_cpu(m: Machine, until: int) -> None:
    """Run instructions until the clock reaches `until`, or until there is a REQUEST."""
    regs, ram, program = m.regs, m.ram, m.program
    pc, a, x, y, s = regs[PC], regs[A], regs[X], regs[Y], regs[S]
    flags = regs[P]
    nz, c, v, rest = unpack_nz(flags), flags & 1, (flags >> 6) & 1, flags & 0x0C
    clock = regs[CLOCK]
    stop = until
    settle_at = -1
    if regs[JAM]:
        clock = until
    while clock < stop:
        if pc >= 0x8000:
            opcode = widen(program[pc & 0x7FFF])
            low = widen(program[(pc + 1) & 0x7FFF])
            high = widen(program[(pc + 2) & 0x7FFF])
        else:
            opcode = widen(ram[pc & 0x7FF])
            low = widen(ram[(pc + 1) & 0x7FF])
            high = widen(ram[(pc + 2) & 0x7FF])

        # The hottest opcodes, where they touch nothing but registers, RAM and program.
        done, branch, taken = True, False, False
        if opcode == 0xC8:  # INY
            y = nz = (y + 1) & 0xFF
            pc, clock = pc + 1, clock + 6
        elif opcode == 0x88:  # DEY
            y = nz = (y - 1) & 0xFF
            pc, clock = pc + 1, clock + 6
        elif opcode == 0xE8:  # INX
            x = nz = (x + 1) & 0xFF
            pc, clock = pc + 1, clock + 6
        elif opcode == 0xCA:  # DEX
            x = nz = (x - 1) & 0xFF
            pc, clock = pc + 1, clock + 6
        elif opcode == 0xA8:  # TAY
            y = nz = a
            pc, clock = pc + 1, clock + 6
        elif opcode == 0x18:  # CLC
            c = 0
            pc, clock = pc + 1, clock + 6
        elif opcode == 0x4A:  # LSR A
            c = a & 1
            a = nz = a >> 1
            pc, clock = pc + 1, clock + 6
        elif opcode == 0x0A:  # ASL A
            c = a >> 7
            a = nz = (a << 1) & 0xFF
            pc, clock = pc + 1, clock + 6
        elif opcode == 0xD0:  # BNE
            branch, taken = True, nz & 0xFF != 0
        elif opcode == 0xF0:  # BEQ
            branch, taken = True, nz & 0xFF == 0
        elif opcode == 0x10:  # BPL
            branch, taken = True, nz & 0x180 == 0
        elif opcode == 0x90:  # BCC
            branch, taken = True, c == 0
        elif opcode == 0xB0:  # BCS
            branch, taken = True, c != 0
        elif opcode == 0xA9:  # LDA #
            a = nz = low
            pc, clock = pc + 2, clock + 6
        elif opcode == 0xA0:  # LDY #
            y = nz = low
            pc, clock = pc + 2, clock + 6
        elif opcode == 0x29:  # AND #
            a = nz = a & low
            pc, clock = pc + 2, clock + 6
        elif opcode == 0xC9:  # CMP #
            c = 1 if a >= low else 0
            nz = (a - low) & 0xFF
            pc, clock = pc + 2, clock + 6
        elif opcode == 0x69:  # ADC #
            total = a + low + c
            v = ((a ^ total) & (low ^ total) & 0x80) >> 7
            c = total >> 8
            a = nz = total & 0xFF
            pc, clock = pc + 2, clock + 6
        elif opcode == 0xA5:  # LDA zp
            a = nz = widen(ram[low])
            pc, clock = pc + 2, clock + 9
        elif opcode == 0xA6:  # LDX zp
            x = nz = widen(ram[low])
            pc, clock = pc + 2, clock + 9
        elif opcode == 0xB5:  # LDA zp,X
            a = nz = widen(ram[(low + x) & 0xFF])
            pc, clock = pc + 2, clock + 12
        elif opcode == 0x85:  # STA zp
            ram[low] = a
            pc, clock = pc + 2, clock + 9
        elif opcode == 0x48:  # PHA
            ram[0x100 + s] = a
            s = (s - 1) & 0xFF
            pc, clock = pc + 1, clock + 9
        elif opcode == 0x68:  # PLA
            s = (s + 1) & 0xFF
            a = nz = widen(ram[0x100 + s])
            pc, clock = pc + 1, clock + 12
        elif opcode == 0x20:  # JSR
            pc += 2
            ram[0x100 + s] = (pc >> 8) & 0xFF
            ram[0x100 + ((s - 1) & 0xFF)] = pc & 0xFF
            s = (s - 2) & 0xFF
            pc = low | (high << 8)
            clock += 18
        elif opcode == 0x60:  # RTS
            s = (s + 2) & 0xFF
            pc = widen(ram[0x100 + ((s - 1) & 0xFF)]) | (widen(ram[0x100 + s]) << 8)
            pc = (pc + 1) & 0xFFFF
            clock += 18
        elif opcode == 0xAD:  # LDA abs
            address = low | (high << 8)
            if address >= 0x8000:
                a = nz = widen(program[address & 0x7FFF])
            elif address < 0x2000:
                a = nz = widen(ram[address & 0x7FF])
            else:
                done = False
            if done:
                pc, clock = pc + 3, clock + 12
        elif opcode == 0xBD:  # LDA abs,X
            address = ((low | (high << 8)) + x) & 0xFFFF
            if address >= 0x8000:
                a = nz = widen(program[address & 0x7FFF])
            elif address < 0x2000:
                a = nz = widen(ram[address & 0x7FF])
            else:
                done = False
            if done:
                pc, clock = pc + 3, clock + (15 if low + x > 0xFF else 12)
        elif opcode == 0xB9:  # LDA abs,Y
            address = ((low | (high << 8)) + y) & 0xFFFF
            if address >= 0x8000:
                a = nz = widen(program[address & 0x7FFF])
            elif address < 0x2000:
                a = nz = widen(ram[address & 0x7FF])
            else:
                done = False
            if done:
                pc, clock = pc + 3, clock + (15 if low + y > 0xFF else 12)
        elif opcode == 0x8D:  # STA abs
            address = low | (high << 8)
            done = address < 0x2000
            if done:
                ram[address & 0x7FF] = a
                pc, clock = pc + 3, clock + 12
        elif opcode == 0x99:  # STA abs,Y
            address = ((low | (high << 8)) + y) & 0xFFFF
            done = address < 0x2000
            if done:
                ram[address & 0x7FF] = a
                pc, clock = pc + 3, clock + 15
        elif opcode == 0x38:  # SEC
            c = 1
            pc, clock = pc + 1, clock + 6
        elif opcode == 0x30:  # BMI
            branch, taken = True, nz & 0x180 != 0
        elif opcode == 0xC0:  # CPY #
            c = 1 if y >= low else 0
            nz = (y - low) & 0xFF
            pc, clock = pc + 2, clock + 6
        elif opcode == 0xC5:  # CMP zp
            value = widen(ram[low])
            c = 1 if a >= value else 0
            nz = (a - value) & 0xFF
            pc, clock = pc + 2, clock + 9
        elif opcode == 0x05:  # ORA zp
            a = nz = a | widen(ram[low])
            pc, clock = pc + 2, clock + 9
        elif opcode == 0xA4:  # LDY zp
            y = nz = widen(ram[low])
            pc, clock = pc + 2, clock + 9
        elif opcode == 0x86:  # STX zp
            ram[low] = x
            pc, clock = pc + 2, clock + 9
        elif opcode == 0xB1:  # LDA (zp),Y
            base = widen(ram[low]) | (widen(ram[(low + 1) & 0xFF]) << 8)
            address = (base + y) & 0xFFFF
            if address >= 0x8000:
                a = nz = widen(program[address & 0x7FFF])
            elif address < 0x2000:
                a = nz = widen(ram[address & 0x7FF])
            else:
                done = False
            if done:
                pc, clock = pc + 2, clock + (18 if (base ^ address) & 0xFF00 else 15)
        elif opcode == 0x9D:  # STA abs,X
            address = ((low | (high << 8)) + x) & 0xFFFF
            done = address < 0x2000
            if done:
                ram[address & 0x7FF] = a
                pc, clock = pc + 3, clock + 15
        else:
            done = False
        if branch:
            pc, clock = pc + 2, clock + 6
            if taken:
                base = pc
                pc = (pc + (low ^ 0x80) - 0x80) & 0xFFFF
                clock += 6 if (pc ^ base) & 0xFF00 else 3
        if done:
            continue

        # The tables: every instruction, every address.
        mode = op.MODE[opcode]
        operation = op.OPERATION[opcode]
        kind = op.KIND[opcode]
        start, began = pc, clock
        pc = (pc + op.BYTES[opcode]) & 0xFFFF
        clock += 3 * op.CYCLES[opcode]
        address = 0
        value = low
        base = 0
        if mode == op.IMM:
            pass
        elif mode == op.ACC:
            value = a
        elif mode == op.ZP:
            address = low
        elif mode == op.ZPX:
            address = (low + x) & 0xFF
        elif mode == op.ZPY:
            address = (low + y) & 0xFF
        elif mode == op.ABS:
            address = low | (high << 8)
        elif mode == op.ABX:
            base = low | (high << 8)
            address = (base + x) & 0xFFFF
        elif mode == op.ABY:
            base = low | (high << 8)
            address = (base + y) & 0xFFFF
        elif mode == op.IND:
            base = low | (high << 8)
            # The processor forgets to carry into the high byte of the pointer.
            address = peek(m, base) | (peek(m, (base & 0xFF00) | ((low + 1) & 0xFF)) << 8)
        elif mode == op.IZX:
            base = (low + x) & 0xFF
            address = widen(ram[base]) | (widen(ram[(base + 1) & 0xFF]) << 8)
        elif mode == op.IZY:
            base = widen(ram[low]) | (widen(ram[(low + 1) & 0xFF]) << 8)
            address = (base + y) & 0xFFFF
        elif mode == op.REL:
            address = (pc + (low ^ 0x80) - 0x80) & 0xFFFF
        if op.CROSSING[opcode] and (base ^ address) & 0xFF00:
            clock += 3

        if mode != op.IMM and (kind == op.READ or kind == op.MODIFY):
            if address >= 0x8000:
                value = widen(program[address & 0x7FFF])
            elif address < 0x2000:
                value = widen(ram[address & 0x7FF])
            else:
                if needs_settling(m, address, kind == op.MODIFY, clock):
                    settle_at, pc, clock = clock, start, began
                    break
                value = read_io(m, address, clock)
                if (
                    address & 0xE007 == 0x2002
                    and mode == op.ABS
                    and (operation == op.LDA or operation == op.BIT)
                ):
                    clock += polls_to_skip(m, pc, operation == op.BIT, value, clock, stop)

        elif (
            kind == op.WRITE
            and 0x2000 <= address < 0x8000
            and needs_settling(m, address, True, clock)
        ):
            settle_at, pc, clock = clock, start, began
            break

        # What each operation does. `value` is its operand, and its result if it stores one.
        if operation == op.LDA:
            a = nz = value
        elif operation == op.LDX:
            x = nz = value
        elif operation == op.LDY:
            y = nz = value
        elif operation == op.STA:
            value = a
        elif operation == op.STX:
            value = x
        elif operation == op.STY:
            value = y
        elif operation == op.ADC or operation == op.SBC:
            if operation == op.SBC:
                value ^= 0xFF
            total = a + value + c
            v = ((a ^ total) & (value ^ total) & 0x80) >> 7
            c = total >> 8
            a = nz = total & 0xFF
        elif operation == op.CMP:
            c = 1 if a >= value else 0
            nz = (a - value) & 0xFF
        elif operation == op.CPX:
            c = 1 if x >= value else 0
            nz = (x - value) & 0xFF
        elif operation == op.CPY:
            c = 1 if y >= value else 0
            nz = (y - value) & 0xFF
        elif operation == op.AND:
            a = nz = a & value
        elif operation == op.ORA:
            a = nz = a | value
        elif operation == op.EOR:
            a = nz = a ^ value
        elif operation == op.BIT:
            v = (value >> 6) & 1
            nz = (value & a) | ((value & 0x80) << 1)
        elif operation == op.INC:
            value = nz = (value + 1) & 0xFF
        elif operation == op.DEC:
            value = nz = (value - 1) & 0xFF
        elif operation == op.ASL:
            c = value >> 7
            value = nz = (value << 1) & 0xFF
        elif operation == op.LSR:
            c = value & 1
            value = nz = value >> 1
        elif operation == op.ROL:
            value = (value << 1) | c
            c = value >> 8
            value = nz = value & 0xFF
        elif operation == op.ROR:
            value |= c << 8
            c = value & 1
            value = nz = value >> 1
        elif operation == op.INX:
            x = nz = (x + 1) & 0xFF
        elif operation == op.INY:
            y = nz = (y + 1) & 0xFF
        elif operation == op.DEX:
            x = nz = (x - 1) & 0xFF
        elif operation == op.DEY:
            y = nz = (y - 1) & 0xFF
        elif operation == op.TAX:
            x = nz = a
        elif operation == op.TAY:
            y = nz = a
        elif operation == op.TXA:
            a = nz = x
        elif operation == op.TYA:
            a = nz = y
        elif operation == op.TSX:
            x = nz = s
        elif operation == op.TXS:
            s = x
        elif operation == op.CLC:
            c = 0
        elif operation == op.SEC:
            c = 1
        elif operation == op.CLV:
            v = 0
        elif operation == op.CLI:
            rest &= ~0x04
        elif operation == op.SEI:
            rest |= 0x04
        elif operation == op.CLD:
            rest &= ~0x08
        elif operation == op.SED:
            rest |= 0x08
        elif operation == op.JMP:
            pc = address
            if address == start:  # waits for an interrupt
                clock += (stop - clock + 8) // 9 * 9 if clock < stop else 0
        elif operation == op.JSR:
            pc -= 1
            ram[0x100 + s] = (pc >> 8) & 0xFF
            ram[0x100 + ((s - 1) & 0xFF)] = pc & 0xFF
            s = (s - 2) & 0xFF
            pc = address
        elif operation == op.RTS:
            s = (s + 2) & 0xFF
            pc = widen(ram[0x100 + ((s - 1) & 0xFF)]) | (widen(ram[0x100 + s]) << 8)
            pc = (pc + 1) & 0xFFFF
        elif operation == op.PHA:
            ram[0x100 + s] = a
            s = (s - 1) & 0xFF
        elif operation == op.PLA:
            s = (s + 1) & 0xFF
            a = nz = widen(ram[0x100 + s])
        elif operation == op.PHP:
            ram[0x100 + s] = pack_flags(nz, c, v, rest) | 0x10
            s = (s - 1) & 0xFF
        elif operation == op.PLP or operation == op.RTI:
            s = (s + 1) & 0xFF
            flags = widen(ram[0x100 + s])
            nz, c, v, rest = unpack_nz(flags), flags & 1, (flags >> 6) & 1, flags & 0x0C
            if operation == op.RTI:
                s = (s + 2) & 0xFF
                pc = widen(ram[0x100 + ((s - 1) & 0xFF)]) | (widen(ram[0x100 + s]) << 8)
        elif operation == op.BRK:
            pc = (pc + 1) & 0xFFFF
            regs[REQUEST] = BREAK
            stop = clock
        elif operation == op.ILLEGAL:
            regs[JAM] = 0x100 | opcode
            pc = start
            clock = stop
        elif mode == op.REL:
            taken = (
                (operation == op.BNE and nz & 0xFF != 0)
                or (operation == op.BEQ and nz & 0xFF == 0)
                or (operation == op.BPL and nz & 0x180 == 0)
                or (operation == op.BMI and nz & 0x180 != 0)
                or (operation == op.BCC and c == 0)
                or (operation == op.BCS and c != 0)
                or (operation == op.BVC and v == 0)
                or (operation == op.BVS and v != 0)
            )
            if taken:
                clock += 6 if (pc ^ address) & 0xFF00 else 3
                pc = address

        if mode == op.ACC:
            a = value
        elif kind == op.WRITE or kind == op.MODIFY:
            if address < 0x2000:
                ram[address & 0x7FF] = value
            elif address < 0x8000:
                clock += 3 * write_io(m, address, value)
                if regs[REQUEST]:
                    stop = clock + 1  # one more instruction, then the interrupt

    if settle_at >= 0:
        regs[REQUEST] = SETTLE
        regs[SETTLE_AT] = settle_at
    regs[PC], regs[A], regs[X], regs[Y], regs[S] = pc, a, x, y, s
    regs[P] = pack_flags(nz, c, v, rest)
    regs[CLOCK] = clock
