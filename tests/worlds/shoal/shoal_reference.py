"""Recorded trajectories of the original environment, and our options that stand for its settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.records import Array, Start
from holdfast.worlds.shoal import ShoalOptions, ShoalWorld, plain_options

DIRECTORY = Path(__file__).resolve().parents[4] / "shared" / "reference"
CONFIGS = ("plain", "neigh", "preroll")


def load(name: str) -> dict[str, Array]:
    path = DIRECTORY / name
    if not path.exists():
        pytest.skip(f"reference data not beside the clone: {path}")
    with np.load(path) as data:
        return {key: data[key] for key in data.files}


def trajectories(config: str) -> dict[str, Any]:
    data = load("shoal.npz")
    mine = {k.split("__")[1]: v for k, v in data.items() if k.startswith(config + "__")}
    records = {k: json.loads(str(v)) for k, v in mine.items() if k.endswith("_json")}
    return {**mine, **records, "seeds": data["seeds"]}


def options(config: str, **changes: Any) -> ShoalOptions:
    crowd = {"neighbors": True, "neighbor_radius": 3.0, "neighbor_count": 6, "density_target": 0.4}
    base = {"games": 4, "fish": 25, **changes}
    if config == "plain":
        return plain_options(**base)
    if config == "neigh":
        return plain_options(**crowd, divergence_reward=0.22, density_penalty=0.08, **base)
    return ShoalOptions(**crowd, density_penalty=0.05, escape_boost_speed=0.8, **base)


def world_at_start(config: str, **changes: Any) -> tuple[ShoalWorld, Array, dict[str, Any]]:
    """Return the world right after the recorded resets, its observations, and the record."""
    record = trajectories(config)
    world = ShoalWorld(options(config, **changes), seed=0)
    seeds = [int(seed) for seed in record["seeds"]]
    for game, velocity in enumerate(record["prewarm"]):
        if np.isfinite(velocity).all():
            injected = Start(seed=seeds[game], snapshot={"predator_vel_before_roll": velocity})
            world.queue_starts([game * 25], [injected])
    obs, _ = world.reset(seed=seeds)
    return world, obs, record
