"""A cartridge of our own making: a two-pass assembler and a program that scrolls, reads the pad, ends.

The program fills both name tables with stripes, puts one sprite on the screen, and in every vertical
blank copies the sprites, reads the pad into `PAD_CELL`, scrolls one pixel to the right while RIGHT is
held, and counts frames. START switches the picture off for good.
"""

from __future__ import annotations

import numpy as np

from holdfast.worlds.mario.opcodes import BYTES, MNEMONICS, MODE, MODE_NAMES, OPERATION
from holdfast.worlds.mario.rom import Cartridge

PAD_CELL, SCROLL_CELL, END_CELL, COUNT_CELL = 0x10, 0x11, 0x12, 0x13
SPRITE_X, SPRITE_Y = 64, 50
COLOURS = (0x0F, 0x16, 0x27, 0x30)

PROGRAM = """
reset:
    SEI
    CLD
    LDX #$FF
    TXS
first:
    BIT $2002
    BPL first
second:
    BIT $2002
    BPL second
    LDA #$3F
    STA $2006
    LDA #$00
    STA $2006
    LDX #$00
colours:
    LDA palette,X
    STA $2007
    INX
    CPX #$20
    BNE colours
    LDA #$20
    STA $2006
    LDA #$00
    STA $2006
    LDY #$08
    LDX #$00
stripes:
    TXA
    AND #$01
    STA $2007
    INX
    BNE stripes
    DEY
    BNE stripes
    LDX #$00
    LDA #$F0
hide:
    STA $0200,X
    INX
    BNE hide
    LDA #$32
    STA $0200
    LDA #$02
    STA $0201
    LDA #$00
    STA $0202
    LDA #$40
    STA $0203
    LDA #$80
    STA $2000
    LDA #$1E
    STA $2001
forever:
    JMP forever
nmi:
    LDA #$02
    STA $4014
    LDA #$01
    STA $4016
    LSR A
    STA $4016
    LDX #$08
buttons:
    LDA $4016
    LSR A
    ROR $10
    DEX
    BNE buttons
    LDA $10
    AND #$08
    BEQ going
    INC $12
    LDA #$00
    STA $2001
    STA $2000
    RTI
going:
    LDA $10
    BPL still
    INC $11
still:
    LDA $11
    STA $2005
    LDA #$00
    STA $2005
    INC $13
    RTI
palette:
"""


def assemble(text: str, origin: int = 0x8000) -> tuple[bytes, dict[str, int]]:
    """Return the bytes of a program and the addresses of its labels."""
    labels: dict[str, int] = {}
    code = b""
    for last_pass in (False, True):
        code = b""
        for line in text.strip().split("\n"):
            word = line.strip()
            if word.endswith(":"):
                labels[word[:-1]] = origin + len(code)
            else:
                code += _encode(word, origin + len(code), labels, last_pass)
    return code, labels


def _encode(line: str, at: int, labels: dict[str, int], strict: bool) -> bytes:
    name, _, rest = line.partition(" ")
    form = rest.replace(" ", "")
    index = form[-2:] if form.endswith((",X", ",Y")) else ""
    value_text = form.removesuffix(index).strip("#()")
    if not form:
        mode = "imp"
    elif form == "A":
        mode = "acc"
    elif form.startswith("#"):
        mode = "imm"
    elif name[0] == "B" and name != "BIT":
        mode = "rel"
    elif form.startswith("("):
        mode = "izy" if index else "ind"
    else:
        short = value_text.startswith("$") and len(value_text) == 3
        mode = {"": "abs", ",X": "abx", ",Y": "aby"}[index]
        mode = {"abs": "zp", "abx": "zpx", "aby": "zpy"}[mode] if short else mode
    opcode = opcode_of(name, mode)
    size = int(BYTES[opcode])
    if size == 1:
        return bytes([opcode])
    if value_text.startswith("$"):
        value = int(value_text[1:], 16)
    else:
        value = labels[value_text] if strict else at
    if mode == "rel":
        value = (value - at - 2) & 0xFF
    return bytes([opcode]) + value.to_bytes(size - 1, "little")


def opcode_of(name: str, mode: str) -> int:
    """Return the opcode of an instruction in an addressing mode."""
    wanted = (MNEMONICS.index(name), MODE_NAMES.index(mode))
    return list(zip(OPERATION.tolist(), MODE.tolist(), strict=True)).index(wanted)


def burn(code: bytes, labels: dict[str, int], start: str = "reset") -> Cartridge:
    """Return a cartridge with this code at $8000 and pictures of three tiles."""
    program = np.zeros(32768, np.uint8)
    program[: len(code)] = np.frombuffer(code, np.uint8)
    nmi = labels.get("nmi", labels[start])
    for place, address in ((0x7FFA, nmi), (0x7FFC, labels[start]), (0x7FFE, labels[start])):
        program[place], program[place + 1] = address & 0xFF, address >> 8
    pictures = np.zeros((2, 256, 16), np.uint8)
    pictures[:, 1, :8] = 0xFF  # tile 1: colour 1 everywhere
    pictures[:, 2, :8] = [1 << k for k in range(8)]  # tile 2: a diagonal of colour 3
    pictures[:, 2, 8:] = [1 << k for k in range(8)]
    return Cartridge(program, pictures.reshape(-1), True, "home made", "test")


def tiny_cartridge() -> Cartridge:
    """Return the cartridge described at the top of this file."""
    code, labels = assemble(PROGRAM)
    return burn(code + bytes(COLOURS * 8), labels)
