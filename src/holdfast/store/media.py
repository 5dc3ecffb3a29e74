"""Films of pictures that come one by one: MP4 (H.264, plays in every browser) and GIF.

    with open_film("episode.mp4", fps=30) as film:
        for picture in pictures:        # uint8 [height, width, 3]
            film.add(picture)

A film is written beside its target and renamed when it is whole, so a reader never sees half of one. All
pictures of a film have the size of its first one: larger ones are cut, smaller ones stand on black. Very small pictures
are enlarged. MP4 leaves out the last row or column of an odd size.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image as Pillow

from holdfast.errors import ConfigError
from holdfast.jit import kernel
from holdfast.store.files import TEMPORARY, storage_errors

Image = npt.NDArray[np.uint8]
"""`[height, width, 3]`."""
SUFFIXES = (".mp4", ".gif")
PALETTE_FROM = 12
"""Pictures that the palette of a GIF is chosen from."""
COLOURS = 255
LEAST, MOST = 16, 4096
"""Shortest side that pictures are enlarged to, as long as no side is longer than `MOST`."""


class FilmWriter(ABC):
    """A film that grows; it is there when the block ends without an error."""

    def __init__(self, path: str | Path, fps: float) -> None:
        self.path, self.fps = Path(path), fps
        self.count = 0
        """Pictures so far."""
        self._shape: tuple[int, ...] = ()
        self.part = self.path.with_name(f"{TEMPORARY}{os.getpid()}-{self.path.name}")

    def __enter__(self) -> FilmWriter:
        with storage_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._finish()
            else:
                self._abandon()
        finally:
            self.part.unlink(missing_ok=True)

    def add(self, picture: Image) -> None:
        """Append a picture."""
        picture = enlarged(np.asarray(picture, np.uint8))
        self._shape = self._shape or tuple(max(side, 2) for side in picture.shape)
        if picture.shape != self._shape:
            picture = fitted(picture, self._shape)
        self._add(np.ascontiguousarray(picture))
        self.count += 1

    def _finish(self) -> None:
        if not self.count:
            raise ConfigError(f"{self.path} was not written: the episode gave no picture.")
        with storage_errors(self.path):
            self._close()
            os.replace(self.part, self.path)

    @abstractmethod
    def _add(self, picture: Image) -> None: ...

    @abstractmethod
    def _close(self) -> None: ...

    @abstractmethod
    def _abandon(self) -> None: ...


class Mp4(FilmWriter):
    """H.264 in MP4, encoded while pictures come."""

    def __init__(self, path: str | Path, fps: float) -> None:
        super().__init__(path, fps)
        self._container: Any = None
        self._stream: Any = None
        self._planes = np.zeros((0, 0), np.uint8)

    def _add(self, picture: Image) -> None:
        import av

        if self._stream is None:
            height, width = (side - side % 2 for side in picture.shape[:2])
            with storage_errors(self.path):
                # The index comes first, so that a browser begins before it has the whole file.
                moved = {"movflags": "faststart"}
                self._container = av.open(str(self.part), "w", format="mp4", options=moved)
            # A float is a fraction of numbers larger than the encoder counts with.
            rate = Fraction(self.fps).limit_denominator(1000)
            self._stream = self._container.add_stream("libx264", rate=rate)
            self._stream.width, self._stream.height = width, height
            self._stream.pix_fmt = "yuv420p"
            self._stream.options = {"crf": "23", "preset": "veryfast"}
            self._planes = np.empty((height * 3 // 2, width), np.uint8)
        to_planes(picture, self._planes)
        frame = av.VideoFrame.from_ndarray(self._planes, format="yuv420p")
        with storage_errors(self.path):
            self._container.mux(self._stream.encode(frame))

    def _close(self) -> None:
        self._container.mux(self._stream.encode(None))
        self._container.close()

    def _abandon(self) -> None:
        if self._container is not None:
            self._container.close()


class Gif(FilmWriter):
    """An endless GIF with one palette for all pictures; these are kept until the end."""

    def __init__(self, path: str | Path, fps: float) -> None:
        super().__init__(path, fps)
        self._pictures: list[Image] = []

    def _add(self, picture: Image) -> None:
        self._pictures.append(picture.copy())

    def _abandon(self) -> None:
        self._pictures.clear()

    def _close(self) -> None:
        palette = choose_palette(self._pictures)
        table = np.full(1 << 18, -1, np.int16)
        indexed = []
        for picture in self._pictures:
            rows = np.empty(picture.shape[:2], np.uint8)
            to_palette(picture, palette, table, rows)
            image = Pillow.fromarray(rows)
            image.putpalette(palette.tobytes())
            indexed.append(image)
        indexed[0].save(
            self.part,
            format="GIF",
            save_all=True,
            append_images=indexed[1:],
            duration=round(1000 / self.fps),
            loop=0,
            optimize=False,
        )


def open_film(path: str | Path, fps: float) -> FilmWriter:
    """Return the writer that the ending of the path asks for."""
    checked_path(path)
    return Gif(path, fps) if Path(path).suffix == ".gif" else Mp4(path, fps)


def checked_path(path: str | Path) -> Path:
    """Return the path of a film, or raise if its ending is not one of `SUFFIXES`."""
    if Path(path).suffix not in SUFFIXES:
        raise ConfigError(
            f"Cannot write a film to '{path}': allowed endings are .mp4 and .gif, for example episode.mp4."
        )
    return Path(path)


def write_film(path: str | Path, pictures: Iterable[Image], *, fps: float = 30) -> Path:
    """Write pictures as a film and return its path."""
    with open_film(path, fps) as film:
        for picture in pictures:
            film.add(picture)
    return film.path


def halved(picture: Image, times: int = 1) -> Image:
    """Return the picture at half its size, `times` times over: each pixel is the mean of four."""
    image = Pillow.fromarray(picture)
    return np.asarray(image.reduce(2**times)) if times else picture


def enlarged(picture: Image) -> Image:
    """Return the picture with every pixel so many times as wide and high that no side is shorter than `LEAST`."""
    height, width = picture.shape[:2]
    times = min(-(-LEAST // min(height, width)), MOST // max(height, width))
    return picture.repeat(times, 0).repeat(times, 1) if times > 1 else picture


def fitted(picture: Image, shape: tuple[int, ...]) -> Image:
    """Return what of the picture fits into the shape, on black."""
    whole = np.zeros(shape, np.uint8)
    part = picture[: shape[0], : shape[1]]
    whole[: part.shape[0], : part.shape[1]] = part
    return whole


def choose_palette(pictures: list[Image]) -> Image:
    """Return `[255, 3]` colours that serve pictures from all parts of a film."""
    step = max(len(pictures) // PALETTE_FROM, 1)
    sheet = np.concatenate([*pictures[::step], pictures[-1]], axis=0)
    found = Pillow.fromarray(sheet).quantize(COLOURS, method=Pillow.Quantize.MEDIANCUT)
    colours = np.frombuffer(bytes(found.getpalette() or b""), np.uint8).reshape(-1, 3)
    palette = np.zeros((COLOURS, 3), np.uint8)
    palette[: len(colours)] = colours[:COLOURS]
    return palette


@kernel
def to_planes(picture: Image, planes: Image) -> None:
    """Write RGB as YUV 4:2:0 planes (BT.601, limited range), `[height * 3 / 2, width]`."""
    width = planes.shape[1]
    height = planes.shape[0] * 2 // 3
    half = width // 2
    for row in range(0, height, 2):
        for column in range(0, width, 2):
            red, green, blue = 0, 0, 0
            for y in range(row, row + 2):
                for x in range(column, column + 2):
                    r, g, b = int(picture[y, x, 0]), int(picture[y, x, 1]), int(picture[y, x, 2])
                    planes[y, x] = (66 * r + 129 * g + 25 * b + 4224) >> 8
                    red, green, blue = red + r, green + g, blue + b
            k = (row // 2) * half + column // 2
            u = (-38 * red - 74 * green + 112 * blue + 131584) >> 10
            v = (112 * red - 94 * green - 18 * blue + 131584) >> 10
            planes[height + k // width, k % width] = u
            k += half * (height // 2)
            planes[height + k // width, k % width] = v


@kernel
def to_palette(picture: Image, palette: Image, table: npt.NDArray[np.int16], rows: Image) -> None:
    """Write the nearest colour of each pixel; `table` remembers answers by the upper six bits a channel."""
    for y in range(picture.shape[0]):
        for x in range(picture.shape[1]):
            r, g, b = int(picture[y, x, 0]), int(picture[y, x, 1]), int(picture[y, x, 2])
            key = (r >> 2) << 12 | (g >> 2) << 6 | b >> 2
            if table[key] < 0:
                best, least = 0, 1 << 30
                for k in range(palette.shape[0]):
                    dr, dg = r - int(palette[k, 0]), g - int(palette[k, 1])
                    db = b - int(palette[k, 2])
                    away = 3 * dr * dr + 6 * dg * dg + db * db
                    if away < least:
                        best, least = k, away
                table[key] = best
            rows[y, x] = table[key]
