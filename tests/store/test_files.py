from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from holdfast.errors import StorageError
from holdfast.store.files import (
    read_json,
    replace_directory,
    sweep_temporary,
    write_atomic,
    write_json,
    write_synced,
)


def test_an_atomic_write_replaces_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    write_json(path, {"b": 2})
    assert read_json(path) == {"b": 2}
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_file_is_forced_to_disk_before_it_takes_its_name(tmp_path: Path, monkeypatch) -> None:
    done: list[str] = []

    def kind(handle: int) -> str:
        return "directory" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file"

    fsync, replace, rename = os.fsync, os.replace, os.rename
    monkeypatch.setattr(os, "fsync", lambda h: (done.append(kind(h)), fsync(h)))
    monkeypatch.setattr(os, "replace", lambda *a: (done.append("named"), replace(*a)))
    monkeypatch.setattr(os, "rename", lambda *a: (done.append("named"), rename(*a)))
    write_atomic(tmp_path / "a.txt", "text")
    assert done == ["file", "named", "directory"]
    done.clear()
    with replace_directory(tmp_path / "folder") as temporary:
        write_synced(temporary / "a", b"bytes")
    assert done == ["file", "directory", "named", "directory"]


def test_a_failed_write_leaves_the_old_file_and_no_temporary(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "a.txt"
    write_atomic(path, "old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(StorageError, match="No space left"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_directory_appears_only_when_its_block_succeeds(tmp_path: Path) -> None:
    target = tmp_path / "u1"
    with pytest.raises(RuntimeError), replace_directory(target) as temporary:
        write_synced(temporary / "x", b"1")
        raise RuntimeError
    assert os.listdir(tmp_path) == []
    with replace_directory(target) as temporary:
        write_synced(temporary / "x", b"1")
        assert not target.exists()
    assert (target / "x").read_bytes() == b"1"


def test_a_directory_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "u1"
    for content in (b"1", b"2"):
        with replace_directory(target) as temporary:
            write_synced(temporary / "x", content)
    assert (target / "x").read_bytes() == b"2"
    assert os.listdir(tmp_path) == ["u1"]


def test_leftovers_of_killed_writers_are_swept(tmp_path: Path) -> None:
    (tmp_path / ".tmp-u1-99").mkdir()
    (tmp_path / ".tmp-LATEST-99").write_text("")
    (tmp_path / "u1").mkdir()
    sweep_temporary(tmp_path)
    assert os.listdir(tmp_path) == ["u1"]


def test_a_broken_json_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(StorageError, match=r"a\.json"):
        read_json(tmp_path / "a.json")
