from __future__ import annotations

import random
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.guards.guard import Guard
from holdfast.guards.schedules import BoostConfig, BoostSchedule, DensityConfig, DensitySchedule
from holdfast.records import pack, unpack
from holdfast.tables import build

V36 = (9, 10, 9, 8, 8, 8, 8)


def phase_signals(update: int, lengths: tuple[int, ...] = V36) -> dict[str, Any]:
    """The signals of a finished update (0: before the first)."""
    first = 1
    for index, length in enumerate(lengths, 1):
        if update < first + length or index == len(lengths):
            return {
                "update": update,
                "phase/index": index,
                "phase/count": len(lengths),
                "phase/first_update": first,
                "phase/last_update": first + length - 1,
            }
        first += length
    raise AssertionError


def values(guard: Guard, lengths: tuple[int, ...] = V36, **more: Any) -> list[float]:
    """Return the value in force during each update."""
    found = []
    now = guard.initial({**phase_signals(0, lengths), **more})[0].value
    for update in range(1, sum(lengths) + 1):
        found.append(now)
        for decision in guard.step({**phase_signals(update, lengths), **more}):
            now = decision.value
    return found


def runs(series: list[float]) -> list[tuple[int, int, float]]:
    """Return (first update, last update, value) of each stretch."""
    found: list[tuple[int, int, float]] = []
    for update, value in enumerate(series, 1):
        if found and found[-1][2] == value:
            found[-1] = (found[-1][0], update, value)
        else:
            found.append((update, update, value))
    return found


def test_the_density_penalty_follows_the_v36_sequence() -> None:
    guard = DensitySchedule(DensityConfig())
    series = values(guard, V36, **{"guard/gate/phase_limit": 4})
    assert runs(series) == [(1, 9, 0), (10, 19, 0.02), (20, 28, 0.04), (29, 60, 0.05)]


def test_without_a_gate_the_penalty_goes_on_to_the_ramps() -> None:
    series = values(DensitySchedule(DensityConfig()))
    assert series[36] == 0.055  # update 37, phase 5
    assert series[44] == 0.055
    assert series[51] == pytest.approx(0.06)
    assert series[45] == pytest.approx(0.055 + 0.005 / 7)
    assert series[52] == pytest.approx(0.06)
    assert series[59] == pytest.approx(0.065)


def test_a_plateau_keeps_the_value_before_the_ramp() -> None:
    config = DensityConfig(targets=(0.1, 0.5), ramp_phases=(2,), plateaus=(0, 2), lock_until=0)
    assert values(DensitySchedule(config), (2, 6)) == pytest.approx(
        [0.1, 0.1, 0.1, 0.1, 0.1, 0.1 + 0.4 / 3, 0.1 + 0.8 / 3, 0.5]
    )


def test_a_plateau_as_long_as_its_phase_never_ramps() -> None:
    config = DensityConfig(targets=(0.1, 0.5), ramp_phases=(2,), plateaus=(0, 3), lock_until=0)
    assert values(DensitySchedule(config), (1, 3)) == [0.1, 0.1, 0.1, 0.1]


def test_a_plateau_one_shorter_than_its_phase_jumps_at_the_end() -> None:
    config = DensityConfig(targets=(0.1, 0.5), ramp_phases=(2,), plateaus=(0, 2), lock_until=0)
    assert values(DensitySchedule(config), (1, 3)) == [0.1, 0.1, 0.1, 0.5]


def test_a_ramp_in_the_first_phase_starts_at_the_base() -> None:
    config = DensityConfig(targets=(0.4,), ramp_phases=(1,), plateaus=(), base=0.2, lock_until=0)
    assert values(DensitySchedule(config), (3,)) == pytest.approx([0.2, 0.3, 0.4])


def test_a_ramp_phase_of_one_update_is_at_its_target_at_once() -> None:
    config = DensityConfig(targets=(0.1, 0.5, 0.5), ramp_phases=(2,), plateaus=(), lock_until=0)
    guard = DensitySchedule(config)
    guard.initial(phase_signals(0, (2, 1, 2)))
    guard.step(phase_signals(1, (2, 1, 2)))
    (decision,) = guard.step({**phase_signals(2, (2, 1, 2)), "phase/next_last_update": 3})
    assert decision.value == 0.5


def test_a_gate_limit_on_a_ramp_phase_holds_its_end() -> None:
    config = DensityConfig(targets=(0.1, 0.5, 0.9), ramp_phases=(2,), plateaus=(), lock_until=0)
    series = values(DensitySchedule(config), (2, 3, 3), **{"guard/gate/phase_limit": 2})
    assert series == pytest.approx([0.1, 0.1, 0.1, 0.3, 0.5, 0.5, 0.5, 0.5])


def test_the_gate_moves_the_penalty_at_the_next_update() -> None:
    guard = DensitySchedule(DensityConfig(lock_until=0))
    values(guard, V36, **{"guard/gate/phase_limit": 4})
    signals = phase_signals(60)
    (up,) = guard.step({**signals, "guard/gate/phase_limit": 5})
    (down,) = guard.step({**signals, "guard/gate/phase_limit": 3})
    assert (up.name, up.value, down.value) == ("density_penalty", 0.055, 0.04)
    assert down.cause.threshold == 3
    assert "the gate allows 3" in down.message
    assert guard.step(signals) == []  # without a new status the last limit holds


def test_the_lock_caps_the_penalty_up_to_its_update() -> None:
    config = DensityConfig(targets=(0.1,), lock_value=0.04, lock_until=3)
    assert values(DensitySchedule(config), (5,)) == [0.04, 0.04, 0.04, 0.1, 0.1]


def test_a_lock_value_of_zero_means_no_lock() -> None:
    config = DensityConfig(targets=(0.1,), lock_value=0.0, lock_until=3)
    assert values(DensitySchedule(config), (5,)) == [0.1] * 5


def test_after_the_last_target_its_value_holds() -> None:
    config = DensityConfig(targets=(0.1, 0.2), ramp_phases=(3,), lock_until=0)
    assert values(DensitySchedule(config), (1, 1, 3)) == [0.1, 0.2, 0.2, 0.2, 0.2]


def test_a_schedule_decides_only_when_the_value_changes() -> None:
    guard = DensitySchedule(DensityConfig())
    assert len(guard.initial(phase_signals(0))) == 1
    changes = [u for u in range(1, 61) if guard.step(phase_signals(u))]
    assert changes[:4] == [9, 19, 28, 36]


V36_BOOST = [
    (1, 19, 0.75),
    (20, 28, 0.76),
    (29, 36, 0.78),
    (37, 60, 0.80),
]


@pytest.mark.parametrize("adaptive", [True, False])
def test_the_boost_follows_the_v36_sequence(adaptive: bool) -> None:
    density = DensitySchedule(DensityConfig())
    boost = BoostSchedule(BoostConfig(adaptive=adaptive))
    limit = {"guard/gate/phase_limit": 4, "guard/gate/stage": 0, "shoal/first_death_p10": 1.0}
    now = boost.initial(phase_signals(0))[0].value
    series = []
    for update in range(1, 61):
        series.append(now)
        signals = {**phase_signals(update), **limit}
        density.step(signals)
        signals["guard/density/value"] = density.status()["value"]
        for decision in boost.step(signals):
            assert (decision.kind, decision.name) == ("set_world", "escape_boost_speed")
            now = decision.value
    assert runs(series) == V36_BOOST


def test_without_the_penalty_cap_phase_five_gets_its_own_speed() -> None:
    config = BoostConfig(adaptive=False, penalty_caps="")
    assert runs(values(BoostSchedule(config)))[-1] == (37, 60, 0.82)


def test_a_cap_applies_from_its_penalty_on() -> None:
    config = BoostConfig(adaptive=False, phase_speeds="1:0.9", penalty_caps="0.05:0.8,0.1:0.7")
    found = [
        values(BoostSchedule(config), (1,), **{"world/density_penalty": penalty})[0]
        for penalty in (0.0, 0.0499, 0.05, 0.1)
    ]
    assert found == [0.9, 0.9, 0.8, 0.7]


def adapted(config: BoostConfig, series: list[float], **more: Any) -> float | None:
    guard = BoostSchedule(config)
    guard.initial(phase_signals(0, (50,)))
    for update, value in enumerate(series, 1):
        guard.step({**phase_signals(update, (50,)), config.signal: value, **more})
    return guard.value


WIDE: dict[str, Any] = {
    "phase_speeds": "1:0.9",
    "phase_floors": "1:0.5",
    "min_update": 1,
    "penalty_caps": "",
}


def test_early_first_deaths_lower_the_boost_and_late_ones_raise_it_to_the_high_speed() -> None:
    config = BoostConfig(**WIDE)
    assert adapted(config, [1, 1, 1]) == 0.9  # the window of four is not full
    assert adapted(config, [1, 1, 1, 1]) == 0.76
    assert adapted(config, [30] * 4) == 0.8
    assert adapted(config, [15] * 4) == 0.9
    assert adapted(config, [1, 1, 1, 1, 15, 15, 15, 15]) == 0.76  # in between nothing moves


def test_the_window_is_summed_up_by_median_or_mean() -> None:
    series = [1.0, 1.0, 1.0, 100.0]
    assert adapted(BoostConfig(**WIDE), series) == 0.76
    assert adapted(BoostConfig(**WIDE, statistic="mean"), series) == 0.8


def test_nothing_adapts_before_its_first_update() -> None:
    config = BoostConfig(**{**WIDE, "min_update": 6})
    assert adapted(config, [1] * 5) == 0.9
    assert adapted(config, [1] * 6) == 0.76


def test_floors_of_phase_and_gate_stage_win_over_the_adaptation() -> None:
    assert adapted(BoostConfig(**{**WIDE, "phase_floors": "1:0.85"}), [1] * 4) == 0.85
    config = BoostConfig(**WIDE, stage_floors="2:0.79")
    assert adapted(config, [1] * 4, **{"guard/gate/stage": 2}) == 0.79
    assert adapted(config, [1] * 4, **{"guard/gate/stage": 1}) == 0.76


def test_a_new_phase_begins_with_its_own_boost() -> None:
    config = BoostConfig(**{**WIDE, "phase_speeds": "1:0.9,2:0.95", "phase_floors": "1:0.5,2:0.5"})
    guard = BoostSchedule(config)
    guard.initial(phase_signals(0, (5, 5)))
    found = []
    for update in range(1, 8):
        guard.step({**phase_signals(update, (5, 5)), config.signal: 1.0})
        found.append(guard.value)
    assert found == [0.9, 0.9, 0.9, 0.76, 0.95, 0.76, 0.76]


def test_updates_without_a_death_leave_the_window_alone() -> None:
    guard = BoostSchedule(BoostConfig())
    guard.step({**phase_signals(1), "shoal/first_death_p10": -1.0})
    guard.step(phase_signals(2))
    assert list(guard.recent) == []


@pytest.mark.parametrize(
    "settings",
    [
        {"phase_speeds": "a:1"},
        {"penalty_caps": "a:1"},
        {"stage_floors": "1"},
        {"phase_floors": "1:-1"},
        {"phase_speeds": "3:76"},
        {"penalty_caps": "0.05:80"},
        {"lower": "20"},
    ],
)
def test_bad_boost_tables_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"guards\.boost: " + next(iter(settings))):
        build(BoostConfig, settings, "guards.boost")


@pytest.mark.parametrize("kind", ["density", "boost"])
def test_a_schedule_that_was_saved_at_any_update_goes_on_the_same(kind: str) -> None:
    draw = random.Random(3)
    lines = []
    for update in range(1, 61):
        line = phase_signals(update)
        line["guard/gate/phase_limit"] = draw.choice((3, 4, 5, 6, 7))
        line["guard/gate/stage"] = draw.randrange(3)
        line["guard/density/value"] = draw.choice((0.0, 0.04, 0.06))
        if draw.random() < 0.8:
            line["shoal/first_death_p10"] = draw.choice((1.0, 15.0, 30.0))
        lines.append(line)

    def make() -> Guard:
        if kind == "density":
            return DensitySchedule(DensityConfig())
        return BoostSchedule(BoostConfig(stage_floors="1:0.79", phase_floors=""))

    whole = make()
    whole.initial(phase_signals(0))
    states, history = [pack(whole.state_dict())], []
    for line in lines:
        history.append((whole.step(line), whole.status()))
        states.append(pack(whole.state_dict()))
    assert sum(bool(decisions) for decisions, _ in history) > 5
    for cut in range(len(lines)):
        other = make()
        other.load_state_dict(unpack(states[cut]))
        assert [(other.step(line), other.status()) for line in lines[cut:]] == history[cut:]
