"""Where a policy believes its opponent to be: the mixture density of `encoder.py`, taught the truth of a rollout.

    held = learner.evaluate(...)[2]
    loss, metrics = belief_loss(net, held, truth, weight)

The truth is told to the loss alone; the policy never sees it, but shares the history's encoder with the mixture.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from holdfast.learn.encoder import SIZES, Mixture
from holdfast.learn.spec import PLACE

UNIT = SIZES[0]
"""Metres of the mixture's unit."""
LOG_2PI = math.log(2 * math.pi)
SQUARE = "belief_square"


def nll(mixture: tuple[Tensor, Tensor, Tensor], truth: Tensor) -> Tensor:
    """Return the negative log-density `[n]`, per square metre, of places `truth [n, 2]` in metres."""
    log_weights, means, deviations = mixture
    z = (truth.unsqueeze(1) / UNIT - means) / deviations
    parts = -0.5 * (z * z + LOG_2PI).sum(-1) - deviations.log().sum(-1)
    return PLACE * math.log(UNIT) - torch.logsumexp(log_weights + parts, 1)


def place(mixture: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Return the mean of the mixture in metres, `[n, 2]`."""
    log_weights, means, _ = mixture
    return UNIT * (log_weights.exp().unsqueeze(-1) * means).sum(1)


def belief_loss(
    head: Mixture, held: Tensor, truth: Tensor, weight: Tensor
) -> tuple[Tensor, dict[str, float]]:
    """Return the weighted sum of the negative log-likelihoods, and it with the weighted squared error."""
    mixture = head(held)
    loss = (weight * nll(mixture, truth)).sum()
    with torch.no_grad():
        square = (weight * ((place(mixture) - truth) ** 2).sum(-1)).sum()
    return loss, {"belief_nll": float(loss.detach()), SQUARE: float(square)}


def with_root(metrics: dict[str, float]) -> dict[str, float]:
    """Return the metrics with the root of the mean squared error, in metres, in the square's place."""
    if SQUARE not in metrics:
        return metrics
    kept = {key: value for key, value in metrics.items() if key != SQUARE}
    return {**kept, "belief_error": math.sqrt(metrics[SQUARE])}
