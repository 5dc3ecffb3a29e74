"""Prioritised replay of sequences: what older policies did, drawn by how much there is to learn from it.

    replay = Replay(ReplayConfig(capacity=100_000), streams)
    replay.push(rollout)                              # every rollout
    if replay.due(update):
        sample = replay.sample(32)                    # sample.rollout is a Rollout of 32 slots
        ...                                           # V-trace; the loss of slot b times sample.weights[b]
        replay.update(sample.indices, replay.priorities_of(errors, sample.rollout.mask))

A *strip* is what one slot did in one rollout; it holds `steps / length` sequences. Strips stand in a ring: the oldest
make room. Each stores the log-probabilities of the policy that acted, so that the learner can correct for it; in the
mode `sequence` nothing that a network computed for learning is stored.

The mode `transition` is prioritised replay as it used to be done, to compare with: sequences of one step, with the
advantages and returns of the time they were pushed.

An index names a sequence for good: `update` passes over those whose strip has been overwritten meanwhile.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from holdfast.errors import ConfigError, StorageError
from holdfast.learn.options import ReplayConfig, sequence_steps
from holdfast.learn.replay_kernels import (
    Longs,
    current_items,
    draw,
    push_priorities,
    sequence_priorities,
    set_priorities,
    tree_offsets,
    tree_repair,
    tree_total,
)
from holdfast.learn.replay_store import Form, Reader, Strips
from holdfast.records import F32, F64, Array, Bools, Rollout
from holdfast.rng import Streams

GB = 2**30
LOOKED_AT = 4096
"""Priorities that the statistics look at."""


@dataclass
class Sample:
    """Sequences as a rollout of `B` slots; its arrays are valid until the next `sample` of as many."""

    rollout: Rollout
    """`[L, B]`: frames, flags, actions, behaviour log-probabilities, rewards, final values, and `memory[0]`."""
    weights: F32
    """`[B]` importance weights, the largest 1."""
    indices: Longs
    """`[B]` for `update`."""
    ages: Longs
    """`[B]` rollouts that were pushed since this one."""


@dataclass
class Interval:
    """Updates between two samples, by how much the errors of the samples change."""

    length: int
    adaptive: bool = False
    longest: int = 16
    window: int = 20
    last: float = -1.0
    seen: list[float] = field(default_factory=list)

    def due(self, update: int) -> bool:
        """Whether this update samples."""
        return update % self.length == 0

    def note(self, priorities: F64) -> None:
        """Take in the priorities of a sample; after every `window` of them the length may change."""
        if not self.adaptive or not len(priorities):
            return
        self.seen.append(float(np.percentile(priorities, 90)))
        if len(self.seen) < self.window:
            return
        now = sum(self.seen) / len(self.seen)
        if self.last >= 0.0:
            change = abs(now - self.last) / max(self.last, 1e-12)
            if change < 0.05:
                self.length = min(self.length * 2, max(self.longest, self.length))
            elif change > 0.2:
                self.length = max(self.length // 2, 1)
        self.last, self.seen = now, []


def fitting(count: int, bytes_each: float, max_gb: float) -> int:
    """Return how many of `count` things fit into the memory."""
    return min(count, int(max_gb * GB / bytes_each))


class Replay:
    """The memory of a learner. Storage is made by the first push, from the shapes of its rollout."""

    def __init__(self, config: ReplayConfig, streams: Streams, name: str = "replay") -> None:
        self.config, self.streams, self.name = config, streams, name
        self.steps = 0
        """Steps of the rollouts to come; 0 where nobody says."""
        self.interval = Interval(config.interval, config.adaptive)
        self.length = 0
        """Steps of a sequence; 0 before the first push."""
        self.pushes = self.samples = self.stale = self.left_out = 0
        self._strips: Strips | None = None
        self._shapes: tuple[Any, ...] = ()
        self._serial = 0
        self._highest = 1.0
        self._drawn, self._distinct = 0, 0
        self._nodes: F64 = np.zeros(16)
        self._offsets: Longs = tree_offsets(1)
        self._rooms: dict[int, tuple[Reader, Sample]] = {}
        self._last = {"distinct_share": 0.0, "draw_ms": 0.0, "gather_ms": 0.0}

    @property
    def size(self) -> int:
        """Steps in memory."""
        return self._filled * (self._strips.form.steps if self._strips else 0)

    @property
    def capacity(self) -> int:
        """Steps that fit; 0 before the first push."""
        return self._strips.count * self._strips.form.steps if self._strips else 0

    @property
    def seconds(self) -> dict[str, float]:
        """How long the last sample took: drawing it, and gathering its steps."""
        return {name: self._last[f"{name}_ms"] / 1e3 for name in ("draw", "gather")}

    @property
    def beta(self) -> float:
        """Power of the importance weights now."""
        done = min(self.samples / self.config.beta_samples, 1.0)
        return self.config.beta + (1.0 - self.config.beta) * done

    @property
    def _filled(self) -> int:
        return min(self._serial, self._strips.count) if self._strips else 0

    def due(self, update: int) -> bool:
        """Whether this update samples: its turn has come and something can be drawn."""
        return self.interval.due(update) and tree_total(self._nodes) > 0.0

    def push(self, rollout: Rollout, errors: F32 | None = None) -> None:
        """Store every slot of a rollout over the oldest ones.

        `errors [T, N]` are what priorities are made of; without them new sequences get the highest priority so far.
        Observations must mean the same later: frames, or numbers that no running statistics have changed. Sequences
        that only scripts played, or that hold a number that is not finite, are never drawn.
        """
        strips = self._strips_for(rollout)
        finite = strips.write(rollout, self._serial, self.pushes)
        if errors is None:
            errors = np.full((rollout.steps, rollout.slots), self._highest, np.float32)
        values = np.empty((rollout.slots, rollout.steps // self.length))
        sequence_priorities(errors, rollout.mask, self.length, self.config.eta, values)
        highest, left_out = push_priorities(
            self._nodes,
            self._offsets,
            values,
            finite,
            self._serial,
            strips.count,
            self.config.alpha,
            self.config.floor,
        )
        self._highest = max(self._highest, highest)
        self.left_out += left_out
        self._serial += rollout.slots
        self.pushes += 1

    def sample(self, n: int) -> Sample:
        """Return `n` sequences, drawn with replacement in proportion to `priority ** alpha`."""
        if self._strips is None or tree_total(self._nodes) <= 0.0:
            raise ValueError("nothing can be drawn yet: ask due() first")
        began = time.perf_counter()
        reader, found = self._room(n, self._strips)
        places = self.streams[f"{self.name}/draws"].random(n)
        if not self.config.stratified:
            places.sort()
        items = np.empty(n, np.int64)
        distinct = draw(
            self._nodes,
            self._offsets,
            places,
            self.config.stratified,
            self.beta,
            items,
            found.weights,
        )
        drawn = time.perf_counter()
        reader.read(items, self._serial, self.pushes - 1)
        done = time.perf_counter()
        self.samples += 1
        self._drawn, self._distinct = self._drawn + n, self._distinct + distinct
        self._last["distinct_share"] = distinct / n
        self._last["draw_ms"], self._last["gather_ms"] = 1e3 * (drawn - began), 1e3 * (done - drawn)
        return found

    def update(self, indices: Longs, priorities: Array) -> None:
        """Set the priorities of drawn sequences; those that were overwritten since are passed over."""
        if self._strips is None:
            raise ValueError("nothing was pushed yet")
        each = self._strips.form.steps // self.length
        values = np.array(priorities, np.float64)
        items = np.empty(len(values), np.int64)
        known = np.asarray(indices, np.int64)
        kept = current_items(known, self._serial, self._strips.count, each, values, items)
        self.stale += len(values) - kept
        values, items = values[:kept], items[:kept]
        alpha, floor = self.config.alpha, self.config.floor
        highest = set_priorities(self._nodes, self._offsets, items, values, alpha, floor)
        self._highest = max(self._highest, highest)
        self.interval.note(values)

    def priorities_of(self, errors: F32, mask: Bools) -> F64:
        """Return the priorities `[B]` of sequences with these errors `[L, B]`; `mask` may have a row more."""
        out = np.empty((errors.shape[1], 1))
        sequence_priorities(errors, mask, len(errors), self.config.eta, out)
        return out[:, 0]

    def stats(self) -> dict[str, float]:
        """Return sizes, counts, the spread of the priorities and the times of the last sample."""
        found: dict[str, float] = {
            "size": self.size,
            "capacity": self.capacity,
            "fill_rate": self.size / max(self.capacity, 1),
            "pushes": self.pushes,
            "pushed_steps": self._serial * (self._strips.form.steps if self._strips else 0),
            "samples": self.samples,
            "stale": self.stale,
            "left_out": self.left_out,
            "interval": self.interval.length,
            "beta": self.beta,
            "distinct_share_mean": self._distinct / max(self._drawn, 1),
            **self._last,
        }
        leaves = self._leaves()
        looked = leaves[:: max(len(leaves) // LOOKED_AT, 1)]
        looked = looked[looked > 0.0]
        if len(looked) and self.config.alpha > 0.0:
            values = looked ** (1.0 / self.config.alpha)
            found["priority_mean"] = float(values.mean())
            for percent in (50, 90, 99):
                found[f"priority_p{percent}"] = float(np.percentile(values, percent))
        return found

    def bytes_after(self, steps: int) -> int:
        """Return how much a checkpoint holds of it after so many steps; what they are like the first push has shown."""
        if not self.config.save or self._strips is None:
            return 0
        form = self._strips.form
        return min(steps // form.steps, self._strips.count) * form.bytes

    def state_dict(self) -> dict[str, Any]:
        """Return everything; arrays are views of what is filled, to be written before the next push."""
        strips = self._strips if self.config.save else None
        return {
            "pushes": self.pushes,
            "samples": self.samples,
            "stale": self.stale,
            "left_out": self.left_out,
            "serial": self._serial if strips else 0,
            "highest": self._highest,
            "drawn": [self._drawn, self._distinct],
            "interval": [self.interval.length, self.interval.last, list(self.interval.seen)],
            "form": strips.form.state() if strips else None,
            "count": strips.count if strips else 0,
            "strips": strips.state(self._filled) if strips else None,
            "leaves": self._leaves() if strips else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become the memory that returned `state`; one of rollouts of another length begins empty."""
        self.pushes, self.samples = int(state["pushes"]), int(state["samples"])
        self.stale, self.left_out = int(state["stale"]), int(state["left_out"])
        self._serial, self._highest = int(state["serial"]), float(state["highest"])
        self._drawn, self._distinct = (int(n) for n in state["drawn"])
        length, last, seen = state["interval"]
        self.interval.length, self.interval.last = int(length), float(last)
        self.interval.seen = [float(value) for value in seen]
        self._strips, self._shapes = None, ()
        self._rooms = {}
        if state["form"] is None or self.steps not in (0, int(state["form"]["steps"])):
            self._serial, self._nodes, self._offsets = 0, np.zeros(16), tree_offsets(1)
            return
        strips = self._allocate(Form.from_state(state["form"]))
        if strips.count != int(state["count"]):
            raise StorageError(
                f"The replay of the checkpoint holds {state['count']} rollouts of a slot, this one {strips.count}. "
                "Resume with the capacity and max_gb that it was made with."
            )
        strips.load(state["strips"])
        leaves = state["leaves"]
        self._leaves()[: len(leaves)] = leaves
        tree_repair(self._nodes, self._offsets, np.arange(len(leaves)))

    def _leaves(self) -> F64:
        """Return a view of the leaves of what is filled."""
        first = int(self._offsets[-2])
        each = self._strips.form.steps // self.length if self._strips else 0
        return self._nodes[first : first + self._filled * each]

    def _room(self, n: int, strips: Strips) -> tuple[Reader, Sample]:
        found = self._rooms.get(n)
        if found is None:
            reader = Reader(strips, self.length, n)
            sample = Sample(reader.rollout, np.zeros(n, np.float32), reader.indices, reader.ages)
            found = self._rooms[n] = reader, sample
        return found

    def _strips_for(self, rollout: Rollout) -> Strips:
        """Return the storage; the first rollout fixes its form, which the others must have too."""
        shapes = (
            rollout.frames.shape,
            rollout.actions.shape,
            rollout.memory.shape,
            rollout.frames.dtype,
            rollout.actions.dtype,
        )
        if self._strips is not None and shapes == self._shapes:
            return self._strips
        form = Form.of(rollout, self.config.mode == "transition", self.config.half)
        if self._strips is None:
            self._allocate(form)
        assert self._strips is not None
        if form != self._strips.form:
            raise ConfigError(
                f"A replay of {self._strips.form} got a rollout of {form}. Steps, observations and actions "
                "of a run with replay stay the same in all its phases."
            )
        if rollout.slots > self._strips.count:
            raise ConfigError(
                f"replay.capacity = {self.config.capacity} and max_gb = {self.config.max_gb:g} hold "
                f"{self._strips.count} rollouts of one slot, fewer than the {rollout.slots} slots. Allowed: "
                f"a capacity of {rollout.slots * form.steps} or more, in {form.bytes * rollout.slots / GB:.3g} GB."
            )
        self._shapes = shapes
        return self._strips

    def _allocate(self, form: Form) -> Strips:
        self.length = sequence_steps(self.config, form.steps, form.memory > 0)
        wanted = max(self.config.capacity // form.steps, 1)
        count = max(fitting(wanted, form.bytes, self.config.max_gb), 1)
        self._strips = Strips(form, count)
        self._offsets = tree_offsets(count * (form.steps // self.length))
        self._nodes = np.zeros(int(self._offsets[-1]))
        return self._strips
