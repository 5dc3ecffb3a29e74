"""Imports point one way, and the parts that must stay light do."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import holdfast

ROOT = Path(holdfast.__file__).parent
LAYERS = [
    (
        "errors",
        "rng",
        "records",
        "state",
        "jit",
        "parallel",
        "signals",
        "tables",
        "toml_text",
        "commands",
    ),
    ("store", "worlds", "learn", "probes"),
    ("guards", "selfplay"),
    (
        "presets",
        "config",
        "plan",
        "known",
        "collect",
        "progress",
        "slots",
        "team",
        "overlap",
        "account",
        "probe",
        "apply",
        "loop",
    ),
    ("ladder", "lookout", "pace", "session", "run", "refuse", "preflight", "checkup", "api"),
    ("view",),
    ("study",),
    ("cli",),
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def area(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return {name for name in found if name.startswith("holdfast.")}


def test_no_arrow_points_the_wrong_way() -> None:
    wrong = []
    for path in ROOT.rglob("*.py"):
        here = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if here in ("__init__", "__main__"):
            continue
        assert here in RANK, f"{here} has no place in the layers"
        for module in imports_of(path):
            there = area(module)
            # config reads only the plain settings of guards and learner
            if there in RANK and RANK[there] > RANK[here]:
                wrong.append(f"{path.relative_to(ROOT)} imports {module}")
    assert wrong == []


def test_guards_import_neither_torch_nor_a_world() -> None:
    for path in (ROOT / "guards").glob("*.py"):
        text = path.read_text()
        assert "import torch" not in text
        assert not any(area(module) in ("worlds", "learn", "store") for module in imports_of(path))


def test_help_and_import_do_not_load_torch_or_numba() -> None:
    code = (
        "import sys, holdfast, holdfast.cli;"
        "holdfast.cli.main(['--help']);"
        "bad = {'torch', 'numba', 'matplotlib', 'gymnasium', 'numpy'} & set(sys.modules);"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_training_with_the_fused_learner_does_not_load_torch() -> None:
    code = (
        "import sys, pathlib, tempfile, holdfast;"
        "holdfast.train('shoal', runs_dir=tempfile.mkdtemp(), updates=1, games=2, fish=3, steps=8,"
        " learner='fused', probe__episodes=1, say=lambda text: None);"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_every_public_name_is_there() -> None:
    for name in holdfast.__all__:
        assert getattr(holdfast, name) is not None
