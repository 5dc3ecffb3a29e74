"""A frozen policy: parameters and normalisation, no optimiser; an MLP needs no torch.

policy = holdfast.load_policy("runs/first")
actions = policy.act(obs)                 # deterministic
actions = policy.act(obs, rng=generator)  # sampled
actions = policy.act(obs, begun=ended)    # slots whose observation is the first of a new episode
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from holdfast.errors import ConfigError
from holdfast.learn.normalise import ObsNorm
from holdfast.learn.spec import FUSED_WIDTH, NetSpec
from holdfast.records import F32, Array, Bools, channels_last

if TYPE_CHECKING:
    from holdfast.learn.actor import Actor

LOG_STD = (-20.0, 2.0)
"""Bounds of the log deviation of squashed actions."""


class Policy:
    """Maps observations `[n, D]` to actions that a world takes.

    It is frozen: `parameters` may be changed until it acts for the first time.
    """

    def __init__(
        self, spec: NetSpec, parameters: Mapping[str, F32], norm: ObsNorm | None = None
    ) -> None:
        self.spec = spec
        self.parameters = {k: np.array(v, np.float32) for k, v in parameters.items()}
        self.norm = norm
        self._actor: Actor | None = None

    def begin(self) -> None:
        """Begin new episodes in every row with the next call of `act`; a policy without memory has nothing to do."""

    def act(
        self,
        obs: Array,
        rng: np.random.Generator | None = None,
        begun: Bools | None = None,
    ) -> Array:
        """Return one action a row: the best one, or a sampled one when `rng` is given.

        `begun [n]` is True in rows whose observation is the first of an episode; a policy that remembers needs it.
        """
        rows = self._rows(obs)
        if max(self.spec.hidden, default=0) > FUSED_WIDTH:
            return self._pick(self._head("pi", rows), rng)
        if self._actor is None:
            from holdfast.learn.actor import Actor  # loads the compiler

            self._actor = Actor(self.spec, self.parameters)
        if self.spec.action == "squashed":
            return self._pick(self._actor.heads(rows), rng)
        actions = self._actor.act(rows, rng)
        if self.spec.continuous:
            return to_box(self.spec, actions)
        return actions.astype(np.int64)

    def _pick(self, head: Array, rng: np.random.Generator | None) -> Array:
        """Return the actions that the outputs of the network mean."""
        deviation = np.exp(self.parameters["log_std"]) if "log_std" in self.parameters else None
        return choose(self.spec, head, deviation, rng)

    def values(self, obs: Array, begun: Bools | None = None) -> F32:
        """Return the critic's value of each row; what the policy remembers stays as it is."""
        rows = self._rows(obs)
        if self.spec.action != "squashed":
            return self._head("vf", rows)[:, 0]
        best = np.tanh(self._head("pi", rows)[:, : self.spec.action_size])
        pairs = np.concatenate([rows, best], 1)
        return np.minimum(self._head("q1", pairs), self._head("q2", pairs))[:, 0]

    def _rows(self, obs: Array) -> F32:
        rows = observation_rows(obs, self.spec).astype(np.float32, copy=False)
        return rows if self.norm is None else self.norm.apply(rows)

    def _head(self, head: str, x: F32) -> F32:
        trunk = "trunk" if self.spec.shared else head
        p = self.parameters
        for i in range(len(self.spec.hidden)):
            x = x @ p[f"{trunk}.{i}.weight"].T + p[f"{trunk}.{i}.bias"]
            x = np.tanh(x) if self.spec.activation == "tanh" else np.maximum(x, 0)
        out: F32 = x @ p[f"{head}_out.weight"].T + p[f"{head}_out.bias"]
        return out


def observation_rows(obs: Array, spec: NetSpec) -> Array:
    """Return observations as rows `[n, D]`, or say what was expected."""
    rows = np.asarray(obs)
    size = spec.obs_size
    if rows.dtype.kind not in "fiub" or rows.ndim < 2 or rows[:1].size != min(len(rows), 1) * size:
        raise ConfigError(
            f"The policy got observations of the shape {rows.shape} and type {rows.dtype}. It takes rows of {size} numbers, "
            "one a slot, as its world gives them; for a single observation, type: policy.act(obs[None])[0]"
        )
    if spec.picture:
        rows = channels_last(rows, *spec.picture[:2])
    return rows.reshape(len(rows), size)


def make_policy(spec: NetSpec, parameters: Mapping[str, F32], norm: ObsNorm | None) -> Policy:
    """Return the frozen policy of a network; torch is loaded only for one that is no plain MLP."""
    if spec.plain:
        return Policy(spec, parameters, norm)
    from holdfast.learn.net_policy import NetPolicy

    return NetPolicy(spec, parameters, norm)


def choose(
    spec: NetSpec, head: Array, deviation: F32 | None, rng: np.random.Generator | None
) -> Array:
    """Return the world's actions that the outputs of a network mean: the best ones, or sampled ones.

    `deviation` is that of Gaussian actions, for all rows or for each.
    """
    if not spec.continuous:
        uniform = None if rng is None else rng.random((len(head), len(spec.nvec)), np.float32)
        picks = pick_discrete(head, spec.nvec, uniform)
        return picks[:, 0] if spec.action == "discrete" else picks
    squashed = spec.action == "squashed"
    if squashed:
        head, log_std = np.split(head, 2, 1)
        deviation = np.exp(np.clip(log_std, *LOG_STD))
    if rng is not None:
        assert deviation is not None
        head = head + deviation * rng.standard_normal(head.shape, np.float32)
    return to_box(spec, np.tanh(head) if squashed else head)


def random_actions(spec: NetSpec, count: int, rng: np.random.Generator) -> Array:
    """Return so many of the world's actions, each as likely as any other."""
    if spec.continuous:
        return to_box(spec, rng.uniform(-1.0, 1.0, (count, len(spec.low))).astype(np.float32))
    picks = rng.integers(0, spec.nvec, (count, len(spec.nvec)))
    return picks[:, 0] if spec.action == "discrete" else picks


def to_box(spec: NetSpec, actions: Array) -> Array:
    """Return network actions clipped to [-1, 1] and stretched to the bounds of the action space."""
    low, high = np.asarray(spec.low, np.float32), np.asarray(spec.high, np.float32)
    return low + (np.clip(actions, -1.0, 1.0) + np.float32(1.0)) * (high - low) / np.float32(2.0)


def pick_discrete(logits: F32, nvec: tuple[int, ...], uniform: F32 | None) -> Array:
    """Return `[n, len(nvec)]` choices: the largest logit, or by inverse CDF of `uniform`."""
    picks = np.empty((len(logits), len(nvec)), np.int64)
    first = 0
    for k, choices in enumerate(nvec):
        part = logits[:, first : first + choices]
        if uniform is None:
            picks[:, k] = part.argmax(1)
        else:
            weights = np.exp(part - part.max(1, keepdims=True))
            cdf = np.cumsum(weights, 1)
            below = cdf < uniform[:, k : k + 1] * cdf[:, -1:]
            picks[:, k] = np.minimum(below.sum(1), choices - 1)
        first += choices
    return picks
