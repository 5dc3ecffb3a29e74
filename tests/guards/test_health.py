from __future__ import annotations

from holdfast.guards.health import NonFiniteConfig, NonFiniteGuard, PlateauConfig, PlateauGuard


def test_a_nonfinite_update_is_rolled_back_and_the_learning_rate_is_cut() -> None:
    guard = NonFiniteGuard(NonFiniteConfig())
    assert guard.step({"health/nonfinite": 0}) == []
    rollback, cut = guard.step({"health/nonfinite": 5})
    assert (rollback.kind, rollback.name) == ("rollback", "last_good")
    assert (cut.kind, cut.name, cut.value) == ("set_learner", "lr_scale", 0.5)
    assert rollback.cause.value == 5 and rollback.cause.threshold == 0


def test_three_nonfinite_updates_in_a_row_stop_the_run() -> None:
    guard = NonFiniteGuard(NonFiniteConfig())
    kinds = [[d.kind for d in guard.step({"health/nonfinite": n})] for n in (1, 1, 0, 1, 1, 1)]
    assert [("stop" in k) for k in kinds] == [False, False, False, False, False, True]


def test_the_cut_stays_after_good_updates_and_survives_a_restart() -> None:
    guard = NonFiniteGuard(NonFiniteConfig())
    guard.step({"health/nonfinite": 1})
    guard.step({"health/nonfinite": 0})
    other = NonFiniteGuard(NonFiniteConfig())
    other.load_state_dict(guard.state_dict())
    assert other.step({"health/nonfinite": 1})[1].value == 0.25


def test_a_plateau_is_warned_of_once_and_cleared_when_progress_returns() -> None:
    guard = PlateauGuard(PlateauConfig(signal="x", window=2, patience=3))
    values = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 5.0, 5.0]
    kinds = [[d.kind for d in guard.step({"x": v})] for v in values]
    assert kinds == [[], [], [], [], ["warn"], [], [], ["clear"], []]


def test_a_gain_smaller_than_the_least_gain_is_no_progress() -> None:
    creeping = [100.0 + 0.25 * k for k in range(8)]
    kinds = []
    for least in (0.01, 0.001):
        guard = PlateauGuard(PlateauConfig(signal="x", window=2, patience=3, min_gain=least))
        kinds.append([d.kind for v in creeping for d in guard.step({"x": v})])
    # 1 % of 100.125 is reached after 4 steps of 0.25 and not before; 0.1 % with each.
    assert kinds == [["warn", "clear"], []]


def test_a_plateau_in_a_falling_signal_counts_when_lower_is_better() -> None:
    config = PlateauConfig(signal="x", window=2, patience=2, higher_is_better=False)
    guard = PlateauGuard(config)
    decisions = [d for v in (5.0, 4.0, 3.0, 3.0, 3.0, 3.0) for d in guard.step({"x": v})]
    assert [d.kind for d in decisions] == ["warn"]
    assert decisions[0].cause.value == 3.0


def test_a_missing_signal_changes_nothing() -> None:
    guard = PlateauGuard(PlateauConfig(signal="x", window=2, patience=1))
    assert guard.step({}) == [] and guard.step({"x": None}) == []
    assert guard.state_dict()["recent"] == []


def test_a_plateau_guard_continues_from_its_state() -> None:
    config = PlateauConfig(signal="x", window=3, patience=4)
    whole, first = PlateauGuard(config), PlateauGuard(config)
    values = [0.1 * (i % 5) for i in range(20)]
    for v in values[:9]:
        whole.step({"x": v})
        first.step({"x": v})
    second = PlateauGuard(config)
    second.load_state_dict(first.state_dict())
    for v in values[9:]:
        assert [d.kind for d in whole.step({"x": v})] == [d.kind for d in second.step({"x": v})]
