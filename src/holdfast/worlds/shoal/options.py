"""The settings of a shoal, their ranges, and the grammar of the two bias strings.

Defaults are the setting of the v36 evaluation (`spec/shoal.md` sections 5, 7 and 8.2), without neighbour
features. The plain environment is `plain_options()`.
"""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass
from typing import Any

from holdfast.errors import ConfigError, nearest
from holdfast.worlds.ranges import Range, checked

V36_HEADING_BIAS = "0-60:1.1,60-90:0.8,90-120:0.08,120-150:0.05,150-210:0.9,210-270:1.3,270-330:1.2"
"""What v36 really used: its text ended in `330-360:0.95`, which the original dropped by mistake. Here that
bin would count, and every logged seed would begin differently."""
V36_SPEED_BIAS = "0-1.0:1.6,1.0-1.6:1.3,1.6-2.0:0.7,2.0-2.4:0.35,2.4-3.0:0.2"

Bin = tuple[float, float, float]
"""From, to, weight."""


@dataclass(frozen=True)
class ShoalOptions:
    """Settings of the shoal world."""

    games: int = 64
    """Shoals that run at once. 1 to 100000."""
    fish: int = 25
    """Fish in each shoal. 1 to 10000."""
    neighbors: bool = False
    """Add seven neighbour features to each observation (18 numbers instead of 11)."""
    neighbor_radius: float = 3.0
    """Distance up to which another fish is a neighbour. 0.001 to 20."""
    neighbor_count: int = 6
    """Nearest neighbours that are averaged, and the count that means "crowded". 1 to 1000."""
    divergence_reward: float = 0.0
    """Weight of the neighbours' outward speed in the reward. -100 to 100."""
    density_penalty: float = 0.0
    """Weight of crowding in the reward. 0 to 100."""
    density_target: float = 0.4
    """Crowding (neighbours / neighbor_count) above which the penalty applies. 0 to 1."""
    view_reward: float = 10.0
    """Reward at the edge of view, where 5 is paid beyond it. The original's 10 pays for shadowing the predator;
    5 does not. 0 to 100."""
    escape_boost: bool = True
    """Fish start swimming away from the centre instead of in a random direction."""
    escape_boost_speed: float = 0.8
    """Start speed with escape_boost, as a fraction of the top speed 2. 0 to 1."""
    escape_jitter: float = 0.35
    """Standard deviation of the start direction with escape_boost, radians. 0 to 3.1416."""
    spawn_jitter: float = 1.6
    """The predator appears up to this far from the centre. 0 to 8."""
    pre_roll_steps: int = 16
    """Steps that the predator moves, jittered, before the episode begins. 0 to 1000."""
    pre_roll_angle_jitter: float = 0.3
    """Largest random turn in each pre-roll step, radians. 0 to 3.1416."""
    pre_roll_speed_jitter: float = 0.2
    """Largest random relative change of speed in each pre-roll step. 0 to 1."""
    heading_bias: str = V36_HEADING_BIAS
    """Start headings of the predator, `from-to:weight,...` in degrees; `330-30:1` wraps round. Empty: 0."""
    speed_bias: str = V36_SPEED_BIAS
    """Speeds of the predator in the pre-roll, `from-to:weight,...`. Empty: no bias."""
    max_steps: int = 500
    """Steps after which the living fish are truncated. 1 to 1000000."""
    force_reset_steps: int = 0
    """Cut every game after this many steps; 0 never does. 0 to 1000000."""
    predator_hunts: bool = False
    """The predator chases the nearest fish in its view instead of only falling along +y."""
    predator_view: float = 5.0
    """How far a hunting predator sees. 0 to 20."""
    predator_speed: float = 2.5
    """Speed that a hunting predator strives for (a fish reaches 2). 0 to 20."""
    predator_acceleration: float = 4.0
    """Largest change of velocity per time unit of a hunting predator: low means wide turns. 0 to 1000."""
    threads: int = 1
    """Threads that step the games; results do not depend on it. 1 to 256."""

    def __post_init__(self) -> None:
        for name, allowed in RANGES.items():
            value = checked(f"shoal option '{name}'", getattr(self, name), allowed)
            object.__setattr__(self, name, value)
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(
                    f"shoal option '{name}' is {getattr(self, name)!r}. Allowed: true or false."
                )
        parse_heading_bias(self.heading_bias)
        parse_speed_bias(self.speed_bias)

    @property
    def observation_size(self) -> int:
        """Numbers in one observation."""
        return 18 if self.neighbors else 11


RANGES: dict[str, Range] = {
    "games": (int, 1, 100_000),
    "fish": (int, 1, 10_000),
    "neighbor_radius": (float, 1e-3, 20),
    "neighbor_count": (int, 1, 1000),
    "divergence_reward": (float, -100, 100),
    "density_penalty": (float, 0, 100),
    "density_target": (float, 0, 1),
    "view_reward": (float, 0, 100),
    "escape_boost_speed": (float, 0, 1),
    "escape_jitter": (float, 0, 3.1416),
    "spawn_jitter": (float, 0, 8),
    "pre_roll_steps": (int, 0, 1000),
    "pre_roll_angle_jitter": (float, 0, 3.1416),
    "pre_roll_speed_jitter": (float, 0, 1),
    "max_steps": (int, 1, 1_000_000),
    "force_reset_steps": (int, 0, 1_000_000),
    "predator_view": (float, 0, 20),
    "predator_speed": (float, 0, 20),
    "predator_acceleration": (float, 0, 1000),
    "threads": (int, 1, 256),
}
_FLAGS = ("neighbors", "escape_boost", "predator_hunts")


def plain_options(**changes: Any) -> ShoalOptions:
    """Return the original environment's constructor defaults: fish start at random, predator at the centre."""
    plain: dict[str, Any] = {
        "neighbor_radius": 2.0,
        "escape_boost": False,
        "escape_boost_speed": 0.6,
        "escape_jitter": math.pi / 12,
        "spawn_jitter": 0.0,
        "pre_roll_steps": 0,
        "pre_roll_angle_jitter": 0.0,
        "pre_roll_speed_jitter": 0.0,
        "heading_bias": "",
        "speed_bias": "",
    }
    return make_options(**{**plain, **changes})


def make_options(**settings: Any) -> ShoalOptions:
    """Return the options with these settings; an unknown name is a `ConfigError` with the nearest match."""
    known = [field.name for field in dataclasses.fields(ShoalOptions)]
    for name in settings:
        if name not in known:
            raise ConfigError(
                f"The shoal world has no option '{name}'.{nearest(name, known)} It has: {', '.join(known)}."
            )
    return ShoalOptions(**settings)


_NUMBER = r"\s*(-?\d+(?:\.\d*)?|-?\.\d+)\s*"
_ENTRY = re.compile(rf"^{_NUMBER}-{_NUMBER}:{_NUMBER}$")


def parse_heading_bias(text: str) -> tuple[Bin, ...]:
    """Return bins `(from, to, weight)` in degrees with `to > from`; a bin that wraps has `to > 360`."""
    bins: list[Bin] = []
    for low, high, weight, entry in _entries("heading_bias", text, "0-60:1.1,330-30:0.5"):
        # The original took both ends modulo 360, so a range that ended at 360 or wrapped was lost.
        start = low % 360.0
        width = high - low if high > low else high % 360.0 - start + 360.0
        if not 0.0 < width <= 360.0 or high == low:
            raise _bad_entry(
                "heading_bias", entry, "two different headings in degrees, at most a full turn"
            )
        if weight > 0.0:
            bins.append((start, start + width, weight))
    return tuple(bins)


def parse_speed_bias(text: str) -> tuple[Bin, ...]:
    """Return bins `(from, to, weight)` of speeds with `0 <= from < to`."""
    bins: list[Bin] = []
    for low, high, weight, entry in _entries("speed_bias", text, "0-1.0:1.6,1.0-1.6:1.3"):
        if not 0.0 <= low < high:
            raise _bad_entry("speed_bias", entry, "0 <= from < to")
        if weight > 0.0:
            bins.append((low, high, weight))
    return tuple(bins)


def _entries(name: str, text: str, example: str) -> list[tuple[float, float, float, str]]:
    if not isinstance(text, str):
        raise ConfigError(f"shoal option '{name}' is {text!r}. Allowed: text such as '{example}'.")
    if not text.strip():
        return []
    found = []
    for entry in text.split(","):
        match = _ENTRY.match(entry)
        if match is None:
            raise ConfigError(
                f"shoal option '{name}' has the entry '{entry.strip()}'. Allowed: from-to:weight entries "
                f"separated by commas, such as '{example}', or nothing at all."
            )
        low, high, weight = (float(part) for part in match.groups())
        if weight < 0.0:
            raise _bad_entry(name, entry, "weights of 0 or more")
        found.append((low, high, weight, entry))
    if not any(weight > 0.0 for _, _, weight, _ in found):
        raise ConfigError(
            f"shoal option '{name}' is '{text}', in which every weight is 0. Give one entry a weight "
            "above 0, or leave the text empty for no bias."
        )
    return found


def _bad_entry(name: str, entry: str, allowed: str) -> ConfigError:
    return ConfigError(
        f"shoal option '{name}' has the entry '{entry.strip()}'. Allowed: {allowed}."
    )
