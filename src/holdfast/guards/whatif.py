"""What other rules would have decided: recorded signals through changed guards.

`replay` feeds the lines of `metrics.jsonl` through guards as the loop did: in order, each guard's status
merged into the signals right after it decided. The statuses of the replayed guards are computed again,
those of others are taken as recorded. `compare` lines the result up with the decisions of the journal.

The signals are those of the run as it was: what a changed decision would have done to the *later* signals
is not known. The first differing update is a fact; what follows is a reading.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.guards.guard import Guard
from holdfast.records import Decision, Signals

Replayed = tuple[int, str, Decision]
"""Update, guard, decision."""
Question = Callable[[Guard, dict[str, Any]], list[Decision]]
SIZES = ("world/games", "world/slots_per_game")
PLACES = (*SIZES, "starts/labels")


def replay(
    lines: Iterable[Mapping[str, Any]],
    guards: Sequence[Guard],
    values: Mapping[int, Mapping[str, float]] | None = None,
) -> list[Replayed]:
    """Return every decision that the guards make on the recorded lines, in order.

    `values` are, by the index of a phase, the `world/...` signals of its world when it is new; no line has them, since
    guards turn them then.
    """
    found: list[Replayed] = []
    own = tuple(f"guard/{guard.name}/" for guard in guards)
    before: Mapping[str, Any] | None = None
    for line in lines:
        update = int(line["update"])
        for question in _asked(before, line):
            signals = _sizes(before, line, own)
            signals.update((values or {}).get(int(line.get("phase/index", 1)), {}))
            for guard in guards:
                _merge(signals, guard)
            for guard in guards:
                found += [(update - 1, guard.name, d) for d in question(guard, signals)]
                _merge(signals, guard)
        signals = {key: value for key, value in line.items() if not key.startswith(own)}
        for guard in guards:
            found += [(update, guard.name, decision) for decision in guard.step(signals)]
            _merge(signals, guard)
        before = line
    return found


class Watched(Guard):
    """A guard whose status after every step is kept."""

    def __init__(self, guard: Guard) -> None:
        self.guard, self.name = guard, guard.name
        self.reads_starts = guard.reads_starts
        self.statuses: list[dict[str, Any]] = []

    def initial(self, signals: Signals) -> list[Decision]:
        return self.guard.initial(signals)

    def requeue(self, signals: Signals) -> list[Decision]:
        return self.guard.requeue(signals)

    def replan(self, signals: Signals) -> list[Decision]:
        return self.guard.replan(signals)

    def final(self, signals: Signals) -> list[Decision]:
        return self.guard.final(signals)

    def step(self, signals: Signals) -> list[Decision]:
        decisions = self.guard.step(signals)
        self.statuses.append(dict(self.guard.status()))
        return decisions

    def status(self) -> dict[str, Any]:
        return self.guard.status()

    def state_dict(self) -> dict[str, Any]:
        return self.guard.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.guard.load_state_dict(state)


def _asked(before: Mapping[str, Any] | None, line: Mapping[str, Any]) -> list[Question]:
    """Return what guards were asked before an update: at the beginning, by a longer plan, and in a world that was rebuilt."""
    if before is None:
        return [lambda guard, signals: guard.initial(signals)]
    asked: list[Question] = []
    if _replanned(before, line):
        asked.append(lambda guard, signals: guard.replan(signals))
    if _rebuilt(before, line):
        asked.append(lambda guard, signals: guard.requeue(signals))
    return asked


def _replanned(before: Mapping[str, Any], line: Mapping[str, Any]) -> bool:
    """Return whether the run was made longer or shorter between two lines."""
    keys = ["phase/count"]
    if before.get("phase/index") == line.get("phase/index"):
        keys.append("phase/last_update")
    return any(before.get(key) != line.get(key) for key in keys)


def _rebuilt(before: Mapping[str, Any], line: Mapping[str, Any]) -> bool:
    """Return whether the world was built anew between two lines.

    `world/built` counts it; without it, a world of another size shows it.
    """
    keys = ("world/built",) if "world/built" in line else SIZES
    return any(before.get(key) != line.get(key) for key in keys)


def _sizes(
    before: Mapping[str, Any] | None, line: Mapping[str, Any], own: tuple[str, ...]
) -> dict[str, Any]:
    """Return what is known before an update: its phase, the world's size, and earlier statuses."""
    signals = {
        key: value
        for key, value in (before or {}).items()
        if key.startswith("guard/") and not key.startswith(own)
    }
    signals.update({k: v for k, v in line.items() if k.startswith("phase/") or k in PLACES})
    signals["update"] = int(line["update"]) - 1
    return signals


def _merge(signals: dict[str, Any], guard: Guard) -> None:
    signals.update({f"guard/{guard.name}/{key}": value for key, value in guard.status().items()})


@dataclass(frozen=True)
class Made:
    """What a decision came to, in a form that a journal line has too."""

    kind: str
    name: str = ""
    value: Any = None
    """The value; for `inject_starts` how many; None where the journal keeps none."""
    role: str = ""
    cause: str = ""
    message: str = ""

    @property
    def effect(self) -> tuple[str, str, Any, str]:
        """What must be equal for two decisions to be the same; the cause may differ."""
        return (self.kind, self.name, self.value, self.role)

    def __str__(self) -> str:
        shown = f"{self.kind} {self.name}".rstrip()
        return shown if self.value is None else f"{shown} = {self.value}"


@dataclass(frozen=True)
class Difference:
    """A decision that one side made and the other did not, or made otherwise."""

    update: int
    guard: str
    before: Made | None
    """As recorded; None: only the replay decided."""
    after: Made | None
    """As replayed; None: only the recorded run decided."""


def compare(
    recorded: Iterable[Mapping[str, Any] | Replayed],
    replayed: Iterable[Replayed],
    guards: Collection[str] | None = None,
) -> list[Difference]:
    """Return the decisions that differ, by update, then guard.

    `recorded` are journal lines (others than decisions are passed over) or another replay. `guards` are the
    names of the replayed guards; without it, those that decided anything in the replay.
    """
    after = _grouped(replayed)
    before = _grouped(recorded)
    names = {guard for _, guard in after} if guards is None else set(guards)
    found: list[Difference] = []
    for update, guard in sorted(before.keys() | after.keys()):
        if guard in names:
            pairs = _paired(before.get((update, guard), []), after.get((update, guard), []))
            found += [Difference(update, guard, old, new) for old, new in pairs]
    return found


def _paired(old: list[Made], new: list[Made]) -> list[tuple[Made | None, Made | None]]:
    """Return the decisions of one guard at one update that are not the same on both sides."""
    rest = list(new)
    gone = []
    for made in old:
        same = next((k for k, other in enumerate(rest) if other.effect == made.effect), None)
        if same is None:
            gone.append(made)
        else:
            del rest[same]
    pairs: list[tuple[Made | None, Made | None]] = []
    for made in gone:
        match = next((k for k, other in enumerate(rest) if _alike(made, other)), None)
        pairs.append((made, rest.pop(match) if match is not None else None))
    return pairs + [(None, made) for made in rest]


def _alike(one: Made, other: Made) -> bool:
    """Return whether one stands in the place of the other: same setting, or both about the phase."""
    phase = ("hold_phase", "advance_phase")
    if one.kind in phase and other.kind in phase:
        return True
    return (one.kind, one.name, one.role) == (other.kind, other.name, other.role)


def _grouped(
    decisions: Iterable[Mapping[str, Any] | Replayed],
) -> dict[tuple[int, str], list[Made]]:
    groups: dict[tuple[int, str], list[Made]] = {}
    for item in decisions:
        if isinstance(item, tuple):
            update, guard, made = item[0], item[1], _of_decision(item[2])
        elif item.get("event", "decision") == "decision":
            update, guard, made = int(item["update"]), str(item["guard"]), _of_line(item)
        else:
            continue
        groups.setdefault((update, guard), []).append(made)
    return groups


def _of_decision(decision: Decision) -> Made:
    value = decision.value
    if decision.kind == "inject_starts":
        value = len(value)
    elif not isinstance(value, int | float | str):
        value = None
    about = decision.message, str(decision.cause)
    return Made(decision.kind, decision.name, value, decision.role, about[1], about[0])


def _of_line(line: Mapping[str, Any]) -> Made:
    kind, value = str(line["kind"]), line.get("value")
    if kind == "inject_starts":
        value = line.get("applied")
    elif isinstance(value, dict):  # what a warning is about stands in its message
        value = None
    cause = line.get("cause") or {}
    text = (
        f"{cause.get('signal')} = {cause.get('value')} (threshold {cause.get('threshold')}, "
        f"window {cause.get('window')})"
    )
    role, message = str(line.get("role") or ""), str(line.get("message") or "")
    return Made(kind, str(line.get("name") or ""), value, role, text, message)
