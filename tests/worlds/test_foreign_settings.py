"""What an environment is made with, and what it tells of its episodes."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import holdfast
from holdfast.config import from_tables, resolve, to_toml
from holdfast.errors import ConfigError, EnvironmentFault
from holdfast.probes.films import film_foreign
from holdfast.probes.headlines import ANY, headline, with_own
from holdfast.probes.runner import ProbeSpec
from holdfast.probes.stats import bootstrap_mean
from holdfast.refuse import refuse_names
from holdfast.run import RunDirectory
from holdfast.store.journal import read_lines
from holdfast.worlds.foreign import ForeignOptions
from holdfast.worlds.pool_games import is_bytes, plain_observations

sys.path.insert(0, str(Path(__file__).parent))

SMALL: dict[str, Any] = {
    "games": 2, "learner__steps": 16, "minibatch": 32, "epochs": 1, "tensorboard": False,
    "probe__episodes": 3, "updates": 2, "run": "r", "say": lambda _: None,
}  # fmt: skip


@pytest.mark.parametrize("mode", ["serial", "process"])
def test_an_environment_is_made_with_the_keywords_of_the_run(mode: str) -> None:
    world = holdfast.make("pool_envs:Corridor", games=2, mode=mode, kwargs={"length": 9})
    try:
        assert world.single_observation_space.high.tolist() == [9]  # type: ignore[attr-defined]
    finally:
        world.close()


def test_keywords_that_are_typed_become_numbers_truths_and_texts() -> None:
    typed = [("world.kwargs.is_slippery", "false"), ("world.kwargs.map_name", "8x8")]
    config = resolve("FrozenLake-v1", [*typed, ("probe.world.kwargs.desc", '["SG"]')])
    assert config.world.options.kwargs == {"is_slippery": False, "map_name": "8x8"}
    assert config.probe.world == {"kwargs": {"desc": ["SG"]}}
    assert from_tables(tomllib.loads(to_toml(config))) == config
    with pytest.raises(ConfigError, match=r"type its settings one by one: --world.kwargs.name"):
        resolve("FrozenLake-v1", [("world.kwargs", "5")])


def test_a_phase_may_make_the_environment_with_other_keywords(tmp_path: Path) -> None:
    file = tmp_path / "two.toml"
    file.write_text(
        'world = {name = "pool_envs:Corridor", mode = "serial"}\n[[phase]]\nname = "short"\nupdates = 1\n'
        'world = {kwargs = {length = 2}}\n[[phase]]\nname = "long"\nupdates = 1\nworld = {kwargs = {length = 7}}\n'
    )
    settings = {k: v for k, v in SMALL.items() if k != "updates"}
    outcome = holdfast.train(str(file), runs_dir=tmp_path, **settings)
    assert (outcome.state, outcome.update) == ("finished", 2)


def test_a_film_asks_a_function_with_the_parameter_render_mode_for_pictures() -> None:
    class Still:
        def act(self, obs: Any, *args: Any, **kwargs: Any) -> Any:
            return np.zeros(len(obs), np.int64)

    spec = ProbeSpec("pool_envs:Corridor", ForeignOptions(kwargs={"length": 2}), seeds=(1,))
    take: Any = film_foreign(spec, Still(), 1)  # type: ignore[arg-type]
    assert take is not None


@pytest.mark.parametrize("mode", ["serial", "process"])
def test_numbers_that_an_environment_tells_reach_episodes_signals_and_evaluations(
    mode: str, tmp_path: Path
) -> None:
    told = {"world__mode": mode, "facts": "is_success,place,note", "probe__best_by": "is_success"}
    holdfast.train(
        "pool_envs:Corridor", runs_dir=tmp_path, kwargs={"length": 2}, **{**SMALL, **told}
    )
    run = RunDirectory(tmp_path / "r").path
    episodes = list(read_lines(run / "episodes.jsonl"))
    assert {e["facts/place"] == 2 for e in episodes if e["facts/is_success"] == 1} == {True}
    assert not any("facts/note" in e for e in episodes), "a text is no number"
    signals = list(read_lines(run / "metrics.jsonl"))[-1]
    recent = [e["facts/is_success"] for e in episodes][-100:]
    assert signals["facts/is_success"] == pytest.approx(sum(recent) / len(recent))
    probe = list(read_lines(run / "evals.jsonl"))[-1]
    assert {"is_success", "place"} <= set(probe["metrics"])
    low, high = probe["intervals"]["is_success"]
    assert high - low > 0.3, "three episodes say little about a share, whatever they came to"
    assert probe["intervals"]["place"] == list(bootstrap_mean(probe["detail"]["samples"]["place"]))


def test_facts_of_a_gymnasium_id_are_told_as_those_of_any_environment(tmp_path: Path) -> None:
    given = {**SMALL, "facts": "prob", "world__mode": "serial"}
    holdfast.train("FrozenLake-v1", runs_dir=tmp_path, **given)
    signals = list(read_lines(tmp_path / "r" / "metrics.jsonl"))[-1]
    assert 0 < signals["facts/prob"] <= 1


def test_facts_of_agents_are_averaged_and_of_names_of_our_own_are_refused() -> None:
    world = holdfast.make("pool_envs:Tag", games=1, mode="serial", facts=("played",))
    mask, played, found = world.reset(seed=1)[1]["mask"], np.zeros(3), []
    while not found:
        played += mask
        info = world.step(np.zeros(3, np.int64))[4]
        mask, found = info["mask"], info.get("episodes", [])
    assert len({*played}) > 1, "they are out at different times"
    assert found[0].facts == {"played": pytest.approx(played.mean())}
    with pytest.raises(ConfigError, match="under another name"):
        resolve("CartPole-v1", [("facts", "return_mean")])


def test_a_guard_may_watch_what_the_environment_tells_and_nothing_that_is_not_kept() -> None:
    plateau = ("guards.plateau.signal", "facts/place")
    refuse_names(resolve("pool_envs:Corridor", [("facts", "place"), plateau]))
    for facts, told in (("", "Type: --facts place"), ("plate", "Did you mean 'plate'")):
        with pytest.raises(ConfigError, match=told):
            refuse_names(resolve("pool_envs:Corridor", [("facts", facts), plateau]))


@pytest.mark.parametrize(
    ("shape", "kept"),
    [((4, 36, 40), (36, 40, 4)), ((4, 36, 40, 3), (36, 40, 12)), ((36, 40, 3), (36, 40, 3))],
)
def test_pictures_whose_channels_or_frames_come_first_get_them_last(
    shape: tuple[int, ...], kept: tuple[int, ...]
) -> None:
    space = gym.spaces.Box(0, 255, shape, np.uint8)
    plain, turn = plain_observations(space)
    assert plain == gym.spaces.Box(0, 255, kept, np.uint8) and is_bytes(plain)
    picture = space.sample()
    first, last = (
        (picture[..., 0], picture[..., -1]) if shape == kept else (picture[0], picture[-1])
    )
    if len(shape) == 4:
        first, last = first[..., 0], last[..., -1]
    np.testing.assert_array_equal(turn(picture)[..., 0], first)
    np.testing.assert_array_equal(turn(picture)[..., -1], last)
    assert turn(np.zeros((2, 2), np.uint8)).shape == (2, 2), "the player says what is wrong with it"


def test_numbers_in_a_block_are_no_picture() -> None:
    space = gym.spaces.Box(-1, 1, (4, 36, 40), np.float32)
    assert plain_observations(space)[0] == space


def test_a_name_that_a_run_took_without_training_says_how_it_is_free_again(tmp_path: Path) -> None:
    given = {**SMALL, "world__mode": "serial", "max_restarts": 0}
    with pytest.raises(EnvironmentFault, match="unexpected keyword argument 'lenght'"):
        holdfast.train("pool_envs:Corridor", runs_dir=tmp_path, kwargs={"lenght": 3}, **given)
    with pytest.raises(ConfigError, match=rf"nothing was trained in it.*rm -r {tmp_path / 'r'}"):
        holdfast.train("pool_envs:Corridor", runs_dir=tmp_path, kwargs={"length": 3}, **given)


def test_what_an_environment_tells_stands_beside_the_return_and_nothing_else_does() -> None:
    measured = ["return_mean", "length_mean", "change_is_success", "is_success"]
    main = with_own(ANY, measured, ["facts/is_success", "facts/late", "world/games"])
    assert main.beside == ("is_success",) and main.cards == ("is_success", "length_mean")
    assert with_own(ANY, ["return_mean", "avg_final"], ["world/games"]) == ANY
    assert with_own(headline("shoal"), measured, ["facts/is_success"]) == headline("shoal")
