"""Every error that Holdfast raises on purpose, and the exit code that each one means.

    HoldfastError
    ├── ConfigError        2   unknown key, wrong type, value out of range, bad command line
    ├── AssetError         3   a file that the run needs is not there or is not the right one
    ├── GuardStop          4   a guard stopped the run
    ├── StorageError       5   run directory, checkpoint or disk
    ├── EnvironmentFault   6   an environment broke its contract, hung or died
    └── UnsafeFileError    7   a file that could run code was refused

A message has four parts: what happened; where (key, slot, seed, step, file); what is allowed;
what to type next. Exit codes 130 and 143 mean SIGINT and SIGTERM after a clean save.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


class HoldfastError(Exception):
    """Base of all deliberate errors; the command line prints the message without a traceback."""

    exit_code = 1


class ConfigError(HoldfastError):
    """A setting is unknown, has the wrong type, or is out of range."""

    exit_code = 2


class AssetError(HoldfastError):
    """A file that the run needs is missing or is not the expected one."""

    exit_code = 3


class GuardStop(HoldfastError):
    """A guard decided that the run must not go on."""

    exit_code = 4
    directory: Path | None = None
    """The run that was stopped, if it had begun."""


class StorageError(HoldfastError):
    """The run directory, a checkpoint or the disk cannot be used as asked."""

    exit_code = 5


class EnvironmentFault(HoldfastError):
    """An environment broke the world contract, hung, or died."""

    exit_code = 6


class UnsafeFileError(HoldfastError):
    """A file that could execute code when read was refused."""

    exit_code = 7


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ` Did you mean 'x'?` for the closest known word, or an empty string."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" Did you mean '{close[0]}'?" if close else ""
