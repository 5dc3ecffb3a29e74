"""Where the torch learners compute: the processor, or a GPU (or another device that torch knows).

    device = choose(spec, config)
    inputs = put(rows, device)          # what NumPy holds, as a tensor there
    heads = take(network(inputs))       # and back

Worlds, rollouts, advantages and frozen policies stay with the processor; what a minibatch needs is copied. On the processor
nothing is.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.learn.options import LearnerConfig
from holdfast.learn.spec import NetSpec
from holdfast.records import Array

CPU = torch.device("cpu")


def choose(spec: NetSpec, config: LearnerConfig) -> torch.device:
    """Return the device that `learner.device` asks for; `auto` is a GPU for pictures, if there is one."""
    if config.device != "auto":
        return named(config.device)
    return named("cuda" if spec.picture and torch.cuda.is_available() else "cpu")


def named(name: str) -> torch.device:
    """Return the device of this name; raise if it is not here."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()  # "meta" makes tensors, but holds nothing
    except (RuntimeError, AssertionError, AttributeError) as error:
        raise ConfigError(
            f"learner.device = {name!r} is not here: {_first_line(error)} Here are: {', '.join(_here())}. "
            "Leave it out, or type: --learner.device cpu"
        ) from error
    if device.type == "cuda":
        _repeatable()
    return CPU if device.type == CPU.type else device


def put(array: Array, device: torch.device) -> Tensor:
    """Return an array as a tensor of the device; on the processor they share their memory."""
    tensor = torch.from_numpy(array)
    return tensor if device.type == "cpu" else tensor.to(device)


def take(tensor: Tensor) -> Array:
    """Return a tensor as an array; on the processor they share their memory."""
    array: Array = tensor.detach().cpu().numpy()
    return array


def has_bfloat16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 matrices natively."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type != "cpu" or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _repeatable() -> None:
    """Let a GPU add up in the same order every time; without it a resumed run would not go on bit for bit."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)


def _here() -> list[str]:
    found = ["cpu"]
    if torch.cuda.is_available():
        found += [f"cuda:{k}" for k in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        found.append("mps")
    return found


def _first_line(error: BaseException) -> str:
    line = (str(error).splitlines() or [type(error).__name__])[0].strip()
    return line if line.endswith(".") else f"{line}."
