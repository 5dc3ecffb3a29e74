"""Foreign environments with spaces that are not quite what a learner takes, and what is said of unsound ones."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
from holdfast.checkup import examine
from holdfast.cli import main
from holdfast.config import resolve
from holdfast.errors import ConfigError, EnvironmentFault, GuardStop
from holdfast.learn.spec import spec_from
from holdfast.run import RunDirectory, resume
from holdfast.worlds.check import check_world
from holdfast.worlds.foreign import ForeignOptions, ForeignWorld

sys.path.insert(0, str(Path(__file__).parent))
SMALL: dict[str, Any] = {
    "games": 2, "learner__steps": 16, "minibatch": 32, "epochs": 1, "tensorboard": False,
    "probe__episodes": 1, "world__mode": "serial",
}  # fmt: skip


def trained(name: str, runs: Path, **settings: Any) -> Any:
    given = {"run": "r", "updates": 2, **SMALL, **settings}
    return holdfast.train(f"pool_envs:{name}", runs_dir=runs, say=lambda _: None, **given)


@pytest.mark.parametrize("name", ["late_choices", "switches"])
def test_choices_are_counted_from_zero_for_the_learner_only(name: str, tmp_path: Path) -> None:
    assert check_world(lambda: holdfast.make(f"pool_envs:{name}", games=2), steps=60) == []
    assert trained(name, tmp_path).state == "finished"


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
