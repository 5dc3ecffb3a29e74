"""A record file in pieces: no line is lost, torn or doubled, whoever writes, rotates, resumes or dies."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import StorageError
from holdfast.store.journal import Lines, read_lines
from holdfast.store.metrics import follow
from holdfast.store.pieces import Piece, base, end_of, pieces, tail

WRITER = """
import sys
from pathlib import Path
from holdfast.store.journal import Lines
path, name, count, every = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
lines = Lines(path, rotate_bytes=20_000)
for n in range(count):
    lines.write({"writer": name, "n": n, "text": "x" * (n % 97)})
    if n % every == 0:
        lines.flush()
    if n == 50:
        print("well under way", flush=True)
lines.close()
"""


def writer(path: Path, name: str, count: int, every: int = 7) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", WRITER, str(path), name, str(count), str(every)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def by_writer(path: Path) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for line in read_lines(path):
        found.setdefault(line["writer"], []).append(line["n"])
    return found


def filled(path: Path, count: int, compress: bool = True) -> tuple[Lines, list[int]]:
    """Return the file with `count` lines in several pieces, and the position after each line."""
    lines = Lines(path, rotate_bytes=500, compress=compress)
    positions = []
    for n in range(count):
        lines.write({"n": n, "text": "y" * (n % 31)})
        positions.append(lines.position())
    return lines, positions


def numbers(path: Path) -> list[int]:
    return [line["n"] for line in read_lines(path)]


def test_pieces_read_as_one_file_and_old_ones_are_compressed(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    lines, _ = filled(path, 100)
    lines.close()
    assert numbers(path) == list(range(100))
    full = pieces(path)
    assert len(full) >= 5
    assert all(piece.packed.is_file() and not piece.plain.is_file() for piece in full)
    with gzip.open(full[0].packed) as file:
        assert json.loads(next(file))["n"] == 0
    assert [p.start for p in full] == [0, *(p.end for p in full[:-1])]
    assert path.stat().st_size < 500


def test_a_position_counts_all_bytes_ever_written(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    lines, positions = filled(path, 60, compress=False)
    lines.close()
    sizes = [len(line) for line in tail(path, 60)[0]]
    assert positions == [sum(sizes[: n + 1]) for n in range(60)]
    assert end_of(path) == positions[-1] == base(path) + path.stat().st_size


@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize("kept", [0, 1, 17, 42, 59, 60])
def test_rewinding_reaches_back_into_any_piece(tmp_path: Path, kept: int, compress: bool) -> None:
    path = tmp_path / "m.jsonl"
    lines, positions = filled(path, 60, compress)
    lines.rewind(positions[kept - 1] if kept else 0)
    assert numbers(path) == list(range(kept))
    for n in range(kept, 60):
        lines.write({"n": n, "text": "y" * (n % 31)})
    assert lines.position() == positions[-1]
    lines.close()
    assert numbers(path) == list(range(60))


def test_a_position_after_the_end_is_refused(tmp_path: Path) -> None:
    lines, positions = filled(tmp_path / "m.jsonl", 60)
    with pytest.raises(StorageError, match="cut by someone else"):
        lines.rewind(positions[-1] + 1)
    lines.close()


def test_rewinding_to_deleted_pieces_says_which_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    lines, positions = filled(path, 60, compress=False)
    for piece in pieces(path)[:2]:
        piece.remove()
    with pytest.raises(StorageError, match=r"before byte \d+ are not there"):
        lines.rewind(positions[1])
    lines.rewind(positions[40])
    lines.close()
    assert numbers(path)[-1] == 40


@pytest.mark.parametrize("dies_at", range(8))
def test_a_rewind_that_dies_halfway_can_be_done_again(
    tmp_path: Path, dies_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.jsonl"
    lines, positions = filled(path, 60)
    lines.close()  # waits for the thread that compresses: only what the rewind does is counted
    lines = Lines(path, rotate_bytes=500)
    calls = 0

    def counted(real: Any) -> Any:
        def call(*words: Any) -> Any:
            nonlocal calls
            if calls == dies_at:
                raise KeyboardInterrupt
            calls += 1
            return real(*words)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(Piece, "remove", counted(Piece.remove))
        patch.setattr(os, "replace", counted(os.replace))
        try:
            lines.rewind(positions[10])
        except KeyboardInterrupt:
            pass
        else:
            assert calls <= dies_at
    again = Lines(path, rotate_bytes=500)
    again.rewind(positions[10])
    again.close()
    assert numbers(path) == list(range(11))
    assert end_of(path) == positions[10]


def test_four_processes_that_write_and_rotate_lose_no_line(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.touch()
    names = ["a", "b", "c", "d"]
    processes = [
        writer(path, name, 2000, every) for name, every in zip(names, (1, 3, 7, 50), strict=True)
    ]
    followed = list(follow(path, lambda: any(p.poll() is None for p in processes), 0))
    for process in processes:
        process.communicate()
    assert [p.returncode for p in processes] == [0] * 4
    found = by_writer(path)
    assert found == {name: list(range(2000)) for name in names}
    assert len(pieces(path)) > 10
    by_follow: dict[str, list[int]] = {}
    for line in followed:
        by_follow.setdefault(line["writer"], []).append(line["n"])
    assert by_follow == found


def test_threads_of_one_process_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    lines = Lines(path, rotate_bytes=10_000)

    def work(name: str) -> None:
        for n in range(1000):
            lines.write({"writer": name, "n": n})
            if n % 11 == 0:
                lines.flush()

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines.close()
    assert by_writer(path) == {name: list(range(1000)) for name in "ab"}


def test_killed_writers_leave_whole_lines_and_stop_nobody(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    steady = writer(path, "steady", 20_000)
    for turn in range(8):
        victim = writer(path, f"v{turn}", 10**9, every=1)
        assert victim.stdout is not None
        victim.stdout.readline()
        time.sleep(0.03)
        victim.send_signal(signal.SIGKILL)
        victim.communicate()
    steady.communicate()
    assert steady.returncode == 0
    found = by_writer(path)
    assert found.pop("steady") == list(range(20_000))
    assert len(found) == 8
    for name, seen in found.items():
        assert seen == list(range(len(seen))), name


def test_the_torn_end_of_a_killed_writer_is_cut_by_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"n": 1}\n{"n": 2, "text": "' + "z" * 200_000)
    lines = Lines(path)
    lines.write({"n": 3})
    lines.close()
    assert numbers(path) == [1, 3]
    path.write_text('{"n": 2, "text": "')
    lines = Lines(path)
    lines.write({"n": 4})
    lines.close()
    assert numbers(path) == [4]


FULL = """
import json, resource, sys
from pathlib import Path
from holdfast.errors import StorageError
from holdfast.store.journal import Lines
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
lines = Lines(Path(sys.argv[1]))
n = 0
try:
    while True:
        lines.write({"n": n, "text": "x" * 300})
        lines.flush()
        n += 1
except StorageError as error:
    print(json.dumps({"n": n, "said": str(error)}))
try:
    lines.close()
except OSError:
    pass
"""


def test_a_full_disk_leaves_whole_lines_and_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, check=True
    )
    told = json.loads(done.stdout)
    assert "Cannot write" in told["said"] and "df -h" in told["said"]
    assert path.read_bytes().endswith(b"\n")
    assert numbers(path) == list(range(told["n"]))


def test_following_goes_on_over_rotations_and_cuts(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    lines, positions = filled(path, 30)
    steps = iter(
        [
            lambda: [lines.write({"n": n}) for n in range(100, 160)],
            lambda: lines.rewind(positions[-1]),
            lambda: lines.write({"n": 7}),
        ]
    )

    def alive() -> bool:
        step = next(steps, None)
        if step is not None:
            step()
            lines.flush()
        return step is not None

    seen = [line["n"] for line in follow(path, alive, end_of(path))]
    lines.close()
    assert seen == [*range(100, 160), 7]


@pytest.mark.parametrize("count", [0, 1, 5, 40, 99])
def test_the_tail_reaches_over_pieces(tmp_path: Path, count: int) -> None:
    path = tmp_path / "m.jsonl"
    lines, positions = filled(path, 60)
    lines.close()
    found, end = tail(path, count)
    assert [json.loads(line)["n"] for line in found] == list(range(60))[max(0, 60 - count) :]
    assert end == positions[-1]


def test_a_line_that_is_no_json_is_named_or_left_out(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"n": 1}\nnonsense\n[3]\n{"n": 2}\n')
    with pytest.raises(StorageError, match="nonsense"):
        list(read_lines(path))
    assert [line["n"] for line in read_lines(path, strict=False)] == [1, 2]
