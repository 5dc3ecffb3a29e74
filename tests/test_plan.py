"""How long a run with phases is."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from holdfast.config import resolve, with_changes
from holdfast.errors import ConfigError
from holdfast.plan import make_plan
from holdfast.preflight import plan_rows
from holdfast.refuse import refuse_other_networks
from holdfast.rng import Streams
from holdfast.selfplay.cast import Cast
from holdfast.selfplay.opponents import scripts_of
from holdfast.slots import LearningSlots
from holdfast.worlds import make_world


def spans(config: Any) -> list[tuple[int, int, int]]:
    return [(p.options.fish, p.first, p.last) for p in make_plan(config, 1).phases]


def test_a_run_is_as_long_as_its_phases_unless_it_is_said() -> None:
    phases = ("plan.curriculum", "5:6,10:6")
    whole = resolve("shoal", [phases])
    assert whole.run.updates == 12 and spans(whole) == [(5, 1, 6), (10, 7, 12)]
    assert spans(resolve("shoal", [phases, ("updates", 8)])) == [(5, 1, 6), (10, 7, 8)]
    assert spans(resolve("shoal", [phases, ("updates", 4)])) == [(5, 1, 4)]
    assert spans(resolve("shoal", [phases, ("updates", 20)])) == [(5, 1, 6), (10, 7, 20)]
    assert spans(with_changes(whole, [("updates", 15)])) == [(5, 1, 6), (10, 7, 15)]


@pytest.mark.parametrize("said", ["", "[run]\nupdates = 9\n"])
def test_phases_of_a_file(tmp_path: Path, said: str) -> None:
    path = tmp_path / "a.toml"
    phase = "[[phase]]\nupdates = 3\nworld = { fish = 7 }\n[[phase]]\nupdates = 4\n"
    path.write_text(f'{said}[world]\nname = "shoal"\n{phase}')
    end = 9 if said else 7
    assert spans(resolve(str(path))) == [(7, 1, 3), (25, 4, end)]
    assert spans(resolve(str(path), [("env_steps", 2 * 64)])) == [(7, 1, 2)]


@pytest.mark.parametrize(
    ("env_steps", "updates"),
    [(1, 1), (384, 2), (385, 3), (1152, 4), (1153, 5), (1920, 6), (1921, 7)],
)
def test_a_length_in_steps_counts_what_every_phase_makes(
    tmp_path: Path, env_steps: int, updates: int
) -> None:
    path = tmp_path / "a.toml"
    phases = ("learner = { steps = 16 }", "learner = { steps = 32 }", "world = { games = 8 }")
    listed = "".join(f"[[phase]]\nupdates = 2\n{phase}\n" for phase in phases)
    path.write_text(
        f'[world]\nname = "shoal"\ngames = 4\nfish = 3\n[learner]\nsteps = 16\n{listed}'
    )
    config = resolve(str(path), [("env_steps", env_steps)])
    assert make_plan(config, LearningSlots(config)).updates == updates


SELFPLAY = {"selfplay.enabled": "true", "games": "6"}


@pytest.mark.parametrize(
    ("settings", "slots"),
    [
        ({}, 12),
        ({"selfplay.enabled": "false"}, 12),
        ({"selfplay.pursuer": "greedy"}, 6),
        ({"selfplay.history": "0.1"}, 10),
        ({"selfplay.history": "0.6"}, 8),
        ({"selfplay.history": "1"}, 6),
        ({"selfplay.history": "0.6", "selfplay.evader": "random"}, 6),
    ],
)
def test_the_slots_that_learn_are_known_before_anybody_is_seated(
    settings: dict[str, str], slots: int
) -> None:
    config = resolve("pursuit", list({**SELFPLAY, **settings}.items()))
    options, chosen = config.world.options, config.selfplay
    with contextlib.closing(make_world("pursuit", options)) as world:
        scripts = scripts_of(chosen, world.game_roles, world.scripts)
        seats = Cast(chosen, world, Streams(1), scripts, {}).seats
    assert sum(map(len, seats.values())) == LearningSlots(config)(options) == slots


def test_the_plan_of_a_dry_run_is_that_of_the_run() -> None:
    settings = {**SELFPLAY, "selfplay.pursuer": "greedy", "env_steps": "768", "learner.steps": "64"}
    rows = plan_rows(resolve("pursuit", list(settings.items())))
    assert [(row["last"], row["env_steps_after"]) for row in rows] == [(2, 768)]


def test_the_world_of_a_phase_is_as_old_as_its_options() -> None:
    plan = make_plan(resolve("shoal", [("plan.curriculum", "5:2,5:2,6:2,5:2")]), 1)
    assert [plan.built_at(phase) for phase in plan.phases] == [1, 1, 5, 7]


@pytest.mark.parametrize(
    ("world", "settings", "where"),
    [
        ("shoal", {"plan.option": "neighbors", "plan.curriculum": "true:3,false:3"}, "phase 2"),
        ("shoal", {"probe.world.neighbors": "true"}, "probe.world"),
        ("mario", {"plan.option": "actions", "plan.curriculum": "right:3,simple:3"}, "phase 2"),
        ("mario", {"probe.world.observation": "pixels"}, "probe.world"),
    ],
)
def test_a_phase_or_probe_that_does_not_fit_the_network_is_refused_before_training(
    world: str, settings: dict[str, str], where: str
) -> None:
    config = resolve(world, list(settings.items()))
    with pytest.raises(ConfigError, match=f"{where}.* needs a network"):
        refuse_other_networks(config)
    refuse_other_networks(resolve(world))
