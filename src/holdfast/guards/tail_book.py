"""The books of a tail ledger: which starts wait in which game, which episodes run from them, what became of each.

A *ticket* is a start that was handed to a game; when an episode of that game begins from it, the ticket becomes a *use*;
when the episode ends, the use is entered into the record of the start. `tails.TailLedger` decides what is handed out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.guards.guard import number
from holdfast.guards.stages import TailStage
from holdfast.guards.supply import LiveStage, MinedStage, Record
from holdfast.records import Start, pack_starts, unpack_starts

MINED = -1
"""Stage number of the live stage of mined starts."""


@dataclass(frozen=True)
class Success:
    """What decides the outcome of an episode."""

    fact: str
    """Fact of an episode that is looked at."""
    least: float
    """Least value of that fact that is a success."""
    cured_after: int
    """Successes in a row, in different updates, that cure a start."""
    done: str = ""
    """Fact that is above 0 when the goal was reached: then it is a success anyhow."""

    def of(self, entry: Mapping[str, Any], fact: float) -> bool:
        """Return whether an episode with this value of the fact is one."""
        return fact >= self.least or (number(entry, self.done) or 0.0) > 0


@dataclass(frozen=True)
class Ticket:
    """A start that was handed to a game."""

    game: int
    stage: int
    id: str


@dataclass(frozen=True)
class Use:
    """An episode that runs: from which start, of which stage, since which update; id "" if from none."""

    id: str
    stage: int
    update: int


class Book:
    """All starts of a ledger and where each of them is."""

    def __init__(self, stages: Sequence[TailStage], mine_type: str, success: Success) -> None:
        self.success = success
        self.stages = [LiveStage.of(stage) for stage in stages]
        self.mined = MinedStage("mined", mine_type, 0, 0, [])
        self.records: dict[str, Record] = {}
        self.tickets: list[Ticket] = []
        self._running: dict[int, list[Use]] = {}
        self._packed = b""
        self._packed_mined = b""

    def stage(self, index: int) -> LiveStage:
        """Return a stage by its number, or the mined one."""
        return self.mined if index == MINED else self.stages[index]

    def record(self, key: str) -> Record:
        """Return what happened to the start of this id so far."""
        return self.records.setdefault(key, Record())

    def waiting(self) -> Counter[int]:
        """Return how many starts wait in each game."""
        return Counter(ticket.game for ticket in self.tickets)

    def hand(self, game: int, stage: int, start: Start) -> None:
        """Enter that a start was handed to a game."""
        record = self.record(start.id)
        record.injected += 1
        record.quota += 1
        self.tickets.append(Ticket(game, stage, start.id))

    def mine(self, found: Sequence[Any], most: int) -> None:
        """Take in mined starts, and make room for them."""
        if self.mined.add(found, self.records, most):
            self._packed_mined = b""

    def begin(self, begun: Sequence[Mapping[str, Any]], update: int) -> None:
        """Enter that these episodes began."""
        waiting: dict[tuple[int, str], list[Ticket]] = {}
        for ticket in self.tickets:
            waiting.setdefault((ticket.game, ticket.id), []).append(ticket)
        used: Counter[Ticket] = Counter()
        for entry in begun:
            game, key = where(entry)
            runs = self._running.setdefault(game, [])
            tickets = waiting.get((game, key))
            if not key or not tickets:  # afresh, or injected by someone else
                runs.append(Use("", 0, 0))
                continue
            ticket = tickets.pop(0)
            used[ticket] += 1
            self.stage(ticket.stage).consumed += 1
            self.record(key).consumed += 1
            runs.append(Use(key, ticket.stage, update))
        self.tickets = _without(self.tickets, used)

    def end(self, ended: Sequence[Mapping[str, Any]], update: int) -> None:
        """Enter how these episodes ended."""
        for entry in ended:
            game, key = where(entry)
            runs = self._running.get(game, [])
            use = next((u for u in runs if u.id == key), None)
            if use is None:
                continue
            runs.remove(use)
            if key:
                fact = number(entry, self.success.fact)
                outcome = "cut"
                if fact is not None:
                    outcome = "success" if self.success.of(entry, fact) else "failure"
                self._close(game, use, outcome, fact, update)
        for game in list(self._running):
            self._cut(game, 1, update)

    def failures(self, ended: Sequence[Mapping[str, Any]], update: int) -> list[dict[str, Any]]:
        """Return the fresh starts among `ended` that failed."""
        found = []
        for entry in ended:
            fact, seed = number(entry, self.success.fact), entry.get("seed")
            fresh = not entry.get("id") and not entry.get("snapshot") and seed is not None
            if fresh and fact is not None and not self.success.of(entry, fact):
                about = {"label": "mined", "type": self.mined.type, "origin": f"update {update}"}
                snapshot = entry.get("begin") or None
                found.append({"seed": seed, "snapshot": snapshot, "id": f"seed-{seed}", **about})
        return found

    def reconcile(self, waiting: Sequence[int] | None) -> None:
        """Take back tickets of queues that are shorter than they should be."""
        if waiting is None:
            return
        short = {
            game: count - (int(waiting[game]) if game < len(waiting) else 0)
            for game, count in self.waiting().items()
        }
        lost = []
        for ticket in self.tickets:
            if short[ticket.game] > 0:
                short[ticket.game] -= 1
                lost.append(ticket)
        self._take_back(lost)

    def clear(self, update: int) -> None:
        """Take back all that waits, and enter all that runs as cut: the world is gone."""
        self._take_back(self.tickets)
        for game in list(self._running):
            self._cut(game, 0, update)

    def about(self, key: str) -> dict[str, Any]:
        """Return what happened to the start of this id."""
        record = self.records.get(key, Record())
        waiting = [ticket.game for ticket in self.tickets if ticket.id == key]
        return {**vars(record), "uses": [list(u) for u in record.uses], "waiting_in": waiting}

    def _cut(self, game: int, keep: int, update: int) -> None:
        """Enter as cut all but the last `keep` episodes of a game."""
        runs = self._running.pop(game)
        for use in runs[: len(runs) - keep]:
            if use.id:
                self._close(game, use, "cut", None, update)
        runs = runs[len(runs) - keep :] if keep and runs else []
        if runs and runs[-1].id:
            self._running[game] = runs

    def _close(self, game: int, use: Use, outcome: str, fact: float | None, update: int) -> None:
        entry = [use.stage, game, use.update, outcome, fact]
        self.record(use.id).end(update, entry, self.success.cured_after)

    def _take_back(self, tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            stage = self.stage(ticket.stage)
            if ticket.stage == MINED:
                self.record(ticket.id).quota -= 1
            elif stage.closed:
                stage.skipped += 1
            else:
                stage.returned.append(ticket.id)
        self.tickets = _without(self.tickets, Counter(tickets))

    def state_dict(self) -> dict[str, Any]:
        """Return everything, the starts included."""
        # lists, not dicts by id: ids are free text, and keys become paths in a checkpoint
        self._packed = self._packed or pack_starts([s.starts for s in self.stages])
        self._packed_mined = self._packed_mined or pack_starts([self.mined.starts])
        every = [*self.stages, self.mined]
        return {
            "starts": self._packed,
            "mined_starts": self._packed_mined,
            "stages": [stage.counters() for stage in every],
            "records": [[key, {**vars(r)}] for key, r in self.records.items()],
            "tickets": [[t.game, t.stage, t.id] for t in self.tickets],
            "running": [
                [game, use.id, use.stage, use.update]
                for game, uses in self._running.items()
                for use in uses
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore everything."""
        self._packed, self._packed_mined = bytes(state["starts"]), bytes(state["mined_starts"])
        starts = unpack_starts(self._packed) + unpack_starts(self._packed_mined)
        held = [
            {**fields, "starts": own, "returned": list(fields["returned"])}
            for own, fields in zip(starts, state["stages"], strict=True)
        ]
        self.stages = [LiveStage(**fields) for fields in held[:-1]]
        self.mined = MinedStage(**held[-1])
        self.records = {key: Record(**fields) for key, fields in state["records"]}
        self.tickets = [Ticket(*ticket) for ticket in state["tickets"]]
        self._running = {}
        for game, *use in state["running"]:
            self._running.setdefault(game, []).append(Use(*use))


def where(entry: Mapping[str, Any]) -> tuple[int, str]:
    """Return the game of an episode and the id of the start that it began from, "" if afresh."""
    return int(entry["game"]), str(entry.get("id") or "")


def _without(tickets: Sequence[Ticket], gone: Counter[Ticket]) -> list[Ticket]:
    """Return the tickets less those counted in `gone`, the first ones first."""
    left = []
    for ticket in tickets:
        if gone[ticket]:
            gone[ticket] -= 1
        else:
            left.append(ticket)
    return left
