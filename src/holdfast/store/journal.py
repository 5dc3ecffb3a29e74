"""Append-only JSON lines that a resumed run continues exactly where its checkpoint stood.

A line is one JSON object. `position()` is saved in the checkpoint; `rewind()` cuts what a killed
process wrote after it, because the resumed process writes those lines again, the same.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from holdfast.errors import StorageError
from holdfast.store.files import storage_errors


class Lines:
    """One JSONL file of a run, open for appending."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with storage_errors(path):
            self._file: IO[bytes] = open(path, "ab")  # noqa: SIM115 (open for the whole run)

    def write(self, record: dict[str, Any]) -> None:
        """Append one object as one line."""
        line = json.dumps(plain(record), separators=(",", ":"), allow_nan=False) + "\n"
        with storage_errors(self.path):
            self._file.write(line.encode())

    def flush(self) -> None:
        """Hand buffered lines to the operating system, so that readers see them."""
        with storage_errors(self.path):
            self._file.flush()

    def position(self) -> int:
        """Force all lines to disk and return the size of the file."""
        with storage_errors(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
            return self._file.tell()

    def rewind(self, position: int) -> None:
        """Cut the file to `position` bytes."""
        with storage_errors(self.path):
            self._file.flush()
            size = os.fstat(self._file.fileno()).st_size
            if size < position:
                raise StorageError(
                    f"{self.path} has {size} bytes, but the checkpoint was made after {position}. "
                    "The file was cut by someone else; restore it or resume an older checkpoint."
                )
            os.ftruncate(self._file.fileno(), position)
            self._file.seek(0, os.SEEK_END)

    def close(self) -> None:
        """Flush and close."""
        self._file.close()


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSONL file; a half-written last line is left out."""
    if not path.is_file():
        return
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)


def plain(value: Any) -> Any:
    """Return `value` with NumPy types made plain and non-finite numbers made None."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
