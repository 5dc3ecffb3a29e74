"""Pictures of the shoal show what is there and files of them open."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from holdfast.worlds.shoal import ShoalOptions, ShoalWorld
from holdfast.worlds.shoal.draw import film_episode, frame, frame_of, frames, write_gif, write_mp4


def test_a_frame_shows_the_predator_where_it_is() -> None:
    no_fish = np.zeros((1, 2), np.float32)
    trail = np.array([[5.0, 5.0]], np.float32)
    image = frame(no_fish, no_fish, np.array([False]), trail, step=3, size=400)
    assert image.shape[1] == 400
    assert image.dtype == np.uint8
    red = (image[:, :, 0] > 200) & (image[:, :, 1] < 120)
    rows, columns = np.nonzero(red)
    scale = (200 - 3) / 10.35
    assert abs(columns.mean() - (200 + 5 * scale)) < 2
    assert abs(rows.mean() - (image.shape[0] - 200 - 5 * scale)) < 2


def test_a_film_is_the_episode_of_its_seed() -> None:
    options = ShoalOptions(fish=10)
    film = film_episode(options, 12, "sidestep", max_steps=30)
    assert film.steps == 30
    assert film.episode is not None
    assert film.episode.start.seed == 12
    world = ShoalWorld(ShoalOptions(games=1, fish=10), seed=12)
    np.testing.assert_array_equal(film.fish_pos[0], world.bodies()["fish_pos"][0])
    assert frame_of(world).shape == next(frames(film)).shape


def test_gif_and_mp4_hold_the_frames(tmp_path: Path) -> None:
    import av

    film = film_episode(ShoalOptions(fish=10), 12, "brake", max_steps=20)
    with Image.open(write_gif(tmp_path / "a.gif", frames(film, size=120, every=4))) as gif:
        assert getattr(gif, "n_frames", 1) >= 4
    with av.open(str(write_mp4(tmp_path / "a.mp4", frames(film, size=121)))) as container:
        assert sum(1 for _ in container.decode(video=0)) == 21
