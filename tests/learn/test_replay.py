"""The replay: the tree, the sampler's statistics, exact storage, eviction, intervals, and resume."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from holdfast.errors import ConfigError, StorageError
from holdfast.learn.options import ReplayConfig
from holdfast.learn.replay import Interval, Replay, fitting
from holdfast.learn.replay_kernels import draw, set_priorities, tree_offsets, tree_total
from holdfast.learn.replay_store import Form, Reader, Strips
from holdfast.records import Rollout
from holdfast.rng import Streams


def filled(
    seed: int,
    steps: int = 8,
    slots: int = 4,
    shape: tuple[int, ...] = (3,),
    dtype: Any = np.float32,
    history: int = 0,
    memory: int = 0,
) -> Rollout:
    """Return a rollout of random numbers in which every array differs."""
    rng = np.random.default_rng(seed)
    rollout = Rollout.empty(steps, slots, shape, dtype, (), np.int32, 1, history, memory)
    rollout.frames[:] = rng.integers(0, 255, rollout.frames.shape)
    for name in ("log_probs", "rewards", "final_values", "advantages", "returns", "memory"):
        rows = getattr(rollout, name)
        rows[:] = rng.normal(size=rows.shape)
    rollout.actions[:] = rng.integers(0, 7, rollout.actions.shape)
    for name in ("terminations", "truncations", "begun"):
        rows = getattr(rollout, name)
        rows[:] = rng.random(rows.shape) < 0.2
    rollout.rewards[:] = rollout.rewards.astype(np.float32)
    rollout.mask[:] = rng.random(rollout.mask.shape) < 0.9
    rollout.mask[::2] = True
    return rollout


def replay(seed: int = 1, **settings: Any) -> Replay:
    return Replay(ReplayConfig(**{"capacity": 1000, **settings}), Streams(seed))


class Tree:
    """A tree of priorities by itself."""

    def __init__(self, priorities: Any, alpha: float = 1.0) -> None:
        self.offsets = tree_offsets(len(priorities))
        self.nodes = np.zeros(self.offsets[-1])
        self.set(np.arange(len(priorities)), priorities, alpha)

    def set(self, items: Any, priorities: Any, alpha: float = 1.0) -> None:
        values = np.asarray(priorities, np.float64)
        set_priorities(self.nodes, self.offsets, np.asarray(items), values, alpha, 0.0)

    def leaves(self, count: int) -> Any:
        return self.nodes[self.offsets[-2] : self.offsets[-2] + count]

    def draw(self, uniform: Any, stratified: bool, beta: float = 0.4) -> tuple[Any, Any, int]:
        items, weights = np.empty(len(uniform), np.int64), np.empty(len(uniform), np.float32)
        distinct = draw(self.nodes, self.offsets, uniform.copy(), stratified, beta, items, weights)
        return items, weights, distinct


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 255, 256, 257, 5000])
def test_every_node_is_the_sum_of_its_children_after_any_updates(count: int) -> None:
    rng = np.random.default_rng(count)
    tree, truth = Tree(rng.random(count)), None
    for _ in range(20):
        items = rng.integers(0, count, 7)
        tree.set(items, rng.random(7))
    truth = Tree(tree.leaves(count).copy())
    np.testing.assert_array_equal(tree.nodes, truth.nodes)
    assert tree_total(tree.nodes) == pytest.approx(tree.leaves(count).sum(), rel=1e-12)


def test_probabilities_and_weights_are_those_of_the_written_out_example() -> None:
    # Priorities 1, 1, 2 with alpha 0.6 and beta 0.4
    tree = Tree([1.0, 1.0, 2.0], alpha=0.6)
    shares = tree.leaves(3) / tree_total(tree.nodes)
    np.testing.assert_allclose(shares, [0.284437, 0.284437, 0.431126], atol=1e-6)
    items, weights, distinct = tree.draw(np.array([0.1, 0.4, 0.9]), stratified=False)
    assert items.tolist() == [0, 1, 2] and distinct == 3
    np.testing.assert_allclose(weights, [1.0, 1.0, 0.846745], atol=1e-6)


def test_a_draw_is_the_item_at_which_the_running_sum_passes() -> None:
    rng = np.random.default_rng(0)
    priorities = rng.random(1000) * (rng.random(1000) < 0.5)
    tree = Tree(priorities)
    uniform = np.sort(rng.random(5000))
    items, _, distinct = tree.draw(uniform, stratified=False)
    sums = np.cumsum(priorities)
    np.testing.assert_array_equal(items, np.searchsorted(sums, uniform * sums[-1], side="right"))
    assert distinct == len(np.unique(items)) and (priorities[items] > 0).all()


def test_zero_weight_is_never_drawn_even_at_the_ends_of_the_sum() -> None:
    priorities = np.zeros(300)
    priorities[[17, 200]] = 0.3, 0.1
    tree = Tree(priorities)
    items, _, _ = tree.draw(np.array([0.0, 0.8, 1.0 - 1e-16, 1.0]), stratified=False)
    assert items.tolist() == [17, 200, 200, 200]


@pytest.mark.parametrize("stratified", [False, True])
def test_a_million_draws_follow_the_priorities(stratified: bool) -> None:
    rng = np.random.default_rng(3)
    priorities = rng.gamma(0.7, size=1000)
    tree = Tree(priorities)
    counts = np.zeros(1000)
    for _ in range(250):
        uniform = rng.random(4000)
        items, _, _ = tree.draw(uniform if stratified else np.sort(uniform), stratified)
        counts += np.bincount(items, minlength=1000)
    shares = priorities / priorities.sum()
    expected = shares * 1e6
    seen = counts > 0
    kl = np.sum(counts[seen] / 1e6 * np.log(counts[seen] / expected[seen]))
    assert 0 <= kl < 0.01
    # Rare items together, so that every cell expects five draws or more
    order = np.argsort(expected)
    rare = np.cumsum(expected[order]) < 5 + expected[order]
    cells = [(counts[order][rare].sum(), expected[order][rare].sum())]
    cells += list(zip(counts[order][~rare], expected[order][~rare], strict=True))
    kept = [(c, e) for c, e in cells if e >= 5]
    chi_square = sum((c - e) ** 2 / e for c, e in kept)
    # Wilson and Hilferty: the 99 % quantile of chi-square with so many degrees of freedom
    degrees = len(kept) - 1
    limit = degrees * (1 - 2 / (9 * degrees) + 2.326 * np.sqrt(2 / (9 * degrees))) ** 3
    assert chi_square < limit
    if not stratified:  # independent draws are not better than chance either
        low = degrees * (1 - 2 / (9 * degrees) - 2.326 * np.sqrt(2 / (9 * degrees))) ** 3
        assert chi_square > low


@pytest.mark.parametrize("stratified", [False, True])
def test_a_replay_draws_by_its_priorities(stratified: bool) -> None:
    memory = replay(stratified=stratified, alpha=1.0, capacity=8 * 400)
    for k in range(100):
        memory.push(filled(k))
    memory.update(np.arange(400), np.repeat([1.0, 2.0, 3.0, 4.0], 100))
    sample = memory.sample(40_000)
    shares = np.bincount(sample.indices // 100, minlength=4) / 40_000
    np.testing.assert_allclose(shares, [0.1, 0.2, 0.3, 0.4], atol=0.01)
    assert memory.stats()["distinct_share"] == len(np.unique(sample.indices)) / 40_000


def test_importance_weights_undo_the_priorities() -> None:
    rng = np.random.default_rng(5)
    priorities, values = rng.gamma(0.7, size=400) + 0.05, rng.normal(size=400)
    tree = Tree(priorities)
    means = []
    for _ in range(200):
        items, weights, _ = tree.draw(np.sort(rng.random(1000)), False, beta=1.0)
        means.append(np.average(values[items], weights=weights))
    error = np.std(means) / np.sqrt(len(means))
    assert abs(np.mean(means) - values.mean()) < 3 * error + 1e-3


def row_of(source: Rollout, slot: int, begin: int, length: int) -> dict[str, Any]:
    """Return what a sequence of a rollout should come back as."""
    history = source.history
    rows = slice(begin, begin + history + length + 1)
    steps = slice(begin, begin + length)
    return {
        "frames": source.frames[rows, slot],
        "begun": source.begun[rows, slot],
        "mask": source.mask[begin : begin + length + 1, slot],
        **{
            name: getattr(source, name)[steps, slot]
            for name in (
                *("actions", "log_probs", "rewards", "terminations", "truncations"),
                "final_values",
            )
        },
    }


@pytest.mark.parametrize(
    ("shape", "dtype", "history", "length"),
    [((3,), np.float32, 0, 4), ((4, 5), np.uint8, 3, 2), ((7,), np.uint8, 3, 8), ((2,), np.float64, 0, 1)],
)  # fmt: skip
def test_sequences_come_back_as_they_were(
    shape: tuple[int, ...], dtype: Any, history: int, length: int
) -> None:
    rollouts = [filled(k, shape=shape, dtype=dtype, history=history) for k in range(3)]
    for rollout in rollouts:
        rollout.mask[:] = True
    memory = replay(length=length, half=False)
    for rollout in rollouts:
        memory.push(rollout)
    sample = memory.sample(60)
    each = 8 // length
    assert sample.rollout.steps == length and sample.rollout.slots == 60
    assert sample.rollout.obs.shape == (length + 1, 60, *shape)
    for b, index in enumerate(sample.indices.tolist()):
        strip, j = divmod(index, each)
        source = rollouts[strip // 4]
        assert sample.ages[b] == 2 - strip // 4
        for name, rows in row_of(source, strip % 4, j * length, length).items():
            np.testing.assert_array_equal(getattr(sample.rollout, name)[:, b], rows, err_msg=name)


def test_half_precision_keeps_numbers_to_a_thousandth_and_bounds_them() -> None:
    rollout = filled(0, steps=64, slots=64)
    rollout.rewards[:] = np.random.default_rng(1).normal(scale=30, size=(64, 64)).clip(-100, 100)
    rollout.rewards[0, 0], rollout.rewards[1, 0], rollout.rewards[2, 0] = 1e9, -1e9, 6e-8
    memory = replay(capacity=4096)
    memory.push(rollout)
    reader = Reader(memory._strips, 64, 64)
    reader.read(np.arange(64), 64, 0)
    back = reader.rollout.rewards
    assert back[0, 0] == 60000.0 and back[1, 0] == -60000.0 and 0 < back[2, 0] < 1e-7
    np.testing.assert_array_equal(back[1:], rollout.rewards.clip(-6e4, 6e4).astype(np.float16)[1:])
    np.testing.assert_allclose(back[3:].mean(), rollout.rewards[3:].mean(), rtol=1e-3)
    np.testing.assert_allclose(back[3:].var(), rollout.rewards[3:].var(), rtol=1e-3)
    np.testing.assert_allclose(reader.rollout.log_probs, rollout.log_probs, rtol=1e-3, atol=1e-6)


def test_the_oldest_make_room() -> None:
    memory = replay(capacity=10 * 8, half=False)
    assert memory.capacity == memory.size == 0 and not memory.due(0)
    for k in range(6):
        memory.push(filled(k))  # 4 strips each into a ring of 10
        assert memory.size == min(4 * (k + 1), 10) * 8
    sample = memory.sample(200)
    assert set(sample.indices.tolist()) == set(range(14, 24))
    newest = np.flatnonzero(sample.indices == 23)[0]
    np.testing.assert_array_equal(sample.rollout.frames[:, newest], filled(5).frames[:, 3])


def test_new_sequences_get_the_highest_priority_so_far_and_update_changes_it() -> None:
    memory = replay(alpha=1.0, floor=1e-9)
    memory.push(filled(0))
    memory.update(np.array([2]), np.array([7.0]))
    memory.push(filled(1))
    np.testing.assert_allclose(memory._leaves(), [1, 1, 7, 1, 7, 7, 7, 7], rtol=1e-6)
    memory.update(np.array([0, 5]), np.array([0.0, 0.5]))
    np.testing.assert_allclose(memory._leaves(), [1e-9, 1, 7, 1, 7, 0.5, 7, 7], rtol=1e-6)


def test_the_priority_of_a_sequence_is_most_of_its_largest_error_and_some_of_the_mean() -> None:
    memory = replay(alpha=1.0, length=4, floor=1e-12, eta=0.9)
    rollout = filled(0, slots=1)
    rollout.mask[:] = True
    rollout.mask[6] = False
    errors = np.array([1, -2, 3, 4, 0, 0, 50, 1], np.float32)[:, None]
    memory.push(rollout, errors)
    np.testing.assert_allclose(memory._leaves(), [0.9 * 4 + 0.1 * 2.5, 0.9 + 0.1 / 3], rtol=1e-6)
    np.testing.assert_allclose(memory.priorities_of(errors[:4], rollout.mask[:5]), [3.85])


def test_what_only_scripts_played_and_what_is_not_finite_is_never_drawn() -> None:
    rollout = filled(0)
    rollout.mask[:] = True
    rollout.mask[:, 1] = False
    rollout.rewards[3, 2] = np.nan
    memory = replay()
    memory.push(rollout)
    assert set(memory.sample(100).indices.tolist()) == {0, 3}
    assert memory.stats()["left_out"] == 2
    rollout.mask[:] = False
    other = replay()
    other.push(rollout)
    assert not other.due(0)
    with pytest.raises(ValueError, match="due"):
        other.sample(1)


def test_priorities_of_overwritten_sequences_are_passed_over() -> None:
    memory = replay(capacity=8 * 8, alpha=1.0)
    for k in range(2):
        memory.push(filled(k))
    old = memory.sample(64).indices.copy()
    memory.push(filled(2))
    before = memory._leaves().copy()
    memory.update(old, np.full(64, 9.0))
    gone = old < 4
    assert memory.stats()["stale"] == gone.sum() > 0
    np.testing.assert_array_equal(memory._leaves()[:4], before[:4])
    assert (memory._leaves()[4:] > 8).all()


def test_every_rollout_is_pushed_and_every_third_update_samples() -> None:
    memory = replay(interval=3)
    sampled = []
    for update in range(5):
        memory.push(filled(update))
        if memory.due(update):
            memory.sample(2)
            sampled.append(update)
    assert sampled == [0, 3]
    assert memory.stats()["pushed_steps"] == 5 * 8 * 4 and memory.stats()["samples"] == 2


def test_an_adaptive_interval_follows_the_errors() -> None:
    interval = Interval(2, adaptive=True, window=2)
    lengths = []
    for level in (1.0, 1.0, 1.01, 1.1, 1.5, 1.5, 3.0, 6.0):
        for _ in range(2):
            interval.note(np.full(8, level))
        lengths.append(interval.length)
    # unknown, same, +1 %, +9 %, +36 %, same, +100 %, +100 %
    assert lengths == [2, 4, 8, 8, 4, 8, 4, 2]
    fixed = Interval(3)
    fixed.note(np.ones(4))
    assert fixed.length == 3 and not fixed.seen


def test_beta_rises_to_one_with_the_samples() -> None:
    memory = replay(beta=0.4, beta_samples=4)
    memory.push(filled(0))
    seen = []
    for _ in range(6):
        seen.append(memory.beta)
        memory.sample(1)
    np.testing.assert_allclose(seen, [0.4, 0.55, 0.7, 0.85, 1.0, 1.0])


def test_the_transition_mode_gives_single_steps_with_stale_targets() -> None:
    rollout = filled(0)
    rollout.mask[:] = True
    memory = replay(mode="transition", half=False)
    memory.push(rollout, rollout.advantages)
    sample = memory.sample(50)
    assert sample.rollout.steps == 1
    for b, index in enumerate(sample.indices.tolist()):
        slot, t = divmod(index, 8)
        assert sample.rollout.advantages[0, b] == rollout.advantages[t, slot]
        assert sample.rollout.returns[0, b] == rollout.returns[t, slot]
        np.testing.assert_array_equal(sample.rollout.obs[1, b], rollout.obs[t + 1, slot])
    assert memory._leaves()[9] == pytest.approx((abs(rollout.advantages[1, 1]) + 1e-5) ** 0.6)


def test_the_memory_of_a_recurrent_policy_comes_with_the_sequence() -> None:
    rollout = filled(0, memory=5)
    memory = replay()
    memory.push(rollout)
    sample = memory.sample(9)
    np.testing.assert_array_equal(sample.rollout.memory[0], rollout.memory[0][sample.indices])
    with pytest.raises(ConfigError, match="length = 0"):
        replay(length=4).push(rollout)


def test_capacity_is_cut_to_the_memory() -> None:
    assert fitting(200_000, 4 * 84 * 84, 2.0) == 76_087
    form = Form.of(filled(0, shape=(84, 84), dtype=np.uint8, history=3), False, True)
    strips = Strips(form, 3)
    assert form.bytes * 3 == sum(rows.nbytes for rows in strips.stores.values())
    memory = replay(capacity=10**9, max_gb=40 * form.bytes / 2**30)
    memory.push(filled(0, shape=(84, 84), dtype=np.uint8, history=3))
    assert memory.capacity == 40 * 8


def test_bad_settings_say_what_to_write() -> None:
    with pytest.raises(ConfigError, match="divisor of 8"):
        replay(length=3).push(filled(0))
    with pytest.raises(ConfigError, match="capacity of 32 or more"):
        replay(capacity=16).push(filled(0))
    memory = replay()
    memory.push(filled(0))
    with pytest.raises(ConfigError, match="stay the same in all its phases"):
        memory.push(filled(0, steps=16))


def test_other_numbers_of_slots_may_follow() -> None:
    memory = replay(half=False)
    memory.push(filled(0))
    memory.push(filled(1, slots=7))
    sample = memory.sample(300)
    at = np.flatnonzero(sample.indices == 10)[0]
    np.testing.assert_array_equal(sample.rollout.frames[:, at], filled(1, slots=7).frames[:, 6])


def exercise(memory: Replay, lo: int, hi: int) -> list[Any]:
    """Push, sample and update; return everything that came out."""
    found: list[Any] = []
    for k in range(lo, hi):
        rollout = filled(k, history=2, shape=(5,), dtype=np.uint8)
        memory.push(rollout, rollout.advantages if k % 2 else None)
        sample = memory.sample(16)
        found += [sample.indices.copy(), sample.weights.copy(), sample.ages.copy()]
        found += [rows.copy() for rows in vars(sample.rollout).values() if hasattr(rows, "copy")]
        errors = np.abs(sample.rollout.rewards[:1]).astype(np.float32)
        memory.update(sample.indices, memory.priorities_of(errors, sample.rollout.mask))
    return found


@pytest.mark.parametrize("settings", [{}, {"mode": "transition"}, {"length": 4, "half": False}])
@pytest.mark.parametrize("cut", [1, 5])
def test_a_resumed_replay_draws_the_same_bit_for_bit(settings: dict[str, Any], cut: int) -> None:
    options = {"capacity": 12 * 8, "adaptive": True, **settings}
    streams = Streams(4)
    whole = Replay(ReplayConfig(**options), streams)
    exercise(whole, 0, cut)
    state, positions = whole.state_dict(), streams.state_dict()
    other_streams = Streams(4)
    other = Replay(ReplayConfig(**options), other_streams)
    other.load_state_dict(state)
    other_streams.load_state_dict(positions)
    first, second = exercise(whole, cut, 9), exercise(other, cut, 9)
    for one, two in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, two)
    stats, others = whole.stats(), other.stats()
    assert {k: v for k, v in stats.items() if not k.endswith("_ms")} == {
        k: v for k, v in others.items() if not k.endswith("_ms")
    }


def test_a_checkpoint_holds_it_and_is_bounded(tmp_path: Any) -> None:
    from holdfast.store.checkpoint import Checkpoints

    memory = replay(capacity=12 * 8)
    exercise(memory, 0, 7)
    saved = Checkpoints(tmp_path).save(7, {"replay": memory.state_dict()}, {}, frozenset())
    other = replay(capacity=12 * 8)
    other.load_state_dict(saved.load()["replay"])
    np.testing.assert_array_equal(memory._nodes, other._nodes)
    assert memory.size == other.size
    size = sum(file.stat().st_size for file in saved.path.iterdir())
    assert size < 12 * memory._strips.form.bytes + 20_000  # type: ignore[union-attr]
    with pytest.raises(StorageError, match="capacity and max_gb"):
        replay(capacity=20 * 8).load_state_dict(saved.load()["replay"])


def test_without_its_contents_a_resumed_replay_begins_empty_and_fills_again() -> None:
    memory = replay(save=False)
    exercise(memory, 0, 3)
    other = replay(save=False)
    other.load_state_dict(memory.state_dict())
    assert other.size == 0 and not other.due(0) and other.samples == 3
    exercise(other, 0, 2)
    assert other.size == 2 * 4 * 8


def test_the_statistics_say_what_is_in_it() -> None:
    memory = replay(capacity=1000)
    assert memory.stats()["fill_rate"] == 0.0
    memory.push(filled(0), np.full((8, 4), 2.0, np.float32))
    memory.sample(64)
    stats = memory.stats()
    assert stats["capacity"] == 125 * 8 and stats["fill_rate"] == 32 / 1000
    assert stats["distinct_share"] == stats["distinct_share_mean"] == 4 / 64
    for name in ("mean", "p50", "p90", "p99"):
        assert stats[f"priority_{name}"] == pytest.approx(2.0, abs=1e-3)
