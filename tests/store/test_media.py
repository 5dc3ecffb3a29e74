"""Films that are whole or not there, in the colours that went in."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from holdfast.errors import ConfigError, StorageError
from holdfast.store.media import choose_palette, halved, open_film, to_planes, write_film

COLOURS = [(0, 0, 0), (255, 255, 255), (240, 74, 66), (24, 86, 118), (110, 220, 232), (200, 55, 74)]


def flat(colour: tuple[int, int, int], height: int = 64, width: int = 96) -> np.ndarray:
    image = np.empty((height, width, 3), np.uint8)
    image[:] = colour
    return image


def decoded(path: Path) -> list[np.ndarray]:
    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def test_an_mp4_gives_back_the_colours_that_went_in(tmp_path: Path) -> None:
    path = write_film(tmp_path / "a.mp4", [flat(c) for c in COLOURS], fps=10)
    for picture, colour in zip(decoded(path), COLOURS, strict=True):
        middle = picture[20:40, 30:60].reshape(-1, 3).mean(0)
        assert np.abs(middle - colour).max() < 6, colour


def test_our_planes_are_those_of_the_library() -> None:
    rng = np.random.default_rng(0)
    # Blocks of 2 x 2 pixels: chroma is halved, and how that is filtered is not the point here.
    picture = rng.integers(0, 256, (16, 24, 3), np.uint8).repeat(2, 0).repeat(2, 1)
    planes = np.empty((48, 48), np.uint8)
    to_planes(picture, planes)
    frame = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(format="yuv420p")
    theirs = frame.to_ndarray()
    assert np.abs(planes[:32].astype(int) - theirs[:32]).max() <= 2


def test_an_odd_size_loses_a_row_and_a_column(tmp_path: Path) -> None:
    path = write_film(tmp_path / "a.mp4", [flat((9, 9, 9), 63, 97)] * 3)
    assert decoded(path)[0].shape == (62, 96, 3)


@pytest.mark.parametrize(
    ("size", "shown"), [((1, 1), (16, 16)), ((3, 5), (18, 30)), ((1, 3000), (2, 3000))]
)
def test_very_small_pictures_are_enlarged(
    size: tuple[int, int], shown: tuple[int, int], tmp_path: Path
) -> None:
    path = write_film(tmp_path / "a.mp4", [flat((200, 200, 200), *size)] * 3)
    picture = decoded(path)[0]
    assert picture.shape == (*shown, 3)
    assert abs(int(picture[0, 0, 0]) - 200) < 20


@pytest.mark.parametrize("name", ["a.mp4", "a.gif"])
def test_a_picture_of_another_size_is_cut_or_stands_on_black(name: str, tmp_path: Path) -> None:
    pictures = [flat((200, 200, 200)), flat((200, 200, 200), 32, 48), flat((200, 200, 200), 99, 99)]
    path = write_film(tmp_path / name, pictures)
    smaller = decoded(path)[1].mean(2)
    assert smaller.shape == (64, 96)
    assert abs(smaller[:24, :40].mean() - 200) < 6
    assert smaller[40:].mean() < 6 and smaller[:, 56:].mean() < 6
    assert abs(decoded(path)[2].mean() - 200) < 6


@pytest.mark.parametrize("fps", [29.97 / 2, 1 / 0.07, 1 / 3, 12.3])
def test_a_film_may_have_a_fraction_of_a_picture_a_second(fps: float, tmp_path: Path) -> None:
    with av.open(str(write_film(tmp_path / "a.mp4", [flat((9, 9, 9))] * 3, fps=fps))) as film:
        assert float(film.streams.video[0].average_rate or 0) == pytest.approx(fps, rel=1e-3)


def test_a_gif_keeps_its_colours_and_a_smooth_gradient(tmp_path: Path) -> None:
    ramp = np.linspace(40, 120, 96).astype(np.uint8)
    picture = np.stack(
        np.broadcast_arrays(ramp[None, :] // 2, ramp[None, :], np.full((64, 1), 90)), -1
    )
    picture = picture.astype(np.uint8)
    picture[:8, :8] = (240, 74, 66)
    pictures = [picture, picture[::-1].copy(), picture]
    path = write_film(tmp_path / "a.gif", pictures, fps=20)
    with Image.open(path) as gif:
        assert gif.n_frames == 3  # type: ignore[attr-defined]
        assert gif.info["duration"] == 50
        shown = np.asarray(gif.convert("RGB")).astype(int)
    assert np.abs(shown - picture).max() <= 6


def test_a_palette_serves_a_film_of_one_colour() -> None:
    assert choose_palette([flat((1, 2, 3))]).shape == (255, 3)


def test_half_the_size_is_the_mean_of_four_pixels() -> None:
    picture = flat((0, 0, 0), 4, 4)
    picture[0, 0] = 200
    assert halved(picture).shape == (2, 2, 3)
    assert halved(picture)[0, 0, 0] == 50


@pytest.mark.parametrize("name", ["a.mp4", "a.gif"])
def test_a_film_that_breaks_off_leaves_the_old_one(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), open_film(path, 10) as film:
        film.add(flat((1, 1, 1)))
        raise ZeroDivisionError
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["a.mp4", "a.gif"])
def test_a_film_without_pictures_is_an_error_and_no_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="no picture"):
        write_film(tmp_path / name, [])
    assert list(tmp_path.iterdir()) == []


def test_other_endings_are_refused_with_the_allowed_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"allowed endings are \.mp4 and \.gif"):
        write_film(tmp_path / "a.avi", [flat((1, 1, 1))])


def test_a_place_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="Cannot write"):
        write_film(tmp_path / "file" / "a.mp4", [flat((1, 1, 1))])
