"""How far a piece of work is, on standard error: a bar on a terminal, now and then a line everywhere else.

    with Progress("evaluating") as progress:
        run_probe(spec, policy, progress=progress.show)       # show(done, total)

Work that is done within two seconds is done without a word. A display that breaks is gone and never raises.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from holdfast.view.console import wants_panel
from holdfast.view.numbers import clock

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

QUIET_S = 2.0
LINE_EVERY_S = 5.0


class Progress:
    """Shows how far something is."""

    def __init__(
        self,
        title: str,
        stream: TextIO | None = None,
        now: Callable[[], float] = time.monotonic,
        off: bool = False,
    ) -> None:
        """Show `title` and a share on `stream` (standard error); `off` shows nothing."""
        self.title, self.now, self._off = title, now, off
        self.stream = sys.stderr if stream is None else stream
        self._began = now()
        self._next = self._began + QUIET_S
        self._bars: Bars | None = None

    def __enter__(self) -> Progress:
        self._began = self.now()
        self._next = self._began + QUIET_S
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bars is not None:
            bars, self._bars = self._bars, None
            bars.stop()

    def show(self, done: int, total: int, note: str = "") -> None:
        """Show that `done` of `total` parts are done (a total of 0 is not known)."""
        if self._off or self.now() < self._next:
            return
        try:
            if wants_panel(self.stream):
                self._draw(done, total, note)
            else:
                self._write(done, total, note)
        except Exception:  # a display must never stop the work; it is gone
            self._off = True

    def _write(self, done: int, total: int, note: str) -> None:
        gone = self.now() - self._began
        parts = [self.title, f"{done}/{total} ({done / total:.0%})" if total else f"{done}"]
        parts.append(f"{clock(gone)} gone")
        if total and 0 < done < total:
            parts.append(f"{clock(gone / done * (total - done))} left")
        self.stream.write("  ".join([*parts, note]).rstrip() + "\n")
        self.stream.flush()
        self._next = self.now() + LINE_EVERY_S

    def _draw(self, done: int, total: int, note: str) -> None:
        if self._bars is None:
            self._bars = _bars(self.stream)
            self._bars.add_task(self.title, total=total or None, note=note)
            self._bars.start()
        task = self._bars.task_ids[0]
        self._bars.update(task, completed=done, total=total or None, note=note)


def _bars(stream: TextIO) -> Bars:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars

    return Bars(
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", style="dim"),
        console=Console(file=stream, force_terminal=True),
        transient=True,
    )
