"""A policy out of a checkpoint plays the same elsewhere; two checkpoints are compared number by number."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from holdfast.errors import ConfigError, StorageError
from holdfast.learn.nets import ActorCritic
from holdfast.learn.normalise import ObsNorm
from holdfast.learn.policy import Policy
from holdfast.learn.spec import NetSpec, initial_parameters
from holdfast.store.checkpoint import Checkpoints
from holdfast.store.compare import compare_sources
from holdfast.store.export import export
from holdfast.store.weights import Source, Weights, read_source

SPEC = NetSpec(5, "discrete", nvec=(3,), hidden=(8, 8))


def save(
    run: Path, update: int, seed: int = 0, spec: NetSpec = SPEC, norm: bool = True, steps: int = 7
) -> dict[str, Any]:
    """Save a checkpoint with random parameters and return its learner's state."""
    rng = np.random.default_rng(seed)
    statistics = {"mean": rng.normal(size=5), "var": rng.random(5) + 0.5, "count": 12.0}
    learner = {
        "spec": spec.state(),
        "parameters": initial_parameters(spec, rng),
        "optimiser": {"step": steps},
        "norm": statistics if norm else None,
    }
    run.mkdir(parents=True, exist_ok=True)
    (run / "run.toml").write_text(
        f'[run]\nname = "{run.name}"\nseed = {seed}\n\n[world]\nname = "x"\n'
    )
    state = {"learner": learner, "progress": {"episodes": update, "best_value": -np.inf}}
    Checkpoints(run / "checkpoints").save(update, state, {"env_steps": update * 10}, frozenset())
    return learner


def policy_of(learner: dict[str, Any], spec: NetSpec = SPEC) -> Policy:
    norm = None
    if learner["norm"] is not None:
        norm = ObsNorm(spec.obs_size)
        norm.load_state_dict(learner["norm"])
    return Policy(spec, learner["parameters"], norm)


def test_an_exported_policy_is_a_torch_state_dict_and_gives_the_same_values(tmp_path: Path) -> None:
    learner = save(tmp_path / "r", 3)
    files = export(read_source("r", tmp_path), "learner", tmp_path / "out")
    assert [file.name for file in files] == ["policy.json", "policy.safetensors"]
    tensors = load_file(tmp_path / "out" / "policy.safetensors")
    norm = {name: tensors.pop(f"norm.{name}") for name in ("mean", "var", "count")}
    about = json.loads((tmp_path / "out" / "policy.json").read_text())
    module = ActorCritic(NetSpec.from_state(about["spec"]))
    module.load_state_dict(tensors, strict=True)
    obs = np.random.default_rng(1).normal(size=(6, 5)).astype(np.float32)
    scaled = (torch.from_numpy(obs) - norm["mean"]) / torch.sqrt(norm["var"] + 1e-8)
    with torch.no_grad():
        value = module.value(scaled.clamp(-10, 10).float()).numpy()
    np.testing.assert_allclose(value, policy_of(learner).values(obs), rtol=1e-5, atol=1e-6)
    assert about["update"] == 3 and about["env_steps"] == 30 and about["world"] == "x"


def test_an_exported_policy_is_read_back_bit_for_bit(tmp_path: Path) -> None:
    learner = save(tmp_path / "r", 3)
    export(read_source("r", tmp_path), "learner", tmp_path / "out")
    back = read_source(str(tmp_path / "out"), tmp_path).learner("learner")
    assert back.sha256 == read_source("r", tmp_path).learner("learner").sha256
    assert back.norm is not None and back.norm["count"] == 12.0
    np.testing.assert_array_equal(back.norm["mean"], learner["norm"]["mean"])


ELSEWHERE = """
import sys, json, torch
program = torch.export.load(sys.argv[1]).module()
assert "holdfast" not in sys.modules
obs = torch.tensor(json.loads(sys.argv[2]))
head, value = program(obs)
print(json.dumps([head.argmax(1).tolist(), value.tolist()]))
"""


@pytest.mark.parametrize(("shared", "norm"), [(True, False), (False, True)])
def test_a_program_plays_the_same_in_a_process_without_holdfast(
    tmp_path: Path, shared: bool, norm: bool
) -> None:
    spec = NetSpec(5, "discrete", nvec=(3,), hidden=(8, 8), activation="relu", shared=shared)
    learner = save(tmp_path / "r", 3, spec=spec, norm=norm)
    export(read_source("r", tmp_path), "learner", tmp_path / "out", program=True)
    obs = np.random.default_rng(1).normal(size=(7, 5)).astype(np.float32)
    words = [str(tmp_path / "out" / "policy.pt2"), json.dumps(obs.tolist())]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ELSEWHERE, *words], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    actions, values = json.loads(done.stdout)
    policy = policy_of(learner, spec)
    assert actions == policy.act(obs).tolist()
    np.testing.assert_allclose(values, policy.values(obs), rtol=1e-4, atol=1e-5)


def test_a_program_of_what_is_no_mlp_is_refused(tmp_path: Path) -> None:
    torch.save({"conv.weight": torch.ones(2)}, tmp_path / "old.pt")
    with pytest.raises(ConfigError, match="plain MLPs only"):
        export(read_source(str(tmp_path / "old.pt"), tmp_path), "learner", tmp_path / "out", True)
    assert not (tmp_path / "out").exists()
    export(read_source(str(tmp_path / "old.pt"), tmp_path), "learner", tmp_path / "out")
    assert json.loads((tmp_path / "out" / "policy.json").read_text())["spec"] is None


def test_a_policy_for_sensors_is_exported_and_begins_a_learner_again(tmp_path: Path) -> None:
    spec = NetSpec(
        *(6 + 3 * 13 + 7, "discrete"), nvec=(3,), hidden=(8,), trunk="sensors", sensors=(6, 3)
    )
    net = ActorCritic(spec)
    drawn = net.first_parameters(np.random.default_rng(0), 0.0)
    weights = Weights(drawn, spec.state(), None)
    source = Source(tmp_path / "r", "holdfast", {"learner": weights})
    with pytest.raises(ConfigError, match="plain MLPs only"):
        export(source, "learner", tmp_path / "out", program=True)
    export(source, "learner", tmp_path / "out")
    again = read_source(str(tmp_path / "out"), tmp_path).learner("learner")
    assert NetSpec.from_state(dict(again.spec or {})) == spec
    for name, value in drawn.items():
        np.testing.assert_array_equal(again.parameters[name], value)


def test_an_export_never_replaces_a_directory_by_itself(tmp_path: Path) -> None:
    save(tmp_path / "r", 3)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("x")
    with pytest.raises(ConfigError, match="--force"):
        export(read_source("r", tmp_path), "learner", tmp_path / "out")
    assert (tmp_path / "out" / "precious").is_file()
    export(read_source("r", tmp_path), "learner", tmp_path / "out", force=True)
    assert (tmp_path / "out" / "policy.json").is_file()


def test_a_part_that_is_not_there_is_named(tmp_path: Path) -> None:
    source = read_source_of_two(tmp_path)
    with pytest.raises(ConfigError, match=r"learner\.pursuer.*--part"):
        export(source, "learner", tmp_path / "out")
    export(source, "learner.evader", tmp_path / "out")


def read_source_of_two(root: Path) -> Any:
    one = {"spec": SPEC.state(), "parameters": initial_parameters(SPEC, np.random.default_rng(0))}
    run = root / "two"
    run.mkdir()
    (run / "run.toml").write_text("")
    state = {"learner.pursuer": one, "learner.evader": one}
    Checkpoints(run / "checkpoints").save(1, state, {}, frozenset())
    return read_source("two", root)


def test_a_damaged_source_is_an_error_that_says_where_to_look(tmp_path: Path) -> None:
    save(tmp_path / "r", 3)
    folder = tmp_path / "r" / "checkpoints" / "u00000003"
    (folder / "state.json").write_text("{}")
    with pytest.raises(StorageError, match="holdfast ckpt find"):
        read_source(str(folder), tmp_path)
    (tmp_path / "x.safetensors").write_bytes(b"nonsense")
    with pytest.raises(StorageError, match="no safetensors file"):
        read_source(str(tmp_path / "x.safetensors"), tmp_path)


def test_a_difference_names_counters_settings_and_every_parameter(tmp_path: Path) -> None:
    first = save(tmp_path / "a", 3, seed=0, steps=7)
    second = save(tmp_path / "b", 9, seed=1, steps=21)
    found = compare_sources(read_source("a", tmp_path), read_source("b", tmp_path))
    assert found.counters["update"] == (3, 9)
    assert found.counters["learner.optimiser_step"] == (7, 21)
    assert found.settings == {"run.name": ("a", "b"), "run.seed": (0, 1)}
    assert found.specs == {} and found.versions == {}
    by_name = {tensor.name: tensor for tensor in found.tensors}
    x, y = first["parameters"]["pi.0.weight"], second["parameters"]["pi.0.weight"]
    change = by_name["pi.0.weight"]
    assert change.norms == pytest.approx((np.linalg.norm(x), np.linalg.norm(y)))
    assert change.max_change == pytest.approx(float(np.abs(x - y).max()))
    assert change.relative == pytest.approx(
        float(np.linalg.norm(x - y) / np.linalg.norm(x)), rel=1e-5
    )
    assert by_name["pi.0.bias"].same
    assert "norm.mean" in by_name


def test_the_same_checkpoint_has_no_differences(tmp_path: Path) -> None:
    save(tmp_path / "a", 3)
    found = compare_sources(read_source("a", tmp_path), read_source("a@3", tmp_path))
    assert found.record()["same_parameters"] is True
    assert found.settings == {}


def test_networks_of_other_shapes_are_compared_too(tmp_path: Path) -> None:
    save(tmp_path / "a", 3)
    save(tmp_path / "b", 3, spec=NetSpec(5, "discrete", nvec=(3,), hidden=(4,)), norm=False)
    found = compare_sources(read_source("a", tmp_path), read_source("b", tmp_path))
    by_name = {tensor.name: tensor for tensor in found.tensors}
    assert by_name["pi.0.weight"].shapes == ((8, 5), (4, 5))
    assert by_name["pi.0.weight"].max_change is None
    assert by_name["pi.1.weight"].shapes == ((8, 8), None)
    assert not by_name["pi.1.weight"].same
    assert found.specs["learner.hidden"] == ([8, 8], [4])
