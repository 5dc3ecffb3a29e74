"""Trains the same learners on the processor and on `other_device.cpp`, and prints how far they are apart.

python other_device.py LIBRARY     # one JSON object: {"mixed": ..., "cases": {...}}
"""

from __future__ import annotations

import json
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from holdfast.learn.learner import Anchor, Learner, make_learner
from holdfast.learn.options import LearnerConfig, ReplayConfig, SacConfig
from holdfast.learn.spec import spec_from
from holdfast.records import F32
from holdfast.rng import Streams

NUMBERS = gym.spaces.Box(-1, 1, (5,), np.float32)
PICTURES = gym.spaces.Box(0, 255, (84, 84, 1), np.uint8)
CHOICES, SEVERAL = gym.spaces.Discrete(4), gym.spaces.MultiDiscrete([3, 2])
TURNS = gym.spaces.Box(-2, 2, (2,), np.float32)
RAYS, ROWS, STATE, PLACE = 6, 3, 7, 2
SENSORS = gym.spaces.Box(-1, 1, (RAYS + ROWS * (STATE + RAYS) + STATE,), np.float32)
REPLAY = ReplayConfig(enabled=True, capacity=1000, batch=4)
SAC = SacConfig(warmup=10, batch=8, auto_entropy=True)
CASES: dict[str, tuple[Any, Any, int, dict[str, Any]]] = {
    "auto is torch": (NUMBERS, CHOICES, 1, {"kind": "auto"}),
    "continuous": (NUMBERS, TURNS, 1, {"normalise_obs": True, "normalise_rewards": True}),
    "several choices": (NUMBERS, SEVERAL, 1, {"optimiser": "rmsprop", "accumulate": 2}),
    "nature": (PICTURES, CHOICES, 4, {}),
    "small, noisy": (PICTURES, CHOICES, 4, {"net": "small", "noisy": True}),
    "impala": (PICTURES, TURNS, 2, {"net": "impala"}),
    "gru": (NUMBERS, CHOICES, 1, {"memory": "gru", "memory_size": 8}),
    "lstm": (NUMBERS, TURNS, 1, {"memory": "lstm", "memory_size": 8, "memory_layers": 2}),
    "transformer": (NUMBERS, CHOICES, 1, {"memory": "transformer", "memory_size": 8}),
    "sensors": (SENSORS, TURNS, 1, {"net": "sensors", "belief": 1.0}),
    "vtrace": (PICTURES, CHOICES, 4, {"kind": "vtrace", "net": "small", "replay": REPLAY}),
    "sac": (NUMBERS, TURNS, 1, {"kind": "sac", "sac": SAC}),
}
SLOTS = 3


def learned(
    device: str, seen: Any, acts: Any, stack: int, settings: dict[str, Any]
) -> tuple[Learner, dict[str, F32]]:
    """Return a learner after two updates, with its state saved and loaded and an anchor between them; and its first
    parameters."""
    small = {"kind": "torch", "steps": 6, "minibatch": 9, "epochs": 1, "hidden": (8,), "threads": 1}
    config = LearnerConfig(**{**small, **settings, "device": device})
    more = ((RAYS, ROWS), PLACE) if seen is SENSORS else ()
    spec = spec_from(config, seen, acts, stack, *more)
    who = make_learner(spec, config, Streams(3), SLOTS)
    rollout, first = who.new_rollout(SLOTS), who.parameters()
    rng = np.random.default_rng(1)
    rollout.truth[:] = rng.normal(size=rollout.truth.shape)
    for _ in range(2):
        who.begin(rollout)
        for t in range(rollout.steps + 1):
            size = rollout.obs[t].shape
            rollout.obs[t] = rng.integers(0, 256, size) if spec.picture else rng.normal(size=size)
            rollout.mask[t] = True
            if t == rollout.steps:
                break
            who.act(rollout, t)
            rollout.rewards[t] = rng.normal(size=SLOTS)
            rollout.terminations[t] = rng.random(SLOTS) < 0.2
            rollout.truncations[t] = ~rollout.terminations[t] & (rng.random(SLOTS) < 0.2)
            over = rollout.terminations[t] | rollout.truncations[t]
            who.end(rollout, t, over, rollout.obs[t])
        who.update(rollout)
        state = who.state_dict()
        who.load_state_dict(state)
        ones = {name: np.ones_like(value) for name, value in state["parameters"].items()}
        who.protect(Anchor(0.1, ones, state["parameters"]))
    return who, first


def compare(case: str) -> dict[str, Any]:
    """Return what a case has come to on both devices: `apart` is how far, as a share of the way that was learned."""
    there, first = learned("other", *CASES[case])
    here, same = learned("cpu", *CASES[case])
    nets = [x for x in vars(there).values() if isinstance(x, torch.nn.Module)]
    ends = there.parameters(), here.parameters()
    return {
        "learner": type(there).__name__,
        "devices": sorted({p.device.type for net in nets for p in net.parameters()}),
        "first": distance(first, same),
        "apart": distance(*ends) / distance(same, ends[1]),
    }


def distance(one: dict[str, F32], two: dict[str, F32]) -> float:
    """Return the distance of two sets of parameters."""
    return float(np.sqrt(sum(np.sum((one[name] - two[name]) ** 2) for name in two)))


def mixed() -> bool:
    """Whether the device would let a mistake pass: its tensors together with those of the processor."""
    try:
        torch.ones(2, device="other") + torch.ones(2)
    except RuntimeError:
        return False
    return True


if __name__ == "__main__":
    torch.ops.load_library(sys.argv[1])
    _setup_privateuseone_for_python_backend("other")
    json.dump({"mixed": mixed(), "cases": {case: compare(case) for case in CASES}}, sys.stdout)
