"""The tail ledger against a small pretend world, with the numbers written out."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import numpy as np
import pytest

from holdfast.errors import ConfigError
from holdfast.guards.stages import TailStage
from holdfast.guards.supply import Record
from holdfast.guards.tails import TailLedger, TailsConfig
from holdfast.records import Decision, Start, pack, unpack
from holdfast.tables import build


def stage(
    label: str = "a", count: int = 0, starts: int = 3, updates: int = 1, type: str = "tail"
) -> TailStage:
    made = [Start(seed=k, label=label, type=type, id=f"{label}:{k}") for k in range(starts)]
    return TailStage(label, type, updates, made, count)


class Games:
    """Queues of starts, and the signals that the loop would give."""

    def __init__(self, games: int, slots: int = 1) -> None:
        self.games, self.slots = games, slots
        self.queues: list[deque[Start]] = [deque() for _ in range(games)]
        self.now = [Start() for _ in range(games)]
        self.update = 0
        self.begun: list[str] = []
        """Ids in the order in which episodes began from them."""

    def sizes(self) -> dict[str, Any]:
        return {
            "update": self.update,
            "world/games": self.games,
            "world/slots_per_game": self.slots,
        }

    def apply(self, decisions: list[Decision]) -> list[Decision]:
        for decision in decisions:
            if decision.kind == "inject_starts":
                for slot, start in zip(decision.slots, decision.value, strict=True):
                    assert slot % self.slots == 0
                    self.queues[slot // self.slots].append(start)
        return decisions

    def play(self, ending: list[int] | None = None, survival: float = 1.0) -> dict[str, Any]:
        """End the episodes of these games (all) in one update; return the update's signals."""
        self.update += 1
        begun, ended = [], []
        for game in range(self.games) if ending is None else ending:
            old = self.now[game]
            ended.append(
                {"game": game, **old.brief(), "steps": 9, "ended": "x", "survival": survival}
            )
            self.now[game] = self.queues[game].popleft() if self.queues[game] else Start()
            begun.append({"game": game, **self.now[game].brief()})
            self.begun += [self.now[game].id] if self.now[game].id else []
        return {
            **self.sizes(),
            "starts/begun": begun,
            "starts/ended": ended,
            "starts/waiting": [len(queue) for queue in self.queues],
            "starts/forced": len(ended),
        }

    def turn(self, ledger: TailLedger, **settings: Any) -> list[Decision]:
        return self.apply(ledger.step(self.play(**settings)))


def begin(ledger: TailLedger, games: int, slots: int = 1) -> Games:
    world = Games(games, slots)
    world.apply(ledger.initial(world.sizes()))
    return world


def test_starts_are_handed_out_in_order_and_again_from_the_front() -> None:
    ledger = TailLedger(TailsConfig(), [stage(count=7)])
    world = begin(ledger, 2)
    for _ in range(6):
        world.turn(ledger)
    assert world.begun == ["a:0", "a:1", "a:2", "a:0", "a:1", "a:2", "a:0"]
    status = ledger.status()
    assert (status["consumed"], status["remaining"], status["remaining_ratio"]) == (7, 0, 0.0)


def test_a_start_goes_to_the_first_slot_of_its_game() -> None:
    ledger = TailLedger(TailsConfig(), [stage()])
    (decision,) = ledger.initial(Games(3, slots=25).sizes())
    assert (decision.kind, decision.slots) == ("inject_starts", (0, 25, 50))
    assert [start.id for start in decision.value] == ["a:0", "a:1", "a:2"]


def test_an_injection_names_the_stages_that_its_starts_come_from() -> None:
    ledger = TailLedger(TailsConfig(), [stage("a", count=3), stage("b", count=3, type="ne")])
    world = begin(ledger, 2)
    made = [d for _ in range(3) for d in world.turn(ledger) if d.kind == "inject_starts"]
    assert [d.name for d in made] == ["a+b", "b"]
    said = "2 starts wait in games: 1 of stage 'a' (tail), 1 of stage 'b' (ne)"
    assert made[0].message == said
    ledger = TailLedger(TailsConfig(mine=True), [stage("a", count=1)])
    world = begin(ledger, 1)
    for _ in range(2):
        made = ledger.step({**world.play(), "starts/mined": mined("m")})
        world.apply(made)
    assert [d.name for d in made if d.kind == "inject_starts"] == ["mined"]


def test_no_game_has_more_than_depth_starts_waiting() -> None:
    for depth in (1, 2, 3):
        ledger = TailLedger(TailsConfig(depth=depth), [stage(count=100)])
        world = begin(ledger, 4)
        for update in range(5):
            assert [len(queue) for queue in world.queues] == [depth] * 4
            world.turn(ledger, ending=[update % 4, 3] if update % 4 != 3 else [3])


def test_the_capacity_is_updates_times_games_or_the_count() -> None:
    ledger = TailLedger(TailsConfig(), [stage("a", updates=20), stage("b", count=5)])
    assert ledger.capacity == 0
    ledger.initial(Games(4).sizes())
    assert ledger.capacity == 85
    assert ledger.status()["remaining_ratio"] == 1.0


def test_the_v36_totals_come_out() -> None:
    # Spec 3.4: 5 stages of 20, 24, 16, 20, 20 updates x 128 games; 38 overrides a game -> 0.62
    stages = [stage(str(k), updates=n, starts=5) for k, n in enumerate((20, 24, 16, 20, 20))]
    ledger = TailLedger(TailsConfig(), stages)
    world = begin(ledger, 128)
    for _ in range(38):
        world.turn(ledger)
    status = ledger.status()
    assert (status["capacity"], status["consumed"], status["remaining"]) == (12800, 4864, 7936)
    assert status["remaining_ratio"] == pytest.approx(0.62)
    assert (status["stage_index"], status["stage_progress"]) == (2, 0.75)
    assert status["overrides_total"] == 4864
    assert status["forced_resets_total"] == 4864


def test_the_override_ratio_is_a_number_every_update() -> None:
    ledger = TailLedger(TailsConfig(), [stage(count=3)])
    world = begin(ledger, 4)
    assert ledger.status()["override_ratio"] == 0.0
    world.turn(ledger)  # three of the four games had a start
    assert ledger.status()["override_ratio"] == 0.75
    world.turn(ledger, ending=[])
    status = ledger.status()
    assert (status["override_ratio"], status["episodes"]) == (0.0, 0)


@pytest.mark.parametrize("share", [0.0, 0.15, 0.5, 1.0])
@pytest.mark.parametrize("depth", [1, 3])
def test_the_share_of_resets_is_kept(share: float, depth: int) -> None:
    ledger = TailLedger(TailsConfig(share=share, depth=depth), [stage(count=10**6)])
    world = begin(ledger, 20)
    for _ in range(100):
        world.turn(ledger)
    status = ledger.status()
    assert status["overrides_total"] / status["episodes_total"] == pytest.approx(share, abs=0.02)


def test_the_ledger_knows_game_update_and_outcome_of_each_use() -> None:
    ledger = TailLedger(TailsConfig(cured_after=9), [stage(count=4, starts=2)])
    world = begin(ledger, 2)
    assert ledger.about("a:1")["waiting_in"] == [1]
    world.turn(ledger)  # a:0 and a:1 begin at update 1
    world.turn(ledger, ending=[1], survival=0.2)  # a:1 ends at update 2, badly
    world.turn(ledger, ending=[0], survival=0.95)
    assert ledger.about("a:0")["uses"] == [[0, 0, 1, "success", 0.95]]
    assert ledger.about("a:1")["uses"] == [[0, 1, 1, "failure", 0.2]]
    assert ledger.about("a:1")["failures"] == 1
    assert ledger.about("nobody")["injected"] == 0


def test_several_short_episodes_in_one_update_are_all_entered() -> None:
    ledger = TailLedger(TailsConfig(depth=2), [stage(count=10)])
    world = begin(ledger, 1)
    signals = world.play()
    again = world.play()
    signals["starts/begun"] += again["starts/begun"]
    signals["starts/ended"] += again["starts/ended"]
    signals["starts/waiting"] = again["starts/waiting"]
    ledger.step(signals)
    status = ledger.status()
    assert (status["consumed"], status["episodes"], status["override_ratio"]) == (2, 2, 1.0)
    assert ledger.about("a:0")["successes"] == 1
    assert ledger.about("a:1")["uses"] == []


def test_a_start_is_cured_by_successes_in_a_row_and_relapses_by_a_failure() -> None:
    record = Record()
    states = []
    for update, outcome in enumerate(
        ["success", "failure", "success", "success", "failure", "success", "success"], 1
    ):
        record.end(update, [0, 0, 0, outcome, 1.0], cured_after=2)
        states.append(record.state)
    assert states == ["open", "open", "open", "cured", "relapsed", "relapsed", "cured"]


def test_successes_in_one_update_count_once_towards_the_cure() -> None:
    record = Record()
    for update in (3, 3, 3):
        record.end(update, [0, 0, 0, "success", 1.0], cured_after=2)
    assert (record.successes, record.streak, record.state) == (3, 1, "open")


def test_cured_and_relapsed_starts_are_counted() -> None:
    ledger = TailLedger(TailsConfig(), [stage(starts=1, count=99)])
    world = begin(ledger, 1)
    found = []
    for survival in (1.0, 1.0, 1.0, 0.1, 1.0, 1.0):
        world.turn(ledger, survival=survival)
        status = ledger.status()
        found.append((status["cured"], status["relapsed"]))
    # the first episode began afresh; the start ends at updates 2, 3, 4, 5, 6
    assert found == [(0, 0), (0, 0), (1, 0), (0, 1), (0, 1), (1, 0)]


def test_an_episode_that_was_broken_off_is_no_failure_of_its_start() -> None:
    ledger = TailLedger(TailsConfig(mine=True), [stage(starts=1, count=9)])
    world = begin(ledger, 1)
    world.turn(ledger)
    seen = world.play(survival=0.1)
    ledger.step({**seen, "starts/ended": [{**e, "cut": True} for e in seen["starts/ended"]]})
    assert [use[3] for use in ledger.about("a:0")["uses"]] == ["cut"]
    assert ledger.book.records["a:0"].failures == 0


def test_uncured_first_gives_relapsed_then_open_then_cured_starts() -> None:
    ledger = TailLedger(TailsConfig(order="uncured_first"), [stage(starts=4, count=99)])
    for k, state in enumerate(("cured", "open", "relapsed", "open")):
        ledger.book.records[f"a:{k}"] = Record(state=state, injected=5 - k)
    (decision,) = ledger.initial(Games(6).sizes())
    assert [s.id for s in decision.value] == ["a:2", "a:3", "a:1", "a:0", "a:2", "a:3"]


def test_starts_that_wait_in_a_rebuilt_world_come_back_in_their_order() -> None:
    ledger = TailLedger(TailsConfig(), [stage(starts=9, count=9)])
    old = begin(ledger, 3)
    old.turn(ledger, ending=[1])  # a:1 runs, a:0 a:2 a:3 wait
    new = Games(2, slots=20)
    decisions = new.apply(ledger.requeue(new.sizes()))
    assert [start.id for start in decisions[0].value] == ["a:0", "a:2"]
    assert decisions[0].slots == (0, 20)
    for _ in range(5):
        new.turn(ledger)
    assert old.begun + new.begun == [f"a:{k}" for k in (1, 0, 2, 3, 4, 5, 6, 7, 8)]
    assert ledger.about("a:1")["uses"] == [[0, 1, 1, "cut", None]]
    assert ledger.status()["remaining"] == 0


def test_a_world_that_lost_its_queue_gets_the_starts_again_without_being_told() -> None:
    ledger = TailLedger(TailsConfig(), [stage(starts=9, count=9)])
    world = begin(ledger, 2)
    world.queues = [deque(), deque()]
    world.turn(ledger, ending=[])
    assert [[s.id for s in queue] for queue in world.queues] == [["a:0"], ["a:1"]]


def test_every_start_is_used_exactly_once_however_often_the_world_is_rebuilt() -> None:
    draw = random.Random(1)
    ledger = TailLedger(TailsConfig(depth=2, share=0.7), [stage(starts=60, count=60)])
    world = begin(ledger, 4)
    begun: list[str] = []
    for _ in range(200):
        if draw.random() < 0.3:
            begun += world.begun
            update, world = world.update, Games(draw.choice((3, 4, 5)))
            world.update = update
            world.apply(ledger.requeue(world.sizes()))
        else:
            world.turn(ledger, ending=[g for g in range(world.games) if draw.random() < 0.5])
    assert sorted(begun + world.begun) == sorted(f"a:{k}" for k in range(60))


def test_stages_follow_each_other_and_the_change_is_reported() -> None:
    stages = [stage("a", count=2, type="ne"), stage("b", count=4), stage("c", count=2, type="ne")]
    ledger = TailLedger(TailsConfig(warn_ratio=0), stages)
    world = begin(ledger, 2)
    assert [(d.name, d.value) for d in world.turn(ledger) if d.kind == "advance_phase"] == [
        ("stage_done", 2)
    ]
    status = ledger.status()
    assert (status["stage_index"], status["stage_label"], status["stage_type"]) == (2, "b", "tail")
    assert (status["remaining_ne"], status["remaining_ratio_ne"]) == (2, 0.5)
    assert (status["stage_1_remaining_ratio"], status["stage_2_remaining_ratio"]) == (0.0, 1.0)
    assert (status["reinjections_ne"], status["reinjections_tail"]) == (0, 0)
    world.turn(ledger)
    world.turn(ledger)
    assert ledger.status()["reinjections_ne"] == 1
    world.turn(ledger)
    world.turn(ledger)
    assert world.begun == ["a:0", "a:1", "b:0", "b:1", "b:2", "b:0", "c:0", "c:1"]
    assert ledger.status()["stage_index"] == 3
    assert ledger.status()["stage_progress"] == 1.0


def test_a_stage_is_left_early_at_the_switch_ratio() -> None:
    ledger = TailLedger(TailsConfig(switch_ratio=0.5), [stage("a", count=8), stage("b", count=4)])
    world = begin(ledger, 2)
    world.turn(ledger)
    (switch, injected) = world.turn(ledger)
    # 4 of 8 are used and none waits: the other 4 are skipped
    assert (switch.kind, switch.name, switch.value) == ("advance_phase", "stage_switch", 2)
    assert (switch.cause.value, switch.cause.threshold) == (0.5, 0.5)
    assert [start.id for start in injected.value] == ["b:0", "b:1"]
    status = ledger.status()
    assert (status["skipped"], status["consumed"], status["remaining"]) == (4, 4, 4)


def test_what_waits_of_a_stage_that_was_left_is_still_used_or_skipped_on_a_rebuild() -> None:
    def at_switch() -> tuple[TailLedger, Games]:
        config = TailsConfig(switch_ratio=0.5, warn_ratio=0)
        ledger = TailLedger(config, [stage("a", count=4), stage("b", count=4)])
        world = begin(ledger, 3)
        world.turn(ledger, ending=[0, 1])
        return ledger, world

    ledger, world = at_switch()
    assert ledger.status()["stage_index"] == 2
    assert (ledger.status()["skipped"], ledger.status()["remaining"]) == (1, 5)
    world.turn(ledger)
    assert ledger.status()["consumed"] == 5  # a:2 and the first two of b
    ledger, world = at_switch()
    ledger.requeue(Games(3).sizes())
    assert (ledger.status()["skipped"], ledger.status()["remaining"]) == (2, 4)


def test_the_warning_has_patience_duration_and_resolution() -> None:
    config = TailsConfig(warn_ratio=0.4, warn_patience=2, repeat=True)
    ledger = TailLedger(config, [stage(count=6)])
    world = begin(ledger, 1)
    found, durations = [], []
    for _ in range(7):
        found.append([d.kind for d in world.turn(ledger) if d.kind in ("warn", "clear")])
        durations.append(ledger.status()["warn_duration"])
    # remaining 5 4 3 2 1 of 6; at update 6 the stage begins again: 6 of 12, then 5 of 12
    assert found == [[], [], [], [], ["warn"], ["clear"], []]
    assert durations == [0, 0, 0, 0, 1, 0, 0]
    assert ledger.alarm.events == [
        {
            "update": 5,
            "stage_label": "a",
            "stage_type": "tail",
            "remaining_ratio": 1 / 6,
            "remaining": 1,
            "threshold": 0.4,
            "resolved_update": 6,
            "duration_updates": 2,
            "clear_ratio": 0.5,
        }
    ]
    assert ledger.status()["reinjections_tail"] == 1


def test_an_active_warning_is_resolved_when_the_run_ends() -> None:
    ledger = TailLedger(TailsConfig(warn_ratio=0.9, warn_patience=1), [stage(count=2)])
    world = begin(ledger, 1)
    world.turn(ledger)
    assert ledger.light() == "yellow"
    assert ledger.status()["warn_since"] == 1
    (clear,) = ledger.final({"update": 5})
    assert clear.kind == "clear"
    assert clear.value["duration_updates"] == 5
    assert ledger.final({"update": 5}) == []
    assert ledger.status()["warn_active"] == 0


def test_without_stages_there_is_no_warning_and_no_injection() -> None:
    ledger = TailLedger(TailsConfig())
    world = begin(ledger, 2)
    assert world.turn(ledger) == []
    assert ledger.status()["remaining_ratio"] == 0.0
    assert ledger.status()["stage_index"] == 0


def test_the_forced_reset_is_set_at_the_start_and_after_a_rebuild() -> None:
    ledger = TailLedger(TailsConfig(force_reset_steps=224), [stage(count=1)])
    first = ledger.initial({})[0]
    assert (first.kind, first.name, first.value) == ("set_world", "force_reset_steps", 224)
    assert ledger.step({"update": 1, "world/force_reset_steps": 224.0}) == []
    assert ledger.step({"update": 2, "world/force_reset_steps": 0.0})[0].value == 224


def mined(*ids: str) -> list[dict[str, Any]]:
    return [
        {"seed": 5, "snapshot": None, "label": "", "type": "x", "origin": "", "id": i} for i in ids
    ]


def test_mined_starts_share_the_injections_with_the_stages() -> None:
    ledger = TailLedger(TailsConfig(mine=True, mine_share=0.5), [stage(starts=9, count=9)])
    world = Games(4)
    (decision,) = ledger.step({**world.play(), "starts/mined": mined("m1", "m2")})
    assert [start.id for start in decision.value] == ["a:0", "m1", "a:1", "m2"]
    assert [(s.type, s.label) for s in decision.value][1] == ("tail", "mined")
    world.apply([decision])
    world.turn(ledger)
    status = ledger.status()
    assert (status["mined"], status["mined_consumed"], status["consumed"]) == (2, 2, 2)


def test_mined_starts_are_replayed_until_cured_or_given_up() -> None:
    ledger = TailLedger(TailsConfig(mine=True, mine_uses=3))
    world = Games(1)
    world.apply(ledger.step({**world.play(), "starts/mined": mined("good")}))
    for _ in range(8):
        world.turn(ledger)
    assert ledger.about("good")["state"] == "cured"
    assert len(world.begun) == 3
    world.apply(ledger.step({**world.play(), "starts/mined": mined("good")}))
    assert ledger.status()["relapsed"] == 1
    assert ledger.status()["waiting"] == 1
    for _ in range(8):
        world.turn(ledger, survival=0.0)
    assert len(world.begun) == 6
    assert ledger.status()["cured"] == 0


def test_a_mined_start_that_waited_in_a_lost_world_was_not_used() -> None:
    ledger = TailLedger(TailsConfig(mine=True, mine_uses=1))
    world = Games(1)
    world.apply(ledger.step({**world.play(), "starts/mined": mined("m")}))
    assert ledger.status()["waiting"] == 1
    rebuilt = Games(1)
    rebuilt.apply(ledger.requeue(rebuilt.sizes()))
    for _ in range(4):
        rebuilt.turn(ledger)
    assert rebuilt.begun == ["m"]


def test_only_fresh_episodes_that_ended_as_failures_are_mined() -> None:
    ledger = TailLedger(TailsConfig(mine=True))
    fresh = {"game": 0, "snapshot": False, "id": "", "steps": 9, "ended": "x"}
    ended = [
        {**fresh, "seed": 1, "survival": 0.0},
        {**fresh, "seed": 2, "survival": 1.0},
        {**fresh, "seed": 3},
        {**fresh, "seed": 4, "survival": 0.0, "id": "someone's"},
        {**fresh, "seed": 5, "survival": 0.0, "snapshot": True},
    ]
    ledger.step({**Games(1).sizes(), "update": 1, "starts/ended": ended})
    assert list(ledger.book.mined.by_id) == ["seed-1"]


def test_cured_mined_starts_make_room_first_and_then_the_oldest() -> None:
    ledger = TailLedger(TailsConfig(mine=True, mine_max=2))
    ledger.step({"update": 1, "starts/mined": mined("a", "b")})
    ledger.book.records["b"].state = "cured"
    ledger.step({"update": 2, "starts/mined": mined("c")})
    assert list(ledger.book.mined.by_id) == ["a", "c"]
    ledger.step({"update": 3, "starts/mined": mined("d")})
    assert list(ledger.book.mined.by_id) == ["c", "d"]


def test_a_mined_snapshot_may_be_lists_and_have_no_id() -> None:
    ledger = TailLedger(TailsConfig(mine=True))
    world = Games(1)
    entry = {"snapshot": {"predator_vel": [0.5, 1.5], "alive": [True, False]}}
    (decision,) = ledger.step({**world.play(), "starts/mined": [entry]})
    start = decision.value[0]
    assert start.snapshot["predator_vel"].dtype == np.float32
    assert start.id
    assert start.snapshot["alive"].dtype == np.bool_


def test_a_mined_start_that_was_recorded_in_brief_keeps_its_id_and_seed() -> None:
    ledger = TailLedger(TailsConfig(mine=True))
    world = Games(1)
    full = Start(7, {"predator_vel": np.zeros(2, np.float32)}, id="m")
    (decision,) = ledger.step({**world.play(), "starts/mined": [{**full.brief(), "survival": 0.2}]})
    assert (decision.value[0].id, decision.value[0].seed) == ("m", 7)
    assert decision.value[0].snapshot is None


def test_starts_of_others_count_as_overrides_but_not_as_ours() -> None:
    ledger = TailLedger(TailsConfig(), [stage(count=5)])
    world = Games(1)
    world.queues[0].append(Start(seed=1, id="foreign"))
    world.turn(ledger)
    assert ledger.status()["override_ratio"] == 1.0
    assert ledger.status()["consumed"] == 0


def test_a_stage_without_starts_or_ids_is_refused() -> None:
    with pytest.raises(ConfigError, match="stage 'a' has no starts"):
        TailLedger(TailsConfig(), [stage(starts=0)])
    with pytest.raises(ConfigError, match="without an id"):
        TailLedger(TailsConfig(), [TailStage("a", "t", 1, [Start(seed=1)])])
    with pytest.raises(ConfigError, match=r"guards\.tails: stages: stage 1"):
        build(TailsConfig, {"stages": "nothing"}, "guards.tails")


def snapshot_stage() -> TailStage:
    starts = [
        Start(None, {"predator_vel": np.array([k, 1.5], np.float32)}, "s", "ne", "f", f"s/{k}")
        for k in range(4)
    ]
    return TailStage("s", "ne", 0, starts, 30)


def brief(decisions: list[Decision]) -> list[Any]:
    return [
        (d.kind, d.name, d.slots, [s.brief() for s in d.value] if d.slots else d.value, d.cause)
        for d in decisions
    ]


@pytest.mark.parametrize("order", ["queue", "uncured_first"])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_ledger_that_was_saved_at_any_update_goes_on_the_same(order: Any, seed: int) -> None:
    draw = random.Random(seed)
    config = TailsConfig(
        share=0.6,
        depth=2,
        order=order,
        switch_ratio=0.4,
        repeat=True,
        mine=True,
        mine_max=3,
        mine_uses=4,
        warn_ratio=0.5,
        warn_patience=2,
    )

    def make() -> TailLedger:
        return TailLedger(config, [stage("a", count=20), snapshot_stage(), stage("c", count=6)])

    whole = make()
    world = begin(whole, 3)
    lines, states, history = [], [pack(whole.state_dict())], []
    for update in range(40):
        ending = [g for g in range(3) if draw.random() < 0.7]
        line = world.play(ending=ending, survival=draw.choice((0.3, 1.0, 1.0)))
        if update % 7 == 6:
            line["starts/mined"] = mined(*(f"m{draw.randrange(6)}" for _ in range(2)))
        lines.append(line)
        history.append((brief(world.apply(whole.step(line))), whole.status()))
        states.append(pack(whole.state_dict()))
    kinds = {entry[0] for decisions, _ in history for entry in decisions}
    assert kinds >= {"inject_starts", "advance_phase", "warn"}
    for cut in range(len(lines)):
        other = make()
        other.load_state_dict(unpack(states[cut]))
        assert pack(other.state_dict()) == states[cut]
        assert [(brief(other.step(line)), other.status()) for line in lines[cut:]] == history[cut:]


def test_a_ledger_needs_no_files_to_resume() -> None:
    ledger = TailLedger(TailsConfig(), [snapshot_stage()])
    other = TailLedger(TailsConfig())
    other.load_state_dict(unpack(pack(ledger.state_dict())))
    (decision,) = other.initial(Games(1).sizes())
    assert decision.value[0].snapshot["predator_vel"].tolist() == [0.0, 1.5]


def test_a_stage_of_thousands_of_starts_is_quick_to_use_and_to_save() -> None:
    ledger = TailLedger(TailsConfig(order="uncured_first"), [stage(starts=4096, updates=50)])
    world = begin(ledger, 128)
    for _ in range(5):
        world.turn(ledger)
    assert len(set(world.begun)) == 5 * 128
    assert len(ledger.state_dict()["records"]) == 6 * 128


@pytest.mark.parametrize(
    ("more", "state"), [({}, "open"), ({"clear": 1.0}, "cured"), ({"cut": True}, "open")]
)
def test_an_episode_that_reached_the_goal_is_a_success_however_near_it_began(
    more: dict[str, Any], state: str
) -> None:
    settings = TailsConfig(success_fact="ground", success_min=400, cured_after=1)
    ledger = TailLedger(settings, [stage(starts=1, count=9)])
    world = begin(ledger, 1)
    for _ in range(2):
        signals = world.play()
        signals["starts/ended"] = [{**e, "ground": 160.0, **more} for e in signals["starts/ended"]]
        world.apply(ledger.step(signals))
    assert ledger.book.about("a:0")["state"] == state
