"""Small real runs of mario: death places, scripts, forward probe and replay at work, and exact resume of all of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
from holdfast.cli.whatif import decide
from holdfast.errors import AssetError, ConfigError
from holdfast.guards.whatif import compare
from holdfast.records import unpack_starts
from holdfast.run import RunDirectory, resume
from holdfast.store.journal import read_lines
from holdfast.worlds.mario import MarioOptions, MarioWorld

BASE: dict[str, Any] = {
    "run__updates": 12,
    "run__checkpoint_every": 3,
    "run__keep_last": 100,
    "run__tensorboard": False,
    "run__seed": 2,
    "world__games": 6,
    "world__noops": 3,
    "world__trail_every": 8,
    "world__stagnation_steps": 40,
    "learner__steps": 32,
    "learner__epochs": 2,
    "learner__minibatch": 64,
    "learner__hidden": (16, 16),
    "learner__threads": 1,
    "probe__every": 0,
    "probe__episodes": 2,
}
TAILS: dict[str, Any] = {
    "guards__tails__enabled": True,
    "guards__tails__mine": True,
    "guards__tails__share": 0.5,
}
PIXELS: dict[str, Any] = {
    "world__observation": "pixels",
    "world__games": 3,
    "learner__net": "small",
    "learner__steps": 16,
}


def quiet(text: str) -> None:
    """Say nothing."""


def train(runs: Path, name: str, **more: Any) -> Path:
    settings = {**BASE, **more}
    holdfast.train("mario", runs_dir=runs, run=name, say=quiet, **settings)
    return runs / name


def untimed(run: Path, name: str) -> list[dict[str, Any]]:
    return [
        {k: v for k, v in line.items() if k != "at" and not k.startswith("time/")}
        for line in read_lines(run / name)
    ]


def tensors(run: Path) -> dict[str, Any]:
    """Return every number of the newest checkpoint, flat, by its path."""
    newest = RunDirectory(run).checkpoints().newest(quiet)
    assert newest is not None
    found: dict[str, Any] = {}

    def walk(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(inner, f"{path}/{key}")
        elif isinstance(value, list):
            for k, inner in enumerate(value):
                walk(inner, f"{path}/{k}")
        else:
            found[path] = value

    walk({k: v for k, v in newest.load().items() if k != "recorder"}, "")
    return found


def same(one: Path, two: Path) -> None:
    """Fail unless the newest checkpoints and the records of two runs are equal."""
    a, b = tensors(one), tensors(two)
    assert a.keys() == b.keys()
    for path, value in a.items():
        assert np.array_equal(value, b[path]), path
    for name in ("metrics.jsonl", "episodes.jsonl", "evals.jsonl", "journal.jsonl"):
        assert untimed(one, name) == untimed(two, name), name


def resumed_at(whole: Path, update: int) -> Path:
    """Return a copy of a run that lost everything after `update` and was resumed."""
    copy = whole.parent / f"{whole.name}-at-{update}" / whole.name
    shutil.copytree(whole, copy)
    for path in (copy / "checkpoints").glob("u*"):
        if int(path.name[1:]) > update:
            shutil.rmtree(path)
    (copy / "checkpoints" / "LATEST").write_text(f"u{update:08d}\n")
    resume(whole.name, copy.parent, say=quiet)
    return copy


@pytest.fixture(scope="module")
def mined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # So many episodes that some places of death come again, whatever the seed.
    enough = {"run__updates": 16, "world__games": 16}
    return train(tmp_path_factory.mktemp("mined"), "whole", **TAILS, **enough)


def test_places_where_it_keeps_dying_are_played_again(mined: Path) -> None:
    lines = untimed(mined, "metrics.jsonl")
    offered = [start for line in lines for start in line.get("starts/mined", ())]
    assert offered and all(start["id"].startswith("1-1:37:") for start in offered)
    assert all(start["snapshot"] is True for start in offered), "a brief, never the console itself"
    again = [e for e in read_lines(mined / "episodes.jsonl") if e["start"]["type"] == "tail"]
    assert again and {e["start"]["id"] for e in again} <= {start["id"] for start in offered}
    assert max(line["guard/tails/mined_consumed"] for line in lines) >= len(again)
    newest = RunDirectory(mined).checkpoints().newest(quiet)
    assert newest is not None
    records = [record for _, record in newest.load()["guard.tails"]["records"]]
    assert sum(r["successes"] + r["failures"] for r in records) > 0, "their outcomes are judged"
    assert any(line["places/worst_share"] > 0 for line in lines if "places/worst_share" in line)
    assert max(len(json.dumps(line)) for line in lines) < 40_000


def test_a_run_with_death_places_resumes_exactly(mined: Path) -> None:
    state = tensors(mined)
    assert any(path.startswith("/places/places/") for path in state)
    same(mined, resumed_at(mined, 6))


def test_an_episode_from_a_start_of_the_ledger_plays_the_same_in_every_world(mined: Path) -> None:
    newest = RunDirectory(mined).checkpoints().newest(quiet)
    assert newest is not None
    held = unpack_starts(newest.load()["guard.tails"]["mined_starts"])[0]
    start, place = held[0], held[0].id
    rng = np.random.default_rng(4)
    presses = rng.choice(7, 120, p=[0.02, 0.1, 0.2, 0.25, 0.4, 0.02, 0.01])
    played = []
    for games, threads, seed in ((1, 1, 1), (5, 2, 77)):
        options = MarioOptions(games=games, threads=threads, noops=30, trail=0)
        world = MarioWorld(options, seed=seed)
        slot = games - 1
        world.queue_starts([slot], [start])
        world.reset()
        assert world.current_starts()[slot].id == place
        rows: list[Any] = [world.observe()[0][slot].tobytes()]
        for action in presses:
            obs, rewards, ended, cut, _ = world.step(np.full(games, action))
            rows.append((obs[slot].tobytes(), float(rewards[slot]), bool(ended[slot] | cut[slot])))
            if ended[slot] | cut[slot]:
                rows[-1] = rows[-1][1:]  # the picture is that of the next episode
                break
        played.append(rows)
        world.close()
    assert len(played[0]) > 10 and played[0] == played[1]


def test_values_of_the_world_are_known_before_the_first_update(tmp_path: Path) -> None:
    boosted = {"enabled": True, "early_updates": 2, "early_factor": 3.0, "stall_updates": 0}
    settings = {f"guards__bootstrap__{k}": v for k, v in boosted.items()}
    run = train(tmp_path, "r", **settings, run__updates=4)
    values = [line["world/reward_progress"] for line in untimed(run, "metrics.jsonl")]
    assert values[:2] == [3.0, 3.0] and values[-1] == 1.0
    own, _ = decide(RunDirectory(run).config(), list(read_lines(run / "metrics.jsonl")), True)
    assert [d.kind for _, _, d in own] == ["set_world", "unset_world"]
    assert compare(read_lines(run / "journal.jsonl"), own, ["bootstrap"]) == [], (
        "it can be replayed"
    )


def test_a_script_that_cannot_be_played_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    wrong = {"guards__bootstrap__enabled": True, "guards__bootstrap__inject": "RIGHT+X:9"}
    with pytest.raises(ConfigError, match=r"guards\.bootstrap\.inject.*RIGHT\+X"):
        train(tmp_path, "r", **wrong)
    assert not (tmp_path / "r").exists()


def test_the_forward_probe_tells_its_result_and_the_guard_uses_it(tmp_path: Path) -> None:
    said: list[str] = []
    settings = {"guards__bootstrap__enabled": True, "guards__bootstrap__forward_probe": 20}
    more = {**BASE, **settings, "run__updates": 1}
    holdfast.train("mario", runs_dir=tmp_path, run="r", say=said.append, **more)
    report = json.loads((tmp_path / "r" / "forward.json").read_text())
    assert report["best"] == report["rows"][0]["buttons"] and "RIGHT" in report["best"]
    assert RunDirectory(tmp_path / "r").config().guards.bootstrap.forward == report["best"]
    assert any(f"forward is {report['best']}" in text for text in said)


@pytest.mark.parametrize("kind", ["torch", "vtrace"])
def test_a_run_from_pictures_resumes_exactly(kind: str, tmp_path: Path) -> None:
    """PPO with tail starts, and V-trace with a replay that is a part of the checkpoint."""
    more = {**PIXELS, **TAILS, "learner__kind": kind}
    if kind == "vtrace":
        more |= {
            "learner__replay__enabled": True,
            "learner__replay__capacity": 200,
            "learner__replay__batch": 2,
        }
    whole = train(tmp_path, "whole", **more)
    parts = {path.split("/")[1] for path in tensors(whole)}
    assert ("replay" in parts) == (kind == "vtrace") and "places" in parts
    if kind == "vtrace":
        assert untimed(whole, "metrics.jsonl")[-1]["train/replay_samples"] > 0
    same(whole, resumed_at(whole, 6))


def test_what_the_adaptive_scheduler_turns_stays_turned(tmp_path: Path) -> None:
    """Distance weight, entropy and step size: each goes on from where the last look left it."""
    channels = (
        "world.reward_progress:1..2@0.5,learner.entropy:0.01..0.09@0.5,learner.lr_scale:1..2@0.5"
    )
    settings = {"enabled": True, "channels": channels, "low": 2.0, "high": 3.0, "interval": 2}
    run = train(
        tmp_path,
        "r",
        **{f"guards__adaptive__{k}": v for k, v in settings.items()},
        guards__adaptive__window=5,
        run__updates=7,
        learner__entropy=0.01,
    )
    lines = untimed(run, "metrics.jsonl")
    for name in ("train/entropy", "train/lr_scale", "world/reward_progress"):
        series = [line[name] for line in lines]
        assert series == sorted(series) and len(set(series)) >= 3, (name, series)


PHASES = """
[run]
seed = 2
checkpoint_every = 1
keep_last = 100
tensorboard = false
[world]
name = "mario"
games = 4
stages = "1-1,2-1,3-1"
stage_schedule = "curriculum"
stage_unlock = 0.0
stage_episodes = 1
max_steps = 40
anneal = "death>-125@2000"
[learner]
steps = 32
epochs = 1
minibatch = 64
hidden = [16]
threads = 1
[probe]
every = 1
episodes = 1
[guards.bootstrap]
enabled = true
early_updates = 2
stall_updates = 0
[[phase]]
name = "begin"
updates = 4
[[phase]]
name = "main"
updates = 3
world = { reward_progress = 0.5 }
"""


def test_a_phase_goes_on_with_clock_and_stages_and_has_its_own_rewards(tmp_path: Path) -> None:
    config = tmp_path / "phases.toml"
    config.write_text(PHASES)
    holdfast.train(str(config), runs_dir=tmp_path, run="r", say=quiet)
    run = tmp_path / "r"
    lines = untimed(run, "metrics.jsonl")
    deaths = [line["world/reward_death"] for line in lines]
    assert deaths == pytest.approx([-25 - 0.05 * line["env_steps"] for line in lines])
    assert [line["world/reward_progress"] for line in lines] == [2, 2, 1, 1, 0.5, 0.5, 0.5]
    kept = {c.update: c.load()["world"]["schedule"] for c in RunDirectory(run).checkpoints().all()}
    episodes = [sum(kept[update][3:6]) for update in sorted(kept)]
    assert episodes == sorted(episodes) and kept[5][6] >= kept[4][6] > 1
    evals = [(e["metrics"], e["update"]) for e in read_lines(run / "evals.jsonl")]
    best = max(evals, key=lambda e: (e[0]["clear_rate"], e[0]["best_x_mean"], e[1]))[1]
    assert tensors(run)["/progress/best_update"] == best
    same(run, resumed_at(run, 4))
    same(run, resumed_at(run, 6))


@pytest.mark.parametrize(
    ("option", "phases", "said"),
    [
        ("actions", ("simple", "complex"), "12 actions, and that of the run is for .* 7 actions"),
        ("observation", ("tiles", "pixels"), r"\(84, 84\) uint8, 4 at a time.* \(487,\) float32"),
    ],
)
@pytest.mark.parametrize("place", ["phase 2", "probe.world"])
def test_a_phase_or_probe_for_another_network_is_refused(
    tmp_path: Path, place: str, option: str, phases: tuple[str, str], said: str
) -> None:
    plan = {"plan__option": option, "plan__curriculum": f"{phases[0]}:1,{phases[1]}:1"}
    probe = {"probe__world": {option: phases[1]}}
    with pytest.raises(ConfigError, match=f"{place}.*{said}"):
        train(tmp_path, "other", **(plan if place == "phase 2" else probe))
    assert not (tmp_path / "other").exists()


def test_mined_starts_are_played_only_while_their_stage_is(tmp_path: Path) -> None:
    stages = {"plan__option": "stages", "plan__curriculum": "1-1:12,1-2:3"}
    run = train(tmp_path, "r", **{**TAILS, **stages, "run__updates": 15, "world__games": 16})
    lines = untimed(run, "metrics.jsonl")
    assert [line["starts/labels"] for line in lines] == [["1-1"]] * 12 + [["1-2"]] * 3
    assert lines[-1]["guard/tails/mined"] > 0
    assert any(line["guard/tails/injections"] for line in lines[:12])
    later = [e["start"] for e in read_lines(run / "episodes.jsonl") if e["update"] > 12]
    assert later and {start["label"] for start in later} == {"1-2"}


def test_a_smaller_world_goes_on_with_clock_and_stages(tmp_path: Path) -> None:
    staged = {
        "world__stages": "1-1,1-2",
        "world__stage_schedule": "curriculum",
        "world__stage_unlock": 0.0,
        "world__stage_episodes": 1,
        "world__anneal": "death>-50@100000",
    }
    run = train(tmp_path, "r", **{**staged, "run__updates": 4})
    path = run / "run.toml"
    path.write_text(path.read_text().replace("games = 6", "games = 5"))
    resume("r", tmp_path, [("updates", 5)], say=quiet)
    kept = [c.load()["world"]["schedule"] for c in RunDirectory(run).checkpoints().all()]
    assert [len(rates) for rates in kept] == [7] * len(kept)
    assert kept[-1][4] == 2 and sum(kept[-1][2:4]) >= sum(kept[-2][2:4]) > 0
    lines = untimed(run, "metrics.jsonl")
    assert [line["world/games"] for line in lines] == [6] * 4 + [5]
    deaths = [line["world/reward_death"] for line in lines]
    assert deaths == sorted(deaths, reverse=True) and len(set(deaths)) == 5


@pytest.mark.parametrize(
    ("code", "why"), [(b"\x4c\x00\x80", "after 2000 frames"), (b"\x02", "jammed")]
)
def test_a_cartridge_that_does_not_boot_leaves_the_name_of_its_run_free(
    code: bytes, why: str, tmp_path: Path
) -> None:
    program = code.ljust(0x7FFA, b"\xea") + b"\x00\x80" * 3
    rom = tmp_path / "game.nes"
    rom.write_bytes(b"NES\x1a\x02\x01\x01".ljust(16, b"\x00") + program + bytes(8192))
    with pytest.raises(AssetError, match=f"Stage 1-1 did not boot: .*{why}.*--rom"):
        train(tmp_path, "r", world__rom=str(rom), world__any_rom=True)
    assert not (tmp_path / "r").exists()
