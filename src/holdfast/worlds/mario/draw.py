"""Pictures of the mario world: the colour picture with a line of facts, an episode as a film, tiles as an image.

    film = film_episode(MarioOptions(), Start(seed=7), policy)
    write_film("episode.mp4", film.pictures(size=512, every=2), fps=film.rate / 2)

A film is drawn by a second console, which plays every step again frame by frame; what the world skips
(cut-scenes) is not in it. Below the picture runs what the critic thought of every moment, where that is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from holdfast.jit import kernel
from holdfast.records import F32, F64, Array, Episode, Start
from holdfast.store.media import Image
from holdfast.worlds.camera import RATE, shown
from holdfast.worlds.mario import tiles
from holdfast.worlds.mario.machine import HEIGHT, WIDTH, Bytes
from holdfast.worlds.mario.nes import Machines
from holdfast.worlds.mario.options import MarioOptions
from holdfast.worlds.mario.palette import RGB
from holdfast.worlds.mario.stages import cartridge_at
from holdfast.worlds.mario.world import MarioWorld
from holdfast.worlds.paint import path, segment, write

Policy = Callable[[Array], Array]
"""From observations `[1, ...]` to actions `[1]`; a policy that stacks frames keeps its own (`frames.Stacker`)."""

STRIP = 22
"""Height of the lines of facts at scale 1."""
CHART = 34
"""Height of the strip of values at scale 1."""
_GROUND, _TEXT, _QUIET = (11, 15, 21), (214, 226, 236), (138, 154, 168)
_GOOD, _BAD = (110, 220, 132), (240, 74, 66)
_BRIGHT, _DIM = np.array([110.0, 220.0, 232.0]), np.array([52.0, 66.0, 80.0])


@dataclass(frozen=True)
class Shot:
    """What one step looked like: the console before it, the pad that was held, and the facts."""

    machine: dict[str, Array]
    pad: int
    action: str
    stage: str
    step: int
    x: int
    reward: float
    """Sum before the step."""
    value: float | None = None
    """What the critic thought of this moment."""


@dataclass
class Film:
    """One episode; a moment is one of its frames."""

    options: MarioOptions
    shots: list[Shot] = field(default_factory=list)
    episode: Episode | None = None
    rate: float = RATE

    @property
    def length(self) -> int:
        """Frames of the console."""
        return len(self.shots) * self.options.skip

    def pictures(self, *, size: int = 512, every: int = 1, title: str = "") -> Iterator[Image]:
        """Yield every `every`-th frame and the last one, which says how it ended."""
        scale = max(1, round(size / WIDTH))
        ended = self.episode.ended if self.episode is not None else ""
        values = [shot.value for shot in self.shots if shot.value is not None]
        chart = Chart(np.array(values), scale) if len(values) == len(self.shots) else None
        skip, last = self.options.skip, self.length - 1
        wanted: dict[int, list[int]] = {}
        for moment in shown(self.length, every):
            wanted.setdefault(moment // skip, []).append(moment % skip)
        console = Console(self.options)
        for k, frames in wanted.items():
            shot = self.shots[k]
            for at, picture in zip(frames, console.replay(shot, frames), strict=True):
                final = k * skip + at == last
                image = frame(shot, picture, scale=scale, title=title, ended=ended if final else "")
                yield image if chart is None else np.concatenate([image, chart.at(k)])


class Chart:
    """The strip of values under a film: what was is bright, what comes is dim."""

    def __init__(self, values: F64, scale: int) -> None:
        self._values, self._scale = values, scale
        low, high = float(values.min()), float(values.max())
        edge, top, bottom = 3.0 * scale, 13.0 * scale, (CHART - 4.0) * scale
        x = np.linspace(edge, WIDTH * scale - edge, len(values))
        y = bottom - (values - low) / max(high - low, 1e-9) * (bottom - top)
        self._curve = np.stack([x, y], axis=1)
        self._strip: Image = np.empty((CHART * scale, WIDTH * scale, 3), np.uint8)
        self._strip[:] = _GROUND
        path(self._strip, self._curve, 1.2 * scale, _DIM, 1.0)
        between = f"{low:.2f} to {high:.2f}"
        write(self._strip, x[-1], 6.5 * scale, between, _QUIET, 8 * scale, "rm")
        self._drawn = 0

    def at(self, k: int) -> Image:
        """Return the strip at step `k`; steps must not go back."""
        path(self._strip, self._curve[self._drawn : k + 1], 1.2 * self._scale, _BRIGHT, 1.0)
        self._drawn = k
        strip, (x, y) = self._strip.copy(), self._curve[k]
        segment(strip, x, y, x, y, 4.0 * self._scale, _BRIGHT, 1.0)
        words, edge = f"value {self._values[k]:.2f}", self._curve[0, 0]
        write(strip, edge, 6.5 * self._scale, words, _TEXT, 8 * self._scale)
        return strip


class Console:
    """A machine of its own that shows what a game looked like."""

    def __init__(self, options: MarioOptions) -> None:
        self._machines = Machines(cartridge_at(options.rom, options.any_rom), 1)
        self._picture = np.zeros((1, HEIGHT, WIDTH), np.uint8)

    def replay(self, shot: Shot, frames: Sequence[int]) -> list[Bytes]:
        """Return these frames of a step, in rising order."""
        self._machines.load_machine(0, shot.machine)
        taken = []
        for k in range(frames[-1] + 1):
            wanted = k in frames
            self._machines.run(shot.pad, 1, picture=self._picture if wanted else None)
            if wanted:
                taken.append(self._picture[0].copy())
        return taken


class Camera:
    """Follows some games of a mario world, each until its first episode ends."""

    values = True

    def __init__(self, world: MarioWorld, games: Sequence[int]) -> None:
        self._world = world
        self._shots: dict[int, list[Shot]] = {game: [] for game in games}
        self._over: set[int] = set()
        self._now: dict[int, Shot] = {}

    def look(self) -> None:
        """Take in the moment before a step."""
        records = self._world.records()
        self._now = {}
        for game, shots in self._shots.items():
            step = int(records["steps"][game])
            if shots and step <= shots[-1].step:
                self._over.add(game)
            if game not in self._over:
                self._now[game] = Shot(
                    machine=self._world.machine(game),
                    pad=0,
                    action="",
                    stage=f"{records['world'][game]}-{records['stage'][game]}",
                    step=step,
                    x=int(records["x"][game]),
                    reward=float(records["reward"][game]),
                )

    def chose(self, actions: Array, values: F32 | None) -> None:
        """Take in the actions of that step and the critic's values."""
        for game, shot in self._now.items():
            action = int(actions[game])
            self._shots[game].append(
                replace(
                    shot,
                    pad=int(self._world.pads[action]),
                    action=self._world.action_names[action],
                    value=None if values is None else float(values[game]),
                )
            )

    def film(self, game: int, episode: Episode) -> Film:
        """Return the film of a game's first episode."""
        return Film(self._world.options, self._shots[game][: episode.steps], episode)


def film_episode(
    options: MarioOptions, start: int | Start, policy: Policy, *, max_steps: int = 0
) -> Film:
    """Return one episode from a start (or seed) under `policy`."""
    alone = replace(options, games=1, threads=1, trail=0)
    if max_steps:
        alone = replace(alone, max_steps=max_steps)
    world = MarioWorld(alone, seed=0)
    try:
        world.queue_starts([0], [start if isinstance(start, Start) else Start(seed=int(start))])
        obs, _ = world.reset()
        camera = Camera(world, [0])
        episodes: Sequence[Episode] = ()
        while not episodes:
            camera.look()
            action = policy(obs)
            camera.chose(action, None)
            obs, _, _, _, info = world.step(action)
            episodes = info.get("episodes", ())
        return camera.film(0, episodes[0])
    finally:
        world.close()


def frame(shot: Shot, picture: Bytes, *, scale: int = 2, title: str = "", ended: str = "") -> Image:
    """Return one picture `[240, 256]` of colour numbers in colour, `scale` times as large, under two lines of facts."""
    strip = STRIP * scale
    image: Image = np.empty((strip + HEIGHT * scale, WIDTH * scale, 3), np.uint8)
    image[:strip] = _GROUND
    enlarge(picture, RGB, scale, image[strip:])
    edge, right = 3 * scale, WIDTH * scale - 3 * scale
    upper, lower, letters = strip * 0.28, strip * 0.74, 8 * scale
    facts = f"{shot.stage}   x {shot.x}   reward {shot.reward:.1f}   step {shot.step}"
    write(image, edge, upper, facts, _TEXT, letters)
    write(image, right, upper, shot.action, _TEXT, letters, "rm")
    write(image, edge, lower, title, _QUIET, letters)
    if ended:
        color = _GOOD if ended == "clear" else _BAD
        write(image, right, lower, ended.replace("_", " "), color, letters, "rm")
    return image


@kernel
def enlarge(picture: Bytes, colours: Bytes, scale: int, image: Image) -> None:
    """Write colour numbers as colours, `scale` pixels each way."""
    for row in range(image.shape[0]):
        for column in range(image.shape[1]):
            number = picture[row // scale, column // scale] & 63
            for k in range(3):
                image[row, column, k] = colours[number, k]


def frame_of(world: MarioWorld, game: int = 0, *, scale: int = 2, title: str = "") -> Image:
    """Return a picture of one game as it is now."""
    camera = Camera(world, [game])
    camera.look()
    (shot,) = camera._now.values()
    (picture,) = Console(world.options).replay(shot, [0])
    return frame(shot, picture, scale=scale, title=title)


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
