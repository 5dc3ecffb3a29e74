"""The stock of a tail ledger: starts and their fates, stages in use, mined starts, places of death, and the warning.

Nothing here decides; `tails.TailLedger` does.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from holdfast.errors import ConfigError
from holdfast.guards.stages import TailStage
from holdfast.records import Array, Episode, Start, pack

USES_KEPT = 8
"""Last uses of a start that are kept in full; `episodes.jsonl` of a run has all."""


@dataclass
class Record:
    """What happened to one start, and whether it is cured."""

    injected: int = 0
    consumed: int = 0
    successes: int = 0
    failures: int = 0
    cut: int = 0
    """Uses without an outcome: the world was rebuilt under them."""
    streak: int = 0
    """Successes in a row, each in a later update than the one before."""
    last_success: int = 0
    """Update of the last success."""
    quota: int = 0
    """Injections since it was last mined."""
    state: str = "open"
    """`open`, `cured` or `relapsed`."""
    uses: list[list[Any]] = field(default_factory=list)
    """The last uses, `[stage, game, update of the beginning, outcome, fact]`."""

    @property
    def rank(self) -> int:
        """Order of need: relapsed, then open, then cured."""
        return ("relapsed", "open", "cured").index(self.state)

    def end(self, update: int, use: list[Any], cured_after: int) -> None:
        """Enter how a use ended at `update`."""
        self.uses = [*self.uses, use][-USES_KEPT:]
        outcome = use[3]
        if outcome == "success":
            self.successes += 1
            if update > self.last_success:
                self.streak += 1
                self.last_success = update
            if self.streak >= cured_after:
                self.state = "cured"
        elif outcome == "failure":
            self.failures += 1
            self.streak = 0
            self.state = "open" if self.state == "open" else "relapsed"
        else:
            self.cut += 1

    def relapse(self) -> None:
        """Enter that it is among the worst again."""
        self.quota = 0
        if self.state == "cured":
            self.state, self.streak = "relapsed", 0


@dataclass
class LiveStage:
    """A stage in use: capacity = remaining + consumed + skipped, and drawn >= consumed."""

    label: str
    type: str
    updates: int
    count: int
    starts: list[Start]
    unit: int = 0
    """Capacity of one round; 0 until the number of games is known."""
    rounds: int = 1
    drawn: int = 0
    """Starts taken in order so far; the next is `starts[drawn % len(starts)]`."""
    consumed: int = 0
    skipped: int = 0
    closed: bool = False
    """Left early: nothing more is drawn."""
    returned: list[str] = field(default_factory=list)
    """Ids that were drawn and came back unused; they are next."""

    def __post_init__(self) -> None:
        self.by_id = {start.id: start for start in self.starts}

    @classmethod
    def of(cls, stage: TailStage) -> LiveStage:
        """Return the stage, unused."""
        if not stage.starts or not all(start.id for start in stage.starts):
            what = "has no starts" if not stage.starts else "has a start without an id"
            raise ConfigError(
                f"guards.tails.stages: stage '{stage.label}' {what}. Each stage takes one start or more, "
                "each with an id of its own; check the file that feeds it."
            )
        return cls(stage.label, stage.type, stage.updates, stage.count, list(stage.starts))

    @property
    def capacity(self) -> int:
        """Episodes that the stage feeds."""
        return self.unit * self.rounds

    @property
    def remaining(self) -> int:
        """Of these, how many have not begun yet; what waits in a game still remains."""
        return max(self.capacity - self.consumed - self.skipped, 0)

    @property
    def ratio(self) -> float:
        """`remaining` as a share of `capacity`."""
        return self.remaining / self.capacity if self.capacity else 0.0

    @property
    def progress(self) -> float:
        """Share of the present round that is used or skipped."""
        used = self.consumed + self.skipped - self.unit * (self.rounds - 1)
        return min(max(used / self.unit, 0.0), 1.0) if self.unit else 0.0

    @property
    def over(self) -> bool:
        """Whether the next stage's time has come."""
        return self.closed or (self.unit > 0 and self.remaining == 0)

    @property
    def drawable(self) -> bool:
        """Whether a start can be taken."""
        return not self.closed and (bool(self.returned) or self.drawn < self.capacity)

    def draw(self, ranked: Iterator[Start] | None = None) -> Start:
        """Take the next start: one that came back, else the next of `ranked`, else the next in order."""
        if self.returned:
            return self.by_id[self.returned.pop(0)]
        start = self.starts[self.drawn % len(self.starts)] if ranked is None else next(ranked)
        self.drawn += 1
        return start

    def ranked(self, records: Mapping[str, Record]) -> Iterator[Start]:
        """Return the starts for ever, in order of need, then of use."""
        fresh = Record()

        def need(start: Start) -> tuple[int, int]:
            record = records.get(start.id, fresh)
            return record.rank, record.injected

        return itertools.cycle(sorted(self.starts, key=need))

    def close(self) -> None:
        """Skip all that has not been drawn or has come back."""
        self.skipped += self.capacity - self.drawn + len(self.returned)
        self.drawn, self.returned, self.closed = self.capacity, [], True

    def counters(self) -> dict[str, Any]:
        """Return everything but the starts, as plain values."""
        values = {k: v for k, v in vars(self).items() if k not in ("starts", "by_id")}
        return {**values, "returned": list(self.returned)}


class MinedStage(LiveStage):
    """The live stage of mined starts: it grows, has no capacity, and gives by need."""

    def add(self, found: Sequence[Any], records: dict[str, Record], most: int) -> bool:
        """Take in mined starts and make room for them; return whether anything changed.

        A cured start that is mined again has relapsed; its newest snapshot is the one that is kept. Cured ones make
        room first, then the oldest.
        """
        before = self.starts
        for entry in found:
            start = as_start(entry, self.type)
            records.setdefault(start.id, Record()).relapse()
            if start.id not in self.by_id or start.snapshot is not None:
                self.by_id[start.id] = start
        held = list(self.by_id.values())
        spare = sorted(held, key=lambda start: records[start.id].state != "cured")
        for start in spare[: max(len(held) - most, 0)]:
            del self.by_id[start.id]
        self.starts = list(self.by_id.values())
        return len(before) != len(self.starts) or any(
            one is not two for one, two in zip(before, self.starts, strict=True)
        )

    def needy(
        self, records: Mapping[str, Record], most_uses: int, labels: Sequence[str] = ()
    ) -> list[tuple[int, int, int]]:
        """Return a heap of (need, uses, position) of the uncured starts that are not given up; with `labels`, of these only."""
        heap = []
        for k, start in enumerate(self.starts):
            record = records[start.id]
            played = not labels or start.label in labels
            if played and record.state != "cured" and record.quota < most_uses:
                heap.append((record.rank, record.quota, k))
        heapq.heapify(heap)
        return heap

    def give(self, heap: list[tuple[int, int, int]], most_uses: int) -> Start:
        """Return the start that needs it most and put it back behind its equals."""
        rank, uses, k = heapq.heappop(heap)
        if uses + 1 < most_uses:
            heapq.heappush(heap, (rank, uses + 1, k))
        return self.starts[k]


@dataclass
class Alarm:
    """Active once a ratio was low for `patience` updates in a row, until it is not."""

    threshold: float
    patience: int
    hits: int = 0
    since: int = 0
    """Update at which it became active; 0 when it is not."""
    events: list[dict[str, Any]] = field(default_factory=list)

    def watch(self, update: int, ratio: float | None) -> str:
        """Read the ratio of an update (None: not known); return `warn`, `clear` or ``."""
        if self.threshold <= 0 or ratio is None or ratio > self.threshold:
            self.hits = 0
            return "clear" if self.since else ""
        self.hits += 1
        if self.since or self.hits < self.patience:
            return ""
        self.since = update
        return "warn"

    def resolve(self, update: int, ratio: float) -> dict[str, Any]:
        """End the active warning; return its event, with how long it lasted."""
        self.events[-1].update(
            resolved_update=update, duration_updates=self.duration(update), clear_ratio=ratio
        )
        self.since = 0
        return dict(self.events[-1])

    def duration(self, update: int) -> int:
        """Return for how many updates it has been active, this one included."""
        return update - self.since + 1 if self.since else 0

    def state_dict(self) -> dict[str, Any]:
        """Return what changes."""
        events = [dict(event) for event in self.events]
        return {"hits": self.hits, "since": self.since, "events": events}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what changes."""
        self.hits, self.since = int(state["hits"]), int(state["since"])
        self.events = [dict(event) for event in state["events"]]


def own(episode: Episode) -> bool:
    """Return whether the policy played this episode alone from a fresh start, no script a step of it."""
    return episode.start.snapshot is None and not episode.facts.get("scripted")


class DeathPlaces:
    """Where training episodes die, and the starts before the worst of these places.

    A world that keeps the moments before a death puts a start there into `Episode.detail["before"]`, whose id is
    the place. Deaths of episodes that the policy played alone from a fresh start are counted; older ones weigh less. A
    place counts as one of the worst when it is among the `most` heaviest and people would say that it *keeps* happening
    there.
    """

    def __init__(self, most: int = 16, half_life: float = 50.0, at_least: float = 2.0) -> None:
        """Offer at most `most` places of `at_least` deaths; a death weighs half after `half_life` updates."""
        self.most, self.half_life, self.at_least = most, half_life, at_least
        self._weights: dict[str, float] = {}
        self._deaths: dict[str, int] = {}
        self._update = 0

    def take(
        self, update: int, episodes: Sequence[Episode], labels: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Count the deaths of an update; return its signals, `starts/mined` with the starts among them.

        With `labels`, places that do not begin with one of them and a colon are no longer played, and forgotten.
        A place is offered when somebody died there now and it is one of the worst: what the ledger counts as a relapse.
        Nothing is offered of a world that keeps no moments before a death.
        """
        self._forget(update, labels)
        found: dict[str, Start] = {}
        dead = 0
        for episode in episodes:
            start = episode.detail.get("before")
            if start is None or not own(episode):
                continue
            dead += 1
            self._weights[start.id] = self._weights.get(start.id, 0.0) + 1.0
            self._deaths[start.id] = self._deaths.get(start.id, 0) + 1
            found[start.id] = start
        worst = self.worst()
        whole = sum(self._weights.values())
        if not self._weights and not any("before" in e.detail for e in episodes):
            return {}
        signals: dict[str, Any] = {
            "starts/mined": [found[place] for place in worst if place in found],
            "places/deaths": dead,
            "places/known": len(self._weights),
        }
        if worst:
            signals["places/worst"] = worst[0]
            signals["places/worst_share"] = self._weights[worst[0]] / whole
        return signals

    def worst(self) -> list[str]:
        """Return the places where it keeps happening, the worst first."""
        order = sorted(self._weights, key=lambda place: (-self._weights[place], place))
        return [place for place in order[: self.most] if self._weights[place] >= self.at_least]

    def histogram(self) -> list[dict[str, Any]]:
        """Return every remembered place with its deaths so far and its present weight, the worst first."""
        order = sorted(self._weights, key=lambda place: (-self._weights[place], place))
        return [
            {"place": place, "deaths": self._deaths[place], "weight": self._weights[place]}
            for place in order
        ]

    def _forget(self, update: int, labels: Sequence[str]) -> None:
        """Let the weights fall; a place whose weight is next to nothing, or that is no longer played, is forgotten."""
        factor = 0.5 ** ((update - self._update) / self.half_life)
        self._update = update
        self._weights = {
            place: weight * factor
            for place, weight in self._weights.items()
            if weight * factor > 0.01 and (not labels or place.partition(":")[0] in labels)
        }
        self._deaths = {place: self._deaths[place] for place in self._weights}

    def state_dict(self) -> dict[str, Any]:
        """Return what changes; lists, since places are free text and keys become paths in a checkpoint."""
        places = [[p, w, self._deaths[p]] for p, w in self._weights.items()]
        return {"update": self._update, "places": places}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what changes."""
        self._update = int(state["update"])
        self._weights = {place: float(weight) for place, weight, _ in state["places"]}
        self._deaths = {place: int(deaths) for place, _, deaths in state["places"]}


def as_start(entry: Start | Mapping[str, Any], kind: str) -> Start:
    """Return a mined start with type, label and id; arrays that went through JSON are arrays again.

    A record that only says whether there was a snapshot (`Start.brief`) gives the start without it.
    """
    if isinstance(entry, Start):
        start = entry
    else:
        start = Start(**{f.name: entry[f.name] for f in fields(Start) if f.name in entry})
    snapshot = None
    if isinstance(start.snapshot, Mapping):
        snapshot = {key: _as_array(value) for key, value in start.snapshot.items()}
    key = start.id
    if not key:
        key = hashlib.blake2b(pack([start.seed, snapshot]), digest_size=8).hexdigest()
    return replace(start, snapshot=snapshot, type=kind, label=start.label or "mined", id=key)


def _as_array(value: Any) -> Array:
    if isinstance(value, np.ndarray):
        return value
    array = np.asarray(value)
    return array if array.dtype == np.bool_ else array.astype(np.float32)
