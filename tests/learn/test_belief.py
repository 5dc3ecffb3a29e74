"""The belief: a mixture density that learns where the opponent is from what only the loss is told."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import holdfast
from holdfast.collect import Collector, Seat, whole
from holdfast.learn.belief import UNIT, belief_loss, nll, place, with_root
from holdfast.learn.encoder import Mixture
from holdfast.learn.learner import Learner, make_learner
from holdfast.learn.net_learner import NetLearner
from holdfast.learn.nets import ActorCritic
from holdfast.learn.options import LearnerConfig
from holdfast.learn.spec import spec_from
from holdfast.rng import Streams
from holdfast.run import RunDirectory, resume

SETTINGS: dict[str, Any] = {"net": "sensors", "hidden": (8,), "threads": 1, "steps": 8}


def world(**options: Any) -> Any:
    small = {"games": 4, "observation": "sensors", "lidar_rays": 6, "history_length": 3}
    made = holdfast.make("pursuit", **{**small, "max_steps": 5, **options})
    made.reset(seed=1)
    return made


def learner_in(made: Any, slots: int = 8, **settings: Any) -> Learner:
    config = LearnerConfig(**{**SETTINGS, "minibatch": 32, **settings})
    spaces = made.single_observation_space, made.single_action_space
    spec = spec_from(config, *spaces, 1, made.sensors, made.truth_size)
    return make_learner(spec, config, Streams(0), slots)


def test_the_likelihood_of_one_gaussian_is_its_own() -> None:
    weights = torch.log(torch.tensor([[1.0, 1e-30, 1e-30, 1e-30, 1e-30]]))
    means = torch.zeros(1, 5, 2)
    means[0, 0] = torch.tensor([0.3, -0.2])
    deviations = torch.full((1, 5, 2), 0.1)
    deviations[0, 0, 1] = 0.2
    truth = torch.tensor([[4.0, 1.0]])
    sx, sy = 0.1 * UNIT, 0.2 * UNIT
    expected = (
        0.5 * ((4.0 - 3.0) / sx) ** 2
        + 0.5 * ((1.0 + 2.0) / sy) ** 2
        + math.log(2 * math.pi * sx * sy)
    )
    mixture = (weights, means, deviations)
    assert float(nll(mixture, truth)) == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(place(mixture).numpy(), [[3.0, -2.0]], rtol=1e-5)


def test_the_likelihood_of_a_mixture_is_the_weighted_sum() -> None:
    rng = torch.Generator().manual_seed(0)
    weights = torch.log_softmax(torch.randn(4, 5, generator=rng), 1)
    means = torch.randn(4, 5, 2, generator=rng)
    deviations = torch.rand(4, 5, 2, generator=rng) + 0.5
    truth = torch.randn(4, 2, generator=rng) * UNIT
    normal = torch.distributions.Normal(means * UNIT, deviations * UNIT)
    density = normal.log_prob(truth.unsqueeze(1)).sum(-1).exp()
    expected = -torch.log((weights.exp() * density).sum(1))
    torch.testing.assert_close(nll((weights, means, deviations), truth), expected)


def test_masked_rows_teach_nothing_and_the_error_is_a_root() -> None:
    head = Mixture(6)
    for module in head.modules():
        if hasattr(module, "draw"):
            module.draw(np.random.default_rng(0))
    held, truth = torch.ones(2, 6), torch.tensor([[1.0, 2.0], [900.0, 900.0]])
    alone, _ = belief_loss(head, held[:1], truth[:1], torch.ones(1))
    both, metrics = belief_loss(head, held, truth, torch.tensor([1.0, 0.0]))
    assert float(alone.detach()) == pytest.approx(float(both.detach()))
    error = with_root(metrics)["belief_error"]
    guess = place(head(held[:1])).detach().numpy()[0]
    assert error == pytest.approx(float(np.hypot(*(guess - [1.0, 2.0]))), rel=1e-5)


def test_the_truth_is_where_the_other_one_stands() -> None:
    made = world()
    pose = made.records["pose"][:, :, :2]
    np.testing.assert_allclose(made.truth()[0::2], pose[:, 1], rtol=1e-6)
    np.testing.assert_allclose(made.truth()[1::2], pose[:, 0], rtol=1e-6)


def test_in_navigation_the_truth_of_the_evader_is_its_goal() -> None:
    made = world(task="navigation", flee_probability=0.0, games=3)
    np.testing.assert_allclose(made.truth()[1::2], made.records["goal"][:, :2], rtol=1e-6)
    obs, _ = made.observe()
    x, y, theta, _, _, distance, bearing = obs[1::2, -7:].T
    seen = distance >= 0
    found = np.stack(
        [x + distance * np.cos(theta + bearing), y + distance * np.sin(theta + bearing)], 1
    )
    np.testing.assert_allclose(found[seen], made.truth()[1::2][seen], atol=1e-4)


def shown(rollout: Any, steps: int = 8) -> tuple[Any, Any]:
    """Return the places that observations show, computed from them, and whether they show one."""
    x, y, theta, _, _, distance, bearing = np.moveaxis(rollout.obs[:steps, :, -7:], 2, 0)
    at = np.stack(
        [x + distance * np.cos(theta + bearing), y + distance * np.sin(theta + bearing)], 2
    )
    return at, distance >= 0


def test_the_truth_of_a_rollout_belongs_to_its_observations() -> None:
    made = world(sensor_half_angle=math.pi, sensor_range=100.0)
    collector = whole(made, learner_in(made, belief=1.0))
    for _ in range(2):  # episodes of five steps end within
        collector.collect()
        rollout = collector.seats[0].rollout
        at, seen = shown(rollout)
        assert seen.all()
        np.testing.assert_allclose(rollout.truth, at, atol=1e-3)


def test_each_seat_is_told_its_own_truth_and_only_if_it_asks() -> None:
    made = world(sensor_half_angle=math.pi, sensor_range=100.0)
    slots = np.arange(made.num_envs)
    seats = [
        Seat(learner_in(made, 4, belief=1.0), slots[0::2]),
        Seat(learner_in(made, 4), slots[1::2]),
    ]
    Collector(made, seats).collect()
    at, _ = shown(seats[0].rollout)
    np.testing.assert_allclose(seats[0].rollout.truth, at, atol=1e-3)
    assert seats[1].rollout.truth.size == 0


KINDS = [("torch", "none"), ("torch", "gru"), ("vtrace", "none"), ("vtrace", "gru")]


@pytest.mark.parametrize(("kind", "memory"), KINDS)
def test_the_loss_of_the_belief_is_added_with_its_weight(
    kind: Any, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gradients of two weights differ by that of the mean likelihood, which reaches the encoder too."""
    grads = []
    for belief in (1.0, 3.0):
        made = world()
        settings = {"kind": kind, "memory": memory, "memory_size": 8, "epochs": 1}
        learner = learner_in(made, belief=belief, minibatch=1000, **settings)
        assert isinstance(learner, NetLearner)
        collector = whole(made, learner)
        collector.collect()
        rollout = collector.seats[0].rollout
        rollout.mask[:-1, 3] = False
        before = learner.parameters()
        kept: dict[str, Any] = {}

        def step(gradients: int, net: Any = learner.net, kept: Any = kept) -> float:
            kept.update({name: p.grad.clone() for name, p in net.named_parameters()})
            return 0.0

        monkeypatch.setattr(learner, "step", step)
        metrics = learner.update(rollout)
        grads.append(kept)
    net = ActorCritic(learner.spec)
    net.load_state_dict({name: torch.tensor(value) for name, value in before.items()})
    obs = torch.from_numpy(rollout.obs[:-1].reshape(64, -1))
    mask = torch.from_numpy(rollout.mask[:-1].reshape(64))
    truth = torch.from_numpy(rollout.truth.reshape(64, 2))
    mixture = net.mixture(net.trunk.read(obs)[1])
    loss = nll(mixture, truth)[mask].mean()
    found = torch.autograd.grad(loss, list(net.parameters()), materialize_grads=True)
    for (name, _), mine in zip(net.named_parameters(), found, strict=True):
        apart = (grads[1][name] - grads[0][name]) / 2
        torch.testing.assert_close(apart, mine, rtol=1e-3, atol=2e-5, msg=name)
    assert grads[0]["trunk.ahead.weight_hh"].abs().sum() > 0
    assert metrics["belief_nll"] == pytest.approx(float(loss.detach()), rel=1e-4)
    error = ((place(mixture) - truth) ** 2).sum(-1)[mask].mean().sqrt()
    assert metrics["belief_error"] == pytest.approx(float(error.detach()), rel=1e-4)


def test_the_belief_learns_where_the_opponent_is() -> None:
    made = world(games=64, sensor_half_angle=math.pi, sensor_range=100.0)
    learner = learner_in(
        made, 128, belief=1.0, lr=3e-3, steps=4, minibatch=64, epochs=3, value_coef=0.0
    )
    collector = whole(made, learner)
    found = []
    for _ in range(10):
        collector.collect()
        found.append(learner.update(collector.seats[0].rollout))
    truth = collector.seats[0].rollout.truth
    middle = float(np.sqrt((truth**2).sum(-1).mean()))
    assert found[0]["belief_error"] > 0.9 * middle
    assert found[-1]["belief_error"] < 0.9 * middle
    assert found[-1]["belief_nll"] < found[0]["belief_nll"] - 0.5


def test_the_belief_changes_nothing_that_is_played_before_the_first_update() -> None:
    made = [world() for _ in range(2)]
    rollouts = []
    for one, belief in zip(made, (0.0, 1.0), strict=True):
        collector = whole(one, learner_in(one, belief=belief))
        collector.collect()
        rollouts.append(collector.seats[0].rollout)
    np.testing.assert_array_equal(rollouts[0].actions, rollouts[1].actions)
    np.testing.assert_array_equal(rollouts[0].values, rollouts[1].values)


CONFIG = """
[run]
updates = 6
checkpoint_every = 1
keep_last = 100
tensorboard = false
[world]
name = "pursuit"
games = 4
max_steps = 10
observation = "sensors"
lidar_rays = 6
history_length = 3
[learner]
net = "sensors"
belief = 0.5
steps = 8
epochs = 1
minibatch = 32
hidden = [8]
threads = 1
[probe]
every = 0
episodes = 2
"""
SELFPLAY = "[selfplay]\nenabled = true\nhistory = 0.5\npool_every = 1\n"


@pytest.mark.parametrize(("overlap", "more"), [("on", ""), ("off", SELFPLAY), ("on", SELFPLAY)])
def test_a_run_that_teaches_a_belief_goes_on_exactly(
    tmp_path: Path, overlap: str, more: str
) -> None:
    path = tmp_path / "small.toml"
    path.write_text(CONFIG + more)
    quick: dict[str, Any] = {"runs_dir": tmp_path, "say": lambda text: None, "overlap": overlap}
    holdfast.train(str(path), run="whole", **quick)
    shutil.copytree(tmp_path / "whole", tmp_path / "copy" / "whole")
    copy = RunDirectory(tmp_path / "copy" / "whole")
    for checkpoint in copy.checkpoints().all():
        if checkpoint.update > 3:
            shutil.rmtree(checkpoint.path)
    resume("whole", tmp_path / "copy", say=lambda text: None)

    def lines(run: Path) -> list[dict[str, Any]]:
        found = (json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines())
        return [{k: v for k, v in one.items() if not k.startswith("time/")} for one in found]

    assert lines(copy.path) == lines(tmp_path / "whole")
    role = "evader/" if more else ""
    assert lines(copy.path)[-1][f"train/{role}belief_error"] > 0


def test_a_spec_from_before_the_belief_is_read() -> None:
    made = world()
    spec = learner_in(made).spec
    old = {
        k: v for k, v in spec.state().items() if k not in ("sensors", "encoder", "metres", "truth")
    }
    again = type(spec).from_state(old)
    assert again == replace(spec, sensors=(), metres=False)
