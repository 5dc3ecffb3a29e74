"""A frozen policy acts in compiled code as its formulas say, whichever rows are asked for together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from holdfast.learn.normalise import ObsNorm
from holdfast.learn.policy import Policy
from holdfast.learn.spec import FUSED_WIDTH, NetSpec, initial_parameters

GAUSSIAN = {"action_size": 2, "low": (0.0, -2.84), "high": (1.0, 2.84)}


def network(spec: NetSpec, normalised: bool = False) -> Policy:
    """Return a policy whose choices are far from even."""
    parameters = initial_parameters(spec, np.random.default_rng(0))
    parameters["pi_out.weight"] *= np.float32(100)
    norm = ObsNorm(spec.obs_size) if normalised else None
    if norm is not None:
        norm.mean[:], norm.var[:] = 0.2, 0.5
    return Policy(spec, parameters, norm)


def formulas(policy: Policy, obs: Any, rng: np.random.Generator | None = None) -> Any:
    """Return the same actions from matrix products."""
    return policy._pick(policy._head("pi", policy._rows(obs)), rng)


def rows_of(spec: NetSpec, count: int = 64) -> Any:
    return np.random.default_rng(1).normal(size=(count, spec.obs_size)).astype(np.float32)


@pytest.mark.parametrize("kind", [{}, {"shared": True}, {"activation": "relu"}, {"hidden": ()}])
@pytest.mark.parametrize("normalised", [False, True])
def test_gaussian_actions_are_those_of_the_formulas(kind: dict[str, Any], normalised: bool) -> None:
    spec = NetSpec(7, "gaussian", **GAUSSIAN, **{"hidden": (48, 32), **kind})
    policy, obs = network(spec, normalised), rows_of(spec)
    assert_allclose(policy.act(obs), formulas(policy, obs), atol=2e-5)
    drawn = policy.act(obs, np.random.default_rng(4))
    assert_allclose(drawn, formulas(policy, obs, np.random.default_rng(4)), atol=2e-5)
    assert not np.allclose(drawn, policy.act(obs))


@pytest.mark.parametrize("nvec", [(6,), (5, 7)])
def test_choices_are_those_of_the_formulas(nvec: tuple[int, ...]) -> None:
    kind = "discrete" if len(nvec) == 1 else "multi_discrete"
    spec = NetSpec(5, kind, nvec=nvec, hidden=(16,))
    policy, obs = network(spec), rows_of(spec)
    assert_array_equal(policy.act(obs), formulas(policy, obs))
    drawn = policy.act(obs, np.random.default_rng(4))
    assert_array_equal(drawn, formulas(policy, obs, np.random.default_rng(4)))
    assert drawn.dtype == np.int64


def test_an_action_does_not_depend_on_the_other_rows() -> None:
    spec = NetSpec(7, "gaussian", **GAUSSIAN, hidden=(64, 64))
    policy, obs = network(spec), rows_of(spec, 301)
    whole = policy.act(obs)
    for part in (obs[:1], obs[:50], obs[7::3]):
        assert_array_equal(policy.act(part), whole[np.isin(obs, part).all(1)])
    assert policy.act(obs[:0]).shape == (0, 2)


def test_a_very_wide_network_acts_too() -> None:
    spec = NetSpec(3, "discrete", nvec=(4,), hidden=(FUSED_WIDTH + 8,))
    policy, obs = network(spec), rows_of(spec)
    assert_array_equal(policy.act(obs), formulas(policy, obs))
