"""A growing JSONL file in pieces: the newest under the plain name, older ones beside it.

    metrics.000000067108864.jsonl.gz   the bytes before 67,108,864
    metrics.000000134217728.jsonl      the bytes from there to before 134,217,728 (not yet compressed)
    metrics.jsonl                      the rest, open for appending

The number in a name is where the piece ends, counted from the first byte ever written; a piece begins
where that number less its size lies. So a position is one number that rotation and compression do not
change, and old pieces may be deleted by hand without moving the others. A piece ends with a whole line.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import shutil
import struct
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from holdfast.store.files import TEMPORARY, fsync_directory

DIGITS = 15


@dataclass(frozen=True)
class Piece:
    """One full piece; `end` is the position after its last byte."""

    plain: Path
    """Its name without compression; the file may stand there or at `packed`."""
    end: int

    @property
    def packed(self) -> Path:
        """Its name when compressed."""
        return self.plain.with_name(self.plain.name + ".gz")

    def open(self) -> IO[bytes]:
        """Return the piece's bytes as a file, compressed or not."""
        try:
            return open(self.plain, "rb")
        except FileNotFoundError:
            return cast(IO[bytes], gzip.open(self.packed, "rb"))

    def size(self) -> int:
        """Return the number of uncompressed bytes."""
        try:
            return self.plain.stat().st_size
        except FileNotFoundError:
            with open(self.packed, "rb") as file:
                # The last four bytes of a gzip file are the uncompressed size modulo 2^32.
                file.seek(-4, os.SEEK_END)
                return int(struct.unpack("<I", file.read(4))[0])

    @property
    def start(self) -> int:
        """Position of its first byte."""
        return self.end - self.size()

    def remove(self) -> None:
        """Delete the piece."""
        self.plain.unlink(missing_ok=True)
        self.packed.unlink(missing_ok=True)

    def compress(self) -> None:
        """Replace the plain file by a compressed one; a crash leaves one of the two whole."""
        writer = f"{os.getpid()}-{threading.get_ident()}"
        temporary = self.plain.with_name(f"{TEMPORARY}{self.packed.name}-{writer}")
        try:
            with open(self.plain, "rb") as source, open(temporary, "wb") as raw:
                with gzip.GzipFile("", "wb", compresslevel=1, fileobj=raw, mtime=0) as target:
                    shutil.copyfileobj(source, target, 1 << 20)
                raw.flush()
                os.fsync(raw.fileno())
            os.replace(temporary, self.packed)
            fsync_directory(self.plain.parent)
            self.plain.unlink(missing_ok=True)
        except FileNotFoundError:
            return  # another writer has compressed it
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def pieces(path: Path) -> list[Piece]:
    """Return the full pieces of the file `path`, oldest first; the plain file is not among them."""
    pattern = re.compile(re.escape(path.stem) + rf"\.(\d{{{DIGITS}}})" + re.escape(path.suffix))
    ends = set()
    try:
        names = os.listdir(path.parent)
    except FileNotFoundError:
        return []
    for name in names:
        match = pattern.fullmatch(name.removesuffix(".gz"))
        if match:
            ends.add(int(match[1]))
    return [piece_of(path, end) for end in sorted(ends)]


def record_files(run: Path) -> dict[str, Path]:
    """Return the JSONL files of a run by their names without the ending; pieces count to their file."""
    names = {path.name.split(".")[0] for path in run.glob("*.jsonl*") if path.name[0] != "."}
    return {name: run / f"{name}.jsonl" for name in sorted(names)}


def piece_of(path: Path, end: int) -> Piece:
    """Return the piece of the file `path` that ends at `end`."""
    return Piece(path.with_name(f"{path.stem}.{end:0{DIGITS}d}{path.suffix}"), end)


def base(path: Path) -> int:
    """Return the position of the first byte of the plain file."""
    full = pieces(path)
    return full[-1].end if full else 0


def snapshot(path: Path) -> tuple[list[Piece], IO[bytes] | None]:
    """Return all full pieces and the open plain file that follows them (None if it is not there).

    A rotation between the two looks would lose the piece that it made, so they are repeated until
    nothing changed in between.
    """
    before = pieces(path)
    while True:
        try:
            file: IO[bytes] | None = open(path, "rb")  # noqa: SIM115 (the caller closes it)
        except (FileNotFoundError, NotADirectoryError):
            file = None
        after = pieces(path)
        if after == before:
            return after, file
        if file is not None:
            file.close()
        before = after


def raw_lines(path: Path) -> Iterator[bytes]:
    """Yield every whole line of all pieces, oldest first, each with its line end."""
    full, newest = snapshot(path)
    try:
        for piece in full:
            with contextlib.suppress(FileNotFoundError), piece.open() as file:
                yield from file  # one that is gone was deleted by hand
        if newest is not None:
            for line in newest:
                if line.endswith(b"\n"):
                    yield line
    finally:
        if newest is not None:
            newest.close()


def read_from(path: Path, position: int) -> tuple[list[bytes], int]:
    """Return the whole lines from `position` on, and the position after them.

    A file that has become shorter (a resumed run cut it to its checkpoint) goes on from its new end.
    """
    full, newest = snapshot(path)
    lines: list[bytes] = []
    try:
        for piece in full:
            if piece.end <= position:
                continue
            with contextlib.suppress(FileNotFoundError), piece.open() as file:
                file.seek(max(0, position - piece.start))
                lines += file.read().splitlines(keepends=True)
            position = piece.end
        if newest is None:
            return lines, position
        first = full[-1].end if full else 0
        size = os.fstat(newest.fileno()).st_size
        position = min(position, first + size)
        newest.seek(position - first)
        rest = newest.read()
        whole = rest[: rest.rfind(b"\n") + 1]
        return lines + whole.splitlines(keepends=True), position + len(whole)
    finally:
        if newest is not None:
            newest.close()


def end_of(path: Path) -> int:
    """Return the position after the last byte."""
    full, newest = snapshot(path)
    size = 0
    if newest is not None:
        with newest:
            size = os.fstat(newest.fileno()).st_size
    return (full[-1].end if full else 0) + size


def tail(path: Path, count: int) -> tuple[list[bytes], int]:
    """Return the last `count` whole lines and the position after them."""
    full, newest = snapshot(path)
    lines: deque[bytes] = deque(maxlen=count)
    end = full[-1].end if full else 0
    if newest is not None:
        with newest:
            for line in newest:
                if line.endswith(b"\n"):
                    lines.append(line)
                    end += len(line)
    for piece in reversed(full):
        if len(lines) == count:
            break
        with contextlib.suppress(FileNotFoundError), piece.open() as file:
            lines.extendleft(reversed(deque(file, maxlen=count - len(lines))))
    return list(lines), end
