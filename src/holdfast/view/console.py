"""The display of `holdfast train`: a live panel on a terminal, plain lines everywhere else.

    with Console("first") as console:
        start(config, runs_dir, console.show, console.say)

Everything goes to standard error, so `--json` on standard output stays clean. A display that breaks turns
itself off with one message; it never raises into training. The panel is drawn when an update is shown, at
most eight times a second and for at most one percent of the time; while an update takes long, a
thread draws it once a second. The thread takes no lock that `show` holds: a `Tally` may be read meanwhile.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from holdfast.probes.headlines import words
from holdfast.view.numbers import clock, figure, short
from holdfast.view.tally import Tally

if TYPE_CHECKING:
    from rich.console import Console as RichConsole
    from rich.console import RenderableType
    from rich.live import Live

PLAIN_EVERY_S = 5.0
PANEL_EVERY_S = 0.125
TICK_S = 1.0
DRAWING_SHARE = 0.01
"""Share of the time that drawing may take."""


class Console:
    """Shows a run while it trains."""

    def __init__(
        self,
        title: str,
        plain: bool | None = None,
        stream: TextIO | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Write to `stream` (standard error); `plain` None means: a panel if it is a terminal."""
        self.title, self.now = title, now
        self.stream = sys.stderr if stream is None else stream
        self.plain = not wants_panel(self.stream) if plain is None else plain
        self.tally = Tally(now)
        self._off = False
        self._next = 0.0
        self._unsaid = False
        self._done = threading.Event()
        self._live: Live | None = None
        self._rich: RichConsole | None = None

    def __enter__(self) -> Console:
        if not self.plain:
            self._guarded(self._open_panel)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._guarded(self._close)

    def show(self, line: dict[str, Any]) -> None:
        """Show the signals of an update."""
        if not self._off:
            self._guarded(lambda: self._show(line))

    def say(self, text: str) -> None:
        """Print a message; a panel moves down and stays whole."""
        try:
            if self._live is not None and self._rich is not None:
                self._rich.print(text, markup=False, highlight=False, soft_wrap=True)
            else:
                self._write(text)
        except Exception:  # a signal may have cut into a write; the message must still get out
            os.write(2, f"{text}\n".encode(errors="replace"))

    def _show(self, line: dict[str, Any]) -> None:
        told = self.tally.add(line)
        if self.plain:
            self._show_plain(told)
        elif self.now() >= self._next:
            self._refresh()

    def _show_plain(self, told: list[str]) -> None:
        tally = self.tally
        last = tally.update == tally.updates
        self._unsaid = True
        if last or self.now() >= self._next:
            self._write_progress()
        for text in told:
            self._write(f"note    update {tally.update}: {text}")
        if tally.probe is not None and tally.probe.update == tally.update:
            self._write(probe_line(tally))

    def _write_progress(self) -> None:
        self._write(progress_line(self.tally))
        self._next, self._unsaid = self.now() + PLAIN_EVERY_S, False

    def _write(self, text: str) -> None:
        self.stream.write(text + "\n")
        self.stream.flush()

    def _open_panel(self) -> None:
        from rich.console import Console as RichConsole
        from rich.live import Live

        self._rich = RichConsole(file=self.stream, force_terminal=True)
        # Standard output is left alone: it belongs to --json.
        self._live = Live(
            get_renderable=self._panel,
            console=self._rich,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=self.stream is sys.stderr,
        )
        self._live.start(refresh=True)
        threading.Thread(target=self._tick, name="holdfast-panel", daemon=True).start()

    def _refresh(self) -> None:
        live, began = self._live, time.perf_counter()
        if live is not None:
            live.refresh()
            cost = time.perf_counter() - began
            self._next = self.now() + max(PANEL_EVERY_S, cost / DRAWING_SHARE)

    def _tick(self) -> None:
        while not self._done.wait(TICK_S):
            if not self._off and self.now() - self._next > TICK_S:
                self._guarded(self._refresh)

    def _panel(self) -> RenderableType:
        try:
            from holdfast.view.panel import draw

            assert self._rich is not None
            return draw(self.title, self.tally, self._rich.width)
        except Exception as error:  # this runs in rich's thread too, where nobody would catch it
            self._off = True
            return f"The panel was switched off: {type(error).__name__}: {error}"

    def _close(self) -> None:
        self._done.set()
        if self._live is not None:
            live, self._live = self._live, None
            live.stop()
        elif self._unsaid and not self._off:
            self._write_progress()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # a display must never stop training; it says so and is gone
            self._off = True
            live, self._live = self._live, None
            try:
                if live is not None:
                    live.stop()
                self._write(f"The display was switched off: {type(error).__name__}: {error}")
            except Exception:  # standard error itself is gone: there is nobody to tell
                return


def wants_panel(stream: TextIO) -> bool:
    """Return whether a live panel makes sense there: a terminal, and nobody asked for plain text."""
    plain = any(os.environ.get(name) for name in ("NO_COLOR", "CI"))
    return stream.isatty() and not plain and os.environ.get("TERM") != "dumb"


def progress_line(tally: Tally) -> str:
    """Return an update as one plain line."""
    left, speed = tally.left_s, tally.steps_per_s
    share = tally.update / tally.updates if tally.updates else 0.0
    parts = [
        f"update {tally.update}/{tally.updates or '?'}",
        f"{share:.0%}",
        f"{clock(tally.elapsed_s)} gone",
    ]
    if left:
        parts.append(f"{clock(left)} left")
    parts.append(f"{short(tally.env_steps)} steps")
    if speed is not None:
        parts.append(f"{short(speed)}/s")
    main = tally.headline.signal
    for name, signal in (
        (words(main), main),
        ("entropy", "train/entropy_mean"),
        ("kl", "train/approx_kl"),
    ):
        for role, value in tally.values(signal):
            parts.append(f"{role} {name} {figure(value)}".lstrip())
    lit = [f"{n} {c}" for n, c in tally.lights.items() if c != "green"]
    return "  ".join(parts + lit)


def probe_line(tally: Tally) -> str:
    """Return the last probe as one plain line."""
    probe = tally.probe
    if probe is None:
        return "probe   none yet"
    text = f"probe   update {probe.update}: {probe.name} {figure(probe.value)}"
    text += f"  best {figure(probe.best)} (update {probe.best_update})"
    if probe.ceiling is not None:
        text += f"  ceiling {figure(probe.ceiling)}"
    for word, value in probe.beside:
        text += f"  {word} {figure(value)}"
    return text
