from __future__ import annotations

import random
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.guards.balance import BalanceConfig, BalanceGuard
from holdfast.guards.collapse import CollapseConfig, CollapseGuard, DampenConfig, DampenGuard
from holdfast.guards.curriculum import CurriculumConfig
from holdfast.guards.guard import Guard
from holdfast.guards.health import NonFiniteConfig, NonFiniteGuard
from holdfast.records import Decision, pack, unpack


class Kept:
    """Pairs as the loop keeps them."""

    def __init__(self) -> None:
        self.pairs: list[dict[str, Any]] = []

    def take(self, update: int, decisions: list[Decision]) -> None:
        for decision in decisions:
            if decision.kind == "keep_pair":
                pair = {
                    "label": decision.name,
                    "update": update,
                    "milestone": False,
                    **decision.value,
                }
                self.pairs.append(pair)


def evaluated(guard: BalanceGuard, rates: list[float], width: float = 0.02) -> list[list[str]]:
    """Return who trains after each evaluation."""
    kept, found, training = Kept(), [], ["pursuer", "evader"]
    for update, rate in enumerate(rates, 1):
        decisions = guard.step(
            {
                "update": update,
                "probe/capture_rate": rate,
                "probe/capture_rate_low": rate - width,
                "probe/capture_rate_high": rate + width,
                "selfplay/pairs": kept.pairs,
            }
        )
        kept.take(update, decisions)
        for decision in decisions:
            if decision.kind == "train_roles":
                training = decision.value
            if decision.kind == "rollback":
                training = [*training, decision.name]
        found.append(training)
        training = [role for role in training if role in ("pursuer", "evader")]
    return found


def test_the_loser_trains_alone_until_the_interval_reaches_the_band() -> None:
    guard = BalanceGuard(BalanceConfig(low=0.4, high=0.6))
    both, evader, pursuer = ["pursuer", "evader"], ["evader"], ["pursuer"]
    assert evaluated(guard, [0.5, 0.61, 0.8, 0.7, 0.6, 0.2, 0.3, 0.41]) == [
        both, both, evader, evader, both, pursuer, pursuer, both,
    ]  # fmt: skip


def test_who_learns_alone_meets_past_opponents_too_until_both_learn_again() -> None:
    guard = BalanceGuard(BalanceConfig(low=0.4, high=0.6, past=0.5))
    mixed = []
    for update, rate in enumerate([0.5, 0.8, 0.7, 0.2, 0.5], 1):
        found = guard.step({"update": update, "probe/capture_rate": rate})
        mixed.append([(d.role, d.value) for d in found if d.kind == "mix"])
    assert mixed == [
        [],
        [("pursuer", 0.5)],
        [],
        [("pursuer", 0.0), ("evader", 0.5)],
        [("evader", 0.0)],
    ]
    again = BalanceGuard(guard.config)
    again.load_state_dict(guard.state_dict())
    assert again.mixed == {"pursuer": 0.0, "evader": 0.0}


def test_one_sided_training_has_a_budget() -> None:
    guard = BalanceGuard(BalanceConfig(budget=3, pause=2, max_rollbacks=0))
    found = evaluated(guard, [0.9] * 9)
    alone = [len(roles) == 1 for roles in found]
    assert alone == [True, True, True, False, False, False, True, True, True]


def test_a_collapse_goes_back_to_the_best_balanced_pair_and_never_behind_it() -> None:
    config = BalanceConfig(collapse_evaluations=2, max_rollbacks=2)
    guard = BalanceGuard(config)
    found = evaluated(guard, [0.3, 0.52, 0.7, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    assert found[4][-1] == "u2"
    assert guard.since == 2 and guard.rollbacks == 2


def test_levels_rise_when_the_sides_are_balanced() -> None:
    curriculum = CurriculumConfig(kind="smooth", rule="gap", gap_evaluations=2)
    guard = BalanceGuard(BalanceConfig(curriculum=curriculum))
    assert {d.name for d in guard.initial({}) if d.kind == "set_world"} >= {"max_init_distance"}
    evaluated(guard, [0.5, 0.5, 0.5, 0.5])
    assert guard.levels.place == 2


def test_a_collapse_does_not_go_back_to_a_pair_of_an_easier_level() -> None:
    curriculum = CurriculumConfig(kind="smooth", rule="gap", gap_evaluations=2)
    config = BalanceConfig(curriculum=curriculum, collapse_evaluations=2)
    found = evaluated(BalanceGuard(config), [0.5, 0.52, 1.0, 1.0])
    assert found[3][-1] == "u2", "u1 was better balanced, before the level rose"


def test_a_balance_guard_that_was_saved_at_any_evaluation_goes_on_the_same() -> None:
    draw = random.Random(3)
    curriculum = CurriculumConfig(kind="smooth", rule="gap", gap_evaluations=2)
    config = BalanceConfig(
        curriculum=curriculum, budget=2, pause=2, past=0.3, collapse_evaluations=2, max_rollbacks=3
    )
    whole, states, made, lines, kept = BalanceGuard(config), [], [], [], Kept()
    for update in range(1, 60):
        rate = draw.choice((0.48, 0.5, 0.5, 0.8, 0.9, 0.9, 1.0, 1.0))
        line = {"update": update, "probe/capture_rate": rate, "selfplay/pairs": list(kept.pairs)}
        states.append(pack(whole.state_dict()))
        made.append(whole.step(line))
        lines.append(line)
        kept.take(update, made[-1])
    assert {"rollback", "train_roles", "mix", "set_world"} <= {d.kind for ds in made for d in ds}
    for cut, state in enumerate(states):
        other = BalanceGuard(config)
        other.load_state_dict(unpack(state))
        assert [other.step(line) for line in lines[cut:]] == made[cut:]


def signals(update: int, kept: Kept, **more: Any) -> dict[str, Any]:
    return {
        "update": update,
        "env_steps": update * 100_000,
        "episode/count": 1000 * update,
        "selfplay/pairs": kept.pairs,
        **more,
    }


def test_a_dominated_side_takes_both_back_together_and_never_walks_backwards() -> None:
    guard = CollapseGuard(CollapseConfig(keep_every=1))
    kept = Kept()
    kept.take(0, guard.initial({}))
    for update in range(1, 6):
        kept.take(update, guard.step(signals(update, kept, **{"pursuit/captured": 0.5})))
    gone = []
    for update in range(6, 12):
        for decision in guard.step(signals(update, kept, **{"pursuit/captured": 0.99})):
            if decision.kind == "rollback":
                gone.append((decision.name, decision.role))
    # The third newest pair, for both sides; the following rollbacks find nothing older.
    assert gone[0] == ("u3", "")
    assert all(int(name[1:]) >= 3 for name, _ in gone)


def test_pairs_on_the_way_to_a_collapse_are_not_gone_back_to_later() -> None:
    guard = CollapseGuard(CollapseConfig(keep_every=1, wait_steps=0))
    kept, gone = Kept(), []
    kept.take(0, guard.initial({}))
    for update, captured in enumerate([0.5, 0.5, 0.9, 0.9, 0.95, 1.0, 0.5, 0.5, 1.0], 1):
        decisions = guard.step(signals(update, kept, **{"pursuit/captured": captured}))
        kept.take(update, decisions)
        gone += [d.name for d in decisions if d.kind == "rollback"]
        again = CollapseGuard(guard.config)
        again.load_state_dict(guard.state_dict())
        guard = again
    assert gone == ["u3", "u3"], "not u5, which was left by the first"


def test_there_is_a_pair_to_go_back_to_from_the_start() -> None:
    guard = CollapseGuard(CollapseConfig())
    kept = Kept()
    kept.take(0, guard.initial({}))
    [decision] = guard.step(signals(1, kept, **{"pursuit/captured": 1.0}))
    assert (decision.kind, decision.name) == ("rollback", "u0")


def test_low_entropy_is_a_collapse_of_that_side() -> None:
    guard = CollapseGuard(CollapseConfig(both=False))
    kept = Kept()
    kept.take(0, guard.initial({}))
    [decision] = guard.step(signals(1, kept, **{"train/evader/entropy_mean": -2.5}))
    assert (decision.kind, decision.role) == ("rollback", "evader")
    assert guard.status()["evader_entropy"] == "collapse"


def test_a_side_that_loses_every_evaluation_goes_back_to_the_best_balanced_pair() -> None:
    config = CollapseConfig(rate_below=0.1, evaluations=2, capture_high=1.0, capture_low=0.0)
    guard = CollapseGuard(config)
    kept = Kept()
    kept.pairs = [
        {"label": "a", "update": 1, "milestone": False, "score": 0.9},
        {"label": "b", "update": 2, "milestone": False, "score": 0.55},
    ]
    rate = {"probe/capture_rate": 0.97}
    assert all(d.kind == "keep_pair" for d in guard.step(signals(5, kept, **rate)))
    [decision] = guard.step(signals(6, kept, **rate))
    assert (decision.kind, decision.name) == ("rollback", "b")


def test_after_a_rollback_a_side_has_to_lose_as_many_evaluations_again() -> None:
    settings = {"rate_below": 0.1, "capture_low": 0.0, "capture_high": 1.0}
    config = CollapseConfig(evaluations=2, wait_steps=0, **settings)
    guard, kept, gone = CollapseGuard(config), Kept(), []
    kept.take(0, guard.initial({"update": 0}))
    for update in range(1, 8):
        decisions = guard.step(signals(update, kept, **{"probe/capture_rate": 0.99}))
        gone += [update for d in decisions if d.kind == "rollback"]
    assert gone == [2, 4, 6]


def test_a_pair_of_which_nothing_is_known_is_not_the_best_balanced() -> None:
    settings = {"rate_below": 0.1, "capture_low": 0.0, "capture_high": 1.0}
    config = CollapseConfig(keep_every=1, evaluations=1, wait_steps=0, **settings)
    guard, kept = CollapseGuard(config), Kept()
    kept.take(0, guard.initial({"update": 0}))
    guard.fresh_from = 950  # the captures are those of others
    kept.take(1, guard.step(signals(1, kept, **{"pursuit/captured": 0.5})))
    kept.take(2, guard.step(signals(2, kept, **{"probe/capture_rate": 0.8})))
    [decision] = guard.step(signals(3, kept, **{"probe/capture_rate": 1.0}))
    assert (decision.kind, decision.name) == ("rollback", "u2")
    kept.pairs[-1]["score"] = 0.99
    guard.floor = guard.left_until = -1
    [decision] = guard.step(signals(4, kept, **{"probe/capture_rate": 1.0}))
    assert decision.name == "u1", "what is known to have collapsed is no better"


def test_rollbacks_wait_and_have_a_limit() -> None:
    guard = CollapseGuard(CollapseConfig(keep_every=1, max_rollbacks=2, wait_steps=150_000))
    kept = Kept()
    kept.take(0, guard.initial({}))
    made = []
    for update in range(1, 12):
        decisions = guard.step(signals(update, kept, **{"pursuit/captured": 0.0}))
        made += [update for d in decisions if d.kind == "rollback"]
    assert made == [1, 3]


def test_the_learning_rate_falls_with_the_gap() -> None:
    guard = DampenGuard(DampenConfig(gap=0.3, least=0.1))
    [decision] = guard.step({"probe/capture_rate": 0.575})
    assert abs(decision.value - 0.5) < 1e-9
    [decision] = guard.step({"probe/capture_rate": 0.5})
    assert decision.value == 0.1
    [decision] = guard.step({"probe/capture_rate": 1.0})
    assert decision.value == 1.0
    assert guard.step({"probe/capture_rate": 0.9}) == []


def test_a_learning_rate_that_was_cut_stays_cut_while_it_is_dampened() -> None:
    guards: list[Guard] = [
        NonFiniteGuard(NonFiniteConfig()),
        DampenGuard(DampenConfig(gap=0.3, least=0.1)),
    ]

    def scale(before: float, **signals: Any) -> float:
        found = before
        for guard in guards:
            for decision in guard.step(signals):
                found = decision.value if decision.name == "lr_scale" else found
            name = f"guard/{guard.name}/"
            signals.update({name + key: value for key, value in guard.status().items()})
        return found

    small = scale(1.0, **{"probe/capture_rate": 0.5})
    cut = scale(small, **{"health/nonfinite": 1})
    later = scale(cut, **{"probe/capture_rate": 1.0})
    assert (small, cut, later) == (0.1, 0.05, 0.5)
    assert scale(later, **{"probe/capture_rate": 1.0}) == 0.5


def test_levels_by_gap_tell_once_that_there_are_too_few_games() -> None:
    smooth = CurriculumConfig(kind="smooth", rule="gap", gap_below=0.1)
    guard = BalanceGuard(BalanceConfig(curriculum=smooth))
    rate = {"probe/capture_rate": 0.5, "probe/episodes": 100}
    made = [d for update in (1, 2) for d in guard.step({"update": update, **rate})]
    assert [d.name for d in made if d.kind == "warn"] == ["levels"]


def test_a_collapse_in_training_goes_back_to_a_recent_pair_and_not_to_a_milestone() -> None:
    guard = CollapseGuard(CollapseConfig())
    kept = Kept()
    for update in range(1, 10):
        milestone = update % 3 == 0
        label = f"S{update}" if milestone else f"u{update}"
        kept.pairs.append({"label": label, "update": update, "milestone": milestone, "score": 0.5})
    [decision] = guard.step(signals(11, kept, **{"pursuit/captured": 1.0}))
    assert (decision.kind, decision.name) == ("rollback", "u5")


def kinds(guard: CollapseGuard, kept: Kept, update: int, ended: int, **more: Any) -> set[str]:
    found = guard.step(
        signals(update, kept, **{"pursuit/captured": 0.0, "episode/uncut_count": ended, **more})
    )
    return {decision.kind for decision in found}


def test_captures_of_a_script_are_no_collapse_and_do_not_stay_in_the_window() -> None:
    for script in ({"guard/protocol/phase": 0}, {"guard/protocol/warming": 1}):
        guard, kept = CollapseGuard(CollapseConfig()), Kept()
        kept.take(0, guard.initial({"update": 0, **script}))
        game = {"guard/protocol/phase": 1, "guard/protocol/warming": 0}
        assert kinds(guard, kept, 1, 300, **script) == set()
        # The protocol ends it at the update whose games the script still played.
        assert kinds(guard, kept, 2, 600, **game) == set()
        assert kinds(guard, kept, 3, 699, **game) == set()
        again = CollapseGuard(CollapseConfig())
        again.load_state_dict(guard.state_dict())
        for one in (guard, again):
            assert kinds(one, kept, 4, 700, **game) == {"rollback"}


def test_a_pursuer_that_loses_the_evaluations_of_a_cold_start_has_not_collapsed() -> None:
    settings = {"rate_below": 0.1, "capture_low": 0.0, "capture_high": 1.0}
    guard, kept = CollapseGuard(CollapseConfig(evaluations=2, **settings)), Kept()
    cold, lost = {"guard/protocol/phase": 0}, {"probe/capture_rate": 0.0}
    kept.take(0, guard.initial({"update": 0, **cold}))
    for update in (1, 2, 3):
        assert kinds(guard, kept, update, 0, **cold, **lost) == set()
    # The last evaluation of the cold start is made when the protocol has begun S1.
    game = {"guard/protocol/phase": 1}
    assert kinds(guard, kept, 4, 0, **game, **lost) == set()
    assert kinds(guard, kept, 6, 0, **game, **lost) == set()
    # That of a phase counts, though the protocol has begun a warm start after it.
    warm = {"guard/protocol/phase": 2, "guard/protocol/warming": 1}
    assert kinds(guard, kept, 7, 0, **warm, **lost) == {"rollback"}


def test_with_overlap_the_rollout_that_was_played_ahead_is_the_scripts_too() -> None:
    guard, kept = CollapseGuard(CollapseConfig()), Kept()
    kept.take(0, guard.initial({}))
    late = {"train/policy_lag": 1, "guard/protocol/phase": 1}
    assert kinds(guard, kept, 1, 90, **late, **{"guard/protocol/warming": 1}) == set()
    assert kinds(guard, kept, 2, 500, **late) == kinds(guard, kept, 3, 900, **late) == set()
    assert kinds(guard, kept, 4, 1000, **late) == {"rollback"}


def test_captures_of_those_who_were_taken_back_are_no_collapse_of_who_plays_now() -> None:
    guard, kept = CollapseGuard(CollapseConfig(wait_steps=0)), Kept()
    kept.take(0, guard.initial({}))
    assert kinds(guard, kept, 1, 300) == {"rollback"}
    assert kinds(guard, kept, 2, 399) == set()
    assert kinds(guard, kept, 3, 400) == {"rollback"}


def test_cut_episodes_do_not_fill_the_window() -> None:
    guard, kept = CollapseGuard(CollapseConfig()), Kept()
    kept.take(0, guard.initial({}))
    assert kinds(guard, kept, 1, 99) == set()
    assert kinds(guard, kept, 2, 100) == {"rollback"}


def test_a_state_of_before_there_were_fresh_windows_still_loads() -> None:
    guard = CollapseGuard(CollapseConfig())
    old = {
        k: guard.state_dict()[k] for k in ("rollbacks", "last_steps", "floor", "losing", "entropy")
    }
    guard.load_state_dict(old)
    assert (guard.fresh_from, guard.scripted_until, guard.told) == (0, -1, False)


def test_a_collapse_with_nothing_to_go_back_to_is_said_once() -> None:
    guard, kept = CollapseGuard(CollapseConfig(keep_every=1000)), Kept()
    made = [kinds(guard, kept, update, 200) for update in (1, 2, 3)]
    assert made == [{"warn"}, set(), set()]
    assert kinds(guard, kept, 4, 200, **{"pursuit/captured": 0.5}) == set()
    assert kinds(guard, kept, 5, 200) == {"warn"}, "another collapse"


@pytest.mark.parametrize(("learning", "sides"), [("evader", []), ("pursuer", ["pursuer"])])
def test_only_a_side_that_learns_can_collapse(learning: str, sides: list[str]) -> None:
    guard = CollapseGuard(CollapseConfig(both=False, wait_steps=0, rate_below=0.1, evaluations=1))
    pairs = [{"label": "u0", "update": 0, "milestone": False, "score": 0.5}]
    signals = {"selfplay/learning": [learning], "selfplay/pairs": pairs, "env_steps": 1}
    by_training = {"pursuit/captured": 0.0, "episode/count": 200}
    for update, found in enumerate((by_training, {"probe/capture_rate": 0.0}), 1):
        decisions = guard.step({**signals, **found, "update": update})
        assert [d.role for d in decisions if d.kind == "rollback"] == sides


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (BalanceConfig, {"low": 0.7, "high": 0.3}),
        (BalanceConfig, {"collapse_low": 0.9, "collapse_high": 0.1}),
        (CollapseConfig, {"capture_low": 0.9, "capture_high": 0.1}),
    ],
)
def test_bounds_the_wrong_way_round_are_refused(make: Any, settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=r"low = .* is above .*high = .*; swap them"):
        make(**settings)
