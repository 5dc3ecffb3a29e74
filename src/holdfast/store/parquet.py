"""The record files of a run as Parquet: `parquet/<kind>.parquet`, one column a field.

Numbers, words and truth values become columns of their type (whole and broken numbers mixed: double); lists
and objects become JSON text. A column that a line lacks is null there. Needs pyarrow (the extra `report`).
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from holdfast.errors import AssetError, StorageError
from holdfast.store.files import TEMPORARY, fsync_directory, storage_errors
from holdfast.store.journal import read_lines
from holdfast.store.pieces import end_of, record_files

FOLDER = "parquet"
BATCH = 5000
"""Lines that are turned into columns at a time."""
LARGE = 1 << 30
"""Bytes of JSON lines above which the files are not written when a run is closed, only on demand."""

Kind = type[int] | type[float] | type[bool] | type[str] | None


def write_parquet(run: Path) -> dict[str, int]:
    """Write one Parquet file a kind and return how many lines each holds; old files are replaced."""
    if importlib.util.find_spec("pyarrow") is None:
        raise AssetError(
            "Parquet files need pyarrow, which is not installed. Type: pip install 'holdfast[report]'"
        )
    return {
        name: write_columns(source, run / FOLDER / f"{name}.parquet")
        for name, source in record_files(run).items()
        if end_of(source) > 0
    }


def parquet_on_close(run: Path, warn: Callable[[str], None]) -> None:
    """Write the Parquet files if pyarrow is installed and the run is not too large; failures are told."""
    if importlib.util.find_spec("pyarrow") is None:
        return
    size = sum(map(end_of, record_files(run).values()))
    if size > LARGE:
        warn(
            f"The records are {size / 2**30:.1f} GiB, so no Parquet files were written. For them, type: "
            f"holdfast metrics parquet {run.name}"
        )
        return
    try:
        write_parquet(run)
    except Exception as error:  # columns are a convenience; the lines are on disk
        warn(f"The Parquet files could not be written: {type(error).__name__}: {error}")


def write_columns(source: Path, target: Path) -> int:
    """Write all lines of a JSONL file and its pieces as one Parquet file; return how many."""
    arrow = importlib.import_module("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    types = {
        int: arrow.int64(),
        float: arrow.float64(),
        bool: arrow.bool_(),
        str: arrow.string(),
        None: arrow.float64(),
    }
    kinds = columns(read_lines(source, strict=False))
    schema = arrow.schema([(name, types[kind]) for name, kind in kinds.items()])
    temporary = target.with_name(f"{TEMPORARY}{target.name}-{os.getpid()}")
    count = 0
    with storage_errors(target):
        target.parent.mkdir(exist_ok=True)
        try:
            with parquet.ParquetWriter(temporary, schema, compression="zstd") as writer:
                rows = read_lines(source, strict=False)
                while batch := list(islice(rows, BATCH)):
                    data = {n: [cell(row.get(n), k) for row in batch] for n, k in kinds.items()}
                    writer.write_table(arrow.table(data, schema=schema))
                    count += len(batch)
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
        fsync_directory(target.parent)
    return count


def columns(rows: Iterator[dict[str, Any]]) -> dict[str, Kind]:
    """Return the type of every field that occurs; None where every value is null."""
    kinds: dict[str, Kind] = {}
    for row in rows:
        for name, value in row.items():
            if value is None:
                kinds.setdefault(name, None)
                continue
            kind: Kind = type(value) if isinstance(value, bool | int | float | str) else str
            if kind is int and not -(2**63) <= value < 2**63:
                kind = float
            kinds[name] = _joined(kinds.get(name), kind)
    if not kinds:
        raise StorageError("There are no lines to make columns of.")
    return kinds


def cell(value: Any, kind: Kind) -> Any:
    """Return a value as the type of its column."""
    if value is None or kind is None:
        return None
    if kind is float:
        return float(value)
    if kind is str:
        return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    return value


def _joined(old: Kind, new: Kind) -> Kind:
    if old is None or old is new:
        return new
    return float if {old, new} == {int, float} else str
