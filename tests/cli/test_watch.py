"""`holdfast watch` as a user types it: films, replays of evaluations, a run that still trains, and errors."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import av
import pytest
from PIL import Image

from holdfast.errors import StorageError
from holdfast.run import RunDirectory
from holdfast.view.watch import POLL_S, Wish, follow, set_scene

ENV = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}


def holdfast(*words: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=ENV)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("runs")
    config = runs / "small.toml"
    config.write_text(
        "[run]\nupdates = 4\ncheckpoint_every = 2\nkeep_every = 1\nseed = 3\ntensorboard = false\n"
        '[world]\nname = "shoal"\ngames = 4\nfish = 5\nmax_steps = 60\nforce_reset_steps = 0\n'
        "[learner]\nsteps = 32\n"
        '[probe]\nevery = 2\nepisodes = 3\nprotocol = ""\nworld = { fish = 7 }\n'
    )
    done = holdfast("train", str(config), "--run", "r", "--no-report", "--runs-dir", str(runs))
    assert done.returncode == 0, done.stderr
    return runs


def watch(runs: Path, *words: str, code: int = 0) -> tuple[dict[str, Any], str]:
    done = holdfast("watch", *words, "--runs-dir", str(runs), "--json")
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return (json.loads(done.stdout) if code == 0 else {}), done.stderr


def frames(path: str) -> int:
    with av.open(path) as container:
        return sum(1 for _ in container.decode(video=0))


def probes(runs: Path) -> dict[int, dict[str, Any]]:
    lines = (runs / "r" / "evals.jsonl").read_text().splitlines()
    return {probe["update"]: probe for probe in map(json.loads, lines)}


def test_without_a_screen_a_film_is_written_and_its_path_said(runs: Path) -> None:
    record, said = watch(runs, "r", "--checkpoint", "latest")
    assert record["file"].endswith("media/watch-u000004.mp4")
    assert f"film    {record['file']}" in said
    assert "no screen" in said
    assert frames(record["file"]) == 31, "61 moments, every second one"


def test_an_evaluated_seed_shows_the_episode_that_was_measured(runs: Path, tmp_path: Path) -> None:
    for update, probe in probes(runs).items():
        seed, final = probe["seeds"][2], probe["detail"]["final"][2]
        words = ("--checkpoint", str(update), "--seed", str(seed), "--out", str(tmp_path / "a.mp4"))
        record, _ = watch(runs, "r", *words)
        (episode,) = record["episodes"]
        assert (episode["seed"], episode["update"]) == (seed, update)
        assert episode["survival"] == final
        assert episode["final_alive"] == round(7 * final), "the seven fish of the probe"


def test_several_episodes_follow_each_other_in_one_gif(runs: Path, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.gif"
    record, _ = watch(runs, "r", "--episodes", "2", "--seed", "5", "--sampled", "--out", str(path))
    assert [episode["seed"] for episode in record["episodes"]] == [5, 6]
    with Image.open(path) as gif:
        assert gif.n_frames == 42  # type: ignore[attr-defined]


def test_a_finished_run_is_followed_to_its_last_checkpoint(runs: Path, tmp_path: Path) -> None:
    record, said = watch(runs, "r", "--live", "--out", str(tmp_path / "a.mp4"))
    assert [episode["update"] for episode in record["episodes"]] == [4]
    assert "film" in said


def test_a_checkpoint_that_training_removes_meanwhile_is_still_shown(
    runs: Path, tmp_path: Path
) -> None:
    shutil.copytree(runs / "r", tmp_path / "r")
    directory = RunDirectory(tmp_path / "r")
    scene = set_scene(directory, directory.config(), directory.checkpoints().find(None), Wish())
    shutil.rmtree(scene.checkpoint.path)
    assert len(scene.takes()) == 1


@pytest.mark.parametrize("states", [["running"] * 4 + ["finished"], ["finished"]])
def test_a_broken_newest_checkpoint_is_waited_out_or_said(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, states: list[str]
) -> None:
    shutil.copytree(runs / "r", tmp_path / "r")
    directory = RunDirectory(tmp_path / "r")
    (directory.checkpoints().all()[-1].path / "tensors.safetensors").write_bytes(b"torn")
    states, paused, said = states.copy(), [], []
    monkeypatch.setattr(RunDirectory, "state", lambda self: states.pop(0))
    monkeypatch.setattr("holdfast.view.watch.time.sleep", paused.append)
    film = follow(directory, directory.config(), Wish(), pytest.fail, said.append, once=False)
    if states == ["finished"]:
        with pytest.raises(StorageError, match="is broken"):
            list(film)
        return
    assert list(film) == []
    assert paused == [POLL_S] * 4
    assert len(said) == 1 and "is broken" in said[0]


def test_a_running_run_is_followed_from_checkpoint_to_checkpoint(tmp_path: Path) -> None:
    words = (
        "train", "shoal", "--run", "long", "--updates", "100000", "--no-report", "--plain",
        "--games", "4", "--fish", "5", "--steps", "32", "--probe.every", "0", "--checkpoint-every", "5",
        "--stagger", "0", "--runs-dir", str(tmp_path),
    )  # fmt: skip
    trainer = subprocess.Popen(
        [sys.executable, "-m", "holdfast", *words], stderr=subprocess.DEVNULL, env=ENV
    )
    try:
        deadline = time.monotonic() + 120
        while not (tmp_path / "long" / "run.toml").is_file() and time.monotonic() < deadline:
            time.sleep(0.2)
        out = str(tmp_path / "live.mp4")
        record, _ = watch(tmp_path, "long", "--live", "--episodes", "2", "--out", out)
        first, second = (episode["update"] for episode in record["episodes"])
        assert second > first
        assert frames(out) > 10
        assert trainer.poll() is None, "the run goes on"
    finally:
        trainer.send_signal(signal.SIGINT)
        trainer.wait(60)


def test_a_foreign_environment_is_filmed_as_it_draws_itself(tmp_path: Path) -> None:
    done = holdfast(
        "train", "CartPole-v1", "--run", "pole", "--updates", "1", "--steps", "16", "--no-report",
        "--probe.episodes", "2", "--runs-dir", str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    record, said = watch(tmp_path, "pole", "--out", str(tmp_path / "a.mp4"))
    (episode,) = record["episodes"]
    assert episode["return"] == episode["steps"]
    assert f"return {episode['return']:.1f}" in said
    with av.open(record["file"]) as film:
        assert (film.streams.video[0].width, film.streams.video[0].height) == (600, 400)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("r", "--checkpoint", "bets"), 2, "Did you mean 'best'?"),
        (("r", "--checkpoint", "3"), 5, "There are: 0, 2, 4"),
        (("r", "--live", "--checkpoint", "best"), 2, "always takes the newest"),
        (("r", "--episodes", "-1"), 2, "1 or more"),
        (("r", "--seed", "-4"), 2, "0 or more"),
        (("r", "--out", "film.avi"), 2, "allowed endings are .mp4 and .gif"),
        (("r", "--speed", "3"), 2, "'--speed' is not understood"),
        (("q",), 5, "There is no run 'q'"),
    ],
)
def test_what_makes_no_sense_is_said_in_one_line(
    runs: Path, words: tuple[str, ...], code: int, told: str
) -> None:
    _, said = watch(runs, *words, code=code)
    assert told in said


def test_a_run_without_a_checkpoint_says_how_to_wait(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "run.toml").write_text((runs / "r" / "run.toml").read_text())
    _, said = watch(tmp_path, "new", code=5)
    assert "holdfast watch new --live" in said
