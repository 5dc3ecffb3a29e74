"""The arrays that hold all games, the settings that kernels read, and the constants of the world."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from holdfast.records import F32, F64, Array, Bools

STAGE_RADIUS = 10.0
TOP_SPEED = 2.0
VISION = 10.0 / 3.0
KILL_DISTANCE = 0.7
DEATH_PENALTY = -50.0

RUNNING, EXTINCT, TIME_LIMIT, FORCED = 0, 1, 2, 3
"""Why a game ended in this step."""


class Shoals(NamedTuple):
    """The state of all games; G games, F fish."""

    x: F32
    """`[G, F]`, as are y, vx, vy: one array a component, so that moves vectorise."""
    y: F32
    vx: F32
    vy: F32
    alive: Bools
    """`[G, F]`."""
    predator: F32
    """`[G, 4]`: x, y, vx, vy."""
    t: Array
    """`[G]` int32 steps since the reset."""
    death_steps: Array
    """`[G, F]` int32, -1 while alive."""
    returns: F64
    """`[G, F]` reward of the episode so far."""
    first_predator: F32
    """`[G, 4]` predator after step 1, for the step-one records."""
    pending: Bools
    """`[G]` cut at the next step."""
    ended: Array
    """`[G]` uint8, see `RUNNING`."""
    distance: F32
    """`[G, F]` to the predator; scratch."""
    radius: F32
    """`[G, F]` from the centre; scratch."""


def empty_shoals(games: int, fish: int) -> Shoals:
    """Return zeroed arrays for this many games and fish."""

    def reals() -> Array:
        return np.zeros((games, fish), np.float32)

    return Shoals(
        x=reals(),
        y=reals(),
        vx=reals(),
        vy=reals(),
        alive=np.ones((games, fish), np.bool_),
        predator=np.zeros((games, 4), np.float32),
        t=np.zeros(games, np.int32),
        death_steps=np.full((games, fish), -1, np.int32),
        returns=np.zeros((games, fish), np.float64),
        first_predator=np.zeros((games, 4), np.float32),
        pending=np.zeros(games, np.bool_),
        ended=np.zeros(games, np.uint8),
        distance=reals(),
        radius=reals(),
    )


class Rules(NamedTuple):
    """The settings that kernels read, as plain numbers."""

    max_steps: int
    force_reset_steps: int
    neighbors: bool
    """Observations have neighbour features."""
    crowd: bool
    """The reward needs neighbours."""
    neighbor_radius: float
    neighbor_count: int
    density_penalty: float
    density_target: float
    divergence_reward: float
    near_slope: float
    """Reward a unit of distance for a fish that sees the predator."""
    hunts: bool
    sight: float
    hunt_speed: float
    hunt_change: float
    """Largest change of velocity in one step."""
