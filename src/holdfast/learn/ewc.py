"""Elastic weight consolidation: how much each parameter matters to what the policy does now.

    learner.protect(anchor_of(learner, rollout, weight=1000.0))

The diagonal of the Fisher matrix is the mean square of the score, the gradient of the log-probability of
one sampled action of one observation. A linear layer's gradient of one sample is the outer product of what
flows back and what flows in, so the sum of squares over all samples is a product of squares: exact, without
a gradient of each sample being made. Networks that are no plain MLPs take one (`fisher.py`). Critic parameters
have no part in the policy and get zero.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from holdfast.errors import ConfigError
from holdfast.learn.learner import Anchor, Learner
from holdfast.learn.policy import LOG_STD, pick_discrete
from holdfast.learn.spec import NetSpec
from holdfast.records import F32, F64, Array, Rollout

SAMPLES = 1024
"""Observations from which a Fisher diagonal is estimated unless more are asked for."""


def check_covered(spec: NetSpec) -> None:
    """Raise for a network whose Fisher diagonal cannot be had."""
    if spec.picture or spec.memory != "none" or spec.noisy:
        raise ConfigError(
            "EWC covers networks that answer one observation of numbers, and this one reads pictures, remembers or "
            "has parameter noise. Set the weight of EWC to 0 (the guards' `protect`), or learner.net to 'mlp' or "
            "'sensors', learner.memory to 'none' and learner.noisy to false."
        )


def fisher(
    learner: Learner,
    source: Rollout | Array,
    samples: int = SAMPLES,
    rng: np.random.Generator | None = None,
) -> dict[str, F32]:
    """Return the Fisher diagonal of the policy by parameter name.

    `source` is a rollout that the learner has collected, or raw observations `[n, D]`. Up to `samples` of its
    decisions are taken, and actions are sampled anew from the policy as it is. Without `rng` the learner's own
    stream is used, which its checkpoint holds.
    """
    spec = learner.spec
    check_covered(spec)
    rng = learner.streams[f"{learner.name}/fisher"] if rng is None else rng
    rows = decisions(learner, source)
    if len(rows) > samples:
        rows = rows[np.sort(rng.choice(len(rows), samples, replace=False))]
    parameters = learner.parameters()
    if spec.plain:
        head = forward(spec, parameters, rows)[-1]
        squares = squared_scores(spec, parameters, rows, _sample(spec, parameters, head, rng))
    else:
        from holdfast.learn.fisher import Scores  # loads torch

        scores = Scores(spec, parameters)
        found = scores.squares(rows, _sample(spec, parameters, scores.heads(rows), rng))
        squares = {**{name: np.zeros(value.shape) for name, value in parameters.items()}, **found}
    return {name: value.astype(np.float32) for name, value in squares.items()}


def anchor_of(
    learner: Learner,
    source: Rollout | Array,
    weight: float,
    *,
    decay: float = 0.0,
    samples: int = SAMPLES,
    rng: np.random.Generator | None = None,
) -> Anchor:
    """Return the anchor that holds what the learner does on these observations.

    With `decay` above 0 the importance of what was protected before lives on, so much weaker (online EWC);
    with 0 the new anchor replaces the old one.
    """
    if not weight >= 0 or not 0 <= decay <= 1:
        raise ConfigError(
            f"EWC got the weight {weight:g} and the decay {decay:g}; allowed: a weight of 0 or more, a decay "
            "from 0 (only the newest task) to 1 (all tasks alike)."
        )
    found = fisher(learner, source, samples, rng)
    if decay > 0 and learner.anchor is not None:
        before = learner.anchor.fisher
        found = {name: value + np.float32(decay) * before[name] for name, value in found.items()}
    return Anchor(weight, found, learner.parameters())


def penalty(learner: Learner) -> float:
    """Return what the anchor adds to the loss: weight / 2 * sum of fisher * (parameter - value)^2."""
    anchor = learner.anchor
    if anchor is None:
        return 0.0
    total = 0.0
    for name, value in learner.parameters().items():
        moved = value.astype(np.float64) - anchor.values[name]
        total += float((anchor.fisher[name] * moved * moved).sum())
    return 0.5 * anchor.weight * total


def decisions(learner: Learner, source: Rollout | Array) -> F32:
    """Return the normalised observations `[n, D]` that carry a decision."""
    if isinstance(source, Rollout):
        # The learner has normalised these rows when it acted on them.
        rows = source.obs[:-1][source.mask[:-1]]
    else:
        raw = np.asarray(source, np.float32)
        rows = raw if learner.norm is None else learner.norm.apply(raw)
    if len(rows) == 0:
        raise ConfigError(
            "EWC needs observations that carry a decision, and there are none. Play first."
        )
    rows = np.asarray(rows, np.float32).reshape(len(rows), -1)
    if rows.shape[1] != learner.spec.obs_size:
        raise ConfigError(
            f"EWC got observations of {rows.shape[1]} numbers; the policy reads {learner.spec.obs_size}."
        )
    return rows


def forward(spec: NetSpec, parameters: Mapping[str, F32], rows: F32) -> list[F64]:
    """Return what flows into every layer of the actor, and last its head, in double precision."""
    x = rows.astype(np.float64)
    found = [x]
    names = _layers(spec)
    for name in names:
        x = x @ parameters[f"{name}.weight"].T.astype(np.float64) + parameters[f"{name}.bias"]
        if name != names[-1]:
            x = np.tanh(x) if spec.activation == "tanh" else np.maximum(x, 0.0)
        found.append(x)
    return found


def squared_scores(
    spec: NetSpec, parameters: Mapping[str, F32], rows: F32, actions: Array
) -> dict[str, F64]:
    """Return the mean square of each parameter's score over samples of (observation, action)."""
    *inputs, head = forward(spec, parameters, rows)
    found = {name: np.zeros(value.shape) for name, value in parameters.items()}
    if spec.action == "gaussian":
        deviation = np.exp(parameters["log_std"].astype(np.float64))
        z = (actions - head) / deviation
        back = z / deviation
        found["log_std"] = ((z * z - 1.0) ** 2).mean(0)
    elif spec.action == "squashed":
        back = _squashed_score(head, actions)
    else:
        back = _one_hot_minus_chance(spec, head, actions)
    for k, name in reversed(list(enumerate(_layers(spec)))):
        x, squares = inputs[k], back * back
        found[f"{name}.weight"] = squares.T @ (x * x) / len(rows)
        found[f"{name}.bias"] = squares.mean(0)
        if k > 0:
            slope = 1.0 - x * x if spec.activation == "tanh" else x > 0
            back = slope * (back @ parameters[f"{name}.weight"].astype(np.float64))
    return found


def _layers(spec: NetSpec) -> list[str]:
    trunk = "trunk" if spec.shared else "pi"
    return [f"{trunk}.{i}" for i in range(len(spec.hidden))] + ["pi_out"]


def _sample(
    spec: NetSpec, parameters: Mapping[str, F32], head: F64, rng: np.random.Generator
) -> Array:
    if spec.continuous:
        mean, log_std = head, parameters.get("log_std", np.zeros(0)).astype(np.float64)
        if spec.action == "squashed":
            mean, log_std = np.split(head, 2, 1)
            log_std = np.clip(log_std, *LOG_STD)
        actions: Array = mean + np.exp(log_std) * rng.standard_normal(mean.shape)
        return actions
    uniform = rng.random((len(head), len(spec.nvec)), np.float32)
    return pick_discrete(head.astype(np.float32), spec.nvec, uniform)


def _squashed_score(head: F64, actions: F64) -> F64:
    """Return the score for means and log deviations; `actions` are those before tanh, which has no parameters."""
    mean, log_std = np.split(head, 2, 1)
    deviation = np.exp(np.clip(log_std, *LOG_STD))
    z = (actions - mean) / deviation
    inside = (log_std > LOG_STD[0]) & (log_std < LOG_STD[1])
    return np.concatenate([z / deviation, (z * z - 1.0) * inside], 1)


def _one_hot_minus_chance(spec: NetSpec, head: F64, actions: Array) -> F64:
    picks = np.asarray(actions).reshape(len(head), -1)
    back = np.empty_like(head)
    first = 0
    for k, choices in enumerate(spec.nvec):
        part = head[:, first : first + choices]
        weights = np.exp(part - part.max(1, keepdims=True))
        chance = weights / weights.sum(1, keepdims=True)
        back[:, first : first + choices] = np.eye(choices)[picks[:, k]] - chance
        first += choices
    return back
