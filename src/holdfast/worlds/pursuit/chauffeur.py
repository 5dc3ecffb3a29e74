"""The homicidal chauffeur solved on a grid: the world's one game with a known value (spec 10, check 3).

A pursuer of fixed speed and limited turn rate chases a slower evader that may head anywhere. In the open
plane the state is the evader's position in the pursuer's frame, x ahead and y left; the capture time
satisfies V = dt + min over turns, max over headings, of V(next).

    table = solve()
    world = PursuitWorld(games=8, **table.world_options())
    world.queue_starts(slots, [table.start(x, y) for x, y in places])
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from holdfast.jit import kernel
from holdfast.parallel import Threads
from holdfast.records import F64, Array, Start
from holdfast.worlds.pursuit.geometry import clip, wrap
from holdfast.worlds.pursuit.layout import ROLES
from holdfast.worlds.pursuit.policies import write_action
from holdfast.worlds.pursuit.world import PursuitWorld

TURNS = 5
HEADINGS = 32


@dataclass(frozen=True)
class Chauffeur:
    """The value of the game on a grid, and the numbers that it was solved for."""

    values: F64
    """`[n, n]` capture time in seconds with the evader at `(i, j) * cell - extent`."""
    cell: float
    """Grid spacing in metres."""
    extent: float
    """Half width of the grid in metres."""
    speed: float
    """Pursuer's speed in m/s."""
    evader_speed: float
    """Evader's speed in m/s."""
    turn: float
    """Pursuer's turn-rate limit in rad/s."""
    radius: float
    """Capture radius in metres."""
    dt: float
    """Seconds a step."""
    sweeps: int
    """Sweeps until the values stood still."""

    @property
    def numbers(self) -> F64:
        """What the kernels take: cell, extent, both speeds, turn, radius, dt."""
        return np.array(
            [
                self.cell,
                self.extent,
                self.speed,
                self.evader_speed,
                self.turn,
                self.radius,
                self.dt,
            ]
        )

    def value(self, x: float, y: float) -> float:
        """Return the capture time in seconds with the evader at (x, y) in the pursuer's frame."""
        return float(_value_at(self.values, self.numbers, x, y))

    def world_options(self) -> dict[str, Any]:
        """Return the options under which `PursuitWorld` is this game."""
        return {
            "arena_width": 400.0,
            "arena_height": 400.0,
            "dt": self.dt,
            "pursuer_v_max": self.speed,
            "evader_v_max": self.evader_speed,
            "pursuer_omega_max": self.turn,
            # Half a turn within one step: any heading.
            "evader_omega_max": 1.003 * math.pi / self.dt,
            "capture_radius": self.radius,
            "fixed_speed": True,
        }

    def start(self, x: float, y: float) -> Start:
        """Return a start with the evader at (x, y) before the pursuer, headed as its policy wants."""
        _, psi = _best(self.values, self.numbers, x, y)
        pose = np.array([[0.0, 0.0, 0.0], [x, y, wrap(psi)]])
        return Start(snapshot={"pose": pose}, label=f"({x:g}, {y:g})", type="chauffeur")


class ChauffeurPolicy:
    """Play one role by the table, in every game of a world made with `world_options`."""

    def __init__(self, table: Chauffeur, role: str) -> None:
        """Take the table for `role`."""
        self.table, self.role = table, role

    def write(self, world: PursuitWorld, actions: Array) -> None:
        """Write the actions of its role's slots into `actions [N, 1]`."""
        me = ROLES.index(self.role)
        out = np.empty((world.games, 2), np.float32)
        world.threads.over(
            world.games,
            lambda lo, hi: table_games(
                world.params,
                world.records,
                self.table.values,
                self.table.numbers,
                me,
                out,
                lo,
                hi,
            ),
        )
        actions[me::2, -1] = out[:, 1]


def solve(
    *,
    cell: float = 0.04,
    extent: float = 5.0,
    speed: float = 1.0,
    evader_speed: float = 0.5,
    turn: float = 2.84,
    radius: float = 0.5,
    dt: float = 0.05,
    sweeps: int = 400,
    tolerance: float = 1e-4,
    threads: int = 1,
) -> Chauffeur:
    """Return the game's value by sweeps over the grid until no node moves by `tolerance` seconds.

    Beyond the grid stands (d - r) / (v_P - v_E), the value of the straight chase.
    """
    n = 2 * round(extent / cell) + 1
    numbers = np.array([cell, extent, speed, evader_speed, turn, radius, dt])
    values, fresh = np.zeros((n, n)), np.zeros((n, n))
    _seed_values(values, numbers)
    pool = Threads(threads)
    done, moved = 0, math.inf
    while done < sweeps and moved >= tolerance:
        pool.over(n, partial(_sweep, values, numbers, fresh))
        moved = float(np.max(np.abs(fresh - values)))
        values, fresh = fresh, values
        done += 1
    pool.close()
    return Chauffeur(values, cell, extent, speed, evader_speed, turn, radius, dt, done)


@kernel
def _beyond(numbers: Any, x: float, y: float) -> float:
    d = math.sqrt(x * x + y * y)
    return float(max(d - numbers[5], 0.0) / (numbers[2] - numbers[3]))


@kernel
def _value_at(values: Any, numbers: Any, x: float, y: float) -> float:
    """Return the value at (x, y): zero when caught, bilinear on the grid, straight chase beyond."""
    if x * x + y * y <= numbers[5] * numbers[5]:
        return 0.0
    i, j = (x + numbers[1]) / numbers[0], (y + numbers[1]) / numbers[0]
    n = values.shape[0]
    if i < 0.0 or j < 0.0 or i >= n - 1 or j >= n - 1:
        return _beyond(numbers, x, y)
    a, b = int(i), int(j)
    s, t = i - a, j - b
    low = values[a, b] + t * (values[a, b + 1] - values[a, b])
    high = values[a + 1, b] + t * (values[a + 1, b + 1] - values[a + 1, b])
    return float(low + s * (high - low))


@kernel
def _best(values: Any, numbers: Any, x: float, y: float) -> tuple[float, float]:
    """Return the pursuer's turn rate and the evader's answer to it, a heading in the pursuer's frame."""
    best, best_u, best_psi = math.inf, 0.0, 0.0
    for k in range(TURNS):
        u = numbers[4] * (2.0 * k / (TURNS - 1) - 1.0)
        worst, psi = _answer(values, numbers, x, y, u, best)
        if worst < best:
            best, best_u, best_psi = worst, u, psi
    return best_u, best_psi


@kernel
def _answer(
    values: Any, numbers: Any, x: float, y: float, u: float, enough: float
) -> tuple[float, float]:
    """Return the greatest value that the evader reaches against turn `u`, and the heading for it.

    Once `enough` is exceeded the turn is no longer of interest and the search stops.
    """
    dt = numbers[6]
    c, s = math.cos(u * dt), math.sin(u * dt)
    worst, best_psi = -math.inf, 0.0
    for m in range(HEADINGS):
        psi = 2.0 * math.pi * m / HEADINGS
        nx = x - numbers[2] * dt + numbers[3] * dt * math.cos(psi)
        ny = y + numbers[3] * dt * math.sin(psi)
        value = _value_at(values, numbers, c * nx + s * ny, c * ny - s * nx)
        if value > worst:
            worst, best_psi = value, psi
            if worst >= enough:
                break
    return worst, best_psi


@kernel
def _seed_values(values: Any, numbers: Any) -> None:
    for a in range(values.shape[0]):
        for b in range(values.shape[1]):
            x, y = a * numbers[0] - numbers[1], b * numbers[0] - numbers[1]
            values[a, b] = _beyond(numbers, x, y)


@kernel
def _sweep(values: Any, numbers: Any, out: Any, lo: int, hi: int) -> None:
    """Write one sweep of the rows `[lo, hi)`; left and right mirror each other."""
    n = values.shape[1]
    dt, step = numbers[6], numbers[3] * numbers[6]
    ex, ey = np.empty(HEADINGS), np.empty(HEADINGS)
    for m in range(HEADINGS):
        ex[m] = step * math.cos(2.0 * math.pi * m / HEADINGS) - numbers[2] * dt
        ey[m] = step * math.sin(2.0 * math.pi * m / HEADINGS)
    for a in range(lo, hi):
        x = a * numbers[0] - numbers[1]
        for b in range(n // 2 + 1):
            y = b * numbers[0] - numbers[1]
            if x * x + y * y <= numbers[5] * numbers[5]:
                out[a, b] = out[a, n - 1 - b] = 0.0
                continue
            best = math.inf
            for k in range(TURNS):
                u = numbers[4] * (2.0 * k / (TURNS - 1) - 1.0)
                c, s = math.cos(u * dt), math.sin(u * dt)
                worst = -math.inf
                for m in range(HEADINGS):
                    nx, ny = x + ex[m], y + ey[m]
                    value = _value_at(values, numbers, c * nx + s * ny, c * ny - s * nx)
                    if value > worst:
                        worst = value
                        if worst >= best:
                            break
                best = min(best, worst)
            out[a, b] = out[a, n - 1 - b] = dt + best


@kernel
def table_games(
    params: Any, games: Any, values: Any, numbers: Any, me: int, out: Any, lo: int, hi: int
) -> None:
    """Write the table's action of agent `me` in the games `[lo, hi)` into `out [G, 2]`."""
    dt = numbers[6]
    for g in range(lo, hi):
        p = params[games[g].row]
        pose = games[g].pose
        theta = pose[0, 2]
        c, s = math.cos(theta), math.sin(theta)
        dx, dy = pose[1, 0] - pose[0, 0], pose[1, 1] - pose[0, 1]
        x, y = c * dx + s * dy, c * dy - s * dx
        omega, _ = _best(values, numbers, x, y)
        if me == 1:
            # A turn acts on the next move: head for what is best once both have moved.
            psi = pose[1, 2] - theta
            nx = x - numbers[2] * dt + numbers[3] * dt * math.cos(psi)
            ny = y + numbers[3] * dt * math.sin(psi)
            cu, su = math.cos(omega * dt), math.sin(omega * dt)
            _, wanted = _best(values, numbers, cu * nx + su * ny, cu * ny - su * nx)
            err = wrap(theta + omega * dt + wanted - pose[1, 2])
            omega = err / dt
        w_max = p.omega_max[me]
        write_action(p, me, p.v_max[me], clip(omega, -w_max, w_max), out[g])
