"""Past opponents: who is kept, who is met, and that nothing ever reaches into them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.errors import StorageError
from holdfast.learn.fused import FusedLearner
from holdfast.learn.options import LearnerConfig
from holdfast.learn.restore import policy_of
from holdfast.learn.spec import NetSpec
from holdfast.rng import Streams
from holdfast.selfplay.pool import Pool, policy_sha256
from holdfast.store.checkpoint import Checkpoints

SPEC = NetSpec(4, "gaussian", action_size=2, low=(0.0, -1.0), high=(1.0, 1.0), hidden=(8,))


def state(k: float) -> dict[str, Any]:
    return {
        "spec": SPEC.state(),
        "parameters": {"w": np.full((2, 3), k, np.float32)},
        "norm": {"mean": np.full(3, k), "var": np.ones(3), "count": 5.0},
    }


def filled(pool: Pool, count: int) -> Pool:
    for k in range(1, count + 1):
        pool.add(state(k), f"m{k}", k)
    return pool


def labels(pool: Pool) -> list[str]:
    return [member.label for member in pool.members]


def test_fifo_keeps_the_newest_in_their_order() -> None:
    assert labels(filled(Pool("fifo", 3), 7)) == ["m5", "m6", "m7"]


def test_a_reservoir_keeps_an_even_sample_of_all_that_were_offered() -> None:
    counts = np.zeros(40)
    for seed in range(200):
        pool = filled(Pool("reservoir", 5, seed=seed), 40)
        assert len(pool.members) == 5
        for member in pool.members:
            counts[member.update - 1] += 1
    # Each of 40 offers stays with the chance 5/40; 200 tries give 25 with a deviation of 4.7.
    assert counts.sum() == 1000
    assert counts.min() > 25 - 4.5 * 4.7
    assert counts.max() < 25 + 4.5 * 4.7


def test_the_same_policy_is_not_taken_twice() -> None:
    pool = filled(Pool("fifo", 4), 2)
    assert pool.add(state(2), "again", 9) is None
    assert labels(pool) == ["m1", "m2"]
    assert pool.offered == 2


def test_members_stay_what_they_were_while_the_learner_trains_on() -> None:
    """The pool of the original became copies of the newest policy: its members were shared objects."""
    learner = FusedLearner(SPEC, LearnerConfig(threads=1), Streams(1), 2)
    pool, played = Pool("fifo", 8), []
    obs = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    for update in range(4):
        pool.add(learner.state_dict(), f"u{update}", update)
        played.append(learner.policy().act(obs))
        moved = {k: v + np.float32(0.3) for k, v in learner.parameters().items()}
        learner.load_parameters(moved)
    assert len({m.sha256 for m in pool.members}) == 4
    for member, before in zip(pool.members, played, strict=True):
        np.testing.assert_allclose(policy_of(member.state).act(obs), before, atol=1e-6)


def test_the_arrays_of_a_member_cannot_be_written_to() -> None:
    given = state(1)
    pool = Pool("fifo", 2)
    pool.add(given, "m1", 1)
    given["parameters"]["w"][:] = 9.0
    given["norm"]["mean"][:] = 9.0
    member = pool.members[0]
    with pytest.raises(ValueError, match="read-only"):
        member.parameters["w"][:] = 9.0
    with pytest.raises(ValueError, match="read-only"):
        member.state["norm"]["mean"][:] = 9.0
    member.state["parameters"]["w"] = np.zeros(1)
    assert policy_sha256(member.state) == policy_sha256(state(1))


def test_a_pool_that_was_tampered_with_is_not_saved() -> None:
    pool = filled(Pool("fifo", 3), 2)
    pool.members[0].parameters["w"] = np.zeros((2, 3), np.float32)
    with pytest.raises(StorageError, match="'m1' is no longer the policy"):
        pool.state_dict()


@pytest.mark.parametrize("mode", ["fifo", "reservoir", "pfsp"])
def test_a_pool_resumes_exactly_from_a_checkpoint(mode: Any, tmp_path: Path) -> None:
    one = filled(Pool(mode, 4), 9)
    for k, member in enumerate(one.members):
        one.result(member.id, wins=k, games=5)
    store = Checkpoints(tmp_path)
    store.save(1, {"pool": one.state_dict()}, {}, frozenset())
    two = Pool(mode, 4)
    two.load_state_dict(store.find(1).load()["pool"])
    rngs = [np.random.default_rng(3), np.random.default_rng(3)]
    for k in range(10, 40):
        drawn = [pool.draw(6, rng).tolist() for pool, rng in zip((one, two), rngs, strict=True)]
        assert drawn[0] == drawn[1]
        for pool in (one, two):
            pool.result(drawn[0][0], 1, 1)
            pool.add(state(k), f"m{k}", k)
    assert labels(one) == labels(two)
    np.testing.assert_array_equal(one.weights(), two.weights())
    with pytest.raises(ValueError, match="read-only"):
        two.members[0].parameters["w"][:] = 0


def test_every_policy_stands_once_in_the_state() -> None:
    pool = filled(Pool("fifo", 3), 3)
    pool.add(state(4), "m4", 4, playing={1, 2})
    saved = pool.state_dict()
    hashes = [m["sha256"] for m in saved["members"] + saved["leaving"]]
    assert len(hashes) == len(set(hashes)) == 4


def test_a_member_that_still_plays_can_be_looked_up_until_it_is_released() -> None:
    pool = filled(Pool("fifo", 2), 2)
    pool.add(state(3), "m3", 3, playing={1})
    assert pool.member(1).label == "m1"
    resumed = Pool("fifo", 2)
    resumed.load_state_dict(pool.state_dict())
    assert resumed.member(1).label == "m1"
    assert 1 not in set(resumed.draw(100, np.random.default_rng(0)).tolist())
    resumed.release(playing={2, 3})
    with pytest.raises(KeyError):
        resumed.member(1)


def record(pool: Pool, wins: list[int], games: int = 100) -> Pool:
    filled(pool, len(wins))
    for member, won in zip(pool.members, wins, strict=True):
        pool.result(member.id, won, games)
    return pool


def test_hard_weighting_meets_those_most_that_win_most() -> None:
    pool = record(Pool("pfsp", 3, floor=0.0), [10, 50, 90])
    share = pool.weights()
    p = np.array([11, 51, 91]) / 102
    np.testing.assert_allclose(share, p**2 / (p**2).sum())


def test_variance_weighting_meets_even_matches_most() -> None:
    share = record(Pool("pfsp", 3, weighting="variance"), [1, 50, 99]).weights()
    assert share[1] > 4 * share[0]
    assert share[0] == pytest.approx(share[2], rel=1e-6)


def test_even_weighting_fifo_and_reservoir_ignore_the_records() -> None:
    for pool in (Pool("pfsp", 3, weighting="even"), Pool("fifo", 3), Pool("reservoir", 3)):
        np.testing.assert_allclose(record(pool, [0, 50, 100]).weights(), 1 / 3)


def test_by_interval_members_of_whom_nothing_is_known_are_met_first() -> None:
    pool = Pool("pfsp", 3, estimate="interval", floor=0.0)
    filled(pool, 3)
    pool.result(pool.members[0].id, 20, 100)
    pool.result(pool.members[1].id, 2, 10)
    share = pool.weights()
    assert share[2] > share[1] > share[0]


def test_no_member_is_met_less_often_than_the_floor() -> None:
    pool = record(Pool("pfsp", 4, floor=0.2, memory=1e9), [0, 0, 0, 10**6], 10**6)
    np.testing.assert_allclose(pool.weights()[:3], 0.05, atol=1e-6)


def test_old_games_fade() -> None:
    pool = Pool("pfsp", 1, memory=100)
    filled(pool, 1)
    pool.result(1, 1000, 1000)
    assert pool.members[0].games == pytest.approx(100)
    for _ in range(300):
        pool.result(1, 0, 1)
    assert pool.members[0].win_rate < 0.1


def test_results_of_members_that_are_gone_are_ignored_and_an_empty_pool_draws_nobody() -> None:
    pool = filled(Pool("fifo", 2), 3)
    pool.result(1, 1, 1)
    assert all(member.games == 0 for member in pool.members)
    with pytest.raises(ValueError, match="empty pool"):
        Pool("fifo", 2).draw(1, np.random.default_rng(0))
