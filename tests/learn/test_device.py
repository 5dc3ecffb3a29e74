"""Where torch learners compute. A device of our own stands for a GPU: its tensors do not mix with the processor's."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import holdfast
from holdfast.config import resolve, with_changes
from holdfast.errors import ConfigError
from holdfast.learn.device import CPU, choose, named, put, take
from holdfast.learn.options import LearnerConfig
from holdfast.learn.pixels import BLOCK, View
from holdfast.learn.spec import NetSpec

HERE = Path(__file__).parent
CASES = (
    *("auto is torch", "continuous", "several choices", "nature", "small, noisy", "impala"),
    *("gru", "lstm", "transformer", "sensors", "vtrace", "sac"),
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `other_device.py` prints, in a process of its own: a device cannot be taken out of torch again."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    library = tmp_path_factory.mktemp("device") / "other_device.so"
    torch_home = Path(torch.__file__).parent
    words = [compiler, "-O0", "-std=c++20", "-shared", "-fPIC", str(HERE / "other_device.cpp")]
    words += [f"-I{torch_home / 'include'}", f"-L{torch_home / 'lib'}", "-ltorch_cpu", "-lc10"]
    subprocess.run([*words, "-o", str(library)], check=True)
    script = [sys.executable, "-W", "ignore", str(HERE / "other_device.py"), str(library)]
    said = subprocess.run(script, check=True, capture_output=True, text=True).stdout
    told: dict[str, Any] = json.loads(said)
    return told


def test_the_device_refuses_tensors_of_the_processor(found: dict[str, Any]) -> None:
    assert found["mixed"] is False
    assert tuple(found["cases"]) == CASES


@pytest.mark.parametrize("case", CASES)
def test_a_learner_computes_on_its_device_what_it_does_on_the_processor(
    found: dict[str, Any], case: str
) -> None:
    one = found["cases"][case]
    assert one["devices"] == ["other"]
    assert one["first"] == 0.0
    assert one["apart"] < 0.01
    learners = {"vtrace": "VTraceLearner", "sac": "SacLearner"}
    assert one["learner"] == learners.get(case, "TorchLearner")


@pytest.mark.parametrize("net", sorted(BLOCK))
@pytest.mark.parametrize("stack", [1, 4])
def test_stacks_are_laid_out_on_a_device_as_the_kernel_does_it(net: str, stack: int) -> None:
    spec = NetSpec(obs_size=84 * 84 * 3, picture=(84, 84, 3), pixel="uint8", stack=stack,
                   trunk=net, action="discrete", nvec=(3,))  # fmt: skip
    view, rng = View(spec), np.random.default_rng(0)
    frames = rng.integers(0, 256, (7, 4, spec.obs_size)).astype(np.uint8)
    begun = rng.random((7, 4)) < 0.3
    rows, slots = np.arange(7).repeat(4), np.tile(np.arange(4), 7)
    wanted = view.empty(len(rows))
    view.fill(frames, begun, rows, slots, wanted)
    stacks = view.stacks(frames, begun, rows, slots)
    assert stacks.dtype == np.uint8
    np.testing.assert_array_equal(
        take(view.lay_out(put(stacks, CPU))), wanted.transpose(0, 3, 1, 2)
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"learner__device": "cuda:97"}, "cuda:97.* is not here.*Here are: cpu"),
        ({"learner__device": "abacus"}, "abacus.* is not here.*--learner.device cpu"),
        ({"learner__device": "meta"}, "meta.* is not here.*--learner.device cpu"),
        ({"learner__device": "cuda", "learner__kind": "fused"}, "compiled for the processor"),
    ],
)
def test_a_device_that_cannot_be_is_refused_before_anything_is_made(
    tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        holdfast.train("CartPole-v1", runs_dir=tmp_path, updates=1, **settings)
    assert not list(tmp_path.iterdir())


def test_the_processor_has_one_name() -> None:
    assert named("cpu:0") == named("cpu") == CPU


def test_auto_takes_a_gpu_for_pictures_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("holdfast.learn.device.named", lambda name: asked.append(name) or CPU)
    flat = NetSpec(obs_size=4, action="discrete", nvec=(2,))
    picture = NetSpec(obs_size=84 * 84, picture=(84, 84, 1), pixel="uint8", trunk="nature",
                      action="discrete", nvec=(2,))  # fmt: skip
    for spec in (flat, picture):
        choose(spec, LearnerConfig())
    choose(picture, LearnerConfig(device="cpu"))
    assert asked == ["cpu", "cuda", "cpu"]


def test_a_run_may_be_resumed_on_another_device() -> None:
    changed = with_changes(resolve("CartPole-v1", []), [("learner.device", "cpu")])
    assert changed.learner.device == "cpu"
