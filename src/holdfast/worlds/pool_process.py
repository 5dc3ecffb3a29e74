"""Starting, signalling and ending worker processes, as the parent does it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import gymnasium as gym

from holdfast.errors import ConfigError
from holdfast.worlds.pool_board import BOOT
from holdfast.worlds.pool_worker import STACK_SIGNAL, Assignment, Handle, serve


@dataclass
class Worker:
    """One worker process as its parent sees it."""

    index: int
    process: BaseProcess
    orders: int
    talk: Connection
    stacks: int
    """File without a name for its Python stacks."""
    pid: int
    order: int = BOOT
    """The phase that it was last told to enter."""
    sent: float = 0.0
    """When (`time.monotonic`)."""
    shown: int = 0
    """Bytes of `stacks` that somebody has read already."""


def portable_entry(name: str) -> Any:
    """Return the registration of a Gymnasium id, for workers that have not imported its module."""
    entry = gym.registry.get(name)
    place = getattr(entry, "entry_point", None) if entry is not None else name
    if isinstance(place, str) and place.startswith("__main__:"):
        raise ConfigError(
            f"'{place}' lives in the script that was started, which worker processes do not run. "
            "Move it to a module of its own, or use --mode threads."
        )
    try:
        with _no_main():  # as a worker starts
            pickle.dumps(entry)
    except Exception as error:  # pickle raises whatever the object raises
        raise ConfigError(
            f"The registration of {name} cannot be sent to worker processes ({error}). Register it with "
            "an entry point 'module:Class', or use --mode threads."
        ) from None
    return entry


def launch(
    job: Assignment, start: str, memory: int, life: int, work: Callable[..., None] = serve
) -> Worker:
    """Start a worker process, whose life is `work`; `memory` and `life` are descriptors that all workers share."""
    ours, theirs = socket.socketpair()
    talk, far = multiprocessing.Pipe()
    stacks = nameless_file()
    process = _context(start).Process(
        target=work,
        args=(job, Handle(theirs.fileno()), far, Handle(memory), Handle(life), Handle(stacks)),
        name=f"holdfast-env-{job.worker}",
        daemon=True,
    )
    with _no_main():
        process.start()
    theirs.close()
    far.close()
    return Worker(
        index=job.worker,
        process=process,
        orders=ours.detach(),
        talk=talk,
        stacks=stacks,
        pid=process.pid or 0,
        sent=time.monotonic(),
    )


def _context(start: str) -> Any:
    context = multiprocessing.get_context(start)
    if start == "forkserver":
        context.set_forkserver_preload(["holdfast.worlds.pool_worker"])
    return context


@contextlib.contextmanager
def _no_main() -> Iterator[None]:
    """Hide the caller's script while a worker starts: multiprocessing would run it again in there."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def nameless_file() -> int:
    """Return memory that can be mapped by whoever gets the descriptor, and leaves nothing behind."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("holdfast-workers")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def messages(talk: Connection) -> Iterator[Any]:
    with contextlib.suppress(EOFError, OSError):
        while talk.poll():
            yield talk.recv()


def exists(pid: int) -> bool:
    """Return whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def send(pid: int, *signals: int) -> None:
    for number in signals:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def send_group(pid: int) -> None:
    """Kill what a dead worker has left in its session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def read_stacks(worker: Worker) -> str:
    """Return the Python stacks that a worker has shown since they were last read."""
    size = os.fstat(worker.stacks).st_size
    text = os.pread(worker.stacks, size - worker.shown, worker.shown)
    worker.shown = size
    return text.decode(errors="replace")


def settled(worker: Worker, seconds: float = 0.3) -> None:
    """Return when new stacks have been written, or the time is over."""
    end, size = time.monotonic() + seconds, -1
    while time.monotonic() < end:
        now = os.fstat(worker.stacks).st_size
        if now > worker.shown and now == size:
            return
        size = now
        time.sleep(0.01)


def show_stacks(workers: Sequence[Worker], seconds: float = 0.5) -> dict[str, str]:
    """Return where these workers are now; one that does not answer in time shows nothing."""
    for worker in workers:
        send(worker.pid, STACK_SIGNAL)
    late = time.monotonic() + seconds
    found = {}
    for worker in workers:
        with contextlib.suppress(OSError):  # it has been replaced meanwhile
            settled(worker, max(0.0, late - time.monotonic()))
            found[f"worker {worker.index}, pid {worker.pid}"] = read_stacks(worker)
    return found


def stop_worker(worker: Worker) -> None:
    """End a worker: SIGTERM, a second, SIGKILL, and whatever it has started itself."""
    if worker.process.exitcode is None:
        send(worker.pid, signal.SIGTERM, signal.SIGCONT)
        worker.process.join(1.0)
    if worker.process.exitcode is None:
        send(worker.pid, signal.SIGKILL)
        worker.process.join(1.0)
    send_group(worker.pid)


def still_there(workers: Iterable[Worker], seconds: float) -> list[Worker]:
    """Return the workers that have not ended when the time is over."""
    late = time.monotonic() + seconds
    waiting = {w.process.sentinel: w for w in workers}
    while waiting and (left := late - time.monotonic()) > 0:
        for sentinel in wait(list(waiting), left):
            del waiting[sentinel]  # type: ignore[arg-type]
    return list(waiting.values())


def let_go(worker: Worker) -> None:
    for fd in (worker.orders, worker.stacks):
        with contextlib.suppress(OSError):
            os.close(fd)
    worker.talk.close()
    with contextlib.suppress(ValueError):
        worker.process.close()


def reap(team: dict[int, Worker], fds: list[int]) -> None:
    """Kill what is left of the workers and free what they used."""
    for worker in team.values():
        if worker.process.is_alive():
            send(worker.pid, signal.SIGKILL)
    for worker in team.values():
        worker.process.join(1.0)
        send_group(worker.pid)
        let_go(worker)
    team.clear()
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)
