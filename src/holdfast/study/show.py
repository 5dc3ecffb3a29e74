"""The display of a study: one line a run on a terminal, plain lines everywhere else. It writes to standard error."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from holdfast.study.child import Child
from holdfast.view.console import wants_panel
from holdfast.view.numbers import clock, figure, short

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

PLAIN_EVERY_S = 10.0
SHOWN = 40
"""Runs on the screen at most; the ones at work come first."""
STYLES = {"running": "green", "finished": "cyan", "failed": "red", "killed": "red"}


class Board:
    """Shows all runs of a study while they train."""

    def __init__(
        self, title: str, main: str, plain: bool | None = None, stream: TextIO | None = None
    ) -> None:
        """Show the metric `main`; `plain` None means: a table if the stream is a terminal."""
        self.title, self.main = title, main
        self.stream = sys.stderr if stream is None else stream
        self.plain = not wants_panel(self.stream) if plain is None else plain
        self.children: list[Child] = []
        """Runs that are shown, in the order in which they were added."""
        self.total = 0
        self._next = time.monotonic() + PLAIN_EVERY_S
        self._live: Live | None = None
        self._rich: Console | None = None

    def __enter__(self) -> Board:
        if not self.plain:
            from rich.console import Console
            from rich.live import Live

            self._rich = Console(file=self.stream, force_terminal=True)
            self._live = Live(
                get_renderable=self._table,
                console=self._rich,
                auto_refresh=False,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            with contextlib.suppress(OSError):
                self._live.stop()

    def say(self, text: str) -> None:
        """Print a message; a table moves down and stays whole."""
        with contextlib.suppress(OSError):  # nobody listens any more: the study goes on
            if self._rich is not None:
                self._rich.print(text, markup=False, highlight=False, soft_wrap=True)
                return
            self.stream.write(text + "\n")
            self.stream.flush()

    def began(self, child: Child) -> None:
        """Say that a child is at work."""
        if self.plain:
            pid = child.process.pid if child.process is not None else 0
            self.say(f"{child.name}  begins (process {pid})")

    def ended(self, child: Child) -> None:
        """Say how a child ended; a failure with its last lines."""
        line = self._line(child)
        if child.state in ("failed", "killed", "stopped"):
            line += "".join(f"\n    {words}" for words in child.last_words().splitlines())
        if self.plain or "\n" in line:
            self.say(line)

    def draw(self, working: Sequence[Child]) -> None:
        """Show how far the children at work are."""
        if self._live is not None:
            with contextlib.suppress(OSError):
                self._live.refresh()
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + PLAIN_EVERY_S
            for child in working:
                self.say(self._line(child))

    def _line(self, child: Child) -> str:
        parts = [child.name, child.state.replace("_", " "), *self._facts(child)]
        return "  ".join(part for part in parts if part)

    def _facts(self, child: Child) -> list[str]:
        """Return update, rate, last and best value of the main metric, and time left or taken."""
        seen = child.followed
        values = seen.values(self.main)
        best = max((value for _, value in values), default=None)
        pace, left = seen.pace, seen.left_s
        at_work = child.state == "running"
        spent = f"{clock(time.monotonic() - child.began)} taken" if child.process else ""
        return [
            f"{seen.update}/{seen.updates or '?'}" if seen.beat else "",
            f"{short(pace[1])} steps/s" if pace is not None and at_work else "",
            f"{self.main} {figure(values[-1][1])}" if values else "",
            f"best {figure(best)}" if best is not None else "",
            (f"{clock(left)} left" if left is not None else "") if at_work else spent,
        ]

    def _table(self) -> Table:
        from rich.table import Table

        over = [c for c in self.children if c.state not in ("waiting", "running", "elsewhere")]
        table = Table(title=f"{self.title}: {len(over)} of {self.total} runs", title_justify="left")
        for head in ("run", "state", "update", "steps/s", self.main, "best", "time"):
            table.add_column(head, no_wrap=True)
        ranked = sorted(self.children, key=lambda c: c.state != "running")[:SHOWN]
        shown = [child for child in self.children if child in ranked]
        for child in shown:
            update, rate, value, best, left = self._facts(child)
            table.add_row(
                child.name,
                child.state.replace("_", " "),
                update,
                rate.removesuffix(" steps/s"),
                value.removeprefix(self.main).strip(),
                best.removeprefix("best "),
                left,
                style=STYLES.get(child.state, "default"),
            )
        return table
