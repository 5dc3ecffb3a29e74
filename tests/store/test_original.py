"""The original's `.pt` and `.json` checkpoints: read safely, and their missing steps filled in."""

from __future__ import annotations

import json
import os
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from holdfast.errors import ConfigError, StorageError, UnsafeFileError
from holdfast.store.backfill import SOURCE, Fix, FixOptions, fix_steps, report
from holdfast.store.original import load_pt, open_original, problems, summary
from holdfast.store.weights import read_source


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def write(
    folder: Path,
    update: int = 12,
    step: int = 0,
    envs: int | None = 8,
    stem: str = "a3c_world1_stage1_0000012",
    pt: dict[str, Any] | None = None,
    **meta: Any,
) -> Path:
    """Write a checkpoint as the original did; return its `.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    saved = {"global_step": step, "global_update": update, "type": "checkpoint", "reason": "normal"}
    vector = {"asynchronous": False, "base_seed": 1, **({} if envs is None else {"num_envs": envs})}
    path = folder / f"{stem}.json"
    shown = {"version": 1, "world": 1, "stage": 1, "action_type": "complex", "vector_env": vector}
    path.write_text(json.dumps({**shown, "model": {"hidden_size": 4}, "save_state": saved, **meta}))
    if pt is not None:
        torch.save({"model": net().state_dict(), **pt}, path.with_suffix(".pt"))
    return path


def only(fixes: list[Fix]) -> Fix:
    assert len(fixes) == 1
    return fixes[0]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


class Evil:
    """An object whose unpickling runs a command."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_file_that_would_run_code_is_refused_and_does_not_run_it(
    tmp_path: Path, wrapped: bool
) -> None:
    path, marker = tmp_path / "a3c_world1_stage1_latest.pt", tmp_path / "ran"
    if wrapped:
        torch.save({"model": net().state_dict(), "config": Evil(marker)}, path)
    else:
        path.write_bytes(pickle.dumps(Evil(marker)))
    with pytest.raises(UnsafeFileError, match="could run code") as refused:
        load_pt(path)
    assert refused.value.exit_code == 7
    assert "system" in str(refused.value) or not wrapped
    assert not marker.exists()
    with pytest.raises(UnsafeFileError):
        read_source(str(path), tmp_path)
    assert not marker.exists()


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 cut"])
def test_a_damaged_file_is_told_apart_from_an_unsafe_one(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a3c_world1_stage1_latest.pt"
    path.write_bytes(content)
    with pytest.raises(StorageError, match=r"latest\.pt"):
        load_pt(path)


def test_a_truncated_checkpoint_is_damaged(tmp_path: Path) -> None:
    path = write(tmp_path, pt={"global_step": 0}).with_suffix(".pt")
    path.write_bytes(path.read_bytes()[:-300])
    assert "damaged" in problems(open_original(path))[0]


def test_a_summary_says_what_the_original_printed(tmp_path: Path) -> None:
    replay = {"enable": True, "capacity": 1000, "per_sample_interval": 4}
    path = write(tmp_path, step=6144, replay=replay, frame_skip=4, frame_stack=4)
    model = OrderedDict((f"_orig_mod.{k}", v) for k, v in net().state_dict().items())
    torch.save({"model": model, "global_step": 6144, "global_update": 12}, path.with_suffix(".pt"))
    told = summary(open_original(path))
    assert told["update"] == 12 and told["env_steps"] == 6144
    assert told["tensors"] == 4 and told["parameters"] == 26
    assert told["dtypes"] == {"float32": 4}
    assert told["compiled"] is True
    assert told["replay"] == replay and told["num_envs"] == 8
    assert problems(open_original(path)) == []


def test_counters_that_disagree_and_numbers_that_are_not_finite_are_problems(
    tmp_path: Path,
) -> None:
    path = write(tmp_path, step=5, pt={"global_step": 6, "global_update": 12})
    assert problems(open_original(path)) == ["global_step is 5 in the .json and 6 in the .pt"]
    torch.save({"model": {"w": torch.tensor([1.0, float("nan")])}}, path.with_suffix(".pt"))
    assert problems(open_original(path)) == ["not finite: w"]


def test_bfloat16_parameters_come_as_float32(tmp_path: Path) -> None:
    path = tmp_path / "half.pt"
    torch.save({"w": torch.ones(2, dtype=torch.bfloat16)}, path)
    value = read_source(str(path), tmp_path).learners["learner"].parameters["w"]
    assert value.dtype == np.float32 and (value == 1).all()


def test_update_12_of_8_environments_is_6144_steps(tmp_path: Path) -> None:
    path = write(tmp_path / "deep" / "er", pt={"global_step": 0, "global_update": 12})
    fix = only(fix_steps(tmp_path, FixOptions()))
    assert (fix.status, fix.method, fix.pt) == ("updated:6144", "assumed_rollout_steps", "updated")
    meta = json.loads(path.read_text())
    assert meta["save_state"]["global_step"] == 6144
    assert meta[SOURCE]["rollout_steps"] == 64 and "computed_at" in meta[SOURCE]
    assert "checkpoint_global_update" not in meta[SOURCE]
    assert load_pt(path.with_suffix(".pt"))["global_step"] == 6144
    assert problems(open_original(path)) == []


def test_a_second_time_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path / "a", pt={"global_step": 0})
    write(tmp_path / "b", update=0, pt={"global_update": 5})
    fix_steps(tmp_path, FixOptions())
    before = contents(tmp_path)
    for options in (FixOptions(), FixOptions(update_if_lower=True)):
        again = fix_steps(tmp_path, options)
        skipped = "current_step>=computed" if options.update_if_lower else "already_has_step"
        assert [fix.status for fix in again] == [skipped] * 2
        assert contents(tmp_path) == before


def test_a_dry_run_tells_the_number_and_writes_nothing(tmp_path: Path) -> None:
    write(tmp_path, pt={"global_step": 0})
    before = contents(tmp_path)
    fix = only(fix_steps(tmp_path, FixOptions(dry_run=True)))
    assert fix.status == "would_update:6144"
    assert contents(tmp_path) == before


def test_the_update_is_taken_from_the_pt_when_the_json_has_none(tmp_path: Path) -> None:
    path = write(tmp_path, update=0, pt={"global_update": 5, "global_step": 0})
    fix = only(fix_steps(tmp_path, FixOptions(rollout_steps=32)))
    assert (fix.status, fix.method) == (f"updated:{5 * 8 * 32}", "checkpoint_plus_rollout")
    meta = json.loads(path.read_text())
    assert meta[SOURCE]["checkpoint_global_update"] == 5
    assert meta["save_state"]["global_update"] == 5


def test_a_skipped_file_keeps_its_update(tmp_path: Path) -> None:
    path = write(tmp_path, update=0, step=99, pt={"global_update": 5})
    before = path.read_bytes()
    assert only(fix_steps(tmp_path, FixOptions())).status == "already_has_step"
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("given", "options", "status"),
    [
        ({"update": 0}, {}, "no_update_info"),
        ({"update": 0, "pt": {"global_update": 0}}, {}, "no_update_info"),
        ({"envs": None}, {}, "missing_num_envs"),
        ({"step": 100}, {}, "already_has_step"),
        ({"step": 100}, {"update_if_lower": True}, "updated:6144"),
        ({"step": 9999}, {"update_if_lower": True}, "current_step>=computed"),
        ({SOURCE: {"method": "x"}}, {}, "already_reconstructed"),
        ({SOURCE: {"method": "x"}}, {"update_if_lower": True}, "updated:6144"),
    ],
)
def test_what_becomes_of_a_file_follows_from_the_file(
    tmp_path: Path, given: dict[str, Any], options: dict[str, Any], status: str
) -> None:
    write(tmp_path, **given)
    assert only(fix_steps(tmp_path, FixOptions(**options))).status == status


def test_the_backup_is_made_once_and_holds_the_first_state(tmp_path: Path) -> None:
    path = write(tmp_path)
    first = path.read_bytes()
    fix_steps(tmp_path, FixOptions())
    fix_steps(tmp_path, FixOptions(rollout_steps=128, update_if_lower=True))
    assert json.loads(path.read_text())["save_state"]["global_step"] == 12 * 8 * 128
    assert path.with_name(path.name + ".bak").read_bytes() == first
    other = write(tmp_path / "other")
    fix_steps(tmp_path / "other", FixOptions(backup=False))
    assert not other.with_name(other.name + ".bak").exists()


def test_a_pt_that_knows_its_steps_and_one_that_is_not_to_be_touched_stay(tmp_path: Path) -> None:
    path = write(tmp_path, pt={"global_step": 777})
    before = path.with_suffix(".pt").read_bytes()
    assert only(fix_steps(tmp_path, FixOptions())).pt == "left alone: it says 777"
    assert path.with_suffix(".pt").read_bytes() == before
    other = write(tmp_path / "other", pt={"global_step": 0})
    before = other.with_suffix(".pt").read_bytes()
    assert only(fix_steps(tmp_path / "other", FixOptions(json_only=True))).pt == "left alone"
    assert other.with_suffix(".pt").read_bytes() == before


def test_a_crash_between_the_two_files_is_mended_by_doing_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, pt={"global_step": 0})

    def die(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("holdfast.store.backfill.json.dumps", die)
        with pytest.raises(KeyboardInterrupt):
            fix_steps(tmp_path, FixOptions())
    assert load_pt(path.with_suffix(".pt"))["global_step"] == 6144
    assert json.loads(path.read_text())["save_state"]["global_step"] == 0
    fix = only(fix_steps(tmp_path, FixOptions()))
    assert (fix.status, fix.pt) == ("updated:6144", "has it")
    assert problems(open_original(path)) == []


def test_an_unsafe_pt_is_never_opened_for_its_update(tmp_path: Path) -> None:
    path, marker = write(tmp_path, update=0), tmp_path / "ran"
    torch.save({"config": Evil(marker)}, path.with_suffix(".pt"))
    fixes = fix_steps(tmp_path, FixOptions())
    assert only(fixes).status == "unsafe_checkpoint"
    assert report(tmp_path, fixes, FixOptions())["counts"] == {"unsafe_checkpoint": 1}
    assert not marker.exists()


def test_a_json_that_is_none_is_told_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "a3c_world1_stage1_0000001.json").write_text("{")
    (tmp_path / "a3c_world1_stage1_0000002.json").write_text("[]")
    (tmp_path / "other.json").write_text("{}")
    write(tmp_path)
    found = [fix.status for fix in fix_steps(tmp_path, FixOptions())]
    assert found == ["unreadable", "unreadable", "updated:6144"]


def test_a_root_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no directory") as error:
        fix_steps(tmp_path / "none", FixOptions())
    assert error.value.exit_code == 2
    with pytest.raises(ConfigError, match="--assume-rollout-steps 0"):
        fix_steps(tmp_path, FixOptions(rollout_steps=0))
