"""The CPU alone: every official instruction against a slow, obvious 6502, and tricky ones by number."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.worlds.mario import machine as reg
from holdfast.worlds.mario.cpu import run_cpu
from holdfast.worlds.mario.flags import interrupt
from holdfast.worlds.mario.machine import Machine

# Written down a second time, from the data sheet by opcode rather than by mnemonic: mnemonic, mode,
# cycles; `+` is a cycle more when indexing crosses a page. Rows of 16 opcodes, `-` is unofficial.
DATA_SHEET = """
BRK:imp:7  ORA:izx:6  -         - -         ORA:zp:3  ASL:zp:5  - PHP:imp:3 ORA:imm:2  ASL:acc:2 - -          ORA:abs:4  ASL:abs:6  -
BPL:rel:2  ORA:izy:5+ -         - -         ORA:zpx:4 ASL:zpx:6 - CLC:imp:2 ORA:aby:4+ -         - -          ORA:abx:4+ ASL:abx:7  -
JSR:abs:6  AND:izx:6  -         - BIT:zp:3  AND:zp:3  ROL:zp:5  - PLP:imp:4 AND:imm:2  ROL:acc:2 - BIT:abs:4  AND:abs:4  ROL:abs:6  -
BMI:rel:2  AND:izy:5+ -         - -         AND:zpx:4 ROL:zpx:6 - SEC:imp:2 AND:aby:4+ -         - -          AND:abx:4+ ROL:abx:7  -
RTI:imp:6  EOR:izx:6  -         - -         EOR:zp:3  LSR:zp:5  - PHA:imp:3 EOR:imm:2  LSR:acc:2 - JMP:abs:3  EOR:abs:4  LSR:abs:6  -
BVC:rel:2  EOR:izy:5+ -         - -         EOR:zpx:4 LSR:zpx:6 - CLI:imp:2 EOR:aby:4+ -         - -          EOR:abx:4+ LSR:abx:7  -
RTS:imp:6  ADC:izx:6  -         - -         ADC:zp:3  ROR:zp:5  - PLA:imp:4 ADC:imm:2  ROR:acc:2 - JMP:ind:5  ADC:abs:4  ROR:abs:6  -
BVS:rel:2  ADC:izy:5+ -         - -         ADC:zpx:4 ROR:zpx:6 - SEI:imp:2 ADC:aby:4+ -         - -          ADC:abx:4+ ROR:abx:7  -
-          STA:izx:6  -         - STY:zp:3  STA:zp:3  STX:zp:3  - DEY:imp:2 -          TXA:imp:2 - STY:abs:4  STA:abs:4  STX:abs:4  -
BCC:rel:2  STA:izy:6  -         - STY:zpx:4 STA:zpx:4 STX:zpy:4 - TYA:imp:2 STA:aby:5  TXS:imp:2 - -          STA:abx:5  -          -
LDY:imm:2  LDA:izx:6  LDX:imm:2 - LDY:zp:3  LDA:zp:3  LDX:zp:3  - TAY:imp:2 LDA:imm:2  TAX:imp:2 - LDY:abs:4  LDA:abs:4  LDX:abs:4  -
BCS:rel:2  LDA:izy:5+ -         - LDY:zpx:4 LDA:zpx:4 LDX:zpy:4 - CLV:imp:2 LDA:aby:4+ TSX:imp:2 - LDY:abx:4+ LDA:abx:4+ LDX:aby:4+ -
CPY:imm:2  CMP:izx:6  -         - CPY:zp:3  CMP:zp:3  DEC:zp:5  - INY:imp:2 CMP:imm:2  DEX:imp:2 - CPY:abs:4  CMP:abs:4  DEC:abs:6  -
BNE:rel:2  CMP:izy:5+ -         - -         CMP:zpx:4 DEC:zpx:6 - CLD:imp:2 CMP:aby:4+ -         - -          CMP:abx:4+ DEC:abx:7  -
CPX:imm:2  SBC:izx:6  -         - CPX:zp:3  SBC:zp:3  INC:zp:5  - INX:imp:2 SBC:imm:2  NOP:imp:2 - CPX:abs:4  SBC:abs:4  INC:abs:6  -
BEQ:rel:2  SBC:izy:5+ -         - -         SBC:zpx:4 INC:zpx:6 - SED:imp:2 SBC:aby:4+ -         - -          SBC:abx:4+ INC:abx:7  -
"""
SHEET = DATA_SHEET.split()
OFFICIAL = {code: entry.split(":") for code, entry in enumerate(SHEET) if entry != "-"}

PROGRAMMER_VIEW = ("pc", "a", "x", "y", "s", "p")
N, V, D, I, Z, C = 0x80, 0x40, 0x08, 0x04, 0x02, 0x01  # noqa: E741


class Bench:
    """A CPU with RAM and program and nothing else: one instruction at a time."""

    def __init__(self) -> None:
        self.program = np.zeros(32768, np.uint8)
        self.machine = Machine(
            ram=np.zeros(2048, np.uint8),
            vram=np.zeros(2048, np.uint8),
            palette=np.zeros(32, np.uint8),
            sprites=np.zeros(256, np.uint8),
            regs=np.zeros(reg.REGISTERS, np.int64),
            program=self.program,
            pictures=np.zeros(8192, np.uint8),
            pages=np.array([0, 1024, 0, 1024], np.int64),
        )
        self.ram, self.regs = self.machine.ram, self.machine.regs

    def load(self, code: bytes, at: int = 0x8000, **registers: int) -> None:
        """Put code into the program and set registers (pc a x y s p)."""
        for k, byte in enumerate(code):
            self.program[(at + k) & 0x7FFF] = byte
        self.regs[:] = 0
        self.regs[reg.S], self.regs[reg.P] = 0xFD, 0x24
        self.regs[reg.PC] = at
        for name, value in registers.items():
            self.regs[getattr(reg, name.upper())] = value

    def step(self) -> int:
        """Run one instruction, return its cycles."""
        before = int(self.regs[reg.CLOCK])
        run_cpu(self.machine, before + 1)
        if self.regs[reg.REQUEST] == reg.BREAK:
            interrupt(self.machine, 0xFFFE, 0x10)  # what the frame loop does
            self.regs[reg.REQUEST] = reg.NOTHING
        dots = int(self.regs[reg.CLOCK]) - before
        assert dots % 3 == 0
        return dots // 3

    def __getattr__(self, name: str) -> int:
        return int(self.regs[getattr(reg, name.upper())])


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench()


class Obvious:
    """A 6502 written for reading: byte by byte, flag by flag, no tables but the sheet above."""

    def __init__(self, ram: list[int], program: list[int], registers: dict[str, int]) -> None:
        self.ram, self.program = ram, program
        self.pc, self.a, self.x, self.y, self.s, self.p = (registers[k] for k in PROGRAMMER_VIEW)

    def read(self, address: int) -> int:
        address &= 0xFFFF
        if address < 0x2000:
            return self.ram[address % 2048]
        return self.program[address - 0x8000] if address >= 0x8000 else 0

    def write(self, address: int, value: int) -> None:
        if address < 0x2000:
            self.ram[address % 2048] = value % 256

    def word(self, low: int, high: int) -> int:
        return self.read(low) + 256 * self.read(high)

    def push(self, value: int) -> None:
        self.write(0x100 + self.s, value)
        self.s = (self.s - 1) % 256

    def pull(self) -> int:
        self.s = (self.s + 1) % 256
        return self.read(0x100 + self.s)

    def flag(self, bit: int, on: bool) -> None:
        self.p = self.p | bit if on else self.p & ~bit

    def result(self, value: int) -> int:
        value %= 256
        self.flag(Z, value == 0)
        self.flag(N, value >= 128)
        return value

    def step(self) -> int:
        name, mode, cost = OFFICIAL[self.read(self.pc)]
        cycles = int(cost[0])
        low, high = self.read(self.pc + 1), self.read(self.pc + 2)
        self.pc += {"imp": 1, "acc": 1, "abs": 3, "abx": 3, "aby": 3, "ind": 3}.get(mode, 2)
        base = address = 0
        if mode == "zp":
            address = low
        elif mode == "zpx":
            address = (low + self.x) % 256
        elif mode == "zpy":
            address = (low + self.y) % 256
        elif mode == "abs":
            address = low + 256 * high
        elif mode in ("abx", "aby"):
            base = low + 256 * high
            address = (base + (self.x if mode == "abx" else self.y)) % 65536
        elif mode == "ind":
            address = self.word(low + 256 * high, (low + 1) % 256 + 256 * high)
        elif mode == "izx":
            pointer = (low + self.x) % 256
            address = self.word(pointer, (pointer + 1) % 256)
        elif mode == "izy":
            base = self.word(low, (low + 1) % 256)
            address = (base + self.y) % 65536
        elif mode == "rel":
            address = (self.pc + (low - 256 if low >= 128 else low)) % 65536
        if cost.endswith("+") and base // 256 != address // 256:
            cycles += 1
        value = low if mode == "imm" else self.a if mode == "acc" else self.read(address)
        carry = self.p & C

        branches = {"BPL": (N, 0), "BMI": (N, 1), "BVC": (V, 0), "BVS": (V, 1)}
        branches |= {"BCC": (C, 0), "BCS": (C, 1), "BNE": (Z, 0), "BEQ": (Z, 1)}
        if name in branches:
            bit, wanted = branches[name]
            if bool(self.p & bit) == bool(wanted):
                cycles += 1 + (self.pc // 256 != address // 256)
                self.pc = address
        elif name in ("LDA", "LDX", "LDY"):
            setattr(self, name[2].lower(), self.result(value))
        elif name in ("STA", "STX", "STY"):
            self.write(address, getattr(self, name[2].lower()))
        elif name in ("TAX", "TAY", "TXA", "TYA", "TSX"):
            setattr(self, name[2].lower(), self.result(getattr(self, name[1].lower())))
        elif name == "TXS":
            self.s = self.x
        elif name in ("INX", "INY", "DEX", "DEY"):
            which = name[2].lower()
            setattr(self, which, self.result(getattr(self, which) + (1 if name[0] == "I" else -1)))
        elif name in ("AND", "ORA", "EOR"):
            both = {"AND": self.a & value, "ORA": self.a | value, "EOR": self.a ^ value}
            self.a = self.result(both[name])
        elif name in ("ADC", "SBC"):
            if name == "SBC":
                value = 255 - value
            signed = [b - 256 if b >= 128 else b for b in (self.a, value)]
            self.flag(V, not -128 <= sum(signed) + carry <= 127)
            self.flag(C, self.a + value + carry > 255)
            self.a = self.result(self.a + value + carry)
        elif name in ("CMP", "CPX", "CPY"):
            register = {"M": self.a, "X": self.x, "Y": self.y}["M" if name == "CMP" else name[2]]
            self.flag(C, register >= value)
            self.result(register - value)
        elif name == "BIT":
            self.result(self.a & value)
            self.flag(N, bool(value & N))
            self.flag(V, bool(value & V))
        elif name in ("INC", "DEC", "ASL", "LSR", "ROL", "ROR"):
            if name in ("INC", "DEC"):
                new = value + (1 if name == "INC" else -1)
            elif name in ("ASL", "ROL"):
                new = value * 2 + (carry if name == "ROL" else 0)
                self.flag(C, value >= 128)
            else:
                new = value // 2 + (128 * carry if name == "ROR" else 0)
                self.flag(C, value % 2 == 1)
            new = self.result(new)
            if mode == "acc":
                self.a = new
            else:
                self.write(address, new)
        elif name in ("CLC", "CLD", "CLI", "CLV", "SEC", "SED", "SEI"):
            self.flag({"C": C, "D": D, "I": I, "V": V}[name[2]], name[0] == "S")
        elif name == "PHA":
            self.push(self.a)
        elif name == "PLA":
            self.a = self.result(self.pull())
        elif name == "PHP":
            self.push(self.p | 0x30)
        elif name == "PLP":
            self.p = self.pull() & 0xCF | 0x20
        elif name == "JMP":
            self.pc = address
        elif name == "JSR":
            self.push((self.pc - 1) // 256)
            self.push((self.pc - 1) % 256)
            self.pc = address
        elif name == "RTS":
            self.pc = (self.pull() + 256 * self.pull() + 1) % 65536
        elif name == "RTI":
            self.p = self.pull() & 0xCF | 0x20
            self.pc = self.pull() + 256 * self.pull()
        elif name == "BRK":
            self.push((self.pc + 1) // 256 % 256)
            self.push((self.pc + 1) % 256)
            self.push(self.p | 0x30)
            self.flag(I, True)
            self.pc = self.word(0xFFFE, 0xFFFF)
        else:
            assert name == "NOP"
        self.pc %= 65536
        return cycles


def test_the_sheet_has_151_official_opcodes() -> None:
    assert len(SHEET) == 256
    assert len(OFFICIAL) == 151


def safe(high: np.ndarray) -> np.ndarray:
    """Return bytes that, as the high byte of an address, lead to RAM or program, even with a carry."""
    return np.where((high >= 0x1F) & (high < 0x80), high | 0x80, high).astype(np.uint8)


@pytest.mark.parametrize(
    "opcode", sorted(OFFICIAL), ids=lambda code: f"{code:02X}-{'-'.join(OFFICIAL[code][:2])}"
)
def test_every_official_opcode_does_what_the_obvious_cpu_does(bench: Bench, opcode: int) -> None:
    rng = np.random.default_rng(opcode)
    bench.program[:] = safe(rng.integers(0, 256, 32768))
    bench.program[0x7FFE:] = [0x34, 0x92]
    for case in range(80):
        bench.ram[:] = safe(rng.integers(0, 256, 2048))
        values = rng.integers(0, 256, 3) if case % 4 else rng.choice([0, 1, 0x7F, 0x80, 0xFF], 3)
        registers = {
            "pc": int(rng.integers(0x8000, 0xFFF0)),
            **{name: int(value) for name, value in zip("axy", values, strict=True)},
            "s": int(rng.integers(256)) if case % 5 else int(rng.choice([0, 1, 0xFE, 0xFF])),
            "p": int(rng.integers(256)) & 0xCF | 0x20,
        }
        operand = safe(rng.integers(0, 256, 2)) if case % 4 else rng.choice([0, 0x80, 0xFF], 2)
        bench.load(bytes([opcode, *operand.astype(np.uint8)]), registers["pc"], **registers)
        obvious = Obvious(bench.ram.tolist(), bench.program.tolist(), registers)
        assert bench.step() == obvious.step(), f"cycles of case {case}: {registers}, {operand}"
        got = {name: getattr(bench, name) for name in PROGRAMMER_VIEW}
        assert got == {name: getattr(obvious, name) for name in PROGRAMMER_VIEW}, f"case {case}"
        assert bench.ram.tolist() == obvious.ram, f"memory of case {case}"


def run(bench: Bench, code: str, steps: int = 1, **registers: int) -> int:
    """Load hex code, run some instructions, return the cycles of the last one."""
    bench.load(bytes.fromhex(code), registers.pop("pc", 0x8000), **registers)
    cycles = 0
    for _ in range(steps):
        cycles = bench.step()
    return cycles


@pytest.mark.parametrize(
    ("a", "operand", "carry", "result", "flags"),
    [
        (0x50, 0x10, 0, 0x60, 0),
        (0x50, 0x50, 0, 0xA0, N | V),
        (0x50, 0x90, 0, 0xE0, N),
        (0x50, 0xD0, 0, 0x20, C),
        (0xD0, 0x90, 0, 0x60, C | V),
        (0xFF, 0x00, 1, 0x00, C | Z),
        (0x7F, 0x00, 1, 0x80, N | V),
    ],
)
def test_adc_sets_carry_and_overflow(
    bench: Bench, a: int, operand: int, carry: int, result: int, flags: int
) -> None:
    assert run(bench, f"69 {operand:02x}", a=a, p=0x20 | carry) == 2
    assert (bench.a, bench.p) == (result, 0x20 | flags)


@pytest.mark.parametrize(
    ("a", "operand", "carry", "result", "flags"),
    [
        (0x50, 0xF0, 1, 0x60, 0),
        (0x50, 0xB0, 1, 0xA0, N | V),
        (0x50, 0x30, 1, 0x20, C),
        (0xD0, 0x70, 1, 0x60, C | V),
        (0x00, 0x00, 0, 0xFF, N),
    ],
)
def test_sbc_borrows_when_carry_is_clear(
    bench: Bench, a: int, operand: int, carry: int, result: int, flags: int
) -> None:
    run(bench, f"e9 {operand:02x}", a=a, p=0x20 | carry)
    assert (bench.a, bench.p) == (result, 0x20 | flags)


def test_decimal_mode_changes_nothing(bench: Bench) -> None:
    run(bench, "f8 69 05", 2, a=0x05)
    assert bench.a == 0x0A


def test_bit_can_set_negative_and_zero_together(bench: Bench) -> None:
    bench.ram[0x10] = 0xC0
    run(bench, "24 10", a=0x3F, p=0x20)
    assert bench.p == 0x20 | N | V | Z


def test_branches_cost_one_more_when_taken_and_two_more_over_a_page(bench: Bench) -> None:
    assert run(bench, "d0 10", p=0x22) == 2
    assert run(bench, "d0 10", p=0x20) == 3
    assert run(bench, "d0 80", p=0x20) == 4
    assert bench.pc == 0x7F82
    assert run(bench, "10 02", pc=0x80FC, p=0x20) == 4
    assert bench.pc == 0x8100


def test_indexed_reads_cost_one_more_over_a_page_and_stores_always(bench: Bench) -> None:
    assert run(bench, "bd ff 01", x=0) == 4
    assert run(bench, "bd ff 01", x=1) == 5
    assert run(bench, "9d 00 01", x=1) == 5
    assert run(bench, "9d ff 01", x=1) == 5
    bench.ram[0x20:0x22] = [0xFF, 0x01]
    assert run(bench, "b1 20", y=0) == 5
    assert run(bench, "b1 20", y=1) == 6
    assert run(bench, "91 20", y=0) == 6


def test_zero_page_indexing_stays_in_the_zero_page(bench: Bench) -> None:
    bench.ram[0x0F], bench.ram[0x10F] = 0x11, 0x22
    run(bench, "b5 10", x=0xFF)
    assert bench.a == 0x11


def test_indirect_jump_does_not_carry_into_the_page(bench: Bench) -> None:
    bench.ram[0x2FF], bench.ram[0x200], bench.ram[0x300] = 0x34, 0x12, 0x56
    assert run(bench, "6c ff 02") == 5
    assert bench.pc == 0x1234


def test_jsr_pushes_the_address_of_its_last_byte_and_rts_comes_back(bench: Bench) -> None:
    bench.program[0x1000] = 0x60
    assert run(bench, "20 00 90", s=0xFF) == 6
    assert (bench.pc, bench.s) == (0x9000, 0xFD)
    assert bench.ram[0x1FE:0x200].tolist() == [0x02, 0x80]
    assert bench.step() == 6
    assert (bench.pc, bench.s) == (0x8003, 0xFF)


def test_the_stack_wraps_inside_its_page(bench: Bench) -> None:
    run(bench, "48", a=0x77, s=0x00)
    assert bench.s == 0xFF
    assert bench.ram[0x100] == 0x77


def test_php_pushes_break_and_plp_ignores_it(bench: Bench) -> None:
    run(bench, "08 28", 1, p=0x20 | N | C)
    assert bench.ram[0x1FD] == 0x30 | N | C
    bench.step()
    assert bench.p == 0x20 | N | C


def test_ram_is_mirrored_every_2_kib(bench: Bench) -> None:
    run(bench, "8d 05 18", a=0x42)
    assert bench.ram[0x005] == 0x42


def test_program_is_not_written(bench: Bench) -> None:
    bench.program[0x1234] = 0x99
    run(bench, "8d 34 92", a=0x42)
    assert bench.program[0x1234] == 0x99


def test_code_may_run_in_ram(bench: Bench) -> None:
    bench.ram[0x300:0x302] = [0xA9, 0x5A]
    bench.load(b"", pc=0x0300)
    assert bench.step() == 2
    assert (bench.a, bench.pc) == (0x5A, 0x302)


def test_an_unofficial_opcode_jams_the_machine_where_it_stands(bench: Bench) -> None:
    bench.load(bytes.fromhex("02"))
    run_cpu(bench.machine, 300)
    assert (bench.pc, bench.jam) == (0x8000, 0x102)
    run_cpu(bench.machine, bench.clock + 300)
    assert bench.pc == 0x8000


def test_a_jump_to_itself_is_waited_out_in_whole_rounds(bench: Bench) -> None:
    bench.load(bytes.fromhex("4c 00 80"))
    run_cpu(bench.machine, 1000)
    assert bench.pc == 0x8000
    assert bench.clock == 1008  # 112 rounds of 9 dots: the first boundary at or after 1000
