"""Append-only JSON lines that a resumed run continues exactly where its checkpoint stood.

A line is one JSON object. `position()` is saved in the checkpoint; `rewind()` cuts what a killed
process wrote after it, because the resumed process writes those lines again, the same.

Several threads and processes may append to one file: whole lines are handed over under the file's lock
(flock), so that none is torn or lost. A file that has grown to `rotate_bytes` is renamed under that lock
and a new one begun (see pieces.py); older pieces are compressed by a thread of the writer's. `read_lines`
reads all pieces as one file.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.errors import StorageError
from holdfast.store.files import fsync_directory, storage_errors, write_synced
from holdfast.store.pieces import base, piece_of, pieces, raw_lines

BUFFER = 1 << 16
"""Bytes that are held back at most before they are handed to the operating system."""
ROTATE_BYTES = 64 << 20
"""Size at which the record files of a run begin a new piece."""


class Lines:
    """One JSONL file of a run, open for appending; `rotate_bytes` 0 keeps it in one piece."""

    def __init__(self, path: Path, rotate_bytes: int = 0, compress: bool = True) -> None:
        self.path, self.rotate_bytes, self.compress = path, rotate_bytes, compress
        self._lock = threading.Lock()
        self._held = bytearray()
        self._packer: threading.Thread | None = None
        with storage_errors(path):
            self._handle = self._open()

    def write(self, record: dict[str, Any]) -> None:
        """Append one object as one line."""
        line = json.dumps(plain(record), separators=(",", ":"), allow_nan=False) + "\n"
        self.write_text(line)

    def write_text(self, line: str) -> None:
        """Append one line that is JSON already and ends with a line end."""
        with self._lock:
            self._held += line.encode()
            if len(self._held) >= BUFFER:
                with storage_errors(self.path):
                    self._hand_over()

    def flush(self) -> None:
        """Hand buffered lines to the operating system, so that readers see them."""
        with self._lock, storage_errors(self.path):
            self._hand_over()

    def position(self) -> int:
        """Force all lines to disk and return how many bytes were ever written."""
        with self._lock, storage_errors(self.path):
            self._hand_over()
            with self._newest():
                os.fsync(self._handle)
                return base(self.path) + os.fstat(self._handle).st_size

    def rewind(self, position: int) -> None:
        """Cut everything after `position` bytes; the piece that it lies in becomes the newest."""
        with self._lock, storage_errors(self.path):
            self._held.clear()
            self._wait_for_packer()
            with self._newest():
                self._cut(position)

    def close(self) -> None:
        """Hand over what is left, wait for compression, and close."""
        with self._lock:
            if self._handle < 0:
                return
            try:
                self._hand_over()
            finally:
                self._wait_for_packer()
                os.close(self._handle)
                self._handle = -1

    def _open(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)

    def _hand_over(self) -> None:
        if not self._held:
            return
        with self._newest():
            before = self._cut_torn_end()
            try:
                with memoryview(self._held) as view:
                    done = 0
                    while done < len(view):
                        done += os.write(self._handle, view[done:])
            except OSError:
                os.ftruncate(self._handle, before)
                raise
            self._held.clear()
            if 0 < self.rotate_bytes <= os.fstat(self._handle).st_size:
                self._rotate()

    @contextlib.contextmanager
    def _newest(self) -> Iterator[None]:
        """Hold the lock of the file that bears the plain name now; another process may have rotated."""
        while True:
            fcntl.flock(self._handle, fcntl.LOCK_EX)
            if same_file(self._handle, self.path):
                break
            os.close(self._handle)
            self._handle = self._open()
        try:
            yield
        finally:
            fcntl.flock(self._handle, fcntl.LOCK_UN)

    def _cut_torn_end(self) -> int:
        """Cut a last line without an end, which only a killed writer leaves; return the size."""
        size = os.fstat(self._handle).st_size
        if size == 0 or os.pread(self._handle, 1, size - 1) == b"\n":
            return size
        end = size
        while end > 0:
            first = max(0, end - BUFFER)
            found = os.pread(self._handle, end - first, first).rfind(b"\n")
            if found >= 0:
                end = first + found + 1
                break
            end = first
        os.ftruncate(self._handle, end)
        return end

    def _rotate(self) -> None:
        os.fsync(self._handle)
        end = base(self.path) + os.fstat(self._handle).st_size
        os.rename(self.path, piece_of(self.path, end).plain)
        fresh = self._open()
        fcntl.flock(fresh, fcntl.LOCK_EX)
        os.close(self._handle)
        self._handle = fresh
        fsync_directory(self.path.parent)
        if self.compress and (self._packer is None or not self._packer.is_alive()):
            self._packer = threading.Thread(target=self._pack, name="compress", daemon=True)
            self._packer.start()

    def _pack(self) -> None:
        for piece in pieces(self.path):
            try:
                piece.compress()
            except OSError:
                return  # a full disk: the piece stays as it is, and whole

    def _wait_for_packer(self) -> None:
        if self._packer is not None:
            self._packer.join()

    def _cut(self, position: int) -> None:
        first = base(self.path)
        size = os.fstat(self._handle).st_size
        if position < first:
            self._reopen_piece(position)
            return
        if first + size < position:
            raise StorageError(
                f"{self.path} has {first + size} bytes, but the checkpoint was made after {position}. "
                "The file was cut by someone else; restore it from a backup, or start a new run under another name."
            )
        os.ftruncate(self._handle, position - first)

    def _reopen_piece(self, position: int) -> None:
        """Make the piece that holds `position` the newest one again, cut there.

        Whatever moment a crash picks, the piece is still there, and doing it again ends the same.
        """
        later = [piece for piece in pieces(self.path) if piece.end > position]
        holder = later[0]
        kept = b""
        if position > 0:
            if holder.start > position:
                raise StorageError(
                    f"The lines of {self.path.name} before byte {holder.start} are not there, but the "
                    f"checkpoint was made after {position}. Restore the deleted pieces "
                    f"({self.path.stem}.*{self.path.suffix}*), or resume a newer checkpoint."
                )
            with holder.open() as file:
                kept = file.read(position - holder.start)
        for piece in reversed(later[1:]):
            piece.remove()
        fresh = self.path.with_name(f"{self.path.name}.rewound")
        write_synced(fresh, kept)
        os.replace(fresh, self.path)
        holder.remove()
        fsync_directory(self.path.parent)
        os.close(self._handle)
        self._handle = self._open()


def same_file(handle: int, path: Path) -> bool:
    """Return whether the open file still bears the name `path`."""
    try:
        named = os.stat(path)
    except FileNotFoundError:
        return False
    mine = os.fstat(handle)
    return (named.st_ino, named.st_dev) == (mine.st_ino, mine.st_dev)


def read_lines(path: Path, strict: bool = True) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSONL file and its older pieces; a half-written last line is left out.

    Unless `strict`, lines that are no JSON object are left out too.
    """
    for line in raw_lines(path):
        try:
            found = json.loads(line)
        except ValueError:
            if strict:
                raise StorageError(
                    f"{path} holds a line that is not JSON: {line[:80]!r}. Remove the line, or restore "
                    "the file from a backup."
                ) from None
            continue
        if strict or isinstance(found, dict):
            yield found


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
