from __future__ import annotations

import io
import re
import threading

import pytest
from view_recorded import line

from holdfast.view.console import Console, wants_panel
from holdfast.view.numbers import brackets, clock, figure, number, short
from holdfast.view.panel import sparkline


class Terminal(io.StringIO):
    """Says that it is a terminal."""

    def isatty(self) -> bool:
        return True


class Broken(io.StringIO):
    """Cannot be written to."""

    def write(self, text: str) -> int:
        raise OSError("gone")


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.t = 0.0

    def __call__(self) -> float:
        return self.t


def seen(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_without_a_terminal_lines_are_plain_and_rate_limited() -> None:
    stream, now = io.StringIO(), Clock()
    with Console("first", stream=stream, now=now) as console:
        assert console.plain
        for update in range(1, 13):
            now.t += 1.0
            console.show(line(update))
    rows = stream.getvalue().splitlines()
    assert [r.split()[1] for r in rows] == ["1/12", "6/12", "11/12", "12/12"]
    assert "survival 0.5300" in rows[0]
    assert "6.0k steps" in rows[1]
    assert "1.0k/s" in rows[1]
    assert "0:06 left" in rows[1]
    assert "\x1b" not in stream.getvalue()


def test_the_last_update_of_a_stopped_run_is_shown_at_the_end() -> None:
    stream, now = io.StringIO(), Clock()
    with Console("first", stream=stream, now=now) as console:
        for update in (1, 2, 3):
            console.show(line(update))
    assert [r.split()[1] for r in stream.getvalue().splitlines()] == ["1/12", "3/12"]


def test_every_probe_gets_its_line_with_best_and_ceiling() -> None:
    stream, now = io.StringIO(), Clock()
    with Console("first", stream=stream, now=now) as console:
        for update, survival in ((2, 0.7), (3, 0.9), (4, 0.8)):
            more = {"probe/avg_final": survival, "probe/ceiling_avg_final": 0.99}
            console.show(line(update, **more))
    probes = [r for r in stream.getvalue().splitlines() if r.startswith("probe")]
    assert len(probes) == 3
    assert "update 4: survival 0.8000  best 0.9000 (update 3)  ceiling 0.9900" in probes[2]


def test_a_light_that_changes_is_told_once() -> None:
    stream = io.StringIO()
    with Console("first", stream=stream, now=Clock()) as console:
        for update, light in ((1, "green"), (2, "yellow"), (3, "yellow"), (4, "green")):
            console.show(line(update, lights={"plateau": light}))
    notes = [r for r in stream.getvalue().splitlines() if r.startswith("note")]
    assert notes == [
        "note    update 2: guard plateau is yellow",
        "note    update 4: guard plateau is green",
    ]


def test_a_terminal_gets_a_panel_with_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "CI", "TERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    stream = Terminal()
    with Console("first", stream=stream) as console:
        assert not console.plain
        console.say("run runs/first [bold]")
        for update in range(1, 6):
            more = {"probe/avg_final": 0.8, "probe/ceiling_avg_final": 0.99} if update == 3 else {}
            console.show(line(update, messages=["all is well"], **more))
    text = seen(stream.getvalue())
    last = text[text.rindex("first") :]
    for words in (
        "5/12 updates",
        "42%",
        "5.0k steps",
        "learn",
        "survival",
        "entropy",
        "ceiling 0.99",
    ):
        assert words in last, words
    assert "● plateau" in last
    assert "update 5: all is well" in last
    assert "run runs/first [bold]" in text


def test_the_panel_is_not_drawn_for_every_update(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    monkeypatch.setattr("holdfast.view.panel.draw", lambda *_: drawn.append(1) or "")
    now = Clock()
    with Console("first", plain=False, stream=Terminal(), now=now) as console:
        for update in range(1, 101):
            now.t += 0.001
            console.show(line(update, 100))
    assert len(drawn) <= 6


def test_plain_text_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "CI", "TERM"):
        monkeypatch.delenv(name, raising=False)
    assert wants_panel(Terminal())
    assert not wants_panel(io.StringIO())
    assert Console("x", plain=True, stream=Terminal()).plain
    monkeypatch.setenv("TERM", "dumb")
    assert not wants_panel(Terminal())
    monkeypatch.delenv("TERM")
    for name in ("NO_COLOR", "CI"):
        monkeypatch.setenv(name, "1")
        assert not wants_panel(Terminal())
        monkeypatch.delenv(name)


def test_a_display_that_fails_says_so_once_and_never_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = io.StringIO()
    with Console("first", stream=stream) as console:
        monkeypatch.setattr("holdfast.view.console.progress_line", lambda _: 1 / 0)
        console.show(line(1))
        console.show(line(2))
    assert stream.getvalue().count("The display was switched off: ZeroDivisionError") == 1


def test_a_panel_that_fails_says_so_and_never_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    with Console("first", plain=False, stream=stream) as console:
        monkeypatch.setattr("holdfast.view.panel.draw", lambda *_: 1 / 0)
        for update in range(1, 4):
            console._next = 0.0
            console.show(line(update))
    assert "The panel was switched off: ZeroDivisionError" in seen(stream.getvalue())


def test_lines_that_make_no_sense_do_not_raise() -> None:
    stream = io.StringIO()
    with Console("first", stream=stream) as console:
        console.show({})
        console.show({"update": "x"})
        console.show(line(1))
    assert "switched off: ValueError" in stream.getvalue()


def test_a_stream_that_is_gone_does_not_raise(capfd: pytest.CaptureFixture[str]) -> None:
    with Console("first", plain=True, stream=Broken()) as console:
        console.show(line(1))
        console.say("still heard")
    assert "still heard" in capfd.readouterr().err


def test_the_thread_of_the_panel_ends_with_it() -> None:
    with Console("first", plain=False, stream=Terminal()):
        threads = [t for t in threading.enumerate() if t.name == "holdfast-panel"]
        assert threads
    for thread in threads:
        thread.join(5.0)
        assert not thread.is_alive()


def test_numbers_read_well() -> None:
    assert [short(v) for v in (950, 24_100, 3.2e6, 4e9)] == ["950", "24.1k", "3.20M", "4.00G"]
    assert [clock(s) for s in (5, 83, 3723)] == ["0:05", "1:23", "1:02:03"]
    shown = [figure(v) for v in (0.98354, 0.05, 1.5, 447.9, 12345.6, 0.00007, 0.0)]
    assert shown == ["0.9835", "0.0500", "1.500", "447.9", "12346", "7.0e-05", "0"]
    assert number(float("nan")) is None
    assert number(True) is None
    assert number("3") is None


def test_an_interval_without_width_claims_nothing() -> None:
    assert brackets(0.25, 0.5) == "[0.2500, 0.5000]"
    assert brackets(500.0, 500.0) == "(no spread seen)"
    assert brackets(-1, 1, "{:+.1f}".format) == "[-1.0, +1.0]"


def test_a_sparkline_runs_from_low_to_high() -> None:
    assert sparkline([0.0, 1.0], 8) == "▁█"
    assert len(sparkline([float(k) for k in range(100)], 16)) == 16
    assert sparkline([1.0], 8) == ""
    assert set(sparkline([2.0, 2.0, 2.0], 8)) == {"▁"}
