"""The arrays through which a world and its players talk, in ordinary or in shared memory.

A `Post` says where each worker is now, so that a watcher can see how long it has been there. A `Board`
holds actions, observations and results of all games. Both are views of one buffer: ordinary memory for
`serial` and `threads`, a file without a name that every worker maps for `process`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.records import F64, Array, Bools
from holdfast.worlds.pool_games import GameSpec, is_bytes

IDLE, BOOT, CONSTRUCT, RESET, STEP, CLOSE = range(6)
PHASES = ("idle", "boot", "construct", "reset", "step", "close")
ALIGN = 64
I64 = npt.NDArray[np.int64]

Field = tuple[str, tuple[int, ...], str]
"""Name, shape and dtype of one array."""


def size_of(fields: Sequence[Field]) -> int:
    """Return the bytes that the arrays take, each on its own cache lines."""
    return sum(_padded(shape, dtype) for _, shape, dtype in fields)


def views(buffer: Any, fields: Sequence[Field], at: int = 0) -> dict[str, Array]:
    """Return the arrays that lie in `buffer` from byte `at` on."""
    arrays = {}
    for name, shape, dtype in fields:
        count = math.prod(shape)
        arrays[name] = np.frombuffer(buffer, np.dtype(dtype), count, at).reshape(shape)
        at += _padded(shape, dtype)
    return arrays


def _padded(shape: tuple[int, ...], dtype: str) -> int:
    size = math.prod(shape) * np.dtype(dtype).itemsize
    return max(ALIGN, -(-size // ALIGN) * ALIGN)


def post_fields(workers: int, games: int) -> list[Field]:
    """Return the arrays of a `Post`."""
    return [
        ("phase", (workers,), "<i8"),
        ("game", (workers,), "<i8"),
        ("since", (workers,), "<f8"),
        ("construct_s", (games,), "<f8"),
        ("reset_s", (games,), "<f8"),
    ]


@dataclass(frozen=True)
class Post:
    """Where each worker is: its phase, the game it is busy with, and since when (`time.monotonic`)."""

    phase: I64
    game: I64
    since: F64
    construct_s: F64
    """`[games]` seconds of the last construction."""
    reset_s: F64
    """`[games]` seconds of the last reset."""

    @classmethod
    def at(cls, buffer: Any, workers: int, games: int) -> Post:
        """Return the post at the beginning of `buffer`."""
        return cls(**views(buffer, post_fields(workers, games)))


@dataclass(frozen=True)
class Layout:
    """Counts and types from which both sides compute the same offsets."""

    games: int
    slots_per_game: int
    obs_shape: tuple[int, ...]
    action_shape: tuple[int, ...]
    action_dtype: str
    obs_dtype: str = "<f4"
    facts: int = 0
    """Numbers that are kept of each episode."""

    @classmethod
    def of(cls, spec: GameSpec, games: int, facts: int = 0) -> Layout:
        """Return the layout for `games` games of this kind."""
        space = spec.action_space
        dtype = np.dtype(space.dtype if space.dtype is not None else np.float64)
        shape = tuple(spec.observation_space.shape or ())
        seen = "|u1" if is_bytes(spec.observation_space) else "<f4"
        return cls(games, len(spec.roles), shape, tuple(space.shape or ()), dtype.str, seen, facts)

    def fields(self) -> list[Field]:
        """Return the arrays of a `Board`."""
        games, slots = self.games, self.games * self.slots_per_game
        return [
            ("actions", (slots, *self.action_shape), self.action_dtype),
            ("both", (2, slots, *self.obs_shape), self.obs_dtype),
            ("final", (slots, *self.obs_shape), self.obs_dtype),
            ("rewards", (slots,), "<f8"),
            ("terminations", (slots,), "|b1"),
            ("truncations", (slots,), "|b1"),
            ("mask", (slots,), "|b1"),
            ("side", (1,), "<i8"),
            ("seeds", (games,), "<i8"),
            ("current", (games,), "<i8"),
            ("steps", (games,), "<i8"),
            ("lengths", (games,), "<i8"),
            ("stage", (games,), "|i1"),
            ("ended", (games,), "|b1"),
            ("cut", (games,), "|b1"),
            ("wanted", (games,), "|b1"),
            ("facts", (games, self.facts), "<f8"),
            ("truths", (games, self.facts), "|b1"),
        ]


@dataclass(frozen=True)
class Board:
    """Actions in, results out. The world writes `actions`, `side`, `seeds`, `cut` and `wanted`."""

    layout: Layout
    actions: Array
    """`[N, ...]`."""
    both: Array
    """`[2, N, ...]` observations, float32 or the bytes of pictures; a step reads nothing of `both[side]` and leaves the other side,
    what was last seen, untouched, so that a worker that dies half-way spoils nothing."""
    final: Array
    """`[N, ...]` last observation of the games in `ended`."""
    rewards: F64
    terminations: Bools
    truncations: Bools
    mask: Bools
    """`[N]` slots that carry a decision."""
    side: I64
    """`[1]` which side of `both` is written."""
    seeds: I64
    """`[games]` seed of the next reset of each game."""
    current: I64
    """`[games]` seed of the episode that is played."""
    steps: I64
    """`[games]` steps of the episode that is played."""
    lengths: I64
    """`[games]` steps of the episode that ended in this step."""
    stage: Array
    """`[games]` 0: not stepped yet, 1: stepped (its results hold), 2: it ended and was reset."""
    ended: Bools
    """`[games]` the episode ended in this step and a new one has begun."""
    cut: Bools
    """`[games]` cut the episode at this step."""
    wanted: Bools
    """`[games]` which games a reset command means."""
    facts: F64
    """`[games, facts]` what the environment told of the episode that ended in this step."""
    truths: Bools
    """`[games, facts]` where that was true or false, and no number."""

    @classmethod
    def at(cls, buffer: Any, layout: Layout, offset: int = 0) -> Board:
        """Return the board that begins at byte `offset` of `buffer`."""
        return cls(layout=layout, **views(buffer, layout.fields(), offset))

    @classmethod
    def own(cls, layout: Layout) -> Board:
        """Return a board in memory of its own."""
        return cls.at(bytearray(size_of(layout.fields())), layout)

    @property
    def obs(self) -> Array:
        """`[N, ...]` current observations."""
        rows: Array = self.both[int(self.side[0])]
        return rows

    @property
    def seen(self) -> Array:
        """`[N, ...]` the observations before this step."""
        rows: Array = self.both[1 - int(self.side[0])]
        return rows

    def slots(self, game: int) -> slice:
        """Return the rows of a game."""
        size = self.layout.slots_per_game
        return slice(game * size, (game + 1) * size)
