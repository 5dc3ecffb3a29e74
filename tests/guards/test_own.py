"""Guards of a user's own: named in the config, journalled, resumed, replayed, and stopped by name when they fail."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.cli import main
from holdfast.config import from_tables, read_toml, resolve
from holdfast.errors import ConfigError, GuardStop
from holdfast.guards import make_guards
from holdfast.store.journal import read_lines

sys.path.insert(0, str(Path(__file__).parent))
import own_guards

SMALL: dict[str, Any] = {
    "games": 2, "learner__steps": 64, "minibatch": 64, "epochs": 1, "tensorboard": False,
    "probe__episodes": 1, "world__mode": "serial", "say": lambda _: None,
}  # fmt: skip


def trained(runs: Path, guard: str, **settings: Any) -> Path:
    own = {"slump": {"guard": f"own_guards:{guard}", **settings}}
    outcome = holdfast.train(
        "CartPole-v1", runs_dir=runs, run="r", updates=3, guards__own=own, **SMALL
    )
    return outcome.directory


def test_a_guard_of_ones_own_decides_is_journalled_and_goes_on_after_a_resume(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained(tmp_path, "Slump", floor=1e6)
    assert from_tables(read_toml(run / "run.toml")).guards.own["slump"]["floor"] == 1e6
    holdfast.resume("r", runs_dir=tmp_path, updates=4, say=lambda _: None)
    made = [x for x in read_lines(run / "journal.jsonl") if x.get("guard") == "slump"]
    assert [x["applied"] for x in made] == [0.5, 0.25, 0.125, 0.0625]
    assert made[0]["cause"]["threshold"] == 1e6 and made[0]["message"] == "a slump"
    line = list(read_lines(run / "metrics.jsonl"))[-1]
    assert line["guard/slump/scale"] == 0.0625

    call = ["whatif", "r", "--runs-dir", str(tmp_path), "--json", "--no-plot", "--set"]
    assert main([*call, "guards.own.slump.factor=0.25"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [d["after"]["value"] for d in told["differences"]][:2] == [0.25, 0.0625]
    assert main([*call, "guards.own.slump.enabled=false"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [d["after"] for d in told["differences"]] == [None] * 4
    assert main([*call, "guards.own.other.guard=own_guards:Slump"]) == 0
    assert json.loads(capsys.readouterr().out)["differences"] == [], "its floor is 0"


@pytest.mark.parametrize(
    ("guard", "told"),
    [
        ("Raises", r"'slump' raised ZeroDivisionError: .*own_guards.py:\d+ \(Raises.step\)"),
        ("Unkind", r"decided 'stpo'. Did you mean 'stop'\?"),
        ("Silent", "returned None. It returns a list of decisions"),
    ],
)
def test_a_guard_that_fails_stops_the_run_by_name_and_the_run_can_go_on(
    guard: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(GuardStop, match=told):
        trained(tmp_path, guard)
    monkeypatch.setattr(own_guards, guard, own_guards.Slump)
    assert holdfast.resume("r", runs_dir=tmp_path, say=lambda _: None).state == "finished"


@pytest.mark.parametrize(
    ("name", "table", "told"),
    [
        ("plateau", {"guard": "own_guards:Slump"}, "none of ours"),
        ("a-b", {"guard": "own_guards:Slump"}, "begins with a letter"),
        ("a", {"guard": "own_guards:Slumb"}, "Did you mean 'Slump'?"),
        ("a", {"guard": "no_such_module:Slump"}, "cannot be imported"),
        ("a", {"guard": "own_guards:Slump", "flor": 1}, "unexpected keyword"),
        ("a", {"guard": "own_guards:not_a_guard"}, "makes a int"),
        ("a", {"floor": 1}, "must name a class"),
        ("a", 5, "must name a class"),
    ],
)
def test_a_guard_that_cannot_be_made_is_refused_before_a_run_begins(
    name: str, table: Any, told: str
) -> None:
    with pytest.raises(ConfigError) as error:
        make_guards(resolve("CartPole-v1", [("guards.own", {name: table})]).guards)
    assert told in str(error.value)


def test_settings_of_a_guard_of_ones_own_can_be_typed() -> None:
    typed = [("guards.own.slump.guard", "own_guards:Slump"), ("guards.own.slump.floor", "7")]
    guards = resolve("CartPole-v1", typed).guards
    assert guards.own == {"slump": {"guard": "own_guards:Slump", "floor": 7}}
    assert guards.on()[-1] == "slump"
