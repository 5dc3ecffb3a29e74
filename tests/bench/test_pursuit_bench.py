"""The scripts behind the tables of docs/pursuit.md: their variants are valid, their tables fit their markers."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.cli.settings import overrides
from holdfast.config import leaves, resolve

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    names = ("many_runs", "pursuit_answers", "pursuit_ablation", "pursuit_stability")
    yield lambda name: importlib.import_module(name)
    for name in names:
        sys.modules.pop(name, None)


def test_every_variant_differs_from_its_base_as_its_name_says(bench: Any) -> None:
    ablation = bench("pursuit_ablation")
    changed = {}
    for group in ablation.GROUPS:
        settings = {
            n: leaves(resolve(str(ablation.CONFIG), overrides(w))) for n, w in group.items()
        }
        assert len({str(own) for own in settings.values()}) == len(group), "two are the same"
        base = next(iter(settings.values()))
        for name, own in settings.items():
            changed[name] = {key for key in base if own[key] != base[key]}
    assert changed["full"] == changed["turns"] == set()
    assert changed["no past opponents"] == {"selfplay.history"}
    assert changed["with EWC"] == {"guards.balance.protect"}
    assert changed["turns, EWC"] == {"guards.protocol.protect"}
    assert all(changed[name] for name in changed if name not in {"full", "turns"})


def test_the_two_bases_differ_in_who_learns_when_alone(bench: Any) -> None:
    ablation = bench("pursuit_ablation")
    at_once = resolve(str(ablation.CONFIG), overrides(ablation.VARIANTS["full"]))
    turns = resolve(str(ablation.CONFIG), overrides(ablation.VARIANTS["turns"]))
    assert at_once.guards.balance.enabled and not at_once.guards.protocol.enabled
    assert turns.guards.protocol.enabled and not turns.guards.balance.enabled
    assert turns.guards.protocol.curriculum == at_once.guards.balance.curriculum


def test_differences_are_paired_with_the_base_of_the_group(bench: Any) -> None:
    ablation = bench("pursuit_ablation")

    def record(seed: int, exploitability: float) -> dict[str, Any]:
        return {
            "seed": seed,
            "exploitability": exploitability,
            "outside": 0.0,
            "pursuer": 0.5,
            "evader": 0.5,
            "lowest": 0.2,
            "highest": 0.8,
            "full_level": True,
            "rollbacks": 0,
            "env_steps": 2_000_000,
        }

    text = ablation.table(
        {
            "full": [record(1, 0.10), record(2, 0.30)],
            "no levels": [record(1, 0.20), record(2, 0.40)],
            "turns": [record(1, 0.50), record(2, 0.60)],
            "turns, EWC": [record(1, 0.40), record(2, 0.50)],
        }
    )
    rows = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("| ")}
    assert "+0.100 [+0.100, +0.100]" in rows["no levels"]
    assert "-0.100 [-0.100, -0.100]" in rows["turns, EWC"]
    assert "2 of 2" in rows["turns, EWC"]


def test_the_margin_of_a_difference_is_that_of_a_two_way_layout(bench: Any) -> None:
    runs = bench("many_runs")
    assert [round(runs.student(n), 3) for n in (1, 2, 8, 16, 30)] == [
        12.706,
        4.303,
        2.306,
        2.12,
        2.042,
    ]
    values = np.array([[1.0, 2.0, 3.0], [2.0, 2.0, 5.0]])
    # Differences 1, 0, 2: with two rows it is the paired interval of Student, 4.303 / sqrt(3).
    assert runs.margin(values) == pytest.approx(4.303 / np.sqrt(3))
    assert runs.margin(values + np.array([5.0, 0.0, -3.0])) == pytest.approx(runs.margin(values))
    assert np.isnan(runs.margin(values[:, :1]))


@pytest.mark.parametrize(
    "mark", ["stability", "ablation", "chauffeur", "faster", "strength", "speed"]
)
def test_the_page_has_a_place_for_every_table(bench: Any, tmp_path: Path, mark: str) -> None:
    copy = tmp_path / "pursuit.md"
    copy.write_text((ROOT / "docs" / "pursuit.md").read_text())
    bench("many_runs").insert(copy, "a table", mark)
    assert f"<!-- {mark}: begin -->\na table\n<!-- {mark}: end -->" in copy.read_text()
    with pytest.raises(SystemExit, match="no markers"):
        bench("many_runs").insert(copy, "a table", "nowhere")


def test_the_chauffeur_is_measured_against_its_table(bench: Any) -> None:
    answers = bench("pursuit_answers")
    options = resolve(str(answers.CONFIGS / "chauffeur.toml")).world.options
    table = answers.solve(cell=0.1, extent=4.0)
    starts = [(2.0, 0.0), (0.0, 1.0), (-1.0, 0.5)]
    pair = tuple(answers.ChauffeurPolicy(table, role) for role in answers.ROLES)
    times = answers.capture_times(table, options, starts, pair)
    for (x, y), seconds in zip(starts, times, strict=True):
        assert seconds == pytest.approx(table.value(x, y), rel=0.1)
