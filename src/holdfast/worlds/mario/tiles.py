"""The symbolic observation: a float32 vector of 487 numbers read from RAM, for networks without convolutions.

    0-207     ground  13 rows x 16 columns of blocks, row by row from the top. Column 3 is the one that Mario's
                      middle is in, so 12 columns lie ahead; row 0 begins below the status bar.
                      0 air (hidden blocks too), 1 solid, 0.9 a lift, 0.8 a question block, 0.4 flagpole,
                      vine or axe, -0.3 a coin. What the game has not built yet is air.
    208-415   things  the same cells: -1 what hurts (enemies, plants, hammers, flames, fire bars), 1 a power-up,
                      0.5 a spring or a growing vine
    416       where Mario's middle is in his column, 0 to 1
    417       y of his feet in the picture / 240, clipped to 0..1.5 (larger is lower)
    418       where his feet are in their row, 0 to 1
    419-420   speed across / 40 and down / 5
    421-424   standing, jumping, falling, climbing
    425-427   small, tall, fire
    428-432   invincible by a star, blinking after a hit, swimming, crouching, looking right
    433-434   the game saw A held, B held (a new jump needs A to be released first)
    435       x in the picture / 256
    436       timer / 400
    437       x in the area / 4096
    438-441   the area is water, above ground, underground, a castle
    442-443   world / 8, stage / 4
    444-456   one of 13: the row of his feet (none above or below the rows)
    457-486   the five nearest enemies, nearest first, six numbers each: 1, distance across / 128 and down / 128
              (clipped to -2..2), speed across / 16 and down / 4, 1 if it can be stomped; zeros where there is none

Distances are between middles across and between feet down; a positive one is ahead of or below Mario. Speeds are
in the vector, so a single observation suffices and no stack is needed.
"""

from __future__ import annotations

import math

import numpy as np

from holdfast.jit import kernel
from holdfast.records import F32
from holdfast.worlds.mario import memory as at
from holdfast.worlds.mario.machine import Bytes, widen

ROWS, COLUMNS = 13, 16
BEHIND = 3
"""Columns behind Mario's."""
CELLS = ROWS * COLUMNS
THINGS = CELLS
BODY = 2 * CELLS
ROW_OF_FEET = BODY + 28
NEAREST = ROW_OF_FEET + ROWS
ENEMIES = 5
SIZE = NEAREST + 6 * ENEMIES

BUILT = 22
"""Columns right of the picture's left edge that the game has surely built."""

SOLID, LIFT, QUESTION, POLE, COIN = 1.0, 0.9, 0.8, 0.4, -0.3
HURTS, HELPS, TOOL = -1.0, 1.0, 0.5

_CLIMBABLE = np.array([0x24, 0x6D, 0x8A, 0xC6], np.int64)
"""From which number on a block of each palette can be climbed (flagpoles, vines)."""


@kernel
def ground_value(block: int) -> float:
    """Return how a block of the game's own map appears; the map holds nothing that is mere background."""
    if block == 0 or block == 0x5F or block == 0x60:
        return 0.0
    if block == 0xC2 or block == 0xC3:
        return COIN
    if block == 0xC5 or block >= _CLIMBABLE[block >> 6]:
        return POLE
    if block == 0xC0 or block == 0xC1:
        return QUESTION
    return SOLID


@kernel
def signed(byte: int) -> int:
    """Return a byte as a number from -128 to 127."""
    value = widen(byte)
    return value - 256 if value > 127 else value


@kernel
def mark(out: F32, plane: int, left: int, x: int, y: int, value: float) -> None:
    """Set the cell of the area point `(x, y)` in a plane whose column 0 is the area's column `left`."""
    column, row = x // 16 - left, (y - at.BLOCK_TOP) // 16
    if 0 <= column < COLUMNS and 0 <= row < ROWS and y >= at.BLOCK_TOP:
        out[plane + row * COLUMNS + column] = value


@kernel
def can_be_stomped(kind: int) -> bool:
    """Return whether Mario may land on this kind."""
    return (
        kind <= 6 or kind == 8 or 0x0E <= kind <= 0x11 or kind == 0x14 or kind == at.CANNON_BULLET
    )


@kernel
def is_enemy(kind: int, state: int) -> bool:
    """Return whether an object hurts: no lift, flag or helper, and not beaten yet."""
    if state & 0x20 or (kind == 6 and state == 2):
        return False
    if kind == at.BOWSER or kind == at.CANNON_BULLET:
        return True
    return kind < at.FIREWORKS or at.FIRE_BAR <= kind <= at.LAST_FIRE_BAR


@kernel
def write_ground(ram: Bytes, out: F32, left: int) -> None:
    """Copy the blocks round Mario; the map is a ring of 32 columns."""
    screen = (signed(ram[at.SCREEN_PAGE]) * 256 + ram[at.SCREEN_X]) // 16
    for column in range(COLUMNS):
        absolute = left + column
        known = 0 <= absolute <= screen + BUILT
        base = at.BLOCKS + ((absolute >> 4) & 1) * 208 + (absolute & 15)
        for row in range(ROWS):
            value = 0.0
            if known:
                value = ground_value(widen(ram[base + row * 16]))
            out[row * COLUMNS + column] = value


@kernel
def write_fire_bar(ram: Bytes, out: F32, left: int, k: int, x: int, y: int, kind: int) -> None:
    """Mark the fireballs of a bar, 8 pixels apart; its angle turns clockwise from straight up."""
    angle = (widen(ram[at.SPIN + k]) & 31) * (math.pi / 16.0)
    for ball in range(12 if kind == at.LONG_FIRE_BAR else 6):
        across = x + 4 + math.floor(8.0 * ball * math.sin(angle) + 0.5)
        down = y + 4 - math.floor(8.0 * ball * math.cos(angle) + 0.5)
        mark(out, THINGS, left, across, down, HURTS)


@kernel
def write_object(ram: Bytes, out: F32, left: int, k: int, x: int, y: int, kind: int) -> None:
    """Mark one object in the planes."""
    if at.FIRST_LIFT <= kind <= at.LAST_LIFT:
        width = 24 if kind >= at.SMALL_LIFT else 48
        for across in range(x + 4, x + width, 8):
            mark(out, 0, left, across, y + 4, LIFT)
    elif kind == at.POWER_UP:
        mark(out, THINGS, left, x + 8, y + 16, HELPS)
    elif kind == at.SPRING or kind == at.VINE:
        mark(out, THINGS, left, x + 8, y + 16, TOOL)
    elif at.FIRE_BAR <= kind <= at.LAST_FIRE_BAR:
        write_fire_bar(ram, out, left, k, x, y, kind)
    elif is_enemy(kind, widen(ram[at.OBJECT_STATE + k])):
        width = 32 if kind == at.BOWSER else 16
        for across in range(x + 2, x + width, 12):
            mark(out, THINGS, left, across, y + 16, HURTS)
            if kind == at.BOWSER:
                mark(out, THINGS, left, across, y + 2, HURTS)


@kernel
def write_nearest(ram: Bytes, out: F32, middle: int, feet: int) -> None:
    """List the enemies by their distance."""
    taken = 0
    for place in range(ENEMIES):
        best, away = -1, 1 << 30
        for k in range(at.OBJECTS):
            kind = widen(ram[at.OBJECT_KIND + k])
            if (
                (taken >> k) & 1
                or ram[at.OBJECT_ON + k] == 0
                or at.FIRE_BAR <= kind <= at.LAST_FIRE_BAR
                or not is_enemy(kind, widen(ram[at.OBJECT_STATE + k]))
            ):
                continue
            dx = widen(ram[at.OBJECT_PAGE + k]) * 256 + ram[at.OBJECT_X + k] + 8 - middle
            if abs(dx) < away:
                best, away = k, abs(dx)
        base = NEAREST + 6 * place
        for n in range(6):
            out[base + n] = 0.0
        if best < 0:
            continue
        taken |= 1 << best
        kind = widen(ram[at.OBJECT_KIND + best])
        dx = widen(ram[at.OBJECT_PAGE + best]) * 256 + ram[at.OBJECT_X + best] + 8 - middle
        dy = (widen(ram[at.OBJECT_Y_PAGE + best]) - 1) * 256 + ram[at.OBJECT_Y + best] + 24 - feet
        out[base] = 1.0
        out[base + 1] = min(max(dx / 128.0, -2.0), 2.0)
        out[base + 2] = min(max(dy / 128.0, -2.0), 2.0)
        out[base + 3] = signed(ram[at.OBJECT_X_SPEED + best]) / 16.0
        out[base + 4] = signed(ram[at.OBJECT_Y_SPEED + best]) / 4.0
        out[base + 5] = 1.0 if can_be_stomped(kind) else 0.0


@kernel
def write_body(ram: Bytes, out: F32, middle: int, feet: int) -> None:
    """Write what is known of Mario and of the stage."""
    screen = signed(ram[at.SCREEN_PAGE]) * 256 + ram[at.SCREEN_X]
    out[BODY] = (middle % 16) / 16.0
    out[BODY + 1] = min(max(feet / 240.0, 0.0), 1.5)
    out[BODY + 2] = (feet % 16) / 16.0
    out[BODY + 3] = signed(ram[at.X_SPEED]) / 40.0
    out[BODY + 4] = signed(ram[at.Y_SPEED]) / 5.0
    power = min(widen(ram[at.POWER]), 2)
    for k in range(4):
        out[BODY + 5 + k] = 1.0 if ram[at.FLOAT] == k else 0.0
        out[BODY + 22 + k] = 1.0 if ram[at.AREA_KIND] & 3 == k else 0.0
    for k in range(3):
        out[BODY + 9 + k] = 1.0 if power == k else 0.0
    out[BODY + 12] = 1.0 if ram[at.STAR_TIMER] else 0.0
    out[BODY + 13] = 1.0 if ram[at.INJURY_TIMER] else 0.0
    out[BODY + 14] = 1.0 if ram[at.SWIMMING] else 0.0
    out[BODY + 15] = 1.0 if ram[at.CROUCHING] else 0.0
    out[BODY + 16] = 1.0 if ram[at.FACING] == 1 else 0.0
    out[BODY + 17] = 1.0 if ram[at.HELD] & 0x80 else 0.0
    out[BODY + 18] = 1.0 if ram[at.HELD] & 0x40 else 0.0
    out[BODY + 19] = (middle - screen) / 256.0
    timer = widen(ram[at.TIMER]) * 100 + widen(ram[at.TIMER + 1]) * 10 + ram[at.TIMER + 2]
    out[BODY + 20] = timer / 400.0
    out[BODY + 21] = middle / 4096.0
    out[BODY + 26] = (widen(ram[at.WORLD]) + 1) / 8.0
    out[BODY + 27] = (widen(ram[at.STAGE]) + 1) / 4.0
    row = (feet - 1 - at.BLOCK_TOP) // 16
    for k in range(ROWS):
        out[ROW_OF_FEET + k] = 1.0 if row == k else 0.0


@kernel
def write_tiles(ram: Bytes, out: F32) -> None:
    """Write the observation `[SIZE]` of one machine."""
    middle = signed(ram[at.X_PAGE]) * 256 + ram[at.X_LOW] + 8
    feet = (widen(ram[at.Y_PAGE]) - 1) * 256 + ram[at.Y_LOW] + 32
    left = middle // 16 - BEHIND
    write_ground(ram, out, left)
    for k in range(CELLS):
        out[THINGS + k] = 0.0
    for k in range(at.OBJECTS):
        kind = widen(ram[at.OBJECT_KIND + k])
        if ram[at.OBJECT_ON + k] and ram[at.OBJECT_Y_PAGE + k] == 1:
            x = widen(ram[at.OBJECT_PAGE + k]) * 256 + ram[at.OBJECT_X + k]
            write_object(ram, out, left, k, x, widen(ram[at.OBJECT_Y + k]), kind)
    for k in range(at.MISCELLANEOUS):
        if ram[at.MISC_STATE + k] & 0x80:
            x = widen(ram[at.MISC_PAGE + k]) * 256 + ram[at.MISC_X + k]
            mark(out, THINGS, left, x + 4, widen(ram[at.MISC_Y + k]) + 8, HURTS)
    write_body(ram, out, middle, feet)
    write_nearest(ram, out, middle, feet)
