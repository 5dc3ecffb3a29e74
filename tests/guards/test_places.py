"""Deaths by place: counted, forgotten, and turned into starts that the tail ledger replays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from holdfast.guards.supply import DeathPlaces, MinedStage, Record
from holdfast.guards.tails import TailLedger, TailsConfig
from holdfast.records import Decision, Episode, Start


def died(place: str, mark: float = 0.0, start: Start | None = None) -> Episode:
    before = Start(snapshot={"ram": np.full(3, mark, np.float32)}, type="tail", id=place)
    return Episode(0, start or Start(seed=1), 90, np.zeros(1), "death_pit", {}, {"before": before})


def cleared() -> Episode:
    return Episode(0, Start(seed=1), 90, np.zeros(1), "clear", {}, {"before": None})


def ids(signals: dict[str, Any]) -> list[str]:
    return [start.id for start in signals["starts/mined"]]


def test_a_place_is_offered_once_it_keeps_happening_there() -> None:
    places = DeathPlaces(at_least=2)
    first = places.take(1, [died("a"), died("b"), cleared()])
    assert ids(first) == [] and first["places/deaths"] == 2
    second = places.take(1, [died("b")])
    assert ids(second) == ["b"]
    assert (second["places/worst"], second["places/worst_share"]) == ("b", 2 / 3)
    assert ids(places.take(1, [cleared()])) == [], "nobody died there now"


def test_only_the_worst_places_are_offered_and_the_worst_comes_first() -> None:
    places = DeathPlaces(most=2, at_least=1)
    places.take(1, [died("c")] * 3 + [died("a")] * 5 + [died("b")] * 4)
    assert places.worst() == ["a", "b"]
    assert ids(places.take(1, [died("c"), died("b"), died("a")])) == ["a", "b"]
    assert [row["deaths"] for row in places.histogram()] == [6, 5, 4]


def test_old_deaths_weigh_less_and_are_forgotten() -> None:
    places = DeathPlaces(half_life=10, at_least=2)
    places.take(1, [died("old")] * 8)
    assert places.take(11, [])["places/known"] == 1
    assert places.histogram()[0]["weight"] == 4.0 and places.worst() == ["old"]
    places.take(31, [died("new")] * 2)
    assert places.worst() == ["new"]
    assert places.take(131, []) == {}


def test_replays_do_not_count_as_deaths_of_the_policy() -> None:
    places = DeathPlaces(at_least=1)
    again = Start(snapshot={"ram": np.zeros(3)}, id="a", type="tail")
    signals = places.take(1, [died("a", start=again)] * 5)
    assert ids(signals) == [] and signals["places/deaths"] == 0


def test_deaths_that_a_script_caused_are_not_the_policys() -> None:
    places = DeathPlaces(at_least=1)
    scripted = replace(died("a"), facts={"scripted": 12.0})
    signals = places.take(1, [scripted, replace(died("b"), facts={"scripted": 0.0})])
    assert ids(signals) == ["b"] and signals["places/deaths"] == 1


def test_it_goes_on_from_its_state() -> None:
    one, two = DeathPlaces(), DeathPlaces()
    one.take(3, [died("a")] * 2 + [died("b/c")] * 4)
    two.load_state_dict(one.state_dict())
    assert one.take(9, []) == two.take(9, []) and one.histogram() == two.histogram()


def test_a_place_that_is_mined_again_keeps_its_newest_snapshot() -> None:
    stage, records = MinedStage("mined", "tail", 0, 0, []), dict[str, Record]()
    older, newer = died("a", 1.0).detail["before"], died("a", 2.0).detail["before"]
    assert stage.add([older], records, 8) and stage.add([newer], records, 8)
    (start,) = stage.starts
    assert start.snapshot is not None and start.snapshot["ram"][0] == 2.0
    assert not stage.add([], records, 8)
    seed = {"seed": 5, "id": "seed-5"}
    assert stage.add([seed], records, 8) and not stage.add([seed], records, 8)


def test_the_ledger_replays_a_few_seconds_before_the_place_where_mario_dies() -> None:
    """The real world: holding RIGHT dies at the first goomba; the next episodes begin before it."""
    from holdfast.progress import start_signals
    from holdfast.worlds.mario import MarioOptions, MarioWorld

    options = MarioOptions(games=4, observation="tiles", noops=0, trail=4, trail_every=8)
    world = MarioWorld(options, seed=1)
    ledger = TailLedger(
        TailsConfig(enabled=True, mine=True, success_fact="ground", success_min=400)
    )
    places = DeathPlaces()
    right = np.full(4, world.action_names.index("RIGHT"))
    began: list[tuple[str, int]] = []
    for update in range(1, 4):
        ended: list[Episode] = []
        for _ in range(48):
            found = world.step(right)[4].get("episodes", [])
            ended += found
            now = world.current_starts()
            began += [(now[e.game].id, int(world.records()["x"][e.game])) for e in found]
        signals = {
            "update": update,
            "world/games": 4,
            "world/slots_per_game": 1,
            **start_signals(world, ended),
            **places.take(update, ended),
        }
        for decision in ledger.step(signals):
            assert decision.kind == "inject_starts"
            world.queue_starts(decision.slots, decision.value)
    replays = {(place, x) for place, x in began if place}
    assert replays and all(place.startswith("1-1:37:") for place, _ in replays)
    assert all(150 < x < 290 for _, x in replays), "before the goomba, after the beginning"
    place = next(iter(replays))[0]
    assert ledger.about(place)["failures"] >= 4 and ledger.status()["mined_consumed"] >= 4


def test_places_of_stages_that_are_no_longer_played_are_forgotten() -> None:
    places = DeathPlaces(at_least=2)
    places.take(1, [died("1-1:37:64")] * 9, ["1-1"])
    signals = places.take(2, [died("1-2:5:32")] * 2, ["1-2"])
    assert ids(signals) == ["1-2:5:32"] and signals["places/known"] == 1


def test_mined_starts_wait_while_their_stage_is_not_played() -> None:
    ledger = TailLedger(TailsConfig(enabled=True, mine=True))
    mined = [Start(snapshot={"ram": np.zeros(3)}, label=s, id=f"{s}:1:2") for s in ("1-1", "1-2")]
    signals = {"world/games": 4, "world/slots_per_game": 1, "update": 1}

    def labels(decisions: list[Decision]) -> set[str]:
        return {start.label for d in decisions for start in d.value}

    assert labels(ledger.step({**signals, "starts/mined": mined})) == {"1-1", "1-2"}
    assert labels(ledger.requeue({**signals, "starts/labels": ["1-2"]})) == {"1-2"}
    assert ledger.requeue({**signals, "starts/labels": ["2-1"]}) == []
    assert labels(ledger.requeue({**signals, "starts/labels": ["1-1", "2-1"]})) == {"1-1"}
