"""The starts that wait for the next episodes of their games, and those that the running ones began from."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.errors import ConfigError
from holdfast.records import Start, pack_starts, unpack_starts


class StartQueues:
    """One queue a game, first in, first out."""

    def __init__(self, games: int) -> None:
        """Make empty queues; a game without an episode runs from `Start()`."""
        self._waiting: list[deque[Start]] = [deque() for _ in range(games)]
        self.running = [Start()] * games
        """The start of the episode that each game plays."""

    def add(self, games: Sequence[int], starts: Sequence[Start]) -> None:
        """Append `starts[k]` to the queue of `games[k]`; all are checked before any is taken."""
        for start in starts:
            if start.seed is not None and start.seed < 0:
                raise ConfigError(f"A start has the seed {start.seed}. Allowed: 0 or more.")
        for game, start in zip(games, starts, strict=True):
            self._waiting[game].append(start)

    def waiting(self) -> list[int]:
        """Return how many starts wait in each game."""
        return [len(queue) for queue in self._waiting]

    def next(self, game: int, seed: int) -> Start:
        """Return what the next episode of a game begins from: the first that waits, with `seed` unless it has its own."""
        if not self._waiting[game]:
            return Start(seed=seed)
        start = self._waiting[game][0]
        return start if start.seed is not None else replace(start, seed=seed)

    def take(self, game: int, seed: int) -> Start:
        """Return `next` and count it as begun."""
        start = self.running[game] = self.next(game, seed)
        if self._waiting[game]:
            self._waiting[game].popleft()
        return start

    def state(self) -> dict[str, bytes]:
        """Return both as bytes by name."""
        return {
            "starts": pack_starts([[start] for start in self.running]),
            "queues": pack_starts([list(queue) for queue in self._waiting]),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned; what it leaves out stays as it is."""
        if "starts" in state:
            self.running = [one for (one,) in unpack_starts(state["starts"])]
        if "queues" in state:
            self._waiting = [deque(queue) for queue in unpack_starts(state["queues"])]
