"""The pictures of self-play: made from the records of a run, left out where there are none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from holdfast.probes.stats import wilson
from holdfast.selfplay.ratings import ratings
from holdfast.selfplay.records import (
    CrossPlay,
    Evaluation,
    Exploitability,
    Rate,
    Response,
    StartGrid,
    Summary,
    read_evaluations,
    read_summary,
    to_plain,
)
from holdfast.selfplay.verdict import analyse, classify
from holdfast.store.journal import plain
from holdfast.view import plots_pursuit
from holdfast.view.files import RunFiles
from holdfast.view.plots_pursuit import PURSUIT
from holdfast.view.selfplay import selfplay_parts
from holdfast.view.style import house_style

ROLES = ("both", "both", "pursuer", "pursuer", "evader", "evader", "pursuer", "both")


def evaluation(k: int, **more: Any) -> Evaluation:
    wins = round(1000 * (0.5 + 0.35 * np.sin(k / 2.5)))
    captures = np.round(wins * np.exp(-np.arange(20) / 6) / 6.3).astype(int).tolist()
    fields = {
        "update": 10 * k,
        "env_steps": 250_000 * k,
        "phase": f"S{k}",
        "role": ROLES[k % len(ROLES)],
        "level": 1.0 + k // 5,
        "sr_p": wins / 1000,
        "low": wilson(wins, 1000)[0],
        "high": wilson(wins, 1000)[1],
        "games": 1000,
        "ne_gap": abs(2 * wins / 1000 - 1),
        "capture_time_mean": 9.0 - 0.1 * k,
        "captures_by_time": tuple(captures),
        "time_limit_s": 30.0,
    }
    return Evaluation(**{**fields, **more})


def response(role: str, sr_p: float, gain: float) -> Response:
    spread = Rate(gain, max(gain - 0.02, 0), gain + 0.02)
    return Response(role, Rate(sr_p, sr_p - 0.02, sr_p + 0.02), spread, 800, 1000, 6)


def exploitability(k: int) -> Exploitability:
    up, down = 0.3 / k, 0.2 / k
    return Exploitability(
        update=10 * k,
        env_steps=1_000_000 * k,
        games=5000,
        incumbent=Rate(0.5, 0.486, 0.514),
        pursuer=response("pursuer", 0.5 + up, up),
        evader=response("evader", 0.5 - down, down),
        value_low=0.5 - down,
        value_high=0.5 + up,
        exploitability=Rate(up + down, up + down - 0.03, up + down + 0.03),
    )


def table(size: int = 5) -> CrossPlay:
    strength = np.linspace(-1.5, 1.5, size)
    chance = 1 / (1 + np.exp(strength[None] - strength[:, None]))
    counts = np.round(500 * chance).astype(int).tolist()
    ends = [[wilson(c, 500) for c in row] for row in counts]
    names = tuple(f"u{40 * k}" for k in range(1, size + 1))
    return CrossPlay(
        pursuers=names,
        evaders=names,
        games=500,
        captures=tuple(map(tuple, counts)),
        low=tuple(tuple(e[0] for e in row) for row in ends),
        high=tuple(tuple(e[1] for e in row) for row in ends),
    )


def grid(of: str) -> StartGrid:
    edges = tuple(np.linspace(-5, 5, 11).tolist())
    games = np.full((10, 10), 50)
    games[0, 0] = 2
    caught = np.round(games * np.linspace(0, 1, 10)[:, None]).astype(int)
    return StartGrid(
        of, edges, edges, tuple(map(tuple, caught.tolist())), tuple(map(tuple, games.tolist()))
    )


def write(run: Path, lines: list[Evaluation], summary: Summary | None = None) -> RunFiles:
    run.mkdir(exist_ok=True)
    text = "".join(json.dumps(plain(to_plain(line))) + "\n" for line in lines)
    (run / "selfplay.jsonl").write_text(text)
    if summary is not None:
        (run / "selfplay.json").write_text(json.dumps(plain(to_plain(summary))))
    return RunFiles(run)


def whole(run: Path) -> RunFiles:
    lines = [evaluation(k) for k in range(1, 25)]
    found = tuple(exploitability(k) for k in range(1, 6))
    analysis = analyse(lines)
    assert analysis is not None
    summary = Summary(
        crossplay=table(),
        elo=ratings(table()),
        exploitability=found,
        verdict=classify(found[-1]),
        analysis=analysis,
        starts=(grid("evader"), grid("relative")),
    )
    return write(run, lines, summary)


def test_records_come_back_from_their_files_as_they_were(tmp_path: Path) -> None:
    files = whole(tmp_path / "r")
    assert plots_pursuit.evaluations(files) == [evaluation(k) for k in range(1, 25)]
    found = plots_pursuit.summary(files)
    assert found.crossplay == table()
    assert found.exploitability[0] == exploitability(1)
    assert found.elo == ratings(table())
    assert found.starts == (grid("evader"), grid("relative"))
    assert found.verdict == classify(exploitability(5))


def test_the_analysis_follows_from_all_evaluations_however_old_the_summary_is(
    tmp_path: Path,
) -> None:
    files = whole(tmp_path / "r")
    write(tmp_path / "r", [evaluation(k) for k in range(1, 31)])
    analysis = plots_pursuit.summary(files).analysis
    assert analysis is not None
    assert (analysis.evaluations, analysis.final.value) == (30, evaluation(30).sr_p)


def test_the_analysis_goes_by_the_level_of_the_run(tmp_path: Path) -> None:
    even = evaluation(1, sr_p=0.5, low=0.47, high=0.53, level=2.0)
    files = write(tmp_path / "r", [even])
    found = plots_pursuit.summary(files).analysis
    assert found is not None and found.converged
    settings = "[world]\nname = 'pursuit'\n[guards.balance]\nenabled = true\n"
    settings += "[guards.balance.curriculum]\nkind = 'smooth'\n"
    (tmp_path / "r" / "run.toml").write_text(settings)
    found = plots_pursuit.summary(RunFiles(tmp_path / "r")).analysis
    assert found is not None and not found.converged


def test_the_gap_stands_beside_the_threshold_of_the_run(tmp_path: Path) -> None:
    run = write(tmp_path / "r", [evaluation(1)])
    protocol = "[guards.protocol]\nenabled = true\nconverged_gap = 0.25\n"
    for eta, settings in ((0.1, ""), (0.25, protocol)):
        (run.path / "run.toml").write_text('[world]\nname = "pursuit"\n' + settings)
        figure = plots_pursuit.gap(RunFiles(run.path))
        assert figure is not None
        labels = [line.get_label() for line in figure.axes[0].lines]
        assert f"eta = {eta:g}" in labels


def test_every_picture_is_made_and_wide_enough(tmp_path: Path) -> None:
    files = whole(tmp_path / "r")
    with house_style():
        for plot in PURSUIT:
            figure = plot.draw(files)
            assert figure is not None, plot.name
            figure.savefig(tmp_path / f"{plot.name}.png")
            with Image.open(tmp_path / f"{plot.name}.png") as image:
                assert image.width >= 800, plot.name
    assert len({plot.name for plot in PURSUIT}) == len(PURSUIT) == 8


@pytest.mark.parametrize("plot", PURSUIT, ids=lambda plot: plot.name)
@pytest.mark.parametrize("content", [None, "", "{", '{"update": 1}\n[1]\nnull\n'])
def test_missing_or_broken_files_give_no_picture_and_no_error(
    plot: Any, content: str | None, tmp_path: Path
) -> None:
    if content is not None:
        for name in ("selfplay.jsonl", "selfplay.json"):
            (tmp_path / name).write_text(content)
    assert plot.draw(RunFiles(tmp_path)) is None


def test_a_broken_line_is_left_out_and_the_rest_is_drawn(tmp_path: Path) -> None:
    files = write(tmp_path / "r", [evaluation(1), evaluation(2)])
    with open(tmp_path / "r" / "selfplay.jsonl", "a") as file:
        file.write('{"update": 3, "env_steps": "many"}\n{"upd')
    assert [e.update for e in plots_pursuit.evaluations(files)] == [10, 20]
    assert plots_pursuit.rates(files) is not None


def test_a_summary_without_some_parts_draws_the_others(tmp_path: Path) -> None:
    files = write(tmp_path / "r", [], Summary(crossplay=table(3)))
    assert plots_pursuit.crossplay(files) is not None
    assert plots_pursuit.elo(files) is None
    assert plots_pursuit.starts(files) is None
    assert plots_pursuit.exploitability(files) is None


def test_the_report_says_what_was_measured_in_words(tmp_path: Path) -> None:
    text = "\n".join(selfplay_parts(whole(tmp_path / "r")))
    assert "Undecided at epsilon 0.05" in text
    assert "3 certain changes of the winner; period " in text
    assert text.count("best of 6, after 800 of 1.0k steps") == 10
    assert "value in [0.46, 0.56]" in text
    assert [part for part in selfplay_parts(RunFiles(tmp_path)) if part] == []


def spans(figure: Figure) -> list[tuple[float, float]]:
    found = [p for p in figure.axes[0].patches if isinstance(p, Rectangle)]
    return [(p.get_x(), p.get_x() + p.get_width()) for p in found]


def test_stretches_in_which_the_same_role_trained_are_shaded_as_one(tmp_path: Path) -> None:
    roles = ("pursuer", "pursuer", "evader", "pursuer")
    lines = [evaluation(k, role=role) for k, role in enumerate(roles, 1)]
    figure = plots_pursuit.rates(write(tmp_path / "r", lines))
    assert figure is not None
    assert spans(figure) == [(0, 500_000), (500_000, 750_000), (750_000, 1_000_000)]
    names = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert sorted(names) == ["SR_P, 95 % interval", "evader trained", "pursuer trained"]


def test_a_curriculum_that_never_moved_has_no_picture(tmp_path: Path) -> None:
    assert plots_pursuit.levels(write(tmp_path / "r", [evaluation(1), evaluation(2)])) is None


@pytest.mark.parametrize("draw", [plots_pursuit.rates, plots_pursuit.capture_times])
def test_one_evaluation_without_a_capture_is_enough(
    draw: Callable[[RunFiles], Figure | None], tmp_path: Path
) -> None:
    one = evaluation(1, sr_p=0.0, low=0.0, capture_time_mean=None, captures_by_time=(0,) * 20)
    assert draw(write(tmp_path / "r", [one])) is not None


def test_cells_with_too_few_games_are_left_grey(tmp_path: Path) -> None:
    figure = plots_pursuit.starts(write(tmp_path / "r", [], Summary(starts=(grid("evader"),))))
    assert figure is not None
    values = np.ma.filled(figure.axes[0].collections[0].get_array(), np.nan)
    assert np.isnan(values).sum() == 1


def test_lines_may_carry_more_than_is_read() -> None:
    line = {**plain(to_plain(evaluation(1))), "wall_s": 3.0}
    assert read_evaluations([line, {"other": 1}]) == [evaluation(1)]
    assert read_summary({}) == Summary()


def test_a_part_that_cannot_be_read_takes_no_other_with_it(tmp_path: Path) -> None:
    files = whole(tmp_path / "r")
    path = tmp_path / "r" / "selfplay.json"
    fields = json.loads(path.read_text())
    fields["crossplay"] = {"games": 3}
    path.write_text(json.dumps(fields))
    found = plots_pursuit.summary(files)
    assert found.crossplay is None
    assert found.elo == ratings(table())
