"""The picture unit's registers and latches, sprite DMA, the pad's shift register, sprite-0 hit."""

from __future__ import annotations

import numpy as np
import pytest
import tiny_cartridge as tiny

from holdfast.worlds.mario import machine as reg
from holdfast.worlds.mario.bus import OPEN_BUS, read_io, write_io
from holdfast.worlds.mario.frame import run_frame
from holdfast.worlds.mario.machine import Machine, make_canvas
from holdfast.worlds.mario.nes import Machines
from holdfast.worlds.mario.palette import PLAIN
from holdfast.worlds.mario.ppu import foretell_hit, next_line


def fresh(code: str = "reset:\n JMP reset\n") -> Machine:
    """Return one machine, warm, with nothing on its screen."""
    machines = Machines(tiny.burn(*tiny.assemble(code)), 1)
    machines.bank.regs[0, reg.WARMUP] = 0
    board = machines.board
    return Machine(*(rows[0] for rows in machines.bank), board.program, board.pictures, board.pages)


def write(m: Machine, address: int, *values: int) -> None:
    for value in values:
        write_io(m, address, value)


def read(m: Machine, address: int, clock: int = 0) -> int:
    return int(read_io(m, address, clock))


def test_the_scroll_and_address_writes_share_one_latch_as_the_wiki_tells() -> None:
    m = fresh()
    regs = m.regs
    write(m, 0x2000, 0x00)
    read(m, 0x2002)
    write(m, 0x2005, 0x7D)
    assert (regs[reg.T], regs[reg.FINE_X], regs[reg.TOGGLE]) == (0x000F, 5, 1)
    write(m, 0x2005, 0x5E)
    assert (regs[reg.T], regs[reg.TOGGLE]) == (0x616F, 0)
    write(m, 0x2006, 0x3D)
    assert (regs[reg.T], regs[reg.TOGGLE]) == (0x3D6F, 1)
    write(m, 0x2006, 0xF0)
    assert (regs[reg.T], regs[reg.V], regs[reg.TOGGLE]) == (0x3DF0, 0x3DF0, 0)


def test_the_name_table_bits_of_2000_go_into_the_latch() -> None:
    m = fresh()
    write(m, 0x2000, 0x03)
    assert m.regs[reg.T] == 0x0C00


def test_reading_the_status_lowers_vertical_blank_and_the_toggle() -> None:
    m = fresh()
    m.regs[reg.STATUS] = 0x80
    write(m, 0x2005, 0x11)
    assert read(m, 0x2002) & 0x80
    assert not read(m, 0x2002) & 0x80
    assert m.regs[reg.TOGGLE] == 0


def test_the_low_bits_of_the_status_are_the_last_byte_on_the_bus() -> None:
    m = fresh()
    write(m, 0x2003, 0x1B)
    assert read(m, 0x2002) == 0x1B


def test_video_memory_reads_come_one_access_late() -> None:
    m = fresh()
    write(m, 0x2006, 0x21, 0x08)
    write(m, 0x2007, 0x66, 0x77)
    write(m, 0x2006, 0x21, 0x08)
    assert [read(m, 0x2007) for _ in range(3)][1:] == [0x66, 0x77]


def test_the_address_steps_by_32_when_asked() -> None:
    m = fresh()
    write(m, 0x2000, 0x04)
    write(m, 0x2006, 0x20, 0x00)
    write(m, 0x2007, 1, 2)
    assert (m.vram[0], m.vram[32], m.regs[reg.V]) == (1, 2, 0x2040)


def test_palette_reads_come_at_once_and_four_cells_are_mirrors() -> None:
    m = fresh()
    write(m, 0x2006, 0x3F, 0x10)
    write(m, 0x2007, 0x2A)
    write(m, 0x2006, 0x3F, 0x00)
    assert read(m, 0x2007) == 0x2A
    write(m, 0x2006, 0x3F, 0x05)
    write(m, 0x2007, 0xFF)
    assert m.palette[5] == 0x3F
    write(m, 0x2006, 0x3F, 0x25)  # the 32 cells repeat up to $3FFF
    assert read(m, 0x2007) == 0x3F


@pytest.mark.parametrize(
    ("vertical", "pages"), [(True, [0, 1024, 0, 1024]), (False, [0, 0, 1024, 1024])]
)
def test_mirroring_decides_which_name_tables_are_one(vertical: bool, pages: list[int]) -> None:
    cartridge = tiny.burn(*tiny.assemble("reset:\n JMP reset\n"))
    other = type(cartridge)(cartridge.program, cartridge.pictures, vertical, "", "test")
    assert Machines(other, 1).board.pages.tolist() == pages


def test_pictures_are_rom() -> None:
    m = fresh()
    before = m.pictures.copy()
    write(m, 0x2006, 0x00, 0x10)
    write(m, 0x2007, 0x55)
    assert np.array_equal(m.pictures, before)


def test_registers_repeat_every_eight_bytes() -> None:
    m = fresh()
    write(m, 0x3FF9, 0x1E)
    assert m.regs[reg.MASK] == 0x1E


def test_sprite_dma_copies_a_page_from_where_the_address_stands_and_takes_513_cycles() -> None:
    m = fresh()
    m.ram[0x300:0x400] = np.arange(256)
    write(m, 0x2003, 0x04)
    assert write_io(m, 0x4014, 3) == 513
    assert m.sprites[4:8].tolist() == [0, 1, 2, 3]
    assert m.sprites[:4].tolist() == [252, 253, 254, 255]


def test_sprite_memory_is_written_and_read_through_2004() -> None:
    m = fresh()
    write(m, 0x2003, 0x10)
    write(m, 0x2004, 0xAA, 0xBB)
    write(m, 0x2003, 0x11)
    assert read(m, 0x2004) == 0xBB
    assert read(m, 0x2004) == 0xBB  # reading does not step


def test_the_pad_shifts_out_a_first_and_ones_after_the_eighth_button() -> None:
    m = fresh()
    m.regs[reg.PAD] = 0b1000_0101
    write(m, 0x4016, 1, 0)
    bits = [read(m, 0x4016) for _ in range(10)]
    assert [bit & 1 for bit in bits] == [1, 0, 1, 0, 0, 0, 0, 1, 1, 1]
    assert all(bit & ~1 == OPEN_BUS for bit in bits)


def test_the_pad_gives_a_again_and_again_while_strobed() -> None:
    m = fresh()
    m.regs[reg.PAD] = 0b0000_0001
    write(m, 0x4016, 1)
    assert [read(m, 0x4016) & 1 for _ in range(4)] == [1, 1, 1, 1]


def test_what_is_not_there_reads_zero() -> None:
    m = fresh()
    assert [read(m, address) for address in (0x4000, 0x4015, 0x5000, 0x6000, 0x7FFF)] == [0] * 5
    assert read(m, 0x4017) == OPEN_BUS


def test_enabling_the_interrupt_inside_vertical_blank_asks_for_it_at_once() -> None:
    m = fresh()
    m.regs[reg.STATUS] = 0x80
    write(m, 0x2000, 0x80)
    assert m.regs[reg.REQUEST] == reg.NMI
    m.regs[reg.REQUEST] = reg.NOTHING
    write(m, 0x2000, 0x80)  # it was on already
    assert m.regs[reg.REQUEST] == reg.NOTHING


@pytest.mark.parametrize(
    ("v", "below"),
    [
        (0x0000, 0x1000),  # fine rows first
        (0x7000, 0x0020),  # then the next row of tiles
        (0x73A0, 0x0800),  # row 29 is the last: other name table
        (0x73E0, 0x0000),  # row 31 (attributes) wraps and stays
    ],
)
def test_the_scroll_latch_walks_down_as_the_wiki_tells(v: int, below: int) -> None:
    assert next_line(v, 0) == below


def test_every_line_begins_with_the_column_that_was_written_last() -> None:
    assert next_line(0x0005, 0x041F) == 0x141F


def with_sprite_zero(m: Machine, x: int, y: int) -> Machine:
    """Put tile 2 (a diagonal falling to the left) over a background of solid tiles."""
    m.vram[:0x3C0] = m.vram[0x400:0x7C0] = 1
    m.sprites[:] = 0xF0
    m.sprites[:4] = [y, 2, 0, x]
    m.regs[reg.MASK] = 0x1E
    return m


def test_the_sprite_zero_hit_is_foretold_to_the_dot() -> None:
    m = with_sprite_zero(fresh(), 40, 23)
    # First row of the diagonal: its rightmost pixel, on line 24.
    assert foretell_hit(m) == reg.FIRST_DOT + 24 * reg.DOTS + 47 + 1


def test_the_sprite_zero_hit_needs_both_pictures_and_solid_pixels() -> None:
    m = with_sprite_zero(fresh(), 40, 23)
    for mask in (0x00, 0x0E, 0x16):
        m.regs[reg.MASK] = mask
        assert foretell_hit(m) == reg.NEVER
    m.regs[reg.MASK] = 0x1E
    m.vram[:0x3C0] = 0
    assert foretell_hit(m) == reg.NEVER


def test_the_sprite_zero_hit_is_not_in_the_clipped_columns_nor_the_last_one() -> None:
    m = with_sprite_zero(fresh(), 0, 23)
    m.regs[reg.MASK] = 0x18
    assert foretell_hit(m) == reg.NEVER
    m = with_sprite_zero(fresh(), 255, 23)
    assert foretell_hit(m) == reg.NEVER


POLL = """
poll:
    LDA $2002
    AND #$40
    BEQ poll
count:
    INX
    BNE count
    INY
    BNE count
"""


@pytest.mark.parametrize("x", [0, 9, 40, 41, 42, 97, 200])
def test_a_polling_loop_skipped_in_the_program_ends_as_one_run_in_ram(x: int) -> None:
    """Only loops in the program are fast-forwarded: the same loop in RAM is the slow reference."""
    results = []
    for in_ram in (False, True):
        code, _ = tiny.assemble(POLL, 0x0300 if in_ram else 0x8000)
        m = with_sprite_zero(fresh(), x, 60)
        if in_ram:
            m.ram[0x300 : 0x300 + len(code)] = np.frombuffer(code, np.uint8)
            m.regs[reg.PC] = 0x0300
        else:
            m.program[: len(code)] = np.frombuffer(code, np.uint8)
        run_frame(m, make_canvas(PLAIN), 0)
        same = [reg.A, reg.X, reg.Y, reg.S, reg.P, reg.CLOCK, reg.STATUS]
        results.append([int(m.regs[k]) for k in same] + [int(m.regs[reg.PC]) & 0xFF])
    assert results[0] == results[1]
    assert results[0][2] > 0  # the loop did end within the frame


def test_eight_sprites_share_a_line_and_the_ninth_is_not_drawn() -> None:
    m = fresh()
    m.palette[:] = 0x0F
    m.palette[0x13] = 0x30
    m.sprites[:] = 0xF0
    for k in range(9):
        m.sprites[4 * k : 4 * k + 4] = [99, 2, 0, 16 * k]
    m.regs[reg.MASK] = 0x1E
    canvas = make_canvas(PLAIN)
    run_frame(m, canvas, 2)
    assert np.flatnonzero(canvas.screens[1, 100] == 0x30).tolist() == [16 * k + 7 for k in range(8)]


def test_the_lower_sprite_wins_even_when_it_hides_behind_the_background() -> None:
    m = with_sprite_zero(fresh(), 40, 99)
    m.palette[:] = np.arange(32)
    m.sprites[4:8] = [99, 2, 1, 40]
    canvas = make_canvas(PLAIN)
    m.sprites[2] = 0x20  # behind
    run_frame(m, canvas, 2)
    assert canvas.screens[1, 100, 47] == 1  # the background, not sprite 1
    m.sprites[2] = 0
    run_frame(m, canvas, 2)
    assert canvas.screens[1, 100, 47] == 0x13


def test_sprites_flip_both_ways() -> None:
    for flags, columns in ((0x00, 47), (0x40, 40), (0x80, 40), (0xC0, 47)):
        m = fresh()
        m.palette[0x13] = 0x30
        m.sprites[:] = 0xF0
        m.sprites[:4] = [99, 2, flags, 40]
        m.regs[reg.MASK] = 0x1E
        canvas = make_canvas(PLAIN)
        run_frame(m, canvas, 2)
        assert np.flatnonzero(canvas.screens[1, 100] == 0x30).tolist() == [columns]


def test_the_left_columns_can_be_switched_off() -> None:
    m = with_sprite_zero(fresh(), 0, 99)
    m.palette[:] = np.arange(32)
    m.regs[reg.MASK] = 0x18
    canvas = make_canvas(PLAIN)
    run_frame(m, canvas, 2)
    assert (canvas.screens[1, :, :8] == 0).all()
    assert (canvas.screens[1, :, 8:] == 1).all()
