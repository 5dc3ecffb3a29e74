"""Guards as a user would write them, for the tests of `[guards.own]`."""

from __future__ import annotations

from typing import Any

from holdfast import Cause, Decision, Guard


class Slump(Guard):
    """Halves the learning rate when returns fall below a floor."""

    name = "slump"

    def __init__(self, floor: float = 0.0, factor: float = 0.5) -> None:
        self.floor, self.factor, self.scale = floor, factor, 1.0

    def step(self, signals: Any) -> list[Decision]:
        value = signals.get("episode/return_mean")
        if value is None or value >= self.floor:
            return []
        self.scale *= self.factor
        cause = Cause("episode/return_mean", value, self.floor)
        return [Decision("set_learner", cause, "lr_scale", self.scale, message="a slump")]

    def status(self) -> dict[str, Any]:
        return {"scale": self.scale}

    def state_dict(self) -> dict[str, Any]:
        return {"scale": self.scale}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.scale = float(state["scale"])


class Raises(Slump):
    def step(self, signals: Any) -> list[Decision]:
        return [1 / 0]  # type: ignore[list-item]


class Unkind(Slump):
    def step(self, signals: Any) -> list[Decision]:
        return [Decision("stpo", Cause("update", 1))]  # type: ignore[arg-type]


class Silent(Slump):
    def step(self, signals: Any) -> list[Decision]:
        return None  # type: ignore[return-value]


def not_a_guard() -> int:
    return 3
