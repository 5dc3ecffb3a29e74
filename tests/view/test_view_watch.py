"""Windows, pacing and progress, without a screen."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

import numpy as np
import pytest

from holdfast.store.media import Image
from holdfast.view import window
from holdfast.view.progress import Progress
from holdfast.view.window import has_screen, open_window, play


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.t = 0.0

    def __call__(self) -> float:
        return self.t

    def sleep(self, seconds: float) -> None:
        self.t += seconds


class Seen:
    """A window that remembers, takes its time, and is closed after some pictures."""

    def __init__(self, clock: Clock, most: int = 10**9, takes_s: float = 0.0) -> None:
        self.pictures: list[tuple[int, float]] = []
        self.clock, self.most, self.takes_s = clock, most, takes_s
        self.closed = False

    def show(self, picture: Image) -> None:
        self.pictures.append((int(picture[0, 0, 0]), round(self.clock.t, 6)))
        self.clock.t += self.takes_s
        self.closed = len(self.pictures) >= self.most

    def close(self) -> None:
        self.closed = True


def numbered(count: int) -> Iterator[Image]:
    for k in range(count):
        yield np.full((2, 2, 3), k, np.uint8)


def test_pictures_are_shown_when_they_are_due() -> None:
    clock = Clock()
    seen = Seen(clock, takes_s=0.004)
    assert play(seen, numbered(5), 100, clock, clock.sleep) == 5
    assert seen.pictures == [(0, 0.0), (1, 0.01), (2, 0.02), (3, 0.03), (4, 0.04)]


def test_a_slow_screen_leaves_pictures_out_and_keeps_the_speed() -> None:
    clock = Clock()
    seen = Seen(clock, takes_s=0.025)
    assert play(seen, numbered(100), 100, clock, clock.sleep) < 50
    last, at = seen.pictures[-1]
    assert last >= 96
    assert at == pytest.approx(last / 100, abs=0.05), "never far behind"


def test_a_closed_window_ends_the_film() -> None:
    clock = Clock()
    assert play(Seen(clock, most=3), numbered(50), 1000, clock, clock.sleep) == 3


def test_there_is_no_window_without_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window.sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not has_screen()
    assert open_window("x") is None


def test_a_screen_that_nobody_may_use_is_no_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window.sys, "platform", "linux")
    monkeypatch.setenv("DISPLAY", ":987654")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    assert has_screen()
    assert open_window("x") is None


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_short_work_is_silent_and_long_work_is_told_now_and_then() -> None:
    stream, now = io.StringIO(), Clock()
    with Progress("filming", stream=stream, now=now) as progress:
        for k in range(1, 21):
            now.t += 1.0
            progress.show(k, 20, "to a.mp4")
    rows = stream.getvalue().splitlines()
    assert rows[0] == "filming  2/20 (10%)  0:02 gone  0:18 left  to a.mp4"
    assert [row.split()[1] for row in rows] == ["2/20", "7/20", "12/20", "17/20"]


def test_work_of_unknown_length_is_counted() -> None:
    stream, now = io.StringIO(), Clock()
    with Progress("filming", stream=stream, now=now) as progress:
        now.t = 3.0
        progress.show(40, 0)
    assert stream.getvalue() == "filming  40  0:03 gone\n"


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "CI", "TERM"):
        monkeypatch.delenv(name, raising=False)
    stream, now = Terminal(), Clock()
    with Progress("filming", stream=stream, now=now) as progress:
        now.t = 3.0
        progress.show(5, 10, "to a.mp4")
        progress.show(6, 10)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    assert "filming" in text and "60%" in text


def test_a_display_that_breaks_is_gone_and_never_raises() -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError("gone")

    now = Clock()
    with Progress("x", stream=Broken(), now=now) as progress:
        now.t = 3.0
        progress.show(1, 2)
        progress.show(2, 2)


def test_no_display_is_no_display() -> None:
    stream, now = io.StringIO(), Clock()
    with Progress("x", stream=stream, now=now, off=True) as progress:
        now.t = 30.0
        progress.show(1, 2)
    assert stream.getvalue() == ""
