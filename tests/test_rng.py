"""Random streams depend on the seed and their name alone, and go on from where they were."""

from __future__ import annotations

import json

import numpy as np

from holdfast.rng import MASK_63, Streams, derive_seed


def test_streams_go_on_from_their_recorded_positions() -> None:
    one = Streams(5)
    one["actions"].random(7)
    one["minibatches"].integers(9, size=3)
    other = Streams(0)
    other["actions"].random(2)
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    for name in ("actions", "minibatches", "never used before"):
        assert np.array_equal(one[name].random(4), other[name].random(4)), name


def test_a_stream_does_not_depend_on_what_others_gave() -> None:
    one, other = Streams(5), Streams(5)
    one["noise"].random(100)
    assert np.array_equal(one["actions"].random(4), other["actions"].random(4))
    assert not np.array_equal(one["actions"].random(4), one["noise"].random(4))
    assert not np.array_equal(Streams(6)["actions"].random(4), Streams(5)["actions"].random(4))


def test_a_derived_seed_depends_on_every_part_and_their_order() -> None:
    seeds = [
        derive_seed(1, "world", 0, 0),
        derive_seed(1, "world", 0, 1),
        derive_seed(1, "world", 1, 0),
        derive_seed(1, "probe", 0, 0),
        derive_seed(2, "world", 0, 0),
    ]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed <= MASK_63 for seed in seeds)
    assert derive_seed(1, "world", 0, 0) == seeds[0]
