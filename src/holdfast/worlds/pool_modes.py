"""Which way of running games suits an environment, and making it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from holdfast.errors import ConfigError
from holdfast.parallel import cores
from holdfast.worlds.events import Events
from holdfast.worlds.pool_faults import Ledger
from holdfast.worlds.pool_games import Game, make_game
from holdfast.worlds.pool_local import LocalBackend
from holdfast.worlds.pool_options import Backend, ForeignOptions, Mode

PROCESS_FROM_S = 2e-4
"""A step that takes longer than this is worth an order to another process."""


def choose_mode(name: str, options: ForeignOptions, make: Callable[[], Game]) -> Mode:
    """Return the mode that is asked for, or for `auto` the one that suits the environment.

    `process` if a step takes 0.2 ms or more and there are at least two games and two cores, else `serial`.
    Threads pay only where an environment releases the interpreter lock, which nobody can see from outside,
    so they are never chosen. Results do not depend on the choice.
    """
    if options.mode != "auto":
        return options.mode
    if options.games < 2 or cores() < 2 or name.startswith("__main__:"):
        return "serial"
    called = f"{name} {options.kwargs}"
    if called not in _timed:
        _timed[called] = patiently(
            lambda: time_step(make), options.construct_s + options.reset_s + options.step_s
        )
    return "process" if _timed[called] >= PROCESS_FROM_S and _portable(name) else "serial"


def patiently(measure: Callable[[], float], seconds: float) -> float:
    """Return what `measure` returns, or infinity if it hangs: then only processes will do."""
    result = [math.inf]

    def work() -> None:
        result[0] = measure()

    thread = threading.Thread(target=work, name="holdfast-env-timing", daemon=True)
    thread.start()
    thread.join(seconds)
    return result[0]


_timed: dict[str, float] = {}
"""Seconds of a step of the environments that were timed in this process."""


def time_step(make: Callable[[], Game], seconds: float = 0.05, steps: int = 50) -> float:
    """Return the median seconds of a step of a throw-away game; 0 if it cannot be played."""
    took: list[float] = []
    try:
        game = make()
        try:
            game.reset(0)
            game.action_space.seed(0)
            end = time.perf_counter() + seconds
            while len(took) < steps and time.perf_counter() < end:
                actions = np.array([game.action_space.sample() for _ in game.roles])
                began = time.perf_counter()
                over = game.step(actions)[4]
                took.append(time.perf_counter() - began)
                if over:
                    game.reset(len(took))
        finally:
            game.close()
    except Exception:  # what is wrong with it is said when it is really used
        return 0.0
    return float(np.median(took)) if took else 0.0


def make_backend(
    name: str,
    options: ForeignOptions,
    mode: Mode,
    make: Callable[[], Game],
    ledger: Ledger,
    events: Events,
) -> Backend:
    """Return the games of a world, constructed."""
    workers = 1 if mode == "serial" else options.workers or cores()
    workers = min(workers, options.games)
    if mode == "process":
        from holdfast.worlds.workers import ProcessBackend

        return ProcessBackend(name, options, workers, ledger, events)
    return LocalBackend(make, options, workers, ledger, events, threads=mode == "threads")


def one_game(name: str, options: ForeignOptions) -> ForeignOptions:
    """Return the options for one game alone in the mode that the whole world would have; it gets no second try."""
    mode = choose_mode(name, options, make_game(name, options.kwargs))
    return replace(options, mode=mode, games=1, workers=1, max_restarts=0)


def _portable(name: str) -> bool:
    from holdfast.worlds.pool_process import portable_entry

    try:
        portable_entry(name)
    except ConfigError:
        return False
    return True
