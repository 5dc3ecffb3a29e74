"""Threads that help with inference: awake for a moment after each call, asleep otherwise.

The caller posts a job and works on it at once; helpers take parts of it as they come. A part belongs to whoever
takes it off the counter, so a helper that wakes late finds nothing left, and nobody waits for it.

    post       write the job, set the counter, see who sleeps
    (Python)   wake those
    work_on    the caller: take parts until none is left, wait until all are done
               a helper: take parts; after a while without any, mark oneself asleep and return

A row is computed from that row alone, so who does it never changes a result.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.jit import kernel
from holdfast.learn.fused_act import (
    ACTIONS,
    JOB,
    LOG_PROBS,
    MODE,
    NOISE,
    OBS,
    PART,
    ROWS,
    VALUES_OUT,
    act_rows,
)
from holdfast.learn.fused_simd import address
from holdfast.learn.fused_sync import (
    add,
    exchange,
    patience,
    pause,
    read,
    replace,
    rest,
    yield_core,
)

# Places in the int64 array that caller and helpers share; each has a cache line of its own.
COUNTER, DONE, STOP, WHAT, ASLEEP, LINE = 0, 8, 16, 24, 32, 8
PATIENCE = STOP + 1
_LEFT = (1 << 32) - 1
"""The counter's lower half: parts left. The upper half counts jobs, so that no two look alike."""
_SPINS, _YIELDS = 500, 500
"""How long a helper stays awake: about 10 us spinning, then some 200 us in which anyone else goes first."""


@kernel
def post(table, helpers, mode, part, obs, noise, actions, log_probs, values):
    """Write a job; return which helpers to wake, as bits: they are taken to be awake from now on."""
    job = table[WHAT : WHAT + JOB]
    job[MODE], job[ROWS], job[PART] = mode, obs.shape[0], part
    job[OBS], job[NOISE], job[ACTIONS] = address(obs), address(noise), address(actions)
    job[LOG_PROBS], job[VALUES_OUT] = address(log_probs), address(values)
    at = address(table)
    table[DONE] = 0
    parts = (obs.shape[0] + part - 1) // part
    exchange(at + 8 * COUNTER, ((read(at + 8 * COUNTER) >> 32) + 1 << 32) | parts)
    asleep = 0
    for k in range(helpers if parts > 1 else 0):
        asleep |= exchange(at + 8 * (ASLEEP + LINE * k), 0) << k
    return asleep


@kernel
def _take(worker, table, plans, layers, segments, packed, work):
    """Do one part of the job; return whether there was one."""
    at = address(table)
    while True:
        counter = read(at + 8 * COUNTER)
        if counter & _LEFT == 0:
            return False
        if replace(at + 8 * COUNTER, counter, counter - 1):
            break
    # The job stands until all of its parts are done, and this one is not.
    job = table[WHAT : WHAT + JOB]
    lo = ((counter & _LEFT) - 1) * job[PART]
    hi = min(lo + job[PART], job[ROWS])
    act_rows(worker, lo, hi, job, plans, layers, segments, packed, work)
    add(at + 8 * DONE, 1)
    return True


@kernel
def work_on(worker, table, plans, layers, segments, packed, work):
    """Take parts of the job; return when all are done (the caller, worker 0) or none came for a while (a helper)."""
    at = address(table)
    asleep = at + 8 * (ASLEEP + LINE * (worker - 1))
    idle, spins = 0, table[PATIENCE]
    while True:
        if _take(worker, table, plans, layers, segments, packed, work):
            idle = 0
            continue
        idle += 1
        if worker == 0:
            if read(at + 8 * DONE) * table[WHAT + PART] >= table[WHAT + ROWS]:
                return
            rest(idle, spins)
        elif idle < _SPINS:
            pause()
        elif idle < _SPINS + _YIELDS:
            yield_core()
        else:
            exchange(asleep, 1)
            # A job that was posted before this mark wakes nobody: look once more. One posted after it sees the mark.
            if add(at + 8 * COUNTER, 0) & _LEFT == 0 or exchange(asleep, 0) == 0:
                return
            idle = 0


class Crew:
    """The helpers of one network in one process."""

    def __init__(self, helpers: int, buffers: tuple[Any, ...]) -> None:
        self.helpers = helpers
        self.owner = os.getpid()
        self.table: npt.NDArray[np.int64] = np.zeros(ASLEEP + LINE * max(helpers, 1), np.int64)
        self.table[ASLEEP::LINE] = 1
        self.table[PATIENCE] = patience(1 + helpers)
        self._shared = (self.table, *buffers)
        self._locks = [threading.Lock() for _ in range(helpers)]
        for k, lock in enumerate(self._locks):
            lock.acquire()
            threading.Thread(
                target=_help,
                args=(k + 1, lock, self._shared),
                name=f"holdfast-act-{k}",
                daemon=True,
            ).start()
        weakref.finalize(self, _dismiss, self.table, self._locks)

    def act(self, mode: int, part: int, *arrays: Any) -> None:
        """Do one job; `arrays` as `post` takes them, contiguous and of four-byte elements."""
        asleep = post(self.table, self.helpers, mode, part, *arrays)
        for k, lock in enumerate(self._locks):
            if asleep >> k & 1:
                lock.release()
        work_on(0, *self._shared)


def _help(worker: int, lock: threading.Lock, shared: tuple[Any, ...]) -> None:
    """A helper's life; it knows the buffers and not the crew, so that the crew can end."""
    while True:
        lock.acquire()
        if shared[0][STOP]:
            return
        work_on(worker, *shared)


def _dismiss(table: npt.NDArray[np.int64], locks: list[threading.Lock]) -> None:
    table[STOP] = 1
    for lock in locks:
        if lock.locked():
            lock.release()
