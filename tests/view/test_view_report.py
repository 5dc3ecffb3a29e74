from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from view_recorded import line, write_lines, write_run

from holdfast.cli.settings import overrides
from holdfast.config import differences, resolve, to_toml
from holdfast.store.journal import Lines
from holdfast.store.pieces import pieces
from holdfast.view.files import RunFiles
from holdfast.view.finish import finish
from holdfast.view.report import command, repeatable, write_report

VOID = {"meta", "img", "br"}
CONFIGS = Path(__file__).parents[2] / "configs"


class Balance(HTMLParser):
    """Fails when a tag is closed that was not the last one opened."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_report_tells_probes_decisions_sessions_and_settings(tmp_path: Path) -> None:
    text = write_report(write_run(tmp_path / "tiny")).read_text()
    for words in (
        "finished",
        "0.7500",
        "[0.7000, 0.8000]",
        "ceiling 0.9000",
        "health/nonfinite = 3",
        "threshold 0, window 1",
        "the learning rate is cut",
        "resumed",
        "end: interrupted",
        "--seed 7",
        "max_steps = 500",
    ):
        assert words in text, words


def test_the_report_is_well_formed_and_holds_its_pictures(plotted: Path) -> None:
    text = write_report(plotted).read_text()
    parser = Balance()
    parser.feed(text)
    assert parser.open == []
    made = len(list((plotted / "plots").iterdir()))
    assert parser.seen.count("img") == text.count("data:image/png;base64,") == made > 15


def test_the_report_refers_to_nothing_outside_itself(plotted: Path) -> None:
    text = write_report(plotted).read_text()
    assert "<script" not in text
    assert "@import" not in text
    assert "url(" not in text
    assert re.findall(r"(?:https?:)?//[a-z]", re.sub(r"base64,[^\"]*", "", text)) == []
    for link in re.findall(r'(?:src|href)="([^"]*)"', text):
        assert link.startswith("data:")


def test_names_and_messages_cannot_inject_html(tmp_path: Path) -> None:
    run = write_run(tmp_path / "<b>x&y", message="<script>alert(1)</script>")
    text = write_report(run).read_text()
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "<b>x&y" not in text
    assert "&lt;b&gt;x&amp;y" in text


@pytest.mark.parametrize("content", ["", '{"metrics": 3}\n', "nonsense\n", '{"metrics": {}}\n'])
def test_a_run_with_missing_or_broken_files_still_gets_a_report(
    tmp_path: Path, content: str
) -> None:
    assert "No probe was made" in write_report(tmp_path).read_text()
    for name in ("metrics", "evals", "journal", "episodes", "sessions"):
        (tmp_path / f"{name}.jsonl").write_text(content)
    (tmp_path / "heartbeat.json").write_text(content)
    assert "<h1>" in write_report(tmp_path).read_text()


def test_the_older_pieces_of_long_records_count_too(tmp_path: Path) -> None:
    whole, cut = write_run(tmp_path / "whole"), write_run(tmp_path / "cut")
    for name in ("metrics", "evals", "journal", "episodes"):
        path = cut / f"{name}.jsonl"
        rows = [json.loads(row) for row in path.read_text().splitlines()]
        path.unlink()
        lines = Lines(path, rotate_bytes=1)  # every line is a piece
        for row in rows:
            lines.write(row)
            lines.flush()
        lines.close()
        assert len(pieces(path)) >= len(rows) - 1
    for name in ("metrics", "evals", "journal", "best_update", "trained_s"):
        assert getattr(RunFiles(cut), name) == getattr(RunFiles(whole), name), name
    assert list(RunFiles(cut).episodes) == list(RunFiles(whole).episodes)
    damaged = pieces(cut / "metrics.jsonl")[3]
    damaged.remove()
    damaged.packed.write_bytes(b"no gzip at all")
    assert len(RunFiles(cut).metrics) == 3


def test_the_speed_of_two_updates_is_the_mean_of_both(tmp_path: Path) -> None:
    run = write_run(tmp_path / "tiny")
    lines = [line(1, **{"time/env_steps_per_s": 800.0}), line(2, **{"time/env_steps_per_s": 400.0})]
    write_lines(run / "metrics.jsonl", lines)
    assert "600/s" in write_report(run).read_text()


def test_the_best_probe_stands_out(tmp_path: Path) -> None:
    run = write_run(tmp_path / "tiny")
    text = write_report(run).read_text()
    assert re.search(r'<tr class="best"><td class="n">8</td>', text)
    assert RunFiles(run).best_update == 8


def test_the_command_names_the_seed_and_what_differs_from_the_preset(tmp_path: Path) -> None:
    words = command(RunFiles(write_run(tmp_path / "tiny"))).split()
    assert words[:5] == ["holdfast", "train", "shoal", "--run", "tiny-again"]
    assert words[words.index("--seed") + 1] == "7"
    assert words[words.index("--world.fish") + 1] == "5"
    assert "--world.max-steps" not in words


@pytest.mark.parametrize(
    ("target", "changes"),
    [
        (
            "shoal",
            [("games", 16), ("updates", 24), ("learner.hidden", (8, 8)), ("heading_bias", "")],
        ),
        ("CartPole-v1", [("env_steps", 20000), ("learner.normalise_obs", False)]),
        ("CartPole-v1", [("seed", 3)]),
        (
            "FrozenLake-v1",
            [("kwargs", {"is_slippery": False, "map_name": "8x8", "desc": ["SF", "FG"]})],
        ),
        ("CartPole-v1", [("guards.own", {"a": {"guard": "m:G", "x": 0.5, "y": "2", "z": True}})]),
        ("FrozenLake-v1", [("probe.world.kwargs.is_slippery", "false"), ("facts", "prob,other")]),
        ("CartPole-v1", [("updates", 9), ("run.env_steps", 0)]),
        ("shoal", [("probe.world.fish", 96), ("plan.curriculum", "5:3,6:3")]),
        (str(CONFIGS / "shoal" / "best.toml"), []),
        (str(CONFIGS / "mario" / "phases.toml"), []),
        (str(CONFIGS / "pursuit" / "z1.toml"), []),
    ],
)
def test_the_command_makes_the_same_run_again(
    tmp_path: Path, target: str, changes: list[tuple[str, object]]
) -> None:
    config = resolve(target, [("run", "tiny"), *changes])
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "run.toml").write_text(to_toml(config))
    words = shlex.split(command(RunFiles(tmp_path / "tiny")))
    assert differences(config, resolve(words[2], overrides(words[3:]))) == [
        "run.name: tiny -> tiny-again"
    ]


def test_a_hash_is_promised_only_of_a_run_made_in_one_go(tmp_path: Path) -> None:
    run = write_run(tmp_path / "tiny")
    assert repeatable(RunFiles(run))
    line = {"event": "begin", "update": 4, "resumed": True, "changed": []}
    for changed, same in (([], True), (["run.updates: 4 -> 8"], False)):
        (run / "sessions.jsonl").write_text(json.dumps({**line, "changed": changed}) + "\n")
        assert repeatable(RunFiles(run)) == same


def test_finish_says_where_everything_is(tmp_path: Path, only: Callable[..., None]) -> None:
    only("tail")
    said: list[str] = []
    path = finish(write_run(tmp_path / "tiny"), said.append)
    assert path.is_file()
    assert any(str(path) in text for text in said)
    assert any("plots/tail.png" in text for text in said)
    assert any("survival 0.7500 (ceiling 0.9000)" in text for text in said)


def test_a_failing_plot_does_not_take_the_report_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(run: Path, step: object) -> list[Path]:
        raise ValueError("no ink")

    monkeypatch.setattr("holdfast.view.finish.make_plots", broken)
    said: list[str] = []
    assert finish(write_run(tmp_path / "tiny"), said.append).is_file()
    assert "the plots could not be made: ValueError: no ink" in said
