"""One foreign game in a thread of its own, for films: it can raise or hang without harm to what looks at it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import gymnasium as gym

from holdfast.errors import EnvironmentFault, HoldfastError
from holdfast.worlds.pool_games import where
from holdfast.worlds.pool_options import ForeignOptions
from holdfast.worlds.pool_player import FAILURES

T = TypeVar("T")
TOLD = (HoldfastError, gym.error.Error, ImportError)
"""What says itself what is wrong."""


class PatientGame:
    """A game whose every call has a deadline; all of them are made in the same thread, as drawing may need it."""

    def __init__(self, name: str, options: ForeignOptions, make: Callable[[], Any]) -> None:
        self.name, self.options = name, options
        self._orders: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="holdfast-env-film", daemon=True).start()
        self.game: Any = self._call("construct", make, options.construct_s)
        self.env, self.observation_space = self.game.env, self.game.observation_space

    def reset(self, seed: int) -> Any:
        """Begin an episode."""
        return self._call("reset", lambda: self.game.reset(seed), self.options.reset_s)

    def step(self, actions: Any) -> Any:
        """Play one step."""
        return self._call("step", lambda: self.game.step(actions), self.options.step_s)

    def render(self) -> Any:
        """Return what the environment draws; the first time it may have to set up much."""
        return self._call("render", lambda: self.env.render(), self.options.construct_s)

    def close(self) -> None:
        """Free the environment, or leave it behind."""
        self._orders.put((self.game.close, queue.SimpleQueue()))
        self._orders.put(None)

    def _call(self, phase: str, work: Callable[[], T], seconds: float) -> T:
        done: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()
        self._orders.put((work, done))
        try:
            made, result = done.get(timeout=seconds)
        except queue.Empty:
            raise EnvironmentFault(
                f"The environment {self.name} hung in {phase} for {seconds:g} s while it was filmed. "
                f"Raise its deadline, or look for the cause: holdfast envcheck {self.name}"
            ) from None
        if made:
            return result  # type: ignore[no-any-return]
        if isinstance(result, TOLD):
            raise result
        raise EnvironmentFault(
            f"The environment {self.name} raised in {phase} while it was filmed: {where(result)}."
        ) from result

    def _serve(self) -> None:
        while (order := self._orders.get()) is not None:
            work, done = order
            try:
                done.put((True, work()))
            except FAILURES as error:
                done.put((False, error))
