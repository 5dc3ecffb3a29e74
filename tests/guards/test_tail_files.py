"""Files of starts: they keep their types, must fit every phase, and are not needed once a run has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
from holdfast.cli import main
from holdfast.config import resolve
from holdfast.errors import AssetError, ConfigError
from holdfast.guards import GuardsConfig, make_guards
from holdfast.guards.gate import GateConfig, PenaltyGate
from holdfast.records import Start
from holdfast.run import load_stages, resume
from holdfast.worlds.shoal.options import ShoalOptions
from holdfast.worlds.shoal.starts import read_starts, start_from_seed, velocity_start, write_starts

SMALL: dict[str, Any] = {
    "games": 4, "fish": 5, "learner__steps": 16, "minibatch": 64, "max_steps": 20, "probe__episodes": 2,
    "tensorboard": False, "stagger": 0,
}  # fmt: skip


def staged(path: Path, *more: tuple[str, Any]) -> Any:
    tails = [("guards.tails.enabled", True), ("guards.tails.stages", f"4:{path}")]
    return resolve("shoal", [*tails, ("fish", 5), *more])


def test_a_stage_without_a_type_has_that_of_its_file(tmp_path: Path) -> None:
    path = write_starts(tmp_path / "a.json", [velocity_start([1.0, 2.0], type="ne", seed=3)])
    (stage,) = load_stages(staged(path))
    assert stage.type == "ne" and [start.type for start in stage.starts] == ["ne"]
    mixed = [velocity_start([1.0, 2.0], type=kind, id=kind) for kind in ("ne", "up")]
    (stage,) = load_stages(staged(write_starts(tmp_path / "b.json", mixed)))
    assert stage.type == "unknown" and [start.type for start in stage.starts] == ["ne", "up"]


def test_starts_that_hold_fish_must_fit_every_phase(tmp_path: Path) -> None:
    held = [start_from_seed(3, ShoalOptions(fish=5), id="a")]
    path = write_starts(tmp_path / "a.json", held)
    load_stages(staged(path))
    with pytest.raises(ConfigError, match=r"holds 5 fish, and the world has 10.*--hold predator"):
        load_stages(staged(path, ("plan.curriculum", "5:3,10:3")))


def test_only_shoal_has_files_of_starts(tmp_path: Path) -> None:
    settings = [("guards.tails.enabled", True), ("guards.tails.stages", "4:a.json")]
    with pytest.raises(ConfigError, match="only shoal has"):
        load_stages(resolve("pursuit", settings))


@pytest.mark.parametrize(("told", "kind"), [("|type=ne", "ne"), ("", "tail")])
def test_a_run_goes_on_and_is_replayed_without_its_file_and_from_another_folder(
    told: str,
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    starts = [velocity_start([1.0, 2.0], id=f"s{k}", seed=k) for k in range(8)]
    path = write_starts(tmp_path / "a.json", starts)
    tails = {"guards__tails__enabled": True, "guards__tails__stages": f"9:a.json{told}"}
    holdfast.train(
        "shoal", run="r", runs_dir="runs", updates=2, say=lambda _: None, **SMALL, **tails
    )
    path.unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    resume("r", tmp_path / "runs", [("updates", 5)], say=lambda _: None)
    lines = [json.loads(x) for x in (tmp_path / "runs/r/episodes.jsonl").read_text().splitlines()]
    late = [line["start"] for line in lines if line["update"] >= 4 and line["start"]["id"]]
    assert late and {start["type"] for start in late} == {kind}
    assert {start["id"] for start in late} <= {start.id for start in starts}
    capsys.readouterr()
    words = "whatif r --set guards.tails.share=0.5 --no-plot --json --runs-dir ../runs"
    assert main(words.split()) == 0
    assert json.loads(capsys.readouterr().out)["not_reproduced"] == 0


@pytest.mark.parametrize(
    "content",
    [{"velocities": 5}, {"format": "holdfast-starts/1"}, {"summary": [1]}, {"summary": {"clusters": [3]}}],
)  # fmt: skip
def test_a_file_without_starts_is_refused(tmp_path: Path, content: dict[str, Any]) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(content))
    with pytest.raises(AssetError, match="holds no starts"):
        read_starts(path)


def test_a_mined_start_brings_back_its_predator_in_a_world_of_another_size() -> None:
    one = holdfast.make("shoal", games=1, fish=5, max_steps=3, seed=7)
    info: dict[str, Any] = {}
    while "episodes" not in info:
        *_, info = one.step(np.zeros(5, np.int32))
    (episode,) = info["episodes"]
    snapshot = {key: np.asarray(value, np.float32) for key, value in episode.begin.items()}
    other = holdfast.make("shoal", games=1, fish=12, seed=1)
    other.queue_starts([0], [Start(episode.start.seed, snapshot, id="a")])
    other.reset()
    bodies = other.bodies()
    np.testing.assert_array_equal(bodies["predator_pos"][0], snapshot["predator_pos"])
    np.testing.assert_array_equal(bodies["predator_vel"][0], snapshot["predator_vel"])


def test_a_gate_with_nothing_to_limit_is_refused() -> None:
    config = GuardsConfig(gate=GateConfig(enabled=True))
    with pytest.raises(ConfigError, match=r"guards.density.enabled"):
        make_guards(config)


def test_the_window_of_p10_by_type_holds_without_separate_windows() -> None:
    gate = PenaltyGate(
        GateConfig(
            enabled=True, separate_windows=False, success_p10_window_by_type="ne:1", success_step_one=-1,
            success_early_death_window_by_type="ne:1", success_step_one_ratio=0,
        )
    )  # fmt: skip
    signals = {"update": 40, "probe/ed100": 0.0, "probe/p10": 500.0, "probe/min_final": 1.0}
    gate.step({**signals, "guard/tails/stage_type": "ne"})
    assert gate.status()["event"] == "success_progress"


@pytest.mark.parametrize("kind", ["fresh", "Two Words"])
def test_a_type_that_would_mix_up_the_statistics_is_refused(kind: str, tmp_path: Path) -> None:
    path = write_starts(tmp_path / "a.json", [velocity_start([1.0, 2.0], type=kind)])
    enabled = ("guards.tails.enabled", "true")
    with pytest.raises(ConfigError, match=r"a\.json.*type=tail"):
        load_stages(resolve("shoal", [enabled, ("guards.tails.stages", f"5:{path}")]))
    load_stages(resolve("shoal", [enabled, ("guards.tails.stages", f"5:{path}|type=ne")]))
    with pytest.raises(ConfigError, match="mine_type"):
        resolve("shoal", [("guards.tails.mine_type", kind)])
    with pytest.raises(ConfigError, match="the type"):
        resolve("shoal", [("guards.tails.stages", f"5:{path}|type={kind}")])
