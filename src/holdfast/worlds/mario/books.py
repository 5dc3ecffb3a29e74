"""What the world remembers of each game beside its console: the books that rewards and records are made from.

A row of `counts` is 64-bit numbers by the columns below. `area_best` is the furthest x of the episode in each
area (an area is a stretch that scrolls on its own: the level, a bonus room): -1 where Mario has not been. Kernels (`holdfast.jit`) take the numbers as constants.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from holdfast.records import F64, Bools
from holdfast.worlds.mario.machine import Bytes, Longs

COLUMNS = (
    "steps",
    "stall",
    "x",
    "y",
    "best_x",
    "area",
    "world",
    "stage",
    "timer",
    "score",
    "coins",
    "power",
    "lives",
    "milestones",
    "ground",
    "gains",
    "scripted",
)
(
    STEPS,  # of this episode
    STALL,  # steps since the last new ground
    X,
    Y,
    BEST_X,  # furthest x in any area
    AREA,
    WORLD,  # of the stage that is played, from 1
    STAGE,
    TIME_LEFT,
    POINTS,
    COIN_COUNT,
    POWER_NOW,
    LIVES_NOW,
    MILESTONES,
    GROUND,  # pixels of new ground
    GAINS,  # steps that won new ground
    SCRIPTED,  # steps that a script played
) = range(len(COLUMNS))

AREAS = 128

RUNNING = 0
ENDS = (
    "",
    "clear",
    "death_enemy",
    "death_pit",
    "time_up",
    "warp",
    "stagnation",
    "timeout_steps",
    "forced",
    "env_restart",
)
"""Why an episode ended, by number. Those before `timeout_steps` terminate it; the others cut it (truncation)."""
(CLEARED, BY_ENEMY, BY_PIT, BY_TIME, WARPED, STAGNATED, TIMED_OUT, FORCED, STUCK) = range(1, 10)
DEATHS = ENDS[BY_ENEMY : BY_TIME + 1]
PLACED = ENDS[BY_ENEMY:BY_TIME]
"""Deaths of the place where they happen: nobody can do better a few seconds before the time is up."""
CUTS = ENDS[FORCED:]
"""Reasons that are no outcome."""


class Books(NamedTuple):
    """Rows of N games; all of it is part of the world's state."""

    counts: Longs  # [N, len(COLUMNS)]
    area_best: Longs  # [N, AREAS]
    sums: F64  # [N, len(COMPONENTS)] scaled reward of this episode by component
    chosen: Longs  # [N, A] how often the policy took each action
    ended: Longs  # [N] 0, or a number of ENDS
    pending: Bools  # [N] cut this game at its next step
    script: Bytes  # [N, L] pad byte of each scripted step
    script_at: Longs  # [N] next step of the script
    script_end: Longs  # [N] its length; at == end: no script
    forced: Bools  # [N] the next step is the script's: the slot is masked


class Rules(NamedTuple):
    """What all games share, as the kernels take it."""

    pads: Bytes  # [A] buttons of each action
    skip: int
    pixels: bool
    brightest: bool
    top: int
    max_steps: int
    stagnation_steps: int
    milestone_pixels: int


def make_books(games: int, actions: int, components: int) -> Books:
    """Return empty books."""
    return Books(
        counts=np.zeros((games, len(COLUMNS)), np.int64),
        area_best=np.full((games, AREAS), -1, np.int64),
        sums=np.zeros((games, components)),
        chosen=np.zeros((games, actions), np.int64),
        ended=np.zeros(games, np.int64),
        pending=np.zeros(games, np.bool_),
        script=np.zeros((games, 1), np.uint8),
        script_at=np.zeros(games, np.int64),
        script_end=np.zeros(games, np.int64),
        forced=np.zeros(games, np.bool_),
    )
