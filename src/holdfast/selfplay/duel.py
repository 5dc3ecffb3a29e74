"""Thousands of games between one pursuer and one evader: who wins, how soon, and from which starts.

    result = duel(pursuer, evader, options, games=5000, seed=1)
    result.rate                      # SR_P with its 95 % interval
    result.starts_grid("evader")     # where it was caught

The seeds of all games follow from one seed. A game counts once: it is one episode from one seed, however
soon it ends, so quick captures weigh no more than escapes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from holdfast.errors import ConfigError
from holdfast.probes.runner import draw_seeds
from holdfast.probes.stats import wilson
from holdfast.records import F64, Array, Bools, Start
from holdfast.rng import derive_seed
from holdfast.selfplay.players import Draws, Ready, Side, prepare
from holdfast.selfplay.records import TIME_BINS, Evaluation, Rate, StartGrid
from holdfast.selfplay.verdict import ne_gap
from holdfast.worlds.pursuit import PursuitOptions, PursuitWorld
from holdfast.worlds.pursuit.layout import ROLES

Ints = npt.NDArray[np.int64]
WIDTH = 1024
"""Games stepped together: enough to keep the kernels busy, few enough to stay in the cache."""


@dataclass(frozen=True)
class Duel:
    """What came of every game; axis 0 is the game, in the order of the seeds."""

    options: PursuitOptions
    seeds: tuple[int, ...]
    captured: Bools
    """`[n]`."""
    steps: Ints
    """`[n]` steps until capture or time-out."""
    returns: F64
    """`[n, 2]` undiscounted reward of pursuer and evader."""
    starts: F64
    """`[n, 2, 3]` first poses of pursuer and evader."""

    @property
    def games(self) -> int:
        """How many games were played."""
        return len(self.captured)

    @property
    def rate(self) -> Rate:
        """SR_P, the share of games that the pursuer won, with Wilson's 95 % interval."""
        wins = int(self.captured.sum())
        return Rate(wins / self.games, *wilson(wins, self.games))

    @property
    def capture_times_s(self) -> F64:
        """Seconds to capture of the games that ended in one."""
        times: F64 = self.steps[self.captured] * np.float64(self.options.dt)
        return times

    @property
    def capture_time_mean_s(self) -> float | None:
        """Mean time to capture; None without a capture."""
        times = self.capture_times_s
        return float(times.mean()) if len(times) else None

    @property
    def return_means(self) -> tuple[float, float]:
        """Mean returns of pursuer and evader."""
        means = self.returns.mean(0)
        return float(means[0]), float(means[1])

    def captures_by_time(self, bins: int = TIME_BINS) -> tuple[int, ...]:
        """Return how many captures fell into each of `bins` equal parts of the time limit."""
        limit = self.options.max_steps * self.options.dt
        counts, _ = np.histogram(self.capture_times_s, bins, (0.0, limit))
        return tuple(counts.tolist())

    def starts_grid(
        self, of: Literal["pursuer", "evader", "relative"] = "evader", bins: int = 10
    ) -> StartGrid:
        """Return captures and games by start position.

        `relative` is the evader as the pursuer sees it at the start: x ahead, y to the left.
        """
        if of == "relative":
            gap = self.starts[:, 1, :2] - self.starts[:, 0, :2]
            cos, sin = np.cos(self.starts[:, 0, 2]), np.sin(self.starts[:, 0, 2])
            x, y = cos * gap[:, 0] + sin * gap[:, 1], cos * gap[:, 1] - sin * gap[:, 0]
            reach = max(float(np.abs([x, y]).max(initial=0.0)), 1e-9)
            half_x = half_y = reach
        else:
            x, y = self.starts[:, ROLES.index(of), :2].T
            half_x, half_y = self.options.arena_width / 2, self.options.arena_height / 2
        edges = np.linspace(-half_x, half_x, bins + 1), np.linspace(-half_y, half_y, bins + 1)
        games, _, _ = np.histogram2d(x, y, edges)
        wins, _, _ = np.histogram2d(x[self.captured], y[self.captured], edges)
        return StartGrid(
            of=of,
            x_edges=tuple(edges[0].tolist()),
            y_edges=tuple(edges[1].tolist()),
            captures=_rows(wins),
            games=_rows(games),
        )

    def evaluation(
        self, *, update: int, env_steps: int, phase: str, role: str, level: float
    ) -> Evaluation:
        """Return the line of `selfplay.jsonl` of this duel."""
        rate = self.rate
        return Evaluation(
            update=update,
            env_steps=env_steps,
            phase=phase,
            role=role,
            level=level,
            sr_p=rate.value,
            low=rate.low,
            high=rate.high,
            games=self.games,
            ne_gap=ne_gap(rate).value,
            capture_time_mean=self.capture_time_mean_s,
            captures_by_time=self.captures_by_time(),
            time_limit_s=self.options.max_steps * self.options.dt,
        )


def duel(
    pursuer: Side | Ready,
    evader: Side | Ready,
    options: PursuitOptions,
    games: int = 5000,
    seed: int = 0,
    sampled: Collection[str] = (),
) -> Duel:
    """Play `games` games and return what came of them.

    Policies take their best action, but the roles in `sampled` draw theirs. The result follows from the
    arguments alone.
    """
    if games < 1:
        raise ConfigError(f"A duel needs at least one game, not {games}.")
    if options.task != "game":
        raise ConfigError(
            f"A duel is a game of two; the world's task is '{options.task}'. Set task to 'game'."
        )
    unknown = set(sampled) - set(ROLES)
    if unknown:
        raise ConfigError(
            f"There is no role '{min(unknown)}' to sample; allowed: {', '.join(ROLES)}."
        )
    rounds = -(-games // WIDTH)
    world = PursuitWorld(replace(options, games=-(-games // rounds)))
    rngs = [
        np.random.default_rng(derive_seed(seed, "duel", role)) if role in sampled else None
        for role in ROLES
    ]
    try:
        return _play(world, (prepare(pursuer), prepare(evader)), rngs, draw_seeds(seed, games))
    finally:
        world.close()


def _play(
    world: PursuitWorld,
    sides: tuple[Ready, Ready],
    rngs: list[Draws],
    seeds: tuple[int, ...],
) -> Duel:
    games, width, n = len(seeds), world.games, world.num_envs
    found = Duel(
        world.options,
        seeds,
        np.zeros(games, np.bool_),
        np.zeros(games, np.int64),
        np.zeros((games, 2)),
        np.zeros((games, 2, 3)),
    )
    obs, _ = world.reset(seed=list(seeds[:width]))
    found.starts[:width] = world.records["pose"]
    queue = _Queue(world, seeds)
    actions = np.zeros((n, *(world.single_action_space.shape or ())), np.float32)
    rewards, mask = np.zeros(n), np.zeros(n, np.bool_)
    terminations, truncations = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    begun = np.ones(width, np.bool_)
    left = games
    while left:
        for me, side in enumerate(sides):
            rows = np.ascontiguousarray(obs[me::2])
            actions[me::2] = side.play(world, rows, rngs[me], begun)
        info = world.step_into(actions, obs, rewards, terminations, truncations, mask)
        begun[:] = False
        for episode in info.get("episodes", ()):
            begun[episode.game] = True
            k = queue.playing[episode.game]
            if k < 0:
                continue
            found.captured[k] = episode.ended == "captured"
            found.steps[k] = episode.steps
            found.returns[k] = episode.returns
            following = queue.ended(episode.game)
            if following >= 0:
                found.starts[following] = world.records["pose"][episode.game]
            left -= 1
    return found


class _Queue:
    """Which seed each game of the world plays now, and which it plays next."""

    def __init__(self, world: PursuitWorld, seeds: tuple[int, ...]) -> None:
        self._world, self._seeds = world, seeds
        self.playing: list[int] = list(range(world.games))
        """Number of the seed that a game of the world plays; -1: none that counts."""
        self._given = world.games
        self._following = [self._next(g) for g in range(world.games)]

    def ended(self, game: int) -> int:
        """Return the seed's number that the game has begun, and give it one more to play after."""
        self.playing[game] = self._following[game]
        self._following[game] = self._next(game)
        return self.playing[game]

    def _next(self, game: int) -> int:
        if self._given >= len(self._seeds):
            return -1
        k = self._given
        self._given += 1
        self._world.queue_starts([2 * game], [Start(seed=self._seeds[k])])
        return k


def _rows(counts: Array) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(row) for row in counts.astype(np.int64).tolist())
