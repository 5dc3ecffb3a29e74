from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.errors import StorageError
from holdfast.store.checkpoint import FORMAT, Checkpoints, _manifest_sha256, parameters_sha256


def state(x: float = 1.0) -> dict[str, Any]:
    return {
        "learner": {"parameters": {"w": np.full((2, 3), x, np.float32)}, "norm": None},
        "world": {"t": np.arange(4), "queue": b"\x00\xff", "empty": np.zeros((0, 2))},
        "progress": {"best": -np.inf, "recent": [{"a": 1.5}], "big": 2**127 + 1, "flag": True},
    }


def save(
    store: Checkpoints,
    update: int,
    x: float = 1.0,
    keep: frozenset[int] = frozenset(),
    checkpoint_every: int = 1,
) -> None:
    store.save(update, state(x), {"checkpoint_every": checkpoint_every}, keep)


def test_a_state_comes_back_exactly(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    save(store, 7)
    back = store.find(None).load()
    want = state()
    np.testing.assert_array_equal(
        back["learner"]["parameters"]["w"], want["learner"]["parameters"]["w"]
    )
    assert back["world"]["t"].dtype == want["world"]["t"].dtype
    assert back["world"]["queue"] == b"\x00\xff"
    assert back["world"]["empty"].shape == (0, 2)
    assert back["progress"] == want["progress"]
    assert back["learner"]["norm"] is None


def test_the_manifest_says_which_parameters_are_inside(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    save(store, 1)
    manifest = store.find(1).manifest()
    assert manifest["parameters_sha256"] == parameters_sha256(state())
    assert manifest["parameters_sha256"] != parameters_sha256(state(2.0))
    assert (tmp_path / "LATEST").read_text().strip() == "u00000001"


def test_retention_keeps_the_last_three_every_tenth_and_the_best(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, keep_last=3, keep_every=10)
    for update in range(1, 26):
        save(store, update, keep=frozenset({7}))
    assert [c.update for c in store.all()] == [7, 10, 20, 23, 24, 25]


def test_a_checkpoint_out_of_turn_is_no_milestone(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, keep_last=2, keep_every=2)
    for update in range(31):
        save(store, update, keep=frozenset({update}), checkpoint_every=10)
    assert [c.update for c in store.all()] == [0, 20, 29, 30]


@pytest.mark.parametrize("file", ["manifest.json", "tensors.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_a_damaged_newest_checkpoint_is_set_aside_loudly(
    tmp_path: Path, file: str, damage: str
) -> None:
    store = Checkpoints(tmp_path)
    save(store, 1)
    save(store, 2)
    victim = tmp_path / "u00000002" / file
    data = bytearray(victim.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 0x40
        victim.write_bytes(bytes(data))
    elif damage == "truncate":
        victim.write_bytes(bytes(data[: len(data) // 2]))
    else:
        victim.unlink()
    said: list[str] = []
    found = store.newest(said.append)
    assert found is not None and found.update == 1
    assert "CORRUPT" in said[0] and "u00000002" in said[0]
    assert (tmp_path / "corrupt-u00000002").is_dir()


def rewrite(path: Path, change: dict[str, Any], seal: bool) -> None:
    """Change a manifest, with a new seal of its own or with the old one."""
    manifest = json.loads((path / "manifest.json").read_text()) | change
    if seal:
        manifest["sha256"] = _manifest_sha256(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest, indent=2))


def test_a_manifest_that_was_changed_by_hand_is_found(tmp_path: Path) -> None:
    save(Checkpoints(tmp_path), 2)
    rewrite(tmp_path / "u00000002", {"checkpoint_every": 5}, seal=False)
    with pytest.raises(StorageError, match=r"manifest\.json does not match its SHA-256"):
        Checkpoints(tmp_path).find(None)


def test_a_checkpoint_of_a_newer_format_is_not_read(tmp_path: Path) -> None:
    save(Checkpoints(tmp_path), 2)
    rewrite(tmp_path / "u00000002", {"format": FORMAT + 1}, seal=True)
    with pytest.raises(StorageError, match=f"format {FORMAT + 1} is newer than this Holdfast"):
        Checkpoints(tmp_path).find(None)


def test_the_best_is_the_one_that_the_newest_names_if_it_is_kept(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, keep_last=2, keep_every=0)
    for update in (1, 2, 3):
        about = {"checkpoint_every": 1, "best_update": 1}
        store.save(update, state(), about, frozenset({1}))
    assert store.best().update == 1
    store.save(4, state(), {"checkpoint_every": 1, "best_update": 1}, frozenset())
    assert store.best().update == 4
    store.save(5, state(), {"checkpoint_every": 1, "best_update": 0}, frozenset())
    assert store.best().update == 5, "nothing was evaluated"


def test_when_nothing_is_intact_there_is_no_silent_fresh_start(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    save(store, 1)
    (tmp_path / "u00000001" / "state.json").write_text("{}")
    with pytest.raises(StorageError, match="intact"):
        store.newest(lambda text: None)
    with pytest.raises(StorageError, match="intact"):
        store.newest(lambda text: None)


def test_no_checkpoint_at_all_is_none(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "none").newest(lambda text: None) is None


def test_an_object_that_would_need_pickle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="progress/x"):
        Checkpoints(tmp_path).save(1, {"progress": {"x": object()}}, {}, frozenset())
