"""Whole machines with the home-made cartridge: picture, pad, state, threads, outputs."""

from __future__ import annotations

import numpy as np
import pytest
import tiny_cartridge as tiny

from holdfast.errors import EnvironmentFault
from holdfast.parallel import Threads
from holdfast.worlds.mario.frame import run_range
from holdfast.worlds.mario.nes import LEFT, RIGHT, START, STATUS_LINES, A, B, Machines
from holdfast.worlds.mario.palette import GREY

CARTRIDGE = tiny.tiny_cartridge()
BOOT_FRAMES = 8


def booted(n: int = 1, threads: int = 1) -> Machines:
    machines = Machines(CARTRIDGE, n, Threads(threads))
    machines.run(0, BOOT_FRAMES)
    return machines


def picture_of(machines: Machines, buttons: int = 0, frames: int = 1) -> np.ndarray:
    picture = np.zeros((machines.n, 240, 256), np.uint8)
    machines.run(buttons, frames, picture=picture)
    return picture


def expected_picture(scroll: int) -> np.ndarray:
    """Return the stripes and the sprite, pixel by pixel."""
    picture = np.empty((240, 256), np.uint8)
    for x in range(256):
        column = ((x + scroll) % 512) // 8
        picture[:, x] = tiny.COLOURS[column % 2]
    # The two bottom rows of a name table are its attributes; here they never reach the screen.
    for k in range(8):
        picture[tiny.SPRITE_Y + 1 + k, tiny.SPRITE_X + 7 - k] = tiny.COLOURS[3]
    return picture


def test_the_picture_is_the_one_that_the_program_describes() -> None:
    machines = booted()
    assert np.array_equal(picture_of(machines)[0], expected_picture(0))


@pytest.mark.parametrize("frames", [1, 3, 8, 21])
def test_holding_right_scrolls_one_pixel_a_frame(frames: int) -> None:
    machines = booted()
    picture = picture_of(machines, RIGHT, frames)[0]
    assert machines.ram[0, tiny.SCROLL_CELL] == frames
    assert np.array_equal(picture, expected_picture(frames))


def test_the_pad_arrives_bit_by_bit_in_its_order() -> None:
    machines = booted(3)
    machines.run([A | LEFT, B | RIGHT, 0], 1)
    assert machines.ram[:, tiny.PAD_CELL].tolist() == [A | LEFT, B | RIGHT, 0]


def test_the_program_counts_every_frame_once() -> None:
    machines = booted()
    before = int(machines.ram[0, tiny.COUNT_CELL])
    machines.run(0, 100)
    assert (int(machines.ram[0, tiny.COUNT_CELL]) - before) % 256 == 100


def test_the_program_ends_with_a_dark_screen() -> None:
    machines = booted()
    machines.run(START, 1)
    assert machines.ram[0, tiny.END_CELL] == 1
    assert (picture_of(machines) == tiny.COLOURS[0]).all()
    assert machines.ram[0, tiny.END_CELL] == 1  # no interrupt comes any more


def test_drawing_or_not_changes_nothing_in_the_machine() -> None:
    plain, drawn = booted(), booted()
    grey, picture = np.zeros((1, 84, 84), np.uint8), np.zeros((1, 240, 256), np.uint8)
    for k in range(12):
        plain.run(RIGHT if k % 3 else A, 4)
        drawn.run(RIGHT if k % 3 else A, 4, grey=grey, picture=picture, brightest=True)
    for name, rows in plain.get_state().items():
        assert np.array_equal(rows, drawn.get_state()[name]), name


def test_a_call_of_four_frames_equals_four_calls_of_one() -> None:
    long, short = booted(), booted()
    long.run(RIGHT, 4)
    for _ in range(4):
        short.run(RIGHT, 1)
    for name, rows in long.get_state().items():
        assert np.array_equal(rows, short.get_state()[name]), name


def test_a_restored_state_goes_on_bit_for_bit() -> None:
    machines = booted(2)
    machines.run([RIGHT, A], 5)
    saved = machines.get_state()
    first = picture_of(machines, RIGHT, 7)
    after = machines.get_state()
    machines.set_state(saved)
    assert np.array_equal(picture_of(machines, RIGHT, 7), first)
    for name, rows in after.items():
        assert np.array_equal(rows, machines.get_state()[name]), name


def test_a_machine_copied_to_another_slot_goes_on_as_the_original() -> None:
    machines = booted(3)
    machines.run([RIGHT, A, 0], 5)
    machines.copy_machine(machines.get_state(), 0, 2)
    machines.load_machine(1, machines.save_machine(0))
    picture = picture_of(machines, RIGHT, 3)
    assert np.array_equal(picture[0], picture[1])
    assert np.array_equal(picture[0], picture[2])


def test_a_saved_machine_is_small() -> None:
    assert sum(rows.nbytes for rows in booted().save_machine(0).values()) < 5000


def test_a_machine_with_no_frames_to_run_stands_still_and_leaves_its_rows() -> None:
    machines = booted(2)
    before = machines.save_machine(1)
    grey = np.full((2, 84, 84), 7, np.uint8)
    machines.run(RIGHT, [3, 0], grey=grey)
    for name, rows in machines.save_machine(1).items():
        assert np.array_equal(rows, before[name]), name
    assert (grey[1] == 7).all()
    assert not (grey[0] == 7).all()


def test_the_thread_count_does_not_change_results() -> None:
    states, greys = [], []
    for threads in (1, 2, 3):
        machines = booted(5, threads)
        grey = np.zeros((5, 84, 84), np.uint8)
        for k in range(10):
            machines.run(np.arange(5) * 37 + k & 0xF7, 4, grey=grey, brightest=True)
        states.append(machines.get_state())
        greys.append(grey)
    for state, grey in zip(states[1:], greys[1:], strict=True):
        assert np.array_equal(grey, greys[0])
        for name, rows in state.items():
            assert np.array_equal(rows, states[0][name]), name


def overlap(small: int, large: int) -> np.ndarray:
    """Return how much of each of `large` cells each of `small` cells covers, in 1/small of a cell."""
    cells = np.arange(small)[:, None] * large, np.arange(large)[None, :] * small
    ends = np.minimum(cells[0] + large, cells[1] + small)
    return np.maximum(0, ends - np.maximum(*cells))


def shrunk(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """Return the area resize as two products with matrices of overlaps, rounded half up."""
    rows, columns = picture.shape
    sums = overlap(height, rows) @ picture.astype(np.int64) @ overlap(width, columns).T
    return (2 * sums + rows * columns) // (2 * rows * columns)


@pytest.mark.parametrize(
    ("size", "top"), [((84, 84), 0), ((84, 84), STATUS_LINES), ((42, 42), 0), ((96, 84), 16)]
)
def test_grey_is_the_exact_area_mean_of_the_luma(size: tuple[int, int], top: int) -> None:
    machines = booted(1)
    grey, picture = np.zeros((1, *size), np.uint8), np.zeros((1, 240, 256), np.uint8)
    machines.run(RIGHT, 5, grey=grey, picture=picture, top=top)
    assert np.array_equal(grey[0], shrunk(GREY[picture[0]][top:], *size))
    alone = booted(1)
    without = np.zeros((1, *size), np.uint8)
    alone.run(RIGHT, 5, grey=without, top=top)
    assert np.array_equal(without, grey)


def test_brightest_is_the_maximum_of_the_last_two_frames() -> None:
    one, both = booted(), booted()
    first, second = picture_of(one, RIGHT, 3)[0], picture_of(one, RIGHT, 1)[0]
    grey = np.zeros((1, 84, 84), np.uint8)
    both.run(RIGHT, 4, grey=grey, brightest=True)
    assert np.array_equal(grey[0], shrunk(np.maximum(GREY[first], GREY[second]), 84, 84))


def test_an_illegal_instruction_is_reported_with_its_place() -> None:
    code, labels = tiny.assemble("reset:\n NOP\n")
    machines = Machines(tiny.burn(code + b"\x02", labels), 2)
    with pytest.raises(EnvironmentFault, match=r"machine 0 jammed: byte \$02 at \$8001"):
        machines.run(0, 1)


def test_outputs_of_the_wrong_shape_are_refused() -> None:
    machines = booted(2)
    with pytest.raises(ValueError, match="grey must be contiguous uint8"):
        machines.run(0, 1, grey=np.zeros((1, 84, 84), np.uint8))
    with pytest.raises(ValueError, match="grey must be contiguous uint8"):
        machines.run(0, 1, grey=np.zeros((2, 84, 84), np.float32))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="top must be a line of the picture, 0-239, not 300"):
        machines.run(0, 1, grey=np.zeros((2, 84, 84), np.uint8), top=300)
    with pytest.raises(ValueError, match="picture must be"):
        machines.run(0, 1, picture=np.zeros((2, 84, 84), np.uint8))
    with pytest.raises(ValueError, match="'ram' is missing"):
        machines.set_state({})


def test_no_way_of_calling_compiles_the_kernels_a_second_time() -> None:
    machines = booted(1)
    machines.run(RIGHT, 1)
    machines.run([RIGHT], [1], grey=np.zeros((1, 84, 84), np.uint8), top=np.int64(32))  # type: ignore[arg-type]
    machines.run(np.array([RIGHT]), np.int32(2), brightest=np.bool_(True))  # type: ignore[arg-type]
    machines.run(np.array([RIGHT], np.uint8), 1, picture=np.zeros((1, 240, 256), np.uint8))
    assert len(run_range.signatures) == 1  # type: ignore[attr-defined]
