"""Plays a range of games on a board: the one piece of code that touches environments, in every mode."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable
from math import isfinite
from time import monotonic
from typing import Any

import numpy as np

from holdfast.errors import ConfigError
from holdfast.records import Array
from holdfast.worlds.pool_board import CLOSE, CONSTRUCT, IDLE, RESET, STEP, Board, Post
from holdfast.worlds.pool_games import Game, GameSpec, spec_of, where

FAILURES = (Exception, SystemExit)
"""What a foreign environment may raise: it is named and raised again as a `GameError`. One that calls `sys.exit` has
failed like any other; the run goes on."""


class GameError(Exception):
    """A game raised, or broke the contract; plain values only, so that it can cross a pipe."""

    def __init__(self, kind: str, game: int, phase: str, error_type: str, text: str, trace: str):
        super().__init__(text)
        self.kind, self.game, self.phase = kind, game, phase
        self.error_type, self.text, self.trace = error_type, text, trace

    def __reduce__(self) -> Any:
        return GameError, (
            self.kind,
            self.game,
            self.phase,
            self.error_type,
            self.text,
            self.trace,
        )


class Player:
    """Owns games `first, first+1, ...` of a world and plays them one after the other."""

    def __init__(
        self,
        make: Callable[[], Game],
        post: Post,
        worker: int,
        first: int,
        count: int,
        max_steps: int,
        facts: tuple[str, ...] = (),
    ) -> None:
        self.make, self.post, self.worker = make, post, worker
        self.first, self.count, self.max_steps = first, count, max_steps
        self.facts = facts
        self.games: list[Game] = []
        self.board: Board
        self._game: Any = post.game.data
        self._since: Any = post.since.data
        self._phase: Any = post.phase.data
        self._flat: dict[str, Any] = {}
        self._shape: tuple[int, ...] = ()
        self._dtype: Any = None
        """Type of the last observation; it is looked at again when it changes."""
        self._wide = False
        """Whether it holds numbers that may be beyond those of float32."""
        self._awaited: set[int] = set()
        """Slots that were not in when their episode began; they are masked until they appear."""

    def sit(self, board: Board) -> None:
        """Play on this board."""
        self.board, self._shape = board, board.layout.obs_shape
        names = "steps mask stage cut rewards terminations truncations".split()
        self._flat = {name: getattr(board, name).data for name in names}

    def construct(self, game: int) -> GameSpec:
        """Make (or make anew) one game and return its spec."""
        began = self._enter(CONSTRUCT, game)
        try:
            made = self.make()
        except ConfigError as error:
            raise GameError("config", game, "construct", "ConfigError", str(error), "") from error
        except FAILURES as error:
            raise self._raised(game, "construct", error) from error
        place = game - self.first
        self.games[place : place + 1] = [made]
        self.post.construct_s[game] = monotonic() - began
        self.leave()
        return spec_of(made)

    def rebuild(self, game: int) -> None:
        """Replace one game by a new one; what the old one says when it is closed does not matter."""
        with contextlib.suppress(*FAILURES):
            self.games[game - self.first].close()
        self.construct(game)

    def reset(self, begin: int = 0) -> None:
        """Begin an episode in every wanted game, from the `begin`-th on."""
        wanted = self.board.wanted
        for game in range(self.first + begin, self.first + self.count):
            if wanted[game]:
                self._begin(game)
        self.leave()

    def step(self, begin: int = 0) -> None:
        """Step every game once from the `begin`-th on; begin a new episode where one ended."""
        board, size, games = self.board, self.board.layout.slots_per_game, self.games
        new, old, actions, max_steps = board.obs, board.seen, board.actions, self.max_steps
        # Single values are read and written through memoryviews: NumPy takes three times as long.
        flat = self._flat
        steps, mask, stage, cuts = flat["steps"], flat["mask"], flat["stage"], flat["cut"]
        rewards, terminations = flat["rewards"], flat["terminations"]
        truncations, check, awaited = flat["truncations"], self._array, self._awaited
        for place in range(begin, self.count):
            game = self.first + place
            low = game * size
            self._enter(STEP, game)
            length = steps[game] + 1
            steps[game] = length
            try:
                rows, gained, over, cut, ended = games[place].step(actions[low : low + size])
            except FAILURES as error:
                raise self._raised(game, "step", error) from error
            late = cuts[game] or 0 < max_steps <= length
            left = False
            for k, row in enumerate(rows):
                slot = low + k
                if not mask[slot]:
                    rewards[slot], terminations[slot], truncations[slot] = 0.0, False, False
                    new[slot] = old[slot]
                    if slot in awaited and row is not None:
                        new[slot] = check(row, game, k, "step")
                        mask[slot] = left = True
                        awaited.discard(slot)
                    continue
                reward, dead = gained[k], over[k]
                if not isfinite(reward):
                    raise self._broken(
                        game, f"returned the reward {gained}, which is not finite", "step"
                    )
                rewards[slot] = reward
                terminations[slot] = dead
                truncations[slot] = not dead and (cut[k] or late or ended)
                new[slot] = old[slot] if row is None else check(row, game, k, "step")
                still = not (dead or cut[k])
                mask[slot] = still
                left = left or still
            stage[game] = 1
            if ended or late or not left:
                board.lengths[game] = length
                board.final[low : low + size] = new[low : low + size]
                for k, name in enumerate(self.facts):
                    board.facts[game, k], board.truths[game, k] = games[place].told(name)
                self._check_finite(board.final, game, "step")
                board.ended[game] = True
                self._begin(game)
                stage[game] = 2
        low, high = self.first * size, (self.first + self.count) * size
        # One look at all rows is much cheaper than one a row; an end was looked at above.
        if not np.isfinite(new[low:high]).all():
            for game in range(self.first, self.first + self.count):
                self._check_finite(new, game, "step")
        self.leave()

    def close(self) -> None:
        """Close every game; go on with the next when one raises, then raise the first error."""
        failed: GameError | None = None
        for place, made in enumerate(self.games):
            self._enter(CLOSE, self.first + place)
            try:
                made.close()
            except FAILURES as error:  # raised when the others are closed
                failed = failed or self._raised(self.first + place, "close", error)
        self.games = []
        self.leave()
        if failed is not None:
            raise failed

    def leave(self) -> None:
        """Say that nothing is going on."""
        self._phase[self.worker] = IDLE

    def _enter(self, phase: int, game: int) -> float:
        now = monotonic()
        worker = self.worker
        self._game[worker], self._since[worker], self._phase[worker] = game, now, phase
        return now

    def _begin(self, game: int) -> None:
        board = self.board
        began = self._enter(RESET, game)
        seed = int(board.seeds[game])
        board.current[game], board.steps[game] = seed, 0
        try:
            rows = self.games[game - self.first].reset(seed)
        except FAILURES as error:
            raise self._raised(game, "reset", error) from error
        slots, obs = board.slots(game), board.obs
        if all(row is None for row in rows):
            raise self._broken(game, "returned no observation", "reset")
        for k, row in enumerate(rows):
            slot = slots.start + k
            there = row is not None
            obs[slot] = self._array(row, game, k, "reset") if there else 0
            board.mask[slot] = there
            (self._awaited.discard if there else self._awaited.add)(slot)
        self._check_finite(obs, game, "reset")
        self.post.reset_s[game] = monotonic() - began

    def _array(self, row: Any, game: int, k: int, phase: str) -> Array:
        array = row if type(row) is np.ndarray else np.asarray(row)
        if array.shape != self._shape:
            raise self._broken(
                game,
                f"returned an observation of shape {array.shape} for slot {k}, not {self._shape}",
                phase,
            )
        if array.dtype is not self._dtype:
            pictures = self.board.both.dtype == np.uint8
            if array.dtype.kind not in "fiub" or (pictures and array.dtype != np.uint8):
                raise self._broken(
                    game, f"returned an observation of type {array.dtype} for slot {k}", phase
                )
            self._dtype = array.dtype
            self._wide = array.dtype.kind == "f" and array.dtype.itemsize > 4
        if self._wide:
            with np.errstate(over="ignore"):  # it becomes infinity, which is looked for
                return array.astype(np.float32)
        return array

    def _check_finite(self, rows: Array, game: int, phase: str) -> None:
        slots = self.board.slots(game)
        for slot in range(slots.start, slots.stop):
            if not np.isfinite(rows[slot]).all():
                raise self._broken(game, _unsound(rows[slot], slot - slots.start), phase)

    def _raised(self, game: int, phase: str, error: BaseException) -> GameError:
        if phase == "step":
            slots = self.board.slots(game)
            self.board.obs[slots] = self.board.seen[slots]
        unfit = isinstance(error, ConfigError)
        kind, text = ("config", str(error)) if unfit else ("raised", where(error))
        trace = "".join(traceback.format_exception(error))
        self.leave()
        return GameError(kind, game, phase, type(error).__name__, text, trace)

    def _broken(self, game: int, what: str, phase: str) -> GameError:
        self.leave()
        return GameError("contract", game, phase, "ContractViolation", what, "")


def _unsound(row: Array, k: int) -> str:
    place = tuple(int(i) for i in np.argwhere(~np.isfinite(row))[0])
    found, at = row[place], ", ".join(map(str, place))
    beyond = f" (float32 holds nothing beyond {np.finfo(np.float32).max:.1e})"
    return (
        f"returned an observation with NaN or infinity for slot {k}: {found} at [{at}]"
        f"{beyond if np.isinf(found) else ''}"
    )
