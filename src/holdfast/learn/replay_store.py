"""The ring of strips that a replay draws from: what each slot did in each rollout, in one piece.

Frames are kept as the world wrote them, each once; what a step has beside its frame is packed into a few bytes, with
half precision for log-probabilities, rewards and values if so configured.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from holdfast.errors import StorageError
from holdfast.learn.replay_kernels import (
    Longs,
    gather_frames,
    gather_side,
    store_frames,
    store_side,
)
from holdfast.records import F32, Array, Bools, Rollout

BASIC = ("log_probs", "rewards", "final_values")
STALE = ("advantages", "returns")
"""Targets of the time of the push, for the mode `transition`."""
WORD = 4


@dataclass(frozen=True)
class Form:
    """What one strip holds."""

    steps: int
    history: int
    frame_shape: tuple[int, ...]
    frame_dtype: str
    action_shape: tuple[int, ...]
    action_dtype: str
    memory: int
    targets: bool
    """Whether advantages and returns are stored."""
    half: bool

    @classmethod
    def of(cls, rollout: Rollout, targets: bool, half: bool) -> Form:
        """Return the form of a rollout's slots."""
        return cls(
            steps=rollout.steps,
            history=rollout.history,
            frame_shape=rollout.frames.shape[2:],
            frame_dtype=rollout.frames.dtype.str,
            action_shape=rollout.actions.shape[2:],
            action_dtype=rollout.actions.dtype.str,
            memory=rollout.memory.shape[2],
            targets=targets,
            half=half,
        )

    @property
    def rows(self) -> int:
        """Frames of a strip."""
        return self.history + self.steps + 1

    @property
    def scalars(self) -> tuple[str, ...]:
        """Names of the numbers that every step has."""
        return BASIC + STALE if self.targets else BASIC

    @property
    def width(self) -> int:
        """Bytes of a row beside its frame: action, scalars and flags, in whole words."""
        action = math.prod(self.action_shape) * np.dtype(self.action_dtype).itemsize
        number = 2 if self.half else 4
        return -(-(action + number * len(self.scalars) + 1) // WORD) * WORD

    @property
    def bytes(self) -> int:
        """Memory of one strip."""
        frame = math.prod(self.frame_shape) * np.dtype(self.frame_dtype).itemsize
        return self.rows * (frame + self.width) + 4 * self.memory + 8

    def state(self) -> dict[str, Any]:
        """Return the form as plain values."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Form:
        """Return what `state` described."""
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in state.items()
        }
        return cls(**fields)

    def room(self, length: int, count: int) -> Rollout:
        """Return an empty rollout for `count` sequences of `length` steps."""
        return Rollout.empty(
            length,
            count,
            self.frame_shape,
            np.dtype(self.frame_dtype),
            self.action_shape,
            np.dtype(self.action_dtype),
            noise_size=0,
            history=self.history,
            memory_size=self.memory,
        )


class Strips:
    """`count` strips; number `serial` stands at `serial % count`."""

    def __init__(self, form: Form, count: int) -> None:
        self.form, self.count = form, count
        rows = form.rows
        self.stores: dict[str, Array] = {
            "frames": np.zeros((count, rows, math.prod(form.frame_shape)), form.frame_dtype),
            "side": np.zeros((count, rows, form.width), np.uint8),
            "memory": np.zeros((count, form.memory), np.float32),
            "pushed_at": np.zeros(count, np.int64),
        }
        self.frames = units(self.stores["frames"])
        side = self.stores["side"]
        self.sides = side, side.view(np.uint16), side.view(np.uint32)

    def write(self, rollout: Rollout, serial: int, push: int) -> Bools:
        """Store the slots of a rollout as strips from `serial` on; return which hold finite numbers only, `[N]`."""
        form, slots = self.form, rollout.slots
        scalars = np.empty((len(form.scalars), form.steps, slots), np.float32)
        for k, name in enumerate(form.scalars):
            scalars[k] = getattr(rollout, name)
        finite = np.empty(slots, np.bool_)
        frames = rollout.frames.reshape(form.rows, slots, -1)
        store_frames(units(frames), serial, self.frames)
        store_side(
            serial,
            form.history,
            words(rollout.actions, slots),
            scalars,
            rollout.mask,
            rollout.terminations,
            rollout.truncations,
            rollout.begun,
            form.half,
            *self.sides,
            push,
            self.stores["pushed_at"],
            finite,
        )
        if form.memory:
            places = (serial + np.arange(slots)) % self.count
            self.stores["memory"][places] = rollout.memory[0]
        return finite

    def state(self, filled: int) -> dict[str, Array]:
        """Return views of the first `filled` places."""
        return {name: rows[:filled] for name, rows in self.stores.items()}

    def load(self, state: dict[str, Array]) -> None:
        """Take over what `state` returned."""
        for name, rows in self.stores.items():
            given = state[name]
            if given.shape[1:] != rows.shape[1:] or given.dtype != rows.dtype:
                raise StorageError(
                    f"The replay of the checkpoint holds '{name}' as {given.dtype} {given.shape[1:]}, this one as "
                    f"{rows.dtype} {rows.shape[1:]}. Resume with the settings that it was made with."
                )
            rows[: len(given)] = given


class Reader:
    """A rollout that sequences are copied into again and again."""

    def __init__(self, strips: Strips, length: int, count: int) -> None:
        form = strips.form
        self.strips, self.length = strips, length
        self.rollout = rollout = form.room(length, count)
        self.indices: Longs = np.zeros(count, np.int64)
        self.ages: Longs = np.zeros(count, np.int64)
        self._scalars: F32 = np.zeros((len(form.scalars), length, count), np.float32)
        for name, rows in zip(form.scalars, self._scalars, strict=True):
            if name != "rewards":  # these are float64
                setattr(rollout, name, rows)
        self._frames = units(rollout.frames.reshape(len(rollout.frames), count, -1))
        self._actions = words(rollout.actions, count)

    def read(self, items: Longs, following: int, push: int) -> None:
        """Copy the sequences `items` (place of the strip times its sequences, plus which one) into the rollout.

        `following` is the serial number of the next strip, `push` that of the last rollout.
        """
        strips, rollout = self.strips, self.rollout
        form, stores = strips.form, strips.stores
        each = form.steps // self.length
        gather_side(
            items, each, self.length, form.half, *strips.sides,
            following, stores["pushed_at"], push, self.indices, self.ages,
            self._actions, self._scalars, rollout.rewards,
            rollout.mask, rollout.terminations, rollout.truncations, rollout.begun,
        )  # fmt: skip
        gather_frames(items, each, self.length, strips.frames, self._frames)
        if form.memory:
            rollout.memory[0] = stores["memory"][items // each]


def units(rows: Array) -> Array:
    """Return `[..., D]` as whole numbers of the widest kind that fits, which copy fastest."""
    size = rows.shape[-1] * rows.dtype.itemsize
    width = next(w for w in (8, 4, 2, 1) if size % w == 0)
    return rows.view(f"u{width}")


def words(actions: Array, slots: int) -> Array:
    """Return `actions [T, N, ...]`, which have 32 or 64 bits, as words `[T, N, W]`."""
    return actions.reshape(len(actions), slots, -1).view(np.uint32)
