"""Torch modules whose parameter names are those of `spec.py`."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from holdfast.learn.spec import NetSpec


class ActorCritic(nn.Module):
    """MLP policy and value, with separate trunks or a shared one."""

    def __init__(self, spec: NetSpec) -> None:
        super().__init__()
        self.spec = spec
        self.activation = torch.tanh if spec.activation == "tanh" else torch.relu
        for trunk in ["trunk"] if spec.shared else ["pi", "vf"]:
            sizes = [spec.obs_size, *spec.hidden]
            layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]
            setattr(self, trunk, nn.ModuleList(layers))
        last = spec.hidden[-1] if spec.hidden else spec.obs_size
        self.pi_out = nn.Linear(last, spec.outputs)
        self.vf_out = nn.Linear(last, 1)
        if spec.action == "gaussian":
            self.log_std = nn.Parameter(torch.zeros(spec.action_size))

    def _trunk(self, name: str, x: Tensor) -> Tensor:
        for layer in getattr(self, "trunk" if self.spec.shared else name):
            x = self.activation(layer(x))
        return x

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return (action head `[n, outputs]`, value `[n]`)."""
        pi = self._trunk("pi", obs)
        vf = pi if self.spec.shared else self._trunk("vf", obs)
        return self.pi_out(pi), self.vf_out(vf).squeeze(-1)

    def value(self, obs: Tensor) -> Tensor:
        """Return the value `[n]` alone."""
        value: Tensor = self.vf_out(self._trunk("vf", obs)).squeeze(-1)
        return value

    def log_prob_entropy(self, head: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probability and entropy of `actions`, both `[n]`."""
        if self.spec.action == "gaussian":
            return gaussian_log_prob(head, self.log_std, actions), (
                (self.log_std + GAUSSIAN_ENTROPY).sum().expand(len(head))
            )
        picks = actions.reshape(len(head), -1).long()
        log_prob = torch.zeros(len(head))
        entropy = torch.zeros(len(head))
        first = 0
        for k, choices in enumerate(self.spec.nvec):
            logs = torch.log_softmax(head[:, first : first + choices], 1)
            log_prob = log_prob + logs.gather(1, picks[:, k : k + 1]).squeeze(1)
            entropy = entropy - (logs.exp() * logs).sum(1)
            first += choices
        return log_prob, entropy


GAUSSIAN_ENTROPY = 1.4189385332046727
"""Entropy of a standard normal: (1 + ln 2 pi) / 2."""
HALF_LOG_2PI = 0.9189385332046727


def gaussian_log_prob(mean: Tensor, log_std: Tensor, actions: Tensor) -> Tensor:
    """Return the log-density of `actions [n, A]`, summed over A."""
    z = (actions - mean) * torch.exp(-log_std)
    return (-0.5 * z * z - log_std - HALF_LOG_2PI).sum(-1)
