"""Pictures of the shoal: one frame as an RGB array, an episode as GIF or MP4.

    film = film_episode(ShoalOptions(fish=96), start=7, policy="sidestep")
    write_mp4("episode.mp4", frames(film))
    write_gif("episode.gif", frames(film, size=360, every=4))

The y axis points up, so the predator "falls" to the top. Orange fish are within the dashed circle and see it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as Pillow
from PIL import ImageDraw, ImageFont

from holdfast.errors import ConfigError
from holdfast.records import F32, Array, Bools, Episode, Start
from holdfast.worlds.shoal import paint
from holdfast.worlds.shoal.arrays import STAGE_RADIUS, VISION
from holdfast.worlds.shoal.options import ShoalOptions
from holdfast.worlds.shoal.paint import Image
from holdfast.worlds.shoal.policies import act_on
from holdfast.worlds.shoal.world import ShoalWorld

Policy = str | Callable[[F32], Array]
"""Name of a scripted policy, or a function from observations `[F, D]` to actions `[F]`."""

TRAIL = 24
"""Steps of the predator's path that a frame shows."""
_HEADER = 0.085
"""Height of the text strip, as a fraction of the width."""
_GROUND = (11, 15, 21)
_TEXT = (214, 226, 236)
_QUIET = (122, 140, 156)
_RED = np.array([240.0, 74.0, 66.0])
_DARK_RED = np.array([120.0, 20.0, 24.0])
_LINE = np.array([150.0, 196.0, 214.0])
_FISH = np.array([[122.0, 136.0, 148.0], [110.0, 220.0, 232.0], [255.0, 180.0, 72.0]])
"""Dead, calm, alarmed."""


@dataclass(frozen=True)
class Film:
    """What happened in one game, `T + 1` moments."""

    fish_pos: F32
    """`[T+1, F, 2]`."""
    fish_vel: F32
    alive: Bools
    """`[T+1, F]`."""
    predator: F32
    """`[T+1, 4]`: x, y, vx, vy."""
    max_steps: int
    episode: Episode | None = None
    """Its record, if the game ended."""

    @property
    def steps(self) -> int:
        """T."""
        return len(self.alive) - 1


def film_episode(
    options: ShoalOptions,
    start: int | Start,
    policy: Policy,
    *,
    max_steps: int | None = None,
    seed: int = 0,
) -> Film:
    """Return one episode from `start` under `policy`; `seed` drives the `random` policy."""
    steps = max_steps if max_steps is not None else options.max_steps
    world = ShoalWorld(replace(options, games=1, threads=1, max_steps=steps), seed=0)
    world.queue_starts([0], [start if isinstance(start, Start) else Start(seed=int(start))])
    obs, _ = world.reset()
    rng = np.random.default_rng(seed)
    moments = [world.bodies()]
    episode = None
    while episode is None:
        actions = act_on(policy, obs, rng) if isinstance(policy, str) else policy(obs)
        obs, _, _, _, info = world.step(actions)
        episodes = info.get("episodes")
        # The last step has already begun the next episode, so its final moment is rebuilt.
        episode = episodes[0] if episodes else None
        moments.append(world.bodies() if episode is None else _last_moment(moments[-1], episode))
    world.close()
    return Film(
        fish_pos=np.stack([m["fish_pos"][0] for m in moments]),
        fish_vel=np.stack([m["fish_vel"][0] for m in moments]),
        alive=np.stack([m["alive"][0] for m in moments]),
        predator=np.stack([np.r_[m["predator_pos"][0], m["predator_vel"][0]] for m in moments]),
        max_steps=steps,
        episode=episode,
    )


def frame(
    fish_pos: F32,
    fish_vel: F32,
    alive: Bools,
    trail: F32,
    *,
    step: int,
    max_steps: int = 500,
    size: int = 480,
    title: str = "",
) -> Image:
    """Return one picture; `trail` is the predator's path `[n, >=2]` up to now, oldest first."""
    image, cx, cy, scale = _stage(size)
    px, py = float(trail[-1, 0]), float(trail[-1, 1])
    away = np.hypot(fish_pos[:, 0] - px, fish_pos[:, 1] - py)
    for k, (x, y) in enumerate(trail[:-1, :2].tolist()):
        age = (k + 1) / len(trail)
        dot = (0.1 + 0.28 * age) * scale
        paint.ring(image, cx + x * scale, cy - y * scale, dot, 0.0, _RED, 0.05 + 0.13 * age, 0)
    paint.ring(
        image, cx + px * scale, cy - py * scale, VISION * scale, size / 400.0, _LINE, 0.55, 48
    )
    x, y = np.ascontiguousarray(fish_pos[:, 0]), np.ascontiguousarray(fish_pos[:, 1])
    vx, vy = np.ascontiguousarray(fish_vel[:, 0]), np.ascontiguousarray(fish_vel[:, 1])
    paint.shoal(
        image, x, y, vx, vy, alive, away < VISION, cx, cy, scale, max(0.2 * scale, 3.0), _FISH
    )
    predator = (cx + px * scale, cy - py * scale)
    paint.ring(image, *predator, 0.5 * scale, 0.0, _RED, 1.0, 0)
    paint.ring(image, *predator, 0.5 * scale, size / 300.0, _DARK_RED, 0.9, 0)
    _write_header(image, step, max_steps, int(alive.sum()), len(alive), title)
    return image


def frame_of(world: ShoalWorld, game: int = 0, *, size: int = 480, title: str = "") -> Image:
    """Return a picture of one game as it is now (without a trail)."""
    b = world.bodies()
    return frame(
        b["fish_pos"][game],
        b["fish_vel"][game],
        b["alive"][game],
        b["predator_pos"][game][None],
        step=int(b["t"][game]),
        max_steps=world.options.max_steps,
        size=size,
        title=title,
    )


def frames(film: Film, *, size: int = 480, every: int = 1, title: str = "") -> Iterator[Image]:
    """Yield the pictures of an episode: every `every`-th step and always the last."""
    moments = list(range(0, film.steps + 1, every))
    if moments[-1] != film.steps:
        moments.append(film.steps)
    for t in moments:
        yield frame(
            film.fish_pos[t],
            film.fish_vel[t],
            film.alive[t],
            film.predator[max(t - TRAIL, 0) : t + 1],
            step=t,
            max_steps=film.max_steps,
            size=size,
            title=title,
        )


def write_gif(path: str | Path, pictures: Iterable[Image], *, fps: int = 20) -> Path:
    """Write an endless GIF and return its path; all frames share the palette of the first ones."""
    images = [Pillow.fromarray(picture) for picture in pictures]
    if not images:
        raise ConfigError("A GIF needs at least one frame; the episode gave none.")
    sample = images[:: max(len(images) // 4, 1)]
    sheet = Pillow.new("RGB", (sample[0].width, sample[0].height * len(sample)))
    for k, image in enumerate(sample):
        sheet.paste(image, (0, k * image.height))
    palette = sheet.quantize(255, method=Pillow.Quantize.MAXCOVERAGE)
    indexed = [image.quantize(palette=palette, dither=Pillow.Dither.NONE) for image in images]
    target = Path(path)
    indexed[0].save(
        target, save_all=True, append_images=indexed[1:], duration=round(1000 / fps), loop=0
    )
    return target


def write_mp4(path: str | Path, pictures: Iterable[Image], *, fps: int = 30) -> Path:
    """Write an H.264 film that browsers play and return its path."""
    import av

    target = Path(path)
    with av.open(str(target), "w") as container:
        stream: Any = None
        for picture in pictures:
            if stream is None:
                stream = container.add_stream("libx264", rate=Fraction(fps))
                stream.height, stream.width = (side - side % 2 for side in picture.shape[:2])
                stream.pix_fmt = "yuv420p"
                stream.options = {"crf": "22", "preset": "superfast"}
            even = np.ascontiguousarray(picture[: stream.height, : stream.width])
            container.mux(stream.encode(av.VideoFrame.from_ndarray(even, format="rgb24")))
        if stream is None:
            raise ConfigError("An MP4 needs at least one frame; the episode gave none.")
        container.mux(stream.encode(None))
    return target


def _last_moment(before: Mapping[str, Array], episode: Episode) -> dict[str, Array]:
    """Return the moment before the end with the last deaths marked: one step later looks the same."""
    alive = episode.detail["death_steps"][None] < 0
    return {**before, "alive": alive}


def _stage(size: int) -> tuple[Image, float, float, float]:
    background, cx, cy, scale = _background(size)
    return background.copy(), cx, cy, scale


@lru_cache(maxsize=4)
def _background(size: int) -> tuple[Image, float, float, float]:
    top = round(size * _HEADER)
    image: Image = np.empty((top + size + (top + size) % 2, size, 3), np.uint8)
    image[:] = _GROUND
    cx, cy = size / 2.0 - 0.5, top + size / 2.0 - 0.5
    # The wall stops a fish's centre, so the rim leaves room for the body.
    scale = (size / 2.0 - 3.0) / (STAGE_RADIUS + 0.35)
    radius = (STAGE_RADIUS + 0.25) * scale
    paint.water(image, top, cx, cy, radius)
    paint.ring(image, cx, cy, radius, size / 240.0, _LINE, 0.8, 0)
    return image, cx, cy, scale


def _write_header(
    image: Image, step: int, max_steps: int, living: int, fish: int, title: str
) -> None:
    size = image.shape[1]
    top = round(size * _HEADER)
    strip = Pillow.fromarray(image[:top])
    pen, font = ImageDraw.Draw(strip), _font(round(size * 0.036))
    middle, edge = top * 0.46, round(size * 0.02)
    pen.text((edge, middle), f"step {step}", _TEXT, font, anchor="lm")
    alive = f"alive {living} / {fish}"
    pen.text((size - edge, middle), alive, _TEXT, font, anchor="rm")
    pen.text((size / 2, middle), title, _QUIET, font, anchor="mm")
    image[:top] = np.asarray(strip)
    # Two thin bars under the text: time on the left half, living fish on the right half.
    bar = slice(top - max(size // 160, 2), top)
    half = size // 2
    image[bar, edge : half - edge] = (30, 40, 50)
    image[bar, half + edge : size - edge] = (30, 40, 50)
    span = half - 2 * edge
    image[bar, edge : edge + round(span * min(step / max_steps, 1.0))] = _QUIET
    image[bar, half + edge : half + edge + round(span * living / fish)] = _FISH[1].astype(np.uint8)


@lru_cache(maxsize=8)
def _font(size: int) -> Any:
    return ImageFont.load_default(size)
