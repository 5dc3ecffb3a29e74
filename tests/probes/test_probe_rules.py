"""A probe plays the world that is trained in, says so before training if it cannot, and can be played again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
from holdfast.config import resolve
from holdfast.errors import ConfigError
from holdfast.learn.policy import Policy
from holdfast.probes import mario, pursuit, shoal
from holdfast.probes.runner import METRICS, ProbeSpec, played_options, run_probe
from holdfast.progress import Progress
from holdfast.refuse import refuse_probe
from holdfast.run import probe_spec

SMALL = {
    "games": 4,
    "fish": 5,
    "learner__steps": 16,
    "minibatch": 64,
    "max_steps": 60,
    "probe__episodes": 4,
    "tensorboard": False,
}
CONFIGS = Path(__file__).parents[2] / "configs" / "shoal"


def tiny(runs: Path, **settings: Any) -> list[dict[str, Any]]:
    holdfast.train("shoal", run="r", runs_dir=runs, say=lambda _: None, **{**SMALL, **settings})
    return [json.loads(line) for line in (runs / "r" / "evals.jsonl").read_text().splitlines()]


def test_the_obstacles_of_a_level_stand_in_probes_too_where_the_world_draws_their_number() -> None:
    options = pursuit.PursuitOptions(n_obstacles_min=0, n_obstacles_max=2)
    spec = ProbeSpec("pursuit", options, (1, 2), values=(("n_obstacles", 3.0),))
    played = played_options(spec)
    assert (played.n_obstacles, played.n_obstacles_min, played.n_obstacles_max) == (3, None, None)
    drawn = played_options(replace(spec, values=()))
    assert (drawn.n_obstacles_min, drawn.n_obstacles_max) == (0, 2)


@pytest.mark.parametrize(("name", "fish"), [("hard", 250), ("v36", 96), ("best", 96)])
def test_the_probes_of_a_config_play_its_own_world(name: str, fish: int) -> None:
    config = resolve(str(CONFIGS / f"{name}.toml"))
    assert config.probe.protocol == ""
    options = played_options(probe_spec(config))
    assert options.fish == fish
    assert options.escape_boost_speed == config.world.options.escape_boost_speed


def test_values_that_guards_turn_hold_in_probes_and_in_an_evaluation_afterwards(
    tmp_path: Path,
) -> None:
    boost = {"enabled": True, "base": 0.3, "floor": 0.3, "adaptive": False}
    (line,) = tiny(tmp_path, updates=2, **{f"guards__boost__{k}": v for k, v in boost.items()})
    assert line["detail"]["values"]["escape_boost_speed"] == pytest.approx(0.3)
    again = holdfast.evaluate("r", runs_dir=tmp_path, latest=True)
    assert again.detail["values"] == line["detail"]["values"]
    np.testing.assert_array_equal(again.detail["death_steps"], line["detail"]["death_steps"])
    fixed = holdfast.evaluate("r", runs_dir=tmp_path, latest=True, protocol="v36", episodes=2)
    assert fixed.detail["values"]["escape_boost_speed"] == 0.8


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"probe.protocol": "v37"}, "v36"),
        ({"probe.protocol": "v36", "probe.world.fish": "10"}, "probe.world sets fish to 10"),
        ({"probe.best-by": "avg_finl"}, "Did you mean 'avg_final'"),
        ({"probe.best-by": "regret", "predator_hunts": "true"}, "'regret', which is not measured"),
    ],
)
def test_a_probe_that_cannot_be_is_refused_before_training(
    settings: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        refuse_probe(resolve("shoal", list(settings.items())))


def test_options_of_probes_can_be_typed() -> None:
    config = resolve("shoal", [("probe.world.fish", "10")])
    assert config.probe.world == {"fish": 10}
    with pytest.raises(ConfigError, match="Did you mean 'fish'"):
        resolve("shoal", [("probe.world.fsh", "10")])
    with pytest.raises(ConfigError, match=r"--probe.world.name"):
        resolve("shoal", [("probe.world", "fish=10")])


@pytest.mark.parametrize("hunts", [False, True])
def test_every_metric_of_shoal_is_known_by_name_and_always_there(hunts: bool) -> None:
    config = resolve("shoal", [("predator_hunts", hunts), ("probe.episodes", 1), ("fish", 1)])
    spec = probe_spec(config)

    class Still(Policy):
        def __init__(self) -> None: ...
        def act(self, obs: Any, *args: Any, **more: Any) -> Any:
            return np.zeros(len(obs), np.int32)

    found = run_probe(spec, Still()).metrics
    assert set(found) == {*METRICS, *shoal.metric_names(spec.options)}


def test_metrics_of_other_worlds_have_names() -> None:
    assert "capture_time_s" in pursuit.metric_names(resolve("pursuit").world.options)
    names = mario.metric_names(resolve("mario", [("stages", "1-1,1-2")]).world.options)
    assert {"clear_rate", "stage_1-2/clear_rate"} <= set(names)


def test_checkpoints_of_filmed_evaluations_are_kept(tmp_path: Path) -> None:
    tiny(tmp_path, updates=8, probe__every=1, probe__clips=True, keep_last=1, checkpoint_every=4,
         keep_every=0, probe__episodes=2, max_steps=10)  # fmt: skip
    held = {int(p.name[1:]) for p in (tmp_path / "r" / "checkpoints").glob("u*")}
    assert held >= set(range(1, 9))


def test_the_checkpoint_that_the_worst_starts_name_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Progress, "rank", lambda *_: None)  # the best one would be kept anyway
    named: dict[int, bool] = {}

    def look(line: dict[str, Any]) -> None:
        worst = tmp_path / "r" / "worst_starts.json"
        told = json.loads(worst.read_text())["update"] if worst.is_file() else 0
        if 0 < told < line["update"]:
            named[line["update"]] = (tmp_path / "r" / "checkpoints" / f"u{told:08d}").is_dir()

    tiny(
        tmp_path,
        updates=9,
        probe__every=3,
        keep_last=1,
        checkpoint_every=2,
        keep_every=0,
        show=look,
    )
    assert named == dict.fromkeys((4, 5, 7, 8), True)
