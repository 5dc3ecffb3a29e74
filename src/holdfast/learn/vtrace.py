"""Actor-critic with V-trace (IMPALA): every sequence is used once, and may come from an older policy.

The rollout holds the log-probabilities under the policy that acted; weights, values and targets are computed anew with
the present network when a sequence is used. So a lag between acting and learning is corrected, and so is the drift
between the first and the last minibatch of one rollout.

With `[learner.replay]` every rollout is remembered, and after each one sequences of older policies are learned from
again, drawn by how wrong their values were. They get the same correction, with the network of that moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from torch import Tensor

from holdfast.learn.belief import SQUARE, belief_loss, with_root
from holdfast.learn.carry import mark_begun
from holdfast.learn.device import take
from holdfast.learn.learner import Index
from holdfast.learn.net_learner import NetLearner
from holdfast.learn.options import LearnerConfig, check_capacity
from holdfast.learn.pixels import Longs
from holdfast.learn.replay import Replay
from holdfast.learn.spec import NetSpec
from holdfast.learn.vtrace_kernels import vtrace
from holdfast.records import F32, Rollout
from holdfast.rng import Streams

METRICS = ("policy_loss", "value_loss", "entropy_mean", "approx_kl", "clip_fraction")
TOLD = (
    "size",
    "capacity",
    "fill_rate",
    "samples",
    "stale",
    "left_out",
    "interval",
    "beta",
    "distinct_share",
    "priority_mean",
    "priority_p50",
    "priority_p90",
    "priority_p99",
)
"""What is reported of the memory."""


@dataclass(frozen=True)
class Again:
    """What is special about sequences that were drawn from the memory."""

    weights: F32
    """`[B]` importance weights of the draw."""
    errors: F32
    """`[L, B]` where the loss leaves how wrong the values are."""
    stale: bool
    """Whether the targets of the time of the push are used, uncorrected."""


class VTraceLearner(NetLearner):
    """One gradient for each minibatch of whole sequences, `accumulate` of them a step."""

    replay: Replay | None = None

    def __init__(
        self,
        spec: NetSpec,
        config: LearnerConfig,
        streams: Streams,
        slots: int,
        name: str = "policy",
    ) -> None:
        check_capacity(config, slots)
        super().__init__(spec, config, streams, slots, name)
        if config.replay.enabled:
            self.replay = Replay(config.replay, streams, f"{name}/replay")
            self.replay.steps = config.steps

    def update(self, rollout: Rollout) -> dict[str, float]:
        self._given = rollout.rewards.copy() if self.replay is not None else rollout.rewards
        return super().update(rollout)

    def _targets(self, rollout: Rollout) -> None:
        """Leave them to the minibatches, which compute them with the network of that moment."""
        mark_begun(rollout, rollout.steps)
        if self.norm is not None:
            rollout.obs[-1] = self.norm.apply(rollout.obs[-1])

    def _batches(self, rollout: Rollout, rows: Index) -> tuple[Index, npt.NDArray[np.int64]]:
        return self.sequences(rollout, 1)

    def _optimise(
        self, rollout: Rollout, order: Index, borders: npt.NDArray[np.int64]
    ) -> dict[str, float]:
        names = (*METRICS, "belief_nll", SQUARE) if rollout.truth.size else METRICS
        sums = dict.fromkeys((*names, "grad_norm"), 0.0)
        parts = list(pairwise(borders))
        waiting = steps = 0
        self.use_noise_of(rollout)
        for k, (lo, hi) in enumerate(parts):
            slots = order[0][lo:hi].astype(np.int64)
            size = max(int(rollout.mask[:-1, slots].sum()), 1)

            def loss_of(
                piece: Longs, lane: int, size: int = size
            ) -> tuple[Tensor, dict[str, float]]:
                return self._loss(rollout, piece, lane, size)

            metrics = self.gradient(self.pieces_of(slots, rollout.steps + 1), loss_of)
            for key, value in metrics.items():
                sums[key] += value
            waiting += 1
            if waiting == self.config.accumulate or k == len(parts) - 1:
                sums["grad_norm"] += self.step(waiting)
                waiting, steps = 0, steps + 1
        means = {key: total / len(parts) for key, total in sums.items()}
        means["grad_norm"] = sums["grad_norm"] / steps
        means = with_root(means)
        means["minibatches"] = float(len(parts))
        if self.replay is not None:
            means.update(self._learn_again(self.replay))
            self._remember(self.replay, rollout)
            stats = self.replay.stats()
            means.update({f"replay_{key}": stats[key] for key in TOLD if key in stats})
        return means

    def _learn_again(self, replay: Replay) -> dict[str, float]:
        """Make gradient steps from the memory when it is time; return their mean metrics."""
        config = self.config.replay
        self.seconds = dict.fromkeys(("replay_draw", "replay_gather"), 0.0)
        if not replay.due(replay.pushes):
            return {}
        sums: dict[str, float] = {}
        for _ in range(config.gradients):
            sample = replay.sample(config.batch)
            for name, seconds in replay.seconds.items():
                self.seconds[f"replay_{name}"] += seconds
            old = sample.rollout
            if self.reward_norm is not None:
                self.reward_norm.scale_in_place(old.rewards)
            errors = np.zeros((old.steps, old.slots), np.float32)
            again = Again(sample.weights, errors, config.mode == "transition")
            size = max(int(old.mask[:-1].sum()), 1)

            def loss_of(
                piece: Longs, lane: int, old: Rollout = old, size: int = size, again: Again = again
            ) -> tuple[Tensor, dict[str, float]]:
                return self._loss(old, piece, lane, size, again)

            slots = np.arange(old.slots)
            metrics = self.gradient(self.pieces_of(slots, old.steps + 1), loss_of)
            metrics["grad_norm"] = self.step(1)
            metrics["age_mean"] = float(sample.ages.mean())
            replay.update(sample.indices, replay.priorities_of(errors, old.mask))
            for key, value in metrics.items():
                sums[key] = sums.get(key, 0.0) + value / config.gradients
        return {f"replay_{key}": value for key, value in sums.items()}

    def _remember(self, replay: Replay, rollout: Rollout) -> None:
        """Push the rollout with its rewards as the world gave them: their scale changes with time."""
        errors = np.abs(rollout.returns - rollout.values[:-1])
        rollout.rewards[:] = self._given
        replay.push(rollout, errors)

    def _loss(
        self, rollout: Rollout, slots: Longs, lane: int, size: int, again: Again | None = None
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the share of these sequences in the mean loss over `size` samples, and in its metrics."""
        config, steps = self.config, rollout.steps
        head, value, held = self.unroll(rollout, steps + 1, slots, lane)
        count = steps * len(slots)
        actions = np.take(rollout.actions, slots, axis=1)
        flat = self.put(actions.reshape(count, *actions.shape[2:]))
        log_prob, entropy = self.net.log_prob_entropy(head[:count], flat)
        behaviour = self.put(np.take(rollout.log_probs, slots, axis=1).ravel())
        log_ratio = log_prob.detach() - behaviour
        values = take(value).reshape(steps + 1, -1)
        if again is not None and again.stale:
            advantages, targets = rollout.advantages[:, slots], rollout.returns[:, slots]
            cut = 0.0
        else:
            advantages, targets, cut = self._corrected(
                rollout, slots, take(log_ratio).reshape(steps, -1), values
            )
        mask = np.take(rollout.mask[:-1], slots, axis=1)
        share = weight = self.put(mask.ravel()).float() / size
        if again is not None:
            again.errors[:, slots] = np.abs(targets - values[:-1])
            weight = share * self.put(np.tile(again.weights[slots], steps))
        policy_loss = -(weight * self.put(advantages.ravel()) * log_prob).sum()
        error = value[:count] - self.put(targets.ravel())
        value_loss = 0.5 * (weight * error**2).sum()
        bonus = (weight * entropy).sum()
        loss = policy_loss + config.value_coef * value_loss - self.settings["entropy"] * bonus
        metrics = {
            "policy_loss": float(policy_loss.detach()),
            "value_loss": float(value_loss.detach()),
            "entropy_mean": float((share * entropy.detach()).sum()),
            "approx_kl": float((share * (log_ratio.exp() - 1 - log_ratio)).sum()),
            "clip_fraction": cut / size,
        }
        if rollout.truth.size:
            truth = self.put(np.take(rollout.truth, slots, axis=1).reshape(count, -1))
            taught, more = belief_loss(self.net.mixture, held[:count], truth, weight)
            loss, metrics = loss + config.belief * taught, {**metrics, **more}
        return loss, metrics

    def _corrected(
        self, rollout: Rollout, slots: Longs, log_weights: F32, values: F32
    ) -> tuple[F32, F32, float]:
        """Write the advantages and targets of these sequences; return them and how many weights were cut."""
        config = self.config
        advantages, targets = np.empty_like(log_weights), np.empty_like(log_weights)
        cut = vtrace(
            log_weights,
            np.take(rollout.mask, slots, axis=1),
            np.take(rollout.rewards, slots, axis=1),
            values,
            np.take(rollout.terminations, slots, axis=1),
            np.take(rollout.truncations, slots, axis=1),
            np.take(rollout.final_values, slots, axis=1),
            config.gamma,
            config.lam,
            config.rho_bar,
            config.c_bar,
            advantages,
            targets,
        )
        rollout.advantages[:, slots], rollout.returns[:, slots] = advantages, targets
        rollout.values[-1, slots] = values[-1]
        return advantages, targets, cut
