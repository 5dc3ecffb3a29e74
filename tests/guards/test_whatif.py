from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.guards.gate import GateConfig, PenaltyGate
from holdfast.guards.guard import Guard
from holdfast.guards.health import NonFiniteConfig, NonFiniteGuard, PlateauConfig, PlateauGuard
from holdfast.guards.schedules import BoostConfig, BoostSchedule, DensityConfig, DensitySchedule
from holdfast.guards.stages import TailStage
from holdfast.guards.tails import TailLedger, TailsConfig
from holdfast.guards.whatif import Made, compare, replay
from holdfast.records import Decision, Start

LENGTHS = (4, 4, 4, 4, 4)
FISH = (15, 15, 20, 20, 20)


def stages() -> list[TailStage]:
    starts = [Start(seed=k, type="ne", id=f"n{k}") for k in range(5)]
    return [TailStage("north", "ne", 0, starts, 12), TailStage("main", "main", 0, starts, 30)]


def guards(**gate: Any) -> list[Guard]:
    settings: dict[str, Any] = {
        "allowance": (2, 3, 4, 5),
        "required_successes": 1,
        "freeze": 0,
        "success_freeze": 0,
        "success_step_one": -1,
        "success_step_one_ratio": 0.0,
        "success_early_death_window": 1,
        "success_p10_window": 1,
    }
    return [
        NonFiniteGuard(NonFiniteConfig()),
        PlateauGuard(PlateauConfig(signal="shoal/survival", window=2, patience=3)),
        TailLedger(TailsConfig(share=0.7, force_reset_steps=50), stages()),
        PenaltyGate(GateConfig(**{**settings, **gate})),
        DensitySchedule(DensityConfig(lock_until=0)),
        BoostSchedule(BoostConfig(min_update=2)),
    ]


class Run:
    """A pretend loop that records as the loop does: a metrics line an update, and a journal."""

    def __init__(self, guards: list[Guard]) -> None:
        self.guards = guards
        self.lines: list[dict[str, Any]] = []
        self.journal: list[dict[str, Any]] = []
        self.queues: list[list[Start]] = [[] for _ in range(3)]
        self.now = [Start() for _ in range(3)]
        self.status: dict[str, Any] = {}
        update, built = 0, 1
        for phase, (length, fish) in enumerate(zip(LENGTHS, FISH, strict=True), 1):
            base = {
                "phase/index": phase,
                "phase/count": len(LENGTHS),
                "phase/first_update": update + 1,
                "phase/last_update": update + length,
                "world/games": 3,
                "world/slots_per_game": fish,
            }
            rebuilt = phase > 1 and fish != FISH[phase - 2]
            if rebuilt:
                built += 1
                self.queues = [[] for _ in range(3)]
                self.now = [Start() for _ in range(3)]
            base["world/built"] = built
            if phase == 1 or rebuilt:
                signals = {**base, **self.status, "update": update}
                for guard in guards:
                    found = guard.initial(signals) if phase == 1 else []
                    if rebuilt and isinstance(guard, TailLedger):
                        found = guard.requeue(signals)
                    self.take(update, guard, found, signals)
            for _ in range(length):
                update += 1
                self.update({**base, "update": update})

    def update(self, signals: dict[str, Any]) -> None:
        update = signals["update"]
        survival = 0.5 + 0.02 * (update % 7)
        begun, ended = [], []
        for game in range(3):
            if (update + game) % 2:
                ended.append({"game": game, **self.now[game].brief(), "survival": survival})
                self.now[game] = self.queues[game].pop(0) if self.queues[game] else Start()
                begun.append({"game": game, **self.now[game].brief()})
        signals |= {
            "starts/begun": begun,
            "starts/ended": ended,
            "starts/waiting": [len(queue) for queue in self.queues],
            "starts/forced": 0,
            "shoal/survival": survival,
            "shoal/first_death_p10": float(update % 5) * 6,
            "health/nonfinite": int(update == 9),
            "world/force_reset_steps": 50.0,
        }
        if update % 2 == 0:
            signals |= {
                "probe/ed100": 0.06 + 0.01 * (update % 5),
                "probe/p10": 150.0 if update != 14 else 20.0,
                "probe/min_final": 0.8,
                "probe/step_one_count": 5,
                "probe/fish_samples": 1152,
            }
        for guard in self.guards:
            self.take(update, guard, guard.step(signals), signals)
        self.lines.append(json.loads(json.dumps(signals)))

    def take(
        self, update: int, guard: Guard, found: list[Decision], signals: dict[str, Any]
    ) -> None:
        for decision in found:
            applied = None
            if decision.kind == "inject_starts":
                applied = len(decision.value)
                for slot, start in zip(decision.slots, decision.value, strict=True):
                    self.queues[slot // signals["world/slots_per_game"]].append(start)
            value = decision.value if isinstance(decision.value, int | float | str) else None
            self.journal.append(
                {
                    "event": "decision",
                    "update": update,
                    "guard": guard.name,
                    "kind": decision.kind,
                    "name": decision.name,
                    "value": value,
                    "role": decision.role,
                    "message": decision.message,
                    "cause": vars(decision.cause),
                    "applied": applied,
                }
            )
        self.status = {f"guard/{guard.name}/{k}": v for k, v in guard.status().items()}
        signals.update(self.status)


@pytest.fixture(scope="module")
def run() -> Run:
    return Run(guards())


def test_unchanged_guards_decide_what_was_recorded(run: Run) -> None:
    again = guards()
    replayed = replay(run.lines, again)
    assert {guard for _, guard, _ in replayed} == {g.name for g in again}
    assert compare(run.journal, replayed, [g.name for g in again]) == []
    assert len(replayed) == len(run.journal)


@pytest.mark.parametrize("name", ["nonfinite", "plateau", "tails", "gate", "density", "boost"])
def test_each_guard_can_be_replayed_alone_on_the_recorded_statuses_of_the_others(
    run: Run, name: str
) -> None:
    (guard,) = (g for g in guards() if g.name == name)
    assert compare(run.journal, replay(run.lines, [guard]), [name]) == []


def test_a_changed_threshold_shows_the_first_decision_that_differs(run: Run) -> None:
    changed = [g for g in guards(success_early_death=0.075) if g.name == "gate"]
    found = compare(run.journal, replay(run.lines, changed), ["gate"])
    first = found[0]
    # update 2 measured 0.08: a success at 0.115, not at 0.075
    assert (first.update, first.guard) == (2, "gate")
    assert first.before is not None
    assert first.after is not None
    assert (str(first.before), str(first.after)) == (
        "advance_phase advance = 3",
        "hold_phase noop = 2",
    )
    assert "threshold 0.075" in first.after.cause
    assert "threshold 1" in first.before.cause


def test_the_change_of_one_guard_reaches_the_later_ones(run: Run) -> None:
    changed = [g for g in guards(success_early_death=0.01) if g.name in ("gate", "density")]
    replayed = replay(run.lines, changed)
    density = [d.value for _, name, d in replayed if name == "density"]
    assert density == [0, 0.02]  # the gate never left phase 2
    found = compare(run.journal, replayed, ["gate", "density"])
    assert {d.guard for d in found} == {"gate", "density"}
    assert all(d.after is None for d in found if d.guard == "density")


def test_a_guard_that_falls_silent_differs_everywhere(run: Run) -> None:
    silent: list[Guard] = [PlateauGuard(PlateauConfig(signal="nothing"))]
    found = compare(run.journal, replay(run.lines, silent), ["plateau"])
    assert found
    assert all(d.before is not None and d.after is None for d in found)


def test_two_replays_can_be_compared(run: Run) -> None:
    one = replay(run.lines, guards())
    other = replay(run.lines, guards(failure_p10=0.0))
    found = compare(one, other)
    assert next((d.update, d.guard) for d in found) == (14, "gate")
    assert found[0].before is not None
    assert found[0].before.name == "failure_hold"


def test_decisions_are_the_same_when_only_their_cause_differs() -> None:
    one = Made("set_world", "x", 1.0, cause="a")
    assert one.effect == Made("set_world", "x", 1, cause="b").effect


def test_lines_of_other_events_are_passed_over() -> None:
    assert compare([{"event": "probe", "update": 3}], [], ["gate"]) == []


def test_without_a_count_of_worlds_a_change_of_size_shows_the_rebuild(run: Run) -> None:
    lines = [{k: v for k, v in line.items() if k != "world/built"} for line in run.lines]
    assert compare(run.journal, replay(lines, guards()), [g.name for g in guards()]) == []
