"""Starts survive their file, and the original's mixes are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.errors import AssetError, ConfigError
from holdfast.records import Start
from holdfast.worlds.shoal import ShoalOptions, ShoalWorld
from holdfast.worlds.shoal.starts import (
    check_fish,
    read_starts,
    snapshot_start,
    start_from_seed,
    velocity_start,
    write_starts,
)


def test_starts_come_back_from_their_file_exactly(tmp_path: Path) -> None:
    world = ShoalWorld(ShoalOptions(games=2, fish=4), seed=1)
    starts = [
        Start(seed=5, label="a", type="ne", origin="here", id="one"),
        snapshot_start(world, 1, label="b"),
        velocity_start([0.83, 1.76], seed=3),
        start_from_seed(77, world.options),
    ]
    again = read_starts(write_starts(tmp_path / "starts.json", starts))
    for old, new in zip(starts, again, strict=True):
        assert old.brief() == new.brief()
        if old.snapshot is None:
            assert new.snapshot is None
            continue
        assert new.snapshot is not None
        for key, value in old.snapshot.items():
            np.testing.assert_array_equal(new.snapshot[key], np.asarray(value))


def test_a_frozen_seed_start_outlives_a_change_of_the_boost() -> None:
    options = ShoalOptions(games=1, fish=8)
    world = ShoalWorld(options, seed=0)
    obs, _ = world.reset(seed=77)
    world.set_value("escape_boost_speed", 0.3)
    world.queue_starts([0], [start_from_seed(77, options)])
    np.testing.assert_array_equal(world.reset()[0], obs)


def test_an_original_mix_gives_velocities_then_cluster_samples(tmp_path: Path) -> None:
    path = tmp_path / "tail_seed_mix_x.json"
    clusters = [{"sample": {"predator_velocity": [-0.1, 0.2]}}, {"count": 3}]
    mix = {"velocities": [[1.0, 2.0], "bad", [3.0]], "summary": {"clusters": clusters}}
    path.write_text(json.dumps(mix))
    starts = read_starts(path, type="ne", limit=5)
    assert len(starts) == 5
    assert {start.type for start in starts} == {"ne"}
    assert starts[0].label == "tail_seed_mix_x"
    velocities = [start.snapshot["predator_vel"].tolist() for start in starts if start.snapshot]
    assert velocities[0] == velocities[2] == velocities[4] == [1.0, 2.0]
    np.testing.assert_allclose(velocities[1], [-0.1, 0.2], atol=1e-7)


def test_missing_and_wrong_files_are_asset_errors(tmp_path: Path) -> None:
    with pytest.raises(AssetError, match="no file of starts"):
        read_starts(tmp_path / "none.json")
    for name, text in (("text.json", "hello"), ("list.json", "[1]"), ("empty.json", "{}")):
        (tmp_path / name).write_text(text)
        with pytest.raises(AssetError, match=name):
            read_starts(tmp_path / name)


@pytest.mark.parametrize(
    ("start", "named"),
    [
        ({"seed": -5}, "seed -5"),
        ({"seed": 1.5}, "seed 1.5"),
        ({"seed": 1, "snapshot": {"predator_vel": [1.0]}}, "predator_vel"),
        ({"seed": 1, "snapshot": {"predator_vel": [1e400, 1.0]}}, "not finite"),
        ({"seed": 1, "snapshot": {"predatr_vel": [1.0, 2.0]}}, "predator_vel"),
        ({"seed": 1, "snapshot": {"fish_pos": 3}}, "fish_pos"),
        ({"seed": 1, "snapshot": {"alive": [False, False]}}, "One must live"),
        ({"seed": 1, "snapshot": {"fish_pos": [[0, 1]], "alive": [True, True]}}, "alive"),
    ],
)
def test_a_start_that_no_world_could_begin_from_is_refused_with_its_file(
    start: dict[str, Any], named: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.json"
    path.write_text(
        json.dumps({"format": "holdfast-starts/1", "world": "shoal", "starts": [start]})
    )
    with pytest.raises(AssetError, match=r"x\.json") as refused:
        read_starts(path)
    assert named in str(refused.value)


def test_a_start_of_no_type_is_a_tail_and_those_of_other_worlds_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    content = {"format": "holdfast-starts/1", "world": "shoal", "starts": [{"seed": 1}]}
    path.write_text(json.dumps(content))
    assert read_starts(path)[0].type == "tail"
    path.write_text(json.dumps({**content, "world": "mario"}))
    with pytest.raises(AssetError, match="starts of mario"):
        read_starts(path)


def test_starts_that_say_who_lives_fit_as_many_fish_only() -> None:
    start = Start(seed=1, snapshot={"alive": np.ones(3, np.bool_)})
    check_fish([start], 3, "here")
    with pytest.raises(ConfigError, match="holds 3 fish"):
        check_fish([start], 4, "here")
