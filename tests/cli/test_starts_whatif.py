"""`holdfast starts` and `holdfast whatif` on a small real run with every guard at work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.cli import main
from holdfast.config import resolve
from holdfast.probes.mining import Found, Wanted, began_in, choose, from_training
from holdfast.run import start as train
from holdfast.store.journal import read_lines
from holdfast.worlds.shoal import ShoalOptions
from holdfast.worlds.shoal.starts import read_starts, start_from_seed
from holdfast.worlds.shoal.world import ShoalWorld

CONFIG = """
[run]
updates = 24
checkpoint_every = 8
keep_every = 1
tensorboard = false
[world]
name = "shoal"
games = 6
max_steps = 40
[learner]
steps = 16
hidden = [8]
minibatch = 64
epochs = 1
threads = 1
[plan]
curriculum = "10:8,10:8,{fish}:8"
[probe]
every = 8
episodes = 3
clips = {clips}
[guards.tails]
enabled = true
stages = "2:ne.json|type=ne"
warn_patience = 1
[guards.gate]
enabled = true
allowance = [1, 2, 3]
required_successes = 1
success_step_one = -1
success_step_one_ratio = 0.0
success_early_death = 1.0
success_p10 = 0
failure_p10 = 0
failure_min_final = 0.0
[guards.density]
enabled = true
lock_until = 0
[guards.boost]
enabled = true
phase_speeds = "1:0.9,2:0.8,3:0.8"
penalty_caps = ""
adaptive = false
"""


def trained(folder: Path, name: str, fish: int, clips: str) -> Path:
    words = ["starts", "draw", "shoal", "--sector", "45-90", "--count", "8", "--type", "ne"]
    assert main([*words, "--out", str(folder / "ne.json")]) == 0
    (folder / f"{name}.toml").write_text(CONFIG.format(fish=fish, clips=clips))
    target = str(folder / f"{name}.toml")
    runs = str(folder / "runs")
    code = main(
        ["train", target, "--run", name, "--plain", "--no-report", "--runs-dir", runs, "--json"]
    )
    assert code == 0
    return folder / "runs" / name


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("starts"), "r", 10, "true")


@pytest.fixture
def call(run: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def do(*words: str) -> tuple[int, Any, str]:
        capsys.readouterr()
        code = main([*words, "--json", "--runs-dir", str(run.parent)])
        said = capsys.readouterr()
        return code, json.loads(said.out) if said.out else None, said.err

    return do


def test_mined_starts_are_the_starts_of_the_bad_training_episodes(
    run: Path, call: Any, tmp_path: Path
) -> None:
    path = tmp_path / "mix.json"
    words = ("--sector", "N", "--min-speed", "0.5", "--below", "1.01", "--out", str(path))
    code, record, _ = call("starts", "mine", "r", *words)
    assert code == 0
    assert record["hold"] == "all"
    assert record["origin"] == "training of r"
    episodes = {e["start"]["seed"]: e for e in read_lines(run / "episodes.jsonl")}
    probed = {s for e in read_lines(run / "evals.jsonl") for s in e["seeds"]}
    starts = read_starts(path)
    assert len(starts) == record["starts"] > 3
    worst = [episodes[s.seed]["facts/survival"] for s in starts]
    assert worst == sorted(worst)
    for start in starts:
        assert start.seed not in probed
        assert start.snapshot is not None
        vx, vy = (float(v) for v in start.snapshot["predator_vel"])
        facts = episodes[start.seed]
        assert np.hypot(vx, vy) == pytest.approx(facts["facts/start_speed"], abs=1e-6)
        assert 67.5 <= facts["facts/start_heading_deg"] < 112.5
        assert facts["facts/start_speed"] >= 0.5
        assert start.snapshot["fish_pos"].shape == (10, 2)


def test_a_mined_start_replays_the_very_state_that_the_episode_began_from() -> None:
    options = ShoalOptions(games=1, fish=10, escape_boost_speed=0.9)
    world = ShoalWorld(options, seed=123)
    before = world.bodies()
    start = start_from_seed(123, options)
    other = ShoalWorld(ShoalOptions(games=1, fish=10, escape_boost_speed=0.1), seed=9)
    other.queue_starts([0], [start])
    other.reset()
    after = other.bodies()
    for key in ("fish_pos", "fish_vel", "predator_pos", "predator_vel"):
        assert np.array_equal(before[key], after[key]), key


def test_evaluation_seeds_are_mined_only_when_asked_and_with_a_plain_warning(
    run: Path, call: Any, tmp_path: Path
) -> None:
    path = tmp_path / "mix.json"
    code, record, said = call(
        "starts", "mine", "r", "--from-probes", "--below", "1.01", "--out", str(path)
    )
    assert code == 0
    assert "can no longer be judged" in said
    assert "--probe.seed" in said
    assert record["origin"] == "evaluation of r"
    probed = {s for e in read_lines(run / "evals.jsonl") for s in e["seeds"]}
    assert {start.seed for start in read_starts(path)} <= probed


def test_training_on_the_own_evaluation_seeds_is_said(run: Path, call: Any, tmp_path: Path) -> None:
    mix = tmp_path / "ne.json"
    call("starts", "mine", "r", "--from-probes", "--below", "1.01", "--out", str(mix))
    (tmp_path / "leak.toml").write_text(CONFIG.format(fish=10, clips="false"))
    words = (
        "train",
        str(tmp_path / "leak.toml"),
        "--plain",
        "--no-report",
        "--max-minutes",
        "0.0001",
    )
    code, _, said = call(*words, "--run", "leak")
    assert code == 0
    assert "are seeds of this run's own probes" in said
    code, _, said = call(*words, "--run", "clean", "--probe.seed", "99")
    assert "own probes" not in said


def test_nothing_that_fits_is_an_error_that_says_what_to_widen(call: Any, tmp_path: Path) -> None:
    code, _, said = call(
        "starts", "mine", "r", "--min-speed", "9", "--out", str(tmp_path / "x.json")
    )
    assert code == 2
    assert "Widen" in said
    code, _, said = call("starts", "mine", "r", "--sector", "NNE", "--out", "x.json")
    assert code == 2
    assert "Did you mean 'NE'" in said
    code, _, said = call("starts", "mine", "r")
    assert code == 2
    assert "--out mix.json" in said


def test_show_counts_types_forms_and_places(run: Path, call: Any) -> None:
    code, record, _ = call("starts", "show", str(run.parent.parent / "ne.json"))
    assert code == 0
    assert record["starts"] == record["unique"] == 8
    assert record["types"] == {"ne": 8}
    assert record["hold"] == {"predator": 8}
    assert sum(c["count"] for c in record["clusters"]) == 8
    assert all(45 <= c["heading_to"] <= 90 or c["heading_from"] < 90 for c in record["clusters"])
    code, _, said = call("starts", "show", "nowhere.json")
    assert code == 3
    assert "nowhere.json" in said


def test_the_worst_starts_of_the_newest_evaluation_are_shown(call: Any) -> None:
    code, record, _ = call("starts", "worst", "r")
    assert code == 0
    assert record["update"] == 24
    assert record["format"] == "holdfast-worst/1"


def test_an_evaluated_episode_is_filmed_again_with_the_same_outcome(
    run: Path, call: Any, tmp_path: Path
) -> None:
    clips = json.loads((run / "media" / "evals" / "u000016.json").read_text())
    assert {clip["rank"] for clip in clips} == {"worst", "median", "best"}
    for clip in clips:
        assert (run / "media" / "evals" / clip["file"]).stat().st_size > 1000
    worst = next(clip for clip in clips if clip["rank"] == "worst")
    words = worst["replay"].split()[1:]
    code, record, _ = call(*words, "--out", str(tmp_path / "again.mp4"))
    assert code == 0
    assert record["episodes"][0]["survival"] == worst["final"]
    assert (tmp_path / "again.mp4").stat().st_size > 1000


def test_films_change_nothing_of_the_run(run: Path, tmp_path: Path) -> None:
    other = trained(tmp_path, "r", 10, "false")
    assert not (other / "media").exists()

    def untimed(path: Path) -> list[dict[str, Any]]:
        lines = list(read_lines(path))
        return [{k: v for k, v in e.items() if not k.startswith("time/")} for e in lines]

    assert untimed(other / "metrics.jsonl") == untimed(run / "metrics.jsonl")


def test_a_run_that_changes_its_number_of_fish_is_mined_for_predators(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(tmp_path, "several", 6, "false")
    path, runs = tmp_path / "mix.json", str(tmp_path / "runs")
    words = ["starts", "mine", "several", "--below", "1.01", "--out", str(path)]
    assert main([*words, "--runs-dir", runs]) == 0
    keys = {tuple(start.snapshot or ()) for start in read_starts(path)}
    assert keys == {("predator_pos", "predator_vel")}


@pytest.mark.parametrize("overlap", ["off", "on"])
def test_mined_predators_are_those_of_the_episodes_whatever_guards_turned(
    overlap: str, tmp_path: Path
) -> None:
    """The jitter of the pre-roll changes every third update, and with overlap a rollout later."""
    settings = {
        "run.name": "r",
        "updates": 10,
        "stagger": 0,
        "overlap": overlap,
        "tensorboard": False,
        "games": 4,
        "fish": 3,
        "max_steps": 10,
        "learner.steps": 16,
        "learner.minibatch": 64,
        "probe.every": 0,
        "probe.episodes": 1,
        "guards.adaptive.enabled": True,
        "guards.adaptive.channels": "world.pre_roll_angle_jitter:0..3@0.3",
        "guards.adaptive.signal": "episode/length_steps",
        "guards.adaptive.low": 1000,
        "guards.adaptive.high": 2000,
        "guards.adaptive.interval": 3,
    }
    config = resolve("shoal", list(settings.items()))
    train(config, tmp_path, say=lambda _: None)
    path = tmp_path / "mix.json"
    words = f"starts mine r --below 2 --out {path} --runs-dir {tmp_path}"
    assert main(words.split()) == 0
    lines = [json.loads(x) for x in (tmp_path / "r/episodes.jsonl").read_text().splitlines()]
    speeds = {line["start"]["seed"]: line["facts/start_speed"] for line in lines}
    starts = read_starts(path)
    assert len(starts) > 20
    for one in starts:
        assert one.snapshot is not None and one.seed is not None
        speed = float(np.hypot(*one.snapshot["predator_vel"].astype(np.float64)))
        assert speed == pytest.approx(speeds[one.seed], abs=1e-6)


def test_the_same_rules_decide_the_same_so_only_changes_show(run: Path, call: Any) -> None:
    code, record, _ = call("whatif", "r", "--set", "guards.gate.freeze=50")
    assert code == 0
    assert record["not_reproduced"] == 0
    assert record["first_difference"] == 24
    gate = [d for d in record["differences"] if d["guard"] == "gate"]
    assert gate[0]["before"]["name"] == "advance"
    assert gate[0]["after"]["name"] == "frozen"
    assert {d["guard"] for d in record["differences"]} <= {"gate", "density", "boost"}
    assert Path(record["plot"]).is_file()


@pytest.mark.parametrize(
    ("change", "guard"),
    [
        ("guards.plateau.patience=1", "plateau"),
        ("guards.tails.warn_ratio=1.0", "tails"),
        ("guards.tails.share=0.5", "tails"),
        ("guards.gate.allowance=2,3", "gate"),
        ("guards.density.targets=0.5,0.6,0.7", "density"),
        ("guards.boost.phase_speeds=1:1.0", "boost"),
        ("guards.density.enabled=false", "density"),
    ],
)
def test_whatif_works_for_every_guard(change: str, guard: str, call: Any) -> None:
    extra = ("--set", "guards.plateau.window=2") if guard == "plateau" else ()
    extra += ("--set", "guards.plateau.min_gain=10") if guard == "plateau" else ()
    code, record, said = call("whatif", "r", "--set", change, *extra, "--no-plot")
    assert code == 0, said
    assert guard in {d["guard"] for d in record["differences"]}
    assert record["plot"] is None


def test_whatif_refuses_what_is_no_guard_and_says_what_is(call: Any) -> None:
    for words, text in (
        ((), "--set guards.gate.success_early_death=0.09"),
        (("--set", "learner.lr=1"), "guards.NAME.SETTING=VALUE"),
        (("--set", "guards.gate.freze=1"), "freeze"),
        (("--set", "guards.gate.freeze=5"), "Nothing differs"),
        (("--set", "guards.density.value=nope"), "'nope' is no value of this world"),
        (("--set", "guards.gate.early_death_signal=probe/ed10"), "'ed10', which is not measured"),
    ):
        code, _, said = call("whatif", "r", *words)
        assert code == 2
        assert text in said


def test_whatif_says_nothing_of_a_guard_whose_signals_were_not_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {"games": 2, "fish": 2, "learner.steps": 8, "learner.minibatch": 16, "updates": 2}
    more = {"run.name": "r", "probe.every": 0, "probe.episodes": 1, "tensorboard": False}
    train(resolve("shoal", list({**small, **more}.items())), tmp_path, say=lambda _: None)
    words = f"whatif r --set guards.progress.enabled=true --no-plot --runs-dir {tmp_path}"
    assert main(words.split()) == 2
    assert "guards.progress reads which episodes began" in capsys.readouterr().err


def test_whatif_shows_a_table_to_people(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["whatif", "r", "--set", "guards.gate.freeze=50", "--no-plot"]
    assert main([*words, "--runs-dir", str(run.parent)]) == 0
    text = capsys.readouterr().out
    assert "would have been" in text
    assert "the first at update 24 (a fact" in text


def test_only_fresh_training_episodes_are_mined() -> None:
    def line(**start: Any) -> dict[str, Any]:
        facts = {"facts/survival": 0.5, "facts/start_heading_deg": 1.0, "facts/start_speed": 1.0}
        return {"update": 3, "steps": 10, "start": start, **facts}

    lines = [
        line(seed=1, snapshot=False, id=""),
        line(seed=2, snapshot=True, id=""),
        line(seed=3, snapshot=False, id="seed-3"),
        line(seed=None),
        {"update": 1},
    ]
    assert [one.seed for one in from_training(lines)] == [1]


def test_episodes_are_chosen_by_heading_speed_and_outcome() -> None:
    episodes = [
        Found(1, 0.5, 350.0, 1.6, 1),
        Found(2, 0.2, 10.0, 2.0, 1),
        Found(2, 0.1, 10.0, 2.0, 1),
        Found(3, 0.1, 180.0, 2.0, 1),
        Found(4, 0.99, 0.0, 2.0, 1),
        Found(5, 0.0, 0.0, 1.5, 1),
    ]
    chosen = choose(episodes, Wanted((337.5, 382.5), min_speed=1.6))
    assert [(one.seed, one.survival) for one in chosen] == [(2, 0.1), (1, 0.5)]
    assert len(choose(episodes, Wanted(below=2.0, count=3))) == 3


@pytest.mark.parametrize(
    ("update", "steps", "updates"),
    [(1, 16, [0]), (3, 16, [2]), (3, 1, [2, 3]), (3, 17, [1, 2]), (3, 48, [0]), (2, 5, [1, 2])],
)
def test_an_episode_began_in_one_of_few_updates(
    update: int, steps: int, updates: list[int]
) -> None:
    assert list(began_in(Found(1, 0.0, 0.0, 0.0, update, steps), 16)) == updates
