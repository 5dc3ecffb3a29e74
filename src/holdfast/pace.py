"""How fast a run is: told once, from its own first seconds, so that it costs nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from holdfast.jit import compiling
from holdfast.loop import Loop

Show = Callable[[dict[str, Any]], None]
Say = Callable[[str], None]
ESTIMATE_S = 2.0
"""Seconds of training after which its speed is told."""


class Pace:
    """Passes updates on to the display, and tells once what was compiled and how fast the run is."""

    def __init__(self, loop: Loop, show: Show, say: Say) -> None:
        self.loop, self._show, self.say = loop, show, say
        self._first: tuple[float, int] | None = None
        self._told = False

    def show(self, line: dict[str, Any]) -> None:
        """Show the signals of an update."""
        now, steps = time.monotonic(), self.loop.progress.env_steps
        if self._first is None:
            # The first update compiles and warms up: it says nothing about the others.
            self._first = now, steps
            if compiling.seconds > 1:
                self.say(f"compiled {compiling.kernels} kernels in {compiling.seconds:.0f} s, once")
        elif not self._told and (now - self._first[0] >= ESTIMATE_S or self.loop.over):
            self._told = True
            self._tell((steps - self._first[1]) / max(now - self._first[0], 1e-9))
        self._show(line)

    def _tell(self, steps_a_second: float) -> None:
        loop = self.loop
        done = max(1, loop.progress.update)
        left = loop.progress.env_steps / done * (loop.total - done) / max(steps_a_second, 1e-9)
        learners = ", ".join(sorted({describe(x) for x in loop.team.learners.values()}))
        rest = f", about {left / 60:.0f} min to go" if left >= 60 else ""
        self.say(f"{learners}: {steps_a_second:,.0f} env steps/s{rest}")


def describe(learner: Any) -> str:
    """Return the device and the kind of a learner in words."""
    kind = type(learner).__name__.removesuffix("Learner").lower()
    return f"device {getattr(learner, 'device', 'cpu')}, {kind} learner, {learner.threads} threads"
