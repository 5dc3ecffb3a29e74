"""What changes with a phase, and what goes on through it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.config import resolve
from holdfast.errors import ConfigError
from holdfast.loop import Loop
from holdfast.run import RunDirectory, build

SMALL: dict[str, Any] = {
    "games": 4,
    "max_steps": 20,
    "learner.steps": 8,
    "hidden": "8",
    "minibatch": 32,
    "epochs": 1,
    "threads": 1,
    "updates": 4,
    "probe.every": 0,
    "tensorboard": False,
    "checkpoint_every": 100,
}
TWO = "[[phase]]\nupdates = 2\n[[phase]]\nupdates = 2\n"


def loop_of(folder: Path, world: str, phases: str = "", **more: Any) -> Loop:
    """Return the loop of a small run, ready for its first update."""
    folder.mkdir()
    file = folder / "a.toml"
    file.write_text(f'[world]\nname = "{world}"\n{phases}')
    config = resolve(str(file), list({**SMALL, "run": "r", "overlap": "off", **more}.items()))
    loop = build(config, RunDirectory.create(folder, config), lambda line: None, print)
    loop.recorder.load_state_dict(dict.fromkeys(loop.recorder.lines, 0))
    loop.begin()
    return loop


@pytest.mark.parametrize(
    ("world", "more"),
    [
        ("shoal", {"fish": 3, "memory": "gru", "memory_size": 8}),
        ("pursuit", {"selfplay.enabled": True, "selfplay.history": 0.5, "memory": "lstm"}),
    ],
)
def test_a_phase_like_the_one_before_changes_nothing(
    world: str, more: dict[str, Any], tmp_path: Path
) -> None:
    found = []
    for name, phases in (("one", ""), ("two", TWO)):
        loop = loop_of(tmp_path / name, world, phases, **more)
        loop.run()
        found.append(loop.team.parameter_hash())
    assert found[0] == found[1]


@pytest.mark.parametrize("overlap", ["off", "on"])
def test_a_phase_of_other_steps_goes_on_in_the_same_episodes(overlap: str, tmp_path: Path) -> None:
    longer = TWO + "learner = { steps = 12 }\n"
    more = {"fish": 3, "memory": "gru", "memory_size": 8, "overlap": overlap}
    loop = loop_of(tmp_path / "a", "shoal", longer, **more)
    loop.update()
    loop.update()
    loop.enter(loop.plan.phase(3))
    seat = loop.collector.seats[0]
    loop.collector.begin()
    assert seat.rollout.steps == 12
    assert not seat.rollout.begun[0].all()
    assert np.abs(seat.rollout.memory[0]).max() > 0


def test_the_first_phase_has_its_own_settings_of_the_learner(tmp_path: Path) -> None:
    phases = "[[phase]]\nupdates = 2\nlearner = { steps = 6, epochs = 3, clip = 0.1 }\n" + TWO
    loop = loop_of(tmp_path / "a", "shoal", phases, fish=3)
    loop.update()
    assert loop.feed.seats[0].rollout.steps == 6
    assert loop.signals["train/minibatches"] == 3 * round(6 * 12 / 32)
    assert loop.signals["train/clip"] == 0.1


def test_a_phase_has_its_own_entropy_windows_and_its_own_discount(tmp_path: Path) -> None:
    own = "learner = { entropy_windows = '4+:0.3', entropy = 0.2, gamma = 0.5 }\n"
    loop = loop_of(tmp_path / "a", "shoal", TWO + own, fish=3, normalise_rewards=True)
    found = []
    for _ in range(4):
        loop.update()
        found.append((loop.signals["train/entropy"], loop.team.learners[""].reward_norm.gamma))
    assert found == [(0.001, 0.99), (0.001, 0.99), (0.2, 0.5), (0.3, 0.5)]


@pytest.mark.parametrize("setting", ["log_std = -1.0", "accumulate = 2"])
def test_what_a_phase_could_not_change_is_refused(setting: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot change during a run"):
        loop_of(tmp_path / "a", "shoal", TWO + f"learner = {{ {setting} }}\n")


def test_windows_that_cannot_be_read_are_refused_before_a_run_is_made() -> None:
    with pytest.raises(ConfigError, match=r"learner\.entropy_windows: '1\+:-1'"):
        resolve("shoal", [("entropy_windows", "1+:-1")])


def test_a_boost_that_spans_phases_is_one_of_each_phases_own_reward(tmp_path: Path) -> None:
    phases = TWO + "world = { view_reward = 3.0 }\n"
    boost = {"enabled": True, "stall_updates": 0, "early_updates": 3, "early_value": "view_reward"}
    more = {f"guards.bootstrap.{key}": value for key, value in boost.items()}
    loop = loop_of(tmp_path / "a", "shoal", phases, fish=3, view_reward=5, **more)
    found = []
    for _ in range(4):
        loop.enter(loop.plan.phase(loop.progress.update + 1))
        found.append(loop.world.value("view_reward"))
        loop.update()
    assert found == [10.0, 10.0, 6.0, 3.0]


def test_what_a_guard_has_turned_stays_turned_in_a_phase_that_does_not_set_it(
    tmp_path: Path,
) -> None:
    phases = TWO + "learner = { epochs = 2 }\n[[phase]]\nlearner = { clip = 0.3 }\n"
    loop = loop_of(tmp_path / "a", "shoal", phases, fish=3, updates=5)
    loop.team.set_value("clip", 0.15)
    found = []
    for _ in range(5):
        loop.update()
        found.append(loop.signals["train/clip"])
    assert found == [0.15, 0.15, 0.15, 0.15, 0.3]


def test_a_level_far_from_the_options_of_a_phase_goes_on_in_it(tmp_path: Path) -> None:
    near = {"min_init_distance": 1.0, "max_init_distance": 4.0, "obstacle_capacity": 3}
    phases = TWO + "world = { capture_bonus = 7.0 }\n"
    loop = loop_of(tmp_path / "a", "pursuit", phases, **{"selfplay.enabled": True, **near})
    level = {"min_init_distance": 5.0, "max_init_distance": 8.0, "n_obstacles": 3.0}
    mixed = {"mixed_min_init_distance": 2.0, "mixed_max_init_distance": 3.0, "mixed_share": 0.5}
    loop.progress.turned = {**level, **mixed}
    for _ in range(4):
        loop.update()
    assert {name: loop.world.value(name) for name in (*level, *mixed)} == {**level, **mixed}
