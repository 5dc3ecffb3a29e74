"""Turns values of the world and the learner by how training gets on.

Every `interval` updates the mean m of a signal over the last `window` updates decides, for all channels alike:

    m < low       p + rate (max - p)      too little progress
    m > high      p + rate (min - p)      enough of it
    else          p                       the dead band

p is the value in use and stays within min and max. When the direction turns, nothing moves for `cooldown`
looks; only then, and only if it is still wanted, the new direction is taken. So the values do not swing.

A channel is `world.NAME:MIN..MAX@RATE`, `learner.NAME:...` or, for one role, `learner.ROLE.NAME:...`.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, Any, Literal

from msgspec import Meta

from holdfast.errors import ConfigError
from holdfast.guards.facts import EPISODES, Wanted, restore, state_of
from holdfast.guards.guard import Guard, number
from holdfast.records import Cause, Decision, Signals

EXAMPLE = (
    "world.reward_progress:0.5..2@0.05,learner.entropy:0.005..0.03@0.1,learner.lr_scale:0.5..2@0.05"
)
CLOSE = 1e-12
"""A smaller change is none."""
PROBES = 3
"""Probes without the signal after which it is said."""
LEAST = 5
"""The window is never shorter."""


@dataclass(frozen=True)
class Channel:
    """One value that is turned."""

    place: Literal["world", "learner"]
    role: str
    name: str
    low: float
    high: float
    rate: float

    @property
    def target(self) -> str:
        """Its name as it is written in the config."""
        return ".".join(filter(None, (self.place, self.role, self.name)))


def parse_channels(text: str, key: str = "channels") -> tuple[Channel, ...]:
    """Read `world.reward_progress:0.5..2@0.05,...` into channels."""
    found = tuple(_parse(item.strip(), key) for item in text.split(",") if item.strip())
    names = [channel.target for channel in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{key}: '{name}' stands there twice. Each value may stand once.")
    return found


def _parse(item: str, key: str) -> Channel:
    target, colon, rest = item.partition(":")
    bounds, at, rate = rest.partition("@")
    low, dots, high = bounds.partition("..")
    place, *names = target.strip().split(".")
    try:
        numbers = [float(word) for word in (low, high, rate)]
    except ValueError:
        numbers = [math.nan]
    whole = colon and dots and at and place in ("world", "learner") and all(names)
    counted = len(names) == 1 or (place == "learner" and len(names) == 2)
    if not whole or not counted or not all(map(math.isfinite, numbers)):
        raise ConfigError(
            f"{key}: '{item}' is not a channel. Write 'world.NAME:MIN..MAX@RATE' or "
            f"'learner.NAME:MIN..MAX@RATE', joined by commas, for example '{EXAMPLE}'."
        )
    if not numbers[0] < numbers[1] or not 0 < numbers[2] <= 1:
        raise ConfigError(
            f"{key}: '{item}' is not allowed. MIN must be below MAX, and RATE above 0 and at most 1."
        )
    if place == "learner" and names[-1] == "lr":
        raise ConfigError(
            f"{key}: '{item}' would be overwritten by the schedule of the learning rate. Turn the factor on it: "
            "'learner.lr_scale:0.5..2@0.05'."
        )
    role = names[0] if len(names) == 2 else ""
    return Channel(place, role, names[-1], *numbers)  # type: ignore[arg-type]


@dataclass(frozen=True)
class AdaptiveConfig:
    """Which values are turned by which signal."""

    enabled: bool = False
    """Turn them."""
    signal: str = "guard/progress/positive_ratio"
    """What says how training gets on: the share of episodes that came forward (needs guards.progress), a clear
    rate, `episode/return_mean`, or any other signal."""
    measure: Literal["value", "gain"] = "value"
    """value: the mean of the signal, below 0 counted as 0. gain: how much the newer half of the window exceeds
    the older half, as a share of it; only a full window counts."""
    channels: str = ""
    """What is turned, within which bounds and how fast, `place.name:min..max@rate,...`; for example
    `learner.entropy:0.005..0.03@0.1`."""
    low: float = 0.05
    """Below this the values move towards their upper bounds."""
    high: float = 0.3
    """Above this the values move towards their lower bounds."""
    window: Annotated[int, Meta(ge=LEAST)] = 50
    """Updates over which the signal is averaged."""
    interval: Annotated[int, Meta(ge=1)] = 10
    """Updates between two looks."""
    cooldown: Annotated[int, Meta(ge=0)] = 20
    """Looks without any change after the direction has turned."""

    def __post_init__(self) -> None:
        channels = parse_channels(self.channels)
        if not self.low <= self.high:
            raise ConfigError(f"low = {self.low:g} is above high = {self.high:g}; swap them.")
        if self.enabled and not channels:
            raise ConfigError(f"channels is empty. Say what shall be turned, such as '{EXAMPLE}'.")


class AdaptiveGuard(Guard):
    """Moves every channel towards one of its bounds, or leaves it, by the level of one signal."""

    name = "adaptive"

    def __init__(self, config: AdaptiveConfig) -> None:
        self.config = config
        self.channels = parse_channels(config.channels)
        self.recent: deque[float] = deque(maxlen=max(LEAST, config.window))
        self.ema: float | None = None
        self.updates = 0
        self.direction = 0
        """1: upwards, -1: downwards, 0: nothing has moved yet."""
        self.hold = 0
        """Looks for which nothing moves."""
        self.values: dict[str, float] = {}
        probed = config.signal.startswith("probe/")
        patience = PROBES if probed else max(EPISODES, config.window)
        self._wanted = [Wanted("guards.adaptive.signal", config.signal, patience)]

    def step(self, signals: Signals) -> list[Decision]:
        value = number(signals, self.config.signal)
        if value is not None and math.isfinite(value):
            self._take(max(0.0, value) if self.config.measure == "value" else value)
        self.updates += 1
        unknown = self._look(signals)
        if self.updates % self.config.interval or unknown:
            return unknown
        level = self.level()
        wanted = (
            0 if level is None else int(level < self.config.low) - int(level > self.config.high)
        )
        if self.hold > 0:
            self.hold -= 1
            return []
        if level is None or wanted == 0:
            return []
        turned, self.direction = self.direction == -wanted, wanted
        if turned and self.config.cooldown:
            self.hold = self.config.cooldown
            return []
        return [d for c in self.channels if (d := self._move(c, signals, level)) is not None]

    def _look(self, signals: Signals) -> list[Decision]:
        """Return the warning that the signal does not come; that of a probe is looked for where one was made."""
        family = self.config.signal.partition("/")[0]
        own = {k: v for k, v in signals.items() if k.partition("/")[0] == family}
        if family == "probe" and not own:
            return []
        (wanted,) = self._wanted
        return wanted.look([own], "probes" if family == "probe" else "updates")

    def level(self) -> float | None:
        """Return what the thresholds are compared with, or None while nothing is known."""
        if self.config.measure == "value":
            return fmean(self.recent) if self.recent else None
        if len(self.recent) < self.config.window:
            return None
        half = len(self.recent) // 2
        older, newer = fmean(list(self.recent)[:half]), fmean(list(self.recent)[half:])
        return (newer - older) / max(abs(older), 1e-9)

    def _take(self, value: float) -> None:
        self.recent.append(value)
        share = 2 / (self.config.window + 1)
        self.ema = value if self.ema is None else self.ema + share * (value - self.ema)

    def _move(self, channel: Channel, signals: Signals, level: float) -> Decision | None:
        before = self._in_use(channel, signals)
        if before is None:
            return None
        bound = channel.high if self.direction > 0 else channel.low
        after = min(max(before + channel.rate * (bound - before), channel.low), channel.high)
        if abs(after - before) <= CLOSE:
            return None
        self.values[channel.target] = after
        limit = self.config.low if self.direction > 0 else self.config.high
        sign = "below" if self.direction > 0 else "above"
        return Decision(
            "set_world" if channel.place == "world" else "set_learner",
            Cause(self.config.signal, level, limit, len(self.recent)),
            name=channel.name,
            value=after,
            role=channel.role,
            message=f"{channel.target} from {before:.6g} to {after:.6g}: {self.config.signal} {level:.4g} is "
            f"{sign} {limit:g} over {len(self.recent)} updates",
        )

    def _in_use(self, channel: Channel, signals: Signals) -> float | None:
        """Return the value that the last update used; without a signal of it, the one set last."""
        if channel.place == "world":
            keys = [f"world/{channel.name}"]
        elif channel.role:
            keys = [f"train/{channel.role}/{channel.name}"]
        else:
            tail = f"/{channel.name}"
            keys = [k for k in signals if k.startswith("train/") and k.endswith(tail)]
        found = next((v for k in keys if (v := number(signals, k)) is not None), None)
        return self.values.get(channel.target) if found is None else found

    def light(self) -> str:
        return "yellow" if self.hold else "green"

    def status(self) -> dict[str, Any]:
        level = self.level()
        return {
            "level": level,
            "ema": None if self.ema is None else round(self.ema, 4),
            "direction": self.direction,
            "hold": self.hold,
            **self.values,
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            "recent": list(self.recent),
            "ema": self.ema,
            "updates": self.updates,
            "direction": self.direction,
            "hold": self.hold,
            "values": [[target, value] for target, value in self.values.items()],
            "wanted": state_of(self._wanted),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.recent = deque(map(float, state["recent"]), maxlen=self.recent.maxlen)
        self.ema = None if state["ema"] is None else float(state["ema"])
        self.updates, self.direction = int(state["updates"]), int(state["direction"])
        self.hold = int(state["hold"])
        self.values = {str(target): float(value) for target, value in state["values"]}
        restore(self._wanted, state.get("wanted"))
