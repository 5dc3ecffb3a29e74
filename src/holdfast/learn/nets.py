"""Torch modules whose parameter names are those of `spec.py`.

MLP                     pi, vf (or one trunk) -> pi_out, vf_out
pictures, or a memory   trunk (-> core) -> pi_out, vf_out
sensors                 trunk (-> core) -> pi, vf -> pi_out, vf_out
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from holdfast.learn.convs import make_trunk
from holdfast.learn.encoder import Mixture, Sensors
from holdfast.learn.layers import Dense, arrays, draw_all
from holdfast.learn.memory import make_core
from holdfast.learn.noisy import NoisyLinear
from holdfast.learn.spec import NetSpec, initial_parameters
from holdfast.records import F32


class ActorCritic(nn.Module):
    """Policy and value, with separate trunks or a shared one."""

    def __init__(self, spec: NetSpec) -> None:
        super().__init__()
        self.spec = spec
        self.activation = torch.tanh if spec.activation == "tanh" else torch.relu
        self.one = spec.shared or spec.trunk != "mlp" or spec.memory != "none"
        """Whether policy and value share a trunk."""
        last = spec.hidden[-1] if spec.hidden else spec.obs_size
        if spec.trunk == "mlp":
            for trunk in ["trunk"] if self.one else ["pi", "vf"]:
                setattr(self, trunk, dense([spec.obs_size, *spec.hidden]))
        else:
            self.trunk = Sensors(spec) if spec.trunk == "sensors" else make_trunk(spec)
            last = self.trunk.width
        if spec.memory != "none":
            self.core = make_core(spec, last)
            last = spec.memory_size
        if spec.trunk == "sensors":
            self.pi, self.vf = dense([last, *spec.hidden]), dense([last, *spec.hidden])
            last = spec.hidden[-1] if spec.hidden else last
        head = NoisyLinear if spec.noisy else Dense
        self.pi_out = head(last, spec.outputs, 0.01)
        self.vf_out = head(last, 1, 1.0)
        if spec.action == "gaussian":
            self.log_std = nn.Parameter(torch.zeros(spec.action_size))

    def first_parameters(self, rng: np.random.Generator, log_std: float) -> dict[str, F32]:
        """Draw all parameters anew and return them; of a plain MLP they are those of `spec.py`."""
        if self.spec.plain:
            return initial_parameters(self.spec, rng, log_std)
        draw_all(self, rng)
        if self.spec.action == "gaussian":
            nn.init.constant_(self.log_std, log_std)
        return arrays(self)

    def set_noise(self, seed: int | None) -> None:
        """Use the parameter noise of `seed` from now on, or none."""
        rng = None if seed is None else np.random.default_rng(seed)
        for module in self.modules():
            if isinstance(module, NoisyLinear):
                module.set_noise(rng)

    def _trunk(self, name: str, x: Tensor) -> Tensor:
        if self.spec.trunk != "mlp":
            features: Tensor = self.trunk(x)
            return features
        return self._tower("trunk" if self.one else name, x)

    def _tower(self, name: str, x: Tensor) -> Tensor:
        for layer in getattr(self, name):
            x = self.activation(layer(x))
        return x

    def _heads(self, pi: Tensor, vf: Tensor) -> tuple[Tensor, Tensor]:
        if self.spec.trunk == "sensors":
            pi, vf = self._tower("pi", pi), self._tower("vf", vf)
        return self.pi_out(pi), self.vf_out(vf).squeeze(-1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return (action head `[n, outputs]`, value `[n]`) of a network without memory."""
        pi = self._trunk("pi", obs)
        vf = pi if self.one else self._trunk("vf", obs)
        return self._heads(pi, vf)

    def unroll(self, inputs: Tensor, state: Tensor, begun: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return heads `[T*N, outputs]`, values `[T*N]` and the state after T steps of N sequences.

        `inputs` are the `T*N` rows, step by step; `state [N, M]`; `begun [T, N]`.
        """
        if self.spec.memory == "none":
            return *self(inputs), state
        return self._recall(self._trunk("pi", inputs), state, begun)

    def _recall(
        self, features: Tensor, state: Tensor, begun: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        y, state = self.core(features.reshape(*begun.shape, -1), state, begun)
        y = y.flatten(0, 1)
        return *self._heads(y, y), state

    def unroll_held(
        self, inputs: Tensor, state: Tensor, begun: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return heads, values, and what the belief reads: `[T*N, 128]`, or nothing where it is not taught."""
        if not self.spec.truth:
            head, value, _ = self.unroll(inputs, state, begun)
            return head, value, head.new_zeros(0)
        assert isinstance(self.trunk, Sensors)
        features, held = self.trunk.read(inputs)
        if self.spec.memory == "none":
            return *self._heads(features, features), held
        head, value, _ = self._recall(features, state, begun)
        return head, value, held

    def value(self, obs: Tensor) -> Tensor:
        """Return the value `[n]` alone, of a network without memory."""
        features = self._trunk("vf", obs)
        if self.spec.trunk == "sensors":
            features = self._tower("vf", features)
        value: Tensor = self.vf_out(features).squeeze(-1)
        return value

    @property
    def mixture(self) -> Mixture:
        """The head of the belief."""
        assert isinstance(self.trunk, Sensors)
        return self.trunk.mixture

    def log_prob_entropy(self, head: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probability and entropy of `actions`, both `[n]`."""
        if self.spec.action == "gaussian":
            return gaussian_log_prob(head, self.log_std, actions), (
                (self.log_std + GAUSSIAN_ENTROPY).sum().expand(len(head))
            )
        picks = actions.reshape(len(head), -1).long()
        log_prob = entropy = head.new_zeros(len(head))
        first = 0
        for k, choices in enumerate(self.spec.nvec):
            logs = torch.log_softmax(head[:, first : first + choices], 1)
            log_prob = log_prob + logs.gather(1, picks[:, k : k + 1]).squeeze(1)
            entropy = entropy - (logs.exp() * logs).sum(1)
            first += choices
        return log_prob, entropy


def dense(sizes: list[int]) -> nn.ModuleList:
    """Return the linear layers of an MLP from the first of these sizes to the last."""
    return nn.ModuleList(Dense(a, b) for a, b in pairwise(sizes))


GAUSSIAN_ENTROPY = 1.4189385332046727
"""Entropy of a standard normal: (1 + ln 2 pi) / 2."""
HALF_LOG_2PI = 0.9189385332046727


def gaussian_log_prob(mean: Tensor, log_std: Tensor, actions: Tensor) -> Tensor:
    """Return the log-density of `actions [n, A]`, summed over A."""
    z = (actions - mean) * torch.exp(-log_std)
    return (-0.5 * z * z - log_std - HALF_LOG_2PI).sum(-1)
