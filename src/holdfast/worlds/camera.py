"""Filming a world while it is played: a camera follows some games, and each gives a film of its first episode.

    camera = make_camera("shoal", world, [0, 4])
    camera.look()                      # before every step
    camera.chose(actions, values)      # when the actions of that step are known
    film = camera.film(4, episode)     # when the episode of game 4 is over
    write_film("worst.mp4", film.pictures(size=480, every=2), fps=film.rate / 2)

A world's `draw.py` has the class `Camera` and, where several games fit into one picture, `together`. A camera
only reads: the world plays on as if there were none.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from holdfast.records import F32, Array, Episode
from holdfast.store.media import Image
from holdfast.worlds.contract import World

RATE = 60
"""Moments a second at which the films of our worlds run."""


class Film(Protocol):
    """One episode, or several side by side; pictures are drawn when they are asked for."""

    @property
    def rate(self) -> float:
        """Moments a second."""
        ...

    @property
    def length(self) -> int:
        """Number of moments."""
        ...

    def pictures(self, *, size: int, every: int = 1, title: str = "") -> Iterator[Image]:
        """Yield every `every`-th moment and the last one, about `size` pixels wide."""
        ...


class Camera(Protocol):
    """Follows some games of a world from their reset on."""

    values: bool
    """Whether it shows what the critic thinks."""

    def look(self) -> None:
        """Take in the moment before a step."""
        ...

    def chose(self, actions: Array, values: F32 | None) -> None:
        """Take in the actions of that step, and what the critic thinks of the moment; one row a slot."""
        ...

    def film(self, game: int, episode: Episode) -> Film:
        """Return the film of a game's first episode, whose record this is."""
        ...


def make_camera(name: str, world: World, games: Sequence[int]) -> Camera:
    """Return a camera for some games of a world of ours."""
    camera: Camera = _draw(name).Camera(world, games)
    return camera


def together(name: str, films: Sequence[Film]) -> Film:
    """Return several films of a world as one."""
    film: Film = _draw(name).together(films)
    return film


def shown(length: int, every: int) -> list[int]:
    """Return every `every`-th moment of `length`, and always the last."""
    moments = list(range(0, length, every))
    return moments if moments[-1] == length - 1 else [*moments, length - 1]


def _draw(name: str) -> Any:
    return importlib.import_module(f"holdfast.worlds.{name}.draw")
