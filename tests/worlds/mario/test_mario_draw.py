"""Pictures, films and the probe of the mario world."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

import holdfast
from holdfast.errors import ConfigError
from holdfast.probes import mario as probe
from holdfast.probes.clips import takes_of
from holdfast.probes.headlines import headline
from holdfast.probes.mario import metric_names
from holdfast.probes.runner import METRICS, ProbeSpec, run_probe
from holdfast.records import Start
from holdfast.run import RunDirectory
from holdfast.store.journal import read_lines
from holdfast.store.media import write_film
from holdfast.view.watch import Wish, set_scene
from holdfast.worlds.mario import MarioOptions, MarioWorld, draw
from holdfast.worlds.mario.starts import stage_start

OPTIONS = MarioOptions(observation="tiles", noops=0)


class Runner:
    """Runs to the right, always."""

    def act(self, obs: Any, rng: Any = None) -> Any:
        return np.full(len(obs), 1)


def test_a_film_shows_the_episode_frame_by_frame_and_says_how_it_ended(tmp_path: Path) -> None:
    film = draw.film_episode(OPTIONS, Start(seed=1), Runner().act)
    assert film.episode is not None and film.episode.ended == "death_enemy"
    assert film.rate == 60 and film.length == 4 * film.episode.steps == 4 * len(film.shots)
    pictures = list(film.pictures(size=256, every=2))
    assert len(pictures) == 2 * film.episode.steps + 1, "every second frame and the last"
    assert pictures[0].shape == (262, 256, 3)
    mp4 = write_film(tmp_path / "a.mp4", pictures)
    with av.open(str(mp4)) as container:
        assert sum(1 for _ in container.decode(video=0)) == len(pictures)
    gif = write_film(tmp_path / "a.gif", pictures[::4])
    with Image.open(gif) as image:
        assert image.n_frames > 5  # type: ignore[attr-defined]


def test_the_same_frames_are_drawn_whatever_is_left_out_between_them() -> None:
    film = draw.film_episode(OPTIONS, Start(seed=1), Runner().act, max_steps=6)
    everything = list(film.pictures(size=256))
    assert len(everything) == 24
    for k, picture in zip((0, 5, 10, 15, 20, 23), film.pictures(size=256, every=5), strict=True):
        np.testing.assert_array_equal(picture, everything[k])


def test_values_run_in_a_strip_under_the_picture() -> None:
    world = MarioWorld(OPTIONS, seed=1)
    camera = draw.Camera(world, [3])
    world.reset(seed=list(range(16)))
    episodes: dict[int, Any] = {}
    step = 0
    while 3 not in episodes:
        camera.look()
        camera.chose(np.ones(16, np.int64), np.full(16, 0.1 * step, np.float32))
        info = world.step(np.ones(16, np.int64))[4]
        episodes.update({e.game: e for e in info.get("episodes", ())})
        step += 1
    film = camera.film(3, episodes[3])
    assert [shot.value for shot in film.shots[:3]] == pytest.approx([0.0, 0.1, 0.2])
    assert film.shots[0].action == "RIGHT"
    first, *_, last = film.pictures(size=256, every=8)
    assert first.shape == (262 + draw.CHART, 256, 3)
    bright = lambda image: (image[262:, :, 1] > 200).sum()  # noqa: E731
    assert bright(last) > bright(first) + 100, "the curve grows"


def test_filming_does_not_change_the_game() -> None:
    film = draw.film_episode(OPTIONS, Start(seed=1), Runner().act)
    world = MarioWorld(MarioOptions(games=1, observation="tiles", noops=0), seed=1)
    episodes: list[Any] = []
    while not episodes:
        episodes = world.step(np.array([1]))[4].get("episodes", [])
    assert film.episode is not None
    assert episodes[0].facts == film.episode.facts


def test_a_picture_has_the_colours_of_the_stage() -> None:
    world = MarioWorld(OPTIONS, seed=1)
    before = world.get_state()["nes_ram"]
    image = draw.frame_of(world, 0, scale=1)
    np.testing.assert_array_equal(before, world.get_state()["nes_ram"])
    assert image[60, 128].tolist() == [104, 136, 252], "sky"
    tiles = draw.tile_image(world.observe()[0][0], cell=8)
    assert tiles.shape == (13 * 8, 16 * 8, 3)


def test_the_probe_counts_clears_deaths_and_places() -> None:
    spec = ProbeSpec("mario", OPTIONS, seeds=(1, 2, 3))
    report = run_probe(spec, Runner())
    assert headline("mario").metric == "clear_rate"
    assert set(report.metrics) <= {*METRICS, *metric_names(OPTIONS)}
    assert report.metrics["clear_rate"] == 0.0
    assert report.metrics["end_death_enemy"] == report.metrics["death_rate"] == 1.0
    assert 290 <= report.metrics["best_x_mean"] <= 302
    (place,) = report.detail["death_places"]
    assert (place["stage"], place["x"], place["deaths"]) == ("1-1", 256, 3)
    assert report.detail["stages"]["1-1"]["episodes"] == 3
    assert report.detail["actions"]["RIGHT"] == 1.0
    assert "clear_rate" in report.intervals
    assert len(report.detail["end_x"]) == len(report.detail["end_area"]) == 3
    parts = report.detail["rewards"]
    assert sum(parts.values()) == pytest.approx(report.metrics["return_mean"])
    assert parts["progress"] > 0 > parts["death"]


def test_the_probe_pays_what_the_run_pays_at_that_time() -> None:
    spec = ProbeSpec("mario", replace(OPTIONS, anneal="death>-100@1000"), seeds=(1,))
    paid = [
        run_probe(spec, Runner(), env_steps=steps).detail["rewards"]["death"]
        for steps in (0, 500, 1000)
    ]
    assert paid == pytest.approx([-25.0 / 15.0, -62.5 / 15.0, -100.0 / 15.0])


def test_the_probe_pays_what_a_guard_has_set_and_anneals_the_rest() -> None:
    options = replace(OPTIONS, anneal="death>-100@1000,progress>0@1000")
    spec = ProbeSpec("mario", options, seeds=(1,), values=(("reward_death", -50.0),))
    paid = run_probe(spec, Runner(), env_steps=1000).detail["rewards"]
    assert (paid["death"], paid["progress"]) == (pytest.approx(-50.0 / 15.0), 0.0)


@pytest.mark.parametrize("schedule", ["fixed", "cycle", "random", "curriculum"])
def test_the_probe_plays_every_stage_equally_often(schedule: str) -> None:
    options = MarioOptions(
        observation="tiles", stages="1-1..1-4", stage_schedule=schedule, max_steps=5
    )
    report = run_probe(ProbeSpec("mario", options, seeds=tuple(range(8))), Runner())
    assert {name: row["episodes"] for name, row in report.detail["stages"].items()} == {
        "1-1": 2, "1-2": 2, "1-3": 2, "1-4": 2,
    }  # fmt: skip
    with pytest.raises(ConfigError, match="Did you mean 'plain'"):
        probe.prepare(options, "plane")


def test_stages_that_too_few_episodes_leave_out_are_said_once(tmp_path: Path) -> None:
    said: list[str] = []
    holdfast.train(
        "mario", runs_dir=tmp_path, run="few", say=said.append, run__updates=2, run__tensorboard=False,
        world__games=3, world__stages="1-1..1-3", world__max_steps=6, learner__steps=8, learner__hidden=(8,),
        probe__every=1, probe__episodes=2,
    )  # fmt: skip
    about = [text for text in said if "too few for all stages" in text]
    assert len(about) == 1 and "nothing is known of 1-3. Take 3 or more" in about[0]


def test_a_film_can_begin_at_any_stage() -> None:
    start = stage_start(OPTIONS, "4-1", seed=2)
    film = draw.film_episode(OPTIONS, start, Runner().act, max_steps=5)
    assert film.shots[0].stage == "4-1" and film.episode is not None
    assert film.episode.ended == "timeout_steps"


def test_a_film_pays_what_the_probe_of_its_time_paid() -> None:
    spec = ProbeSpec("mario", replace(OPTIONS, anneal="death>-100@1000"), seeds=(1,))
    report = run_probe(spec, Runner(), env_steps=1000)
    takes = takes_of(spec, Runner(), {"best": [0]}, report.env_steps)
    assert takes["best"].episodes[0].returns[0] == pytest.approx(report.metrics["return_mean"])


def test_a_film_is_cut_where_its_probe_was_cut() -> None:
    spec = ProbeSpec("mario", OPTIONS, seeds=(1,), longest=7)
    report = run_probe(spec, Runner())
    (take,) = takes_of(spec, Runner(), {"best": [0]}).values()
    assert take.episodes[0].steps == report.metrics["length_mean"] == 7


def test_watching_a_checkpoint_pays_what_its_probe_paid(tmp_path: Path) -> None:
    holdfast.train(
        "mario", runs_dir=tmp_path, run="brief", say=lambda text: None, run__updates=1, run__tensorboard=False,
        world__games=2, world__max_steps=6, world__anneal="timeout>-1500@16", learner__steps=8,
        learner__hidden=(8,), probe__episodes=2,
    )  # fmt: skip
    (measured,) = read_lines(tmp_path / "brief" / "evals.jsonl")
    directory = RunDirectory(tmp_path / "brief")
    scene = set_scene(directory, directory.config(), directory.checkpoints().best(), Wish())
    (take,) = scene.takes()
    assert take.episodes[0].facts["reward_timeout"] == pytest.approx(-100.0)
    assert take.episodes[0].returns[0] == pytest.approx(measured["detail"]["returns"][0])
