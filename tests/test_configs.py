"""The configs behind the figures: they resolve, and hold what their comments say."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from holdfast.config import differences, resolve
from holdfast.plan import make_plan
from holdfast.probes.runner import draw_lot
from holdfast.probes.sectors import in_range
from holdfast.run import load_stages
from holdfast.worlds.shoal.starts import read_starts

SHOAL = Path(__file__).parent.parent / "configs" / "shoal"
MARIO = SHOAL.parent / "mario"


@pytest.mark.parametrize("path", sorted(SHOAL.glob("*.toml")), ids=lambda p: p.stem)
def test_a_config_resolves_from_anywhere(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = resolve(str(path))
    plan = make_plan(config, config.world.options.games * config.world.options.fish)
    assert plan.updates == config.run.updates
    load_stages(config)


def test_v36_is_the_protocol_of_the_original() -> None:
    config = resolve(str(SHOAL / "v36.toml"))
    plan = make_plan(config, 1)
    lengths = [p.last - p.first + 1 for p in plan.phases]
    assert lengths == [9, 10, 9, 8, 8, 8, 8]
    assert [p.options.fish for p in plan.phases] == [15, 20, 25, 25, 25, 25, 25]
    assert (config.world.options.games, config.learner.steps) == (128, 128)
    assert (config.learner.minibatch, config.learner.epochs) == (1024, 5)
    assert (config.probe.every, config.probe.episodes, config.probe.seeds) == (12, 12, "fresh")
    assert config.probe.world == {"fish": 96}
    assert draw_lot(config.probe.seed, 12, 0)[:2] == (774941881, 1153548809)
    stages = load_stages(config)
    assert [(s.type, s.updates) for s in stages] == [
        ("ne", 20),
        ("main", 24),
        ("main", 16),
        ("main", 20),
        ("southwest", 20),
    ]
    gate = config.guards.gate
    assert (gate.allowance, gate.required_successes, gate.success_step_one) == ((4, 5, 6, 7), 2, 18)
    assert config.guards.density.targets == (0, 0.02, 0.04, 0.05, 0.055, 0.06, 0.065)


@pytest.mark.parametrize(
    ("name", "span", "low", "high"),
    [
        ("ne", (45.0, 90.0), 1.6, math.inf),
        ("up", (60.0, 110.0), 0.15, 1.8),
        ("southwest", (180.0, 270.0), 0.15, 1.4),
    ],
)
def test_a_mix_holds_the_headings_and_speeds_that_it_is_named_for(
    name: str, span: tuple[float, float], low: float, high: float
) -> None:
    starts = read_starts(SHOAL / "starts" / f"{name}.json")
    evaluated = {seed for lot in range(5) for seed in draw_lot(411232, 12, lot)}
    assert len({start.id for start in starts}) == 48
    for start in starts:
        assert start.snapshot is not None
        vx, vy = (float(v) for v in start.snapshot["predator_vel"])
        assert in_range(math.degrees(math.atan2(vy, vx)), span)
        assert low <= math.hypot(vx, vy) <= high
        assert start.seed not in evaluated


@pytest.mark.parametrize("path", sorted(MARIO.glob("*.toml")), ids=lambda p: p.stem)
def test_a_config_of_mario_resolves_and_its_scripts_can_be_played(path: Path) -> None:
    from holdfast.probes.forward import check_scripts

    config = resolve(str(path))
    plan = make_plan(config, config.world.options.games)
    steps = plan.updates * config.world.options.games * config.learner.steps
    assert 20_000 <= steps <= 10_000_000
    assert not config.probe.deterministic and config.guards.progress.enabled
    check_scripts(config.world.name, config.guards.bootstrap.scripts())
    assert f"holdfast train configs/mario/{path.name} --run" in path.read_text()


def test_the_config_for_tiles_is_what_train_mario_does() -> None:
    named, plain = resolve(str(MARIO / "1-1-tiles.toml")), resolve("mario")
    kept = ("run.checkpoint_every", "run.keep_every")
    assert [d for d in differences(plain, named) if not d.startswith(kept)] == []
