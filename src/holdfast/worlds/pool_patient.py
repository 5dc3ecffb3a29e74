"""One foreign game in a process of its own, for films: it can raise, hang or die without harm to what looks at it.

An environment that no other process can make (it lives in the script that was started) is served by a thread instead,
in the same words; there it may still take the process with it.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import Pipe, util
from multiprocessing.connection import Connection
from typing import Any

import gymnasium as gym
import numpy as np

from holdfast.errors import ConfigError, EnvironmentFault, HoldfastError
from holdfast.records import Array
from holdfast.worlds.pool_board import BOOT
from holdfast.worlds.pool_faults import death
from holdfast.worlds.pool_games import Game, GameSpec, make_game, spec_of, where
from holdfast.worlds.pool_options import ForeignOptions
from holdfast.worlds.pool_player import FAILURES
from holdfast.worlds.pool_process import Worker, launch, portable_entry, reap
from holdfast.worlds.pool_worker import Assignment, Handle, settle

GIVEN = {"render_mode": "rgb_array"}
"""What an environment is made with."""


@dataclass(frozen=True)
class Drawn:
    """What a game tells of itself when it is made."""

    spec: GameSpec
    mode: Any
    """Its `render_mode`."""
    rate: float
    """Pictures a second, 0 if it does not say."""


class PatientGame:
    """A game whose every call has a deadline; all of them are made in the same thread, as drawing may need it."""

    def __init__(self, name: str, options: ForeignOptions) -> None:
        self.name, self.options = name, options
        self._team: dict[int, Worker] = {}
        pipes: list[int] = []
        # Also when nobody closes it: at exit, or when it is collected.
        self._reaper = util.Finalize(self, reap, args=(self._team, pipes), exitpriority=100)
        try:
            entry = portable_entry(name)
        except ConfigError:
            self._talk, far = Pipe()
            make = make_game(name, options.kwargs, **GIVEN)
            threading.Thread(target=serve_game, args=(make, far), daemon=True).start()
        else:
            pipes += os.pipe()
            job = Assignment(
                name=name,
                entry=entry,
                kwargs=options.kwargs,
                worker=0,
                workers=1,
                first=0,
                count=1,
                games=1,
                max_steps=0,
                facts=(),
                environ=dict(os.environ),
                follow=False,
            )
            self._team[0] = launch(job, options.start, pipes[0], pipes[0], serve_process)
            self._talk = self._team[0].talk
        self.drawn: Drawn = self._hear("construct", options.limit(BOOT) + options.construct_s)

    def reset(self, seed: int) -> list[Any]:
        """Begin an episode."""
        return self._call("reset", self.options.reset_s, seed)  # type: ignore[no-any-return]

    def step(self, actions: Array) -> Any:
        """Play one step."""
        return self._call("step", self.options.step_s, actions)

    def render(self) -> Array:
        """Return the picture `[height, width, 3]` that the environment draws; the first time it may have to set up
        much."""
        return self._call("render", self.options.construct_s)  # type: ignore[no-any-return]

    def close(self) -> None:
        """Free the environment, or leave it behind; once more does nothing."""
        if self._reaper.still_active():
            with contextlib.suppress(HoldfastError):  # there is nothing more to be had from it
                self._call("close", self.options.close_s)
            self._reaper()
            self._talk.close()

    def _call(self, phase: str, seconds: float, *given: Any) -> Any:
        try:
            self._talk.send((phase, *given))
        except OSError:
            raise self._dead(phase) from None
        return self._hear(phase, seconds)

    def _hear(self, phase: str, seconds: float) -> Any:
        try:
            if not self._talk.poll(seconds):
                self._reaper()
                raise EnvironmentFault(
                    f"The environment {self.name} hung in {phase} for {seconds:g} s while it was filmed. "
                    f"Raise its deadline, or look for the cause: holdfast envcheck {self.name}"
                )
            kind, result = self._talk.recv()
        except (EOFError, OSError):
            raise self._dead(phase) from None
        if kind == "done":
            return result
        if kind == "told":
            raise ConfigError(result)
        if kind == "undrawn":
            raise ConfigError(undrawn(self.name, result))
        raise EnvironmentFault(
            f"The environment {self.name} raised in {phase} while it was filmed: {result}."
        )

    def _dead(self, phase: str) -> EnvironmentFault:
        how = "is gone"
        for worker in self._team.values():
            worker.process.join(1.0)
            how = death(worker.process.exitcode)[2]
        self._reaper()
        return EnvironmentFault(
            f"The process of the environment {self.name} {how} in {phase} while it was filmed. "
            f"Look for the cause: holdfast envcheck {self.name}"
        )


def undrawn(world: str, why: str) -> str:
    """Return why an environment cannot be filmed, and what to do."""
    return (
        f"{world} cannot be filmed: {why}. It must draw itself as RGB arrays: install what it needs for "
        "drawing (for Gymnasium's own: pip install 'gymnasium[classic-control]'), or let your function take the "
        "parameter render_mode: films give it render_mode='rgb_array'."
    )


def serve_process(
    job: Assignment, _: Handle, talk: Connection, memory: Handle, life: Handle, stacks: Handle
) -> None:
    """Be the process of one game until it is closed; this is its whole life."""
    settle(job, life.fd, stacks.fd)
    if job.entry is not None:
        gym.registry.setdefault(job.name, job.entry)
    serve_game(lambda: make_game(job.name, job.kwargs, **GIVEN)(), talk)
    # No destructors, no exit handlers: a foreign library must not be able to hang here.
    os._exit(0)


def serve_game(make: Callable[[], Game], talk: Connection) -> None:
    """Make a game and answer every order with `(kind, result)` until it is closed or nobody is there any more."""
    made: list[Any] = []

    def construct() -> Drawn:
        game: Any = make()
        made.append(game)
        rate = float(getattr(game.env, "metadata", {}).get("render_fps") or 0)
        rate = rate if 0 < rate < np.inf else 0.0
        return Drawn(spec_of(game), getattr(game.env, "render_mode", None), rate)

    orders: dict[str, Callable[..., Any]] = {
        "construct": construct,
        "reset": lambda seed: made[0].reset(seed),
        "step": lambda actions: made[0].step(actions),
        "render": lambda: _picture(made[0].env.render()),
        "close": lambda: made[0].close(),
    }
    phase, given = "construct", ()
    while True:
        try:
            found: tuple[str, Any] = ("done", orders[phase](*given))
        except _Undrawn as error:
            found = ("undrawn", str(error))
        except HoldfastError as error:
            found = ("told", str(error))
        except (gym.error.Error, ImportError) as error:
            found = ("raised" if phase == "step" else "undrawn", str(error))
        except FAILURES as error:
            found = ("raised", where(error))
        try:
            _send(talk, found)
            if phase == "close":
                return
            phase, *given = talk.recv()
        except (EOFError, OSError):
            return


def _send(talk: Connection, found: tuple[str, Any]) -> None:
    try:
        talk.send(found)
    except OSError:
        raise
    except Exception as error:  # an observation, or a space, that cannot be pickled
        talk.send(("raised", f"what it gave cannot be sent to another process: {where(error)}"))


class _Undrawn(Exception):
    """`render()` gave something else than a picture."""


def _picture(picture: Any) -> Array:
    if isinstance(picture, np.ndarray) and picture.ndim == 3 and picture.size:
        if picture.shape[2] == 1:
            return picture.repeat(3, 2)
        if picture.shape[2] in (3, 4):
            return picture[:, :, :3]
    gave = f"{type(picture).__name__} {getattr(picture, 'shape', '')}".rstrip()
    raise _Undrawn(f"render() gave {gave}")
