"""Stacks by index, the block layout, and the networks that read it."""

from __future__ import annotations

import math

import gymnasium as gym
import numpy as np
import pytest
import torch
from learn_games import spec
from torch.nn import functional

from holdfast.errors import ConfigError
from holdfast.learn.nets import ActorCritic
from holdfast.learn.options import LearnerConfig
from holdfast.learn.pixels import BLOCK, MIDDLE, SPREAD, View
from holdfast.learn.spec import NetSpec, spec_from
from holdfast.worlds.mario.frames import Stacker, stack_rows

TRUNKS = ("small", "nature", "impala", "big")


def net_of(one: NetSpec, seed: int = 0) -> ActorCritic:
    net = ActorCritic(one)
    net.first_parameters(np.random.default_rng(seed), 0.0)
    return net


def blocks_back(view: View, inputs: np.ndarray) -> np.ndarray:
    """Undo the layout: `[n, stack * C, H, W]`."""
    (h, w, _), p = view.shape, view.block
    parts = inputs.reshape(len(inputs), h, w, -1, p, p)
    return parts.transpose(0, 3, 1, 4, 2, 5).reshape(len(inputs), -1, h * p, w * p)


@pytest.mark.parametrize("trunk", TRUNKS)
def test_a_stack_is_what_the_world_says_it_is(trunk: str) -> None:
    rng = np.random.default_rng(0)
    steps, slots, stack = 40, 3, 4
    one = spec(trunk, 84, stack)
    frames = rng.integers(0, 256, (steps, slots, 84 * 84), np.uint8)
    begun = rng.random((steps, slots)) < 0.2
    begun[0] = True
    rows = stack_rows(begun, stack)
    stacker = Stacker(slots, stack)
    view = View(one)
    for t in range(steps):
        inputs = view.empty(slots)
        view.fill(frames, begun, np.full(slots, t), np.arange(slots), inputs)
        seen = blocks_back(view, inputs) * SPREAD + MIDDLE
        pictures = frames.reshape(steps, slots, 84, 84)
        expected = np.stack([pictures[rows[t, n], n] for n in range(slots)])
        np.testing.assert_allclose(seen, expected, atol=1e-4)
        np.testing.assert_allclose(seen, stacker.push(pictures[t], begun[t]), atol=1e-4)


@pytest.mark.parametrize("trunk", ["small", "nature"])
def test_blocks_give_the_convolution_of_the_picture(trunk: str) -> None:
    # 47 x 52 pixels of two channels: sides that are no multiples of the stride.
    one = NetSpec(47 * 52 * 2, "discrete", (3,), trunk=trunk, picture=(47, 52, 2), stack=2)
    net, view = net_of(one), View(one)
    frames = np.random.default_rng(1).integers(0, 256, (2, 5, 47 * 52 * 2), np.uint8)
    inputs = view.empty(5)
    view.fill(frames, np.zeros((2, 5), bool), np.ones(5, int), np.arange(5), inputs)
    ours = net.trunk.stem(torch.from_numpy(inputs).permute(0, 3, 1, 2))
    stack = frames.reshape(2, 5, 47, 52, 2).transpose(1, 0, 4, 2, 3).reshape(5, 4, 47, 52)
    plain = functional.conv2d(
        torch.from_numpy((stack - MIDDLE) / SPREAD).float(),
        net.trunk.stem.weight,
        net.trunk.stem.bias,
        stride=BLOCK[trunk],
    )
    torch.testing.assert_close(ours, plain, atol=1e-5, rtol=1e-4)


def test_networks_have_the_sizes_of_their_papers() -> None:
    sizes = {}
    for trunk in TRUNKS:
        memory = "gru" if trunk == "big" else "none"
        one = NetSpec(
            84 * 84, "discrete", (12,), trunk=trunk, picture=(84, 84, 1), stack=4,
            memory=memory, memory_size=512,
        )  # fmt: skip
        sizes[trunk] = sum(p.numel() for p in ActorCritic(one).parameters())
    # The original's network less its 3,648 parameters of batch normalisation.
    assert sizes["big"] == 20_933_549 - 3_648
    assert sizes["nature"] == 1_690_797
    assert sizes["impala"] == 1_092_573
    assert sizes["small"] < 300_000


@pytest.mark.parametrize("trunk", TRUNKS)
def test_the_first_policy_is_nearly_uniform_and_its_values_are_of_ordinary_size(trunk: str) -> None:
    one = spec(trunk, 84 if trunk != "big" else 36, 4)
    net, view = net_of(one), View(one)
    inputs = torch.from_numpy(np.random.default_rng(2).random((8, *view.shape), np.float32))
    with torch.no_grad():
        head, value = net(inputs.permute(0, 3, 1, 2))
        _, entropy = net.log_prob_entropy(head, torch.zeros(8, dtype=torch.int32))
    assert float(entropy.min()) >= 0.99 * math.log(3)
    assert float(value.abs().max()) < 20.0


def test_bytes_are_centred_and_floats_are_left_alone() -> None:
    frames = np.random.default_rng(3).integers(0, 256, (3, 2, 36 * 36), np.uint8)
    begun, rows, slots = np.zeros((3, 2), bool), np.array([2, 2]), np.arange(2)
    seen = []
    for pixel, source in (
        ("uint8", frames),
        ("float32", ((frames - MIDDLE) / SPREAD).astype(np.float32)),
    ):
        view = View(spec(pixel=pixel))
        seen.append(view.empty(2))
        view.fill(source, begun, rows, slots, seen[-1])
    np.testing.assert_allclose(*seen, atol=1e-6)


def box(shape: tuple[int, ...], dtype: type = np.uint8) -> gym.spaces.Box:
    return gym.spaces.Box(0, 255, shape, dtype)


def test_auto_reads_pictures_with_nature_and_numbers_with_an_mlp() -> None:
    actions = gym.spaces.Discrete(3)
    pictures = spec_from(LearnerConfig(), box((84, 84)), actions, stack=4)
    assert (pictures.trunk, pictures.picture, pictures.stack) == ("nature", (84, 84, 1), 4)
    assert pictures.obs_dtype is np.uint8 and not pictures.plain
    colour = spec_from(LearnerConfig(net="small"), box((96, 80, 3)), actions)
    assert (colour.trunk, colour.picture) == ("small", (96, 80, 3))
    numbers = spec_from(LearnerConfig(), box((5,), np.float32), actions)
    assert numbers.plain and numbers.obs_size == 5
    assert NetSpec.from_state(pictures.state()) == pictures


@pytest.mark.parametrize(
    ("settings", "space", "words"),
    [
        ({"net": "nature"}, box((5,), np.float32), r"reads pictures.*\(5,\)"),
        ({"net": "nature"}, box((20, 84)), "from 36 x 36 on"),
        ({"net": "mlp"}, box((84, 84)), "--learner.net nature"),
        ({}, box((84, 84), np.int32), "Allowed: float32, or uint8"),
        ({}, box((7,)), "cannot read pictures"),
    ],
)
def test_observations_that_do_not_fit_say_what_does(settings, space, words) -> None:
    with pytest.raises(ConfigError, match=words):
        spec_from(LearnerConfig(**settings), space, gym.spaces.Discrete(3))
