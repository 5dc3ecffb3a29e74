"""The gradient steps of the torch learners, and their state by parameter name."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from holdfast.errors import StorageError
from holdfast.learn.device import put, take
from holdfast.learn.learner import Anchor
from holdfast.learn.options import LearnerConfig

EPSILON = 1e-5
DECAY = 0.99
"""Of RMSprop's squares, a step."""
MOMENTS = {"adam": {"m": "exp_avg", "v": "exp_avg_sq"}, "rmsprop": {"v": "square_avg"}}
"""What each rule keeps of a parameter: our name and torch's."""


class Optimiser:
    """Adam or RMSprop over the parameters of a network."""

    def __init__(self, net: nn.Module, config: LearnerConfig) -> None:
        self.net, self.kind = net, config.optimiser
        self.rule: torch.optim.Optimizer
        if config.optimiser == "adam":
            self.rule = torch.optim.Adam(net.parameters(), lr=config.lr, eps=EPSILON)
        else:
            self.rule = torch.optim.RMSprop(
                net.parameters(), lr=config.lr, alpha=DECAY, eps=EPSILON
            )

    def step(self, lr: float, max_norm: float) -> float:
        """Make one step along the gradients, which are dropped; return their norm before clipping."""
        for group in self.rule.param_groups:
            group["lr"] = lr
        norm = torch.nn.utils.clip_grad_norm_(self.net.parameters(), max_norm or float("inf"))
        self.rule.step()
        self.drop()
        return float(norm)

    def drop(self) -> None:
        """Forget the gradients."""
        self.rule.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Any]:
        """Return `{"step": int, "m": {name: array}, "v": {name: array}}`; RMSprop has no m."""
        found: dict[str, Any] = {"step": 0, "m": {}, "v": {}}
        for name, parameter in self.net.named_parameters():
            state = self.rule.state.get(parameter)
            if state:
                found["step"] = int(state["step"])
            for ours, theirs in MOMENTS[self.kind].items():
                moment = take(state[theirs]).copy() if state else None
                found[ours][name] = (
                    np.zeros(parameter.shape, np.float32) if moment is None else moment
                )
        return found

    def load(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.rule.state.clear()
        if int(state["step"]) == 0:
            return
        kept = {key for key in ("m", "v") if state[key]}
        if kept != set(MOMENTS[self.kind]):
            raise StorageError(
                f"The checkpoint holds the state of another optimiser than learner.optimiser = '{self.kind}'. "
                "Go on with the one that it was trained with."
            )
        for name, parameter in self.net.named_parameters():
            self.rule.state[parameter] = {
                "step": torch.tensor(float(state["step"])),
                **{
                    theirs: torch.tensor(state[ours][name], device=parameter.device)
                    for ours, theirs in MOMENTS[self.kind].items()
                },
            }


def pull_back(net: nn.Module, anchor: Anchor | None) -> None:
    """Add what elastic weight consolidation asks for to the gradients of a network."""
    if anchor is None or anchor.weight <= 0:
        return
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None
        fisher, old = (put(x[name], parameter.device) for x in (anchor.fisher, anchor.values))
        parameter.grad += anchor.weight * fisher * (parameter.detach() - old)
