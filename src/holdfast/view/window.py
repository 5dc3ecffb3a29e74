"""A window that shows pictures one after another, where there is a screen: Tk, or pygame where Tk is missing."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from PIL import Image as Pillow

from holdfast.errors import ConfigError
from holdfast.store.media import Image


class Window(Protocol):
    """Shows pictures until somebody closes it."""

    closed: bool

    def show(self, picture: Image) -> None:
        """Put a picture on the screen."""
        ...

    def close(self) -> None:
        """Take the window away."""
        ...


def has_screen() -> bool:
    """Return whether windows can be opened here."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def open_window(title: str) -> Window | None:
    """Return a window, or None where there is no screen or nothing that draws on it."""
    if not has_screen():
        return None
    if importlib.util.find_spec("tkinter") is not None:
        with contextlib.suppress(Exception):  # no Tcl, no right to the screen: try the next
            return TkWindow(title)
    if importlib.util.find_spec("pygame") is not None:
        with contextlib.suppress(Exception):
            return PygameWindow(title)
    return None


def play(
    window: Window,
    pictures: Iterable[Image],
    fps: float,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Show pictures at their rate until they end or the window is closed; return how many were shown.

    Pictures that come too late are left out, so that the film keeps its speed, but never more than three of four.
    """
    begun, shown = now(), 0
    for k, picture in enumerate(pictures):
        early = begun + k / fps - now()
        if early < -2.0 / fps and k % 4:
            continue
        if early > 0:
            sleep(early)
        window.show(picture)
        shown += 1
        if window.closed:
            break
    return shown


class TkWindow:
    """A window of Tk, which comes with Python."""

    def __init__(self, title: str) -> None:
        import tkinter

        self._root = tkinter.Tk()
        self._root.title(title)
        self._root.protocol("WM_DELETE_WINDOW", self._leave)
        self._root.bind("<Escape>", lambda _: self._leave())
        self._root.bind("q", lambda _: self._leave())
        self._label = tkinter.Label(self._root, borderwidth=0)
        self._label.pack()
        self._shown: Any = None
        self.closed = False

    def show(self, picture: Image) -> None:
        from PIL import ImageTk

        if self.closed:
            return
        # The label holds no reference of its own: a picture that nobody keeps vanishes.
        self._shown = ImageTk.PhotoImage(Pillow.fromarray(picture), master=self._root)
        self._label.configure(image=self._shown)
        self._root.update()

    def close(self) -> None:
        if self._root is not None:
            root, self._root = self._root, None  # type: ignore[assignment]
            root.destroy()
        self.closed = True

    def _leave(self) -> None:
        self.closed = True


class PygameWindow:
    """A window of pygame."""

    def __init__(self, title: str) -> None:
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        import pygame

        self._pygame: Any = pygame
        pygame.display.init()
        if pygame.display.get_driver() == "dummy":
            raise ConfigError("pygame has no screen here.")
        pygame.display.set_caption(title)
        self._screen: Any = None
        self.closed = False

    def show(self, picture: Image) -> None:
        pygame = self._pygame
        if self.closed:
            return
        size = (picture.shape[1], picture.shape[0])
        if self._screen is None or self._screen.get_size() != size:
            self._screen = pygame.display.set_mode(size)
        self._screen.blit(pygame.image.frombuffer(picture.tobytes(), size, "RGB"), (0, 0))
        pygame.display.flip()
        for event in pygame.event.get():
            leaving = event.type == pygame.KEYDOWN and event.key in (pygame.K_ESCAPE, pygame.K_q)
            self.closed = self.closed or leaving or event.type == pygame.QUIT

    def close(self) -> None:
        self._pygame.display.quit()
        self.closed = True
