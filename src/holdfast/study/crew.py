"""Keeps a number of children at work: begins them, follows them, and stops all of them cleanly on a signal."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from types import FrameType

from holdfast.parallel import cores
from holdfast.signals import Listener
from holdfast.study.child import Child
from holdfast.study.show import Board

TICK_S = 0.2


def threads_each(jobs: int) -> int:
    """Return the learner threads of one of `jobs` children, so that together they use every core once."""
    return max(1, cores() // jobs)


class Stop(Listener):
    """Counts the signals that ask to stop; the work that is under way sees it and ends."""

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.number = 0

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self.number = self.number or number


class Crew:
    """Up to `jobs` children at a time."""

    def __init__(self, jobs: int, board: Board) -> None:
        self.jobs, self.board = jobs, board
        self.working: list[Child] = []

    def run(
        self,
        following: Callable[[], Child | None],
        watch: Callable[[Child], None],
        ended: Callable[[Child], None],
    ) -> int:
        """Work until `following` has no child left; return the signal that ended it early, or 0.

        `watch` is called for every child at every tick, after its records were read; `ended` once for each.
        """
        more = True
        passed_on = 0
        with Stop() as stop:
            try:
                while self.working or (more and not stop.count):
                    while more and not stop.count and len(self.working) < self.jobs:
                        child = following()
                        more = child is not None
                        if child is not None:
                            self._begin(child)
                    if stop.count > passed_on:
                        passed_on = stop.count
                        self._stop(stop)
                    self._look(watch, ended)
                    self.board.draw(self.working)
                    if self.working:
                        time.sleep(TICK_S)
            finally:
                self._abandon()
            return stop.number

    def _begin(self, child: Child) -> None:
        child.begin()
        self.working.append(child)
        if child.state == "elsewhere":
            self.board.say(f"{child.name}: another process trains it; it is waited for")
        else:
            self.board.began(child)

    def _look(self, watch: Callable[[Child], None], ended: Callable[[Child], None]) -> None:
        for child in list(self.working):
            over = child.ended()
            child.followed.read()
            watch(child)
            if over:
                self.working.remove(child)
                ended(child)

    def _stop(self, stop: Stop) -> None:
        name = signal.Signals(stop.number).name
        if stop.count == 1:
            self.board.say(f"{name}: the runs finish their update and save; once more: at once")
        for child in self.working:
            child.stop()

    def _abandon(self) -> None:
        """After an error here: let no child train on unseen."""
        for child in self.working:
            child.stop()
        for child in self.working:
            if child.process is not None:
                child.process.wait()
