"""Drawing: turns name tables, patterns, palette and sprites into lines of `screen`.

A line of background is 33 tiles of 8 pixels, and one tile's row is mixed as one 64-bit word: its
two pattern planes are spread to byte masks L and H, and each pixel becomes

    c0 ^ (L & (c0^c1)) ^ (H & (c0^c2)) ^ (L & H & (c0^c1^c2^c3))

with the four values of its palette repeated in every byte. So a value that is looked up (a colour
number, or its grey) costs nothing per pixel.

What is drawn is a whole line at a time, with the scroll that was loaded before the line began (the
fine scroll may still change in its left half) and the switches ($2000, $2001) that hold when it ends:
a program that changes one in the middle of a line sees the change on the whole line.
"""

from __future__ import annotations

import numpy as np

from holdfast.jit import kernel
from holdfast.worlds.mario.machine import (
    CTRL,
    DRAWING,
    LINE_X,
    MASK,
    WIDTH,
    Canvas,
    Machine,
    widen,
)


def _spread() -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Return for each byte the word whose byte k is $FF where bit 7-k is set (leftmost pixel first)."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1) * np.uint8(255)
    words: np.ndarray[tuple[int], np.dtype[np.uint64]] = bits.view("<u8").reshape(256)
    return words.astype(np.uint64)


SPREAD = _spread()
EVERY_BYTE = np.uint64(0x0101010101010101)


@kernel
def mix_paint(m: Machine, canvas: Canvas) -> None:
    """Set the look-up table and the tints from the palette memory as it is now."""
    lut, tints = canvas.lut, canvas.tints
    grey_mask = 0x30 if m.regs[MASK] & 1 else 0x3F
    for k in range(32):
        entry = k if k & 3 else 0
        lut[k] = canvas.shades[m.palette[entry] & grey_mask]
    for group in range(4):
        c0 = np.uint64(lut[0]) * EVERY_BYTE
        c1 = np.uint64(lut[group * 4 + 1]) * EVERY_BYTE
        c2 = np.uint64(lut[group * 4 + 2]) * EVERY_BYTE
        c3 = np.uint64(lut[group * 4 + 3]) * EVERY_BYTE
        tints[group, 0] = c0
        tints[group, 1] = c0 ^ c1
        tints[group, 2] = c0 ^ c2
        tints[group, 3] = c0 ^ c1 ^ c2 ^ c3


@kernel
def list_sprites(m: Machine, canvas: Canvas, first: int, last: int) -> None:
    """Set `counts` and `lists` for the lines `[first, last)`: the first 8 sprites of each."""
    counts, lists = canvas.counts, canvas.lists
    height = 16 if m.regs[CTRL] & 0x20 else 8
    for line in range(first, last):
        counts[line] = 0
    if m.regs[MASK] & 0x10 == 0:
        return
    for sprite in range(64):
        top = widen(m.sprites[sprite * 4]) + 1
        for line in range(max(top, first), min(top + height, last)):
            count = counts[line]
            if count < 8:
                lists[line, count] = sprite
                counts[line] = count + 1


@kernel
def pattern_address(m: Machine, sprite: int, line: int) -> int:
    """Return where in `pictures` the row of this sprite on this line begins."""
    ctrl = m.regs[CTRL]
    row = line - 1 - widen(m.sprites[sprite * 4])
    tile = widen(m.sprites[sprite * 4 + 1])
    flipped = m.sprites[sprite * 4 + 2] & 0x80
    if ctrl & 0x20:
        if flipped:
            row = 15 - row
        return ((tile & 1) << 12) | ((tile & 0xFE) << 4) | ((row & 8) << 1) | (row & 7)
    if flipped:
        row = 7 - row
    return widen(((ctrl & 8) << 9) | (tile << 4) | row)


@kernel(inline=True)
def draw_background(m: Machine, canvas: Canvas, line: int, v: int) -> None:
    """Draw what the scroll latch `v` points at as this line of the screen, and unshifted into `words`."""
    out, screen = canvas.screen_words, m.regs[DRAWING] - 1
    vram, pictures, pages = m.vram, m.pictures, m.pages
    words, solid_words, tints = canvas.words, canvas.solid_words, canvas.tints
    right = np.uint64(m.regs[LINE_X] * 8)
    left = np.uint64(63) - right
    last = np.uint64(0)
    table = ((m.regs[CTRL] & 0x10) << 8) | ((v >> 12) & 7)
    column = v & 31
    row = (v >> 5) & 31
    name_table = (v >> 10) & 3
    shift = (row & 2) << 1
    names = pages[name_table] + row * 32
    attributes = pages[name_table] + 0x3C0 + (row >> 2) * 8
    for k in range(33):
        tile = widen(vram[names + column])
        group = (widen(vram[attributes + (column >> 2)]) >> (shift | (column & 2))) & 3
        low = SPREAD[pictures[table + tile * 16]]
        high = SPREAD[pictures[table + tile * 16 + 8]]
        word = (
            tints[group, 0]
            ^ (low & tints[group, 1])
            ^ (high & tints[group, 2])
            ^ (low & high & tints[group, 3])
        )
        if k > 0:  # pixels of two tiles, moved left by the fine scroll
            out[screen, line, k - 1] = (last >> right) | ((word << np.uint64(1)) << left)
        words[k] = word
        solid_words[k] = low | high
        last = word
        column += 1
        if column == 32:
            column = 0
            names = pages[name_table ^ 1] + row * 32
            attributes = pages[name_table ^ 1] + 0x3C0 + (row >> 2) * 8


@kernel(inline=True)
def draw_sprites(m: Machine, canvas: Canvas, line: int) -> None:
    """Draw the sprites of this line over it; the lowest number wins, even when hidden."""
    out, screen = canvas.screens, m.regs[DRAWING] - 1
    lut, pixels, solid = canvas.lut, canvas.pixels, canvas.solid
    left = 0 if m.regs[MASK] & 4 else 8
    shift = m.regs[LINE_X]
    for k in range(canvas.counts[line] - 1, -1, -1):
        sprite = canvas.lists[line, k]
        address = pattern_address(m, sprite, line)
        low = widen(m.pictures[address])
        high = widen(m.pictures[address + 8])
        if low | high == 0:
            continue
        flags = widen(m.sprites[sprite * 4 + 2])
        x0 = widen(m.sprites[sprite * 4 + 3])
        paint = 16 + (flags & 3) * 4
        for column in range(max(0, left - x0), min(8, WIDTH - x0)):
            bit = column if flags & 0x40 else 7 - column
            value = ((low >> bit) & 1) | (((high >> bit) & 1) << 1)
            if value:
                x = x0 + column
                if flags & 0x20 and solid[x + shift]:
                    out[screen, line, x] = pixels[x + shift]
                else:
                    out[screen, line, x] = lut[paint + value]


@kernel(inline=True)
def draw_line(m: Machine, canvas: Canvas, line: int, v: int) -> None:
    """Draw one line of the screen as the switches in $2001 say; `v` is its scroll latch."""
    mask = m.regs[MASK]
    shift = m.regs[LINE_X]
    lut, pixels, solid = canvas.lut, canvas.pixels, canvas.solid
    out, screen = canvas.screens, m.regs[DRAWING] - 1
    blank = WIDTH
    if mask & 0x08:
        draw_background(m, canvas, line, v)
        blank = 0 if mask & 0x02 else 8
    for x in range(blank):
        out[screen, line, x] = pixels[x + shift] = lut[0]
        solid[x + shift] = 0
    if canvas.counts[line]:
        draw_sprites(m, canvas, line)


@kernel(inline=True)
def draw_blank(m: Machine, canvas: Canvas, line: int) -> None:
    """Fill one line with the backdrop: the picture is switched off."""
    out, screen = canvas.screens, m.regs[DRAWING] - 1
    for x in range(WIDTH):
        out[screen, line, x] = canvas.lut[0]
