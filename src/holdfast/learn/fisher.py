"""The Fisher diagonal of any network without memory, by a gradient of each sample.

A plain MLP has a closed form that needs none (`ewc.py`). Here torch makes the gradients of a few samples together.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from holdfast.learn.layers import load
from holdfast.learn.nets import ActorCritic, gaussian_log_prob
from holdfast.learn.policy import LOG_STD
from holdfast.learn.sac_nets import SacActor
from holdfast.learn.spec import NetSpec
from holdfast.records import F32, F64, Array

TOGETHER = 16
"""Samples whose gradients are held at once: each is as large as the network."""


class _LogProb(nn.Module):
    """The log-probability of one action of one observation."""

    def __init__(self, net: ActorCritic | SacActor) -> None:
        super().__init__()
        self.net = net

    def head(self, obs: Tensor) -> Tensor:
        """Return the outputs of the actor."""
        if isinstance(self.net, SacActor):
            return self.net.head(obs)
        head: Tensor = self.net(obs)[0]
        return head

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        """Return one number; a squashed action is given as it is before tanh, which has no parameters."""
        head, actions = self.head(obs.unsqueeze(0)), action.unsqueeze(0)
        if isinstance(self.net, SacActor):
            mean, log_std = head.chunk(2, 1)
            return gaussian_log_prob(mean, log_std.clamp(*LOG_STD), actions).squeeze(0)
        return self.net.log_prob_entropy(head, actions)[0].squeeze(0)


class Scores:
    """The gradients of the log-probability of a network with these parameters."""

    def __init__(self, spec: NetSpec, parameters: Mapping[str, F32]) -> None:
        net = SacActor(spec) if spec.action == "squashed" else ActorCritic(spec)
        load(net, parameters)
        self._log_prob = _LogProb(net)

    @torch.no_grad()
    def heads(self, rows: F32) -> F64:
        """Return the outputs `[n, outputs]` of the actor."""
        head: F64 = self._log_prob.head(torch.tensor(rows)).numpy().astype(np.float64)
        return head

    def squares(self, rows: F32, actions: Array) -> dict[str, F64]:
        """Return the mean square of the score of each parameter of the actor over samples of (observation, action)."""
        own = {name: value.detach() for name, value in self._log_prob.named_parameters()}

        def log_prob(parameters: dict[str, Tensor], obs: Tensor, action: Tensor) -> Tensor:
            found: Tensor = functional_call(self._log_prob, parameters, (obs, action))
            return found

        each = vmap(grad(log_prob), (None, 0, 0))
        kind = np.float32 if np.asarray(actions).dtype.kind == "f" else np.int64
        obs, picks = torch.tensor(rows), torch.tensor(np.asarray(actions, kind))
        sums = {name: torch.zeros(value.shape, dtype=torch.float64) for name, value in own.items()}
        for lo in range(0, len(rows), TOGETHER):
            part = slice(lo, lo + TOGETHER)
            for name, score in each(own, obs[part], picks[part]).items():
                sums[name] += (score.double() ** 2).sum(0)
        return {
            name.removeprefix("net."): total.numpy() / len(rows) for name, total in sums.items()
        }
