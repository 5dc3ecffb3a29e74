"""How long a run with phases is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.config import resolve, with_changes
from holdfast.errors import ConfigError
from holdfast.loop import make_plan
from holdfast.refuse import refuse_shapes
from holdfast.run import start
from holdfast.store.journal import read_lines


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
    with pytest.raises(ConfigError, match=f"{where}.*One network"):
        refuse_shapes(config)
    refuse_shapes(resolve(world))


PHASES = """
[run]
name = "r"
updates = 4
tensorboard = false
[world]
name = "shoal"
games = 2
fish = 2
[learner]
steps = 8
minibatch = 16
entropy = 0.01
[probe]
every = 0
episodes = 1
[[phase]]
updates = 2
[[phase]]
updates = 2
learner = { entropy_windows = "4:0.5" }
"""


def test_a_phase_may_have_entropy_windows_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(PHASES)
    start(resolve(str(tmp_path / "a.toml")), tmp_path, say=lambda _: None)
    lines = read_lines(tmp_path / "r" / "metrics.jsonl")
    assert [line["train/entropy"] for line in lines] == [0.01, 0.01, 0.01, 0.5]
    with pytest.raises(ConfigError, match="first-last:value"):
        resolve("shoal", [("learner.entropy_windows", "24-16:0.03")])
