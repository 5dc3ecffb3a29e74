"""Inner walls of the original's evaluation layouts, as the lidar sees them."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.errors import ConfigError
from holdfast.records import Start
from holdfast.worlds.pursuit import PursuitWorld


def readings(x: float, y: float, heading: float, **options: object) -> np.ndarray:
    """Return the pursuer's 36 rays: ray k looks k * 10 degrees - 180 from its heading."""
    world = PursuitWorld(games=1, observation="sensors", lidar_noise=0.0, **options)
    pose = np.array([[x, y, heading], [0.0, -7.0, 0.0]])
    world.queue_starts([0], [Start(snapshot={"pose": pose}, label="here")])
    obs, _ = world.reset(seed=1)
    world.close()
    return np.asarray(obs[0, :36])


def test_a_corridor_is_seen_on_both_sides() -> None:
    rays = readings(0.0, 0.0, 0.0, walls="corridor")
    assert rays[18] == pytest.approx(2.0)  # ahead, x = 2
    assert rays[0] == pytest.approx(2.0)  # behind, x = -2
    assert rays[27] == pytest.approx(5.0)  # to the left nothing within range
    assert rays[21] == pytest.approx(2.0 / np.cos(np.radians(30)))
    assert readings(0.0, 0.0, 0.0)[18] == pytest.approx(5.0)


def test_a_shelf_of_the_warehouse_ends_where_it_ends() -> None:
    # Shelves from 9 to 13 m and from 15 to 19 m of 20: -1 to 3 and 5 to 9 from the centre, at y = 0.
    assert readings(2.9, -1.0, np.pi / 2, walls="warehouse")[18] == pytest.approx(1.0)
    assert readings(3.1, -1.0, np.pi / 2, walls="warehouse")[18] == pytest.approx(5.0)
    assert readings(5.1, -1.0, np.pi / 2, walls="warehouse")[18] == pytest.approx(1.0)


def test_the_l_shape_stands_in_its_corner_or_in_the_frame_of_the_original() -> None:
    arena = {"arena_width": 15.0, "arena_height": 15.0, "walls": "l_shape"}
    assert readings(4.0, 0.0, np.pi / 2, **arena)[18] == pytest.approx(0.5)  # y = 8 - 7.5
    legacy = readings(7.0, 5.0, 0.0, **arena, legacy_lidar=True)
    assert legacy[27] == pytest.approx(5.0)  # to the left: the wall begins at x = 8
    assert readings(4.0, 5.0, np.pi / 2, **arena, legacy_lidar=True)[18] == pytest.approx(5.0)


def test_a_layout_belongs_to_its_arena() -> None:
    with pytest.raises(ConfigError, match="20 x 20"):
        PursuitWorld(games=1, walls="corridor", arena_width=10.0, arena_height=10.0)
    with pytest.raises(ConfigError, match="warehouse"):
        PursuitWorld(games=1, walls="maze")
