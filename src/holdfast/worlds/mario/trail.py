"""The last moments of every game, kept so that a death can be begun again a few seconds before it.

Every `every` steps the console of a game is copied into a ring of `count` places. When Mario dies of an enemy or in a
pit, the newest moment that lies at least `every` steps back becomes a `Start` of the type `tail`, whose id is the place
of the death: the tail ledger knows by it where it keeps happening.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from holdfast.records import Array, Start
from holdfast.worlds.mario import books as b
from holdfast.worlds.mario.machine import Bank, Bytes, Longs


class Trail:
    """A ring of moments for each game; rows `[N, count, ...]`."""

    def __init__(self, bank: Bank, greys: Bytes, count: int, every: int) -> None:
        # The newest moment is often too young: the one before it must still be there.
        count = max(count, 2) if count else 0
        self.count, self.every = count, every
        games = len(bank.ram)
        self._live: dict[str, Array] = dict(bank._asdict())
        if len(greys):
            self._live["frame"] = greys
        self._rows = {
            name: np.zeros((games, count, *rows.shape[1:]), rows.dtype)
            for name, rows in self._live.items()
        }
        self._best = np.zeros((games, count, b.AREAS), np.int64)
        self._steps = np.full((games, count), -1, np.int64)
        """Step of its episode at which each moment was kept; -1: there is none."""

    def keep(self, counts: Longs, area_best: Longs) -> None:
        """Copy the games whose time it is."""
        if self.count == 0:
            return
        steps = counts[:, b.STEPS]
        games = np.flatnonzero((steps % self.every == 0) & (steps > 0))
        if not len(games):
            return
        places = steps[games] // self.every % self.count
        for name, rows in self._live.items():
            self._rows[name][games, places] = rows[games]
        self._best[games, places] = area_best[games]
        self._steps[games, places] = steps[games]

    def forget(self, games: Sequence[int]) -> None:
        """Drop the moments of games that begin anew."""
        self._steps[games] = -1

    def before(self, game: int, steps: int, place: str) -> Start | None:
        """Return a start at least `every` steps before step `steps`, or None if there is no such moment."""
        old = np.where(self._steps[game] <= steps - self.every, self._steps[game], -1)
        if self.count == 0 or old.max() < 0:
            return None
        k = int(old.argmax())
        snapshot = {name: rows[game, k].copy() for name, rows in self._rows.items()}
        snapshot["area_best"] = self._best[game, k].copy()
        lead = steps - int(old[k])
        return Start(
            snapshot=snapshot,
            label=place.partition(":")[0],
            type="tail",
            origin=f"{lead} steps before the death at {place}",
            id=place,
        )

    def arrays(self) -> dict[str, Array]:
        """Return the arrays themselves, by name."""
        return {**self._rows, "area_best": self._best, "steps": self._steps}

    def state(self) -> dict[str, Array]:
        """Return copies of the arrays."""
        return {name: rows.copy() for name, rows in self.arrays().items()}
