"""The layout of one machine and of a bank of them: which array holds what, which number means what.

A bank of N machines is rows of five arrays (`Bank`); saving, copying and restoring a machine is
copying its row of each, 4.6 KB in all. A kernel (`holdfast.jit`) takes one row of each, together with
the cartridge, as a `Machine`, and what it draws with as a `Canvas`.

One clock drives everything: PPU dots since the frame began, 3 a CPU cycle. The frame is taken to
begin one line before vertical blank, as FCEUmm does, so that a pad press set between two frames is
seen by the vertical-blank interrupt of the next one:

    line   0        post-render, nothing happens
    line   1        vertical-blank flag up; 12 dots later the interrupt, if the program asked for it
    line  21        pre-render: flags down; near its end the scroll latch is loaded
    lines 22-261    the 240 lines of the picture
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Longs = npt.NDArray[np.int64]

if TYPE_CHECKING:

    def widen(byte: Any) -> int:
        """Return a byte of memory as a signed 64-bit number: all kernels compute in these."""
else:
    widen = np.int64

# Columns of `regs`.
PC, A, X, Y, S, P = range(6)
CLOCK = 6  # dots since the frame began
CTRL, MASK, STATUS, OAM_ADDR = range(7, 11)  # $2000 $2001 $2002 $2003
V, T, FINE_X, TOGGLE = range(11, 15)  # the scroll latches, as the NES wiki names them
READ_BUFFER = 15  # what the next $2007 read returns
BUS = 16  # the last byte on the PPU's data pins
PAD = 17  # buttons held, A=bit 0 ... RIGHT=bit 7
PAD_SHIFT, STROBE = range(18, 20)
REQUEST = 20  # why the CPU stopped before its time, one of the four below
ODD = 21  # 1: this is an odd frame, one dot shorter if the picture is on
LINE = 22  # next line of the picture that has not been passed, 0-240
HIT = 23  # clock of the sprite-0 hit, or UNKNOWN, or NEVER
WARMUP = 24  # frames until the PPU is warm after power-on
JAM = 25  # 0, or $100 + the byte that is no official instruction
FRAMES = 26  # frames since power-on
SETTLED = 27  # clock up to which the picture unit is up to date with its own past
SETTLE_AT = 28  # clock up to which the CPU asks it to be
DRAWING = 29  # 1 or 2 while this frame is drawn on the first or second screen; 0 between calls
LINE_X = 30  # fine scroll of the line LINE: loaded with the rest of its scroll
REGISTERS = 31

NOTHING, NMI, BREAK, SETTLE = range(4)

UNKNOWN = -1
NEVER = 1 << 40

DOTS = 341
VBLANK = 1 * DOTS
NMI_AT = VBLANK + 12
PRERENDER = 21 * DOTS
LOAD_AT = PRERENDER + 325
FIRST_DOT = 22 * DOTS
LINE_DONE = 257  # dot of a line at which it is finished and the next one's scroll is loaded
FRAME_DOTS = 262 * DOTS
HEIGHT, WIDTH = 240, 256


class Bank(NamedTuple):
    """N machines: the whole of their state."""

    ram: Bytes  # [N, 2048]
    vram: Bytes  # [N, 2048] two name tables
    palette: Bytes  # [N, 32]
    sprites: Bytes  # [N, 256]
    regs: Longs  # [N, REGISTERS]


class Board(NamedTuple):
    """What all machines of a bank share: the cartridge."""

    program: Bytes  # [32768], at $8000
    pictures: Bytes  # [8192], pattern tables
    pages: Longs  # [4] offset in `vram` of each of the four name tables


class Machine(NamedTuple):
    """One machine as the kernels see it: a row of the bank, and the board."""

    ram: Bytes
    vram: Bytes
    palette: Bytes
    sprites: Bytes
    regs: Longs
    program: Bytes
    pictures: Bytes
    pages: Longs


class Canvas(NamedTuple):
    """What the drawing kernels draw on and with; nothing in it outlives a call."""

    screens: Bytes  # [2, 240, 256] the last frame but one, and the last
    screen_words: Words  # [2, 240, 32] the same memory
    shades: Bytes  # [64] what a colour number is drawn as
    words: Words  # [34] background of one line, 8 pixels a word
    pixels: Bytes  # [272] the same memory, a byte a pixel
    solid_words: Words  # [34] $FF where the background is not transparent
    solid: Bytes  # [272] the same memory
    tints: Words  # [4, 4] what the two planes of a tile are mixed with, for each palette
    lut: Bytes  # [32] palette entry -> value drawn
    counts: Longs  # [240] sprites on each line, at most 8
    lists: Longs  # [240, 8] their numbers, in order


def make_canvas(shades: Bytes) -> Canvas:
    """Return fresh scratch for one thread, to draw in `shades`."""
    words, solid_words = np.zeros(34, np.uint64), np.zeros(34, np.uint64)
    screen_words = np.zeros((2, HEIGHT, WIDTH // 8), np.uint64)
    return Canvas(
        screens=screen_words.view(np.uint8),
        screen_words=screen_words,
        shades=shades,
        words=words,
        pixels=words.view(np.uint8),
        solid_words=solid_words,
        solid=solid_words.view(np.uint8),
        tints=np.zeros((4, 4), np.uint64),
        lut=np.zeros(32, np.uint8),
        counts=np.zeros(HEIGHT, np.int64),
        lists=np.zeros((HEIGHT, 8), np.int64),
    )
