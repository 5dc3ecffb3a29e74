from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from holdfast.learn.policy import random_actions
from holdfast.learn.spec import spec_for
from holdfast.records import Array
from holdfast.selfplay.tremble import Tremble

PLACES, STEPS = 64, 3000
STEADY = -5.0


def draw(count: int, rng: np.random.Generator) -> Array:
    return rng.random((count, 1)).astype(np.float32)


def played(tremble: Tremble, steps: int, length: int, seed: int = 0) -> Array:
    """Return what was done `[steps, places]` in episodes of this length; `STEADY` is the player's own action."""
    rng, at, found = np.random.default_rng(seed), np.arange(PLACES), []
    for t in range(steps):
        actions: Array = np.full((PLACES, 1), STEADY, np.float32)
        begun = np.full(PLACES, t % length == 0)
        tremble.shake(actions, at, begun, draw, rng)
        found.append(actions[:, 0])
    return np.stack(found)


@pytest.mark.parametrize(("share", "steps"), [(0.1, 40.0), (0.3, 5.0), (0.5, 1.0)])
def test_hands_slip_in_this_share_of_the_steps_and_hold_one_action_so_long(
    share: float, steps: float
) -> None:
    done = played(Tremble(PLACES, share, steps), STEPS, STEPS)
    slips = done != STEADY
    assert slips.mean() == pytest.approx(share, rel=0.12)
    # A new action begins wherever it differs from the one before.
    new = slips[1:] & (done[1:] != done[:-1])
    assert slips[1:].sum() / new.sum() == pytest.approx(steps, rel=0.12)


def test_an_episode_begins_with_a_steady_hand() -> None:
    done = played(Tremble(PLACES, 0.5, 40.0), 600, 20)
    assert (done[::20] == STEADY).all() and (done != STEADY).any()


def test_those_who_slip_go_on_from_a_checkpoint() -> None:
    one, other = Tremble(PLACES, 0.3, 10.0), Tremble(PLACES, 0.3, 10.0)
    played(one, 50, 1000)
    other.load_state_dict(one.state_dict())
    assert one.slips.any()
    np.testing.assert_array_equal(played(one, 50, 1000, 1)[1:], played(other, 50, 1000, 1)[1:])


SPACES: dict[str, Any] = {
    "discrete": gym.spaces.Discrete(3),
    "several": gym.spaces.MultiDiscrete([2, 4]),
    "box": gym.spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 1.0], np.float32)),
}


@pytest.mark.parametrize("kind", SPACES)
def test_random_actions_fill_the_action_space(kind: str) -> None:
    space = SPACES[kind]
    spec = spec_for(gym.spaces.Box(-1, 1, (4,)), space, (8,))
    actions = random_actions(spec, 2000, np.random.default_rng(0))
    assert all(np.asarray(a).astype(space.dtype) in space for a in actions)
    if kind == "box":
        np.testing.assert_allclose(actions.min(0), space.low, atol=0.02)
        np.testing.assert_allclose(actions.max(0), space.high, atol=0.02)
        return
    sizes = np.atleast_1d(space.n if kind == "discrete" else space.nvec)
    for column, size in zip(actions.reshape(2000, -1).T, sizes, strict=True):
        counts = np.bincount(column, minlength=size)
        assert counts.min() > 0.8 * 2000 / size
