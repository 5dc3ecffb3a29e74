"""Settings that a world starts from when the user says nothing else."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

# The reward of the original pays for shadowing the predator; view_reward 5 does not. Danger is in the first
# hundred steps, so episodes are cut after 150 and begun anew: more openings in the same time.
SHOAL: dict[str, Any] = {
    "run": {"updates": 100, "stagger": 500},
    "world": {"games": 64, "fish": 25, "view_reward": 5.0, "force_reset_steps": 150},
    "learner": {
        "steps": 64,
        "epochs": 5,
        "minibatch": 4096,
        "lr": 2e-3,
        "lr_schedule": "linear",
        "entropy": 0.001,
        "normalise_rewards": True,
    },
    "probe": {"every": 20, "episodes": 80},
    "guards": {"plateau": {"signal": "shoal/survival"}},
}

PURSUIT: dict[str, Any] = {
    "run": {"updates": 200, "stagger": 600},
    "world": {"games": 128, "arena_width": 10.0, "arena_height": 10.0, "max_steps": 600},
    "learner": {
        "steps": 64,
        "epochs": 5,
        "minibatch": 2048,
        "lr": 1e-3,
        "entropy": 0.01,
        "normalise_rewards": True,
    },
    "probe": {"every": 20, "episodes": 200},
    "guards": {"tails": {"success_fact": "captured", "success_min": 1.0}},
}

MARIO: dict[str, Any] = {
    "run": {"env_steps": 1_500_000},
    "world": {"games": 32, "observation": "tiles"},
    "learner": {
        "steps": 128,
        "epochs": 4,
        "minibatch": 1024,
        "lr": 5e-4,
        "gamma": 0.97,
        "hidden": (128, 128),
        "entropy": 0.01,
        "normalise_rewards": True,
    },
    "probe": {"every": 25, "episodes": 20, "deterministic": False},
    "guards": {
        "progress": {"enabled": True},
        "tails": {"success_fact": "ground", "success_min": 400.0},
    },
}

FOREIGN: dict[str, Any] = {
    "run": {"env_steps": 500_000},
    "world": {"games": 8},
    "learner": {
        "steps": 128,
        "epochs": 10,
        "minibatch": 256,
        "lr": 3e-4,
        "normalise_obs": True,
        "normalise_rewards": True,
        "entropy": 0.0,
    },
    "probe": {"every": 50, "episodes": 20},
}

# Soft actor-critic makes a gradient step for every step: few games, short rollouts, and a weight of the entropy that it learns.
FOREIGN_SAC: dict[str, Any] = {
    "run": {"env_steps": 50_000},
    "world": {"games": 4},
    "learner": {
        "steps": 16,
        "hidden": (64, 64),
        "activation": "relu",
        "lr": 1e-3,
        "lr_schedule": "constant",
        "max_grad_norm": 0.0,
        "entropy": 0.2,
        "sac": {"auto_entropy": True},
    },
    "probe": {"every": 50, "episodes": 20},
}


def preset(world: str, kind: str = "auto") -> dict[str, Any]:
    """Return the tables that lie under the user's settings for this world and kind of learner."""
    foreign = FOREIGN_SAC if kind == "sac" else FOREIGN
    chosen = {"shoal": SHOAL, "pursuit": PURSUIT, "mario": MARIO}.get(world, foreign)
    tables: dict[str, Any] = deepcopy(chosen)
    tables.setdefault("world", {})["name"] = world
    return tables
