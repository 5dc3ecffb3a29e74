"""Games in this process: one after the other (`serial`), or in threads.

A game that raises is made anew. A game that hangs cannot be stopped here: in `threads` the run stops with
its stack, in `serial` a watcher reports it. Environments that may hang belong into worker processes.
"""

from __future__ import annotations

import os
import queue
import sys
import tempfile
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.errors import EnvironmentFault
from holdfast.worlds.events import Events
from holdfast.worlds.pool_board import (
    IDLE,
    PHASES,
    STEP,
    Board,
    Layout,
    Post,
    post_fields,
    size_of,
)
from holdfast.worlds.pool_faults import Fault, Ledger
from holdfast.worlds.pool_games import Game
from holdfast.worlds.pool_options import ForeignOptions, Mode, ranges
from holdfast.worlds.pool_player import GameError, Player

LOOK_EVERY_S = 0.1


class LocalBackend:
    """Players in the calling thread, or one a thread."""

    def __init__(
        self,
        make: Callable[[], Game],
        options: ForeignOptions,
        workers: int,
        ledger: Ledger,
        events: Events,
        threads: bool,
    ) -> None:
        self.mode: Mode = "threads" if threads else "serial"
        self.options, self.ledger, self.events = options, ledger, events
        self.post = Post.at(
            bytearray(size_of(post_fields(workers, options.games))), workers, options.games
        )
        spans = ranges(options.games, workers)
        self._players = [
            Player(make, self.post, k, span.start, len(span), options.max_steps, options.facts)
            for k, span in enumerate(spans)
        ]
        self._crew = Crew(self._players, self._late) if threads else None
        self._watch = None if threads else Watch(self, events)
        try:
            self._construct()
        except BaseException:
            self.close()
            raise

    def reset(self, games: Sequence[int]) -> list[Fault]:
        self.board.wanted[:] = False
        self.board.wanted[list(games)] = True
        return self._mend(self._all(lambda player: _gather(player, player.reset)))

    def step(self) -> list[Fault]:
        self.board.stage[:] = 0
        self.board.ended[:] = False
        return self._mend(self._all(lambda player: _gather(player, player.step)))

    def stacks(self) -> Mapping[str, str]:
        return {}

    def pids(self) -> list[int]:
        return []

    def close(self) -> None:
        if self._watch is not None:
            self._watch.stop()
        if self._crew is not None:
            self._crew.close(self.options.close_s, self._note_close)
            return
        for player in self._players:
            try:
                player.close()
            except GameError as error:
                self._note_close(error)

    def _construct(self) -> None:
        for player in self._players:
            for game in range(player.first, player.first + player.count):
                self._build(player, game, player.construct)
        self.board = Board.own(Layout.of(self.spec, self.options.games, len(self.options.facts)))
        for player in self._players:
            player.sit(self.board)

    def _build(self, player: Player, game: int, build: Callable[[int], Any]) -> None:
        """Make one game, again and again while the ledger allows it."""
        while True:
            self.events.begin(game, "construct")
            try:
                if self._crew is None:
                    made = build(game)
                else:
                    made = self._crew.one(player.worker, lambda: build(game))
            except GameError as error:
                self.ledger.refuse(error)
                self.ledger.note(self._fault(error, game))
                continue
            self.events.ok(game, "construct", float(self.post.construct_s[game]))
            if made is not None:
                if not hasattr(self, "spec"):
                    self.spec = made
                self.ledger.check_spec(self.spec, made, game)
            return

    def _all(self, work: Callable[[Player], list[GameError]]) -> list[GameError]:
        if self._crew is None:
            return [error for player in self._players for error in work(player)]
        found = self._crew.all(work)
        return sorted((e for errors in found for e in errors), key=lambda e: e.game)

    def _mend(self, errors: list[GameError]) -> list[Fault]:
        faults = []
        for error in errors:
            game = error.game
            self.ledger.refuse(error, *self._place(game))
            fault = self._fault(error, game)
            self.ledger.note(fault)
            player = next(p for p in self._players if game in range(p.first, p.first + p.count))
            self._build(player, game, player.rebuild)
            faults.append(fault)
        return faults

    def _place(self, game: int) -> tuple[int, int]:
        if not hasattr(self, "board"):
            return 0, 0
        return int(self.board.current[game]), int(self.board.steps[game])

    def _fault(self, error: GameError, game: int) -> Fault:
        seed, step = self._place(game)
        return Fault(
            slot=game,
            games=(game,),
            game=game,
            seed=seed,
            step=step,
            phase=error.phase,
            reason="raised",
            error_type=error.error_type,
            error_msg=error.text,
            pid=os.getpid(),
            stacks=error.trace,
        )

    def _late(self, worker: int, thread: threading.Thread) -> EnvironmentFault | None:
        """Return the error for a worker that is past its deadline."""
        self.look_for_slow(worker)
        late = self.overdue(worker)
        if late is None:
            return None
        return self.ledger.stop(
            late,
            "A thread cannot be stopped from outside: use --mode process, whose workers are replaced.",
            stack_of(thread),
        )

    def look_for_slow(self, worker: int) -> None:
        """Count the step that the worker is in, if it is slow by now."""
        if int(self.post.phase[worker]) == STEP:
            self.events.still_in_step(int(self.post.game[worker]), float(self.post.since[worker]))

    def overdue(self, worker: int) -> Fault | None:
        """Return a fault if the worker is past its deadline."""
        phase = int(self.post.phase[worker])
        spent = time.monotonic() - float(self.post.since[worker])
        if phase == IDLE or spent <= self.options.limit(phase):
            return None
        game = int(self.post.game[worker])
        seed, step = self._place(game)
        return Fault(
            slot=worker,
            games=(game,),
            game=game,
            seed=seed,
            step=step,
            phase=PHASES[phase],
            reason="hung",
            error_type="Hang",
            error_msg=f"hung for {spent:.1f} s (limit {self.options.limit(phase):g} s)",
            pid=os.getpid(),
            duration_s=spent,
        )

    def _note_close(self, error: GameError) -> None:
        self.events.error(error.game, "close", error.error_type, error.text)
        self.events.warn(f"An environment could not be closed: {error.text} (game {error.game}).")


def _gather(player: Player, play: Callable[[int], None]) -> list[GameError]:
    """Play all games of a player; go on with the next game when one raises."""
    errors: list[GameError] = []
    begin = 0
    while True:
        try:
            play(begin)
            return errors
        except GameError as error:
            errors.append(error)
            if error.kind != "raised":
                return errors
            begin = error.game - player.first + 1


def stack_of(thread: threading.Thread) -> str:
    """Return the Python stack of a thread."""
    frame = sys._current_frames().get(thread.ident or 0)
    return "".join(traceback.format_stack(frame)) if frame is not None else ""


class Crew:
    """One daemon thread a player; a thread that hangs is left behind."""

    def __init__(
        self,
        players: list[Player],
        late: Callable[[int, threading.Thread], EnvironmentFault | None],
    ) -> None:
        self._players, self._late = players, late
        self._orders: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in players]
        self._done: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._lost: set[int] = set()
        self._threads = [
            threading.Thread(target=self._serve, args=(k,), name=f"holdfast-env-{k}", daemon=True)
            for k in range(len(players))
        ]
        for thread in self._threads:
            thread.start()

    def all(self, work: Callable[[Player], Any]) -> list[Any]:
        """Let every player work at the same time; return the results in order."""
        for k, player in enumerate(self._players):
            self._orders[k].put(lambda player=player: work(player))
        return self._collect(range(len(self._players)))

    def one(self, worker: int, work: Callable[[], Any]) -> Any:
        """Let one thread work."""
        self._orders[worker].put(work)
        return self._collect([worker])[0]

    def close(self, seconds: float, failed: Callable[[GameError], None]) -> None:
        """Close every game in its own thread and end the threads; wait no longer than `seconds`."""
        for k, player in enumerate(self._players):
            self._orders[k].put(player.close)
            self._orders[k].put(None)
        end = time.monotonic() + min(seconds, 1.0)
        waiting = set(range(len(self._players))) - self._lost
        while waiting and time.monotonic() < end:
            try:
                worker, result = self._done.get(timeout=0.05)
            except queue.Empty:
                continue
            waiting.discard(worker)
            if isinstance(result, GameError):
                failed(result)
        for k in waiting:
            game = int(self._players[k].post.game[k])
            failed(GameError("hung", game, "close", "Hang", f"hung for {seconds:g} s", ""))

    def _collect(self, workers: Sequence[int]) -> list[Any]:
        waiting, results = set(workers), {}
        while waiting:
            try:
                worker, result = self._done.get(timeout=LOOK_EVERY_S)
            except queue.Empty:
                for k in waiting:
                    late = self._late(k, self._threads[k])
                    if late is not None:
                        self._lost |= waiting
                        raise late from None
                continue
            waiting.discard(worker)
            results[worker] = result
        for k in workers:
            if isinstance(results[k], BaseException):
                raise results[k]
        return [results[k] for k in workers]

    def _serve(self, k: int) -> None:
        while (work := self._orders[k].get()) is not None:
            try:
                result: Any = work()
            except BaseException as error:  # handed to the thread that waits, and raised there
                result = error
            self._done.put((k, result))


class Watch:
    """Reports, once, a game that hangs in the calling thread."""

    def __init__(self, backend: LocalBackend, events: Events) -> None:
        self._stop = threading.Event()
        owner = threading.current_thread()
        arguments = (weakref.ref(backend), events, owner, self._stop)
        threading.Thread(
            target=_watch, args=arguments, name="holdfast-env-watch", daemon=True
        ).start()

    def stop(self) -> None:
        """End the watcher."""
        self._stop.set()


def _watch(
    ref: weakref.ref[LocalBackend],
    events: Events,
    owner: threading.Thread,
    stop: threading.Event,
) -> None:
    reported = 0.0
    while not stop.wait(LOOK_EVERY_S):
        backend = ref()
        if backend is None:
            return
        backend.look_for_slow(0)
        fault, since = backend.overdue(0), float(backend.post.since[0])
        if fault is not None and since != reported:
            reported = since
            handle, path = tempfile.mkstemp(prefix="holdfast-hang-", suffix=".txt")
            with os.fdopen(handle, "w") as file:
                file.write(f"{fault}\n\n{stack_of(owner)}")
            events.error(
                fault.game, fault.phase, "Hang", fault.error_msg, fault.duration_s, stacks=path
            )
            events.warn(
                f"An environment {fault}; its stack is in {path}. It runs in the training process and "
                "cannot be stopped from outside: --mode process replaces what hangs."
            )
        del backend
