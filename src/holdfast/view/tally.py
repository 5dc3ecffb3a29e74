"""What a display knows after each update: speed, time left, where the time goes, best probe, events.

It is fed the plain dict that the loop shows after an update; what matters most in it is declared by its world
(`probes/headlines.py`). Extra keys are used when they are there: `messages` (a list of sentences), `best_by`,
`best_value` and `best_update`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.probes.headlines import Headline, by_role, headline_in, with_own, words
from holdfast.view.numbers import figure, number

PARTS = ("world", "policy", "learn", "probe", "other")
SPEED_WINDOW_S = 20.0
HISTORY = 240
EVENTS = 4


@dataclass(frozen=True)
class Probe:
    """The last probe and the best one."""

    update: int
    name: str
    value: float
    best: float
    best_update: int
    ceiling: float | None
    beside: tuple[tuple[str, float], ...]
    """What else is worth saying: words and value."""


class Tally:
    """Sums up the updates that were shown."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.began = now()
        self.line: dict[str, Any] = {}
        self.update = self.updates = 0
        self.env_steps = 0.0
        self.lights: dict[str, str] = {}
        self.probe: Probe | None = None
        self.events: deque[str] = deque(maxlen=EVENTS)
        self.shares = dict.fromkeys(PARTS, 0.0)
        self.history: deque[float] = deque(maxlen=HISTORY)
        self._marks: deque[tuple[float, int, float]] = deque()
        self._seconds = dict.fromkeys(PARTS, 0.0)

    def add(self, line: dict[str, Any]) -> list[str]:
        """Take in one update; return what is worth a sentence: messages, and lights that changed."""
        self.line = line
        self.update, self.updates = int(line.get("update", 0)), int(line.get("updates", 0))
        self.env_steps = number(line.get("env_steps")) or 0.0
        self._count_time(line)
        value = number(line.get(self.headline.signal))
        if value is not None:
            self.history.append(value)
        told = [str(m) for m in line.get("messages") or ()]
        told += self._read_lights(line.get("lights") or {})
        best = self._read_probe(line)
        self.events.extend(f"update {self.update}: {text}" for text in (*told, *best))
        return told

    @property
    def headline(self) -> Headline:
        """What people look at first in this world."""
        return headline_in(self.line)

    def values(self, signal: str) -> list[tuple[str, float]]:
        """Return what a signal is now, by role; the role is empty where there is one learner."""
        names = by_role(signal, self.line)
        found = [(role, number(self.line[name])) for role, name in names.items()]
        return [(role, value) for role, value in found if value is not None]

    @property
    def elapsed_s(self) -> float:
        """Seconds since the display began."""
        return self.now() - self.began

    @property
    def steps_per_s(self) -> float | None:
        """Environment steps a second over the last seconds, or of the last update."""
        if len(self._marks) > 1:
            (t0, _, s0), (t1, _, s1) = self._marks[0], self._marks[-1]
            if t1 > t0:
                return (s1 - s0) / (t1 - t0)
        return number(self.line.get("time/env_steps_per_s"))

    @property
    def left_s(self) -> float | None:
        """Seconds to the last update at the recent pace."""
        if not self.updates or self.update >= self.updates:
            return 0.0 if self.updates else None
        pace = number(self.line.get("time/update_s"))
        if len(self._marks) > 1:
            (t0, u0, _), (t1, u1, _) = self._marks[0], self._marks[-1]
            if u1 > u0:
                pace = (t1 - t0) / (u1 - u0)
        return None if pace is None else pace * (self.updates - self.update)

    def _count_time(self, line: dict[str, Any]) -> None:
        now = self.now()
        self._marks.append((now, self.update, self.env_steps))
        # Two marks stay however old they are, so that slow updates have a pace too.
        while len(self._marks) > 2 and now - self._marks[1][0] > SPEED_WINDOW_S:
            self._marks.popleft()
        total = number(line.get("time/update_s"))
        if not total:
            return
        spent = {p: number(line.get(f"time/{p}_s")) or 0.0 for p in PARTS[:-1]}
        spent["other"] = max(total - sum(spent.values()), 0.0)
        for part, seconds in spent.items():
            self._seconds[part] = 0.98 * self._seconds[part] + seconds
        whole = sum(self._seconds.values()) or 1.0
        self.shares = {part: seconds / whole for part, seconds in self._seconds.items()}

    def _read_lights(self, lights: dict[str, str]) -> list[str]:
        told = [
            f"guard {name} is {light}"
            for name, light in lights.items()
            if light != self.lights.get(name, "green")
        ]
        self.lights = dict(lights)
        return told

    def _read_probe(self, line: dict[str, Any]) -> list[str]:
        # Beside each metric stand the ends of its interval, which are no metrics.
        ends = [name for name in line if name.startswith("probe/") and name.endswith("_low")]
        measured = [name.removeprefix("probe/").removesuffix("_low") for name in ends]
        main = with_own(self.headline, measured, line)
        metric = str(line.get("best_by") or main.metric)
        value = number(line.get(f"probe/{metric}"))
        if value is None:
            return []
        old = self.probe
        best, best_update = (old.best, old.best_update) if old else (value, self.update)
        if value > best:
            best, best_update = value, self.update
        given = number(line.get("best_value"))
        if given is not None:
            best, best_update = given, int(number(line.get("best_update")) or self.update)
        self.probe = Probe(
            self.update,
            words(metric),
            value,
            best,
            best_update,
            number(line.get(f"probe/ceiling_{metric}")),
            tuple(
                (words(name), found)
                for name in main.beside
                if name != metric and (found := number(line.get(f"probe/{name}"))) is not None
            ),
        )
        if old is not None and best_update == self.update and value != old.best:
            return [f"new best {words(metric)} {figure(value)}"]
        return []
