"""Scripted policies for tests, baselines and the ceiling.

    actions = act("sidestep", world)                  # from the exact state
    actions = act_on("sidestep", obs)                 # from observations alone

Every policy sees only what a fish sees: the predator counts when it is nearer than the vision radius.
Both calls decide in float64; the second rounds as observations do, so near a threshold it may differ.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.errors import ConfigError, nearest
from holdfast.jit import kernel
from holdfast.records import F32, F64, Array

if TYPE_CHECKING:
    from holdfast.worlds.shoal.world import ShoalWorld

FORWARD, LEFT, RIGHT, BRAKE, KEEP = range(5)
SIDESTEP, FLEE_SOUTH, FLEE_KEEP, FLEE_BRAKE, SOUTH, FIRST_CONSTANT = 0, 1, 2, 3, 4, 10

POLICIES = {
    "sidestep": SIDESTEP,
    "flee_south": FLEE_SOUTH,
    "flee_keep": FLEE_KEEP,
    "flee_brake": FLEE_BRAKE,
    "south": SOUTH,
    "forward": FIRST_CONSTANT + FORWARD,
    "left": FIRST_CONSTANT + LEFT,
    "right": FIRST_CONSTANT + RIGHT,
    "brake": FIRST_CONSTANT + BRAKE,
    "keep": FIRST_CONSTANT + KEEP,
}
"""Policies that need no randomness; `random` needs a generator."""
POLICY_NAMES = (*POLICIES, "random")

_TAN_15 = math.tan(math.radians(15.0))
_VISION = np.float32(10.0 / 3.0)


def act(name: str, world: ShoalWorld, rng: np.random.Generator | None = None) -> Array:
    """Return one int32 action a slot, decided from the world's exact state."""
    if name == "random":
        return _random(world.num_envs, rng)
    bodies = world.bodies()
    fish, predators = world.slots_per_game, np.empty((world.num_envs, 4), np.float32)
    predators[:, :2] = np.repeat(bodies["predator_pos"], fish, axis=0)
    predators[:, 2:] = np.repeat(bodies["predator_vel"], fish, axis=0)
    rows = np.concatenate(
        [bodies["fish_pos"].reshape(-1, 2), bodies["fish_vel"].reshape(-1, 2), predators], axis=1
    )
    actions = np.empty(world.num_envs, np.int32)
    decide_rows(_code(name), rows, actions)
    return actions


def act_on(name: str, obs: F32, rng: np.random.Generator | None = None) -> Array:
    """Return one int32 action a row of observations `[N, 11 or 18]`."""
    if name == "random":
        return _random(len(obs), rng)
    wide = np.asarray(obs, np.float64)
    rows = np.empty((len(wide), 8))
    rows[:, 0:2] = wide[:, 0:2] * 10.0
    rows[:, 2:4] = wide[:, 2:4] * 2.0
    rows[:, 4:6] = rows[:, 0:2] + wide[:, 6:8] * (10.0 / 3.0)
    rows[:, 6:8] = wide[:, 8:10] * 2.0
    rows[wide[:, 5] == 0.0, 4:6] = 1e6
    actions = np.empty(len(wide), np.int32)
    decide_rows(_code(name), rows, actions)
    return actions


def _code(name: str) -> int:
    if name not in POLICIES:
        raise ConfigError(
            f"There is no scripted shoal policy '{name}'.{nearest(name, POLICY_NAMES)} "
            f"There are: {', '.join(POLICY_NAMES)}."
        )
    return POLICIES[name]


def _random(slots: int, rng: np.random.Generator | None) -> Array:
    chosen = rng if rng is not None else np.random.default_rng()
    return chosen.integers(0, 5, slots, dtype=np.int32)


@kernel
def decide_rows(policy: int, rows: F64, actions: Array) -> None:
    """Decide for rows of `x, y, vx, vy` of the fish and then of the predator."""
    for i in range(rows.shape[0]):
        r = rows[i]
        actions[i] = decide(policy, r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7])


@kernel
def decide(
    policy: int, x: Any, y: Any, vx: Any, vy: Any, px: Any, py: Any, pvx: Any, pvy: Any
) -> Any:
    """Return the action of one fish."""
    if policy >= FIRST_CONSTANT:
        return policy - FIRST_CONSTANT
    # Away from the predator, and whether it is seen; the distance is float32 in the world.
    rx, ry = np.float64(x) - np.float64(px), np.float64(y) - np.float64(py)
    distance = math.sqrt(rx * rx + ry * ry)
    if policy != SOUTH and np.float32(distance) < _VISION:
        if policy == SIDESTEP:
            rx, ry = sidestep_direction(rx, ry, distance, np.float64(pvx), np.float64(pvy))
        return steer(np.float64(vx), np.float64(vy), rx, ry)
    if policy == FLEE_KEEP:
        return KEEP
    if policy == FLEE_BRAKE:
        return BRAKE
    # Gravity drags the predator to the +y rim, so the -y side is the refuge.
    sx, sy = -np.float64(x), -7.5 - np.float64(y)
    if math.sqrt(sx * sx + sy * sy) < 1.2:
        return BRAKE
    return steer(np.float64(vx), np.float64(vy), sx, sy)


@kernel
def sidestep_direction(rx: float, ry: float, distance: float, pvx: float, pvy: float) -> Any:
    """Return the way out of the predator's path: across a fast predator's, straight away from a slow one."""
    pace = math.sqrt(pvx * pvx + pvy * pvy)
    ux = pvx / pace if pace > 1e-9 else 1.0
    uy = pvy / pace if pace > 1e-9 else 0.0
    side = 1.0 if ux * ry - uy * rx >= 0.0 else -1.0
    w = min(pace / 2.0, 1.0)
    away = max(distance, 1e-9)
    return (1.0 - w) * rx / away - w * uy * side, (1.0 - w) * ry / away + w * ux * side


@kernel
def steer(vx: float, vy: float, dx: float, dy: float) -> Any:
    """Return the action that turns the heading towards `(dx, dy)`, or forward within 15 degrees of it."""
    speed = math.sqrt(vx * vx + vy * vy)
    hx = vx / speed if speed > 0.01 else 1.0
    hy = vy / speed if speed > 0.01 else 0.0
    across, along = hx * dy - hy * dx, hx * dx + hy * dy
    if along > 0.0 and abs(across) <= _TAN_15 * along:
        return FORWARD
    return LEFT if across >= 0.0 else RIGHT
