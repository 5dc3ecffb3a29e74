"""Signals of the operating system that ask a process to stop."""

from __future__ import annotations

import contextlib
import signal
from abc import ABC, abstractmethod
from types import FrameType
from typing import Any, ClassVar, Self


class Listener(ABC):
    """Hears some signals while its `with` block runs; afterwards they mean what they meant before."""

    numbers: ClassVar[tuple[signal.Signals, ...]] = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self._old: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in self.numbers:
            with contextlib.suppress(ValueError):  # not the main thread: the caller handles signals
                self._old[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    @abstractmethod
    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Take note of one signal."""
