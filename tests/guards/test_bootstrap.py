"""The bootstrap machine on hand-written updates, and on the real mario world with a policy that stands still."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from holdfast.errors import ConfigError
from holdfast.guards.bootstrap import BootstrapConfig, BootstrapGuard, script_steps
from holdfast.records import Decision, Episode
from holdfast.tables import build

STEPS, GAMES = 64, 8


class Updates:
    """The signals of one update after the other."""

    def __init__(self, guard: BootstrapGuard, games: int = GAMES) -> None:
        self.guard, self.games, self.update = guard, games, 0

    def sizes(self) -> dict[str, Any]:
        return {
            "update": self.update,
            "env_steps": self.update * STEPS * self.games,
            "world/games": self.games,
            "world/slots_per_game": 1,
            "world/reward_progress": 1.5,
        }

    def step(self, ground: float | None = 0.0, reached: float = 40.0, **more: Any) -> list[str]:
        return [d.kind for d in self.decisions(ground, reached, **more)]

    def decisions(self, ground: float | None, reached: float, **more: Any) -> list[Decision]:
        self.update += 1
        ended = [] if ground is None else [{"ground": ground, "best_x": reached, **more}]
        return self.guard.step({**self.sizes(), "starts/ended": ended})


def machine(**settings: Any) -> Updates:
    return Updates(BootstrapGuard(BootstrapConfig(**{"enabled": True, **settings})))


def test_no_progress_triggers_at_exactly_the_configured_update() -> None:
    run = machine(stall_updates=5, inject_steps=128)
    assert [run.step() for _ in range(4)] == [[]] * 4
    assert run.guard.status()["state"] == "armed"
    (decision,) = run.decisions(0.0, 40.0)
    assert (decision.kind, decision.name, decision.value) == (
        "override_actions",
        "stall",
        "RIGHT+B:128",
    )
    assert len(decision.slots) == 4 and run.guard.status()["state"] == "inject"
    assert (decision.cause.value, decision.cause.threshold, decision.cause.window) == (0.0, 0.0, 5)


def test_a_script_begins_after_the_rollout_that_was_played_ahead() -> None:
    run = machine(stall_updates=1, inject_steps=128, cooldown_updates=0)
    ahead = {"train/policy_lag": 1, "rollout/steps": STEPS * GAMES}
    sizes = {**run.sizes(), **ahead, "update": 1, "starts/ended": [{"ground": 0.0, "best_x": 4.0}]}
    (decision,) = run.guard.step(sizes)
    assert decision.kind == "override_actions"
    assert run.guard.status()["remaining_steps"] == 1 + 128 + STEPS


def test_progress_goes_back_to_idle_and_the_count_begins_again() -> None:
    run = machine(stall_updates=3)
    assert [run.step(g) for g in (0, 0, 5, 0, 0)] == [[]] * 5
    assert run.guard.status()["stalled_updates"] == 2
    assert run.step(0) == ["override_actions"]


def test_an_update_in_which_nothing_ended_is_not_counted() -> None:
    run = machine(stall_updates=2)
    assert [run.step(g) for g in (0, None, None)] == [[]] * 3
    assert run.step(0) == ["override_actions"]


def test_what_a_script_or_a_snapshot_start_won_is_no_progress_and_no_stall() -> None:
    run = machine(stall_updates=2)
    run.step(0)
    assert run.step(700, 740, scripted=128.0) == [] and run.step(9, 900, snapshot=True) == []
    assert run.step(0) == ["override_actions"]


def test_it_injects_cools_down_and_can_trigger_again() -> None:
    run = machine(stall_updates=2, inject_steps=100, cooldown_updates=3)
    states, kinds = [], []
    for _ in range(12):
        kinds.append(bool(run.step()))
        states.append(run.guard.state)
    # 100 steps and the one before them end within the second update of 64.
    assert states == [
        *("armed", "inject", "inject", "cooldown", "cooldown", "cooldown"),
        *("armed", "inject", "inject", "cooldown", "cooldown", "cooldown"),
    ]
    assert [k + 1 for k, kind in enumerate(kinds) if kind] == [2, 8]
    assert run.guard.status()["injections"] == 2


def test_every_injection_plays_its_share_and_all_games_have_their_turn() -> None:
    run = machine(stall_updates=1, inject_steps=1, cooldown_updates=0, inject_share=0.25)
    seen: list[tuple[int, ...]] = []
    while len(seen) < 4:
        seen += [d.slots for d in run.decisions(0.0, 40.0)]
    assert [len(slots) for slots in seen] == [2] * 4
    assert sorted(slot for slots in seen for slot in slots) == list(range(8))


def test_injections_end_with_the_budget() -> None:
    run = machine(stall_updates=1, inject_steps=1, cooldown_updates=0, max_injections=2)
    assert sum(bool(run.step()) for _ in range(20)) == 2


@pytest.mark.parametrize(("share", "needed"), [(0.25, 4), (0.375, 3), (0.75, 2)])
def test_injections_reach_every_game_in_turn(share: float, needed: int) -> None:
    run = machine(stall_updates=1, inject_steps=1, inject_share=share, cooldown_updates=0)
    played: list[set[int]] = []
    for _ in range(2 * needed):
        played += [set(d.slots) for d in run.decisions(0.0, 40.0) if d.slots]
    assert all(len(slots) == round(share * GAMES) for slots in played)
    assert set.union(*played[:needed]) == set(range(GAMES))


def test_a_rising_best_is_never_a_plateau() -> None:
    run = machine(stall_updates=0, plateau_updates=4, plateau_gain=16)
    assert [run.step(5, 100 + 5 * k) for k in range(30)] == [[]] * 30


def test_a_flat_best_is_broken_once_a_cooldown_with_its_own_script() -> None:
    run = machine(
        stall_updates=0,
        plateau_updates=4,
        plateau_gain=16,
        plateau_inject="RIGHT+A+B:30,RIGHT+B:10",
        cooldown_updates=5,
    )
    made = [(run.update, d) for _ in range(22) for d in run.decisions(5.0, 700.0)]
    assert [update for update, _ in made] == [5, 15]
    assert made[0][1].name == "plateau" and made[0][1].value == "RIGHT+A+B:30,RIGHT+B:10"
    assert made[0][1].cause.value == 0.0 and made[0][1].cause.window == 4


def test_a_stage_that_rises_below_the_best_of_another_is_no_plateau() -> None:
    run = machine(stall_updates=0, plateau_updates=4, plateau_gain=16)
    for k in range(12):
        assert (
            run.step(50.0, 2500.0, label="1-1") == run.step(50.0, 500.0 + 50 * k, label="1-2") == []
        )
    made = [run.step(50.0, reached, label="1-1") for reached in (2500.0, 1000.0, 2500.0, 900.0)]
    assert made == [[], [], [], ["override_actions"]]


def test_a_cleared_stage_is_no_plateau() -> None:
    run = machine(stall_updates=0, plateau_updates=3)
    assert [run.step(3121, 3161, clear=1.0) for _ in range(20)] == [[]] * 20


def test_the_opening_is_the_script_and_then_forward() -> None:
    run = machine(script="START:8,RIGHT+A+B:24", forward_steps=100, forward="RIGHT")
    (decision,) = run.guard.initial(run.sizes())
    assert decision.value == "START:8,RIGHT+A+B:24,RIGHT:68"
    assert decision.name == "opening" and decision.slots == tuple(range(8))
    assert machine(forward_steps=9).guard.initial(run.sizes())[0].value == "RIGHT+B:9"
    assert machine(script="A:9", forward_steps=9).guard.initial(run.sizes())[0].value == "A:9"
    assert machine().guard.initial(run.sizes()) == []


def test_nothing_is_counted_while_the_opening_plays() -> None:
    run = machine(script="RIGHT+B:150", stall_updates=1, cooldown_updates=2)
    run.guard.initial(run.sizes())
    assert [run.step() for _ in range(4)] == [[]] * 4
    assert run.step() == ["override_actions"]


def test_the_early_window_boosts_a_reward_and_gives_it_back() -> None:
    run = machine(early_updates=3, early_factor=2.0, stall_updates=0)
    (up,) = run.guard.initial(run.sizes())
    assert (up.kind, up.name, up.value) == ("set_world", "reward_progress", 3.0)
    assert run.step(5) == run.step(5) == []
    (down,) = run.decisions(5.0, 40.0)
    assert (down.kind, down.name, down.value) == ("unset_world", "reward_progress", None)
    assert run.update == 3
    assert run.step(5) == []


def test_in_a_new_phase_the_boost_is_that_of_its_own_reward() -> None:
    run = machine(early_updates=3, early_factor=2.0, stall_updates=0)
    run.guard.initial(run.sizes())
    run.step(5)
    assert run.guard.requeue(run.sizes()) == []
    again = machine(early_updates=3, early_factor=2.0, stall_updates=0)
    again.guard.load_state_dict(run.guard.state_dict())
    (up,) = again.guard.requeue({**run.sizes(), "world/reward_progress": 0.5})
    assert (up.kind, up.name, up.value) == ("set_world", "reward_progress", 1.0)
    run.step(5), run.step(5)
    assert run.guard.requeue({**run.sizes(), "world/reward_progress": 0.5}) == []


def test_a_rebuilt_world_plays_no_script_and_the_machine_knows_it() -> None:
    run = machine(stall_updates=1, inject_steps=10_000)
    run.step()
    assert run.guard.requeue(run.sizes()) == [] and run.guard.state == "cooldown"


def test_it_goes_on_from_its_state() -> None:
    settings = {
        "stall_updates": 2,
        "plateau_updates": 3,
        "cooldown_updates": 2,
        "early_updates": 7,
    }
    grounds = [0, 0, 0, 3, 0, None, 0, 0, 0, 2, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0]
    for cut in range(1, len(grounds)):
        whole, first = machine(**settings), machine(**settings)
        for ground in grounds[:cut]:
            assert whole.step(ground) == first.step(ground)
        second = machine(**settings)
        second.guard.load_state_dict(first.guard.state_dict())
        second.update = first.update
        for ground in grounds[cut:]:
            assert whole.decisions(ground, 40.0) == second.decisions(ground, 40.0)
            assert whole.guard.status() == second.guard.status()


@pytest.mark.parametrize(
    "text", ["RIGHT+B:0", "RIGHT:", "RIGHT:two", ":8", "", "RIGHT:4,,A", "RIGHT-B:4"]
)
def test_what_is_no_script_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ConfigError, match="START:8,RIGHT\\+B:180"):
        script_steps(text, "script")


def test_a_wrong_setting_is_named_with_its_table() -> None:
    with pytest.raises(ConfigError, match=r"guards\.bootstrap: inject: entry 2 \('B:x'\)"):
        build(BootstrapConfig, {"inject": "RIGHT:3,B:x"}, "guards.bootstrap")
    with pytest.raises(ConfigError, match="not one combination"):
        build(BootstrapConfig, {"forward": "RIGHT:3"}, "guards.bootstrap")
    assert script_steps("START:8, right + b :180,NOOP", "script") == 189


def test_a_policy_that_stands_still_is_carried_off_by_the_script() -> None:
    """The real world: NOOPs stagnate, the guard injects, the game moves, and those steps are masked."""
    from holdfast.progress import start_signals
    from holdfast.worlds.mario import MarioOptions, MarioWorld

    options = MarioOptions(games=4, observation="tiles", stagnation_steps=20, noops=0)
    world = MarioWorld(options, seed=1)
    guard = BootstrapGuard(BootstrapConfig(stall_updates=3, inject_steps=20, inject_share=0.5))
    made: list[Decision] = []
    masked = np.zeros(4, np.int64)
    episodes: list[Episode] = []
    furthest = np.zeros(4)
    for update in range(1, 6):
        ended: list[Episode] = []
        for _ in range(24):
            *_, info = world.step(np.zeros(4, np.int64))
            ended += info.get("episodes", [])
            masked += ~info["mask"]
            furthest = np.maximum(furthest, world.records()["x"])
        signals = {
            "update": update,
            "env_steps": update * 24 * 4,
            "world/games": 4,
            "world/slots_per_game": 1,
            **start_signals(world, ended),
        }
        episodes += ended
        for decision in guard.step(signals):
            made.append(decision)
            assert decision.kind == "override_actions"
            assert world.override(decision.slots, decision.value) == 20
    assert len(made) == 1 and len(made[0].slots) == 2
    played = np.isin(np.arange(4), made[0].slots)
    assert (masked[played] == 20).all() and (masked[~played] == 0).all()
    assert (furthest[played] > 140).all() and (furthest[~played] == 40).all()
    assert {e.facts["scripted"] for e in episodes} <= {0.0, 20.0}
