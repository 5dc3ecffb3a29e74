"""What the README tells people to type works as it stands."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast

README = (Path(__file__).parents[1] / "README.md").read_text()


def commands(after: str) -> list[list[str]]:
    """Return the indented holdfast commands of the block that follows a sentence."""
    block = README.split(after, 1)[1]
    lines = re.match(r"\n*((?:    .*\n)+)", block)
    assert lines is not None, after
    return [
        shlex.split(line, comments=True)
        for line in lines.group(1).splitlines()
        if line.strip().startswith("holdfast")
    ]


@pytest.fixture(scope="module")
def first_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Type the commands of the first page, one after the other; return where."""
    where = tmp_path_factory.mktemp("first_page")
    typed = commands("Train, stop with Ctrl-C, go on, evaluate, look:")
    assert len(typed) >= 6
    for words in typed:
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=where, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, f"{words}: {done.stderr}"
    return where


@pytest.mark.slow
def test_the_first_page_of_commands_works(first_page: Path) -> None:
    assert (first_page / "runs" / "first" / "report.html").is_file()


@pytest.mark.slow
def test_the_shoal_of_the_first_page_comes_near_its_ceiling(first_page: Path) -> None:
    report = holdfast.evaluate(
        "first", runs_dir=first_page / "runs", protocol="v36", episodes=20, seed=12345, latest=True
    )
    assert report.update == 60
    assert report.metrics["avg_final"] >= 0.965
    assert report.metrics["ed100"] <= 0.035
    assert report.metrics["avoidable_death_fraction"] <= 0.02


def test_the_readme_shows_the_two_commands() -> None:
    assert "make demo" in README
    assert "make test" in README


def test_the_python_example_only_uses_public_names() -> None:
    block = re.search(r"```python\n(.*?)```", README, re.S)
    assert block is not None
    used = set(re.findall(r"holdfast\.(\w+)", block.group(1)))
    assert used <= set(holdfast.__all__)
    compile(block.group(1), "README", "exec")


def test_the_phases_of_the_operations_page_are_a_plan(tmp_path: Path) -> None:
    from holdfast.config import resolve
    from holdfast.plan import make_plan

    page = (Path(__file__).parents[1] / "docs" / "operations.md").read_text()
    block = re.search(r"```toml\n(.*?)```", page, re.S)
    assert block is not None
    path = tmp_path / "phases.toml"
    path.write_text(f'[world]\nname = "mario"\n{block.group(1)}')
    phases = make_plan(resolve(str(path), []), 8).phases
    assert [(p.name, p.first, p.last) for p in phases] == [
        ("bootstrap", 1, 200),
        ("main", 201, 3200),
        ("refine", 3201, 4200),
    ]
    assert [p.learner.lr for p in phases[::2]] == [1e-3, 1e-4]
