from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from view_recorded import probe, write_lines, write_run

from holdfast.errors import EnvironmentFault, StorageError
from holdfast.learn.normalise import ObsNorm
from holdfast.learn.policy import Policy
from holdfast.learn.restore import policy_from_checkpoint
from holdfast.learn.spec import NetSpec, initial_parameters, spec_for
from holdfast.store.checkpoint import Checkpoint, Checkpoints
from holdfast.store.files import read_json
from holdfast.view import media
from holdfast.view.media import make_media
from holdfast.view.report import write_report
from holdfast.worlds import make_world, options_type


def save(run: Path, spec: NetSpec, update: int = 8) -> Checkpoint:
    rng = np.random.default_rng(0)
    norm = {"mean": rng.normal(size=spec.obs_size), "var": np.ones(spec.obs_size), "count": 3.0}
    learner = {"spec": spec.state(), "parameters": initial_parameters(spec, rng), "norm": norm}
    return Checkpoints(run / "checkpoints").save(update, {"learner": learner}, {}, frozenset())


@pytest.fixture
def shoal_run(tmp_path: Path) -> Path:
    run = write_run(tmp_path / "tiny")
    config = (run / "run.toml").read_text().replace("max_steps = 500", "max_steps = 12")
    (run / "run.toml").write_text(config)
    world = make_world("shoal", options_type("shoal")(games=1, fish=5))
    save(run, spec_for(world.single_observation_space, world.single_action_space, (8,)))
    world.close()
    return run


def test_a_restored_policy_plays_like_the_one_that_was_saved(tmp_path: Path) -> None:
    spec = NetSpec(4, "discrete", nvec=(3,), hidden=(8,))
    checkpoint = save(tmp_path, spec)
    state = checkpoint.load()["learner"]
    norm = ObsNorm(4)
    norm.load_state_dict(state["norm"])
    expected = Policy(spec, state["parameters"], norm)
    policy = policy_from_checkpoint(checkpoint)
    obs = np.random.default_rng(1).normal(size=(64, 4)).astype(np.float32)
    assert policy.spec == spec
    assert np.array_equal(policy.act(obs), expected.act(obs))
    assert np.array_equal(policy.values(obs), expected.values(obs))


def test_a_checkpoint_without_a_learner_is_refused_with_its_parts(tmp_path: Path) -> None:
    checkpoint = Checkpoints(tmp_path).save(1, {"progress": {"update": 1}}, {}, frozenset())
    with pytest.raises(StorageError, match="Its parts are: progress"):
        policy_from_checkpoint(checkpoint)


def test_the_best_policy_is_filmed_in_its_median_best_and_worst_episode(shoal_run: Path) -> None:
    more = {**probe(8, 0.8), "seeds": [11, 22, 33]}
    more["detail"] = {"final": [0.4, 1.0, 0.8]}
    write_lines(shoal_run / "evals.jsonl", [more, probe(12, 0.5)])
    made = {p.name for p in make_media(shoal_run)}
    assert made == {"episode.gif", "episode.mp4", "best.mp4", "worst.mp4"}
    clips = {c["rank"]: c for c in read_json(shoal_run / "media" / "clips.json")}
    assert {rank: c["seed"] for rank, c in clips.items()} == {"median": 33, "best": 22, "worst": 11}
    assert re.fullmatch(r"\d+\.0% of the fish alive", clips["worst"]["outcome"])
    assert clips["best"]["update"] == 8
    assert clips["worst"]["replay"] == "holdfast watch tiny --checkpoint 8 --seed 11"
    with Image.open(shoal_run / "media" / "episode.gif") as image:
        assert image.n_frames > 1
    assert write_report(shoal_run).read_text().count("data:video/mp4;base64,") == 3


@pytest.mark.parametrize("error", [EnvironmentFault, ZeroDivisionError])
def test_after_a_film_that_fails_only_new_films_are_told_of(
    shoal_run: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    more = {**probe(8, 0.8), "seeds": [11, 22, 33], "detail": {"final": [0.4, 1.0, 0.8]}}
    write_lines(shoal_run / "evals.jsonl", [more])
    make_media(shoal_run)
    write, said = media._write, []

    def fail_in_the_second(spec: Any, take: Any, folder: Path, name: str, title: str) -> list[Path]:
        if name != "worst":
            raise error("the pen broke")
        return write(spec, take, folder, name, title)

    monkeypatch.setattr(media, "_write", fail_in_the_second)
    if error is EnvironmentFault:
        assert [path.name for path in make_media(shoal_run, said.append)] == ["worst.mp4"]
        assert said == ["not all films: the pen broke"]
    else:
        with pytest.raises(ZeroDivisionError):
            make_media(shoal_run)
    assert [clip["name"] for clip in read_json(shoal_run / "media" / "clips.json")] == ["worst"]


def test_films_are_of_the_probe_not_of_the_training_world(shoal_run: Path) -> None:
    config = (shoal_run / "run.toml").read_text()
    (shoal_run / "run.toml").write_text(config + "[probe]\nworld = { fish = 9 }\n")
    (shoal_run / "evals.jsonl").write_text("")
    make_media(shoal_run)
    (clip,) = read_json(shoal_run / "media" / "clips.json")
    assert clip["name"] == "episode"
    alive = float(clip["outcome"].split("%")[0]) / 100
    assert alive * 9 == pytest.approx(round(alive * 9), abs=0.01)


def test_a_broken_best_checkpoint_is_passed_over(shoal_run: Path) -> None:
    good = Checkpoints(shoal_run / "checkpoints").all()[0]
    save(shoal_run, NetSpec.from_state(good.load()["learner"]["spec"]), update=4)
    (good.path / "state.json").write_text("{}")
    assert make_media(shoal_run)
    assert read_json(shoal_run / "media" / "clips.json")[0]["update"] == 4


def test_a_run_without_checkpoints_has_no_clips(tmp_path: Path) -> None:
    assert make_media(write_run(tmp_path / "tiny")) == []
    assert make_media(tmp_path) == []
