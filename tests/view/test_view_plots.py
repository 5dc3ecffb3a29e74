from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image
from view_recorded import decision, line, probe, write_lines, write_run

from holdfast.view import plots
from holdfast.view.files import RunFiles
from holdfast.view.plots import make_plots, smooth, time_parts
from holdfast.view.style import WIDE

Only = Callable[..., None]


def test_a_shoal_run_gets_every_plot(plotted: Path) -> None:
    made = sorted((plotted / "plots").iterdir())
    others = ("mario_", "selfplay_")
    expected = [plot.name for plot in plots.plots() if not plot.name.startswith(others)]
    assert [p.stem for p in made] == sorted(expected)
    for path in made:
        with Image.open(path) as image:
            assert image.width >= 800, path.name


def test_the_names_of_plots_are_unique() -> None:
    names = [plot.name for plot in plots.plots()]
    assert len(set(names)) == len(names)


def test_a_plot_without_data_is_not_made_and_an_old_one_is_removed(
    tmp_path: Path, only: Only
) -> None:
    only("deaths", "tail", "learning")
    run = write_run(tmp_path / "tiny")
    (run / "plots").mkdir()
    (run / "plots" / "deaths.png").write_bytes(b"old")
    (run / "evals.jsonl").write_text("")
    names = {p.name for p in make_plots(run)}
    assert "deaths.png" not in names
    assert "tail.png" not in names
    assert "learning.png" in names
    assert not (run / "plots" / "deaths.png").exists()


@pytest.mark.parametrize("content", ["", "\n", '{"update": 1', "[1, 2]\n", "\x00\x01\n"])
def test_missing_empty_or_broken_files_give_no_plots_and_no_error(
    tmp_path: Path, content: str
) -> None:
    assert make_plots(tmp_path) == []
    for name in ("metrics", "evals", "journal", "episodes", "sessions"):
        (tmp_path / f"{name}.jsonl").write_text(content)
    (tmp_path / "run.toml").write_text("= broken")
    assert make_plots(tmp_path) == []


def test_one_update_and_one_probe_without_a_ceiling_are_enough(tmp_path: Path, only: Only) -> None:
    only("learning", "deaths", "seeds")
    write_lines(tmp_path / "metrics.jsonl", [line(1)])
    one = probe(1, 0.5)
    del one["metrics"]["ceiling_avg_final"], one["detail"]["survivable"]
    one["intervals"] = {}
    write_lines(tmp_path / "evals.jsonl", [one])
    assert {"learning.png", "deaths.png"} <= {p.name for p in make_plots(tmp_path)}


def test_a_world_that_is_not_ours_gets_its_return_as_the_learning_curve(
    tmp_path: Path, only: Only
) -> None:
    only("learning", "tail")
    (tmp_path / "run.toml").write_text('[world]\nname = "CartPole-v1"\n')
    lines = [{k: v for k, v in line(u).items() if "shoal" not in k} for u in range(1, 9)]
    write_lines(tmp_path / "metrics.jsonl", lines)
    names = {p.name for p in make_plots(tmp_path)}
    assert "learning.png" in names
    assert "tail.png" not in names
    assert RunFiles(tmp_path).main == "return_mean"


def test_numbers_that_are_null_are_left_out(tmp_path: Path, only: Only) -> None:
    only("learning", "time")
    broken = line(2, **{"train/value_loss": None, "shoal/survival": None, "time/update_s": None})
    write_lines(tmp_path / "metrics.jsonl", [line(1), broken, line(3)])
    write_lines(tmp_path / "journal.jsonl", [decision(2, "x"), decision(99, "no such update")])
    assert make_plots(tmp_path)
    assert np.isnan(RunFiles(tmp_path).column("train/value_loss")[1])


def test_the_house_style_leaves_no_trace(tmp_path: Path, only: Only) -> None:
    only("tail")
    before = json.dumps({k: str(v) for k, v in mpl.rcParams.items()})
    make_plots(write_run(tmp_path / "tiny"))
    assert json.dumps({k: str(v) for k, v in mpl.rcParams.items()}) == before


def test_the_parts_of_an_update_add_up_to_its_time(tmp_path: Path) -> None:
    run = RunFiles(write_run(tmp_path / "tiny"))
    assert np.allclose(sum(time_parts(run).values()), run.column("time/update_s"))


def test_smoothing_keeps_a_constant_and_skips_what_is_missing() -> None:
    values = np.full(50, 3.0)
    values[10] = np.nan
    assert np.allclose(smooth(values), 3.0)
    assert np.array_equal(smooth(np.array([1.0, 2.0])), [1.0, 2.0])


def test_a_lone_schedule_is_drawn_as_wide_as_the_report_shows_it(tmp_path: Path) -> None:
    run = tmp_path / "lone"
    run.mkdir()
    rows = [{"update": k, "env_steps": 100 * k, "train/lr": 1e-3 / k} for k in (1, 2, 3)]
    write_lines(run / "metrics.jsonl", rows)
    figure = plots.schedules(RunFiles(run))
    assert figure is not None and figure.get_figwidth() == WIDE
