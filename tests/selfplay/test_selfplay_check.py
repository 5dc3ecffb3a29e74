"""Settings of self-play that could not act are refused before anything is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.errors import ConfigError
from holdfast.run import resume
from holdfast.store.journal import read_lines

SMALL = {"games": 4, "max_steps": 20, "learner__steps": 8, "updates": 1, "probe__episodes": 2}


def train(folder: Path, **settings: Any) -> None:
    holdfast.train(
        "pursuit", runs_dir=folder, run="r", say=lambda text: None, **{**SMALL, **settings}
    )


@pytest.mark.parametrize("guard", ["protocol", "balance", "collapse"])
def test_a_guard_that_chooses_sides_needs_sides(guard: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--selfplay\.enabled true"):
        train(tmp_path, **{f"guards__{guard}__enabled": True})
    assert not (tmp_path / "r").exists()


def test_two_guards_that_choose_sides_are_refused(tmp_path: Path) -> None:
    both = {"guards__protocol__enabled": True, "guards__balance__enabled": True}
    with pytest.raises(ConfigError, match="a run takes one of them"):
        train(tmp_path, selfplay__enabled=True, **both)


def test_a_side_that_a_script_plays_cannot_be_led_to_learn(tmp_path: Path) -> None:
    scripted = {"selfplay__enabled": True, "selfplay__pursuer": "greedy"}
    for guard in ("protocol", "balance"):
        led = {f"guards__{guard}__enabled": True}
        with pytest.raises(ConfigError, match=rf"guards\.{guard} .*selfplay\.pursuer = 'greedy'"):
            train(tmp_path, **scripted, **led)
    frozen = {"role": "pursuer", "switch": False}
    settings = {f"guards__protocol__freeze__{name}": value for name, value in frozen.items()}
    settings["guards__protocol__enabled"] = True
    with pytest.raises(ConfigError, match=r"without cold start, warm start"):
        train(tmp_path, **scripted, **settings, guards__protocol__warm_start_steps=8)
    assert not (tmp_path / "r").exists()
    train(tmp_path, **scripted, **settings)


@pytest.mark.parametrize("players", [{"history": 0.0}, {"history": 0.3, "evader": "flee"}])
def test_past_opponents_of_the_balance_guard_need_a_pool(
    players: dict[str, Any], tmp_path: Path
) -> None:
    past = {"guards__balance__enabled": True, "guards__balance__past": 0.5}
    settings = {f"selfplay__{name}": value for name, value in players.items()}
    with pytest.raises(ConfigError, match=r"selfplay\.history above 0"):
        train(tmp_path, selfplay__enabled=True, **past, **settings)


@pytest.mark.parametrize("observation", ["full", "frame", "sensors"])
def test_the_masking_curriculum_needs_a_masked_observation(
    observation: str, tmp_path: Path
) -> None:
    masking = {"guards__masking__enabled": True, "selfplay__enabled": True}
    with pytest.raises(ConfigError, match=f"it is '{observation}'.*--world.observation masked"):
        train(tmp_path, observation=observation, **masking)


def test_novelty_for_a_misspelt_role_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no role 'evadr'.*'evader'.*Roles .*: pursuer, evader"):
        train(tmp_path, selfplay__enabled=True, selfplay__novelty_roles=["evadr"])


def test_novelty_for_a_role_needs_a_learner_of_that_role(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one learner plays all of them"):
        train(tmp_path, selfplay__novelty_roles=["evader"], novelty__weight=0.1)


@pytest.mark.parametrize("guard", ["protocol", "balance"])
def test_levels_that_the_world_cannot_play_are_refused_before_training(
    guard: str, tmp_path: Path
) -> None:
    levels = {"enabled": True, "curriculum__kind": "smooth", "curriculum__obstacles": 6}
    settings = {f"guards__{guard}__{name}": value for name, value in levels.items()}
    with pytest.raises(ConfigError, match=r"Level 7 .*'n_obstacles' is 6.*obstacle-capacity 6"):
        train(tmp_path, selfplay__enabled=True, **settings)
    near = {"min_init_distance": 1.0, "max_init_distance": 1.5}
    with pytest.raises(ConfigError, match=r"Level 1 .*--world\.max-init-distance 2"):
        train(tmp_path, selfplay__enabled=True, **settings, **near)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("guard", ["protocol", "balance"])
def test_parameters_that_cannot_be_held_are_refused_before_training(
    guard: str, tmp_path: Path
) -> None:
    held = {f"guards__{guard}__enabled": True, f"guards__{guard}__protect": 10.0}
    held[f"guards__{guard}__curriculum__kind"] = "smooth"
    with pytest.raises(ConfigError, match=r"EWC covers .*learner\.memory to 'none'"):
        train(tmp_path, selfplay__enabled=True, learner__memory="gru", **held)
    assert not (tmp_path / "r").exists()


def test_hands_cannot_tremble_more_than_their_steps_allow(tmp_path: Path) -> None:
    settings = {"selfplay__history": 0.5, "selfplay__tremble": 0.8, "selfplay__enabled": True}
    with pytest.raises(ConfigError, match=r"0\.5 of the steps at most.*tremble-steps 4$"):
        train(tmp_path, selfplay__tremble_steps=1.0, **settings)
    train(tmp_path, selfplay__tremble_steps=4.0, **settings)


def test_a_run_that_its_protocol_has_ended_does_not_go_on(tmp_path: Path) -> None:
    protocol = {"enabled": True, "phase_steps": 32, "max_phases": 2}
    settings = {f"guards__protocol__{name}": value for name, value in protocol.items()}
    train(tmp_path, selfplay__enabled=True, **{**settings, "updates": 50})
    said: list[str] = []
    for changes in ([], [("updates", 100)]):
        again = resume("r", tmp_path, changes, say=said.append)
        assert (again.state, again.update) == ("nothing_to_do", 2)
    assert "after update 2 (2 phases are done)" in said[-1] and "--init-from r" in said[-1]


@pytest.mark.parametrize("guard", ["protocol", "balance", "collapse", "dampen"])
def test_guards_of_pursuer_and_evader_are_refused_in_other_games(
    guard: str, tmp_path: Path
) -> None:
    settings = {f"guards__{guard}__enabled": True, "selfplay__enabled": True, "games": 2}
    with pytest.raises(ConfigError, match=rf"guards\.{guard} is for games .*: fish\. Leave it out"):
        holdfast.train("shoal", runs_dir=tmp_path, run="r", say=lambda text: None, **settings)
    assert not (tmp_path / "r").exists()


def test_a_side_that_learns_against_a_script_is_not_taken_back_when_it_wins(tmp_path: Path) -> None:
    far = {"min_init_distance": 4.5, "max_init_distance": 5.0, "max_steps": 8, "games": 32}
    collapse = {"enabled": True, "both": False, "wait_steps": 0}
    guard = {f"guards__collapse__{name}": value for name, value in collapse.items()}
    sides = {"selfplay__enabled": True, "selfplay__pursuer": "greedy"}
    train(tmp_path, **{**far, **guard, **sides, "updates": 6})
    lines = list(read_lines(tmp_path / "r" / "metrics.jsonl"))
    assert lines[-1]["pursuit/captured"] == 0 and lines[-1]["episode/count"] > 100
    assert lines[-1]["guard/collapse/rollbacks"] == 0
