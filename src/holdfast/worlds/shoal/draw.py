"""Pictures of the shoal: one frame as an RGB array, an episode as a film.

    film = film_episode(ShoalOptions(fish=96), start=7, policy="sidestep")
    write_film("episode.mp4", film.pictures(size=480, every=2), fps=30)

The y axis points up, so the predator "falls" to the top. Orange fish are within the dashed circle and see it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from holdfast.records import F32, Array, Bools, Episode, Start
from holdfast.store.media import Image
from holdfast.worlds.camera import RATE, shown
from holdfast.worlds.paint import ring, write
from holdfast.worlds.shoal import paint
from holdfast.worlds.shoal.arrays import STAGE_RADIUS, VISION
from holdfast.worlds.shoal.options import ShoalOptions
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
    episode: Episode
    rate: float = RATE

    @property
    def length(self) -> int:
        """Number of moments."""
        return len(self.alive)

    def pictures(self, *, size: int = 480, every: int = 1, title: str = "") -> Iterator[Image]:
        """Yield every `every`-th moment and the last one."""
        for t in shown(self.length, every):
            yield frame(
                self.fish_pos[t],
                self.fish_vel[t],
                self.alive[t],
                self.predator[max(t - TRAIL, 0) : t + 1],
                step=t,
                max_steps=self.max_steps,
                size=size,
                title=title,
            )


class Camera:
    """Follows some games of a shoal world."""

    values = False

    def __init__(self, world: ShoalWorld, games: Sequence[int]) -> None:
        self._world, self._games = world, list(games)
        self._moments: dict[str, list[Array]] = {
            name: [] for name in ("fish_pos", "fish_vel", "alive", "predator_pos", "predator_vel")
        }

    def look(self) -> None:
        """Take in the moment before a step."""
        bodies = self._world.bodies()
        for name, moments in self._moments.items():
            moments.append(bodies[name][self._games])

    def chose(self, actions: Array, values: F32 | None) -> None:
        """Nothing of this is in the picture."""

    def film(self, game: int, episode: Episode) -> Film:
        """Return the film of a game's first episode."""
        k, steps = self._games.index(game), episode.steps
        seen = {n: np.stack(m[:steps])[:, k] for n, m in self._moments.items()}
        # After its last step a game has already begun anew: the last moment is the one before, with its deaths.
        rows = {name: np.concatenate([moments, moments[-1:]]) for name, moments in seen.items()}
        rows["alive"][-1] = episode.detail["death_steps"] < 0
        return Film(
            fish_pos=rows["fish_pos"],
            fish_vel=rows["fish_vel"],
            alive=rows["alive"],
            predator=np.concatenate([rows["predator_pos"], rows["predator_vel"]], axis=1),
            max_steps=self._world.options.max_steps,
            episode=episode,
        )


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
    rng, camera = np.random.default_rng(seed), Camera(world, [0])
    episodes: Sequence[Episode] = ()
    while not episodes:
        camera.look()
        actions = act_on(policy, obs, rng) if isinstance(policy, str) else policy(obs)
        obs, _, _, _, info = world.step(actions)
        episodes = info.get("episodes", ())
    world.close()
    return camera.film(0, episodes[0])


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
        ring(image, cx + x * scale, cy - y * scale, dot, 0.0, _RED, 0.05 + 0.13 * age, 0)
    ring(image, cx + px * scale, cy - py * scale, VISION * scale, size / 400.0, _LINE, 0.55, 48)
    x, y = np.ascontiguousarray(fish_pos[:, 0]), np.ascontiguousarray(fish_pos[:, 1])
    vx, vy = np.ascontiguousarray(fish_vel[:, 0]), np.ascontiguousarray(fish_vel[:, 1])
    paint.shoal(
        image, x, y, vx, vy, alive, away < VISION, cx, cy, scale, max(0.2 * scale, 3.0), _FISH
    )
    predator = (cx + px * scale, cy - py * scale)
    ring(image, *predator, 0.5 * scale, 0.0, _RED, 1.0, 0)
    ring(image, *predator, 0.5 * scale, size / 300.0, _DARK_RED, 0.9, 0)
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
    ring(image, cx, cy, radius, size / 240.0, _LINE, 0.8, 0)
    return image, cx, cy, scale


def _write_header(
    image: Image, step: int, max_steps: int, living: int, fish: int, title: str
) -> None:
    size = image.shape[1]
    top = round(size * _HEADER)
    letters = round(size * 0.036)
    middle, edge = top * 0.46, round(size * 0.02)
    write(image, edge, middle, f"step {step}", _TEXT, letters)
    write(image, size - edge, middle, f"alive {living} / {fish}", _TEXT, letters, "rm")
    write(image, size / 2, middle, title, _QUIET, letters, "mm")
    # Two thin bars under the text: time on the left half, living fish on the right half.
    bar = slice(top - max(size // 160, 2), top)
    half = size // 2
    image[bar, edge : half - edge] = (30, 40, 50)
    image[bar, half + edge : size - edge] = (30, 40, 50)
    span = half - 2 * edge
    image[bar, edge : edge + round(span * min(step / max_steps, 1.0))] = _QUIET
    image[bar, half + edge : half + edge + round(span * living / fish)] = _FISH[1].astype(np.uint8)
