"""A policy out of a run, for use elsewhere.

    exported/
      policy.safetensors   the parameters under torch's names, and norm.mean, norm.var, norm.count
      policy.json          the network's spec, how to turn its output into an action, where it came from
      policy.pt2           the network as a torch.export program (MLPs): observations in, (head, value) out

`policy.safetensors` is a torch state dict: `module.load_state_dict(safetensors.torch.load_file(...))` after the
`norm.` entries are taken out. `read_source` and `--init-from` take the directory as it is.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save as save_tensors

from holdfast.errors import ConfigError, StorageError
from holdfast.learn.normalise import CLIP
from holdfast.records import Array
from holdfast.store.checkpoint import sha256
from holdfast.store.files import replace_directory, storage_errors, write_synced
from holdfast.store.weights import NORM, POLICY, SPEC, Source, Weights

PROGRAM = "policy.pt2"
ACTIONS = {
    "discrete": "the index of the largest output",
    "multi_discrete": "of each group of outputs (sizes in spec.nvec) the index of the largest",
    "gaussian": "the outputs, limited to [-1, 1] and stretched to [spec.low, spec.high]",
    "squashed": "tanh of the first half of the outputs, stretched to [spec.low, spec.high]",
}


def export(
    source: Source, part: str, target: Path, program: bool = False, force: bool = False
) -> list[Path]:
    """Write one learner's policy to a new directory; return the files."""
    weights = source.learner(part)
    if target.exists() and any(target.iterdir()) and not force:
        raise ConfigError(
            f"{target} exists already and is not empty. Choose another with --out, or replace it: --force"
        )
    if program and not _is_mlp(weights):
        raise ConfigError(
            "A program can be written of plain MLPs only, and this network is none (or its spec is not "
            "known). Leave --program out: policy.safetensors and policy.json have everything."
        )
    tensors = {name: np.ascontiguousarray(value) for name, value in weights.parameters.items()}
    if weights.norm is not None:
        tensors[f"{NORM}mean"] = np.ascontiguousarray(weights.norm["mean"])
        tensors[f"{NORM}var"] = np.ascontiguousarray(weights.norm["var"])
        tensors[f"{NORM}count"] = np.array(weights.norm["count"], np.float64)
    data = save_tensors(tensors)
    with storage_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    with replace_directory(target) as temporary:
        write_synced(temporary / POLICY, data)
        if program:
            _write_program(weights, temporary / PROGRAM)
        about = json.dumps(_about(source, part, weights, data), indent=2, allow_nan=False)
        write_synced(temporary / SPEC, (about + "\n").encode())
    return sorted(target.iterdir())


def _about(source: Source, part: str, weights: Weights, data: bytes) -> dict[str, Any]:
    spec = weights.spec
    return {
        "format": 1,
        "part": part,
        "source": str(source.path),
        "update": source.counters.get("update"),
        "env_steps": source.counters.get("env_steps"),
        "world": source.settings.get("world.name", source.settings.get("world")),
        "spec": None if spec is None else {k: _plain(v) for k, v in spec.items()},
        "normalise": None
        if weights.norm is None
        else f"clip((obs - {NORM}mean) / sqrt({NORM}var + 1e-8), -{CLIP:g}, {CLIP:g})",
        "action": ACTIONS.get(str((spec or {}).get("action"))),
        "parameters": {name: list(value.shape) for name, value in weights.parameters.items()},
        "parameters_sha256": weights.sha256,
        "file_sha256": sha256(data),
        "versions": source.versions,
    }


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _is_mlp(weights: Weights) -> bool:
    spec = weights.spec
    if spec is None or spec.get("trunk", "mlp") != "mlp" or spec.get("noisy"):
        return False
    return bool(spec.get("memory", "none") == "none")


def _write_program(weights: Weights, path: Path) -> None:
    """Write the network, normalisation included, as a program that needs torch alone."""
    import torch
    from torch import Tensor, nn

    spec, parameters = weights.spec or {}, weights.parameters
    squashed = spec["action"] == "squashed"
    critics = ("q1", "q2") if squashed else ("vf",)
    kind = nn.Tanh if spec["activation"] == "tanh" else nn.ReLU

    def linear(name: str) -> nn.Linear:
        matrix = _tensor(parameters[f"{name}.weight"])
        layer = nn.Linear(matrix.shape[1], matrix.shape[0])
        layer.weight.data, layer.bias.data = matrix, _tensor(parameters[f"{name}.bias"])
        return layer

    def tower(head: str) -> nn.Sequential:
        trunk = "trunk" if spec.get("shared") else head
        layers: list[nn.Module] = []
        for i in range(len(spec["hidden"])):
            layers += [linear(f"{trunk}.{i}"), kind()]
        return nn.Sequential(*layers, linear(f"{head}_out"))

    class Program(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pi = tower("pi")
            self.critics = nn.ModuleList([tower(name) for name in critics])
            norm = weights.norm or {"mean": np.zeros(1), "var": np.ones(1)}
            self.mean = nn.Buffer(torch.as_tensor(norm["mean"]))
            self.scale = nn.Buffer(torch.as_tensor(np.sqrt(norm["var"] + 1e-8)))
            self.normalises = weights.norm is not None

        def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
            if self.normalises:
                obs = ((obs - self.mean) / self.scale).clamp(-CLIP, CLIP).float()
            head = self.pi(obs)
            if squashed:
                obs = torch.cat([obs, torch.tanh(head[:, : head.shape[1] // 2])], 1)
            values = [critic(obs).squeeze(-1) for critic in self.critics]
            return head, torch.stack(values).min(0).values

    rows = torch.zeros(2, int(spec["obs_size"]))
    sizes = {"obs": {0: torch.export.Dim("rows", min=1)}}
    try:
        made = torch.export.export(Program().eval(), (rows,), dynamic_shapes=sizes)
        torch.export.save(made, path)
    except (RuntimeError, OSError) as error:
        raise StorageError(f"The program could not be written: {error}.") from error


def _tensor(values: Array) -> Any:
    import torch

    return torch.from_numpy(np.array(values, np.float32))
