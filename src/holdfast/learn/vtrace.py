"""Actor-critic with V-trace (IMPALA): every sequence is used once, and may come from an older policy.

The rollout holds the log-probabilities under the policy that acted; weights, values and targets are computed anew with
the present network when a sequence is used. So a lag between acting and learning is corrected, and so is the drift
between the first and the last minibatch of one rollout.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from holdfast.learn.carry import mark_begun
from holdfast.learn.learner import Index
from holdfast.learn.net_learner import NetLearner
from holdfast.learn.pixels import Longs
from holdfast.learn.vtrace_kernels import vtrace
from holdfast.records import F32, Rollout

METRICS = ("policy_loss", "value_loss", "entropy_mean", "approx_kl", "clip_fraction")


class VTraceLearner(NetLearner):
    """One gradient for each minibatch of whole sequences, `accumulate` of them a step."""

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
        sums = dict.fromkeys((*METRICS, "grad_norm"), 0.0)
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
        means["minibatches"] = float(len(parts))
        return means

    def _loss(
        self, rollout: Rollout, slots: Longs, lane: int, size: int
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the share of these sequences in the mean loss over `size` samples, and in its metrics."""
        config, steps = self.config, rollout.steps
        head, value = self.unroll(rollout, steps + 1, slots, lane)
        count = steps * len(slots)
        actions = np.take(rollout.actions, slots, axis=1)
        flat = torch.from_numpy(actions.reshape(count, *actions.shape[2:]))
        log_prob, entropy = self.net.log_prob_entropy(head[:count], flat)
        behaviour = torch.from_numpy(np.take(rollout.log_probs, slots, axis=1).ravel())
        log_ratio = log_prob.detach() - behaviour
        advantages, targets, cut = self._corrected(
            rollout,
            slots,
            log_ratio.numpy().reshape(steps, -1),
            value.detach().numpy().reshape(steps + 1, -1),
        )
        mask = np.take(rollout.mask[:-1], slots, axis=1)
        weight = torch.from_numpy(mask.ravel()).float() / size
        policy_loss = -(weight * torch.from_numpy(advantages.ravel()) * log_prob).sum()
        error = value[:count] - torch.from_numpy(targets.ravel())
        value_loss = 0.5 * (weight * error**2).sum()
        bonus = (weight * entropy).sum()
        loss = policy_loss + config.value_coef * value_loss - self.settings["entropy"] * bonus
        metrics = {
            "policy_loss": float(policy_loss.detach()),
            "value_loss": float(value_loss.detach()),
            "entropy_mean": float(bonus.detach()),
            "approx_kl": float((weight * (log_ratio.exp() - 1 - log_ratio)).sum()),
            "clip_fraction": cut / size,
        }
        return loss, metrics

    def _corrected(
        self, rollout: Rollout, slots: Longs, log_weights: F32, values: F32
    ) -> tuple[F32, F32, float]:
        """Write the advantages and targets of these sequences; return them and how many weights were cut."""
        config = self.config
        advantages, targets = np.empty_like(log_weights), np.empty_like(log_weights)
        cut = vtrace(
            log_weights,
            np.take(rollout.mask[:-1], slots, axis=1),
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
