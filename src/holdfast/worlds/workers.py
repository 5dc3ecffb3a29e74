"""Worker processes for environments that may hang, crash or be slow.

Each worker owns several games. Actions, observations and results lie in memory that all map; an order and
its answer are one byte each over a socket, so nothing is pickled in a step and nobody spins. The parent
waits for answers, for the end of processes (their sentinels) and for deadlines at once. A worker that
raises, leaves, is killed or is late is reported with its game, seed, step, phase, exit code and Python
stacks, ended (SIGTERM, a second, SIGKILL) and replaced by one with the same games.

    parent                        worker k (games first .. first+count-1)
    ------ s / r / c  ---------->    step / reset / close
    <-----     .      -----------    done, results are on the board
    <-----     m      -----------    a message waits in the pipe (only while it constructs)
    <-----     !      -----------    an error waits in the pipe, the worker leaves
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from multiprocessing import util
from typing import Any

from holdfast.worlds.events import Events
from holdfast.worlds.pool_board import (
    BOOT,
    CLOSE,
    IDLE,
    PHASES,
    RESET,
    STEP,
    Board,
    Layout,
    Post,
    post_fields,
    size_of,
)
from holdfast.worlds.pool_faults import Fault, Ledger, death
from holdfast.worlds.pool_games import GameSpec
from holdfast.worlds.pool_options import ForeignOptions, Mode, ranges
from holdfast.worlds.pool_player import GameError
from holdfast.worlds.pool_process import (
    Worker,
    exists,
    launch,
    let_go,
    messages,
    nameless_file,
    portable_entry,
    read_stacks,
    reap,
    send,
    settled,
    show_stacks,
    still_there,
    stop_worker,
)
from holdfast.worlds.pool_worker import STACK_SIGNAL, Assignment

LOOK_MS = 100
"""Milliseconds between two looks at the deadlines."""


class ProcessBackend:
    """Games in worker processes."""

    def __init__(
        self,
        name: str,
        options: ForeignOptions,
        workers: int,
        ledger: Ledger,
        events: Events,
    ) -> None:
        self.mode: Mode = "process"
        self.name, self.options, self.ledger, self.events = name, options, ledger, events
        self._entry = portable_entry(name)
        self._spans = ranges(options.games, workers)
        self._memory = nameless_file()
        self._post_size = size_of(post_fields(workers, options.games))
        os.ftruncate(self._memory, self._post_size)
        self.post = Post.at(mmap.mmap(self._memory, self._post_size), workers, options.games)
        self._life, self._alive = os.pipe()
        self._poll = select.poll()
        self._owner: dict[int, int] = {}
        self._team: dict[int, Worker] = {}
        self._refused: list[GameError] = []
        self._closed = False
        self.exitcodes: list[int | None] = []
        """How the workers ended that were there at the end."""
        self.spec: GameSpec
        self.board: Board
        # Also when nobody closes the world: at exit, or when it is collected.
        self._reaper = util.Finalize(
            self,
            reap,
            args=(self._team, [self._memory, self._life, self._alive]),
            exitpriority=100,
        )
        try:
            self._bring_up(range(workers))
        except BaseException:
            self._reaper()
            raise

    def reset(self, games: Sequence[int]) -> list[Fault]:
        self.board.wanted[:] = False
        self.board.wanted[list(games)] = True
        told = [k for k, span in enumerate(self._spans) if any(g in span for g in games)]
        return self._order(told, b"r", RESET)

    def step(self) -> list[Fault]:
        self.board.stage[:] = 0
        self.board.ended[:] = False
        return self._order(range(len(self._spans)), b"s", STEP)

    def stacks(self) -> Mapping[str, str]:
        # One that has not come to its first environment yet would die of the signal.
        ready = [w for w in list(self._team.values()) if int(self.post.phase[w.index]) != BOOT]
        return show_stacks(ready)

    def pids(self) -> list[int]:
        # Another thread may ask; `is_alive` would take the exit code away from the one that waits for it.
        return [w.pid for w in list(self._team.values()) if exists(w.pid)]

    def close(self) -> None:
        """Let the workers close their games; after at most a second the rest is killed."""
        if self._closed:
            return
        self._closed = True
        for worker in self._team.values():
            worker.order, worker.sent = CLOSE, time.monotonic()
            with contextlib.suppress(OSError):
                os.write(worker.orders, b"c")
        late = still_there(self._team.values(), 0.7 * min(1.0, self.options.close_s))
        for worker in late:
            send(worker.pid, STACK_SIGNAL, signal.SIGCONT)
        if late:
            time.sleep(0.05)
        for worker in late:
            fault = self._fault(worker, "hung", "Hang", "did not close in time", CLOSE)
            self._note_close(fault.game, fault.error_type, fault.error_msg, fault.stacks)
            send(worker.pid, signal.SIGTERM)
        still_there(late, 0.1)
        for worker in self._team.values():
            if worker.process.is_alive():
                send(worker.pid, signal.SIGKILL)
            worker.process.join(0.5)
            self.exitcodes.append(worker.process.exitcode)
            for message in messages(worker.talk):
                if isinstance(message, GameError):
                    self._note_close(message.game, message.error_type, message.text, message.trace)
        self._reaper()

    def _note_close(self, game: int, kind: str, text: str, stacks: str) -> None:
        self.events.error(game, "close", kind, text, stacks=stacks)
        self.events.warn(f"The environment {self.name} could not be closed: {text} (game {game}).")

    def _order(self, told: Iterable[int], byte: bytes, phase: int) -> list[Fault]:
        """Give an order and wait; replace the workers that failed and return their faults."""
        faults, waiting = [], set()
        now = time.monotonic()
        for k in told:
            worker = self._team[k]
            worker.order, worker.sent = phase, now
            try:
                os.write(worker.orders, byte)
                waiting.add(k)
            except OSError:
                faults.append(self._died(worker))
        faults += self._wait(waiting)
        self._refuse()
        if faults:
            for fault in faults:
                self.ledger.note(fault)
            self._bring_up([fault.slot for fault in faults])
        return faults

    def _wait(self, waiting: set[int]) -> list[Fault]:
        """Return when each of these workers has answered, died, or missed its deadline."""
        faults: list[Fault] = []
        look = time.monotonic() + LOOK_MS / 1000
        while waiting:
            for fd, _ in self._poll.poll(LOOK_MS):
                k = self._owner.get(fd)
                if k is None:
                    continue
                worker = self._team[k]
                if k not in waiting:
                    # It has died after its answer; the next order will tell.
                    self._forget(worker)
                elif (found := self._listen(worker, fd)) is not None:
                    waiting.discard(k)
                    if isinstance(found, Fault):
                        faults.append(found)
            now = time.monotonic()
            if now < look:
                continue
            look = now + LOOK_MS / 1000
            for k in sorted(waiting):
                if int(self.post.phase[k]) == STEP:
                    since = max(self._team[k].sent, float(self.post.since[k]))
                    self.events.still_in_step(int(self.post.game[k]), since, self.stacks)
                late = self._overdue(self._team[k], now)
                if late is not None:
                    waiting.discard(k)
                    faults.append(late)
        return faults

    def _listen(self, worker: Worker, fd: int) -> Fault | bool | None:
        """Return True if the worker is done, its fault if it has failed, None if it goes on."""
        try:
            said = os.read(worker.orders, 64) if fd == worker.orders else b""
        except OSError:
            said = b""
        # An `m` whose message was read before it came may stand before the answer.
        if said.endswith(b"."):
            return True
        for message in messages(worker.talk):
            if isinstance(message, GameError):
                return self._failed(worker, message)
            if self._hear(worker, message):
                return True
        return None if said else self._died(worker)

    def _hear(self, worker: Worker, message: Any) -> bool:
        """Take note of what a worker says while it constructs; True means that it is ready."""
        word = message[0]
        if word == "begin":
            self.events.begin(message[1], "construct", worker.pid)
        elif word == "ok":
            self.events.ok(message[1], "construct", message[2], worker.pid)
        elif word == "spec":
            if not hasattr(self, "spec"):
                self.spec = message[2]
            self.ledger.check_spec(self.spec, message[2], message[1])
        return bool(word == "ready")

    def _failed(self, worker: Worker, error: GameError) -> Fault:
        if error.kind != "raised":
            self._refused.append(error)
        worker.process.join(1.0)
        self._forget(worker)
        stop_worker(worker)
        return self._fault(
            worker, "raised", error.error_type, error.text, phase=error.phase, stacks=error.trace
        )

    def _refuse(self) -> None:
        """Raise for what no restart can mend; of several games the first, as in the other modes."""
        if self._refused:
            error = min(self._refused, key=lambda e: e.game)
            self._refused.clear()
            self.ledger.refuse(error, *self._place(error.game))

    def _died(self, worker: Worker) -> Fault:
        worker.process.join(1.0)
        self._forget(worker)
        stop_worker(worker)
        return self._fault(worker, *death(worker.process.exitcode))

    def _overdue(self, worker: Worker, now: float) -> Fault | None:
        phase = int(self.post.phase[worker.index]) or worker.order
        since = max(worker.sent, float(self.post.since[worker.index]))
        limit = self.options.limit(phase)
        if now - since <= limit:
            return None
        # A stopped process must go on to show its stack.
        send(worker.pid, STACK_SIGNAL, signal.SIGCONT)
        settled(worker)
        text = f"hung for {now - since:.1f} s (limit {limit:g} s)"
        fault = self._fault(worker, "hung", "Hang", text, phase, spent=now - since)
        self._forget(worker)
        stop_worker(worker)
        return fault

    def _fault(
        self,
        worker: Worker,
        reason: Any,
        error_type: str,
        text: str,
        phase: int | str | None = None,
        stacks: str = "",
        spent: float | None = None,
    ) -> Fault:
        k, span = worker.index, self._spans[worker.index]
        at = int(self.post.phase[k])
        busy = PHASES[at or worker.order] if phase is None else phase
        game = int(self.post.game[k]) if at not in (IDLE, BOOT) else span.start
        seed, step = self._place(game)
        if not stacks:
            stacks = read_stacks(worker)
        since = max(worker.sent, float(self.post.since[k]))
        return Fault(
            slot=k,
            games=tuple(span),
            game=game,
            seed=seed,
            step=step,
            phase=busy if isinstance(busy, str) else PHASES[busy],
            reason=reason,
            error_type=error_type,
            error_msg=text,
            pid=worker.pid,
            exitcode=worker.process.exitcode,
            duration_s=time.monotonic() - since if spent is None else spent,
            stacks=stacks,
        )

    def _place(self, game: int) -> tuple[int, int]:
        if not hasattr(self, "board"):
            return 0, 0
        return int(self.board.current[game]), int(self.board.steps[game])

    def _bring_up(self, wanted: Iterable[int]) -> None:
        """Start these workers, a few at a time, until each has constructed its games."""
        pending, busy, ready = deque(wanted), set[int](), []
        while pending or busy:
            while pending and len(busy) < self.options.start_width:
                k = pending.popleft()
                self._start(k)
                busy.add(k)
            before = set(busy)
            faults = self._wait_one(busy)
            self._refuse()
            bad = {fault.slot for fault in faults}
            for fault in faults:
                self.ledger.note(fault)
                pending.append(fault.slot)
            ready += [k for k in before - busy if k not in bad]
        if not hasattr(self, "board"):
            self._lay_out()
        for k in ready:
            with contextlib.suppress(OSError):  # it has died since; the next order will tell
                self._team[k].talk.send(self.board.layout)

    def _wait_one(self, busy: set[int]) -> list[Fault]:
        """Return when at least one of these workers is ready or has failed; it is taken out of `busy`."""
        size = len(busy)
        while len(busy) == size:
            now = time.monotonic()
            found: list[Fault] = []
            for fd, _ in self._poll.poll(LOOK_MS):
                k = self._owner.get(fd)
                if k is None:
                    continue
                if k in busy:
                    if (heard := self._listen(self._team[k], fd)) is not None:
                        found += [heard] if isinstance(heard, Fault) else []
                        busy.discard(k)
                elif self._team[k].order != BOOT:
                    self._forget(self._team[k])
            late = [f for k in sorted(busy) if (f := self._overdue(self._team[k], now))]
            busy -= {fault.slot for fault in late}
            found += late
        return found

    def _lay_out(self) -> None:
        layout = Layout.of(self.spec, self.options.games, len(self.options.facts))
        total = self._post_size + size_of(layout.fields())
        os.ftruncate(self._memory, total)
        self.board = Board.at(mmap.mmap(self._memory, total), layout, self._post_size)

    def _start(self, k: int) -> None:
        old = self._team.get(k)
        if old is not None:
            self._forget(old)
            let_go(old)
        span = self._spans[k]
        main = threading.current_thread() is threading.main_thread()
        job = Assignment(
            name=self.name,
            entry=self._entry,
            kwargs=self.options.kwargs,
            worker=k,
            workers=len(self._spans),
            first=span.start,
            count=len(span),
            games=self.options.games,
            max_steps=self.options.max_steps,
            facts=self.options.facts,
            environ=dict(os.environ),
            follow=self.options.start == "forkserver" or main,
        )
        post = self.post
        post.game[k], post.since[k], post.phase[k] = span.start, time.monotonic(), BOOT
        worker = self._team[k] = launch(job, self.options.start, self._memory, self._life)
        for fd in (worker.orders, worker.process.sentinel):
            self._owner[fd] = k
            self._poll.register(fd, select.POLLIN)

    def _forget(self, worker: Worker) -> None:
        for fd in (worker.orders, worker.process.sentinel):
            if self._owner.pop(fd, None) is not None:
                self._poll.unregister(fd)
