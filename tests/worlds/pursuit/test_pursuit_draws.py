"""Random numbers in kernels."""

from __future__ import annotations

import numpy as np

from holdfast.jit import kernel
from holdfast.worlds.pursuit.draws import (
    GENERATOR_WORDS,
    episode_seed,
    integer,
    key,
    next_double,
    normal_pair,
    seed_generator,
    uniform,
)


@kernel
def _normals(rows):
    out = np.empty((rows, 36))
    for s in range(rows):
        word = key(7, s, 1)
        for i in range(18):
            out[s, 2 * i], out[s, 2 * i + 1] = normal_pair(word, i)
    return out


def test_the_kernel_generator_is_numpys_default_rng():
    words = np.zeros(GENERATOR_WORDS, np.uint64)
    for seed in (0, 1, 1000, 2**31, 2**32, 2**40 + 17, 2**63 - 1):
        rng = np.random.default_rng(seed)
        seed_generator(words, seed)
        assert integer(words, 0, 3) == rng.integers(0, 4)
        assert [next_double(words) for _ in range(9)] == rng.random(9).tolist()
        assert [integer(words, 2, 8) for _ in range(9)] == [
            int(rng.integers(2, 9)) for _ in range(9)
        ]
        assert uniform(words, -3.3, 4.1) == rng.uniform(-3.3, 4.1)


def test_hashed_normals_are_standard_and_uncorrelated():
    z = _normals(10_000)
    assert abs(z.mean()) < 0.01
    assert abs(z.std() - 1) < 0.01
    assert abs((z**4).mean() - 3) < 0.1
    assert abs(np.corrcoef(z[:, 0], z[:, 1])[0, 1]) < 0.04
    assert abs(np.corrcoef(z[:-1, 0], z[1:, 0])[0, 1]) < 0.04


def test_later_episode_seeds_are_distinct_and_not_negative():
    seeds = {episode_seed(game, episode) for game in range(50) for episode in range(50)}
    assert len(seeds) == 2500
    assert min(seeds) >= 0
    assert episode_seed(17, 0) == 17
