"""How fast a run is: told once, from its own first seconds, so that it costs nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.jit import compiling
from holdfast.learn.learner import Learner
from holdfast.loop import Loop

Show = Callable[[dict[str, Any]], None]
Say = Callable[[str], None]
ESTIMATE_S = 2.0
"""Seconds of training, without probes, after which its speed is told; a run that is over sooner needs no estimate."""


class Pace:
    """Passes updates on to the display, and tells once what was compiled and how fast the run is."""

    def __init__(self, loop: Loop, show: Show, say: Say) -> None:
        self.loop, self._show, self.say = loop, show, say
        self._steps: int | None = None
        """Env steps after the first update, which compiles and warms up: it says nothing about the others."""
        self._updates = 0
        self._train_s = 0.0
        self._probe_s = 0.0
        self._told = False

    def show(self, line: dict[str, Any]) -> None:
        """Show the signals of an update."""
        if self._steps is None:
            self._steps = self.loop.progress.env_steps
            kernels, seconds = compiling.untold()
            if seconds > 1:
                self.say(f"compiled {kernels} kernels in {seconds:.0f} s, once")
        elif not self._told:
            self._updates += 1
            self._probe_s = max(self._probe_s, line["time/probe_s"])
            self._train_s += line["time/update_s"] - line["time/probe_s"]
            if self._train_s >= ESTIMATE_S:
                self._told = True
                self._tell((self.loop.progress.env_steps - self._steps) / self._train_s)
        self._show(line)

    def _tell(self, steps_a_second: float) -> None:
        loop = self.loop
        left = loop.total - loop.progress.update
        every = loop.config.probe.every
        seconds = left * self._train_s / self._updates
        seconds += left // every * self._probe_s if every else 0.0
        learners = ", ".join(sorted({describe(x) for x in loop.team.learners.values()}))
        rest = f", about {seconds / 60:.0f} min to go" if seconds >= 60 else ""
        self.say(f"{learners}: {steps_a_second:,.0f} env steps/s{rest}")


def describe(learner: Learner) -> str:
    """Return the device and the kind of a learner in words."""
    kind = type(learner).__name__.removesuffix("Learner").lower()
    return f"device {learner.device}, {kind} learner, {learner.threads} threads"
