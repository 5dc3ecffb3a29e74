"""Files that are either whole or not there.

`write_atomic` and `replace_directory` write beside the target, force the bytes to disk, then rename:
a reader, or a process that is killed at any moment, sees the old content or the new, never a part.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.errors import StorageError

TEMPORARY = ".tmp-"


def fsync_directory(path: Path) -> None:
    """Force the names in a directory to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_synced(path: Path, data: bytes) -> None:
    """Write `data` to a new file and force it to disk."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_atomic(path: Path, data: bytes | str, sync: bool = True) -> None:
    """Replace the file at `path` by `data`; a crash leaves the old file or the new one.

    `sync=False` leaves the moment of writing to the operating system (for a heartbeat).
    """
    content = data.encode() if isinstance(data, str) else data
    temporary = path.with_name(f"{TEMPORARY}{path.name}-{os.getpid()}")
    with storage_errors(path):
        try:
            if sync:
                write_synced(temporary, content)
            else:
                temporary.write_bytes(content)
            os.replace(temporary, path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        if sync:
            fsync_directory(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Replace the file at `path` by `value` as indented JSON."""
    write_atomic(path, json.dumps(value, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """Return the JSON value in a file; a broken file is a StorageError that names it."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise StorageError(f"The file {path} is not there.") from None
    except (ValueError, OSError) as error:
        raise StorageError(f"The file {path} cannot be read as JSON: {error}.") from None


@contextlib.contextmanager
def replace_directory(path: Path) -> Iterator[Path]:
    """Yield a temporary directory that becomes `path` when the block ends without an error.

    The block must sync the files that it writes (`write_synced`).
    """
    temporary = path.with_name(f"{TEMPORARY}{path.name}-{os.getpid()}")
    with storage_errors(path):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        try:
            yield temporary
            fsync_directory(temporary)
            if path.exists():
                remove_directory(path)
            os.rename(temporary, path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        fsync_directory(path.parent)


def remove_directory(path: Path) -> None:
    """Remove a directory so that no reader sees it half gone."""
    doomed = path.with_name(f"{TEMPORARY}gone-{path.name}-{os.getpid()}")
    shutil.rmtree(doomed, ignore_errors=True)
    os.rename(path, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def sweep_temporary(directory: Path) -> None:
    """Remove what killed writers left behind."""
    for leftover in directory.glob(f"{TEMPORARY}*"):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn operating-system errors into a StorageError that names the path."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"Cannot write {path}: {error.strerror or error}. "
            "Check the disk space (df -h) and the permissions of the run directory."
        ) from error
