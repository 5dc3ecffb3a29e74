"""The symbolic observation: every number of it on RAM made by hand, and against the picture of the game."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.worlds.mario import MarioOptions, MarioWorld, tiles
from holdfast.worlds.mario import memory as at


def empty() -> np.ndarray:
    """Mario, small, stands at x 200 (middle 208, column 13) with his feet at 208 (row 10); the picture begins at 96."""
    ram = np.zeros(2048, np.uint8)
    ram[at.X_LOW], ram[at.Y_PAGE], ram[at.Y_LOW] = 200, 1, 176
    ram[at.SCREEN_X], ram[at.AREA_KIND] = 96, 1
    return ram


def see(ram: np.ndarray) -> np.ndarray:
    out = np.full(tiles.SIZE, np.nan, np.float32)
    tiles.write_tiles(ram, out)
    assert np.isfinite(out).all()
    return out


def grid(obs: np.ndarray, plane: int = 0) -> np.ndarray:
    return obs[plane : plane + tiles.CELLS].reshape(tiles.ROWS, tiles.COLUMNS)


def put_block(ram: np.ndarray, column: int, row: int, block: int) -> None:
    ram[at.BLOCKS + (column >> 4 & 1) * 208 + row * 16 + (column & 15)] = block


def put_object(ram: np.ndarray, k: int, kind: int, x: int, y: int) -> None:
    ram[at.OBJECT_ON + k], ram[at.OBJECT_KIND + k] = 1, kind
    ram[at.OBJECT_PAGE + k], ram[at.OBJECT_X + k] = divmod(x, 256)
    ram[at.OBJECT_Y_PAGE + k], ram[at.OBJECT_Y + k] = 1, y


def test_the_vector_has_487_numbers() -> None:
    assert (
        tiles.SIZE
        == 487
        == MarioWorld(
            MarioOptions(games=1, observation="tiles"), seed=0
        ).single_observation_space.shape[0]
    )  # type: ignore[index]


@pytest.mark.parametrize(
    ("block", "value"),
    [(0x54, 1.0), (0xC0, 0.8), (0xC2, -0.3), (0x24, 0.4), (0xC5, 0.4), (0x5F, 0.0), (0x10, 1.0)],
)
def test_blocks_stand_where_mario_meets_them(block: int, value: float) -> None:
    ram = empty()
    put_block(ram, 15, 9, block)  # two columns ahead, one row above his feet
    ground = grid(see(ram))
    assert ground[9, tiles.BEHIND + 2] == pytest.approx(value)
    assert np.count_nonzero(ground) == (value != 0)


def test_the_map_is_a_ring_and_its_stale_part_is_air() -> None:
    ram = empty()
    put_block(ram, 20, 4, 0x54)
    assert grid(see(ram))[4, 10] == 1.0
    ram[at.SCREEN_X] = 0  # built up to column 22, Mario sees up to 25
    put_block(ram, 24, 4, 0x54)
    assert grid(see(ram))[4].tolist() == [0] * 10 + [1] + [0] * 5
    ram[at.X_LOW] = 0  # columns -3 to -1 are none
    put_block(ram, 31, 4, 0x54)
    assert not grid(see(ram)).any(axis=0)[:3].any()


def test_enemies_hurt_powerups_help_and_lifts_are_ground() -> None:
    ram = empty()
    put_object(ram, 0, 0x06, 240, 184)  # a goomba on the ground
    put_object(ram, 5, at.POWER_UP, 272, 184)
    put_object(ram, 2, 0x25, 288, 120)
    obs = see(ram)
    things = grid(obs, tiles.THINGS)
    assert things[10, 5] == -1.0 and things[10, 7] == 1.0
    assert grid(obs)[5, 8:11].tolist() == pytest.approx([0.9] * 3)
    ram[at.OBJECT_STATE] = 0x20  # the goomba was hit by a fireball
    assert (grid(see(ram), tiles.THINGS) >= 0).all()


def test_a_fire_bar_turns_clockwise_from_straight_up() -> None:
    ram = empty()
    put_object(ram, 0, at.FIRE_BAR, 240, 124)
    for spin, cells in ((0, [(4, 5), (3, 5)]), (8, [(6, 6), (6, 7)]), (16, [(7, 5), (8, 5)])):
        ram[at.SPIN] = spin
        things = grid(see(ram), tiles.THINGS)
        assert all(things[cell] == -1.0 for cell in cells), spin
        assert np.count_nonzero(things) <= 4


def test_the_nearest_enemies_come_first_with_distance_and_speed() -> None:
    ram = empty()
    put_object(ram, 1, 0x0D, 296, 152)  # a plant, 96 ahead and 32 higher
    put_object(ram, 3, 0x06, 168, 184)  # a goomba, 32 behind
    ram[at.OBJECT_X_SPEED + 3] = 256 - 8
    near = see(ram)[tiles.NEAREST :].reshape(tiles.ENEMIES, 6)
    assert near[0].tolist() == [1.0, -0.25, 0.0, -0.5, 0.0, 1.0]
    assert near[1].tolist() == [1.0, 0.75, -0.25, 0.0, 0.0, 0.0]
    assert not near[2:].any()


def test_mario_himself_is_described() -> None:
    ram = empty()
    ram[at.X_SPEED], ram[at.Y_SPEED], ram[at.FLOAT] = 20, 256 - 5, 1
    ram[at.POWER], ram[at.FACING], ram[at.HELD] = 2, 1, 0x80
    ram[at.TIMER : at.TIMER + 3] = [2, 0, 0]
    ram[at.WORLD], ram[at.STAGE] = 3, 1
    body = see(ram)[tiles.BODY : tiles.NEAREST].tolist()
    assert body[:5] == pytest.approx([0.0, 208 / 240, 0.0, 0.5, -1.0])
    assert body[5:12] == [0, 1, 0, 0, 0, 0, 1]
    assert body[12:19] == [0, 0, 0, 0, 1, 1, 0]
    assert body[19:22] == pytest.approx([112 / 256, 0.5, 208 / 4096])
    assert body[22:28] == [0, 1, 0, 0, 0.5, 0.5]
    assert body[28:] == [0.0] * 10 + [1.0] + [0.0] * 2


def test_the_start_of_1_1_is_what_the_picture_shows() -> None:
    world = MarioWorld(MarioOptions(games=1, observation="tiles"), seed=0)
    ground = grid(world.observe()[0][0])
    assert (ground[11:, 1:] == 1.0).all() and not ground[:11, 1:12].any()
    for _ in range(14):
        obs = world.step(np.array([world.action_names.index("RIGHT")]))[0]
    assert pytest.approx(0.8) in grid(obs[0])[7].tolist()
