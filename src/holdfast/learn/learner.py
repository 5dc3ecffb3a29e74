"""The learner contract and all that is the same in every implementation.

One update of the loop:

    learner.begin(rollout)            draw the action noise of the whole rollout
    learner.act(rollout, t)           normalise obs[t], write action, log-probability and value
    learner.end(rollout, t, over, x)  episodes ended in step t: value the last observations of those that were cut
    learner.update(rollout)           bootstrap, advantages, minibatches, gradient steps; metrics

Where rollouts are collected while the learner learns, its *shadow* makes the first three calls: it plays every rollout
with what the learner was at `begin`, and `learner.adopt(shadow)` comes before the update.

Actions are sampled from noise that NumPy drew beforehand, minibatches are index permutations that NumPy
drew too, and the first parameters come from `spec.initial_parameters`: two implementations given the
same seed see the same numbers and differ only by rounding.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from holdfast.errors import ConfigError, nearest
from holdfast.learn.fused_order import permutations
from holdfast.learn.normalise import ObsNorm, RewardNorm
from holdfast.learn.options import IDLE, LearnerConfig
from holdfast.learn.policy import Policy, make_policy, to_box
from holdfast.learn.returns import explained_variance, gae
from holdfast.learn.spec import FUSED_WIDTH, NetSpec, initial_parameters
from holdfast.parallel import cores
from holdfast.records import F32, Array, Bools, Rollout
from holdfast.rng import Streams
from holdfast.state import Stateful

Index = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Anchor:
    """Elastic weight consolidation: parameters are pulled back to `values` by `weight * fisher`."""

    weight: float
    fisher: dict[str, F32]
    values: dict[str, F32]


class Memory(Stateful, Protocol):
    """What a learner keeps of older rollouts."""

    def bytes_after(self, steps: int) -> int:
        """Return about how much a checkpoint holds of it after so many steps of all slots."""
        ...


class Learner(ABC):
    """One policy and value function that learn from rollouts."""

    device: object = "cpu"
    """Where it computes."""
    value_names = ("lr", "lr_scale", "entropy", "clip")
    """What `set_value` may turn between updates; the step size is `lr * lr_scale`."""
    replay: Memory | None = None
    """A memory of older rollouts; it is saved as a part of its own."""

    def __init__(
        self,
        spec: NetSpec,
        config: LearnerConfig,
        streams: Streams,
        slots: int,
        name: str = "policy",
    ) -> None:
        self.spec, self.config, self.streams, self.name = spec, config, streams, name
        self.threads = config.threads or cores()
        self.norm = ObsNorm(spec.obs_size) if config.normalise_obs and not spec.picture else None
        self.reward_norm = RewardNorm(slots, config.gamma) if config.normalise_rewards else None
        self.settings = {
            "lr": config.lr,
            "lr_scale": 1.0,
            "entropy": config.entropy,
            "clip": config.clip,
        }
        self.anchor: Anchor | None = None
        self.seconds: dict[str, float] = {}
        """How long parts of the last update took, where a learner measures any."""
        self._source: Learner | None = None
        self.load_parameters(self.first_parameters())

    def first_parameters(self) -> dict[str, F32]:
        """Draw what the network begins with."""
        rng = self.streams[f"{self.name}/init"]
        return initial_parameters(self.spec, rng, self.config.log_std)

    def new_rollout(self, slots: int) -> Rollout:
        """Return empty arrays of the right shapes for `slots` slots."""
        spec = self.spec
        return Rollout.empty(
            self.config.steps,
            slots,
            (spec.obs_size,),
            spec.obs_dtype,
            spec.action_shape,
            spec.action_dtype,
            spec.noise_size,
            spec.stack - 1,
            spec.memory_floats,
            spec.truth,
        )

    def restart(self) -> None:  # noqa: B027 (a learner that carries nothing has nothing to forget)
        """Forget what was carried from earlier steps: new episodes begin in every slot."""

    def begin(self, rollout: Rollout) -> None:
        """Draw the noise of all actions of the coming rollout; a shadow becomes what its learner is now."""
        if self._source is not None:
            self._follow(self._source)
        rng = self.streams[f"{self.name}/actions"]
        if self.spec.continuous:
            rng.standard_normal(dtype=np.float32, out=rollout.noise)
        else:
            rng.random(dtype=np.float32, out=rollout.noise)

    def act(self, rollout: Rollout, t: int) -> Array:
        """Fill row t (normalised obs, action, log-probability, value); return the world's actions."""
        obs = rollout.obs[t]
        if self.norm is not None:
            self.norm.apply_in_place(obs, rollout.mask[t])
        actions = rollout.actions[t]
        self._forward(obs, rollout.noise[t], actions, rollout.log_probs[t], rollout.values[t])
        return to_box(self.spec, actions) if self.spec.continuous else actions

    def end(self, rollout: Rollout, t: int, over: Bools, final_obs: Array) -> None:
        """Note that the episodes of the slots in `over [N]` ended in step t; write `final_values` of the cut ones.

        `final_obs [N, ...]` are the last observations of the old episodes.
        """
        cut = np.flatnonzero(rollout.truncations[t])
        if len(cut):
            rollout.final_values[t, cut] = self.values_of(final_obs[cut].reshape(len(cut), -1))

    def values_of(self, obs: Array) -> F32:
        """Return the value of raw observations `[n, D]`, each seen alone, as the first of an episode."""
        if self.spec.picture:
            return self._values(obs)
        rows = np.asarray(obs, np.float32)
        return self._values(self.norm.apply(rows) if self.norm is not None else rows)

    def shadow(self) -> Learner:
        """Return a learner that only acts: every rollout with what this one was when the rollout began.

        It shares nothing with this one that acting or learning changes, so it may act while this one learns.
        """
        other = copy.copy(self)
        other._source = self
        if self.norm is not None:
            other.norm = ObsNorm(self.spec.obs_size)
        return other

    def _follow(self, source: Learner) -> None:
        """Become what the learner of this shadow is now."""
        self.config = source.config
        if self.norm is not None and source.norm is not None:
            self.norm.load_state_dict(source.norm.state_dict())

    def adopt(self, shadow: Learner) -> None:
        """Take over what the shadow has seen while it played the rollout of the coming update."""
        if self.norm is not None and shadow.norm is not None:
            self.norm.adopt(shadow.norm)

    def acting_state(self) -> dict[str, Any]:
        """Return what a shadow has that its learner has not."""
        return {"seen": None if self.norm is None else self.norm.seen()}

    def load_acting_state(self, state: dict[str, Any]) -> None:
        """Go on as the shadow that returned `state`."""
        if self.norm is not None:
            self.norm.load_seen(state["seen"])

    def rest(self) -> None:
        """Leave the rollout unused: nothing of it enters the learner's state."""
        if self.norm is not None:
            self.norm.drop()

    def policy(self) -> Policy:
        """Return a frozen copy of what the learner plays now."""
        norm = None
        if self.norm is not None:
            norm = ObsNorm(self.spec.obs_size)
            norm.load_state_dict(self.norm.state_dict())
        return make_policy(self.spec, self.parameters(), norm)

    def configure(self, config: LearnerConfig) -> None:
        """Use the settings of a phase; those that fix the network and its parts are the same in all."""
        if config.clip != self.config.clip:  # else it stays as a guard may have turned it
            self.set_value("clip", config.clip)
        self.config = config
        if self.reward_norm is not None:
            self.reward_norm.gamma = config.gamma

    def protect(self, anchor: Anchor | None) -> None:
        """Add `weight * fisher * (parameter - value)` to every gradient from now on; None ends it."""
        self.anchor = anchor

    def set_value(self, name: str, value: float) -> None:
        """Set one of `value_names` from the next update on."""
        self.value(name)
        self.settings[name] = float(value)

    def value(self, name: str) -> float:
        """Return the setting in use."""
        if name not in self.settings:
            raise ConfigError(
                f"A learner has no value '{name}' that can be turned. "
                f"It has: {', '.join(self.value_names)}.{nearest(name, self.value_names)}"
            )
        return self.settings[name]

    def in_use(self) -> dict[str, float]:
        """Return the settings that this kind of learner learns with, as they are now."""
        idle = IDLE.get(self.config.kind, ())
        return {name: value for name, value in self.settings.items() if name not in idle}

    def state_dict(self) -> dict[str, Any]:
        """Return parameters, optimiser, normalisation and settings."""
        return {
            "spec": self.spec.state(),
            "parameters": self.parameters(),
            "optimiser": self._optimiser_state(),
            "norm": self.norm.state_dict() if self.norm is not None else None,
            "reward_norm": self.reward_norm.state_dict() if self.reward_norm is not None else None,
            "settings": dict(self.settings),
            "anchor": None if self.anchor is None else dict(vars(self.anchor)),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become the learner that returned `state` (of this or of another implementation)."""
        self.load_parameters(state["parameters"])
        self._load_optimiser_state(state["optimiser"])
        if self.norm is not None:
            self.norm.load_state_dict(state["norm"])
        if self.reward_norm is not None:
            self.reward_norm.load_state_dict(state["reward_norm"])
        self.settings = {k: float(v) for k, v in state["settings"].items()}
        self.protect(None if state["anchor"] is None else Anchor(**state["anchor"]))

    @abstractmethod
    def update(self, rollout: Rollout) -> dict[str, float]:
        """Learn from the rollout; return the update's metrics."""

    @abstractmethod
    def parameters(self) -> dict[str, F32]:
        """Return copies of all parameters by their torch-style names."""

    @abstractmethod
    def load_parameters(self, parameters: dict[str, F32]) -> None:
        """Replace all parameters (names and shapes must match) and leave the optimiser alone."""

    @abstractmethod
    def _forward(self, obs: F32, noise: F32, actions: Array, log_probs: F32, values: F32) -> None:
        """Write action, log-probability and value of every row of normalised `obs [n, D]`."""

    @abstractmethod
    def _values(self, obs: F32) -> F32:
        """Return the value of every row of normalised `obs [n, D]`."""

    @abstractmethod
    def _optimiser_state(self) -> dict[str, Any]:
        """Return `{"step": int, "m": {name: array}, "v": {name: array}}` of Adam."""

    @abstractmethod
    def _load_optimiser_state(self, state: dict[str, Any]) -> None:
        """Restore what `_optimiser_state` returned."""


class RolloutLearner(Learner):
    """Goes over each rollout in minibatches."""

    def update(self, rollout: Rollout) -> dict[str, float]:
        if self.reward_norm is not None:
            self.reward_norm.apply_in_place(rollout)
        self._targets(rollout)
        mask = rollout.mask[:-1]
        rows = np.flatnonzero(mask).astype(np.int32)
        metrics = self._optimise(rollout, *self._batches(rollout, rows)) if len(rows) > 1 else {}
        if self.norm is not None:
            self.norm.merge()
        metrics["explained_variance"] = explained_variance(rollout.values, rollout.returns, mask)
        metrics["samples"] = float(len(rows))
        metrics["masked_share"] = 1.0 - len(rows) / mask.size
        if self.spec.nvec:
            metrics["entropy_max"] = float(np.log(self.spec.nvec).sum())
        metrics.update(self.in_use())
        return metrics

    def _targets(self, rollout: Rollout) -> None:
        """Write advantages and returns."""
        config = self.config
        rollout.values[-1] = self._bootstrap(rollout)
        gae(
            rollout.rewards,
            rollout.values,
            rollout.mask,
            rollout.terminations,
            rollout.truncations,
            rollout.final_values,
            config.gamma,
            config.lam,
            rollout.advantages,
            rollout.returns,
        )

    def _bootstrap(self, rollout: Rollout) -> F32:
        """Return the value of the observations after the last step."""
        return self.values_of(rollout.obs[-1])

    def minibatches(self, rows: Index) -> tuple[Index, npt.NDArray[np.int64]]:
        """Return `[epochs, S]` shuffled sample positions and the borders `[M+1]` of the minibatches.

        The S samples of an epoch are cut evenly into about `S / minibatch` parts, so that none is
        left with too few samples to normalise.
        """
        rng = self.streams[f"{self.name}/minibatches"]
        order = permutations(rng, rows, self.config.epochs)
        count = max(1, round(len(rows) / self.config.minibatch))
        borders = np.arange(count + 1, dtype=np.int64) * len(rows) // count
        return order, borders

    def _batches(self, rollout: Rollout, rows: Index) -> tuple[Index, npt.NDArray[np.int64]]:
        """Return the order in which `_optimise` goes over the rollout, and the borders of its minibatches."""
        return self.minibatches(rows)

    @abstractmethod
    def _optimise(
        self, rollout: Rollout, order: Index, borders: npt.NDArray[np.int64]
    ) -> dict[str, float]:
        """Make the gradient steps of all minibatches of all epochs; return their mean metrics.

        Keys: policy_loss, value_loss, entropy_mean, approx_kl, clip_fraction, grad_norm,
        minibatches (how many steps were made).
        """


def make_learner(
    spec: NetSpec, config: LearnerConfig, streams: Streams, slots: int, name: str = "policy"
) -> Learner:
    """Return the learner that `config.kind` asks for; `auto` is fused wherever that can be."""
    obstacle = not_fused(spec, config)
    if config.kind == "vtrace":
        from holdfast.learn.vtrace import VTraceLearner

        return VTraceLearner(spec, config, streams, slots, name)
    if config.kind == "sac":
        from holdfast.learn.sac import SacLearner

        return SacLearner(spec, config, streams, slots, name)
    wide = max(spec.hidden, default=0) > FUSED_WIDTH
    if config.kind == "torch" or (config.kind == "auto" and (obstacle or wide)):
        from holdfast.learn.ppo import TorchLearner

        return TorchLearner(spec, config, streams, slots, name)
    if obstacle:
        raise ConfigError(
            f"learner.kind = 'fused' cannot have {obstacle}. Type: --learner.kind torch"
        )
    from holdfast.learn.fused import FusedLearner

    return FusedLearner(spec, config, streams, slots, name)


def not_fused(spec: NetSpec, config: LearnerConfig) -> str:
    """Return what the compiled kernels do not have, as a setting; empty if they can do it all."""
    obstacles = {
        f"net = '{spec.trunk}'": spec.trunk != "mlp",
        f"memory = '{spec.memory}'": spec.memory != "none",
        "noisy = true": spec.noisy,
        f"optimiser = '{config.optimiser}'": config.optimiser != "adam",
        f"accumulate = {config.accumulate}": config.accumulate > 1,
        "compile = true": config.compile,
        "bfloat16 = true": config.bfloat16,
        f"device = {config.device!r}": config.device not in ("auto", "cpu"),
    }
    return next((words for words, found in obstacles.items() if found), "")
