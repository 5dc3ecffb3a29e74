"""Names in the settings of guards: wrong ones are refused before a run, or said once while it runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.config import resolve
from holdfast.errors import ConfigError
from holdfast.guards import GuardsConfig
from holdfast.guards.adaptive import AdaptiveConfig, AdaptiveGuard
from holdfast.guards.bootstrap import BootstrapConfig, BootstrapGuard
from holdfast.guards.facts import Wanted
from holdfast.guards.guard import Guard
from holdfast.guards.health import PlateauConfig
from holdfast.guards.progress import ProgressConfig, ProgressGuard
from holdfast.guards.tails import TailLedger, TailsConfig
from holdfast.known import Known, check_names
from holdfast.plan import make_plan
from holdfast.refuse import refuse_names, refuse_unfit
from holdfast.run import warn_of_gate

VALUES = ("reward_progress", "reward_death")
MARIO = Known("mario", VALUES, VALUES, ("lr_scale", "entropy"), {}, (), ())
TURNED = {"adaptive.enabled": "true", "adaptive.signal": "episode/length_steps"}
MINED = {"tails.enabled": "true", "tails.mine": "true"}
GATED = {"gate.enabled": "true", "density.enabled": "true"}
ENTROPY = "learner.entropy:0.1..0.2@0.1"


def adaptive(channels: str = ENTROPY, signal: str = "mario/clear", **more: Any) -> GuardsConfig:
    return GuardsConfig(adaptive=AdaptiveConfig(True, signal, channels=channels), **more)


@pytest.mark.parametrize(
    ("channels", "said"),
    [
        ("world.reward_progres:1..2@0.1", "value of this world.*'reward_progress'"),
        ("learner.entrpy:1..2@0.1", "value of a learner.*'entropy'"),
        ("learner.evader.entropy:1..2@0.1", "Write: learner.entropy"),
    ],
)
def test_a_channel_that_turns_nothing_is_refused(channels: str, said: str) -> None:
    with pytest.raises(ConfigError, match=rf"guards\.adaptive\.channels.*{said}"):
        check_names(adaptive(channels), MARIO)


def test_a_role_that_does_not_learn_is_refused() -> None:
    known = replace(MARIO, roles=("pursuer", "evader"))
    check_names(adaptive("learner.evader.entropy:1..2@0.1"), known)
    with pytest.raises(ConfigError, match=r"role that learns.*'evader'"):
        check_names(adaptive("learner.evadr.entropy:1..2@0.1"), known)


@pytest.mark.parametrize(
    ("signal", "said"),
    [
        ("epsode/return_mean", "Did you mean 'episode/return_mean'"),
        ("shoal/survival", "no signal of this run"),
        ("pool/restarts", "no signal of this run"),
        ("guard/progres/clear_rate", "Did you mean 'progress'"),
        ("guard/hints/shown", "no guard that decides before"),
        ("guard/progress/clear_rate", r"which is off.*--guards\.progress\.enabled true"),
    ],
)
def test_a_signal_that_never_comes_is_refused(signal: str, said: str) -> None:
    with pytest.raises(ConfigError, match=rf"guards\.adaptive\.signal.*{said}"):
        check_names(adaptive(signal=signal), MARIO)


def test_a_plateau_of_a_signal_that_never_comes_is_refused() -> None:
    wrong = GuardsConfig(plateau=PlateauConfig(signal="mario/claer"))
    check_names(wrong, MARIO)  # a fact that only the world can confirm
    wrong = GuardsConfig(plateau=PlateauConfig(signal="pobe/clear_rate"))
    with pytest.raises(ConfigError, match=r"guards\.plateau\.signal.*no signal of this run"):
        check_names(wrong, MARIO)


def test_the_role_of_a_world_with_one_role_is_known(tmp_path: Path) -> None:
    settings = [
        ("selfplay.enabled", True),
        ("selfplay.novelty_roles", ["fish"]),
        ("novelty.weight", 0.1),
        ("guards.adaptive.enabled", True),
        ("guards.adaptive.channels", "learner.fish.entropy:0.1..0.2@0.1"),
        ("guards.adaptive.signal", "shoal/survival"),
    ]
    refuse_unfit(resolve("shoal", settings), tmp_path)


def test_roles_that_only_the_world_knows_are_not_refused() -> None:
    check_names(adaptive("learner.prey.entropy:1..2@0.1"), replace(MARIO, roles=None))


def test_right_names_are_accepted() -> None:
    on = ProgressConfig(enabled=True)
    check_names(adaptive("world.reward_death:-9..-1@0.1"), MARIO)
    check_names(adaptive(signal="guard/progress/positive_ratio", progress=on), MARIO)
    check_names(GuardsConfig(), MARIO)
    for name in ("episode/return_mean", "train/entropy_mean", "probe/clear_rate"):
        check_names(adaptive(signal=name), MARIO)


def test_a_boost_of_nothing_is_refused_before_a_run() -> None:
    boost = [("guards.bootstrap.enabled", True), ("guards.bootstrap.early_updates", 3)]
    refuse_names(resolve("mario", boost))
    wrong = [*boost, ("guards.bootstrap.early_value", "reward_progres")]
    with pytest.raises(ConfigError, match=r"early_value.*Did you mean 'reward_progress'"):
        refuse_names(resolve("mario", wrong))


def guards(fact: str) -> list[Guard]:
    return [
        TailLedger(TailsConfig(enabled=True, mine=True, success_fact=fact)),
        BootstrapGuard(BootstrapConfig(enabled=True, gain_fact=fact)),
        BootstrapGuard(
            BootstrapConfig(enabled=True, stall_updates=0, plateau_updates=9, fact=fact)
        ),
        ProgressGuard(ProgressConfig(enabled=True, gain_fact=fact)),
    ]


@pytest.mark.parametrize("which", range(4))
def test_a_fact_that_no_episode_has_is_said_once(which: int) -> None:
    guard, quiet = guards("grond")[which], guards("ground")[which]
    said: list[str] = []
    for update in range(1, 41):
        over = [{"game": k, "id": "", "ground": 5.0, "best_x": 9.0} for k in range(2)]
        signals = {"update": update, "world/games": 2, "starts/ended": over}
        said += [d.message for d in guard.step(signals) if d.name == "unknown_name"]
        assert not [d for d in quiet.step(signals) if d.name == "unknown_name"]
        if update == 20:  # goes on counting from its state
            state, guard = guard.state_dict(), guards("grond")[which]
            guard.load_state_dict(state)
    assert len(said) == 1
    assert "none of 50 episodes" in said[0] and "Did you mean 'ground'?" in said[0]


def test_a_signal_that_does_not_come_is_said_once() -> None:
    guard = AdaptiveGuard(AdaptiveConfig(True, "mario/claer", channels=ENTROPY))
    found = [guard.step({"mario/clear": 0.1, "train/entropy": 0.1}) for _ in range(120)]
    (warning,) = [d for decisions in found for d in decisions]
    assert "none of 50 updates" in warning.message and "'mario/clear'" in warning.message


def test_a_name_that_was_seen_once_is_no_longer_looked_for() -> None:
    wanted = Wanted("key", "clear", patience=2)
    assert wanted.look([{"x": 1.0}, {"clear": 0.0}], "episodes") == []
    assert wanted.look([{"x": 1.0}] * 9, "episodes") == []


@pytest.mark.parametrize(
    ("world", "fact"), [("shoal", "survival"), ("mario", "ground"), ("pursuit", "captured")]
)
def test_each_of_our_worlds_has_an_outcome_of_its_own_by_default(world: str, fact: str) -> None:
    assert resolve(world).guards.tails.success_fact == fact


@pytest.mark.parametrize(
    ("world", "settings", "said"),
    [
        ("pursuit", {"density.enabled": "true"}, "'density_penalty' is no value of this world"),
        ("shoal", {"boost.enabled": "true", "boost.value": "escape_bost"}, "escape_boost_speed"),
        ("shoal", {"boost.enabled": "true", "boost.signal": "episod/x"}, "no signal of this run"),
        ("CartPole-v1", {"tails.enabled": "true", "tails.force_reset_steps": "9"}, "force_reset"),
        ("shoal", {"boost.enabled": "true", "boost.signal": "shoal/x"}, "first_death_p10"),
        ("shoal", {"plateau.signal": "shoal/survivl"}, "'survivl' is no fact.*'survival'"),
        (
            "shoal",
            {**TURNED, "adaptive.channels": "world.escape_boost_speed:0..5@0.5"},
            r"0\.\.1\.",
        ),
        ("mario", {**TURNED, "adaptive.channels": "world.reward_death:-1e9..0@0.5"}, "more than"),
        ("shoal", {**MINED, "tails.success_fact": "survived"}, "'survived' is no fact.*'survival'"),
        ("shoal", {"tails.enabled": "true"}, "nothing to replay"),
        ("shoal", {**GATED, "gate.p10_signal": "probe/p1"}, "looks at 'p1'.*'p10'"),
        ("shoal", {**GATED, "gate.min_final_signal": "pobe/x"}, "guards.gate.min_final_signal"),
        ("hunt", {**GATED, "gate.success_avoidable": "0.1"}, "'avoidable_death_fraction'"),
        ("hunt", {**GATED, "gate.failure_avoidable_by_type": "ne:0"}, "failure_avoidable looks"),
        ("hunt", {**GATED, "gate.step_one_avoidable": "true"}, "avoidable_step_one_count"),
    ],
)
def test_what_a_schedule_or_gate_could_never_set_or_see_is_refused(
    world: str, settings: dict[str, str], said: str
) -> None:
    overrides = [(f"guards.{key}", value) for key, value in settings.items()]
    hunts = [("predator_hunts", "true")] if world == "hunt" else []
    with pytest.raises(ConfigError, match=said):
        refuse_unfit(resolve("shoal" if hunts else world, overrides + hunts), Path("runs"))


def test_criteria_of_a_gate_that_are_off_need_no_metric() -> None:
    off = {"gate.success_step_one": "-1", "gate.success_step_one_ratio": "0"}
    settings = {**GATED, **off, "gate.step_one_avoidable": "true"}
    settings["gate.early_death_signal"] = "probe/ed100_high"
    overrides = [(f"guards.{key}", value) for key, value in settings.items()]
    refuse_unfit(resolve("shoal", [*overrides, ("predator_hunts", "true")]), Path("runs"))


def test_a_gate_that_allows_every_phase_is_told() -> None:
    said: list[str] = []
    for phases in ("4:2", "4:1,4:1,4:1,4:1,4:1"):
        overrides = [(f"guards.{key}", value) for key, value in GATED.items()]
        config = resolve("shoal", [*overrides, ("plan.curriculum", phases)])
        warn_of_gate(config, make_plan(config, 1), said.append)
    assert len(said) == 1 and "phases up to 4, and the run has 1" in said[0]
