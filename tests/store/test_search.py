"""A tree of runs of both systems: what is found, in which order, and why the rest does not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.errors import StorageError
from holdfast.store.checkpoint import MANIFEST, Checkpoints, sha256
from holdfast.store.search import Candidate, Wanted, find, wanted_like

TOML = '[run]\nname = "{name}"\nseed = 1\n\n[world]\nname = "{world}"\nfish = {fish}\n\n[learner]\ngamma = 0.99\n'


def make(
    root: Path, name: str, updates: list[int], world: str = "shoal", fish: int = 6, hidden: int = 4
) -> Path:
    run = root / name
    run.mkdir(parents=True)
    (run / "run.toml").write_text(TOML.format(name=name, world=world, fish=fish))
    store = Checkpoints(run / "checkpoints", keep_last=99)
    spec = {"obs_size": 3, "hidden": [hidden], "action": "discrete", "nvec": [2]}
    for update in updates:
        learner = {"spec": spec, "parameters": {"pi.0.weight": np.ones((hidden, 3), np.float32)}}
        about = {"world": world, "env_steps": update * 100}
        store.save(update, {"learner": learner, "progress": {}}, about, frozenset())
    return run


def original(folder: Path, stem: str, update: int, step: int = 0, **other: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    meta = {
        "world": 1, "stage": 1, "action_type": "complex", "frame_skip": 4, "frame_stack": 4,
        "vector_env": {"num_envs": 8, "asynchronous": False, "base_seed": 1},
        "model": {"hidden_size": 512}, "save_state": {"global_update": update, "global_step": step},
        **other,
    }  # fmt: skip
    (folder / f"{stem}.json").write_text(json.dumps(meta))
    (folder / f"{stem}.pt").write_bytes(b"\x80 some bytes of torch's old format")


def names(candidates: list[Candidate], root: Path) -> list[str]:
    return [str(c.path.relative_to(root)) for c in candidates]


def kinds(candidate: Candidate) -> list[str]:
    return sorted({reason.kind for reason in candidate.reasons})


def at(candidates: list[Candidate], part: str) -> Candidate:
    (found,) = [c for c in candidates if part in str(c.path)]
    return found


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    make(tmp_path, "good", [10, 20])
    make(tmp_path, "deep/er/longer", [30])
    make(tmp_path, "other-world", [50], world="pursuit")
    make(tmp_path, "other-net", [60], hidden=8)
    make(tmp_path, "other-settings", [40], fish=25)
    return tmp_path


def test_five_runs_in_a_nested_tree_are_ranked_with_their_reasons(tree: Path) -> None:
    found = find(tree, wanted_like("good", tree))
    assert names(found.candidates, tree) == [
        "deep/er/longer/checkpoints/u00000030",
        "good/checkpoints/u00000020",
        "good/checkpoints/u00000010",
        "other-net/checkpoints/u00000060",
        "other-world/checkpoints/u00000050",
        "other-settings/checkpoints/u00000040",
    ]
    assert [kinds(c) for c in found.candidates] == [[], [], [], ["spec"], ["world"], ["settings"]]
    texts = [reason.text for reason in at(found.candidates, "other-net").reasons]
    assert texts == ["learner.hidden is [8], wanted [4]"]
    assert at(found.candidates, "other-settings").reasons[0].text == "world.fish is 25, wanted 6"
    assert not found.cut


def test_a_relaxed_search_lets_settings_differ_but_not_the_network(tree: Path) -> None:
    found = find(tree, wanted_like("good@10", tree), relaxed=True)
    assert kinds(at(found.candidates, "other-settings")) == []
    assert names(found.candidates, tree)[0] == "other-settings/checkpoints/u00000040"
    assert kinds(at(found.candidates, "other-net")) == ["spec"]


def test_damage_and_other_formats_are_reasons(tree: Path) -> None:
    newest = tree / "good" / "checkpoints" / "u00000020"
    (newest / "state.json").write_text("{}")
    (tree / "good" / "checkpoints" / "u00000010").rename(
        tree / "good/checkpoints/corrupt-u00000010"
    )
    future = tree / "deep/er/longer/checkpoints/u00000030" / MANIFEST
    manifest = json.loads(future.read_text())
    manifest["format"] = 99
    future.write_text(json.dumps(manifest))
    (tree / "other-settings/checkpoints/u00000040" / MANIFEST).unlink()
    found = find(tree, Wanted())
    assert kinds(at(found.candidates, "u00000020")) == ["damage"]
    assert "state.json" in at(found.candidates, "u00000020").reasons[0].text
    assert kinds(at(found.candidates, "corrupt-")) == ["damage"]
    assert at(found.candidates, "longer").reasons[0].text == "format 99, and this Holdfast reads 1"
    assert kinds(at(found.candidates, "other-settings")) == ["damage"]
    assert [kinds(c) for c in found.candidates[:2]] == [[], []]


def test_half_written_checkpoints_are_not_candidates(tree: Path) -> None:
    left = tree / "good" / "checkpoints" / ".tmp-u00000099-1"
    left.mkdir()
    (left / MANIFEST).write_text("{}")
    assert len(find(tree, Wanted()).candidates) == 6


def test_originals_are_ranked_as_the_original_did(tmp_path: Path) -> None:
    original(tmp_path / "a", "a3c_world1_stage1_0001000", 1000, 5)
    original(tmp_path / "b", "a3c_world1_stage1_latest", 2000, 9)
    original(tmp_path / "c", "a3c_world1_stage1_0002000", 2000, 3)
    original(tmp_path / "d", "a3c_world1_stage1_0002000", 2000, 7)
    found = find(tmp_path, Wanted())
    assert [c.path.parent.name for c in found.candidates] == ["d", "c", "b", "a"]


def test_originals_are_compared_strictly_or_relaxed(tmp_path: Path) -> None:
    original(tmp_path / "a", "a3c_world1_stage1_0001000", 1000)
    original(tmp_path / "b", "a3c_world1_stage1_0002000", 2000, vector_env={"num_envs": 4})
    original(tmp_path / "c", "a3c_world2_stage1_0003000", 3000, world=2)
    original(tmp_path / "d", "a3c_world1_stage1_0004000", 4000, model={"hidden_size": 256})
    like = wanted_like(str(tmp_path / "a" / "a3c_world1_stage1_0001000.pt"), tmp_path)
    strict = find(tmp_path, like)
    assert {c.path.parent.name: kinds(c) for c in strict.candidates} == {
        "a": [], "b": ["settings"], "c": ["world"], "d": ["spec"],
    }  # fmt: skip
    relaxed = find(tmp_path, like, relaxed=True)
    assert [c.path.parent.name for c in relaxed.candidates if not c.reasons] == ["b", "a"]


def test_a_json_without_its_pt_and_a_cut_pt_are_damage(tmp_path: Path) -> None:
    original(tmp_path / "a", "a3c_world1_stage1_0001000", 1000)
    (tmp_path / "a" / "a3c_world1_stage1_0001000.pt").unlink()
    original(tmp_path / "b", "a3c_world1_stage1_0001000", 1000)
    (tmp_path / "b" / "a3c_world1_stage1_0001000.pt").write_bytes(
        b"PK\x03\x04 and the rest is gone"
    )
    original(tmp_path / "c", "a3c_world1_stage1_0001000", 1000)
    (tmp_path / "c" / "a3c_world1_stage1_0001000.json").unlink()
    found = find(tmp_path, Wanted())
    assert [kinds(c) for c in found.candidates] == [["damage"]] * 3


def test_a_checkpoint_of_the_other_system_does_not_fit(tree: Path) -> None:
    original(tree / "old", "a3c_world1_stage1_0009000", 9000)
    found = find(tree, wanted_like("good", tree))
    (reason,) = at(found.candidates, "a3c_world1").reasons
    assert reason.kind == "format" and "of the original" in reason.text


def test_a_search_ends_at_its_limit_and_says_so(tree: Path) -> None:
    found = find(tree, Wanted(), limit=3)
    assert found.cut and len(found.candidates) == 3
    assert not find(tree, Wanted(), limit=6).cut


def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no directory"):
        find(tmp_path / "none", Wanted())


def test_a_manifest_that_is_forged_is_damage(tree: Path) -> None:
    path = tree / "good" / "checkpoints" / "u00000020" / MANIFEST
    manifest = json.loads(path.read_text())
    manifest["env_steps"] = 10**9
    path.write_text(json.dumps(manifest))
    assert sha256(b"") != manifest["sha256"]
    assert kinds(at(find(tree, Wanted()).candidates, "u00000020")) == ["damage"]
