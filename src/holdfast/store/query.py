"""SQL over the record files of a run, by DuckDB; every JSONL file is a table of its name."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import AssetError, ConfigError
from holdfast.store.pieces import end_of, pieces, record_files


@dataclass(frozen=True)
class Answer:
    """Columns and rows of a query."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def query(run: Path, sql: str) -> Answer:
    """Return what a query over the run's tables gives."""
    if importlib.util.find_spec("duckdb") is None:
        raise AssetError(
            "SQL over a run needs DuckDB, which is not installed. Type: pip install 'holdfast[report]'"
        )
    duckdb = importlib.import_module("duckdb")
    files = {name: path for name, path in record_files(run).items() if end_of(path) > 0}
    with duckdb.connect(":memory:") as database:
        try:
            for name, path in files.items():
                database.execute(f'CREATE VIEW "{name}" AS {select(path)}')
            found = database.execute(sql)
            if found is None:  # nothing but blanks and comments
                raise ConfigError(
                    f"The query {sql!r} asks for nothing. Type for example: "
                    f"holdfast metrics query {run.name} 'SELECT count(*) FROM metrics'"
                )
            columns = tuple(str(column[0]) for column in found.description or ())
            return Answer(columns, [tuple(row) for row in found.fetchall()] if columns else [])
        except duckdb.Error as error:
            raise ConfigError(
                f"The query failed: {error}\nTables of '{run.name}': {', '.join(files) or 'none'}. Names with "
                "a slash stand in double quotes. For the columns of a table, type: "
                f"holdfast metrics query {run.name} 'DESCRIBE metrics'"
            ) from None


def select(path: Path) -> str:
    """Return the SQL that reads a JSONL file with all its pieces."""
    paths = [p.plain if p.plain.is_file() else p.packed for p in pieces(path)]
    if path.is_file() and path.stat().st_size > 0:
        paths.append(path)
    names = ", ".join("'" + str(p).replace("'", "''") + "'" for p in paths)
    # A killed process may leave half a line: that one is ignored. All lines are looked at for the types.
    return (
        f"SELECT * FROM read_json([{names}], format = 'newline_delimited', union_by_name = true, "
        "ignore_errors = true, sample_size = -1, maximum_object_size = 67108864)"
    )
