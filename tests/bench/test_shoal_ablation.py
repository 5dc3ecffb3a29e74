from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.settings import overrides
from holdfast.config import resolve
from holdfast.plan import make_plan

ROOT = Path(__file__).parent.parent.parent


BEGIN, END = "<!-- ablation: begin -->", "<!-- ablation: end -->"


@pytest.fixture
def ablation(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    spec = importlib.util.spec_from_file_location(
        "shoal_ablation", ROOT / "bench/shoal_ablation.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("quick", [True, False])
def test_every_variant_is_a_valid_config_of_about_the_same_length(
    ablation: Any, quick: bool
) -> None:
    steps = {}
    for name, settings in ablation.variants(quick).items():
        words = [*settings, *(ablation.QUICK if quick else ())]
        config = resolve(str(ablation.CONFIG), overrides(words))
        plan = make_plan(config, 1)
        steps[name] = sum((p.last - p.first + 1) * p.options.fish for p in plan.phases)
    assert max(steps.values()) <= 1.05 * min(steps.values()), steps


def test_differences_are_paired_by_training_seed(ablation: Any) -> None:
    def row(value: float) -> dict[str, float]:
        about = {"min_final": 0.1, "ed100": 0.2, "death_step_mean": 9.0, "env_steps": 1e6}
        return {"avg_final": value, "episodes": 4, **about}

    results = {"plain": [row(0.1), row(0.5)], "tail replay": [row(0.2), row(0.6)]}
    text = ablation.table(results, quick=False)
    assert "| tail replay |" in text
    assert "+0.100 [+0.100, +0.100] | 2 of 2" in text
    assert "--quick" not in text


def test_the_interval_is_students(ablation: Any) -> None:
    low, high = ablation.interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (low, high) == pytest.approx((3 - 2.776 * 0.70711, 3 + 2.776 * 0.70711), abs=1e-4)


def test_the_table_replaces_what_stands_between_the_markers(ablation: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"a\n{BEGIN}\nold\n{END}\nb\n")
    ablation.insert(page, "| new |", "ablation")
    assert page.read_text() == f"a\n{BEGIN}\n| new |\n{END}\nb\n"
    page.write_text("no markers")
    with pytest.raises(SystemExit, match="no markers"):
        ablation.insert(page, "x", "ablation")
