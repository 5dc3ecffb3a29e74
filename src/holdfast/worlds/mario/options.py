"""The settings of the mario world, their ranges, and the grammars of `stages` and `anneal`.

Rewards are numbers before `reward_scale`: with the defaults a pixel of new ground pays 1/15, a death costs 25/15.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from holdfast.errors import ConfigError, nearest
from holdfast.worlds.ranges import Range, checked

OBSERVATIONS = ("pixels", "tiles")
SCHEDULES = ("fixed", "cycle", "random", "curriculum")
ACTIONS = ("right", "simple", "complex", "extended")
WORLDS, STAGES = 8, 4

Stage = tuple[int, int]
"""World and stage, from 1."""


@dataclass(frozen=True)
class MarioOptions:
    """Settings of the mario world."""

    games: int = 16
    """Consoles that run at once. 1 to 100000."""
    stages: str = "1-1"
    """Stages that are played: `1-1`, `1-1,1-2,4-2`, `1-1..2-4`, or `all`."""
    stage_schedule: str = "fixed"
    """Which stage an episode plays. `fixed`: game g always the g-th (round robin); `cycle`: the next one every
    episode; `random`: drawn from the episode's seed; `curriculum`: the first, and one more whenever the newest
    is cleared often enough, the badly cleared ones more often."""
    stage_unlock: float = 0.6
    """Clear rate of the newest stage at which `curriculum` adds the next one. 0 to 1."""
    stage_episodes: int = 50
    """Episodes over which `curriculum` measures a clear rate, and the fewest before a stage is added. 1 to 100000."""
    stage_floor: float = 0.1
    """Weight of a stage that is always cleared against 1 + this for one that never is (`curriculum`). 0.001 to 100."""
    observation: str = "pixels"
    """`pixels`: one grey picture of 84 x 84; `tiles`: numbers read from RAM (see `tiles.py`)."""
    stack: int = 4
    """Pictures of one episode that a learner stacks (`pixels` only; the world gives each once). 1 to 16."""
    crop: bool = False
    """Leave the 32 lines of the status bar out of the picture."""
    brightest: bool = True
    """Show the brighter of the last two frames of a step at each pixel, against flicker (with `skip`
    1 a step has one); false: the last frame."""
    actions: str = "simple"
    """What the policy chooses from: `right` (5), `simple` (7), `complex` (12) or `extended` (17)."""
    skip: int = 4
    """Frames a step, 60 a second. 1 to 60."""
    noops: int = 30
    """An episode begins after 1 to 1 + this many frames of standing still, drawn from its seed. 0 to 120."""
    max_steps: int = 2500
    """Steps after which an episode is cut (`timeout_steps`); 0 never does. 0 to 1000000."""
    stagnation_steps: int = 150
    """Steps without new ground after which an episode is lost (`stagnation`); 0 never does. 0 to 1000000."""
    reward_progress: float = 1.0
    """For each pixel beyond the furthest x of the episode in its area. 0 to 1000."""
    reward_time: float = 0.1
    """For each tick of the game's timer (20 frames) that is lost; it counts against. 0 to 1000."""
    reward_score: float = 0.0
    """For each 100 points. 0 to 1000."""
    reward_coins: float = 0.0
    """For each coin. 0 to 1000."""
    reward_power: float = 0.0
    """For each step up from small to tall to fire; lost again with it. 0 to 1000."""
    reward_milestone: float = 0.0
    """For each multiple of `milestone_pixels` that is passed for the first time in an episode. 0 to 1000."""
    reward_clear: float = 50.0
    """For the flag, or for Bowser's axe. -10000 to 10000."""
    reward_death: float = -25.0
    """For a death: by an enemy, in a pit, out of time. -10000 to 10000."""
    reward_stagnation: float = -25.0
    """For an episode lost to stagnation; less than a death costs would pay for standing still. -10000 to 10000."""
    reward_timeout: float = 0.0
    """For an episode cut at `max_steps`. -10000 to 10000."""
    reward_scale: float = 1.0 / 15.0
    """Factor of everything above. 0 to 1000."""
    reward_clip: float = 0.0
    """Bound of the scaled reward of a step without clear, death, stagnation and timeout; 0 is off. 0 to 1000000."""
    milestone_pixels: int = 256
    """Distance between two milestones, pixels. 1 to 100000."""
    anneal: str = ""
    """Reward settings that change linearly with the env steps of all games, `name>last@env_steps,...`, such as
    `death>-50@1e6,scale>0.05@500000`. A value that is set while the world runs is no longer annealed."""
    trail: int = 4
    """Moments that each game keeps for starts before a death, two or more; 0 keeps none. 0 to 64."""
    trail_every: int = 30
    """Steps between two of them; a start lies one to two of these before the death. 1 to 10000."""
    rom: str = ""
    """File of the cartridge; empty: HOLDFAST_ROM, then an installed gym-super-mario-bros."""
    any_rom: bool = False
    """Accept a cartridge other than the checked one."""
    threads: int = 1
    """Threads that step the games; results do not depend on it. 1 to 256."""

    def __post_init__(self) -> None:
        for name, allowed in RANGES.items():
            value = checked(f"mario option '{name}'", getattr(self, name), allowed)
            object.__setattr__(self, name, value)
        for name in ("crop", "brightest", "any_rom"):
            if not isinstance(getattr(self, name), bool):
                raise _wrong(name, getattr(self, name), "true or false")
        for name, known in _WORDS.items():
            value = getattr(self, name)
            if value not in known:
                hint = nearest(str(value), known)
                raise _wrong(
                    name, value, ", ".join(known) + "." + hint if hint else ", ".join(known)
                )
        if not isinstance(self.rom, str):
            raise _wrong("rom", self.rom, "the path of a file, or nothing")
        parse_stages(self.stages)
        parse_anneal(self.anneal)

    def check_training(self, mine: bool) -> None:
        """Raise a ConfigError if a stage would never be played, or if there were no moments to `mine`."""
        stages = parse_stages(self.stages)
        if self.stage_schedule == "fixed" and len(stages) > self.games:
            first = stage_name(stages[self.games])
            raise ConfigError(
                f"mario option 'stages' names {len(stages)} stages, and with stage_schedule = 'fixed' each of the "
                f"{self.games} games keeps to one: {first} and what follows would never be played. Type: "
                f"--games {len(stages)}, or --stage-schedule cycle"
            )
        if mine and self.trail == 0:
            raise ConfigError(
                "guards.tails.mine = true begins episodes before the places of death, and mario option 'trail' is 0: no "
                "moments are kept. Allowed: 1 to 64. Type: --trail 4, or --guards.tails.mine false"
            )

    def turned(self, changes: Mapping[str, Any]) -> MarioOptions:
        """Return the options with these changes; a value that was set live is not annealed."""
        kept = [e for e in parse_anneal(self.anneal) if e.name not in changes]
        anneal = ",".join(f"{e.name}>{e.last!r}@{e.env_steps}" for e in kept)
        return replace(self, **{"anneal": anneal, **changes})


RANGES: dict[str, Range] = {
    "games": (int, 1, 100_000),
    "stage_unlock": (float, 0, 1),
    "stage_episodes": (int, 1, 100_000),
    "stage_floor": (float, 1e-3, 100),
    "stack": (int, 1, 16),
    "skip": (int, 1, 60),
    "noops": (int, 0, 120),
    "max_steps": (int, 0, 1_000_000),
    "stagnation_steps": (int, 0, 1_000_000),
    "reward_progress": (float, 0, 1000),
    "reward_time": (float, 0, 1000),
    "reward_score": (float, 0, 1000),
    "reward_coins": (float, 0, 1000),
    "reward_power": (float, 0, 1000),
    "reward_milestone": (float, 0, 1000),
    "reward_clear": (float, -1e4, 1e4),
    "reward_death": (float, -1e4, 1e4),
    "reward_stagnation": (float, -1e4, 1e4),
    "reward_timeout": (float, -1e4, 1e4),
    "reward_scale": (float, 0, 1000),
    "reward_clip": (float, 0, 1e6),
    "milestone_pixels": (int, 1, 100_000),
    "trail": (int, 0, 64),
    "trail_every": (int, 1, 10_000),
    "threads": (int, 1, 256),
}
_WORDS = {"observation": OBSERVATIONS, "stage_schedule": SCHEDULES, "actions": ACTIONS}

REWARDS = tuple(name for name in RANGES if name.startswith("reward_"))
"""The settings of the reward, in the order of `rewards.py`."""


def parse_stages(text: str) -> tuple[Stage, ...]:
    """Return the stages in `text`, in order: names, ranges `1-1..1-4` and `all`."""
    if not isinstance(text, str):
        raise _wrong("stages", text, _STAGES_ALLOWED)
    everything = [(w, s) for w in range(1, WORLDS + 1) for s in range(1, STAGES + 1)]
    found: list[Stage] = []
    for entry in text.split(","):
        word = entry.strip()
        if word == "all":
            found += everything
            continue
        ends = [_stage(part, text) for part in word.split("..")]
        first, last = everything.index(ends[0]), everything.index(ends[-1])
        if len(ends) > 2 or last < first:
            raise _wrong("stages", text, _STAGES_ALLOWED)
        found += everything[first : last + 1]
    if len(set(found)) != len(found):
        twice = next(s for s in found if found.count(s) > 1)
        raise _wrong("stages", text, f"each stage once ({stage_name(twice)} stands there twice)")
    return tuple(found)


def stage_name(stage: Stage) -> str:
    """Return `1-2` for (1, 2)."""
    return f"{stage[0]}-{stage[1]}"


@dataclass(frozen=True)
class Anneal:
    """One setting of the reward that changes with the env steps."""

    name: str
    last: float
    env_steps: int


def parse_anneal(text: str) -> tuple[Anneal, ...]:
    """Return the entries of an `anneal` text; names may leave `reward_` out."""
    if not isinstance(text, str):
        raise _wrong("anneal", text, _ANNEAL_ALLOWED)
    found: dict[str, Anneal] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(r"(\w+)\s*>\s*([^@\s]+)\s*@\s*(\S+)", entry)
        if match is None:
            raise _wrong("anneal", entry, _ANNEAL_ALLOWED)
        name = match[1] if match[1].startswith("reward_") else f"reward_{match[1]}"
        if name not in REWARDS:
            hint = nearest(name, REWARDS)
            raise _wrong("anneal", entry, f"one of {', '.join(REWARDS)}.{hint}")
        _, low, high = RANGES[name]
        last, steps = _number(match[2]), _number(match[3])
        if last is None or not low <= last <= high:
            raise _wrong("anneal", entry, f"a last value from {low:g} to {high:g}")
        if steps is None or steps < 1 or not steps.is_integer():
            raise _wrong("anneal", entry, "a whole number of env steps, 1 or more")
        if name in found:
            raise _wrong("anneal", text, f"each name once ({name} stands there twice)")
        found[name] = Anneal(name, last, int(steps))
    return tuple(found.values())


_STAGES_ALLOWED = "stages from 1-1 to 8-4, such as '1-1', '1-1,1-2,4-2', '1-1..2-4' or 'all'"
_ANNEAL_ALLOWED = "entries name>last@env_steps separated by commas, such as 'death>-50@1e6'"


def _stage(word: str, text: str) -> Stage:
    match = re.fullmatch(r"\s*([1-8])-([1-4])\s*", word)
    if match is None:
        raise _wrong("stages", text, _STAGES_ALLOWED)
    return int(match[1]), int(match[2])


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _wrong(name: str, value: Any, allowed: str) -> ConfigError:
    return ConfigError(f"mario option '{name}' is {value!r}. Allowed: {allowed}.")
