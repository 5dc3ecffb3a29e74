"""Starts that wait for the next resets of their games, and those that the running episodes began from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from holdfast.errors import ConfigError
from holdfast.records import F64, Array, Start, pack, pack_starts, unpack, unpack_starts
from holdfast.worlds.pursuit.geometry import with_short_headings

SEED_LIMIT = 1 << 63


class StartQueue:
    """One queue a game; its first entry is staged in the game's record, where the kernel finds it."""

    def __init__(self, records: Array, obstacles: F64) -> None:
        """Stage into `records [G]` and `obstacles [G, K, 3]`."""
        self._records, self._obstacles = records, obstacles
        self._waiting: list[list[Start]] = [[] for _ in range(len(records))]
        self._running: dict[int, Start] = {}

    def add(self, games: Sequence[int], starts: Sequence[Start]) -> None:
        """Append `starts[k]` to the queue of `games[k]`; all are checked before any is taken."""
        for start in starts:
            self._check(start)
        for g, start in zip(games, starts, strict=True):
            self._waiting[g].append(start)
            if len(self._waiting[g]) == 1:
                self._stage(g)

    def waiting(self) -> list[int]:
        """Return how many starts wait in each game."""
        return [len(queue) for queue in self._waiting]

    def running(self, game: int) -> Start | None:
        """Return the queued start of the running episode; None if it began from its own seed."""
        return self._running.get(game)

    def taken(self, game: int) -> None:
        """Note that the game has begun a new episode, and stage its next start."""
        if not self._waiting[game]:
            self._running.pop(game, None)
            return
        self._running[game] = self._waiting[game].pop(0)
        self._stage(game)

    def pack(self) -> dict[str, bytes]:
        """Return the state as bytes by name."""
        games = sorted(self._running)
        running = pack_starts([[self._running[g]] for g in games])
        return {
            "queues": pack_starts(self._waiting),
            "running": pack({"games": games, "starts": running}),
        }

    def unpack(self, queues: bytes, running: bytes) -> None:
        """Go on from what `pack` returned."""
        self._waiting = unpack_starts(queues)
        fields = unpack(running)
        starts = unpack_starts(fields["starts"])
        self._running = {g: s[0] for g, s in zip(fields["games"], starts, strict=True)}
        for g in range(len(self._records)):
            self._stage(g)

    def _stage(self, g: int) -> None:
        record = self._records[g]
        if not self._waiting[g]:
            record["queued"] = 0
            return
        start = self._waiting[g][0]
        record["queued_seed"] = -1 if start.seed is None else start.seed
        if start.snapshot is None:
            record["queued"] = 1
            return
        record["queued"] = 2
        record["queued_pose"] = with_short_headings(start.snapshot["pose"])
        count = int(start.snapshot.get("n_obstacles", np.int64(0)))
        record["queued_n"] = count
        if count:
            self._obstacles[g, :count] = start.snapshot["obstacles"][:count]

    def _check(self, start: Start) -> None:
        if start.seed is not None and not 0 <= start.seed < SEED_LIMIT:
            raise ConfigError(
                f"Start '{start.label}' has seed {start.seed}; allowed: 0 to 2^63 - 1."
            )
        if start.snapshot is None:
            if start.seed is None:
                raise ConfigError(
                    f"Start '{start.label}' has neither a seed nor a snapshot; give it one of them."
                )
            return
        pose = start.snapshot.get("pose")
        if pose is None or np.shape(pose) != (2, 3) or not np.isfinite(pose).all():
            raise ConfigError(
                f"The snapshot of start '{start.label}' needs a finite `pose` of shape [2, 3]."
            )
        count = int(start.snapshot.get("n_obstacles", np.int64(0)))
        held = len(start.snapshot["obstacles"]) if "obstacles" in start.snapshot else 0
        room = self._obstacles.shape[1]
        if not 0 <= count <= min(held, room):
            raise ConfigError(
                f"The snapshot of start '{start.label}' says {count} obstacles and holds {held}; "
                f"allowed: what it holds, at most obstacle_capacity = {room}."
            )
