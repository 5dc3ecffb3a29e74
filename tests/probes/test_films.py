"""Films show the episodes that were measured, in every world, and never stop a run."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import av
import gymnasium as gym
import numpy as np
import pytest

from holdfast.errors import ConfigError
from holdfast.learn.policy import Policy
from holdfast.learn.spec import initial_parameters, spec_for
from holdfast.probes import films
from holdfast.probes.clips import film_probe, takes_of
from holdfast.probes.films import chosen_games, film_games, ranking
from holdfast.probes.headlines import HEADLINES, Headline, headline, headline_in, outcome, words
from holdfast.probes.runner import ProbeSpec, run_probe
from holdfast.records import Episode, Start
from holdfast.store.files import read_json
from holdfast.worlds import make_world, options_type


def policy_for(name: str, **options: Any) -> Policy:
    world = make_world(name, options_type(name)(games=1, **options))
    spec = spec_for(world.single_observation_space, world.single_action_space, (8,))
    world.close()
    return Policy(spec, initial_parameters(spec, np.random.default_rng(3)))


def spec_of(name: str, seeds: int = 5, deterministic: bool = True, **options: Any) -> ProbeSpec:
    made = options_type(name)(**options)
    return ProbeSpec(name, made, tuple(range(40, 40 + seeds)), deterministic)


SHOAL = {"fish": 6, "max_steps": 60}


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_film_shows_the_very_episode_that_was_measured(deterministic: bool) -> None:
    spec, policy = spec_of("shoal", 5, deterministic, **SHOAL), policy_for("shoal", **SHOAL)
    report = run_probe(spec, policy)
    takes = film_games(spec, policy, [4, 1])
    for game, take in zip((4, 1), takes, strict=True):
        (episode,) = take.episodes
        assert episode.start.seed == spec.seeds[game]
        assert episode.facts["survival"] == report.detail["final"][game]
        assert float(episode.returns.mean()) == report.detail["returns"][game]
        assert take.film.alive[-1].mean() == report.detail["final"][game]  # type: ignore[attr-defined]


def test_mario_is_filmed_on_the_stage_that_its_game_played() -> None:
    options = {"observation": "tiles", "stages": "1-1,1-2", "max_steps": 6, "noops": 0}
    spec, policy = spec_of("mario", 4, False, **options), policy_for("mario", **options)
    first, second = film_games(spec, policy, [0, 1])
    assert first.film.shots[0].stage == "1-1"  # type: ignore[attr-defined]
    assert second.film.shots[0].stage == "1-2"  # type: ignore[attr-defined]
    assert first.film.shots[0].value is not None  # type: ignore[attr-defined]
    assert second.told("mario").startswith("1-2: timeout steps, furthest x")


def test_pursuit_is_filmed_as_a_grid_of_episodes_from_the_worst_to_the_best(tmp_path: Path) -> None:
    spec, policy = spec_of("pursuit", 12, max_steps=20), policy_for("pursuit", max_steps=20)
    report = run_probe(spec, policy, update=7)
    (path,) = film_probe(report, spec, policy, tmp_path, pytest.fail)
    assert path.name == "u000007-grid.mp4"
    (clip,) = read_json(tmp_path / "media" / "evals" / "u000007.json")
    assert len(clip["seeds"]) == len(set(clip["seeds"])) == 9
    assert sum(int(part.split()[0]) for part in clip["outcome"].split(", ")) == 9
    with av.open(str(path)) as film:
        assert sum(1 for _ in film.decode(video=0)) > 10


def test_every_evaluation_of_a_shoal_gets_three_films_and_their_commands(tmp_path: Path) -> None:
    spec, policy = spec_of("shoal", 5, **SHOAL), policy_for("shoal", **SHOAL)
    report = run_probe(spec, policy, update=12)
    made = film_probe(report, spec, policy, tmp_path / "first", pytest.fail)
    told = read_json(tmp_path / "first" / "media" / "evals" / "u000012.json")
    assert [path.name for path in made] == [clip["file"] for clip in told]
    assert {clip["rank"] for clip in told} == {"worst", "median", "best"}
    final = {clip["rank"]: clip["final"] for clip in told}
    assert final["worst"] <= final["median"] <= final["best"] == max(report.detail["final"])
    worst = next(clip for clip in told if clip["rank"] == "worst")
    assert worst["replay"] == f"holdfast watch first --checkpoint 12 --seed {worst['seed']}"
    assert report.detail["final"][spec.seeds.index(worst["seed"])] == min(report.detail["final"])


def test_an_environment_that_draws_itself_is_filmed_alone(tmp_path: Path) -> None:
    spec, policy = spec_of("CartPole-v1", 3), policy_for("CartPole-v1")
    report = run_probe(spec, policy, update=1)
    film_probe(report, spec, policy, tmp_path, pytest.fail)
    for clip in read_json(tmp_path / "media" / "evals" / "u000001.json"):
        assert clip["outcome"] == f"return {clip['returns']:.1f}"


class Undrawn(gym.Env[Any, Any]):
    """Cannot be drawn."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(2, np.float32), 1.0, True, False, {}


def test_an_environment_that_cannot_be_drawn_says_what_to_do(tmp_path: Path) -> None:
    name = f"{__name__}:Undrawn"
    spec = spec_of(name, 2)
    with pytest.raises(ConfigError, match="cannot be filmed: its render_mode is None"):
        film_games(spec, policy_for(name), [0])
    told: list[str] = []
    report = run_probe(spec, policy_for(name))
    assert film_probe(report, spec, policy_for(name), tmp_path, told.append) == []
    assert len(told) == 1 and "render_mode='rgb_array'" in told[0]


class Drawn(Undrawn):
    """Twelve steps, each drawn as its own shade of grey."""

    render_mode = "rgb_array"

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        self.t += 1
        return np.zeros(2, np.float32), 1.0, self.t == 12, False, {}

    def render(self) -> Any:
        return np.full((40, 60, 3), self.t, np.uint8)


class Dies(Drawn):
    """Takes its process with it when its fourth step is drawn."""

    def render(self) -> Any:
        if self.t == 4:
            os._exit(7)
        return super().render()


def test_an_environment_that_kills_its_process_while_it_is_filmed_kills_no_other(
    tmp_path: Path,
) -> None:
    name, told = f"{__name__}:Dies", []  # type: ignore[var-annotated]
    spec, policy = spec_of(name, 2, mode="serial"), policy_for(name)
    report = run_probe(spec, policy)
    assert film_probe(report, spec, policy, tmp_path, told.append) == []
    assert "exited with code 7 in render while it was filmed" in told[0]


def test_a_film_is_cut_where_the_episodes_of_the_probe_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{__name__}:Drawn"
    spec, policy = spec_of(name, 1, max_steps=7), policy_for(name)
    assert run_probe(spec, policy).detail["returns"] == [7.0]
    (take,) = film_games(spec, policy, [0])
    assert len(list(take.film.pictures(size=0))) == 8
    assert take.told(name) == "return 7.0"
    (take,) = film_games(replace(spec, longest=5), policy, [0])
    assert len(list(take.film.pictures(size=0))) == 6
    monkeypatch.setattr(films, "FOREIGN_MOMENTS", 4)
    (take,) = film_games(spec, policy, [0])
    assert len(list(take.film.pictures(size=0))) == 5
    assert take.told(name) == "return 4.0 in the first 4 steps"


class Grey(Drawn):
    """Draws one channel, and says nothing sensible of its speed."""

    metadata: ClassVar[dict[str, Any]] = {"render_fps": -1}

    def render(self) -> Any:
        return super().render()[:, :, :1]


class Faint(Drawn):
    """Draws two channels, which are no colours."""

    def render(self) -> Any:
        return super().render()[:, :, :2]


def test_a_picture_of_one_channel_is_grey_and_one_of_two_is_refused() -> None:
    name = f"{__name__}:Grey"
    (take,) = film_games(spec_of(name, 1), policy_for(name), [0])
    pictures = list(take.film.pictures(size=0))
    assert take.film.rate == 30
    assert [picture.shape for picture in pictures] == [(40, 60, 3)] * 13
    assert pictures[7].tolist() == np.full((40, 60, 3), 7).tolist()
    name = f"{__name__}:Faint"
    with pytest.raises(
        ConfigError, match=r"cannot be filmed: render\(\) gave ndarray \(40, 60, 2\)"
    ):
        film_games(spec_of(name, 1), policy_for(name), [0])


def test_the_first_column_that_differs_decides_and_a_minus_turns_it() -> None:
    main = Headline(rank=("cleared", "best_x", "-lengths"))
    detail = {"cleared": [1, 0, 1, 0], "best_x": [9, 5, 9, 7], "lengths": [300, 10, 200, 10]}
    assert ranking(main, detail, 4) == [1, 3, 0, 2]
    assert ranking(main, {}, 3) == [0, 1, 2]
    assert ranking(main, {"cleared": [1]}, 3) == [0, 1, 2], "a column of another length is no order"


def test_one_episode_is_one_film_and_two_are_two() -> None:
    assert chosen_games("shoal", {"final": [0.5]}, 1) == {"worst": [0]}
    assert chosen_games("shoal", {"final": [0.5, 0.2]}, 2) == {"worst": [1], "best": [0]}
    assert chosen_games("pursuit", {"captured": [1.0, 0.0]}, 2) == {"grid": [1, 0]}


def test_takes_of_several_ranks_come_from_one_play() -> None:
    spec, policy = spec_of("pursuit", 4, max_steps=10), policy_for("pursuit", max_steps=10)
    found = takes_of(spec, policy, {"grid": [0, 1, 2], "one": [3]})
    assert len(found["grid"].episodes) == 3
    assert len(found["one"].episodes) == 1


def test_every_world_of_ours_declares_what_it_measures() -> None:
    options = {"shoal": SHOAL, "mario": {"observation": "tiles", "max_steps": 5}}
    for name in HEADLINES:
        given = options.get(name, {"max_steps": 10})
        spec = replace(spec_of(name, 2, **given), deterministic=False)
        report = run_probe(spec, policy_for(name, **given))
        main = headline(name)
        wanted = {main.metric, main.curve or main.metric, *main.beside}
        assert wanted <= report.metrics.keys(), name
        columns = {key.removeprefix("-") for key in main.rank}
        assert columns <= report.detail.keys(), name


def test_the_world_of_a_line_of_signals_is_known_by_its_own_signal() -> None:
    assert headline_in({"mario/clear": 0.1, "episode/return_mean": 3.0}) is HEADLINES["mario"]
    assert headline_in({"episode/return_mean": 3.0}).metric == "return_mean"
    assert words("probe/some_thing") == "some thing"


def test_an_outcome_is_said_in_words() -> None:
    episode = Episode(0, Start(seed=1), 12, np.array([1.0, 2.0]), "captured", {"survival": 0.875})
    assert outcome("shoal", episode) == "87.5% of the fish alive"
    assert outcome("pursuit", episode) == "captured"
    assert outcome("CartPole-v1", episode) == "return 1.5"
