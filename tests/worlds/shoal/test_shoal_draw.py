"""Pictures of the shoal show what is there and files of them open."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from holdfast.store.media import write_film
from holdfast.worlds.shoal import ShoalOptions, ShoalWorld
from holdfast.worlds.shoal.draw import Camera, film_episode, frame, frame_of


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
    assert film.length == 31
    assert film.episode.start.seed == 12
    world = ShoalWorld(ShoalOptions(games=1, fish=10), seed=12)
    np.testing.assert_array_equal(film.fish_pos[0], world.bodies()["fish_pos"][0])
    assert frame_of(world).shape == next(film.pictures()).shape


def test_gif_and_mp4_hold_the_frames(tmp_path: Path) -> None:
    import av

    film = film_episode(ShoalOptions(fish=10), 12, "brake", max_steps=20)
    with Image.open(write_film(tmp_path / "a.gif", film.pictures(size=120, every=4))) as gif:
        assert getattr(gif, "n_frames", 1) >= 4
    with av.open(str(write_film(tmp_path / "a.mp4", film.pictures(size=121)))) as container:
        assert sum(1 for _ in container.decode(video=0)) == 21


def test_a_camera_on_one_of_many_games_sees_what_happens_there() -> None:
    world = ShoalWorld(ShoalOptions(games=3, fish=6, max_steps=15), seed=5)
    camera = Camera(world, [2])
    world.reset(seed=[7, 8, 9])
    seen, episodes = [], {}
    while len(episodes) < 3:
        camera.look()
        seen.append(world.bodies()["fish_pos"][2])
        info = world.step(np.zeros(18, np.int64))[4]
        episodes.update({e.game: e for e in info.get("episodes", ())})
    film = camera.film(2, episodes[2])
    assert film.length == episodes[2].steps + 1
    np.testing.assert_array_equal(film.fish_pos[:-1], np.stack(seen)[: episodes[2].steps])
    assert film.alive[-1].mean() == episodes[2].facts["survival"]
