"""Guards for the health of the learner itself: numbers that are not numbers, and no progress."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from holdfast.guards.guard import Guard, number
from holdfast.records import Cause, Decision, Signals


@dataclass(frozen=True)
class NonFiniteConfig:
    """What happens when an update produces a number that is not finite."""

    enabled: bool = True
    """Watch for it."""
    lr_factor: Annotated[float, Meta(gt=0, lt=1)] = 0.5
    """Factor on the learning rate after each discarded update."""
    limit: Annotated[int, Meta(ge=1)] = 3
    """Stop the run after this many discarded updates in a row."""


class NonFiniteGuard(Guard):
    """Discards an update with NaN or infinity, restores the last good parameters, cuts the LR.

    Reads `health/nonfinite`, the number of non-finite values in losses, gradients and parameters.
    """

    name = "nonfinite"

    def __init__(self, config: NonFiniteConfig) -> None:
        self.config = config
        self.in_a_row = 0
        self.total = 0
        self.lr_scale = 1.0

    def step(self, signals: Signals) -> list[Decision]:
        found = number(signals, "health/nonfinite")
        if not found:
            self.in_a_row = 0
            return []
        self.in_a_row += 1
        self.total += 1
        self.lr_scale *= self.config.lr_factor
        cause = Cause("health/nonfinite", found, 0, self.in_a_row)
        decisions = [
            Decision(
                "rollback",
                cause,
                name="last_good",
                message=f"{found:.0f} non-finite numbers: the update is discarded and the last "
                "good parameters are restored",
            ),
            Decision(
                "set_learner",
                cause,
                name="lr_scale",
                value=self.lr_scale,
                message=f"the learning rate is cut to {self.lr_scale:g} of its schedule",
            ),
        ]
        if self.in_a_row >= self.config.limit:
            cause = Cause(
                "health/nonfinite_in_a_row", self.in_a_row, self.config.limit, self.in_a_row
            )
            decisions.append(
                Decision(
                    "stop",
                    cause,
                    message=f"{self.in_a_row} updates in a row produced non-finite numbers. The last "
                    "good parameters are saved; lower learner.lr or check the rewards "
                    "(holdfast doctor), then start a new run",
                )
            )
        return decisions

    def light(self) -> str:
        return "red" if self.in_a_row else "yellow" if self.total else "green"

    def status(self) -> dict[str, Any]:
        return {"lr_scale": self.lr_scale} if self.total else {}

    def state_dict(self) -> dict[str, Any]:
        return {"in_a_row": self.in_a_row, "total": self.total, "lr_scale": self.lr_scale}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.in_a_row, self.total = int(state["in_a_row"]), int(state["total"])
        self.lr_scale = float(state["lr_scale"])


@dataclass(frozen=True)
class PlateauConfig:
    """When a run that no longer improves is reported."""

    enabled: bool = True
    """Watch for it."""
    signal: str = "episode/return_mean"
    """What should improve."""
    higher_is_better: bool = True
    """Direction of improvement."""
    window: Annotated[int, Meta(ge=2)] = 20
    """Updates over which the signal is averaged."""
    patience: Annotated[int, Meta(ge=1)] = 40
    """Updates without a new best average before the warning."""
    min_gain: Annotated[float, Meta(ge=0)] = 0.01
    """What counts as a new best, relative to the size of the best."""


class PlateauGuard(Guard):
    """Warns when the average of a signal has not improved for a while; clears when it does again."""

    name = "plateau"

    def __init__(self, config: PlateauConfig) -> None:
        self.config = config
        self.recent: deque[float] = deque(maxlen=config.window)
        self.best = -math.inf
        self.since_best = 0
        self.active = False

    def step(self, signals: Signals) -> list[Decision]:
        value = number(signals, self.config.signal)
        if value is None or not math.isfinite(value):
            return []
        self.recent.append(value if self.config.higher_is_better else -value)
        if len(self.recent) < self.config.window:
            return []
        average = sum(self.recent) / len(self.recent)
        if average > self.best + self.config.min_gain * abs(
            self.best if math.isfinite(self.best) else 0
        ):
            self.best, self.since_best = average, 0
            if self.active:
                self.active = False
                return [self._decision("clear", average, "improves again")]
            return []
        self.since_best += 1
        if self.since_best >= self.config.patience and not self.active:
            self.active = True
            return [self._decision("warn", average, f"no gain for {self.since_best} updates")]
        return []

    def _decision(self, kind: Any, average: float, what: str) -> Decision:
        sign = 1 if self.config.higher_is_better else -1
        cause = Cause(self.config.signal, sign * average, sign * self.best, self.config.window)
        return Decision(
            kind,
            cause,
            name="plateau",
            message=f"{self.config.signal} {what}: average {sign * average:.4g} over "
            f"{self.config.window} updates, best {sign * self.best:.4g}",
        )

    def light(self) -> str:
        return "yellow" if self.active else "green"

    def state_dict(self) -> dict[str, Any]:
        return {
            "recent": list(self.recent),
            "best": self.best,
            "since_best": self.since_best,
            "active": self.active,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.recent = deque(map(float, state["recent"]), maxlen=self.config.window)
        self.best, self.since_best = float(state["best"]), int(state["since_best"])
        self.active = bool(state["active"])
