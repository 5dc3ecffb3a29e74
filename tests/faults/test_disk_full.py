"""A full disk: training goes on or stops cleanly, nothing is half-written, the last checkpoint stays intact.

The disk is a small tmpfs of our own where that may be mounted (root, or user namespaces); everywhere else, and for
single files, a limit on the size of files (RLIMIT_FSIZE) and /dev/full stand in for it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from holdfast.run import RunDirectory
from holdfast.store.journal import read_lines

SMALL = (
    "--run r --games 4 --fish 6 --learner.steps 16 --hidden 16,16 --minibatch 64 --epochs 1 --updates {} "
    "--checkpoint-every 1 --keep-every 1 --probe.every 0 --probe.episodes 2 --plain --heartbeat.beat-s 0.2"
)
INSIDE = ["unshare", "--mount", "--map-root-user"]


def mountable() -> bool:
    words = [*INSIDE, "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/mnt"]
    try:
        return subprocess.run(words, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


needs_tmpfs = pytest.mark.skipif(not mountable(), reason="a tmpfs cannot be mounted here")


def on_small_disk(disk: Path, size: str, script: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script where `disk` is a file system of this size; what is left on it is copied out."""
    disk.mkdir()
    kept = disk.with_name("kept")
    code = (
        f"mount -t tmpfs -o size={size} tmpfs {disk} || exit 99\n"
        f'holdfast() {{ {sys.executable} -m holdfast "$@"; }}\ncd {disk}\n'
        f"{textwrap.dedent(script)}\ncode=$?\ncp -r {disk} {kept}\nexit $code\n"
    )
    return subprocess.run(
        [*INSIDE, "bash", "-c", code], capture_output=True, text=True, timeout=300
    )


def limited(tmp_path: Path, words: str, prepare: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command in a process in which `prepare` was done first."""
    code = f"import os, resource, sys\n{textwrap.dedent(prepare)}\nfrom holdfast.cli import main\n"
    code += f"sys.exit(main({words.split()!r}))"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=300
    )


def check_run(run: Path) -> list[dict[str, Any]]:
    """Every file of a run is whole: return its sessions."""
    for path in run.glob("*.jsonl"):
        for line in path.read_bytes().splitlines(keepends=True):
            assert line.endswith(b"\n"), path
            json.loads(line)
    for path in run.glob("*.json"):
        json.loads(path.read_text())
    checkpoints = RunDirectory(run).checkpoints().all()
    assert checkpoints
    for checkpoint in checkpoints:
        assert checkpoint.problems() == []
    left = [p for p in run.rglob(".tmp-*") if p.name != ".tmp-"]
    assert left == [], "temporary files were left behind"
    return list(read_lines(run / "sessions.jsonl"))


def test_a_disk_that_fills_up_stops_the_run_cleanly_and_it_resumes_when_there_is_space(
    tmp_path: Path,
) -> None:
    if not mountable():
        pytest.skip("a tmpfs cannot be mounted here")
    done = on_small_disk(
        tmp_path / "disk",
        "2m",
        f"holdfast train shoal {SMALL.format(400)} --no-report",
    )
    assert done.returncode == 5, done.stderr
    assert "No space left on device" in done.stderr and "df -h" in done.stderr
    assert "Traceback" not in done.stderr
    run = tmp_path / "kept" / "runs" / "r"
    check_run(run)
    newest = RunDirectory(run).checkpoints().all()[-1].update
    assert newest > 3
    more = limited(
        tmp_path / "kept", f"resume r --updates {newest + 2} --keep-every 0 --plain --no-report"
    )
    assert more.returncode == 0, more.stderr
    assert f"resumed at update {newest}" in more.stderr
    assert check_run(run)[-1]["reason"] == "finished"


@needs_tmpfs
@pytest.mark.parametrize("space", [0, 40, 90, 150])
def test_a_disk_that_is_full_from_some_moment_on_breaks_nothing(space: int, tmp_path: Path) -> None:
    """Another program takes the space away, all of it or all but some kilobytes, in the middle of a run."""
    done = on_small_disk(
        tmp_path / "disk",
        "8m",
        f"""
        holdfast train shoal {SMALL.format(4000)} --keep-every 0 --no-report &
        while [ ! -d runs/r/checkpoints/u00000003 ]; do sleep 0.02; done
        free=$(df --output=avail -k . | tail -1)
        head -c $(( (free - {space}) * 1024 )) /dev/zero > filler 2>/dev/null
        wait $!
        code=$?
        rm -f filler
        [ $code = 5 ]
        """,
    )
    assert done.returncode == 0, done.stderr
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    check_run(tmp_path / "kept" / "runs" / "r")


@pytest.mark.parametrize("name", ["journal", "metrics", "episodes", "evals"])
def test_a_record_that_cannot_be_written_stops_the_run_with_exit_code_5(
    name: str, tmp_path: Path
) -> None:
    """One file alone may not grow: the limit holds for every file, and this one reaches it first."""
    (tmp_path / "runs" / "r").mkdir(parents=True)
    prepare = f"""
        from holdfast.store import journal
        write = os.write

        def full(fd, data):
            if os.path.basename(os.readlink(f"/proc/self/fd/{{fd}}")) == "{name}.jsonl" and os.fstat(fd).st_size > 400:
                write(fd, bytes(data[:10]))
                raise OSError(28, "No space left on device")
            return write(fd, data)

        os.write = full
    """
    words = f"train shoal {SMALL.format(40)} --no-report --probe.every 2"
    os.rmdir(tmp_path / "runs" / "r")
    done = limited(tmp_path, words, prepare)
    assert done.returncode == 5, done.stderr
    assert f"{name}.jsonl" in done.stderr and "Traceback" not in done.stderr
    check_run(tmp_path / "runs" / "r")


def test_a_checkpoint_that_grows_too_large_leaves_the_one_before(tmp_path: Path) -> None:
    """RLIMIT_FSIZE is set in the third update: from then on no file may grow above 4 kB."""
    prepare = """
        from holdfast.loop import Loop
        save = Loop.save

        def limited_save(loop, force=False):
            if loop.progress.update == 3:
                resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
            return save(loop, force)

        Loop.save = limited_save
    """
    done = limited(tmp_path, f"train shoal {SMALL.format(9)} --no-report", prepare)
    assert done.returncode == 5, done.stderr
    assert "File too large" in done.stderr and "Traceback" not in done.stderr
    run = tmp_path / "runs" / "r"
    check_run(run)
    assert RunDirectory(run).checkpoints().all()[-1].update == 2
    again = limited(tmp_path, "resume r --plain --no-report")
    assert again.returncode == 0, again.stderr


def test_tensorboard_that_cannot_be_written_is_switched_off_and_training_goes_on(
    tmp_path: Path,
) -> None:
    prepare = """
        from tensorboard.summary.writer import record_writer
        record_writer.RecordWriter.write = lambda self, data: (_ for _ in ()).throw(
            OSError(28, "No space left on device"))
    """
    done = limited(tmp_path, f"train shoal {SMALL.format(30)} --no-report", prepare)
    assert done.returncode == 0, done.stderr
    assert "TensorBoard was switched off" in done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert check_run(tmp_path / "runs" / "r")[-1]["reason"] == "finished"


def test_films_plots_and_report_that_cannot_be_written_do_not_cost_the_run(tmp_path: Path) -> None:
    prepare = """
        from holdfast.loop import Loop
        finish = Loop.finish

        def limited_finish(loop):
            finish(loop)
            loop.save(force=True)
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
            loop.save = lambda force=False: None

        Loop.finish = limited_finish
    """
    done = limited(tmp_path, f"train shoal {SMALL.format(3)}", prepare)
    assert "Traceback" not in done.stderr, done.stderr
    run = tmp_path / "runs" / "r"
    assert RunDirectory(run).checkpoints().all()[-1].problems() == []
    assert not list((run).rglob("*.mp4")), "no film is left half-written"


def test_films_of_probes_that_cannot_be_written_are_told_and_training_goes_on(
    tmp_path: Path,
) -> None:
    """No file may grow above a kilobyte while films are written: the encoder itself meets the limit."""
    prepare = """
        import holdfast.probe as probe
        film, most = probe.film_probe, resource.RLIM_INFINITY

        def limited_film(*words):
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, most))
            try:
                film(*words)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

        probe.film_probe = limited_film
    """
    words = f"train shoal {SMALL.format(4)} --no-report --probe.every 2 --probe.clips true"
    done = limited(tmp_path, words, prepare)
    assert done.returncode == 0, done.stderr
    assert "could not be filmed" in done.stderr and "Traceback" not in done.stderr
    assert check_run(tmp_path / "runs" / "r")[-1]["reason"] == "finished"
    assert not list((tmp_path / "runs" / "r").rglob("*.mp4")), "no film is left half-written"
