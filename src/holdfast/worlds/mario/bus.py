"""What stands behind the addresses that are neither RAM nor program: picture unit, pad, sprite DMA.

$2000-$3FFF the eight registers of the picture unit; $4014 sprite DMA; $4016 the pad. Everything
else (the sound unit, expansion) swallows writes and reads 0: no mapper-0 game that we run
listens to it.

Before an access that depends on what the picture unit has done so far, or changes what it will do,
the unit must be settled (`needs_settling`): the CPU then stops before the instruction and comes back.
"""

from __future__ import annotations

import numpy as np

from holdfast.jit import kernel
from holdfast.worlds.mario.machine import (
    BUS,
    CTRL,
    DOTS,
    FINE_X,
    FIRST_DOT,
    HIT,
    LINE_X,
    LOAD_AT,
    MASK,
    NMI,
    OAM_ADDR,
    PAD,
    PAD_SHIFT,
    READ_BUFFER,
    REQUEST,
    SETTLED,
    STATUS,
    STROBE,
    TOGGLE,
    UNKNOWN,
    WIDTH,
    Machine,
    T,
    V,
    widen,
)

DMA_CYCLES = 513
OPEN_BUS = 0x40
"""What the floating high bits of $4016 and $4017 read as: the high byte of their own address."""


@kernel
def needs_settling(m: Machine, address: int, writes: bool, clock: int) -> bool:
    """Return whether the picture unit must be brought up to `clock` before this access."""
    regs = m.regs
    if clock < LOAD_AT or regs[SETTLED] == clock:
        return False
    if address >= 0x4000:
        return address == 0x4014 and writes
    if writes or address & 7 == 7:
        return True
    return bool(address & 7 == 2 and regs[STATUS] & 0x40 == 0 and regs[HIT] == UNKNOWN)


@kernel
def palette_place(address: int) -> int:
    """Return the cell of palette memory behind $3F00 + n: four cells of the sprites are mirrors."""
    return address & 0x0F if address & 0x13 == 0x10 else address & 0x1F


@kernel
def video_place(m: Machine, address: int) -> int:
    """Return the cell of `vram` behind a name-table address."""
    place: int = m.pages[(address >> 10) & 3] + (address & 0x3FF)
    return place


@kernel
def step_address(m: Machine) -> None:
    """Move the address latch on after a $2007 access."""
    m.regs[V] = (m.regs[V] + (32 if m.regs[CTRL] & 4 else 1)) & 0x7FFF


@kernel
def read_video(m: Machine) -> int:
    """Return what $2007 gives: one access late, except for the palette."""
    regs = m.regs
    address = regs[V] & 0x3FFF
    value = regs[READ_BUFFER]
    if address < 0x2000:
        regs[READ_BUFFER] = m.pictures[address]
    else:
        regs[READ_BUFFER] = m.vram[video_place(m, address)]
        if address >= 0x3F00:
            value = widen(m.palette[palette_place(address)])
    step_address(m)
    return widen(value)


@kernel
def write_video(m: Machine, value: int) -> None:
    """Store to where the address latch points; pictures are ROM and stay."""
    address = m.regs[V] & 0x3FFF
    if address >= 0x3F00:
        m.palette[palette_place(address)] = value & 0x3F
    elif address >= 0x2000:
        m.vram[video_place(m, address)] = value
    step_address(m)


@kernel
def read_status(m: Machine, clock: int) -> int:
    """Return $2002, lower the vertical-blank flag and reset the write toggle."""
    regs = m.regs
    if clock >= LOAD_AT and clock >= regs[HIT]:
        regs[STATUS] |= 0x40
    value = regs[STATUS] | (regs[BUS] & 0x1F)
    regs[STATUS] &= 0x7F
    regs[TOGGLE] = 0
    return widen(value)


@kernel
def read_pad(m: Machine) -> int:
    """Return the next button of the pad in bit 0; after eight reads, ones."""
    regs = m.regs
    if regs[STROBE]:
        return widen(OPEN_BUS | (regs[PAD] & 1))
    bit = regs[PAD_SHIFT] & 1
    regs[PAD_SHIFT] = (regs[PAD_SHIFT] >> 1) | 0x80
    return widen(OPEN_BUS | bit)


@kernel
def read_io(m: Machine, address: int, clock: int) -> int:
    """Return what the CPU reads at an address in $2000-$7FFF at `clock`."""
    regs = m.regs
    if address < 0x4000:
        register = address & 7
        if register == 2:
            regs[BUS] = read_status(m, clock)
        elif register == 4:
            regs[BUS] = m.sprites[regs[OAM_ADDR]]
        elif register == 7:
            regs[BUS] = read_video(m)
        value: int = regs[BUS]
        return value
    if address == 0x4016:
        return read_pad(m)
    return OPEN_BUS if address == 0x4017 else 0


@kernel
def write_scroll(m: Machine, value: int) -> None:
    """$2005: first write across, second down."""
    regs = m.regs
    if regs[TOGGLE] == 0:
        regs[T] = (regs[T] & ~0x001F) | (value >> 3)
        regs[FINE_X] = value & 7
        # The console applies this within the line; lines are drawn whole here: the larger part decides.
        if (regs[SETTLED] - FIRST_DOT) % DOTS < WIDTH // 2:
            regs[LINE_X] = value & 7
    else:
        regs[T] = (regs[T] & ~0x73E0) | ((value & 7) << 12) | ((value & 0xF8) << 2)
    regs[TOGGLE] ^= 1


@kernel
def write_address(m: Machine, value: int) -> None:
    """$2006: first write high, second low; the second one takes effect."""
    regs = m.regs
    if regs[TOGGLE] == 0:
        regs[T] = (regs[T] & 0x00FF) | ((value & 0x3F) << 8)
    else:
        regs[T] = (regs[T] & 0x7F00) | value
        regs[V] = regs[T]
    regs[TOGGLE] ^= 1


@kernel
def write_ppu(m: Machine, register: int, value: int) -> None:
    """Store to one of the eight registers of the picture unit."""
    regs = m.regs
    regs[BUS] = value
    regs[HIT] = UNKNOWN
    if register == 0:
        if regs[CTRL] & 0x80 == 0 and value & 0x80 and regs[STATUS] & 0x80:
            regs[REQUEST] = NMI
        regs[CTRL] = value
        regs[T] = (regs[T] & ~0x0C00) | ((value & 3) << 10)
    elif register == 1:
        regs[MASK] = value
    elif register == 3:
        regs[OAM_ADDR] = value
    elif register == 4:
        m.sprites[regs[OAM_ADDR]] = value
        regs[OAM_ADDR] = (regs[OAM_ADDR] + 1) & 0xFF
    elif register == 5:
        write_scroll(m, value)
    elif register == 6:
        write_address(m, value)
    elif register == 7:
        write_video(m, value)


@kernel
def copy_sprites(m: Machine, page: int) -> None:
    """Sprite DMA: copy 256 bytes from CPU page `page` into sprite memory, from OAM_ADDR on."""
    start = m.regs[OAM_ADDR]
    for k in range(256):
        source = (page << 8) | k
        value = np.uint8(0)
        if source < 0x2000:
            value = m.ram[source & 0x7FF]
        elif source >= 0x8000:
            value = m.program[source & 0x7FFF]
        m.sprites[(start + k) & 0xFF] = value


@kernel
def write_io(m: Machine, address: int, value: int) -> int:
    """Store at an address from $2000 on; return the CPU cycles that the store steals."""
    regs = m.regs
    if address < 0x4000:
        write_ppu(m, address & 7, value)
    elif address == 0x4014:
        copy_sprites(m, value)
        regs[HIT] = UNKNOWN
        return DMA_CYCLES
    elif address == 0x4016:
        if regs[STROBE] and value & 1 == 0:
            regs[PAD_SHIFT] = regs[PAD]
        regs[STROBE] = value & 1
    return 0


@kernel
def polls_to_skip(m: Machine, after: int, by_bit: bool, value: int, clock: int, stop: int) -> int:
    """Return the dots that a loop polling $2002 will waste with nothing to see.

    `after` is the address behind an `LDA $2002` (or, `by_bit`, a `BIT $2002`) that just read `value`
    at `clock`. If what follows is `AND #mask` and a branch back to it, or such a branch alone, and
    the branch will be taken, whole rounds of the loop are skipped that would read the same:
    nothing can change before `stop` or before the foretold sprite-0 hit.
    """
    if after < 0x8000 or after > 0xFFF8:
        return 0
    program = m.program
    at = after & 0x7FFF
    seen = value
    size = 5
    cycles = 7
    if not by_bit and program[at] == 0x29:
        seen = value & widen(program[at + 1])
        at += 2
        size = 7
        cycles = 9
    branch = widen(program[at])
    if program[at + 1] != 256 - size:
        return 0
    if branch == 0x10 or branch == 0x30:  # BPL, BMI
        again = (branch == 0x30) == (seen & 0x80 != 0)
    elif by_bit:  # BVC, BVS
        again = (branch | 0x20) == 0x70 and (branch == 0x70) == (seen & 0x40 != 0)
    else:  # BEQ, BNE
        again = (branch | 0x20) == 0xF0 and (branch == 0xD0) == (seen != 0)
    after_branch = 0x8000 + at + 2
    if not again or (after_branch ^ (after_branch - size)) & 0xFF00:
        return 0
    if value & 0x80:  # the read lowered the flag: the next one sees something else
        return 0
    end = stop
    if clock >= LOAD_AT and m.regs[STATUS] & 0x40 == 0:
        end = min(end, m.regs[HIT])
    return max(0, (end - 1 - clock) // (cycles * 3)) * cycles * 3
