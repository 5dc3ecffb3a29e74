"""Scripted policies, for all games at once: opponents, baselines and anchors of difficulty (spec 1.10, 7.6).

    pursuer = Scripted("greedy", "pursuer")
    evader = Scripted("circling", "evader", radius=4.2)
    episodes = play(world, pursuer, evader, seed=0)

They read the true state of the world, whatever the observation hides.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

from holdfast.errors import ConfigError, nearest
from holdfast.jit import kernel
from holdfast.records import F32, Array, Episode
from holdfast.worlds.pursuit.draws import key, unit
from holdfast.worlds.pursuit.geometry import bearing, clip, wrap
from holdfast.worlds.pursuit.layout import ROLES, SCRIPTS
from holdfast.worlds.pursuit.world import PursuitWorld

_STATIC, _RANDOM, _GREEDY, _PURSUIT, _FLEE, _CORNER, _CIRCLING, _CHASER = range(8)
CORNER_MARGIN = 0.5
"""Metres from the walls to the corner that `flee_to_corner` runs to."""


class Policy(Protocol):
    """What can play one role of every game."""

    def write(self, world: PursuitWorld, actions: Array) -> None:
        """Write the actions of its role's slots into `actions [N, A]`."""


class Scripted:
    """A policy by name.

    `greedy`: turns to the other (pursuer: slows while turned away) or away from it (evader);
    `pure_pursuit`: turns to the other at full speed; `flee`: turns away at full speed; `flee_to_corner`: to
    the corner farthest from the other; `circling`: round the centre at `radius` metres; `chaser`: pure
    pursuit at half speed; `random`: uniform actions; `static`: stands still.
    """

    def __init__(self, name: str, role: str, *, radius: float = 4.0, seed: int = 0) -> None:
        """Take the script `name` for `role`; `seed` is that of the random script."""
        if name not in SCRIPTS:
            known = ", ".join(SCRIPTS)
            raise ConfigError(
                f"There is no script '{name}'; allowed: {known}.{nearest(name, SCRIPTS)}"
            )
        if role not in ROLES:
            raise ConfigError(f"There is no role '{role}'; allowed: {', '.join(ROLES)}.")
        self.name, self.role, self.radius, self.seed = name, role, radius, seed

    def write(self, world: PursuitWorld, actions: Array) -> None:
        """Write the actions of its role's slots into `actions [N, A]`."""
        me = ROLES.index(self.role)
        actions[me::2] = self.act(world)

    def act(self, world: PursuitWorld, games: Array | None = None) -> F32:
        """Return the actions of its role in `games` (all without), `[n, A]`.

        A fixed speed holds for those who learn: there the script sets its own for the coming step.
        """
        out = np.empty((world.games, 2), np.float32)
        me, kind = ROLES.index(self.role), SCRIPTS.index(self.name)
        world.threads.over(
            world.games,
            lambda lo, hi: script_games(
                world.params, world.records, kind, me, self.radius, self.seed, out, lo, hi
            ),
        )
        games = np.arange(world.games) if games is None else games
        if not world.options.fixed_speed:
            return out[games]
        world.drive(self.role, games, out[games, 0])
        return out[games, 1:]


def play(world: PursuitWorld, pursuer: Policy, evader: Policy, seed: int = 0) -> list[Episode]:
    """Return one episode a game, game g from seed `seed + g`, played by the two policies."""
    world.reset(seed=seed)
    actions = np.zeros((world.num_envs, *(world.single_action_space.shape or ())), np.float32)
    episodes: dict[int, Episode] = {}
    while len(episodes) < world.games:
        pursuer.write(world, actions)
        evader.write(world, actions)
        *_, info = world.step(actions)
        for episode in info.get("episodes", ()):
            episodes.setdefault(episode.game, episode)
    return [episodes[g] for g in range(world.games)]


@kernel
def write_action(p: Any, me: int, v: float, omega: float, out: Any) -> None:
    """Write (v, omega) in m/s and rad/s into `out [2]` in the units of the world's actions."""
    out[0] = v / p.v_max[me] if p.unit_actions else v
    out[1] = omega / p.omega_max[me] if p.unit_actions else omega


@kernel
def _corner(p: Any, pose: Any, me: int) -> tuple[float, float]:
    """Return the corner farthest from the other agent."""
    x, y = p.half_x - CORNER_MARGIN, p.half_y - CORNER_MARGIN
    # The farthest corner has the sign opposite to the other agent on each axis.
    return (-x if pose[1 - me, 0] > 0.0 else x), (-y if pose[1 - me, 1] > 0.0 else y)


@kernel
def script_games(
    params: Any,
    games: Any,
    kind: int,
    me: int,
    radius: float,
    seed: int,
    out: Any,
    lo: int,
    hi: int,
) -> None:
    """Write the scripted action (v, omega) of agent `me` in the games `[lo, hi)` into `out [G, 2]`."""
    for g in range(lo, hi):
        game = games[g]
        p = params[game.row]
        pose = game.pose
        v, w_max, gain, err = p.v_max[me], p.omega_max[me], 3.0, 0.0
        if kind == _STATIC:
            v = 0.0
        elif kind == _RANDOM:
            word = key(game.seed + seed, 2 * game.t + me, 401)
            v = v * unit(word)
            err = w_max * (2.0 * unit(key(game.seed + seed, 2 * game.t + me, 402)) - 1.0) / gain
        elif kind == _GREEDY and me == 0:
            err = bearing(pose, me)
            v = v * max(0.0, math.cos(err))
        elif kind in (_PURSUIT, _CHASER):
            err = bearing(pose, me)
            v = 0.5 * v if kind == _CHASER else v
        elif kind == _CORNER:
            cx, cy = _corner(p, pose, me)
            err = wrap(math.atan2(cy - pose[me, 1], cx - pose[me, 0]) - pose[me, 2])
        elif kind == _CIRCLING:
            x, y = pose[me, 0], pose[me, 1]
            off = math.sqrt(x * x + y * y) - radius
            wanted = math.atan2(y, x) + 0.5 * math.pi + clip(0.5 * off, -1.2, 1.2)
            gain, err = 4.0, wrap(wanted - pose[me, 2])
        else:
            err = wrap(bearing(pose, me) + math.pi)
        write_action(p, me, v, clip(gain * err, -w_max, w_max), out[g])
