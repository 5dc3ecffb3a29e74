"""Threads that share work: all of it is done once, and only long work is shared."""

from __future__ import annotations

import threading
import time

import pytest

from holdfast import parallel
from holdfast.parallel import Threads


class Work:
    """Notes who did which rows; a call takes as long as it is told."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.done: list[int] = []
        self.by: set[int] = set()

    def __call__(self, lo: int, hi: int) -> None:
        time.sleep(self.seconds)
        self.done += range(lo, hi)
        self.by.add(threading.get_ident())

    def shared_by(self, threads: Threads) -> int:
        """Do ten rows; return how many threads took part."""
        self.done, self.by = [], set()
        threads.over(10, self)
        assert sorted(self.done) == list(range(10))
        return len(self.by)


def test_only_long_work_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "WORTH_S", 0.01)
    threads, work = Threads(3), Work()
    assert [work.shared_by(threads) for _ in range(3)] == [1, 1, 1]
    work.seconds = 0.02
    assert [work.shared_by(threads) for _ in range(3)] == [1, 3, 3]
    threads.close()


def test_short_work_in_between_does_not_keep_long_work_from_being_shared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parallel, "WORTH_S", 0.01)
    threads, by = Threads(2), list[set[int]]()
    for _ in range(3):
        by.append(set())

        def long(lo: int, hi: int) -> None:
            time.sleep(0.02)
            by[-1].add(threading.get_ident())

        threads.over(10, long)
        threads.over(10, lambda lo, hi: None)
    assert [len(ones) for ones in by] == [1, 2, 2]
    threads.close()


def test_what_a_thread_raises_is_raised() -> None:
    threads = Threads(2)

    def fail(lo: int, hi: int) -> None:
        if lo > 0:
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        threads.over(10, fail)
    threads.close()


def test_no_threads_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Threads(0)
