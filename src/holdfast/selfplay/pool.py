"""Past opponents of one role: which are kept, which are met, and how they fared.

    pool = Pool("reservoir", 16)
    pool.add(state, "evader@40", 40)
    ids = pool.draw(8, rng)                # who plays the next eight episodes
    pool.result(ids[0], wins=1, games=1)   # the member won

A member is a frozen copy: its arrays cannot be written to, and nothing that happens to the learner later
reaches it. A policy that is in the pool already is not taken twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from holdfast.errors import StorageError
from holdfast.probes.stats import wilson
from holdfast.records import F64, Array
from holdfast.rng import derive_seed

Mode = Literal["fifo", "reservoir", "pfsp"]
Weighting = Literal["hard", "variance", "even"]
Estimate = Literal["smoothed", "interval"]


@dataclass
class Member:
    """One past opponent and its record against the learner."""

    id: int
    label: str
    update: int
    sha256: str
    """Hash of everything that the policy plays by."""
    spec: dict[str, Any]
    parameters: dict[str, Array]
    norm: dict[str, Any] | None
    wins: float = 0.0
    games: float = 0.0

    @property
    def state(self) -> dict[str, Any]:
        """Spec, parameters and normalisation of the policy; the arrays are read-only."""
        norm = None if self.norm is None else dict(self.norm)
        return {"spec": dict(self.spec), "parameters": dict(self.parameters), "norm": norm}

    @property
    def win_rate(self) -> float:
        """Wins over games, drawn towards one half while there are few."""
        return (self.wins + 1.0) / (self.games + 2.0)

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the win rate; 0 to 1 before the first game."""
        return wilson(round(self.wins), round(self.games))


class Pool:
    """A bounded collection of past opponents.

    `fifo` keeps the newest and meets all evenly; `reservoir` keeps an even sample of all that were ever offered
    and meets all evenly; `pfsp` keeps an even sample and meets members by their win rate p against the learner:
    `hard` by p^2, `variance` by p (1 - p), `even` all alike.
    """

    def __init__(
        self,
        mode: Mode,
        capacity: int,
        *,
        weighting: Weighting = "hard",
        estimate: Estimate = "smoothed",
        memory: float = 500.0,
        floor: float = 0.1,
        seed: int = 0,
    ) -> None:
        """Begin empty.

        `estimate` is what stands for p: `smoothed` is Laplace's rule; `interval` takes the value of the 95 %
        interval that weighs most, so that members of whom little is known are met. `memory` bounds the
        games that a record stands for, so that what the learner was long ago fades. `floor` is the share of
        draws that are even whatever the records say. `seed` decides which offers a reservoir takes.
        """
        self.mode, self.capacity = mode, capacity
        self.weighting, self.estimate = weighting, estimate
        self.memory, self.floor, self.seed = memory, floor, seed
        self.members: list[Member] = []
        self.offered = 0
        self._leaving: dict[int, Member] = {}

    def add(
        self, state: Mapping[str, Any], label: str, update: int, playing: Collection[int] = ()
    ) -> int | None:
        """Offer a policy; return its id, or None if it was passed over or is here already.

        A member that has to go while its id is among `playing` can still be looked up until `release`.
        """
        digest = policy_sha256(state)
        if any(member.sha256 == digest for member in self.members):
            return None
        self.offered += 1
        place = len(self.members)
        if place >= self.capacity:
            place = 0 if self.mode == "fifo" else self._place(self.offered)
            if place >= self.capacity:
                return None
            gone = self.members.pop(place)
            if gone.id in playing:
                self._leaving[gone.id] = gone
            if self.mode == "fifo":
                place = len(self.members)
        norm = state.get("norm")
        member = Member(
            self.offered,
            label,
            update,
            digest,
            dict(state["spec"]),
            {name: _frozen(value) for name, value in state["parameters"].items()},
            None if norm is None else {name: _frozen(value) for name, value in norm.items()},
        )
        self.members.insert(place, member)
        return member.id

    def _place(self, offer: int) -> int:
        """Return the place of the k-th offer: below the capacity with the chance capacity / k.

        It follows from the number of the offer alone, so that a resumed run agrees.
        """
        rng = np.random.default_rng(derive_seed(self.seed, "pool", offer))
        return int(rng.integers(offer))

    def member(self, number: int) -> Member:
        """Return the member with this id: one that is here, or that has left and still plays."""
        for one in self.members:
            if one.id == number:
                return one
        return self._leaving[number]

    def release(self, playing: Collection[int]) -> None:
        """Forget members that have left the pool and no longer play."""
        self._leaving = {k: one for k, one in self._leaving.items() if k in playing}

    def draw(self, count: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        """Return the ids of `count` members, drawn independently."""
        if not self.members:
            raise ValueError("nobody can be drawn from an empty pool")
        picks = rng.choice(len(self.members), count, p=self.weights())
        return np.array([self.members[i].id for i in picks], np.int64)

    def weights(self) -> F64:
        """Return the chance of each member to be met."""
        even = np.full(len(self.members), 1.0 / len(self.members))
        if self.mode != "pfsp" or self.weighting == "even":
            return even
        wanted = np.array([self._interest(member) for member in self.members])
        if wanted.sum() <= 0:
            return even
        found: F64 = self.floor * even + (1.0 - self.floor) * wanted / wanted.sum()
        return found

    def _interest(self, member: Member) -> float:
        low, high = member.interval
        if self.estimate == "smoothed":
            low = high = member.win_rate
        if self.weighting == "hard":
            return high**2
        nearest = min(max(0.5, low), high)
        return nearest * (1.0 - nearest)

    def result(self, member: int, wins: float, games: float) -> None:
        """Count games of a member, of which it won `wins`; one that has left the pool is forgotten."""
        for one in self.members:
            if one.id == member:
                total = one.games + games
                kept = min(1.0, self.memory / total) if total > 0 else 1.0
                one.wins, one.games = (one.wins + wins) * kept, total * kept

    def state_dict(self) -> dict[str, Any]:
        """Return all members and their records; every policy stands once."""
        for one in [*self.members, *self._leaving.values()]:
            if policy_sha256(one.state) != one.sha256:
                raise StorageError(
                    f"The past opponent '{one.label}' is no longer the policy that was put into the pool; "
                    "something wrote to a frozen copy. Resume from the last checkpoint."
                )
        return {
            "offered": self.offered,
            "members": [dict(vars(one)) for one in self.members],
            "leaving": [dict(vars(one)) for one in self._leaving.values()],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become the pool that returned `state`."""
        self.offered = int(state["offered"])
        self.members = [_restored(fields) for fields in state["members"]]
        self._leaving = {fields["id"]: _restored(fields) for fields in state["leaving"]}


def policy_sha256(state: Mapping[str, Any]) -> str:
    """Return one hash over the parameters and the normalisation of a policy's state."""
    digest = hashlib.sha256()
    for part in ("parameters", "norm"):
        for name in sorted(state.get(part) or {}):
            value = np.ascontiguousarray(state[part][name])
            digest.update(f"{part}/{name}/{value.dtype.str}/{value.shape}".encode())
            digest.update(value.tobytes())
    return digest.hexdigest()


def _frozen(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    copy = value.copy()
    copy.setflags(write=False)
    return copy


def _restored(fields: Mapping[str, Any]) -> Member:
    member = Member(**fields)
    member.parameters = {name: _frozen(value) for name, value in member.parameters.items()}
    if member.norm is not None:
        member.norm = {name: _frozen(value) for name, value in member.norm.items()}
    return member
