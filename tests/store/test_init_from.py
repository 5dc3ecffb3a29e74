"""Parameters from elsewhere: names without wrappers, strict or by shape, and never a resume."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from holdfast.errors import StorageError
from holdfast.learn.options import LearnerConfig
from holdfast.learn.sac import SacLearner
from holdfast.learn.spec import NetSpec
from holdfast.rng import Streams
from holdfast.store.checkpoint import Checkpoints
from holdfast.store.init_from import Row, init_parameters, initialise
from holdfast.store.journal import read_lines
from holdfast.store.original import unwrapped
from holdfast.store.recorder import Recorder
from holdfast.store.weights import Weights, read_source

SPEC = {"obs_size": 3, "action": "discrete", "nvec": [2], "hidden": [4], "activation": "tanh"}
SHAPES = {
    "pi.0.weight": (4, 3), "pi.0.bias": (4,), "vf.0.weight": (4, 3), "vf.0.bias": (4,),
    "pi_out.weight": (2, 4), "pi_out.bias": (2,), "vf_out.weight": (1, 4), "vf_out.bias": (1,),
}  # fmt: skip


def parameters(value: float, **other: tuple[int, ...]) -> dict[str, Any]:
    shapes = {**SHAPES, **{name.replace("__", "."): shape for name, shape in other.items()}}
    return {name: np.full(shape, value, np.float32) for name, shape in shapes.items()}


def learner_state(norm: Any = None) -> dict[str, Any]:
    return {
        "spec": dict(SPEC),
        "parameters": parameters(0.0),
        "optimiser": {"step": 0, "m": {}, "v": {}},
        "norm": norm,
        "settings": {"lr": 1.0},
    }


def norm(value: float, size: int = 3) -> dict[str, Any]:
    return {"mean": np.full(size, value), "var": np.full(size, value + 1), "count": 9.0}


def weights(value: float = 7.0, **other: Any) -> Weights:
    return Weights(parameters(value), dict(SPEC), other.pop("norm", None))


def loaded(rows: list[Row]) -> set[str]:
    return {row.name for row in rows if row.loaded}


def digest(found: dict[str, Any]) -> str:
    total = hashlib.sha256()
    for name in sorted(found):
        total.update(name.encode() + found[name].tobytes())
    return total.hexdigest()


def test_plain_compiled_and_wrapped_modules_give_the_same_parameters(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    kinds = {
        "plain": module,
        "compiled": torch.compile(module, backend="eager"),
        "parallel": nn.DataParallel(module),
        "both": nn.DataParallel(torch.compile(nn.DataParallel(module), backend="eager")),
    }
    found = {}
    for name, kind in kinds.items():
        torch.save(kind.state_dict(), tmp_path / f"{name}.pt")
        learner = read_source(str(tmp_path / f"{name}.pt"), tmp_path).learners["learner"]
        found[name] = (len(learner.parameters), digest(learner.parameters))
    assert any(k.startswith("_orig_mod.") for k in kinds["compiled"].state_dict())
    assert any(k.startswith("module.") for k in kinds["parallel"].state_dict())
    assert len(set(found.values())) == 1
    assert found["plain"][0] == 4


def test_two_models_in_one_file_are_not_mixed() -> None:
    with pytest.raises(StorageError, match="both called 'w'"):
        unwrapped({"w": 1, "module.w": 2})


@pytest.mark.parametrize(
    ("scope", "names"),
    [
        ("trunk", {"pi.0.weight", "pi.0.bias", "vf.0.weight", "vf.0.bias"}),
        ("policy", {"pi.0.weight", "pi.0.bias", "pi_out.weight", "pi_out.bias"}),
        ("all", set(SHAPES)),
    ],
)
def test_a_scope_takes_its_parameters_and_no_others(scope: Any, names: set[str]) -> None:
    before = learner_state()
    state, rows = init_parameters(before, weights(), scope)
    assert loaded(rows) == names
    for name, value in state["parameters"].items():
        assert (value == (7.0 if name in names else 0.0)).all(), name
    assert state["optimiser"] is before["optimiser"] and state["settings"] is before["settings"]
    assert all((value == 0).all() for value in before["parameters"].values())


@pytest.mark.parametrize("what", ["renamed", "missing", "extra", "shape", "nan", "activation"])
def test_strict_refuses_whatever_does_not_fit_and_names_it(what: str) -> None:
    source = weights()
    if what == "renamed":
        source.parameters["pi.9.weight"] = source.parameters.pop("pi.0.weight")
    elif what == "missing":
        del source.parameters["pi.0.weight"]
    elif what == "extra":
        source.parameters["pi.9.weight"] = np.zeros(2, np.float32)
    elif what == "shape":
        source.parameters["pi.0.weight"] = np.zeros((5, 3), np.float32)
    elif what == "nan":
        source.parameters["pi.0.weight"][0, 0] = np.nan
    else:
        source.spec["activation"] = "relu"  # type: ignore[index]
    named = {"extra": "pi.9.weight", "activation": "activation: tanh here, relu in the source"}
    with pytest.raises(StorageError, match="nothing was taken") as error:
        init_parameters(learner_state(), source)
    assert named.get(what, "pi.0.weight") in str(error.value)
    assert "--init-mode shape" in str(error.value)


@pytest.mark.parametrize(
    ("name", "value"), [("encoder", "lstm"), ("sensors", (36, 10)), ("metres", True)]
)
def test_networks_for_other_sensors_are_refused_although_the_shapes_agree(
    name: str, value: Any
) -> None:
    fields = {"encoder": "mlp", "sensors": (12, 10), "metres": False}
    source, mine = weights(), learner_state()
    mine["spec"].update(fields)
    assert source.spec is not None
    source.spec.update({**fields, name: value})
    with pytest.raises(StorageError, match=f"{name}: .* here, .* in the source"):
        init_parameters(mine, source)


def test_strict_does_not_look_outside_the_scope() -> None:
    source = weights()
    source.parameters["pi_out.weight"] = np.zeros((9, 4), np.float32)
    _, rows = init_parameters(learner_state(), source, "trunk")
    skipped = next(row for row in rows if row.name == "pi_out.weight")
    assert skipped.why == "outside the scope trunk"


def test_shape_takes_what_fits_and_says_what_not() -> None:
    source = weights()
    source.parameters["vf_out.bias"] = np.zeros(3, np.float32)
    source.parameters["other"] = np.zeros(3, np.float32)
    state, rows = init_parameters(learner_state(), source, "all", "shape")
    why = {row.name: row.why for row in rows if not row.loaded}
    assert why == {"vf_out.bias": "the shapes differ", "other": "the network has none"}
    assert (state["parameters"]["vf_out.bias"] == 0).all()
    assert (state["parameters"]["pi.0.weight"] == 7).all()


def test_shape_refuses_when_less_than_95_percent_fit() -> None:
    source = weights()
    source.parameters["pi.0.weight"] = np.zeros((9, 3), np.float32)
    with pytest.raises(StorageError, match=r"Only 35 of 47 numbers fit \(74%\)"):
        init_parameters(learner_state(), source, "all", "shape")


def test_a_report_changes_nothing() -> None:
    before = learner_state()
    state, rows = init_parameters(before, weights(), "all", "report")
    assert state is before and loaded(rows) == set()
    assert len(rows) == len(SHAPES)


def test_the_statistics_of_observations_come_along() -> None:
    state, rows = init_parameters(learner_state(norm(0.0)), weights(norm=norm(5.0)), "policy")
    assert "norm" in loaded(rows)
    assert (state["norm"]["mean"] == 5.0).all() and state["norm"]["count"] == 9.0
    with pytest.raises(StorageError, match="--normalise-obs"):
        init_parameters(learner_state(), weights(norm=norm(5.0)))
    with pytest.raises(StorageError, match="norm"):
        init_parameters(learner_state(norm(0.0)), weights(norm=norm(5.0, size=4)))
    state, _ = init_parameters(learner_state(norm(0.0)), weights())
    assert (state["norm"]["mean"] == 0.0).all()


class Learner:
    def __init__(self) -> None:
        self.state = learner_state()

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state


def saved(run: Path, parts: dict[str, float]) -> None:
    state: dict[str, Any] = {"progress": {"update": 4}}
    for part, value in parts.items():
        state[part] = {**learner_state(), "parameters": parameters(value)}
        state[part]["optimiser"]["step"] = 99
    (run / "checkpoints").mkdir(parents=True)
    (run / "run.toml").write_text('[run]\nname = "old"\n')
    Checkpoints(run / "checkpoints").save(4, state, {"env_steps": 8}, frozenset())


def test_a_new_run_begins_with_another_runs_parameters_and_writes_it_down(tmp_path: Path) -> None:
    saved(tmp_path / "old", {"learner": 3.0})
    (tmp_path / "new").mkdir()
    recorder, learner, said = Recorder(tmp_path / "new", False, print), Learner(), []
    initialise({"learner": learner}, recorder, "old@4", tmp_path, "policy", say=said.append)
    recorder.close()
    assert (learner.state["parameters"]["pi.0.weight"] == 3).all()
    assert (learner.state["parameters"]["vf.0.weight"] == 0).all()
    assert learner.state["optimiser"]["step"] == 0
    (event,) = read_lines(tmp_path / "new" / "journal.jsonl")
    assert event["event"] == "init" and event["source_update"] == 4 and event["scope"] == "policy"
    assert len(event["loaded"]) == 4 and len(event["parameters_sha256"]) == 64
    assert "4 of 8 parameters" in said[0]


def test_roles_get_their_own_parameters(tmp_path: Path) -> None:
    saved(tmp_path / "old", {"learner.pursuer": 1.0, "learner.evader": 2.0})
    (tmp_path / "new").mkdir()
    recorder = Recorder(tmp_path / "new", False, print)
    learners = {"learner.evader": Learner(), "learner.pursuer": Learner()}
    initialise(learners, recorder, "old", tmp_path, say=lambda text: None)
    recorder.close()
    assert (learners["learner.evader"].state["parameters"]["pi.0.bias"] == 2).all()
    assert (learners["learner.pursuer"].state["parameters"]["pi.0.bias"] == 1).all()


def test_each_role_can_have_a_source_of_its_own(tmp_path: Path) -> None:
    saved(tmp_path / "old", {"learner.pursuer": 1.0, "learner.evader": 2.0})
    saved(tmp_path / "other", {"learner.pursuer": 3.0, "learner.evader": 4.0})
    saved(tmp_path / "evader=5", {"learner.pursuer": 5.0, "learner.evader": 6.0})
    (tmp_path / "new").mkdir()
    recorder = Recorder(tmp_path / "new", False, print)
    expected = {
        "pursuer=old@4, evader=other": (1, 4),
        "evader=other": (0, 4),
        "pursuer=evader=5": (5, 0),
        "old": (1, 2),
        "lr=3": (7, 8),
    }
    saved(tmp_path / "lr=3", {"learner.pursuer": 7.0, "learner.evader": 8.0})
    for source, values in expected.items():
        learners = {"learner.pursuer": Learner(), "learner.evader": Learner()}
        initialise(learners, recorder, source, tmp_path, say=lambda text: None)
        found = tuple(one.state["parameters"]["pi.0.bias"][0] for one in learners.values())
        assert found == values, source
    recorder.close()


def test_target_critics_follow_the_scope_of_the_critics() -> None:
    spec = NetSpec(3, "squashed", action_size=2, low=(-1.0,) * 2, high=(1.0,) * 2, hidden=(4,))
    config = LearnerConfig(kind="sac", hidden=(4,), threads=1)
    old, new = (SacLearner(spec, config, Streams(seed), 2) for seed in (1, 2))
    for scope in ("trunk", "policy", "all"):
        source = Weights(old.parameters(), spec.state())
        _, rows = init_parameters(new.state_dict(), source, scope)  # type: ignore[arg-type]
        taken = {row.name for row in rows if row.loaded}
        for name in (name for name in taken if name.startswith(("q1", "q2"))):
            other = (
                name.replace("_target", "")
                if "_target" in name
                else name[:2] + "_target" + name[2:]
            )
            assert other in taken
