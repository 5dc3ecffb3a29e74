"""The masking curriculum: at first the pursuer sees its opponent at all times, in the end as seldom as the game has it.

The world shows the pursuer the unmasked observation with a chance of `p_full` a step. This guard lowers it in a straight
line from 1 to `residual` over the first `anneal_steps` environment steps. Probes and best responses play without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from holdfast.guards.guard import Guard, number
from holdfast.records import Cause, Decision, Signals

GRAIN = 0.01
"""Smallest change that is worth a decision."""


@dataclass(frozen=True)
class MaskingConfig:
    """How fast the opponent is hidden."""

    enabled: bool = False
    """Begin with an opponent that is always seen. Needs `world.observation = "masked"`."""
    anneal_steps: Annotated[int, Meta(ge=1)] = 5_000_000
    """Environment steps until the chance is `residual`."""
    residual: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Chance that is left in the end."""


class MaskingGuard(Guard):
    """Lowers the chance that the pursuer sees everything."""

    name = "masking"

    def __init__(self, config: MaskingConfig) -> None:
        self.config = config
        self.value = 1.0

    def initial(self, signals: Signals) -> list[Decision]:
        return [self._set(1.0, 0.0)]

    def step(self, signals: Signals) -> list[Decision]:
        steps = number(signals, "env_steps")
        if steps is None:
            return []
        config = self.config
        progress = min(steps / config.anneal_steps, 1.0)
        value = (1.0 - progress) * (1.0 - config.residual) + config.residual
        there = progress == 1.0 and self.value != value
        return [self._set(value, steps)] if there or self.value - value >= GRAIN else []

    def _set(self, value: float, steps: float) -> Decision:
        self.value = value
        cause = Cause("env_steps", steps, self.config.anneal_steps)
        text = f"the pursuer sees everything in {value:.0%} of the steps"
        return Decision("set_world", cause, name="p_full", value=value, message=text)

    def status(self) -> dict[str, Any]:
        return {"p_full": self.value}

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = float(state["value"])
