"""The pictures of guards, tails and evaluations: made where there are data, left out where there are none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from view_recorded import line, probe, write_lines, write_run

from holdfast.guards.whatif import Difference, Made
from holdfast.store.files import write_json
from holdfast.view import plots_shoal, plots_tails
from holdfast.view.files import RunFiles
from holdfast.view.growth import make_growth
from holdfast.view.plots import make_plots
from holdfast.view.plots_whatif import differing, draw_whatif
from holdfast.view.report import write_report

Only = Callable[..., None]


@pytest.mark.parametrize(
    "draw",
    [
        plots_tails.survival,
        plots_tails.first_death,
        plots_tails.penalty_first_death,
        plots_tails.penalty_entropy,
        plots_tails.eval_timeline,
        plots_tails.tail_queue,
        plots_tails.start_types,
        plots_shoal.step_one_polar,
        plots_shoal.death_histograms,
    ],
)
def test_a_picture_without_data_is_left_out(
    draw: Callable[[RunFiles], object], tmp_path: Path
) -> None:
    (tmp_path / "run.toml").write_text('[world]\nname = "shoal"\n')
    assert draw(RunFiles(tmp_path)) is None
    (tmp_path / "run.toml").write_text('[world]\nname = "CartPole-v1"\n')
    lines = [{k: v for k, v in line(u).items() if "/" not in k or "train" in k} for u in (1, 2, 3)]
    write_lines(tmp_path / "metrics.jsonl", lines)
    assert draw(RunFiles(tmp_path)) is None


def test_a_penalty_that_never_changes_has_no_picture(tmp_path: Path) -> None:
    run = write_run(tmp_path / "tiny")
    constant = [line(u, **{"world/density_penalty": 0.05}) for u in range(1, 5)]
    write_lines(run / "metrics.jsonl", constant)
    assert plots_tails.penalty_entropy(RunFiles(run)) is None


def test_no_first_death_is_not_drawn_as_minus_one(tmp_path: Path) -> None:
    values = plots_tails.died(RunFiles(write_run(tmp_path / "tiny")))
    assert np.isnan(values[0])
    assert values[1] == 12.0


@pytest.mark.parametrize(
    ("probe", "limit"),
    [("", 150), ("world = {max_steps = 500}", 500), ('protocol = "v36"', 500)],
)
def test_pictures_of_an_evaluation_reach_to_the_end_of_its_own_episodes(
    tmp_path: Path, probe: str, limit: int
) -> None:
    run = RunFiles(write_run(tmp_path / "tiny"))
    config = run.path / "run.toml"
    text = config.read_text().replace("max_steps = 500", "max_steps = 150")
    config.write_text(f"{text}\n[probe]\n{probe}\n")
    for draw in (plots_shoal.deaths, plots_shoal.death_histograms):
        figure = draw(run)
        assert figure is not None and figure.axes[0].get_xlim() == (0, limit)
    timeline = plots_tails.eval_timeline(run)
    assert timeline is not None and timeline.axes[2].get_ylim()[1] == pytest.approx(1.1 * limit)


def test_ten_tail_stages_stand_in_their_order(tmp_path: Path) -> None:
    run = write_run(tmp_path / "tiny")
    left = {f"guard/tails/stage_{k}_remaining_ratio": 0.5 for k in (10, 2, 1)}
    write_lines(run / "metrics.jsonl", [line(u, **left) for u in range(1, 5)])
    figure = plots_tails.tail_queue(RunFiles(run))
    assert figure is not None
    shown = [str(one.get_label()) for one in figure.axes[0].get_lines()]
    stages = [label for label in shown if label.startswith("stage")]
    assert stages == ["stage 1", "stage 2", "stage 10"]


@pytest.mark.parametrize(("overrides", "panels"), [(3, 2), (0, None)])
def test_a_run_that_only_mines_shows_what_became_of_its_starts(
    overrides: int, panels: int | None, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "tiny")
    tails = {"guard/tails/capacity": 0, "guard/tails/overrides": overrides}
    write_lines(run / "metrics.jsonl", [line(u, **tails) for u in range(1, 5)])
    figure = plots_tails.tail_queue(RunFiles(run))
    assert (figure and len(figure.axes)) == panels


def test_warning_spans_are_the_stretches_that_are_active() -> None:
    assert plots_tails.spans([0, 1, 1, 0, 1]) == [(1, 2), (4, 4)]
    assert plots_tails.spans([]) == []


def test_the_curve_grows_to_the_whole_run(tmp_path: Path) -> None:
    (path,) = make_growth(write_run(tmp_path / "tiny"))
    with Image.open(path) as image:
        assert image.n_frames > 5
    (tmp_path / "empty").mkdir()
    assert make_growth(tmp_path / "empty") == []


def test_the_report_shows_the_worst_film_of_every_evaluation_and_lists_all(tmp_path: Path) -> None:
    run = write_run(tmp_path / "tiny")
    folder = run / "media" / "evals"
    folder.mkdir(parents=True)
    for update in (4, 8):
        told = []
        for rank in ("worst", "best"):
            name = f"u{update:06d}-{rank}.mp4"
            (folder / name).write_bytes(b"film")
            replay = f"holdfast watch tiny --checkpoint {update} --seed 11"
            about = {"rank": rank, "file": name, "update": update, "seed": 11, "final": 0.6}
            told.append({**about, "replay": replay})
        write_json(folder / f"u{update:06d}.json", told)
    (folder / "u000012.json").write_text("broken")
    text = write_report(run).read_text()
    assert text.count("data:video/mp4;base64,") == 2
    assert text.count("holdfast watch tiny --checkpoint 8") == 2


def test_a_timeline_without_a_gate_and_with_one_probe_is_drawn(tmp_path: Path, only: Only) -> None:
    only("eval_timeline", "death_histograms")
    run = write_run(tmp_path / "tiny")
    (run / "journal.jsonl").write_text("")
    write_lines(run / "evals.jsonl", [probe(4, 0.7)])
    assert [p.stem for p in make_plots(run)] == ["eval_timeline"]


def test_whatif_draws_what_differs_and_no_more(tmp_path: Path) -> None:
    lines = [{"update": u, "guard/gate/phase_limit": 4, "guard/gate/event": ""} for u in (1, 2, 3)]
    series = {"guard/gate/phase_limit": [4, 5, 5], "guard/gate/event": ["", "advance", ""]}
    assert differing(lines, series) == ["guard/gate/phase_limit"]
    made = Made("hold_phase", "noop", 4), Made("advance_phase", "advance", 5)
    for name, found in (("some", [Difference(2, "gate", *made)]), ("none", [])):
        path = tmp_path / name / "whatif.png"
        draw_whatif(path, lines, series, found, ["guards.gate.lock_until: 28 -> 0"])
        with Image.open(path) as image:
            assert image.width >= 800
