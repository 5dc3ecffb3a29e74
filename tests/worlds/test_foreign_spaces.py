"""Foreign environments with spaces that are not quite what a learner takes, and what is said of unsound ones."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import holdfast
from holdfast.checkup import examine
from holdfast.cli import main
from holdfast.config import resolve
from holdfast.errors import ConfigError, EnvironmentFault, GuardStop, StorageError
from holdfast.learn.spec import spec_from
from holdfast.probes.films import film_foreign
from holdfast.probes.runner import ProbeSpec
from holdfast.run import RunDirectory, resume
from holdfast.worlds.check import check_world
from holdfast.worlds.foreign import ForeignOptions, ForeignWorld
from holdfast.worlds.pool_games import GymnasiumGame, plain_actions

sys.path.insert(0, str(Path(__file__).parent))
import pool_envs

SMALL: dict[str, Any] = {
    "games": 2, "learner__steps": 16, "minibatch": 32, "epochs": 1, "tensorboard": False,
    "probe__episodes": 1, "world__mode": "serial",
}  # fmt: skip


def trained(name: str, runs: Path, **settings: Any) -> Any:
    given = {"run": "r", "updates": 2, **SMALL, **settings}
    return holdfast.train(f"pool_envs:{name}", runs_dir=runs, say=lambda _: None, **given)


ODD_ACTIONS = ["late_choices", "switches", "grid", "dial", "doubles", "table", "late_pairs"]
CROWDS = ["crowd_of_grids", "crowd_of_tables"]


@pytest.mark.parametrize("name", [*ODD_ACTIONS, *CROWDS])
def test_actions_are_flat_and_counted_from_zero_for_the_learner_only(
    name: str, tmp_path: Path
) -> None:
    assert check_world(lambda: holdfast.make(f"pool_envs:{name}", games=2), steps=60) == []
    assert trained(name, tmp_path).state == "finished"


def test_an_action_gets_the_shape_the_start_and_the_type_of_its_space() -> None:
    grid = gym.spaces.Box(-2, 3, (2, 3), np.float32)
    flat, turn = plain_actions(grid)
    assert flat == gym.spaces.Box(-2, 3, (6,), np.float32)
    np.testing.assert_array_equal(turn(np.arange(6) / 2), [[0, 0.5, 1], [1.5, 2, 2.5]])
    table = gym.spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 1], [0, 7]])
    flat, turn = plain_actions(table)
    assert flat == gym.spaces.MultiDiscrete([2, 3, 4, 5])
    np.testing.assert_array_equal(turn(np.array([1, 2, 3, 4])), [[2, 3], [3, 11]])
    _, turn = plain_actions(gym.spaces.Box(-1, 1, (), np.float32))
    assert turn(np.array([0.5], np.float32)).shape == ()
    doubles = gym.spaces.Box(-0.1, 0.1, (1,), np.float64)
    assert doubles.contains(plain_actions(doubles)[1](np.array([0.1], np.float32)))


def test_an_environment_may_keep_the_actions_that_it_got() -> None:
    env = pool_envs.Kept(pool_envs.NUMBERS, gym.spaces.Box(-1, 1, (2,), np.float32))
    game, row = GymnasiumGame(env), np.zeros((1, 2), np.float32)
    game.reset(1)
    for value in (0.25, 0.5):
        row[:] = value
        game.step(row)
    assert [float(action[0]) for action in env.given] == [0.25, 0.5]


def test_a_run_with_odd_actions_can_be_examined_evaluated_and_exported(tmp_path: Path) -> None:
    trained("grid", tmp_path)
    found = examine(resolve("pool_envs:grid", [("games", 2)]), tmp_path, 20)
    assert not [finding for finding in found if finding.level == "refused"]
    assert holdfast.evaluate("r", runs_dir=tmp_path, episodes=2).metrics["return_mean"] == 9.0
    policy = holdfast.load_policy("r", runs_dir=tmp_path)
    rows = np.zeros((4, 3), np.float32)
    assert policy.act(rows).shape == (4, 6)
    out = tmp_path / "out"
    assert main(["ckpt", "export", "r", "--runs-dir", str(tmp_path), "--out", str(out)]) == 0
    np.testing.assert_array_equal(holdfast.load_policy(out).act(rows), policy.act(rows))


def test_an_agent_that_joins_later_is_masked_until_it_is_there(tmp_path: Path) -> None:
    assert check_world(lambda: holdfast.make("pool_envs:Joins", games=2), steps=60) == []
    world = holdfast.make("pool_envs:Joins", games=1)
    obs, info = world.reset(seed=1)
    np.testing.assert_array_equal(obs, [[0, 1], [0, 0]])
    masks, paid, ends = [info["mask"].tolist()], [], []
    for _ in range(8):
        obs, rewards, over, _, info = world.step(np.zeros(2, np.int64))
        masks.append(info["mask"].tolist())
        paid.append(rewards.tolist())
        ends.append(over.tolist())
        if len(masks) == 4:
            np.testing.assert_array_equal(obs, [[3, 1], [3, 1]])
    one, both, other = [True, False], [True, True], [False, True]
    assert masks == [one, one, one, both, both, other, other, other, one]
    assert paid == [[1, 0]] * 3 + [[1, 1]] * 2 + [[0, 1]] * 3
    assert ends == [[False] * 2] * 4 + [[True, False]] + [[False] * 2] * 2 + [[False, True]]
    np.testing.assert_array_equal(obs, [[0, 1], [0, 0]])
    world.close()
    assert trained("Joins", tmp_path).state == "finished"


@pytest.mark.parametrize("selfplay", [False, True])
def test_agents_need_not_be_named_by_plain_text(tmp_path: Path, selfplay: bool) -> None:
    trained("Numbered", tmp_path, selfplay__enabled=selfplay)
    metrics = holdfast.evaluate("r", runs_dir=tmp_path).metrics
    assert {"return_7", "return_red_1"} <= metrics.keys()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("RaisesInRender", "raised in render while it was filmed: RuntimeError: no pen"),
        ("SleepsInRender", "hung in render"),
    ],
)
def test_an_environment_that_cannot_draw_itself_costs_only_its_films(
    name: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(name, tmp_path, construct_s=0.5)
    assert main(["watch", "r", "--runs-dir", str(tmp_path), "--out", str(tmp_path / "a.mp4")]) == 6
    assert said in capsys.readouterr().err
    assert main(["report", "r", "--runs-dir", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "no films: " in told and said in told
    assert (tmp_path / "r" / "report.html").is_file()


def test_a_film_shows_agents_that_come_and_go() -> None:
    spec = ProbeSpec("pool_envs:Joins", None, seeds=(1,))
    idle = types.SimpleNamespace(act=lambda obs, rng: np.zeros(len(obs), np.int64))
    assert len(list(film_foreign(spec, idle, 1).film.pictures())) == 9


@pytest.mark.parametrize("name", ["InTurns", "Nothing"])
def test_agents_that_act_in_turns_are_refused_with_the_way_out(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^" + name + r" is .* in turns .*parallel_env\(\)"):
        holdfast.make(f"pool_envs:{name}", games=1, mode="serial").reset(seed=1)


def test_pictures_stay_bytes_and_get_a_network_for_pictures(tmp_path: Path) -> None:
    config = resolve("pool_envs:pictures")
    world = holdfast.make("pool_envs:pictures", games=2)
    obs, _ = world.reset(seed=1)
    assert obs.dtype == np.uint8 and obs.any()
    spec = spec_from(config.learner, world.single_observation_space, world.single_action_space)
    assert (spec.trunk, spec.picture, spec.pixel) == ("nature", (40, 48, 3), "uint8")
    world.close()
    assert trained("pictures", tmp_path).state == "finished"


def test_observations_outside_their_space_are_said() -> None:
    (problem,) = check_world(lambda: holdfast.make("pool_envs:outside", games=2), steps=20)
    assert "holds 5, which lies outside its space (-1 to 1)" in problem


def test_what_does_not_repeat_itself_is_not_refused_for_that(tmp_path: Path) -> None:
    config = resolve("pool_envs:fickle", [("games", 2), ("learner.steps", 16), ("minibatch", 32)])
    found = {finding.check: finding.level for finding in examine(config, tmp_path, 20)}
    assert found["determinism"] == found["workers"] == "warning"


def test_a_run_that_a_guard_stops_has_a_report_and_stays_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "pool_envs:endless", "--run", "r", "--runs-dir", str(tmp_path), "--plain"]
    for key, value in {**SMALL, "updates": 60, "guards__hints__longest_episode": 20}.items():
        words += ["--" + key.replace("__", "."), str(value)]
    assert main(words) == 4
    run = tmp_path / "r"
    assert (run / "report.html").is_file() and "report.html" in capsys.readouterr().err
    stopped = RunDirectory(run).heartbeat()["update"]
    with pytest.raises(GuardStop):
        resume("r", tmp_path, say=lambda _: None)
    assert RunDirectory(run).heartbeat()["update"] == stopped + 1


def test_a_run_whose_environment_cannot_be_made_has_failed(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault):
        trained("RaisesInConstruct", tmp_path)
    assert RunDirectory(tmp_path / "r").state() == "failed"


def test_policies_say_what_they_take_and_exported_ones_can_be_loaded(tmp_path: Path) -> None:
    trained("late_choices", tmp_path)
    policy = holdfast.load_policy("r", runs_dir=tmp_path)
    one = np.zeros(3, np.float32)
    for wrong in (one, {"a": one}, np.zeros((2, 4)), "text"):
        with pytest.raises(ConfigError, match=r"rows of 3 numbers"):
            policy.act(wrong)  # type: ignore[arg-type]
    out = tmp_path / "out"
    assert main(["ckpt", "export", "r", "--runs-dir", str(tmp_path), "--out", str(out)]) == 0
    rows = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    np.testing.assert_array_equal(holdfast.load_policy(out).act(rows), policy.act(rows))


@pytest.mark.parametrize(
    ("name", "space", "said"),
    [
        (
            "observation_space",
            gym.spaces.Box(-1, 1, (5,), np.float32),
            "obs_size: 4 in the checkpoint, 5 now",
        ),
        ("action_space", gym.spaces.Discrete(3), r"nvec: \(2,\) in the checkpoint, \(3,\) now"),
        (
            "action_space",
            gym.spaces.Box(-1, 1, (2,), np.float32),
            "action: discrete in the checkpoint, gaussian now",
        ),
    ],
)
def test_a_run_whose_environment_has_changed_does_not_go_on(
    name: str, space: gym.Space[Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained("Shifting", tmp_path)
    monkeypatch.setattr(pool_envs.Shifting, name, space)
    with pytest.raises(StorageError, match=said):
        resume("r", tmp_path, [("updates", 4)], say=lambda _: None)
    with pytest.raises(ConfigError, match="The policy"):
        holdfast.evaluate("r", runs_dir=tmp_path)


def test_an_evaluation_takes_no_negative_seed(tmp_path: Path) -> None:
    trained("Walk", tmp_path)
    with pytest.raises(ConfigError, match="seed = -1 is not allowed"):
        holdfast.evaluate("r", runs_dir=tmp_path, seed=-1)


def test_an_environment_is_named_by_text() -> None:
    for call in (holdfast.train, holdfast.make):
        with pytest.raises(ConfigError, match="'module:function'"):
            call(lambda: None)  # type: ignore[operator]


def test_rewards_of_agents_that_are_out_do_not_count(tmp_path: Path) -> None:
    config = resolve("pool_envs:Paid", [("games", 2), ("learner.steps", 16), ("minibatch", 32)])
    found = {finding.check: finding for finding in examine(config, tmp_path, 20)}
    assert found["rewards"].numbers["not_zero_share"] == 1.0


def test_an_evaluation_says_that_its_episodes_did_not_end(tmp_path: Path) -> None:
    settings = {"guards__hints__longest_episode": 20, "guards__hints__stop_when_endless": False}
    trained("endless", tmp_path, **settings)
    report = holdfast.evaluate("r", runs_dir=tmp_path, episodes=3)
    assert report.detail["cut"].startswith("3 of 3 evaluated episodes did not end")


ONE = {"games": 1, "learner__steps": 1}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("CartPole-v1", {}),
        ("pool_envs:switches", {}),
        ("pool_envs:Paid", {"selfplay__enabled": True}),
        ("pursuit", {"selfplay__enabled": True}),
    ],
)
def test_a_rollout_of_one_sample_is_refused(
    name: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"one sample.*--learner\.steps 128"):
        holdfast.train(name, runs_dir=tmp_path, run="r", updates=1, **ONE, **settings)
    assert not list(tmp_path.glob("r/checkpoints/*"))


def test_a_dry_run_refuses_one_sample_too(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "CartPole-v1", "--games", "1", "--learner.steps", "1", "--dry-run"]
    assert main(words) == 2
    assert "one sample" in capsys.readouterr().err


def test_three_agents_give_one_learner_three_samples(tmp_path: Path) -> None:
    assert trained("Paid", tmp_path, **ONE).state == "finished"


def test_only_an_episode_that_was_broken_off_is_cut() -> None:
    world = ForeignWorld("CartPole-v1", ForeignOptions(games=2, max_steps=5, mode="serial"))
    world.reset(seed=0)
    world.request_reset([0])
    infos = [world.step(np.zeros(2, np.int64))[4] for _ in range(6)]
    episodes = [episode for info in infos for episode in info.get("episodes", ())]
    assert [(e.game, e.steps, e.ended, e.cut) for e in episodes] == [
        (0, 1, "truncated", True),
        (1, 5, "truncated", False),
        (0, 5, "truncated", False),
    ]
