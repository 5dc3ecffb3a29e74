"""Neighbour features and crowd rewards equal a slow, obvious computation, with and without the cell grid."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.records import Array
from holdfast.worlds.shoal import ShoalOptions, ShoalWorld


def slow_features(
    position: Array, velocity: Array, alive: Array, radius: float, count: int
) -> Array:
    features = np.zeros((len(position), 7))
    for i in np.flatnonzero(alive):
        offset = position - position[i]
        distance = np.linalg.norm(offset, axis=1)
        near = alive & (distance <= radius)
        near[i] = False
        if not near.any():
            continue
        offset, distance, speed = offset[near], distance[near], velocity[near]
        closest = np.argsort(distance, kind="stable")[:count]
        pace = np.linalg.norm(speed, axis=1) / 2
        outward = (speed * offset).sum(axis=1) / np.maximum(distance, 1e-6) / 2
        features[i] = [
            min(near.sum() / count, 1.0),
            *(offset[closest].mean(axis=0) / radius),
            distance.min() / radius,
            pace.mean(),
            pace.std(),
            outward.mean(),
        ]
    return features


@pytest.mark.parametrize(
    ("fish", "radius", "count"), [(25, 3.0, 6), (250, 3.0, 6), (250, 0.7, 3), (250, 9.0, 300)]
)
def test_features_equal_the_slow_computation(fish: int, radius: float, count: int) -> None:
    options = ShoalOptions(
        games=2, fish=fish, neighbors=True, neighbor_radius=radius, neighbor_count=count
    )
    world = ShoalWorld(options, seed=6)
    rng = np.random.default_rng(0)
    for _ in range(30):
        obs, *_ = world.step(rng.integers(0, 5, world.num_envs))
    np.testing.assert_array_equal(obs, world.observe()[0])
    bodies = world.bodies()
    assert not bodies["alive"].all()
    for g in range(2):
        expected = slow_features(
            bodies["fish_pos"][g].astype(float),
            bodies["fish_vel"][g].astype(float),
            bodies["alive"][g],
            radius,
            count,
        )
        ours = obs.reshape(2, fish, 18)[g, :, 11:]
        np.testing.assert_allclose(ours, expected, atol=5e-6)
