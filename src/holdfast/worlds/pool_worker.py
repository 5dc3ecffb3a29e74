"""A worker process: it owns some games and plays them when it is told to.

It reads one byte an order from its socket (`s` step, `r` reset, `c` close) and answers with one byte:
`.` done, `m` a message waits in the pipe, `!` a message waits and the worker leaves. Everything else goes
through shared memory. It leaves by itself when its parent is gone, whatever the environment is doing:
the end of a pipe that only the parent holds wakes a thread, and the kernel kills it with its starter.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import mmap
import os
import signal
import sys
import threading
from dataclasses import dataclass
from multiprocessing import forkserver, reduction
from multiprocessing.connection import Connection
from typing import Any

import gymnasium as gym

from holdfast.worlds.pool_board import Board, Layout, Post, post_fields, size_of
from holdfast.worlds.pool_games import make_game
from holdfast.worlds.pool_player import GameError, Player

STACK_SIGNAL = signal.SIGUSR1
PR_SET_PDEATHSIG = 1


class Handle:
    """A file descriptor that survives the way into a new process."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __getstate__(self) -> Any:
        return reduction.DupFd(self.fd)

    def __setstate__(self, state: Any) -> None:
        self.fd = state.detach()


@dataclass(frozen=True)
class Assignment:
    """What a worker is and owns; a replacement gets the same one."""

    name: str
    entry: Any
    """The environment's registration, if it is a Gymnasium id."""
    kwargs: dict[str, Any]
    """Keywords that the environment is made with."""
    worker: int
    workers: int
    first: int
    count: int
    games: int
    max_steps: int
    facts: tuple[str, ...]
    environ: dict[str, str]
    follow: bool
    """Whether the kernel may kill this process when the thread that started it ends."""


def serve(
    job: Assignment, orders: Handle, talk: Connection, memory: Handle, life: Handle, stacks: Handle
) -> None:
    """Be a worker until told to close; this is the whole life of the process."""
    code = 0
    try:
        settle(job, life.fd, stacks.fd)
        _play(job, orders.fd, talk, memory.fd)
    except GameError as error:
        code = 1
        with contextlib.suppress(OSError):
            talk.send(error)
            os.write(orders.fd, b"!")
    except (EOFError, BrokenPipeError, ConnectionResetError):
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException as error:  # reported to the parent, then the process is over
        code = 1
        text = f"{type(error).__name__}: {error}"
        with contextlib.suppress(OSError):
            talk.send(GameError("raised", job.first, "boot", type(error).__name__, text, ""))
            os.write(orders.fd, b"!")
    # No destructors, no exit handlers: a foreign library must not be able to hang here.
    with contextlib.suppress(Exception):
        sys.stderr.flush()
    os._exit(code)


def settle(job: Assignment, life: int, stacks: int) -> None:
    """Make this process a worker: it has a session of its own, shows its stacks when asked, and ends with its parent."""
    # A session of its own: Ctrl-C is the trainer's, and what the environment starts dies with it.
    with contextlib.suppress(OSError):
        os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    faulthandler.enable(stacks)
    faulthandler.register(STACK_SIGNAL, stacks, all_threads=True, chain=False)
    os.dup2(2, 1)  # standard output belongs to the command line
    os.environ.clear()
    os.environ.update(job.environ)
    # The workers share the cores: one thread each is enough.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    if job.follow and sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    _release_server()
    threading.Thread(target=_leave_with_parent, args=(life,), daemon=True).start()


def _release_server() -> None:
    """Close this process's copy of the pipe that keeps the fork server alive.

    Python hands it to every child; with it, a stopped worker would keep its server, and the server its
    worker, after the trainer is gone.
    """
    server = getattr(forkserver, "_forkserver", None)
    fd = getattr(server, "_forkserver_alive_fd", None)
    if server is not None and isinstance(fd, int):
        server._forkserver_alive_fd = None
        os.close(fd)


def _leave_with_parent(life: int) -> None:
    # The main thread must take it: when a stopped process goes on, it then shows where it was stopped.
    signal.pthread_sigmask(signal.SIG_BLOCK, {STACK_SIGNAL})
    while os.read(life, 1):
        pass
    os.killpg(0, signal.SIGKILL)


def _play(job: Assignment, orders: int, talk: Connection, memory: int) -> None:
    def tell(message: Any) -> None:
        talk.send(message)
        os.write(orders, b"m")

    size = size_of(post_fields(job.workers, job.games))
    post = Post.at(mmap.mmap(memory, size), job.workers, job.games)
    if job.entry is not None:
        gym.registry.setdefault(job.name, job.entry)

    def make() -> Any:
        return make_game(job.name, job.kwargs)()

    player = Player(make, post, job.worker, job.first, job.count, job.max_steps, job.facts)
    for game in range(job.first, job.first + job.count):
        tell(("begin", game))
        spec = player.construct(game)
        tell(("ok", game, float(post.construct_s[game])))
        tell(("spec", game, spec))
    tell(("ready",))
    layout = talk.recv()
    assert isinstance(layout, Layout)
    whole = mmap.mmap(memory, size + size_of(layout.fields()))
    player.sit(Board.at(whole, layout, size))
    # Nothing here is garbage; a collection in the middle of a step would only make it uneven.
    gc.collect()
    gc.freeze()
    while True:
        order = os.read(orders, 1)
        if order == b"s":
            player.step()
        elif order == b"r":
            player.reset()
        else:
            if order == b"c":
                player.close()
            return
        os.write(orders, b".")
