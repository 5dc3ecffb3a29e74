"""Pictures of the mario world: the colour picture with a line of facts, an episode as MP4 or GIF, tiles as an image.

    film = film_episode(MarioOptions(), Start(seed=7), policy)
    write_mp4("episode.mp4", frames(film), fps=film.fps)
    write_gif("episode.gif", frames(film, scale=1, every=2), fps=film.fps // 2)

A film is taken by a second console, which replays every step frame by frame beside the world; what the world skips
(cut-scenes) is not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image as Pillow
from PIL import ImageDraw, ImageFont

from holdfast.records import Array, Episode, Start
from holdfast.worlds.mario import tiles
from holdfast.worlds.mario.machine import HEIGHT, WIDTH, Bytes
from holdfast.worlds.mario.nes import Machines
from holdfast.worlds.mario.options import MarioOptions
from holdfast.worlds.mario.palette import RGB
from holdfast.worlds.mario.stages import cartridge_at
from holdfast.worlds.mario.world import MarioWorld
from holdfast.worlds.shoal.draw import write_gif, write_mp4

__all__ = [
    "Camera",
    "Film",
    "film_episode",
    "frame",
    "frames",
    "tile_image",
    "write_gif",
    "write_mp4",
]

Image = npt.NDArray[np.uint8]
"""`[height, width, 3]`."""
Policy = Callable[[Array], Array]
"""From observations `[1, ...]` to actions `[1]`; a policy that stacks frames keeps its own (`frames.Stacker`)."""

FRAMES_A_SECOND = 60
STRIP = 20
"""Height of the line of facts at scale 1."""
_GROUND, _TEXT, _QUIET = (11, 15, 21), (214, 226, 236), (122, 140, 156)
_GOOD, _BAD = (110, 220, 132), (240, 74, 66)


@dataclass(frozen=True)
class Shot:
    """One picture and what is written over it."""

    picture: Bytes
    """`[240, 256]` colour numbers."""
    stage: str
    step: int
    x: int
    reward: float
    """Sum so far."""
    action: str = ""


@dataclass
class Film:
    """One episode."""

    fps: int
    shots: list[Shot] = field(default_factory=list)
    episode: Episode | None = None


class Camera:
    """A console beside the world that shows what its games look like."""

    def __init__(self, world: MarioWorld) -> None:
        self._world = world
        options = world.options
        self._machines = Machines(cartridge_at(options.rom, options.any_rom), 1)
        self._picture = np.zeros((1, HEIGHT, WIDTH), np.uint8)

    def look(self, game: int = 0) -> Bytes:
        """Return the picture that a game shows next, if nothing is pressed."""
        return self.replay(game, 0, 1)[0]

    def replay(self, game: int, pad: int, frames: int, every: int = 1) -> list[Bytes]:
        """Return the pictures of the coming frames with `pad` held, the last one and every `every`-th before it."""
        self._machines.load_machine(0, self._world.machine(game))
        taken = []
        for k in range(frames):
            wanted = (frames - 1 - k) % every == 0
            self._machines.run(pad, 1, picture=self._picture if wanted else None)
            if wanted:
                taken.append(self._picture[0].copy())
        return taken


def film_episode(
    options: MarioOptions,
    start: int | Start,
    policy: Policy,
    *,
    every: int = 2,
    max_steps: int = 0,
) -> Film:
    """Return one episode from a start (or seed) under `policy`, with every `every`-th frame (of 60 a second)."""
    alone = replace(options, games=1, threads=1, trail=0)
    if max_steps:
        alone = replace(alone, max_steps=max_steps)
    world = MarioWorld(alone, seed=0)
    try:
        world.queue_starts([0], [start if isinstance(start, Start) else Start(seed=int(start))])
        obs, _ = world.reset()
        camera, pads = Camera(world), world.pads
        film, total = Film(fps=FRAMES_A_SECOND // every), 0.0
        while film.episode is None:
            action = policy(obs)
            records = world.records()
            pictures = camera.replay(0, int(pads[int(action[0])]), options.skip, every)
            obs, rewards, _, _, info = world.step(action)
            total += float(rewards[0])
            film.shots += [
                Shot(
                    picture,
                    stage=f"{records['world'][0]}-{records['stage'][0]}",
                    step=int(records["steps"][0]),
                    x=int(records["x"][0]),
                    reward=total,
                    action=world.action_names[int(action[0])],
                )
                for picture in pictures
            ]
            film.episode = info["episodes"][0] if "episodes" in info else None
        return film
    finally:
        world.close()


def frame(shot: Shot, *, scale: int = 2, title: str = "", ended: str = "") -> Image:
    """Return one picture in colour, `scale` times as large, under a line of facts."""
    strip = STRIP * scale
    image = np.empty((strip + HEIGHT * scale, WIDTH * scale, 3), np.uint8)
    image[:strip] = _GROUND
    image[strip:] = RGB[shot.picture & 63].repeat(scale, 0).repeat(scale, 1)
    band = Pillow.fromarray(image[:strip])
    pen, edge = ImageDraw.Draw(band), 3 * scale
    facts = f"{shot.stage}   x {shot.x}   reward {shot.reward:.1f}   step {shot.step}"
    upper, lower, font = strip * 0.28, strip * 0.74, _font(8 * scale)
    pen.text((edge, upper), facts, _TEXT, font, anchor="lm")
    pen.text((edge, lower), title or shot.action, _QUIET, font, anchor="lm")
    if ended:
        color = _GOOD if ended == "clear" else _BAD
        pen.text((WIDTH * scale - edge, lower), ended, color, font, anchor="rm")
    elif title:
        pen.text((WIDTH * scale - edge, lower), shot.action, _QUIET, font, anchor="rm")
    image[:strip] = np.asarray(band)
    return image


def frames(film: Film, *, scale: int = 2, every: int = 1, title: str = "") -> Iterator[Image]:
    """Yield the pictures of a film: every `every`-th and always the last, which says how it ended."""
    last = len(film.shots) - 1
    ended = film.episode.ended if film.episode is not None else ""
    for k, shot in enumerate(film.shots):
        if k % every == 0 or k == last:
            yield frame(shot, scale=scale, title=title, ended=ended if k == last else "")


def frame_of(world: MarioWorld, game: int = 0, *, scale: int = 2, title: str = "") -> Image:
    """Return a picture of one game as it is now."""
    records = {name: rows[game] for name, rows in world.records().items()}
    shot = Shot(
        Camera(world).look(game),
        stage=f"{records['world']}-{records['stage']}",
        step=int(records["steps"]),
        x=int(records["x"]),
        reward=float(records["reward"]),
    )
    return frame(shot, scale=scale, title=title)


def tile_image(obs: Array, cell: int = 24) -> Image:
    """Return the grids of a symbolic observation `[487]` as one picture: what a network of tiles sees."""
    ground = obs[: tiles.CELLS].reshape(tiles.ROWS, tiles.COLUMNS)
    things = obs[tiles.THINGS : tiles.THINGS + tiles.CELLS].reshape(tiles.ROWS, tiles.COLUMNS)
    image = np.empty((tiles.ROWS, tiles.COLUMNS, 3), np.uint8)
    image[:] = (92, 148, 252)
    for value, color in (
        (tiles.SOLID, (120, 72, 32)),
        (tiles.LIFT, (236, 168, 80)),
        (tiles.QUESTION, (232, 196, 40)),
        (tiles.POLE, (90, 200, 90)),
        (tiles.COIN, (252, 240, 160)),
    ):
        image[np.isclose(ground, value)] = color
    image[np.isclose(things, tiles.HURTS)] = (220, 40, 40)
    image[np.isclose(things, tiles.HELPS)] = (250, 120, 220)
    image[np.isclose(things, tiles.TOOL)] = (120, 250, 220)
    large = image.repeat(cell, 0).repeat(cell, 1)
    large[::cell] //= 2
    large[:, ::cell] //= 2
    across = tiles.BEHIND + float(obs[tiles.BODY])
    feet = float(obs[tiles.BODY + 1]) * 240.0 - 32.0
    x0, y1 = int((across - 0.5) * cell), int(feet / 16.0 * cell)
    tall = 1 if obs[tiles.BODY + 9] > 0 else 2
    large[max(y1 - tall * cell, 0) : max(y1, 0), max(x0, 0) : x0 + cell] = (255, 255, 255)
    return large


@lru_cache(maxsize=8)
def _font(size: int) -> Any:
    return ImageFont.load_default(size)
