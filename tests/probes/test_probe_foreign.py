"""A probe of a foreign environment plays every seed once, in no more environments than training has."""

from __future__ import annotations

import sys
import types
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from holdfast.probes.runner import ProbeSpec, run_probe
from holdfast.worlds.foreign import ForeignOptions

SEEDS = tuple(range(40, 51))


class Fates(gym.Env):
    """Episodes whose length and rewards follow from the seed; a seed that 7 divides never ends."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    made = 0
    unsound = -1
    """A seed from which no episode can begin."""

    def __init__(self) -> None:
        Fates.made += 1

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        if seed == self.unsound:
            raise RuntimeError("no episode begins here")
        self.left = (
            -1 if seed is not None and seed % 7 == 0 else int(self.np_random.integers(2, 30))
        )
        return self.np_random.random(2).astype(np.float32), {}

    def step(self, action: Any) -> Any:
        self.left -= 1
        seen = self.np_random.random(2).astype(np.float32)
        return seen, float(seen[0]) + int(action), self.left == 0, False, {}


class Chooses:
    """Looks at the observation, and remembers how many steps its episodes have."""

    def begin(self) -> None:
        self.steps: Any = None

    def act(self, obs: Any, rng: Any = None, begun: Any = None) -> Any:
        self.steps = np.zeros(len(obs)) if self.steps is None else self.steps
        self.steps[begun] = 0
        self.steps += 1
        noise = 0 if rng is None else rng.random(len(obs))
        return ((obs[:, 0] + noise) * self.steps > 4).astype(np.int64)


@pytest.fixture(autouse=True)
def fates(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("fates_env")
    module.make = Fates  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fates_env", module)
    monkeypatch.setattr(Fates, "made", 0)


def probed(games: int, deterministic: bool = True) -> Any:
    options = ForeignOptions(games=games, mode="serial")
    spec = ProbeSpec("fates_env:make", options, SEEDS, deterministic, longest=60)
    return run_probe(spec, Chooses())


def test_a_few_environments_play_every_seed_as_one_environment_a_seed_does() -> None:
    one_each = probed(len(SEEDS))
    assert Fates.made == len(SEEDS)
    Fates.made = 0
    shared = probed(3)
    assert Fates.made == 3
    assert shared.detail["lengths"] == one_each.detail["lengths"]
    assert shared.detail["returns"] == one_each.detail["returns"]
    assert shared.metrics["episodes"] == len(SEEDS)
    assert (
        shared.detail["lengths"][SEEDS.index(42)] == shared.detail["lengths"][SEEDS.index(49)] == 60
    )
    assert "2 of 11" in shared.detail["cut"]


def test_more_environments_than_episodes_are_not_made() -> None:
    probed(100)
    assert Fates.made == len(SEEDS)


def test_sampled_actions_are_the_same_again() -> None:
    assert probed(3, False).detail["returns"] == probed(3, False).detail["returns"]


def test_a_seed_from_which_no_episode_begins_leaves_the_others_in_their_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = probed(3).detail["returns"]
    monkeypatch.setattr(Fates, "unsound", 43)
    assert SEEDS.index(43) == 3, "it is the second of the first game"
    found = probed(3).detail["returns"]
    assert found[:3] + found[4:] == whole[:3] + whole[4:]
