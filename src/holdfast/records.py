"""Plain data that passes between the parts: starts, episodes, rollouts, reports, decisions.

Axes: T steps of a rollout, N slots, D observation size, A action size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Signals = Mapping[str, Any]
"""Named values that guards read: numbers, strings, or lists of plain records."""


SMALLEST_PICTURE = 36
"""Side of the smallest picture that every network for pictures can read."""


def is_picture(shape: tuple[int, ...]) -> bool:
    """Return whether observations of this shape can be pictures: (height, width) or (height, width, channels)."""
    return len(shape) in (2, 3) and min(shape[:2]) >= SMALLEST_PICTURE


def channels_last(pictures: Array, height: int, width: int) -> Array:
    """Return pictures `[n, ...]` whose channels, or stacked frames, come first with them last; others as they are."""
    shape = pictures.shape
    if len(shape) not in (4, 5) or shape[1:3] == (height, width) or shape[2:4] != (height, width):
        return pictures
    return pictures.transpose(0, 2, 3, 1, *range(4, len(shape))).reshape(
        len(pictures), height, width, -1
    )


@dataclass(frozen=True)
class Start:
    """A state that an episode can begin from: a seed, or a snapshot of the world."""

    seed: int | None = None
    """Seed of the reset; the world's own draws follow from it alone."""
    snapshot: Mapping[str, Array] | None = None
    """State of one game right after a reset, keys as in `get_state`, without the game axis."""
    label: str = ""
    """Name for people, such as `stage2:v32_stage1`."""
    type: str = "fresh"
    """Group for statistics, such as `fresh`, `ne`, `tail`."""
    origin: str = ""
    """Where it came from: a file, a probe, a place in the game."""
    id: str = ""
    """Key by which a ledger knows it again; empty for ordinary starts."""

    def brief(self) -> dict[str, Any]:
        """Return what identifies the start, without the snapshot's arrays."""
        return {
            "seed": self.seed,
            "snapshot": self.snapshot is not None,
            "label": self.label,
            "type": self.type,
            "origin": self.origin,
            "id": self.id,
        }


@dataclass(frozen=True)
class Episode:
    """One game from its start to its end."""

    game: int
    start: Start
    steps: int
    returns: F64
    """Undiscounted reward of each slot of the game, `[slots_per_game]`."""
    ended: str
    """Why it ended: `terminated`, `truncated`, or a word of the world's own closed list."""
    facts: Mapping[str, float] = field(default_factory=dict)
    """Numbers of this world, such as `survival`."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    """Lists and arrays of this world, such as `death_steps`."""
    begin: Mapping[str, list[float]] = field(default_factory=dict)
    """What a start made of this episode must hold besides its seed, because a seed alone would not bring it back in a world
    of another size or with other values: keys of a snapshot."""
    cut: bool = False
    """It was broken off, by `request_reset` or a fault: it has no outcome, and counts in no rate."""


@dataclass
class Rollout:
    """`T` steps from `N` slots in preallocated arrays; `obs[t]` is what `actions[t]` answers."""

    obs: Array
    """`[T+1, N, ...]` as the world wrote them (the learner normalises rows 0..T-1 in place)."""
    mask: Bools
    """`[T+1, N]` False where the slot carries no decision."""
    actions: Array
    """`[T, N]` or `[T, N, A]`: int32 for discrete, float32 for continuous actions."""
    log_probs: F32
    """`[T, N]` log-probability of the action under the policy that took it."""
    values: F32
    """`[T+1, N]` value of `obs[t]`; the last row is the bootstrap."""
    rewards: F64
    """`[T, N]`."""
    terminations: Bools
    """`[T, N]` the episode of the slot ended here: nothing follows."""
    truncations: Bools
    """`[T, N]` the episode was cut here: `final_values` follows."""
    final_values: F32
    """`[T, N]` value of the last observation of a cut episode."""
    noise: F32
    """`[T, N, K]` the randomness of the actions, drawn beforehand."""
    advantages: F32
    """`[T, N]`."""
    returns: F32
    """`[T, N]`: advantage plus value."""
    frames: Array
    """`[H+T+1, N, ...]` what `obs` is the end of: before it stand the H observations that stacks reach back to."""
    begun: Bools
    """`[H+T+1, N]` the row of `frames` is the first of an episode; kept by learners with stacks or memory."""
    memory: F32
    """`[2, N, M]` what the policy carried into row 0 and into row T, before an end just there empties it."""
    noise_seed: int = 0
    """From which the noise of the network's parameters was drawn."""
    truth: F32 = field(default_factory=lambda: np.zeros((0, 0, 0), np.float32))
    """`[T, N, H]` what teaches the belief and no policy sees; empty unless a learner asks for it."""

    @property
    def history(self) -> int:
        """H."""
        return len(self.frames) - len(self.obs)

    @property
    def steps(self) -> int:
        """T."""
        return int(self.actions.shape[0])

    @property
    def slots(self) -> int:
        """N."""
        return int(self.actions.shape[1])

    @classmethod
    def empty(
        cls,
        steps: int,
        slots: int,
        obs_shape: Sequence[int],
        obs_dtype: npt.DTypeLike,
        action_shape: Sequence[int],
        action_dtype: npt.DTypeLike,
        noise_size: int,
        history: int = 0,
        memory_size: int = 0,
        truth_size: int = 0,
    ) -> Rollout:
        """Return a rollout with zeroed, contiguous arrays."""
        row = (steps, slots)
        frames = np.zeros((history + steps + 1, slots, *obs_shape), obs_dtype)
        return cls(
            obs=frames[history:],
            mask=np.ones((steps + 1, slots), np.bool_),
            actions=np.zeros((*row, *action_shape), action_dtype),
            log_probs=np.zeros(row, np.float32),
            values=np.zeros((steps + 1, slots), np.float32),
            rewards=np.zeros(row, np.float64),
            terminations=np.zeros(row, np.bool_),
            truncations=np.zeros(row, np.bool_),
            final_values=np.zeros(row, np.float32),
            noise=np.zeros((*row, noise_size), np.float32),
            advantages=np.zeros(row, np.float32),
            returns=np.zeros(row, np.float32),
            frames=frames,
            begun=np.zeros((history + steps + 1, slots), np.bool_),
            memory=np.zeros((2, slots, memory_size), np.float32),
            truth=np.zeros((*row, truth_size), np.float32),
        )


@dataclass(frozen=True)
class EvalReport:
    """What a probe measured on its seeds."""

    probe: str
    update: int
    env_steps: int
    seeds: tuple[int, ...]
    metrics: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """95 % bootstrap interval of a metric, where it is a mean over episodes."""
    detail: Mapping[str, Any] = field(default_factory=dict)


DecisionKind = Literal[
    "set_world",
    "unset_world",
    "set_learner",
    "inject_starts",
    "force_reset",
    "override_actions",
    "hold_phase",
    "advance_phase",
    "rollback",
    "train_roles",
    "keep_pair",
    "protect",
    "stand_in",
    "mix",
    "probe",
    "warn",
    "clear",
    "stop",
    "finish",
]


@dataclass(frozen=True)
class Cause:
    """Why a guard decided: the measured value against its threshold over a window."""

    signal: str
    value: Any
    threshold: Any = None
    window: int = 1

    def __str__(self) -> str:
        return f"{self.signal} = {self.value} (threshold {self.threshold}, window {self.window})"


@dataclass(frozen=True)
class Decision:
    """One change to the run, with its cause. Only the loop applies it."""

    kind: DecisionKind
    cause: Cause
    name: str = ""
    """The value that is set, or the event's name."""
    value: Any = None
    """What it is set to; for `inject_starts` a list of starts, for `override_actions` a script."""
    role: str = ""
    """Which learner; empty means all."""
    slots: tuple[int, ...] = ()
    """Which slots; empty means all."""
    message: str = ""
    """One sentence for people."""


def pack(tree: Any) -> bytes:
    """Return a tree of plain values, arrays and `Start`s as MessagePack bytes."""
    return msgspec.msgpack.encode(tree, enc_hook=_pack_leaf)


def unpack(data: bytes) -> Any:
    """Return what `pack` was given (tuples come back as lists)."""
    return _revive(msgspec.msgpack.decode(data))


def pack_starts(queues: Sequence[Sequence[Start]]) -> bytes:
    """Return the start queues of all games as bytes, for `get_state`."""
    return pack([[_start_dict(s) for s in queue] for queue in queues])


def unpack_starts(data: bytes) -> list[list[Start]]:
    """Return what `pack_starts` was given."""
    return [[Start(**fields) for fields in queue] for queue in unpack(data)]


def pack_episodes(episodes: Sequence[Episode]) -> bytes:
    """Return finished games as bytes; a start in their detail stays one."""
    return pack(
        [
            {
                **vars(episode),
                "start": _start_dict(episode.start),
                "detail": {
                    key: {"__start__": _start_dict(value)} if isinstance(value, Start) else value
                    for key, value in episode.detail.items()
                },
            }
            for episode in episodes
        ]
    )


def unpack_episodes(data: bytes) -> list[Episode]:
    """Return what `pack_episodes` was given."""
    return [Episode(**{**e, "start": Start(**e["start"])}) for e in unpack(data)]


def _start_dict(start: Start) -> dict[str, Any]:
    snapshot = None if start.snapshot is None else dict(start.snapshot)
    return {**start.brief(), "snapshot": snapshot}


def _pack_leaf(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        data = np.ascontiguousarray(leaf)
        return {"__array__": [data.dtype.str, list(data.shape), data.tobytes()]}
    if isinstance(leaf, np.generic):
        return leaf.item()
    raise NotImplementedError(f"cannot pack {type(leaf).__name__}")


def _revive(tree: Any) -> Any:
    if isinstance(tree, dict):
        if "__array__" in tree:
            dtype, shape, data = tree["__array__"]
            return np.frombuffer(data, np.dtype(dtype)).reshape(shape).copy()
        if "__start__" in tree:
            return Start(**_revive(tree["__start__"]))
        return {key: _revive(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_revive(item) for item in tree]
    return tree
