"""The penalty gate, rule by rule. Evaluations are written as (update, early deaths, p10, worst, step-one)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.guards.gate import GateConfig, PenaltyGate
from holdfast.records import Decision, pack, unpack
from holdfast.tables import build

FISH = 1152
PLAIN: dict[str, Any] = {
    "success_step_one": -1,
    "success_step_one_ratio": 0.0,
    "success_early_death": 0.1,
    "success_early_death_window": 1,
    "success_p10": 0.0,
    "success_p10_window": 1,
    "freeze": 0,
    "success_freeze": 0,
}
"""Success is early deaths <= 0.1 and nothing else; failure as in v36."""


def signals(
    update: int,
    early: float = 0.05,
    p10: float = 200.0,
    worst: float = 0.9,
    step_one: int = 0,
    kind: str = "",
    **more: Any,
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "update": update,
        "probe/ed100": early,
        "probe/p10": p10,
        "probe/min_final": worst,
        "probe/step_one_count": step_one,
        "probe/fish_samples": FISH,
    }
    if kind:
        found["guard/tails/stage_type"] = kind
    return {**found, **{f"probe/{key}": value for key, value in more.items()}}


def events(gate: PenaltyGate, *evaluations: dict[str, Any]) -> list[str]:
    return [gate.step(evaluation)[0].name for evaluation in evaluations]


def gate(**settings: Any) -> PenaltyGate:
    return PenaltyGate(GateConfig(**{**PLAIN, **settings}))


def test_the_v36_timeline_comes_out_of_the_v36_evaluations() -> None:
    # Spec 8.1 row "v36 full2"; step-one counts of the fourth run in spec 0.5. For update 60 the spec gives
    # only that it was a success (<= 18) on seeds with a minimum of 13: 15 stands for that range.
    figures = [
        (12, 0.104, 87, 0.771, 22),
        (24, 0.085, 142, 0.802, 23),
        (36, 0.100, 102, 0.729, 18),
        (48, 0.090, 116, 0.813, 31),
        (60, 0.082, 136, 0.771, 15),
    ]
    guard = PenaltyGate(GateConfig(), density_lock_until=28)
    decisions = [guard.step(signals(*figure))[0] for figure in figures]
    assert [
        (figure[0], decision.name) for figure, decision in zip(figures, decisions, strict=True)
    ] == [
        (12, "failure_hold"),
        (24, "locked"),
        (36, "success_progress"),
        (48, "noop"),
        (60, "success_progress"),
    ]
    assert [decision.value for decision in decisions] == [4] * 5
    first, second, _, fourth, fifth = (decision.cause for decision in decisions)
    assert (first.signal, first.value, first.threshold) == ("probe/p10", 87, 95)
    assert (second.signal, second.value, second.threshold) == ("update", 24, 28)
    assert (fourth.signal, fourth.value, fourth.threshold) == ("probe/step_one_count", 31, 18)
    assert (fifth.value, fifth.threshold) == (1, 2)
    status = guard.status()
    assert (status["stage"], status["phase_limit"], status["last_success"]) == (0, 4, 60)
    assert status["early_death_median"] == pytest.approx(0.086)
    assert status["p10_median"] == 126
    assert status["step_one_ratio"] == pytest.approx(15 / 1152)


def test_any_policy_fails_the_v36_count_on_the_seeds_of_update_48_but_not_on_avoidable_deaths() -> (
    None
):
    # 24 step-one deaths are the least that any policy can reach there
    best = signals(48, 0.02, 500, 0.94, 24, avoidable_step_one_count=0)
    assert events(
        PenaltyGate(GateConfig(success_early_death_window=1, success_p10_window=1)), best
    ) == ["noop"]
    fair = GateConfig(success_early_death_window=1, success_p10_window=1, step_one_avoidable=True)
    assert events(PenaltyGate(fair), best) == ["success_progress"]


def test_no_evaluation_means_no_decision() -> None:
    guard = gate()
    assert guard.step({"update": 3, "shoal/survival": 0.9}) == []
    assert guard.status()["event"] == ""
    assert guard.status()["phase_limit"] == 4


def test_two_successes_in_a_row_advance_and_the_last_stage_holds() -> None:
    guard = gate(allowance=(4, 5))
    assert events(guard, signals(10), signals(20), signals(30), signals(40), signals(50)) == [
        "success_progress",
        "advance",
        "success_progress",
        "success_progress",
        "success_progress",
    ]
    assert (guard.stage, guard.phase_limit, guard.success_streak) == (1, 5, 3)


def test_an_advance_is_an_advance_decision_and_everything_else_holds() -> None:
    guard = gate(required_successes=1, failure_tolerance=1)
    found = [guard.step(s)[0] for s in (signals(1), signals(2, p10=1.0), signals(3, early=0.5))]
    assert [(d.kind, d.name, d.value) for d in found] == [
        ("advance_phase", "advance", 5),
        ("hold_phase", "rollback", 4),
        ("hold_phase", "noop", 4),
    ]


def test_a_noop_between_successes_starts_the_streak_again() -> None:
    guard = gate()
    assert events(guard, signals(1), signals(2, early=0.2), signals(3), signals(4)) == [
        "success_progress",
        "noop",
        "success_progress",
        "advance",
    ]


def test_a_failure_between_successes_starts_the_streak_again() -> None:
    assert events(gate(), signals(1), signals(2, p10=50.0), signals(3), signals(4)) == [
        "success_progress",
        "failure_hold",
        "success_progress",
        "advance",
    ]


def test_the_allowance_is_sorted_and_each_phase_counts_once() -> None:
    guard = gate(allowance=(6, 4, 6), required_successes=1)
    assert guard.phase_limit == 4
    guard.step(signals(1))
    assert guard.phase_limit == 6


@pytest.mark.parametrize("settings", [{"allowance": ()}, {"required_successes": 0}])
def test_without_allowance_or_required_successes_there_is_no_limit(
    settings: dict[str, Any],
) -> None:
    guard = gate(**settings)
    assert guard.step(signals(1)) == []
    assert guard.status()["phase_limit"] == 0


def test_failures_roll_back_one_stage_once_they_exceed_the_tolerance() -> None:
    guard = gate(required_successes=1, failure_tolerance=2)
    bad: dict[str, Any] = {"p10": 50.0}
    assert events(guard, signals(1), signals(2), signals(3, **bad), signals(4, **bad)) == [
        "advance",
        "advance",
        "failure_hold",
        "rollback",
    ]
    assert (guard.stage, guard.failure_streak) == (1, 0)
    assert events(guard, signals(5, **bad), signals(6, **bad), signals(7, **bad)) == [
        "failure_hold",
        "rollback",
        "failure_hold",
    ]
    assert guard.stage == 0


def test_at_stage_zero_failures_only_hold() -> None:
    guard = gate()
    assert events(guard, *(signals(t, worst=0.4) for t in range(1, 5))) == ["failure_hold"] * 4
    assert guard.failure_streak == 4
    assert guard.light() == "red"


def test_a_good_evaluation_ends_the_failure_streak() -> None:
    guard = gate(required_successes=1, failure_tolerance=2)
    found = events(
        guard, signals(1), signals(2, p10=50.0), signals(3, early=0.5), signals(4, p10=50.0)
    )
    assert found == ["advance", "failure_hold", "noop", "failure_hold"]


def test_after_a_change_successes_before_the_end_of_the_freeze_do_not_count() -> None:
    guard = gate(required_successes=1, freeze=5)
    # advance at 10 freezes up to 15: 14 is frozen, 15 is not
    assert events(guard, signals(10), signals(14), signals(15)) == ["advance", "frozen", "advance"]
    guard = gate(freeze=5)
    assert events(guard, signals(10, p10=50.0), signals(14), signals(15)) == [
        "failure_hold",
        "frozen",
        "success_progress",
    ]


def test_a_success_freezes_for_its_own_shorter_time() -> None:
    guard = gate(required_successes=3, success_freeze=2)
    assert events(guard, signals(10), signals(11), signals(12), signals(14)) == [
        "success_progress",
        "frozen",
        "success_progress",
        "success_progress",
    ]
    assert guard.freeze_until == 16


def test_a_failure_during_a_freeze_is_still_a_failure() -> None:
    guard = gate(required_successes=1, freeze=50, failure_tolerance=1)
    assert events(guard, signals(10), signals(11, p10=50.0)) == ["advance", "rollback"]
    assert guard.freeze_until == 61


def test_the_lock_holds_up_to_and_including_its_update() -> None:
    guard = gate(lock_until=28)
    assert events(guard, signals(27), signals(28), signals(29)) == [
        "locked",
        "locked",
        "success_progress",
    ]


def test_the_lock_of_the_density_schedule_counts_when_the_gate_has_none() -> None:
    assert PenaltyGate(GateConfig(lock_until=-1), density_lock_until=28).lock_until == 28
    assert PenaltyGate(GateConfig(lock_until=10), density_lock_until=28).lock_until == 10


def test_with_window_two_one_evaluation_is_no_success_yet() -> None:
    guard = gate(success_early_death_window=2)
    assert events(guard, signals(1), signals(2)) == ["noop", "success_progress"]


def test_the_median_of_early_deaths_must_be_low_too() -> None:
    guard = gate(success_early_death_window=3)
    found = events(guard, *(signals(t, e) for t, e in ((1, 0.3), (2, 0.2), (3, 0.05), (4, 0.05))))
    # medians 0.2 at update 3 and 0.05 at update 4
    assert found == ["noop", "noop", "noop", "success_progress"]


def test_the_median_of_p10_must_be_high() -> None:
    guard = gate(success_p10=120, success_p10_window=2)
    found = events(guard, *(signals(t, p10=p) for t, p in ((1, 100.0), (2, 138.0), (3, 103.0))))
    assert found == ["noop", "noop", "success_progress"]  # medians: none, 119, 120.5


def test_with_window_one_the_evaluation_itself_counts() -> None:
    # in v40 the median of a window of one was never defined and nothing could pass
    guard = gate(
        success_early_death_window_by_type="ne:1",
        success_early_death_window=2,
        success_p10=100,
        success_p10_window_by_type="ne:1",
    )
    assert events(guard, signals(1, kind="ne"), signals(2, early=0.11, kind="ne")) == [
        "success_progress",
        "noop",
    ]


def test_the_step_one_count_and_ratio_are_limits_and_can_be_switched_off() -> None:
    assert events(gate(success_step_one=18), signals(1, step_one=18)) == ["success_progress"]
    assert events(gate(success_step_one=18), signals(1, step_one=19)) == ["noop"]
    assert events(gate(success_step_one=-1), signals(1, step_one=900)) == ["success_progress"]
    # 0.02 of 1152 fish are 23.04
    assert events(gate(success_step_one_ratio=0.02), signals(1, step_one=23)) == [
        "success_progress"
    ]
    assert events(gate(success_step_one_ratio=0.02), signals(1, step_one=24)) == ["noop"]


def test_avoidable_deaths_can_make_a_success_or_a_failure() -> None:
    strict = {"success_avoidable": 0.01, "failure_avoidable": 0.05}
    found = [
        events(gate(**strict), signals(1, avoidable_death_fraction=value))
        for value in (0.01, 0.011, 0.05, 0.051)
    ]
    assert found == [["success_progress"], ["noop"], ["noop"], ["failure_hold"]]


def test_a_criterion_that_was_not_measured_is_not_met() -> None:
    guard = gate(success_avoidable=0.01, failure_avoidable=0.05)
    (decision,) = guard.step(signals(1))
    assert decision.name == "noop"
    assert decision.cause.signal == "probe/avoidable_death_fraction"
    assert decision.cause.value is None
    assert events(gate(), signals(1, early=float("nan"))) == ["noop"]


Numbers = dict[str, Any]
OVERRIDES: list[tuple[str, Numbers, Numbers, str]] = [
    ("success_early_death", {}, {"early": 0.12}, "ne:0.13"),
    ("success_step_one", {"success_step_one": 5}, {"step_one": 30}, "ne:30"),
    ("success_step_one_ratio", {"success_step_one_ratio": 0.01}, {"step_one": 30}, "ne:0.03"),
    ("success_p10", {"success_p10": 300}, {"p10": 200.0}, "ne:150"),
    ("success_p10_window", {"success_p10": 100, "success_p10_window": 2}, {}, "ne:1"),
    ("success_early_death_window", {"success_early_death_window": 2}, {}, "ne:1"),
    (
        "success_avoidable",
        {"success_avoidable": 0.01},
        {"avoidable_death_fraction": 0.02},
        "ne:0.02",
    ),
    ("failure_p10", {"failure_p10": 300}, {"p10": 200.0}, "ne:100"),
    ("failure_min_final", {"failure_min_final": 0.95}, {"worst": 0.9}, "ne:0.9"),
    (
        "failure_avoidable",
        {"failure_avoidable": 0.01},
        {"avoidable_death_fraction": 0.02},
        "ne:0.02",
    ),
]


@pytest.mark.parametrize(("name", "settings", "measured", "override"), OVERRIDES)
def test_every_threshold_can_differ_by_stage_type(
    name: str, settings: dict[str, Any], measured: dict[str, Any], override: str
) -> None:
    changed = {**settings, f"{name}_by_type": override}
    in_type = events(gate(**changed), signals(1, kind="NE", **measured))
    elsewhere = events(gate(**changed), signals(1, kind="main", **measured))
    untyped = events(gate(**changed), signals(1, **measured))
    assert in_type == ["success_progress"]
    assert elsewhere == untyped
    assert untyped[0] in ("noop", "failure_hold")


def test_the_failure_tolerance_can_differ_by_stage_type() -> None:
    guard = gate(required_successes=1, failure_tolerance=3, failure_tolerance_by_type="ne:1")
    assert events(guard, signals(1), signals(2, p10=50.0, kind="main")) == [
        "advance",
        "failure_hold",
    ]
    assert events(guard, signals(3, p10=50.0, kind="ne")) == ["rollback"]
    assert guard.status()["failure_tolerance"] == 1


def test_medians_under_a_typed_stage_use_the_evaluations_under_that_type() -> None:
    guard = gate(success_early_death_window=2)
    found = events(
        guard,
        signals(1, early=0.3, kind="main"),
        signals(2, early=0.08, kind="ne"),
        signals(3, early=0.09, kind="ne"),
        signals(4, early=0.05, kind="main"),
    )
    # ne: one value, then the median 0.085; main: the median of 0.3 and 0.05
    assert found == ["noop", "noop", "success_progress", "noop"]
    assert guard.status()["early_death_median_type"] == pytest.approx(0.175)
    assert guard.status()["early_death_median"] == pytest.approx(0.07)
    together = gate(success_early_death_window=2, separate_windows=False)
    assert events(together, signals(1, kind="main"), signals(2, kind="ne"))[1] == "success_progress"


def test_the_p10_median_of_all_evaluations_stands_in_until_the_type_has_its_own() -> None:
    guard = gate(success_p10=150, success_p10_window=2)
    found = events(
        guard,
        signals(1, p10=200.0),
        signals(2, p10=200.0, kind="ne"),
        signals(3, p10=90.0 + 6, kind="ne"),
    )
    assert found == ["noop", "success_progress", "noop"]  # none, 200 of all, 148 of ne


def test_once_a_type_has_its_own_p10_median_other_evaluations_do_not_count() -> None:
    evaluations = [
        signals(1, p10=100.0, kind="ne"),
        signals(2, p10=300.0, kind="main"),
        signals(3, p10=190.0, kind="ne"),
    ]
    # 145 of ne, 245 of the last two
    assert events(gate(success_p10=150, success_p10_window=2), *evaluations)[2] == "noop"
    together = gate(success_p10=150, success_p10_window=2, separate_windows=False)
    assert events(together, *evaluations) == ["noop", "success_progress", "advance"]


@pytest.mark.parametrize("settings", [{}, {"success_early_death_window_by_type": "ne:6"}])
def test_a_window_is_full_after_as_many_evaluations_as_it_is_long(settings: dict[str, Any]) -> None:
    guard = gate(success_early_death_window=5, **settings)
    found = events(guard, *(signals(t, kind="ne") for t in range(1, 7)))
    length = 6 if settings else 5
    assert found.index("success_progress") == length - 1


def test_the_unknown_type_counts_as_none() -> None:
    guard = gate(success_early_death_by_type="unknown:0.9")
    assert events(guard, signals(1, early=0.5, kind="unknown")) == ["noop"]


@pytest.mark.parametrize(
    "settings",
    [
        {"success_early_death_by_type": "ne=0.1"},
        {"success_early_death_by_type": "ne:x"},
        {"success_early_death_by_type": "ne:0.1,ne:0.2"},
        {"failure_tolerance_by_type": "ne:0"},
        {"success_p10_window_by_type": "ne:1.5"},
    ],
)
def test_a_bad_override_names_its_setting(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"guards\.gate: " + next(iter(settings))):
        build(GateConfig, settings, "guards.gate")


def test_phases_count_from_one() -> None:
    with pytest.raises(ConfigError, match="allowance"):
        build(GateConfig, {"allowance": [0, 1]}, "guards.gate")
    with pytest.raises(ConfigError, match="allowance"):
        PenaltyGate(GateConfig(allowance=(0,)))


def random_evaluations(seed: int, count: int = 40) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    found: list[dict[str, Any]] = []
    for update in range(1, count + 1):
        if draw.random() < 0.3:
            found.append({"update": update})
            continue
        found.append(
            signals(
                update,
                draw.choice((0.04, 0.05, 0.09, 0.2)),
                draw.choice((60.0, 120.0, 500.0, 500.0)),
                draw.choice((0.3, 0.8, 0.8, 0.9, 0.9, 0.9)),
                draw.randrange(30),
                draw.choice(("", "ne", "main")),
            )
        )
    return found


@pytest.mark.parametrize("seed", range(5))
def test_a_gate_that_was_saved_at_any_update_goes_on_the_same(seed: int) -> None:
    config = GateConfig(
        freeze=1,
        success_freeze=2,
        required_successes=1,
        failure_tolerance_by_type="ne:1",
        success_early_death_window_by_type="ne:3",
        success_step_one=25,
        success_step_one_ratio=0.0,
    )
    lines = random_evaluations(seed)
    whole = PenaltyGate(config)
    history: list[tuple[list[Decision], dict[str, Any]]] = []
    states = [pack(whole.state_dict())]
    for line in lines:
        history.append((whole.step(line), whole.status()))
        states.append(pack(whole.state_dict()))
    assert len({d.name for decisions, _ in history for d in decisions}) >= 4
    for cut in range(len(lines)):
        other = PenaltyGate(config)
        other.load_state_dict(unpack(states[cut]))
        assert [(other.step(line), other.status()) for line in lines[cut:]] == history[cut:]
