"""Episodes of a probe on film, in any world.

    films = film_games(spec, policy, [3, 7])             # the games of these places in `spec.seeds`
    write_film("a.mp4", films[0].pictures(size=480, every=2), fps=films[0].rate / 2)

The whole probe is played again with a camera on some of its games, so a film shows the very episode that was
measured, sampled actions included. A foreign environment is filmed alone, from its seed, and only if it draws itself
(`render_mode="rgb_array"`); there, sampled actions differ from those of the probe.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.errors import ConfigError
from holdfast.learn.roles import Player
from holdfast.probes.headlines import Headline, headline, outcome
from holdfast.probes.runner import ProbeSpec, check_fits, play, played_options
from holdfast.records import F32, Array, Episode
from holdfast.store.media import Image
from holdfast.worlds import OURS, make_world
from holdfast.worlds.camera import Camera, Film, make_camera, together

FOREIGN_MOMENTS = 2000
"""Longest film of a foreign environment, in steps."""
FOREIGN_RATE = 30
HEADLESS = {
    "SDL_VIDEODRIVER": "dummy",
    "SDL_AUDIODRIVER": "dummy",
    "PYGAME_HIDE_SUPPORT_PROMPT": "1",
}
"""pygame opens no window, tries no sound and prints no greeting (standard output is for --json)."""


@dataclass(frozen=True)
class Take:
    """A film and the episodes that it shows."""

    film: Film
    episodes: tuple[Episode, ...] = ()

    def told(self, world: str) -> str:
        """Return how it ended, in words; several episodes are counted by their ends."""
        if isinstance(self.film, ForeignFilm):
            so_far = f" in the first {self.film.steps} steps" if self.film.cut else ""
            return f"return {self.film.total:.1f}{so_far}"
        ends = Counter(outcome(world, episode) for episode in self.episodes)
        if len(self.episodes) == 1:
            return next(iter(ends))
        return ", ".join(f"{count} {end}" for end, count in ends.most_common())


class Filmed:
    """A policy that tells a camera what it chooses, and plays as before."""

    def __init__(self, policy: Any, camera: Camera) -> None:
        self._policy, self._camera = policy, camera

    def act(self, obs: Array, rng: np.random.Generator | None = None, **more: Any) -> Array:
        """Return what the policy chooses."""
        values: F32 | None = None
        if self._camera.values and hasattr(self._policy, "values"):
            # Before the action: a policy that remembers judges what comes next.
            values = self._policy.values(obs, **more)
        actions: Array = self._policy.act(obs, rng, **more)
        self._camera.chose(actions, values)
        return actions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)


def film_games(
    spec: ProbeSpec,
    policy: Player,
    games: Sequence[int],
    progress: Callable[[int, int], None] | None = None,
    env_steps: int = 0,
) -> list[Take]:
    """Play a probe again, made after `env_steps` of the run, and return the films of these games, in their order."""
    if spec.world not in OURS:
        return [film_foreign(spec, policy, spec.seeds[game]) for game in games]
    world = make_world(spec.world, played_options(spec))
    world.set_clock(env_steps, ticks=False)
    try:
        camera = make_camera(spec.world, world, list(games))
        episodes = play(
            world,
            Filmed(policy, camera),
            spec.seeds,
            spec.deterministic,
            progress,
            watch=lambda _: camera.look(),
            scripts=spec.scripts,
            longest=spec.longest,
        )
        return [Take(camera.film(game, episodes[game]), (episodes[game],)) for game in games]
    finally:
        world.close()


def side_by_side(world: str, takes: Sequence[Take]) -> Take:
    """Return several takes of one world as one."""
    if len(takes) == 1:
        return takes[0]
    film = together(world, [take.film for take in takes])
    return Take(film, tuple(episode for take in takes for episode in take.episodes))


def chosen_games(world: str, detail: Mapping[str, Any], seeds: int) -> dict[str, list[int]]:
    """Return which games of a probe are worth a film, by the name of that film."""
    main = headline(world)
    order = ranking(main, detail, seeds)
    if main.grid:
        # Evenly from the worst to the best, so that the grid shows what the whole probe was like.
        places = np.unique(np.linspace(0, len(order) - 1, main.grid).round().astype(int))
        return {"grid": [order[k] for k in places]}
    found = {order[0]: "worst"}
    found.setdefault(order[-1], "best")
    found.setdefault(order[len(order) // 2], "median")
    return {rank: [game] for game, rank in found.items()}


def ranking(main: Headline, detail: Mapping[str, Any], seeds: int) -> list[int]:
    """Return the games of a probe from the worst to the best."""
    keys = []
    for name in main.rank:
        column = detail.get(name.removeprefix("-"))
        if column is not None and len(column) == seeds:
            rows = np.asarray(column, np.float64)
            keys.append(-rows if name.startswith("-") else rows)
    return np.lexsort(keys[::-1]).tolist() if keys else list(range(seeds))


@dataclass
class ForeignFilm:
    """An episode of a foreign environment, played while its pictures are taken."""

    spec: ProbeSpec
    policy: Any
    seed: int
    game: Any
    rate: float
    total: float = 0.0
    """Sum of the rewards so far."""
    steps: int = 0
    cut: bool = False
    """Whether the film ended before the episode did."""

    @property
    def limit(self) -> int:
        """Steps after which the episode is cut, as in the probe."""
        return min(self.game.options.max_steps or self.spec.longest, self.spec.longest)

    @property
    def length(self) -> int:
        """The most moments that it may have; the end is not known before."""
        return min(FOREIGN_MOMENTS, self.limit)

    def pictures(self, *, size: int = 0, every: int = 1, title: str = "") -> Iterator[Image]:
        """Play the episode once and yield every `every`-th moment and the last one, as the environment draws them."""
        rng = None if self.spec.deterministic else np.random.default_rng([self.seed])
        begin = getattr(self.policy, "begin", None)
        if begin is not None:
            begin()
        blank = np.zeros(self.game.drawn.spec.observation_space.shape, np.float32)
        rows, over = _filled(self.game.reset(self.seed), blank), False
        self.total, self.steps, self.cut = 0.0, 0, False
        try:
            while True:
                last = over or self.steps >= self.length
                if self.steps % every == 0 or last:
                    yield self._picture()
                if last:
                    self.cut = not over and self.steps < self.limit
                    return
                actions = self.policy.act(np.asarray(rows, np.float32), rng)
                new, rewards, _, _, over = self.game.step(actions)
                rows = _filled(new, blank)
                self.total += float(np.mean(rewards))
                self.steps += 1
        finally:
            self.game.close()

    def _picture(self) -> Image:
        return np.ascontiguousarray(self.game.render(), np.uint8)


def _filled(rows: Sequence[Any], blank: F32) -> list[Any]:
    """Return one observation a slot: a blank one for those that are out."""
    return [blank if row is None else row for row in rows]


def film_foreign(spec: ProbeSpec, policy: Player, seed: int) -> Take:
    """Return the film of one episode of a foreign environment, which is played when its pictures are taken."""
    for variable, setting in HEADLESS.items():
        os.environ.setdefault(variable, setting)
    from holdfast.worlds.pool_options import ForeignOptions
    from holdfast.worlds.pool_patient import PatientGame, undrawn

    game = PatientGame(spec.world, spec.options or ForeignOptions())
    try:
        if game.drawn.mode != "rgb_array":
            raise ConfigError(undrawn(spec.world, f"its render_mode is {game.drawn.mode!r}"))
        check_fits(policy, game.drawn.spec.action_space)
        # The first picture tells whether what it needs for drawing is installed.
        game.reset(seed)
        game.render()
    except BaseException:
        game.close()
        raise
    return Take(ForeignFilm(spec, policy, seed, game, game.drawn.rate or FOREIGN_RATE))
