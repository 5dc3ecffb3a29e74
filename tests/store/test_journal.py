from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from holdfast.errors import StorageError
from holdfast.store.journal import Lines, read_lines


def test_rewinding_cuts_what_was_written_after_the_position(tmp_path: Path) -> None:
    lines = Lines(tmp_path / "j.jsonl")
    lines.write({"n": 1})
    position = lines.position()
    lines.write({"n": 2})
    lines.flush()
    lines.rewind(position)
    lines.write({"n": 3})
    lines.close()
    assert [r["n"] for r in read_lines(tmp_path / "j.jsonl")] == [1, 3]


def test_a_half_written_last_line_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "j.jsonl").write_text('{"n": 1}\n{"n": ')
    assert [r["n"] for r in read_lines(tmp_path / "j.jsonl")] == [1]


def test_numpy_values_become_plain_and_nan_becomes_null(tmp_path: Path) -> None:
    lines = Lines(tmp_path / "j.jsonl")
    lines.write({"a": np.float32(1.5), "b": np.arange(2), "c": float("nan"), "d": (1, 2)})
    lines.close()
    assert next(iter(read_lines(tmp_path / "j.jsonl"))) == {
        "a": 1.5,
        "b": [0, 1],
        "c": None,
        "d": [1, 2],
    }


def test_a_file_shorter_than_the_checkpoint_says_so(tmp_path: Path) -> None:
    lines = Lines(tmp_path / "j.jsonl")
    with pytest.raises(StorageError, match="was made after 99"):
        lines.rewind(99)
    lines.close()
