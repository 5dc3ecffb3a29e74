"""The bench's arithmetic on canned lines, and that ours runs through its adapter. No speed is judged here."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"bench_{name}", BENCH / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


table = load("table")


def line(key: str, rates: list[float], case: str = "64x64/1024/2", **more: Any) -> dict[str, Any]:
    return {
        "key": key,
        "case_name": case,
        "peer": f"peer {key}",
        "version": "1.0",
        "transitions_per_s": rates,
        "cpu_s": [204_800 / rate for rate in rates],
        "limit_gflops": [60.0 for _ in rates],
        "turns": list(range(1, 2 * len(rates), 2)),
        "split": {"env": 0.1, "inference": 0.2, "advantages": 0.1, "update": 0.6},
        "transitions": 204_800,
        "gradient_steps": 1000,
        "settings": ["plain"],
        "rss_mb": 100.0,
        **more,
    }


def canned() -> list[dict[str, Any]]:
    return [
        line("fused", [300e3, 310e3, 290e3], turns=[0, 2, 4]),
        line("sb3", [30.5e3, 20e3], turns=[1, 3]),
        line("jax", [90e3], split=None, turns=[3]),
        line("torch", [50e3], turns=[3]),
        {
            "key": "puffer",
            "case_name": "64x64/1024/2",
            "failed": "ModuleNotFoundError: no pufferlib",
        },
        line("skrl", [10e3], case="64x64/8192/2"),
    ]


def test_a_row_is_what_one_contender_did_in_one_case() -> None:
    rows = table.rows_of(canned(), "64x64/1024/2")
    assert rows["fused"].median == 300e3
    assert rows["sb3"].rates == [30.5e3, 20e3]
    assert "skrl" not in rows
    assert rows["jax"].split is None and rows["sb3"].split["update"] == 0.6


def test_the_ratio_compares_every_update_with_ours_in_the_turns_beside_it() -> None:
    rows = table.rows_of(canned(), "64x64/1024/2")
    # (300 + 310) / 2 / 30.5 = 10, (310 + 290) / 2 / 20 = 15
    assert table.ratio(rows, "sb3") == pytest.approx(12.5)
    assert table.ratio(rows, "puffer") is None
    times, best = table.fastest(rows, ("sb3", "torch", "puffer"))
    assert best.key == "torch" and times == pytest.approx(6.0)
    # 300k transitions/s of 100 kFLOP are 30 GFLOP/s, half of what the machine gave.
    assert table.share(rows["fused"], 1e5) == pytest.approx(0.5)


def test_the_table_names_who_did_not_run_and_why() -> None:
    lines = table.markdown(table.rows_of(canned(), "64x64/1024/2"), 1e5)
    assert lines[2].startswith("| peer fused | 1.0 | 300k | 290k to 310k |")
    assert "| 50% |" in lines[2]
    assert "did not run: ModuleNotFoundError: no pufferlib" in lines[-1]
    assert len({row.count("|") for row in lines}) == 1


def test_bars_are_judged_in_words() -> None:
    cases = {"64x64/1024/2": table.rows_of(canned(), "64x64/1024/2")}
    words = [bar.words for bar in table.bars(cases, {"64x64/1024/2": 0.4})]
    assert words[0] == "- met: 64x64/1024/2: fused / fastest PyTorch peer: 12.50 (bar 6), peer sb3"
    assert any(w.startswith("- met: 64x64/1024/2: fused / faster JAX loop: 3.33") for w in words)
    assert any(w.startswith("- not measured: 256x256/1024/2") for w in words)
    assert words[-1].startswith("- NOT MET: 64x64/1024/2: share of the multiply-add limit")


def test_the_report_is_written_from_the_lines_alone() -> None:
    before = dict(os.environ)
    run = load("run")
    assert dict(os.environ) == before, "or every later process would compile its kernels anew"
    about = {
        "began": "now", "cpu": "a CPU", "cores": 2, "lanes": 8, "memory_gb": 8, "system": "Linux", "python": "3.11",
        "versions": {"torch": "2"}, "commit": "abc", "load": [3.0, 2.0, 1.0], "command": "bench/run.py",
        "quick": True, "repeats": 2, "games": 64,
    }  # fmt: skip
    part = {"part": "growth", "rows": [["1 games", "3 us", "40 MB"]], "verdict": "met: flat"}
    text = run.report([{"about": about}, *canned(), part])
    assert "The machine was busy" in text and "smoke run" in text and "has not ended" in text
    assert "60 to 60 GFLOP/s" in text and "- met: flat" in text


def test_growth_compares_sizes_in_turns_that_follow_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    parts = load("parts")
    schedule = [1, 4, 16, 4, 1]
    # From the third turn on the machine gives half of its speed, which 4 games against 1 must not show.
    records = {
        1: {"turns": [0, 4], "transitions_per_s": [100e3, 50e3]},
        4: {"turns": [1, 3], "transitions_per_s": [200e3, 100e3]},
        16: {"turns": [2, 2], "transitions_per_s": [100e3, 100e3]},
    }
    verdict = parts.growth_verdict(records, schedule)
    assert verdict.startswith("NOT MET") and "16 games cost 1.50 of what 4 do" in verdict
    assert "4 games cost 0.50 of what 1 do" in verdict
    records[16]["turns"] = [2, 2, 2]
    records[16]["transitions_per_s"] = [160e3, 160e3, 10e3]
    assert parts.growth_verdict(records, schedule).startswith("met: cost a transition falls")


@pytest.mark.parametrize("variant", ["fused", "torch", "fused-masked"])
def test_our_adapter_makes_the_steps_it_was_asked_for(variant: str, tmp_path: Path) -> None:
    command = [sys.executable, str(BENCH / "peers" / "ours.py"), f"--variant={variant}"]
    command += (
        "--games=2 --steps=8 --epochs=2 --minibatch=100 --threads=2 --updates=2 --warmup=1".split()
    )
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout.splitlines()[-1])
    assert record["transitions"] == 400
    assert record["world_steps"] == 8
    assert record["gradient_steps"] == 8
    assert len(record["transitions_per_s"]) == 2
    assert all(part >= 0 for part in record["split"].values())


def test_contenders_take_turns_and_one_that_fails_costs_the_others_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = load("run")
    run.CONTENDERS["broken"] = ("nothing.py", "")
    small = ["--steps=8", "--epochs=2"]
    begin = run.Player
    monkeypatch.setattr(run, "Player", lambda command, *rest: begin([*command, *small], *rest))
    found = dict(run.play("64x64/1024/2", ["fused", "broken", "torch", "fused-masked"], 2, 128))
    assert "nothing.py" in found["broken"]["failed"]
    # fused broken fused torch fused masked fused masked fused: slow ones play in the first round alone, and the broken
    # one's turn passes without it
    assert found["fused"]["turns"] == [0, 0, 2, 2, 4, 4, 6, 6, 8, 8]
    assert found["torch"]["turns"] == [3]
    assert found["fused-masked"]["turns"] == [5, 5, 7, 7]
    assert len(found["fused"]["transitions_per_s"]) == 10
    assert len(found["torch"]["transitions_per_s"]) == 1
    # A later sitting plays the case again: one of its contenders failed for another reason than being absent.
    lines = [{"key": key, "case_name": "64x64/1024/2", **record} for key, record in found.items()]
    case = [lines[0]["case_name"]]
    assert run.unfinished(lines[0], lines, ["fused", "broken"], case)
    assert not run.unfinished(lines[0], lines, ["fused", "torch"], case)
    assert not run.unfinished(lines[0], lines, ["fused", "broken"], ["64x64/8192/2"]), "kept"


def test_a_contender_that_dies_between_turns_is_recorded_as_failed(tmp_path: Path) -> None:
    turns = load("turns")
    script = f"print({turns.READY!r}, flush=True); input(); raise SystemExit('out of breath')"
    player = turns.Player([sys.executable, "-c", script], {}, tmp_path)
    assert player.wait()
    assert not player.turn() and not player.turn(0) and not player.turn(2)
    assert player.record() == {"failed": "out of breath", "absent": False}


def test_work_that_is_not_a_whole_number_of_minibatches_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCH / "peers" / "ours.py"), "--games=1", "--minibatch=1024"]
    done = subprocess.run([*command, "--updates=1"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0
    assert "not a whole number of minibatches" in done.stderr.replace("\n", " ")
