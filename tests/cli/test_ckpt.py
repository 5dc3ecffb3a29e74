"""`holdfast ckpt` on real runs, as a user would type it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast.cli import main
from holdfast.store.journal import read_lines


def call(*words: str, code: int = 0, cwd: Path | None = None) -> str:
    """Run one command in this process; return what it printed (with errors, if it must fail)."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        contextlib.chdir(cwd or Path.cwd()),
    ):
        try:
            got = main([*words])
        except SystemExit as left:
            got = int(left.code or 0)
    assert got == code, out.getvalue() + err.getvalue()
    return out.getvalue() if code == 0 else out.getvalue() + err.getvalue()


def train(runs: Path, name: str, *more: str) -> None:
    words = ["train", "shoal", "--run", name, *SMALL, *more, "--runs-dir", str(runs)]
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *words], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


SMALL = (
    "--games 4 --fish 6 --steps 16 --hidden 8,8 --minibatch 64 --epochs 1 --updates 4 "
    "--checkpoint-every 2 --probe.every 0 --probe.episodes 1 --no-report --plain"
).split()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("runs")
    for name, more in (("first", []), ("second", ["--seed", "2", "--lr", "0.01"])):
        train(runs, name, *more)
    return runs


def as_json(runs: Path, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(call("ckpt", *words, "--json", "--runs-dir", str(runs)))
    return found


def test_show_and_list_take_runs_updates_and_paths(runs: Path) -> None:
    newest = as_json(runs, "show", "first")
    assert newest["update"] == 4 and newest["run"] == "first"
    path = str(runs / "first" / "checkpoints" / "u00000004")
    assert as_json(runs, "show", path) == newest == as_json(runs, "show", "first@4")
    assert as_json(runs, "show", str(runs / "first")) == newest
    assert as_json(runs, "show", "first", "--update", "2")["update"] == 2
    params = as_json(runs, "show", "first", "--params")["params"]
    assert params[0]["name"].startswith("learner/") and all(row["finite"] for row in params)
    rows = as_json(runs, "list", "first")["checkpoints"]
    assert [row["update"] for row in rows] == [0, 2, 4]


def test_diff_tells_how_far_training_went(runs: Path) -> None:
    found = as_json(runs, "diff", "first@0", "first@4")
    assert found["counters"]["update"] == [0, 4]
    assert found["counters"]["learner.optimiser_step"][1] > 0
    assert found["same_parameters"] is False and found["settings"] == {}
    assert all(row["max_change"] > 0 for row in found["tensors"])
    found = as_json(runs, "diff", "first", "second")
    assert found["settings"]["learner.lr"][1] == 0.01
    text = call("ckpt", "diff", "first@0", "first@4", "--runs-dir", str(runs))
    assert "update                           0 -> 4" in text
    assert "pi.0.weight" in text


def test_find_ranks_runs_and_gives_reasons(runs: Path) -> None:
    found = as_json(runs, "find", str(runs), "--like", "first")
    assert found["matches"] == 3 and not found["cut"]
    assert found["candidates"][0]["path"].endswith("first/checkpoints/u00000004")
    other = next(c for c in found["candidates"] if "second" in c["path"])
    assert {"kind": "settings", "text": "learner.lr is 0.01, wanted 0.002"} in other["reasons"]
    assert as_json(runs, "find", "--like", "first", "--relaxed")["matches"] == 6
    text = call("ckpt", "find", "--world", "mario", "--runs-dir", str(runs), code=5)
    assert "world: world is shoal, wanted mario" in text
    assert "None of 6 checkpoints fits" in text


def test_verify_finds_damage_and_numbers_that_are_not_finite(runs: Path, tmp_path: Path) -> None:
    assert "intact" in call("ckpt", "verify", "first", "--runs-dir", str(runs))
    train(tmp_path, "hurt")
    tensors = tmp_path / "hurt" / "checkpoints" / "u00000002" / "tensors.safetensors"
    data = bytearray(tensors.read_bytes())
    data[-1] ^= 1
    tensors.write_bytes(bytes(data))
    text = call("ckpt", "verify", "hurt", "--runs-dir", str(tmp_path), code=5)
    assert "does not match its SHA-256" in text and "1 of 3 checkpoints" in text


def test_export_writes_a_policy_that_init_from_and_show_can_read(
    runs: Path, tmp_path: Path
) -> None:
    out = tmp_path / "policy"
    told = as_json(runs, "export", "first", "--out", str(out), "--program")
    assert [Path(file).name for file in told["files"]] == [
        "policy.json", "policy.pt2", "policy.safetensors",
    ]  # fmt: skip
    shown = as_json(runs, "show", str(out))
    assert shown["parameters_sha256"] == as_json(runs, "show", "first")["parameters_sha256"]
    assert "--force" in call(
        "ckpt", "export", "first", "--out", str(out), "--runs-dir", str(runs), code=2
    )


def test_a_run_begins_with_the_policy_of_another_and_its_own_counters(runs: Path) -> None:
    more = ("--seed", "3", "--init-from", "first@4", "--init-scope", "policy")
    train(runs, "heir", *more)
    rows = as_json(runs, "diff", "first@4", "heir@0")["tensors"]
    same = {row["name"] for row in rows if row["same"]}
    assert {"pi.0.weight", "pi.1.weight", "pi_out.weight"} <= same
    assert not {"vf.0.weight", "vf.1.weight", "vf_out.weight"} & same
    assert as_json(runs, "diff", "first@4", "heir@0")["counters"]["learner.optimiser_step"][1] == 0
    events = [e for e in read_lines(runs / "heir" / "journal.jsonl") if e["event"] == "init"]
    assert [(e["scope"], e["source_update"]) for e in events] == [("policy", 4)]
    parameters = as_json(runs, "show", "first@4")["parameters_sha256"]
    assert events[0]["parameters_sha256"] == parameters


def write_original(folder: Path, unsafe: Any = None) -> Path:
    meta = {
        "world": 1, "stage": 1, "vector_env": {"num_envs": 8},
        "save_state": {"global_update": 12, "global_step": 0},
    }  # fmt: skip
    path = folder / "a3c_world1_stage1_0000012.pt"
    path.with_suffix(".json").write_text(json.dumps(meta))
    payload = {"model": {"_orig_mod.w": torch.ones(2, 3)}, "global_step": 0, "global_update": 12}
    torch.save(payload if unsafe is None else {**payload, "config": unsafe}, path)
    return path


def test_the_originals_checkpoints_are_shown_checked_exported_and_mended(tmp_path: Path) -> None:
    path = write_original(tmp_path)
    shown = as_json(tmp_path, "show", str(path))
    assert shown["kind"] == "original" and shown["compiled"] and shown["parameters"] == 6
    call("ckpt", "verify", str(path))
    text = call("ckpt", "migrate", str(tmp_path), "--fix-steps", "--dry-run")
    assert "would_update:6144" in text
    report = tmp_path / "report.json"
    call("ckpt", "migrate", str(tmp_path), "--fix-steps", "--out", str(report))
    assert json.loads(report.read_text())["counts"] == {"updated": 1}
    assert as_json(tmp_path, "show", str(path))["env_steps"] == 6144
    again = as_json(tmp_path, "migrate", str(tmp_path), "--fix-steps")
    assert again["counts"] == {"already_has_step": 1}
    told = as_json(tmp_path, "export", str(path), "--out", str(tmp_path / "out"))
    assert len(told["files"]) == 2
    assert (
        as_json(tmp_path, "show", str(tmp_path / "out"), "--params")["params"][0]["name"]
        == "learner/w"
    )


class Evil:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("action", ["show", "verify", "export", "diff"])
def test_an_unsafe_file_is_refused_with_exit_code_7(tmp_path: Path, action: str) -> None:
    marker = tmp_path / "ran"
    path = str(write_original(tmp_path, Evil(marker)))
    places = [path, path] if action == "diff" else [path]
    text = call("ckpt", action, *places, code=7, cwd=tmp_path)
    assert "could run code" in text and "state_dict" in text
    assert not marker.exists()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["show"], 2, "takes 1 place, and there are 0"),
        (["diff", "first"], 2, "holdfast ckpt diff first@20 first@60"),
        (["show", "frist"], 5, "Did you mean 'first'"),
        (["show", "first@77"], 5, "There are: 0, 2, 4"),
        (["show", "nowhere.pt"], 5, "There is no checkpoint nowhere.pt"),
        (["list", "nothing"], 5, "There is no run 'nothing'"),
        (["find", "/no/such/place"], 5, "no directory /no/such/place"),
        (["find", "--limit", "0"], 2, "1 or more"),
        (["find", "--like", "nothing"], 5, "There is no run 'nothing'"),
        (["find", "--update", "3"], 2, "RUN@UPDATE"),
        (["export", "first", "--part", "learner.x"], 2, "holds no 'learner.x'. Did you mean"),
        (["export", "first", "--out", "/proc/none"], 5, "Cannot write"),
        (["migrate", "/no/such/place", "--fix-steps"], 2, "no directory"),
        (["migrate", "."], 2, "--fix-steps --dry-run"),
        (["migrate", ".", "--fix-steps", "--assume-rollout-steps", "0"], 2, "1 or more"),
        (["show", "first", "--shiny"], 2, "not understood"),
    ],
)
def test_bad_input_is_explained(
    runs: Path, tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    assert said in call("ckpt", *words, "--runs-dir", str(runs), code=code, cwd=tmp_path)
