"""PPO in torch: the readable reference, and the learner for what the fused kernels do not cover."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from holdfast.learn.belief import SQUARE, belief_loss, with_root
from holdfast.learn.device import CPU, put
from holdfast.learn.learner import Index
from holdfast.learn.net_learner import NetLearner
from holdfast.learn.pixels import Longs
from holdfast.records import Rollout

METRICS = ("policy_loss", "value_loss", "entropy_mean", "approx_kl", "clip_fraction")


class TorchLearner(NetLearner):
    """Clipped PPO. With memory, minibatches are whole sequences instead of single steps."""

    @property
    def adam(self) -> torch.optim.Optimizer:
        """Torch's own optimiser."""
        return self.optimiser.rule

    def _batches(self, rollout: Rollout, rows: Index) -> tuple[Index, npt.NDArray[np.int64]]:
        if self.spec.memory == "none":
            return self.minibatches(rows)
        return self.sequences(rollout, self.config.epochs)

    def _optimise(
        self, rollout: Rollout, order: Index, borders: npt.NDArray[np.int64]
    ) -> dict[str, float]:
        config, samples = self.config, Samples(rollout, self.device)
        names = (*METRICS, "belief_nll", SQUARE) if samples.truth.numel() else METRICS
        sums = dict.fromkeys((*names, "grad_norm"), 0.0)
        done = waiting = steps = 0
        lag = 0.0
        parts = list(pairwise(borders))
        self.use_noise_of(rollout)
        for epoch in order:
            for k, (lo, hi) in enumerate(parts):
                metrics = self._add_gradient(rollout, samples, epoch[lo:hi].astype(np.int64))
                lag = metrics["approx_kl"] if done == 0 else lag
                if config.target_kl > 0 and metrics["approx_kl"] - lag > 1.5 * config.target_kl:
                    self.optimiser.drop()
                    return _means(sums, done, steps)
                done, waiting = done + 1, waiting + 1
                for key, value in metrics.items():
                    sums[key] += value
                if waiting == config.accumulate or k == len(parts) - 1:
                    sums["grad_norm"] += self.step(waiting)
                    waiting, steps = 0, steps + 1
        return _means(sums, done, steps)

    def _add_gradient(self, rollout: Rollout, samples: Samples, items: Longs) -> dict[str, float]:
        """Add the gradient of one minibatch: positions of single steps, or slots of whole sequences."""
        sequences = self.spec.memory != "none"
        rows = samples.rows_of(items) if sequences else self.put(items)
        size, shift, scale = self._scaling(samples, rows)

        def loss_of(piece: Longs, lane: int) -> tuple[Tensor, dict[str, float]]:
            if sequences:
                head, value, held = self.unroll(rollout, rollout.steps, piece, lane)
                at = samples.rows_of(piece)
            else:
                head, value, held = self.evaluate(rollout, piece, lane)
                at = self.put(piece)
            loss, metrics = self._loss(head, value, samples, at, size, shift, scale)
            if samples.truth.numel():
                weight = samples.mask[at].float() / size
                taught, more = belief_loss(self.net.mixture, held, samples.truth[at], weight)
                loss, metrics = loss + self.config.belief * taught, {**metrics, **more}
            return loss, metrics

        return self.gradient(self.pieces_of(items, rollout.steps if sequences else 1), loss_of)

    def loss(self, samples: Samples, rows: Tensor) -> tuple[Tensor, dict[str, float]]:
        """Return the loss of one minibatch of single steps, in one piece, and its metrics."""
        head, value = self.net(samples.obs[rows.cpu()].to(self.device))
        return self._loss(head, value, samples, rows, *self._scaling(samples, rows))

    def _scaling(self, samples: Samples, rows: Tensor) -> tuple[int, float, float]:
        """Return how many unmasked samples a minibatch has, and the shift and scale of their advantages."""
        own = samples.advantages[rows][samples.mask[rows]]
        if not self.config.normalise_advantages or len(own) < 2:
            return max(len(own), 1), 0.0, 1.0
        return len(own), float(own.mean()), 1.0 / (float(own.std()) + 1e-8)

    def _loss(
        self,
        head: Tensor,
        value: Tensor,
        samples: Samples,
        rows: Tensor,
        size: int,
        shift: float,
        scale: float,
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the share of these rows in the mean loss over `size` samples, and in its metrics."""
        config, clip = self.config, self.settings["clip"]
        weight = samples.mask[rows].float() / size
        log_prob, entropy = self.net.log_prob_entropy(head, samples.actions[rows])
        log_ratio = log_prob - samples.log_probs[rows]
        ratio = log_ratio.exp()
        advantage = (samples.advantages[rows] - shift) * scale
        gain = torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
        policy_loss = -(weight * gain).sum()
        target, old = samples.returns[rows], samples.values[rows]
        error = (value - target) ** 2
        if config.value_clip > 0:
            near = old + (value - old).clamp(-config.value_clip, config.value_clip)
            error = torch.max(error, (near - target) ** 2)
        value_loss = 0.5 * (weight * error).sum()
        bonus = (weight * entropy).sum()
        loss = policy_loss + config.value_coef * value_loss - self.settings["entropy"] * bonus
        with torch.no_grad():
            metrics = {
                "policy_loss": float(policy_loss),
                "value_loss": float(value_loss),
                "entropy_mean": float(bonus),
                "approx_kl": float((weight * ((ratio - 1) - log_ratio)).sum()),
                "clip_fraction": float((weight * ((ratio - 1).abs() > clip)).sum()),
            }
        return loss, metrics


def _means(sums: dict[str, float], done: int, steps: int) -> dict[str, float]:
    """Return the means over `done` gradients; the norm is one of each of `steps` steps."""
    means = {key: total / max(done, 1) for key, total in sums.items()}
    means["grad_norm"] = sums["grad_norm"] / max(steps, 1)
    means["minibatches"] = float(done)
    return with_root(means)


class Samples:
    """What the loss needs of a rollout as flat tensors `[T*N, ...]` of a device, but for the observations.

    On the processor nothing is copied.
    """

    def __init__(self, rollout: Rollout, device: torch.device = CPU) -> None:
        count = rollout.steps * rollout.slots
        self.steps, self.slots, self.device = rollout.steps, rollout.slots, device
        self.obs = torch.from_numpy(rollout.obs[:-1].reshape(count, -1))
        self.mask = put(rollout.mask[:-1].reshape(count), device)
        self.actions = put(rollout.actions.reshape(count, *rollout.actions.shape[2:]), device)
        self.log_probs = put(rollout.log_probs.reshape(count), device)
        self.values = put(rollout.values[:-1].reshape(count), device)
        self.advantages = put(rollout.advantages.reshape(count), device)
        self.returns = put(rollout.returns.reshape(count), device)
        self.truth = put(rollout.truth.reshape(count, rollout.truth.shape[2]), device)

    def rows_of(self, slots: Longs) -> Tensor:
        """Return the positions of all steps of these slots, step by step."""
        starts = np.arange(self.steps)[:, None] * self.slots
        return put((starts + slots).ravel(), self.device)
