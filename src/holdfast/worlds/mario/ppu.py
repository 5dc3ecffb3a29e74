"""The picture unit without its picture: scroll latches, sprite-0 hit, and when lines must be drawn.

Nothing here runs along with the clock. The unit is brought up to date (`settle`) only when the
program is about to change it or to look at something that depends on its past, and at the end of
the frame; lines are drawn only on frames that somebody will see (`DRAWING`). The sprite-0 hit is
foretold from the scroll latch, once, and holds until a write makes it UNKNOWN again.
"""

from __future__ import annotations

from holdfast.jit import kernel
from holdfast.worlds.mario.machine import (
    CTRL,
    DOTS,
    DRAWING,
    FINE_X,
    FIRST_DOT,
    HEIGHT,
    HIT,
    LINE,
    LINE_DONE,
    LINE_X,
    MASK,
    NEVER,
    SETTLED,
    STATUS,
    UNKNOWN,
    Canvas,
    Machine,
    T,
    V,
    widen,
)
from holdfast.worlds.mario.raster import (
    draw_blank,
    draw_line,
    list_sprites,
    mix_paint,
    pattern_address,
)


@kernel
def next_line(v: int, t: int) -> int:
    """Return the scroll latch one line further down, its horizontal part reloaded from `t`."""
    if v & 0x7000 != 0x7000:
        v += 0x1000
    else:
        v &= ~0x7000
        row = v & 0x03E0
        if row == 29 << 5:
            v = (v & ~0x03E0) ^ 0x0800
        elif row == 31 << 5:
            v &= ~0x03E0
        else:
            v += 0x20
    return (v & ~0x041F) | (t & 0x041F)


@kernel
def background_solid(m: Machine, v: int, across: int) -> int:
    """Return non-zero if the background shows more than the backdrop `across` pixels right of `v`."""
    column = (v & 31) + (across >> 3)
    name_table = (v >> 10) & 3
    if column > 31:
        column &= 31
        name_table ^= 1
    tile = widen(m.vram[m.pages[name_table] + (v & 0x03E0) + column])
    address = ((m.regs[CTRL] & 0x10) << 8) | (tile << 4) | ((v >> 12) & 7)
    return widen(((m.pictures[address] | m.pictures[address + 8]) >> (7 - (across & 7))) & 1)


@kernel
def foretell_hit(m: Machine) -> int:
    """Return the clock at which sprite 0 will meet the background on this frame, or NEVER."""
    regs = m.regs
    mask = regs[MASK]
    if mask & 0x18 != 0x18:
        return NEVER
    left = 0 if mask & 0x06 == 0x06 else 8
    top = widen(m.sprites[0]) + 1
    bottom = min(top + (16 if regs[CTRL] & 0x20 else 8), HEIGHT)
    x0 = widen(m.sprites[3])
    v, fine_x = regs[V], regs[LINE_X]
    for line in range(regs[LINE], bottom):
        if line >= top:
            address = pattern_address(m, 0, line)
            row = widen(m.pictures[address]) | widen(m.pictures[address + 8])
            for column in range(max(0, left - x0), min(8, 255 - x0)):
                bit = column if m.sprites[2] & 0x40 else 7 - column
                if (row >> bit) & 1 and background_solid(m, v, x0 + column + fine_x):
                    return FIRST_DOT + line * DOTS + x0 + column + 1
        v, fine_x = next_line(v, regs[T]), regs[FINE_X]
    return NEVER


@kernel
def pass_lines(m: Machine, canvas: Canvas, clock: int) -> None:
    """Pass (and draw, if this frame is drawn) every line that ended before `clock`."""
    regs = m.regs
    first = regs[LINE]
    last = min((clock - FIRST_DOT - LINE_DONE) // DOTS + 1, HEIGHT)
    if last <= first:
        return
    shown = regs[MASK] & 0x18 != 0
    v, t = regs[V], regs[T]
    if regs[DRAWING]:
        mix_paint(m, canvas)
        list_sprites(m, canvas, first, last)
    for line in range(first, last):
        if regs[DRAWING]:
            if shown:
                draw_line(m, canvas, line, v)
            else:
                draw_blank(m, canvas, line)
        if shown:
            v = next_line(v, t)
        regs[LINE_X] = regs[FINE_X]
    regs[V] = v
    regs[LINE] = last


@kernel
def settle(m: Machine, canvas: Canvas, clock: int) -> None:
    """Bring the unit up to `clock` with the values it has: sprite-0 flag, scroll latch, picture."""
    regs = m.regs
    if regs[STATUS] & 0x40 == 0:
        if regs[HIT] == UNKNOWN:
            regs[HIT] = foretell_hit(m)
        if clock >= regs[HIT]:
            regs[STATUS] |= 0x40
    pass_lines(m, canvas, clock)
    regs[SETTLED] = clock


@kernel
def load_scroll(m: Machine) -> None:
    """Begin the picture: the scroll latch is loaded, and the sprite-0 hit is open again."""
    regs = m.regs
    if regs[MASK] & 0x18:
        regs[V] = regs[T]
    regs[LINE_X] = regs[FINE_X]
    regs[LINE] = 0
    regs[HIT] = UNKNOWN
    regs[SETTLED] = UNKNOWN
