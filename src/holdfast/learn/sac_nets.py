"""The networks of soft actor-critic: an actor, two critics, and the weight of the entropy.

Parameter names are those of `spec.py`; the critics read the observation and the action side by side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from holdfast.learn.encoder import Sensors
from holdfast.learn.layers import Dense, load
from holdfast.learn.nets import dense, gaussian_log_prob
from holdfast.learn.policy import LOG_STD
from holdfast.learn.spec import NetSpec
from holdfast.records import F32

LOG_2 = math.log(2.0)


class Towers(nn.Module):
    """Several MLPs of one shape, by name; sensors are read by a trunk that they share."""

    def __init__(
        self, spec: NetSpec, names: tuple[str, ...], trunk: str, more: int, outputs: int
    ) -> None:
        """`more` is how many inputs there are beside the observation."""
        super().__init__()
        self.activation = torch.tanh if spec.activation == "tanh" else torch.relu
        self.trunk_name = trunk if spec.trunk == "sensors" else ""
        width = spec.obs_size
        if self.trunk_name:
            setattr(self, trunk, Sensors(spec))
            width = getattr(self, trunk).width
        sizes = [width + more, *spec.hidden]
        gain = 0.01 if outputs > 1 else 1.0
        for name in names:
            setattr(self, name, dense(sizes))
            setattr(self, f"{name}_out", Dense(sizes[-1], outputs, gain))

    def features(self, obs: Tensor) -> Tensor:
        """Return what the MLPs read of observations."""
        return getattr(self, self.trunk_name)(obs) if self.trunk_name else obs

    def run(self, name: str, x: Tensor) -> Tensor:
        """Return the outputs `[n, outputs]` of one MLP."""
        for layer in getattr(self, name):
            x = self.activation(layer(x))
        found: Tensor = getattr(self, f"{name}_out")(x)
        return found


class SacActor(Towers):
    """Tanh of a Gaussian whose mean and deviation are functions of the observation."""

    def __init__(self, spec: NetSpec) -> None:
        super().__init__(spec, ("pi",), "trunk", 0, spec.outputs)

    def head(self, obs: Tensor) -> Tensor:
        """Return means and log deviations side by side."""
        return self.run("pi", self.features(obs))

    def best(self, obs: Tensor) -> Tensor:
        """Return the actions at the means."""
        return torch.tanh(self.head(obs).chunk(2, 1)[0])

    def forward(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return the actions `[n, A]` in (-1, 1) that the noise makes, and their log-density `[n]`."""
        mean, log_std = self.head(obs).chunk(2, 1)
        log_std = log_std.clamp(*LOG_STD)
        before = mean + log_std.exp() * noise
        # log(1 - tanh(x)^2) without a difference of nearly equal numbers.
        slope = 2.0 * (LOG_2 - before - functional.softplus(-2.0 * before))
        return torch.tanh(before), gaussian_log_prob(mean, log_std, before) - slope.sum(1)


class SacCritic(Towers):
    """Two estimates of what an action is worth; the lower one is believed."""

    def __init__(self, spec: NetSpec, suffix: str = "") -> None:
        self.names = (f"q1{suffix}", f"q2{suffix}")
        super().__init__(spec, self.names, f"q_trunk{suffix}", spec.action_size, 1)

    def forward(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Return both estimates, `[n]` each."""
        pair = torch.cat([self.features(obs), actions], 1)
        first, second = (self.run(name, pair).squeeze(1) for name in self.names)
        return first, second


class SacPlayer(nn.Module):
    """Actor and critics as a network that plays, frozen."""

    def __init__(self, spec: NetSpec, parameters: Mapping[str, F32]) -> None:
        super().__init__()
        self.actor, self.critic = SacActor(spec), SacCritic(spec)
        load(self.actor, parameters)
        load(self.critic, parameters)

    def unroll(self, inputs: Tensor, state: Tensor, begun: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return heads, what the best actions are worth, and the state, which is empty."""
        head = self.actor.head(inputs)
        best = torch.tanh(head.chunk(2, 1)[0])
        return head, torch.min(*self.critic(inputs, best)), state


class Temperature(nn.Module):
    """The weight of the entropy, learned."""

    def __init__(self, first: float) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.tensor([math.log(first)]))
