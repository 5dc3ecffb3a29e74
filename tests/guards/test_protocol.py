from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.guards.curriculum import CurriculumConfig
from holdfast.guards.freeze import FreezeConfig
from holdfast.guards.protocol import Protocol, ProtocolConfig
from holdfast.probes.stats import wilson
from holdfast.records import Decision
from holdfast.selfplay.verdict import games_needed

STEPS = 100


class Play:
    """A run as the protocol sees it: every update the training side learns from 100 steps."""

    def __init__(self, rates: list[float] | float, games: int = 0, **settings: Any) -> None:
        self.guard = Protocol(ProtocolConfig(enabled=True, **settings))
        self.rates, self.games = rates, games
        self.steps = {"pursuer": 0, "evader": 0}
        self.update = 0
        self.evaluations = 0
        self.probe_at = 0
        self.training = ["?"]
        self.history: list[str] = []
        self.pairs: list[dict[str, Any]] = []
        self.made: list[tuple[int, Decision]] = []
        self.take(self.guard.initial({"update": 0, "rollout/steps": STEPS}))

    def take(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            self.made.append((self.update, decision))
            if decision.kind == "train_roles":
                self.training = decision.value
            elif decision.kind == "probe":
                self.probe_at = self.update + 1
            elif decision.kind == "keep_pair":
                facts = {"milestone": False, "score": 0.0, **decision.value}
                self.pairs.append({"label": decision.name, "update": self.update, **facts})

    def run(self, updates: int, every: int = 0) -> Play:
        for _ in range(updates):
            self.update += 1
            for role in self.training:
                self.steps[role] += STEPS
            self.history.append(self.training[0][0])
            signals: dict[str, Any] = {
                "update": self.update,
                "env_steps": sum(self.steps.values()),
                "phase/last_update": 3,
                "selfplay/pairs": self.pairs,
                **{f"selfplay/{role}_steps": n for role, n in self.steps.items()},
                "rollout/steps": STEPS,
            }
            if self.update == self.probe_at or (every and self.update % every == 0):
                rate = self.rates
                if isinstance(rate, list):
                    rate = rate[min(self.evaluations, len(rate) - 1)]
                signals["probe/capture_rate"] = rate
                if self.games:
                    low, high = wilson(round(rate * self.games), self.games)
                    signals["probe/capture_rate_low"] = low
                    signals["probe/capture_rate_high"] = high
                    signals["probe/episodes"] = self.games
                self.evaluations += 1
            self.take(self.guard.step(signals))
        return self

    def kinds(self, kind: str) -> list[tuple[int, Decision]]:
        return [(update, d) for update, d in self.made if d.kind == kind]


def test_sides_take_turns_and_every_phase_ends_with_an_evaluation() -> None:
    play = Play(0.5, phase_steps=300, warmup=(100, 100, 200, 200)).run(12)
    assert "".join(play.history) == "pe" + "pp" + "ee" + "ppp" + "eee"
    assert play.evaluations == 6
    assert [d.name for _, d in play.kinds("keep_pair")][:3] == [
        "S1:pursuer",
        "S2:evader",
        "S3:pursuer",
    ]


def test_the_evader_first_after_an_advance_does_not_disturb_the_turns() -> None:
    smooth = CurriculumConfig(kind="smooth")
    rates = [0.5, 0.9, 0.5, 0.5, 0.5, 0.5]
    play = Play(rates, phase_steps=100, evader_first=True, curriculum=smooth).run(7)
    # S1 p, S2 e (advance), one owed phase of the evader, then p e p e as if nothing had happened.
    assert "".join(play.history) == "pe" + "e" + "pepe"
    # After an advance in a phase of the pursuer the evader's turn comes anyway.
    rates = [0.9, 0.5, 0.5, 0.5, 0.5, 0.5]
    play = Play(rates, phase_steps=100, evader_first=True, curriculum=smooth).run(6)
    assert "".join(play.history) == "pepepe"
    assert play.guard.owed == 0


def test_a_boost_of_the_evader_pays_what_it_is_owed() -> None:
    smooth = CurriculumConfig(kind="smooth", capture_above=0.7)
    boost = {"boost_gap": 0.3, "boost_phases": 2}
    settings = {"phase_steps": 100, "evader_first": True, "curriculum": smooth, **boost}
    assert "".join(Play([0.9, 0.5], **settings).run(5).history) == "p" + "ee" + "ep"


def test_the_evader_trains_longer_among_obstacles() -> None:
    play = Play(0.5, phase_steps=100, evader_factor=2.0)
    play.run(2)
    assert "".join(play.history) == "pe"
    guard = Protocol(ProtocolConfig(phase_steps=100, evader_factor=2.0))
    guard.role = "evader"
    assert guard._length({"world/n_obstacles": 3.0}) == 200
    assert guard._length({"world/n_obstacles": 0.0, "world/n_obstacles_max": -1.0}) == 100
    assert guard._length({"world/n_obstacles": 0.0, "world/n_obstacles_max": 2.0}) == 200


def test_micro_phases_change_every_update_in_the_pattern_of_the_ratio() -> None:
    assert "".join(Play(0.5, phase_steps=0).run(6, every=3).history) == "pepepe"
    assert "".join(Play(0.5, phase_steps=0, ratio=2).run(6, every=3).history) == "ppeppe"


def test_the_loser_trains_while_the_boost_lasts() -> None:
    play = Play([1.0, 0.5], phase_steps=0, boost_gap=0.3, boost_phases=3).run(8, every=2)
    assert "".join(play.history) == "pe" + "eee" + "pep"


def test_the_run_ends_when_the_gap_stays_small_at_the_full_level() -> None:
    play = Play(0.5, phase_steps=100, converged_gap=0.1, converged_evaluations=2).run(2)
    ends = play.kinds("finish")
    assert [(update, d.name) for update, d in ends] == [(2, "converged")]
    smooth = CurriculumConfig(kind="smooth")
    play = Play(0.5, phase_steps=100, converged_gap=0.1, curriculum=smooth).run(4)
    assert play.kinds("finish") == []


def test_convergence_is_judged_by_the_interval_and_too_few_games_are_told_once() -> None:
    rules = {"phase_steps": 100, "converged_gap": 0.1, "converged_evaluations": 2}
    few = Play(0.5, games=100, **rules).run(4)
    assert few.kinds("finish") == []
    warned = few.kinds("warn")
    assert [d.cause.threshold for _, d in warned] == [games_needed(0.1)]
    assert "--probe.episodes 381" in warned[0][1].message
    assert next(u for u, _ in Play(0.5, games=400, **rules).run(4).kinds("finish")) == 2
    by_point = Play(0.5, games=100, converged_by="point", **rules).run(4)
    assert next(u for u, _ in by_point.kinds("finish")) == 2
    assert by_point.kinds("warn") == []


def test_levels_by_gap_tell_once_that_there_are_too_few_games() -> None:
    smooth = CurriculumConfig(kind="smooth", rule="gap", gap_below=0.15)
    play = Play(0.5, games=100, phase_steps=100, curriculum=smooth).run(4)
    [(update, warned)] = play.kinds("warn")
    assert (update, warned.name, warned.cause.threshold) == (1, "levels", games_needed(0.15))
    assert play.guard.levels.place == 0
    assert Play(0.5, games=400, phase_steps=100, curriculum=smooth).run(4).kinds("warn") == []


def test_the_run_ends_after_the_last_phase() -> None:
    assert Play(0.9, phase_steps=100, max_phases=3).run(3).kinds("finish")[0][0] == 3


def test_the_last_phase_keeps_its_milestone_and_leaves_the_pair_as_it_was_evaluated() -> None:
    smooth = CurriculumConfig(kind="smooth", capture_above=0.7)
    settings = {"warm_start_steps": 50, "curriculum": smooth, "evader_first": True}
    play = Play([0.3, 0.9], phase_steps=100, max_phases=2, **settings).run(2)
    last = [d for update, d in play.made if update == 2]
    assert [(d.kind, d.name) for d in last] == [("keep_pair", "S2:evader"), ("finish", "phases")]
    assert play.guard.levels.place == 0 and play.guard.status()["gap"] == 0.8


def test_a_run_that_converges_in_its_last_phase_says_so() -> None:
    play = Play(0.5, phase_steps=100, max_phases=2, converged_gap=0.1, converged_evaluations=2)
    assert [d.name for _, d in play.run(2).kinds("finish")] == ["converged"]


def test_the_values_of_a_level_are_told_by_name() -> None:
    smooth = CurriculumConfig(kind="smooth")
    play = Play([0.9, 0.5], phase_steps=100, curriculum=smooth).run(1)
    told = [d.message for update, d in play.kinds("set_world") if update == 1]
    assert "level 2 of 21: max_init_distance 5.5" in told and len(set(told)) == len(told)


def test_an_advance_holds_the_evader_and_warms_it_up_from_its_best_milestone() -> None:
    smooth = CurriculumConfig(kind="smooth", capture_above=0.7)
    rates = [0.3, 0.6, 0.9, 0.5]
    play = Play(
        rates, phase_steps=100, protect=1000.0, warm_start_steps=200, curriculum=smooth
    ).run(6)
    protect = play.kinds("protect")
    assert [(u, d.role, d.value["weight"]) for u, d in protect] == [(3, "evader", 1000.0)]
    [(update, back)] = play.kinds("rollback")
    # By score, not by name: the evader was best when the pursuer caught least.
    assert (update, back.name, back.role) == (3, "S1:pursuer", "evader")
    assert [(u, d.name) for u, d in play.kinds("stand_in")] == [(3, "random"), (5, "")]
    assert "".join(play.history[3:5]) == "ee"
    assert play.guard.status()["warming"] == 0


def test_old_distances_stay_in_a_share_of_the_games() -> None:
    smooth = CurriculumConfig(kind="smooth")
    play = Play([0.9, 0.5], phase_steps=100, mixed_share=0.2, curriculum=smooth).run(1)
    values = {d.name: d.value for _, d in play.kinds("set_world")}
    assert values["mixed_share"] == 0.2
    assert (values["max_init_distance"], values["mixed_max_init_distance"]) == (5.5, 5.0)


def test_the_level_before_keeps_both_of_its_distances() -> None:
    discrete = CurriculumConfig(kind="discrete")
    play = Play([0.9, 0.5], phase_steps=100, mixed_share=0.2, curriculum=discrete).run(1)
    values = {d.name: d.value for _, d in play.kinds("set_world")}
    assert (values["min_init_distance"], values["max_init_distance"]) == (5.0, 15.0)
    assert (values["mixed_min_init_distance"], values["mixed_max_init_distance"]) == (2.0, 5.0)


def test_the_cold_start_trains_the_evader_until_the_first_phase_of_the_plan_is_over() -> None:
    play = Play(0.5, phase_steps=200, cold_start=True).run(7)
    assert "".join(play.history) == "eee" + "pp" + "ee"
    assert play.pairs[0]["label"] == "S0:evader"


def test_the_cold_start_ends_with_an_evaluation_and_its_milestone_has_that_score() -> None:
    play = Play([0.06, 0.5], phase_steps=200, cold_start=True).run(3)
    assert [update for update, _ in play.kinds("probe")] == [2]
    assert (play.evaluations, play.pairs[0]["score"]) == (1, 0.06)


def test_a_cold_start_that_the_end_of_the_run_had_cut_goes_on_in_a_longer_one() -> None:
    play = Play(0.5, phase_steps=200, cold_start=True).run(3)
    assert play.training == ["pursuer"]
    place = {"update": 3, "phase/index": 1, "rollout/steps": STEPS}
    play.take(play.guard.replan({**place, "phase/last_update": 3}))
    assert play.training == ["pursuer"]
    play.take(play.guard.replan({**place, "phase/last_update": 4}))
    assert play.training == ["evader"] and play.probe_at == 4 and play.guard.status()["phase"] == 0
    assert play.guard.replan({**place, "phase/last_update": 4}) == []


def test_a_cold_start_of_one_update_is_evaluated_too() -> None:
    guard = Protocol(ProtocolConfig(cold_start=True))
    first = guard.initial({"update": 0, "phase/last_update": 1})
    assert [d.kind for d in first] == ["train_roles", "probe"]


def test_a_warm_start_goes_back_to_the_milestone_with_the_best_measured_score() -> None:
    smooth = CurriculumConfig(kind="smooth", capture_above=0.7)
    settings = {"phase_steps": 100, "cold_start": True, "warm_start_steps": 100}
    # The cold start, S1, S2 and S3: the evader was best after S1.
    play = Play([0.5, 0.3, 0.6, 0.9], curriculum=smooth, **settings).run(6)
    assert [(u, d.name) for u, d in play.kinds("rollback")] == [(6, "S1:pursuer")]


def test_an_evader_that_is_at_its_best_is_warmed_up_as_it_is() -> None:
    smooth = CurriculumConfig(kind="smooth", rule="gap", gap_evaluations=1)
    play = Play([0.9, 0.5], phase_steps=100, warm_start_steps=100, curriculum=smooth).run(3)
    assert play.kinds("rollback") == [] and len(play.kinds("stand_in")) == 2


def test_a_milestone_is_kept_before_a_warm_start_changes_the_evader() -> None:
    smooth = CurriculumConfig(kind="smooth", capture_above=0.7)
    play = Play([0.3, 0.9], phase_steps=100, warm_start_steps=100, curriculum=smooth).run(2)
    made = [d.kind for update, d in play.made if update == 2]
    assert made.index("keep_pair") < made.index("rollback")


def test_the_frozen_side_changes_when_the_other_wins() -> None:
    freeze = FreezeConfig(role="evader", threshold=0.6, evaluations=2)
    play = Play([0.7, 0.7, 0.3, 0.3], phase_steps=0, freeze=freeze).run(6, every=1)
    assert "".join(play.history) == "pp" + "ee" + "pp"


def test_a_frozen_side_can_be_forced_to_train() -> None:
    freeze = FreezeConfig(role="evader", force_first_steps=200, force_steps=300)
    play = Play(0.1, phase_steps=0, freeze=freeze).run(8, every=1)
    assert "".join(play.history[:2]) == "pp"
    assert play.history[2] == "e"


def test_a_forced_switch_tells_its_limit_and_the_evaluation_is_judged_first() -> None:
    freeze = FreezeConfig(role="evader", force_first_steps=200, threshold=1.0)
    smooth = CurriculumConfig(kind="smooth", capture_above=0.7)
    play = Play(0.9, phase_steps=0, freeze=freeze, curriculum=smooth).run(3, every=2)
    assert "".join(play.history) == "ppe"
    assert play.guard.levels.place == 1
    [cause] = [d.cause for u, d in play.kinds("train_roles") if u == 2]
    assert (cause.value, cause.threshold) == (200, 200)


def test_a_switch_by_winning_is_not_undone_by_a_forced_one_at_the_same_update() -> None:
    freeze = FreezeConfig(role="evader", force_steps=200, threshold=0.6)
    assert "".join(Play(0.9, phase_steps=0, freeze=freeze).run(4, every=2).history) == "ppee"


def test_a_freeze_ends_at_its_step_with_and_without_switching() -> None:
    for switch in (True, False):
        freeze = FreezeConfig(role="evader", switch=switch, threshold=1.0, until_steps=300)
        play = Play(0.5, phase_steps=0, freeze=freeze).run(7, every=1)
        assert "".join(play.history) == "ppp" + "epep"
        assert [d.message for _, d in play.kinds("warn")] == [
            "no side is frozen any more: they take turns"
        ]


def test_a_frozen_role_stays_frozen_without_switching() -> None:
    freeze = FreezeConfig(role="pursuer", switch=False)
    assert set(Play(0.0, phase_steps=0, freeze=freeze).run(6, every=1).history) == {"e"}


def test_the_thresholds_of_freezing_follow_their_schedule() -> None:
    freeze = FreezeConfig(role="evader", threshold=0.9, schedule="0:0.9,300:0.5")
    play = Play(0.6, phase_steps=0, freeze=freeze).run(6, every=1)
    assert "".join(play.history) == "ppp" + "eee"


@pytest.mark.parametrize("schedule", ["0:60", "-5:0.6", "2e6:0.7", "0.6"])
def test_a_schedule_of_thresholds_that_could_not_hold_is_refused(schedule: str) -> None:
    with pytest.raises(ConfigError, match="a threshold from 0 to 1"):
        Protocol(ProtocolConfig(freeze=FreezeConfig(schedule=schedule)))


def test_the_protocol_goes_on_from_a_checkpoint_as_if_nothing_had_happened() -> None:
    smooth = CurriculumConfig(kind="smooth")
    settings: dict[str, Any] = {"phase_steps": 200, "evader_first": True, "curriculum": smooth}
    rates = [0.9, 0.4, 0.8, 0.9, 0.3, 0.5, 0.9]
    whole = Play(rates, **settings).run(14)
    half = Play(rates, **settings).run(7)
    saved = half.guard.state_dict()
    half.guard = Protocol(half.guard.config)
    half.guard.load_state_dict(saved)
    half.run(7)
    assert half.history == whole.history and half.guard.state_dict() == whole.guard.state_dict()
