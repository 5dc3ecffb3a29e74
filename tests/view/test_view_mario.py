"""Pictures of a mario run: made from what it records, left out where there is nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from view_recorded import write_lines

from holdfast.view import plots_mario
from holdfast.view.files import RunFiles
from holdfast.view.finish import summary
from holdfast.view.plots import make_plots
from holdfast.view.report import write_report

ENDS = ("clear", "death_enemy", "death_pit", "stagnation", "forced")


def line(update: int) -> dict[str, Any]:
    return {
        "update": update,
        "env_steps": 1000 * update,
        "episode/return_mean": 5.0 * update,
        "episode/length_steps": 100.0,
        "mario/clear": 0.02 * update,
        "mario/best_x": 200.0 * update,
        "mario/end_clear": 0.02 * update,
        "mario/end_death_enemy": 0.9 - 0.02 * update,
        "mario/end_death_pit": 0.1,
        "mario/end_warp": 0.0,
        "mario/reward_progress": 10.0 * update,
        "mario/reward_death": -1.7,
        "mario/reward_coins": 0.0,
    }


def probe(update: int) -> dict[str, Any]:
    return {
        "update": update,
        "env_steps": 1000 * update,
        "seeds": [1, 2, 3, 4],
        "metrics": {
            "clear_rate": 0.5,
            "best_x_mean": 1500.0,
            "return_mean": 90.0,
            "stage_1-1/clear_rate": 1.0,
            "stage_1-2/clear_rate": 0.0,
        },
        "intervals": {"clear_rate": [0.0, 1.0]},
        "detail": {
            "cleared": [1, 0, 1, 0],
            "best_x": [3161.0, 700.0, 3161.0, 20.0],
            "ended": ["clear", "death_enemy", "clear", "death_pit"],
            "stage": ["1-1", "1-2", "1-1", "1-2"],
            "end_x": [3161.0, 690.0, 3161.0, 10.0],
            "stages": {
                "1-1": {"episodes": 2, "clear_rate": 1.0, "clear_interval": [0.34, 1.0]},
                "1-2": {"episodes": 2, "clear_rate": 0.0, "clear_interval": [0.0, 0.66]},
            },
            "actions": {"RIGHT": 0.7, "RIGHT+A": 0.3},
        },
    }


def write_mario(path: Path) -> Path:
    path.mkdir()
    (path / "run.toml").write_text('[world]\nname = "mario"\n[run]\nname = "m"\nupdates = 12\n')
    write_lines(path / "metrics.jsonl", [line(u) for u in range(1, 13)])
    write_lines(path / "evals.jsonl", [probe(6), probe(12)])
    rows = [
        {
            "update": 1 + k // 10,
            "ended": ENDS[k % 5],
            "facts/x": 40.0 * k,
            "facts/world": 1.0,
            "facts/stage": 1.0 + k % 2,
        }
        for k in range(80)
    ]
    write_lines(path / "episodes.jsonl", rows)
    return path


def test_every_picture_of_a_mario_run_is_made(tmp_path: Path) -> None:
    run = write_mario(tmp_path / "m")
    made = {p.stem for p in make_plots(run)}
    assert {plot.name for plot in plots_mario.MARIO} <= made
    assert "learning" in made
    assert not {"tail", "deaths", "eval_timeline"} & made
    for name in ("mario_places", "mario_clear_rates"):
        with Image.open(run / "plots" / f"{name}.png") as image:
            assert image.width > 1500
    text = write_report(run).read_text()
    for words in ("Where episodes end", "Clear rate by stage", "Furthest x"):
        assert words in text
    assert summary(run) == "m: cleared 0.5000 [0, 1.000], furthest x 1500; 4 episodes, update 12"


@pytest.mark.parametrize("plot", [plot.draw for plot in plots_mario.MARIO])
def test_without_data_there_is_no_picture(
    plot: Callable[[RunFiles], object], tmp_path: Path
) -> None:
    for world in ("mario", "shoal"):
        (tmp_path / "run.toml").write_text(f'[world]\nname = "{world}"\n')
        assert plot(RunFiles(tmp_path)) is None


def test_ends_come_from_training_and_from_the_probe_where_there_is_none(tmp_path: Path) -> None:
    run = write_mario(tmp_path / "m")
    rows = plots_mario.recent_ends(RunFiles(run))
    assert len(rows) == 64, "forced ends tell nothing about the level"
    assert rows[1] == ("1-2", 40.0, "death_enemy")
    (run / "episodes.jsonl").write_text("")
    assert plots_mario.recent_ends(RunFiles(run)) == [
        ("1-1", 3161.0, "clear"),
        ("1-2", 690.0, "death_enemy"),
        ("1-1", 3161.0, "clear"),
        ("1-2", 10.0, "death_pit"),
    ]


def test_shares_of_ends_begin_with_the_first_episode(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('[world]\nname = "mario"\n')
    silent = {"update": 1, "env_steps": 1000}
    write_lines(tmp_path / "metrics.jsonl", [silent, *(line(k) for k in range(2, 6))])
    figure = plots_mario.ends(RunFiles(tmp_path))
    assert figure is not None
    assert figure.axes[0].dataLim.x0 == 2000, "where nothing has ended there are no shares"


def test_ends_that_a_script_caused_are_left_out(tmp_path: Path) -> None:
    run = write_mario(tmp_path / "m")
    end = {"ended": "death_pit", "facts/x": 9.0, "facts/world": 1.0, "facts/stage": 1.0}
    rows = [{**end, "facts/scripted": 5.0}, {**end, "facts/scripted": 0.0, "facts/x": 7.0}]
    write_lines(run / "episodes.jsonl", rows)
    assert plots_mario.recent_ends(RunFiles(run)) == [("1-1", 7.0, "death_pit")]


@pytest.mark.parametrize("most", [0.06, 0.18, 0.3, 0.7, 1.0])
def test_the_axis_of_actions_says_what_its_ticks_are(most: float, tmp_path: Path) -> None:
    run = write_mario(tmp_path / "m")
    told = probe(6)
    told["detail"]["actions"] = {"RIGHT": most, "NOOP": most / 2}
    write_lines(run / "evals.jsonl", [told])
    figure = plots_mario.actions(RunFiles(run))
    assert figure is not None
    axis = figure.axes[0].xaxis
    labels = axis.get_major_formatter().format_ticks(axis.get_majorticklocs())
    assert [float(label.strip("%")) / 100 for label in labels] == pytest.approx(
        list(axis.get_majorticklocs())
    )


def test_stages_stand_in_the_order_of_the_game() -> None:
    names = ["2-1", "10-1", "1-4", "1-1"]
    assert sorted(names, key=plots_mario.stage_order) == ["1-1", "1-4", "2-1", "10-1"]
