"""The 151 official 6502 instructions as tables: opcode -> operation, addressing mode, kind, cycles.

The table below is written the way the data sheets print it; everything else here is derived from
it once, at import, as small arrays that the interpreter (`cpu.py`) compiles in as constants. (The words
`holdfast.jit` here make an edit to this file recompile the kernels.)
"""

from __future__ import annotations

import numpy as np

# Addressing modes, by number: the interpreter branches on these.
IMP, ACC, IMM, ZP, ZPX, ZPY, ABS, ABX, ABY, IND, IZX, IZY, REL = range(13)
MODE_NAMES = (
    "imp",
    "acc",
    "imm",
    "zp",
    "zpx",
    "zpy",
    "abs",
    "abx",
    "aby",
    "ind",
    "izx",
    "izy",
    "rel",
)
MODE_BYTES = (1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 2, 2, 2)

# What an instruction does with its operand.
NONE, READ, WRITE, MODIFY = range(4)

# mnemonic: mode=opcode/cycles ...; a `+` marks one more cycle when indexing crosses a page.
_SHEET = """
ADC imm=69/2 zp=65/3 zpx=75/4 abs=6D/4 abx=7D/4+ aby=79/4+ izx=61/6 izy=71/5+
AND imm=29/2 zp=25/3 zpx=35/4 abs=2D/4 abx=3D/4+ aby=39/4+ izx=21/6 izy=31/5+
ASL acc=0A/2 zp=06/5 zpx=16/6 abs=0E/6 abx=1E/7
BCC rel=90/2
BCS rel=B0/2
BEQ rel=F0/2
BIT zp=24/3 abs=2C/4
BMI rel=30/2
BNE rel=D0/2
BPL rel=10/2
BRK imp=00/7
BVC rel=50/2
BVS rel=70/2
CLC imp=18/2
CLD imp=D8/2
CLI imp=58/2
CLV imp=B8/2
CMP imm=C9/2 zp=C5/3 zpx=D5/4 abs=CD/4 abx=DD/4+ aby=D9/4+ izx=C1/6 izy=D1/5+
CPX imm=E0/2 zp=E4/3 abs=EC/4
CPY imm=C0/2 zp=C4/3 abs=CC/4
DEC zp=C6/5 zpx=D6/6 abs=CE/6 abx=DE/7
DEX imp=CA/2
DEY imp=88/2
EOR imm=49/2 zp=45/3 zpx=55/4 abs=4D/4 abx=5D/4+ aby=59/4+ izx=41/6 izy=51/5+
INC zp=E6/5 zpx=F6/6 abs=EE/6 abx=FE/7
INX imp=E8/2
INY imp=C8/2
JMP abs=4C/3 ind=6C/5
JSR abs=20/6
LDA imm=A9/2 zp=A5/3 zpx=B5/4 abs=AD/4 abx=BD/4+ aby=B9/4+ izx=A1/6 izy=B1/5+
LDX imm=A2/2 zp=A6/3 zpy=B6/4 abs=AE/4 aby=BE/4+
LDY imm=A0/2 zp=A4/3 zpx=B4/4 abs=AC/4 abx=BC/4+
LSR acc=4A/2 zp=46/5 zpx=56/6 abs=4E/6 abx=5E/7
NOP imp=EA/2
ORA imm=09/2 zp=05/3 zpx=15/4 abs=0D/4 abx=1D/4+ aby=19/4+ izx=01/6 izy=11/5+
PHA imp=48/3
PHP imp=08/3
PLA imp=68/4
PLP imp=28/4
ROL acc=2A/2 zp=26/5 zpx=36/6 abs=2E/6 abx=3E/7
ROR acc=6A/2 zp=66/5 zpx=76/6 abs=6E/6 abx=7E/7
RTI imp=40/6
RTS imp=60/6
SBC imm=E9/2 zp=E5/3 zpx=F5/4 abs=ED/4 abx=FD/4+ aby=F9/4+ izx=E1/6 izy=F1/5+
SEC imp=38/2
SED imp=F8/2
SEI imp=78/2
STA zp=85/3 zpx=95/4 abs=8D/4 abx=9D/5 aby=99/5 izx=81/6 izy=91/6
STX zp=86/3 zpy=96/4 abs=8E/4
STY zp=84/3 zpx=94/4 abs=8C/4
TAX imp=AA/2
TAY imp=A8/2
TSX imp=BA/2
TXA imp=8A/2
TXS imp=9A/2
TYA imp=98/2
"""

MNEMONICS = tuple(line.split()[0] for line in _SHEET.split("\n") if line)
"""Operation names; an operation's number is its place here (alphabetical)."""

# fmt: off
(ADC, AND, ASL, BCC, BCS, BEQ, BIT, BMI, BNE, BPL, BRK, BVC, BVS, CLC, CLD, CLI, CLV, CMP, CPX, CPY,
 DEC, DEX, DEY, EOR, INC, INX, INY, JMP, JSR, LDA, LDX, LDY, LSR, NOP, ORA, PHA, PHP, PLA, PLP, ROL,
 ROR, RTI, RTS, SBC, SEC, SED, SEI, STA, STX, STY, TAX, TAY, TSX, TXA, TXS, TYA) = range(56)
# fmt: on
ILLEGAL = 56
"""The operation of the 105 bytes that are no official instruction: the machine jams."""

_STORES = {STA, STX, STY}
_MODIFIERS = {ASL, DEC, INC, LSR, ROL, ROR}
_JUMPS = {JMP, JSR}

OPERATION = np.full(256, ILLEGAL, np.int64)
MODE = np.zeros(256, np.int64)
KIND = np.zeros(256, np.int64)
BYTES = np.ones(256, np.int64)
CYCLES = np.full(256, 2, np.int64)
CROSSING = np.zeros(256, np.int64)
"""1 where indexing over a page costs one more cycle."""


def _kind(operation: int, mode: int) -> int:
    if operation in _JUMPS or mode in (IMP, ACC, REL):
        return NONE
    if operation in _STORES:
        return WRITE
    return MODIFY if operation in _MODIFIERS else READ


def _fill() -> None:
    for line in _SHEET.strip().split("\n"):
        mnemonic, *forms = line.split()
        operation = MNEMONICS.index(mnemonic)
        for form in forms:
            name, rest = form.split("=")
            code, cycles = rest.split("/")
            opcode, mode = int(code, 16), MODE_NAMES.index(name)
            OPERATION[opcode] = operation
            MODE[opcode] = mode
            KIND[opcode] = _kind(operation, mode)
            BYTES[opcode] = MODE_BYTES[mode]
            CYCLES[opcode] = int(cycles.rstrip("+"))
            CROSSING[opcode] = cycles.endswith("+")


_fill()
