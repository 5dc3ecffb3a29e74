"""One frame of one machine, and a range of machines for some frames: the kernels that Python calls."""

from __future__ import annotations

from holdfast.jit import kernel
from holdfast.worlds.mario.cpu import run_cpu
from holdfast.worlds.mario.flags import interrupt
from holdfast.worlds.mario.machine import (
    BREAK,
    CLOCK,
    CTRL,
    DRAWING,
    FRAME_DOTS,
    FRAMES,
    LOAD_AT,
    MASK,
    NMI,
    NMI_AT,
    NOTHING,
    OAM_ADDR,
    ODD,
    PAD,
    PRERENDER,
    REQUEST,
    SETTLE,
    SETTLE_AT,
    STATUS,
    VBLANK,
    WARMUP,
    Bank,
    Board,
    Bytes,
    Canvas,
    Longs,
    Machine,
)
from holdfast.worlds.mario.ppu import load_scroll, settle
from holdfast.worlds.mario.shrink import keep_brightest, shrink

EVENTS = (VBLANK, NMI_AT, PRERENDER, LOAD_AT, FRAME_DOTS)


@kernel
def run_frame(m: Machine, canvas: Canvas, screen: int) -> None:
    """Run one frame; draw its picture on screen 1 or 2 of the canvas, or not at all (0)."""
    regs = m.regs
    regs[DRAWING] = screen
    cold = regs[WARMUP] > 0
    if cold:
        regs[WARMUP] -= 1
    for event in EVENTS:
        while regs[CLOCK] < event:
            run_cpu(m, event)
            request = regs[REQUEST]
            regs[REQUEST] = NOTHING
            if request == SETTLE:
                settle(m, canvas, regs[SETTLE_AT])
            elif request == NMI:
                interrupt(m, 0xFFFA, 0)
                regs[CLOCK] += 21
            elif request == BREAK:
                interrupt(m, 0xFFFE, 0x10)
        if event == VBLANK and not cold:
            regs[STATUS] |= 0x80
            regs[OAM_ADDR] = 0
        elif event == NMI_AT and regs[CTRL] & 0x80 and not cold:
            interrupt(m, 0xFFFA, 0)
            regs[CLOCK] += 21
        elif event == PRERENDER:
            regs[STATUS] &= 0x1F
        elif event == LOAD_AT:
            load_scroll(m)
            if not cold:
                regs[CLOCK] += regs[ODD] if regs[MASK] & 0x18 else 0
                regs[ODD] ^= 1
    settle(m, canvas, regs[CLOCK])
    regs[CLOCK] -= FRAME_DOTS
    regs[FRAMES] += 1
    regs[DRAWING] = 0


@kernel
def copy_screen(screen: Bytes, out: Bytes) -> None:
    """Copy pixel by pixel (an array assignment would compile its error message too, for seconds)."""
    height, width = screen.shape
    for y in range(height):
        for x in range(width):
            out[y, x] = screen[y, x]


@kernel
def apply_shades(screens: Bytes, shades: Bytes) -> None:
    """Replace every pixel `[K, H, W]` by its shade."""
    count, height, width = screens.shape
    for k in range(count):
        for y in range(height):
            for x in range(width):
                screens[k, y, x] = shades[screens[k, y, x]]


@kernel
def run_range(
    bank: Bank,
    board: Board,
    lo: int,
    hi: int,
    buttons: Bytes,
    frames: Longs,
    canvas: Canvas,
    greys: Bytes,
    grey_shades: Bytes,
    top: int,
    brightest: bool,
    pictures: Bytes,
) -> None:
    """Run machines `[lo, hi)` for `frames[i]` frames with `buttons[i]` held.

    `greys [N, h, w]` and `pictures [N, 240, 256]` are written unless they have no rows; a machine
    with no frames to run keeps its state and its rows as they are. The canvas draws colour numbers
    if pictures are wanted, else greys.
    """
    want_grey = greys.shape[0] > 0
    want_picture = pictures.shape[0] > 0
    for slot in range(lo, hi):
        count = frames[slot]
        if count <= 0:
            continue
        bank.regs[slot, PAD] = buttons[slot]
        m = Machine(
            bank.ram[slot],
            bank.vram[slot],
            bank.palette[slot],
            bank.sprites[slot],
            bank.regs[slot],
            board.program,
            board.pictures,
            board.pages,
        )
        blend = want_grey and brightest and count > 1
        for frame in range(count):
            screen = 0
            if frame == count - 1 and (want_grey or want_picture):
                screen = 2
            elif frame == count - 2 and blend:
                screen = 1
            run_frame(m, canvas, screen)
        if want_picture:
            copy_screen(canvas.screens[1], pictures[slot])
        if want_grey:
            if want_picture:
                apply_shades(canvas.screens, grey_shades)
            if blend:
                keep_brightest(canvas.screens[0], canvas.screens[1])
            shrink(canvas.screens[1], top, greys[slot])
