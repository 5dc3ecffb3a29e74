"""What docs/own.md shows works as it stands."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "own.md").read_text()
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, re.S))
TYPED = [
    shlex.split(line, comments=True)
    for line in [
        *re.findall(r"^    (holdfast .*)$", PAGE, re.M),
        *re.findall(r"`(holdfast metrics [^`]*)`", PAGE),
    ]
]


@pytest.mark.slow
def test_the_page_about_your_own_works_as_typed(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    scripts = [["train_it.py"], ["play_it.py"], ["-m", "pytest", "-q", "test_my_guards.py"]]
    assert len(FILES) == 5 and len(TYPED) == 8
    for words in [*(["-m", *words] for words in TYPED), *scripts]:
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, timeout=900
        )
        assert done.returncode == 0, f"{words}: {done.stdout} {done.stderr}"
    assert (tmp_path / "maze.gif").stat().st_size > 0
    assert "facts/is_success" in (tmp_path / "metrics.csv").read_text().splitlines()[0]


def test_the_page_is_whole_and_its_files_are_python() -> None:
    assert {"my_module.py", "train_it.py", "play_it.py", "my_guards.py"} <= set(FILES)
    for name, text in FILES.items():
        compile(text, name, "exec")
