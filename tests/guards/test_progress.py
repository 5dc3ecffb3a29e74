"""Progress signals on hand-written episodes, with the numbers written out."""

from __future__ import annotations

from typing import Any

from holdfast.guards.progress import ProgressConfig, ProgressGuard, own_episodes


def ended(reached: float, ground: float, **more: Any) -> dict[str, Any]:
    return {
        "game": 0,
        "snapshot": False,
        "label": "1-1",
        "steps": 100,
        "best_x": reached,
        "ground": ground,
        "scripted": 0.0,
        "clear": 0.0,
        "death": 1.0,
        **more,
    }


def update(guard: ProgressGuard, *episodes: dict[str, Any]) -> list[str]:
    return [d.kind for d in guard.step({"starts/ended": list(episodes)})]


def test_the_positive_ratio_counts_episodes_that_won_ground() -> None:
    guard = ProgressGuard(ProgressConfig())
    for _ in range(3):
        update(guard, ended(40, 0), ended(60, 20), ended(40, 0), ended(80, 40))
        status = guard.status()
        assert status["positive_ratio"] == 0.5
        assert status["gain_mean"] == 15.0
        assert (status["reached_mean"], status["reached_max"]) == (55.0, 80.0)
    assert status["episodes_total"] == 12 and status["since_best_updates"] == 2


def test_ground_of_scripts_and_of_snapshot_starts_is_not_the_policys() -> None:
    guard = ProgressGuard(ProgressConfig())
    episodes = [
        ended(40, 0),
        ended(900, 860, scripted=150.0),
        ended(2000, 5, snapshot=True, id="1-1:37:1900"),
    ]
    assert own_episodes({"starts/ended": episodes}) == [episodes[0]]
    update(guard, *episodes)
    assert (guard.status()["positive_ratio"], guard.status()["best"]) == (0.0, 40.0)


def test_the_place_where_most_episodes_end_is_named_with_their_share() -> None:
    guard = ProgressGuard(ProgressConfig(near=48))
    update(
        guard, *(ended(x, 10) for x in (300, 760, 780, 790, 808, 900)), ended(3161, 10, clear=1.0)
    )
    status = guard.status()
    assert status["same_place_rate"] == 4 / 7 and status["same_place"] == 784.0
    again = ProgressGuard(ProgressConfig(near=20))
    again.load_state_dict(guard.state_dict())
    assert again.status()["same_place_rate"] == 2 / 7, (
        "780, 790 or 790, 808 are near, not 760 to 808"
    )


def test_places_of_different_stages_are_not_the_same() -> None:
    guard = ProgressGuard(ProgressConfig())
    update(guard, *(ended(780, 10, label=stage) for stage in ("1-1", "1-2", "1-3")))
    update(
        guard, ended(100, 10, label="1-1"), ended(200, 10, label="1-2"), ended(780, 1, label="1-3")
    )
    assert (guard.status()["same_place_rate"], guard.status()["same_place"]) == (1.0, 780.0)
    update(guard, ended(300, 10, label="1-3"))
    assert guard.status()["same_place_rate"] == 2 / 3


def test_goals_that_were_reached_are_no_place_to_worry_about() -> None:
    guard = ProgressGuard(ProgressConfig())
    update(guard, ended(3161, 10, clear=1.0), ended(3161, 10, clear=1.0))
    assert guard.status()["same_place_rate"] == 0.0


def test_an_update_without_an_own_episode_leaves_the_ratio_as_it_was() -> None:
    guard = ProgressGuard(ProgressConfig())
    update(guard, ended(50, 10), ended(40, 0))
    guard.step({})
    assert guard.status()["positive_ratio"] == 0.5
    assert guard.status()["episodes_now"] == 0 and guard.status()["since_best_updates"] == 1


def test_milestones_count_the_multiples_that_the_best_has_passed() -> None:
    guard = ProgressGuard(ProgressConfig(milestone=100))
    seen = []
    for reached in (40, 120, 90, 320):
        update(guard, ended(reached, reached - 40))
        seen.append((guard.status()["milestones"], guard.status()["milestone_next"]))
    assert seen == [(0, 100), (1, 200), (1, 200), (3, 400)]
    assert ProgressGuard(ProgressConfig(milestone=0)).status()["milestone_next"] == -1


def test_rates_by_stage_and_by_reason_are_shares_of_episodes() -> None:
    guard = ProgressGuard(ProgressConfig(window=4))
    flag = ended(3161, 3121, clear=1.0, death=0.0)
    pit = ended(1100, 1060, end_death_pit=1.0, label="1-2")
    stuck = ended(40, 0, death=0.0, end_stagnation=1.0, stall=150.0)
    update(guard, flag, pit, stuck, ended(600, 560))
    status = guard.status()
    assert (status["clear_rate"], status["death_rate"]) == (0.25, 0.5)
    assert (status["pit_rate"], status["stagnation_rate"]) == (0.25, 0.25)
    assert status["stall_steps_mean"] == 37.5
    assert status["stage/1-1/episodes"] == 3 and status["stage/1-2/episodes"] == 1
    assert status["stage/1-1/clear_rate"] == 1 / 3 and status["stage/1-1/reached_max"] == 3161
    assert status["stage/1-2/death_rate"] == 1.0 and status["clears_total"] == 1
    update(guard, flag, flag, flag, flag)
    assert guard.status()["clear_rate"] == 1.0, "only the last four episodes count"
    assert guard.status()["stage/1-1/episodes"] == 7


def test_a_best_that_does_not_move_is_warned_of_once_and_cleared() -> None:
    guard = ProgressGuard(ProgressConfig(patience=3))
    kinds = [update(guard, ended(x, 1)) for x in (50, 50, 50, 50, 50, 51)]
    assert kinds == [[], [], [], ["warn"], [], ["clear"]]
    assert guard.light() == "green"


def test_a_stage_that_is_cleared_again_and_again_is_no_lack_of_progress() -> None:
    guard = ProgressGuard(ProgressConfig(patience=2))
    flag = ended(3161, 3121, clear=1.0, death=0.0)
    assert [update(guard, flag) for _ in range(5)] == [[]] * 5
    kinds = [update(guard, e) for e in (ended(900, 860), ended(900, 860), flag)]
    assert kinds == [[], ["warn"], ["clear"]]


def test_it_goes_on_from_its_state() -> None:
    config = ProgressConfig(window=3, patience=4)
    whole, first = ProgressGuard(config), ProgressGuard(config)
    lines = [
        [ended(40 + (k * 7) % 30, k % 3, label=f"1-{1 + k % 2}", clear=float(k % 5 == 0))]
        for k in range(20)
    ]
    for line in lines[:11]:
        update(whole, *line)
        update(first, *line)
    second = ProgressGuard(config)
    second.load_state_dict(first.state_dict())
    for line in lines[11:]:
        assert update(whole, *line) == update(second, *line)
        assert whole.status() == second.status()


def test_ground_won_on_a_new_stage_is_progress_though_another_came_further() -> None:
    guard = ProgressGuard(ProgressConfig(patience=2))
    kinds = [
        update(guard, ended(x, 1, label=stage))
        for x, stage in ((3000, "1-1"), (200, "1-2"), (400, "1-2"), (600, "1-2"))
    ]
    assert kinds == [[], [], [], []]
    assert guard.status()["since_best_updates"] == 0 and guard.status()["best"] == 3000
    stuck = [guard.step({"starts/ended": [ended(600, 1, label="1-2")]}) for _ in range(2)]
    assert stuck[0] == [] and "the best of its stage" in stuck[1][0].message
    (again,) = guard.step({"starts/ended": [ended(700, 1, label="1-2")]})
    assert again.message == "progress again in 1-2: 700 after 3 updates at 600"


def test_a_state_without_the_best_of_each_stage_still_loads() -> None:
    guard = ProgressGuard(ProgressConfig())
    update(guard, ended(900, 1), ended(300, 1, label="1-2"))
    old = {k: v for k, v in guard.state_dict().items() if k != "bests"}
    again = ProgressGuard(ProgressConfig())
    again.load_state_dict(old)
    assert again.bests == guard.bests == {"1-1": 900, "1-2": 300}
    again.load_state_dict({**old, "stages": [], "best": 950.0})
    assert again.bests == {"": 950.0}


def test_an_episode_that_was_cut_is_in_no_rate() -> None:
    guard = ProgressGuard(ProgressConfig())
    update(guard, ended(3161, 9, clear=1.0), ended(40, 0, cut=True))
    assert (guard.status()["clear_rate"], guard.status()["positive_ratio"]) == (1.0, 1.0)


def test_the_place_of_a_stage_that_is_no_longer_played_is_forgotten() -> None:
    guard = ProgressGuard(ProgressConfig(window=4))
    update(guard, *(ended(300, 10) for _ in range(4)))
    update(guard, *(ended(x, 10, label="2-1") for x in (100, 400, 700)))
    assert guard.status()["same_place_rate"] == 1.0, "one of the last four was played on 1-1"
    again = ProgressGuard(ProgressConfig(window=4))
    again.load_state_dict(guard.state_dict())
    for one in (guard, again):
        update(one, ended(1000, 10, label="2-1"))
        assert one.status()["same_place_rate"] == 0.25


def test_the_end_of_the_warning_says_what_there_was_before() -> None:
    said = []
    for more in (
        [ended(650, 10), ended(700, 10)],
        [ended(210, 10, label="2-1")],
        [ended(600, 10, clear=1.0)],
    ):
        guard = ProgressGuard(ProgressConfig(patience=2))
        for _ in range(3):
            update(guard, ended(600, 10))
        said += [d.message for d in guard.step({"starts/ended": more})]
    assert said == [
        "progress again in 1-1: 700 after 3 updates at 600",
        "progress again in 2-1: 210 after 3 updates",
        "progress again: the goal is reached after 3 updates without",
    ]
