"""The pursuit world: a pursuer and an evader a game, slots 2g and 2g + 1.

    world = PursuitWorld(games=64, n_obstacles=3, n_obstacle_obs=3, arena_width=10, arena_height=10)
    obs, info = world.reset(seed=1)
    obs, rewards, terminations, truncations, info = world.step(actions)

Capture terminates both slots; a time-out truncates them (see `timeout_terminates`). Every episode has a
seed from which its start and its noise follow alone: the game's own for the first, then a hash of the
game's seed and the number of the episode.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from holdfast.errors import ConfigError
from holdfast.parallel import Threads
from holdfast.records import F32, F64, Array, Bools, Episode, Start
from holdfast.worlds.contract import State, World
from holdfast.worlds.pursuit.episodes import describe
from holdfast.worlds.pursuit.geometry import with_short_headings
from holdfast.worlds.pursuit.layout import GAME, GRID, ROLES, SCRIPTS, VALUES, ray_table
from holdfast.worlds.pursuit.levels import Levels
from holdfast.worlds.pursuit.options import PursuitOptions
from holdfast.worlds.pursuit.starts import StartQueue
from holdfast.worlds.pursuit.stepping import observe_games, reset_games, step_games

_STAGED = ("queued", "queued_seed", "queued_pose", "queued_n")
_FIELDS = tuple(name for name in GAME.names or () if name not in _STAGED)
MIXED_DISTANCES = ("mixed_min_init_distance", "mixed_max_init_distance")
MIXED = ("mixed_share", *MIXED_DISTANCES)
"""Mixed-level replay: the share of the games that begin at distances of their own, whatever the others do."""
_NEEDED = ("pose", "obstacles", "n_obstacles", "last_action", "t")
FULL_SPEED = 1e9
"""Faster than anybody: every action is cut to what its agent can."""


class PursuitWorld(World):
    """Many games of pursuit and evasion in one kernel call."""

    value_names = (*VALUES, *MIXED)
    game_roles = ROLES
    scripts = SCRIPTS

    def __init__(
        self, options: PursuitOptions | None = None, *, seed: int = 0, **given: Any
    ) -> None:
        """Make the world from options, or from their names and values.

        The first `reset()` without a seed uses `seed`.
        """
        if options is None:
            options = PursuitOptions.of(**given)
        elif given:
            options = dataclasses.replace(options, **given)
        self.options = options
        speed, turn = options.speed_bound, max(options.turn_limits)
        if options.unit_actions:
            speed, turn = 1.0, 1.0
        low, high = [0.0, -turn], [speed, turn]
        first = 1 if options.fixed_speed else 0
        size = options.observation_size
        super().__init__(
            games=options.games,
            slots_per_game=2,
            roles=self.game_roles,
            observation_space=gym.spaces.Box(-np.inf, np.inf, (size,), np.float32),
            action_space=gym.spaces.Box(
                np.array(low[first:], np.float32), np.array(high[first:], np.float32)
            ),
        )
        self._threads = Threads(options.threads)
        self._levels = Levels(options)
        g, n = options.games, self.num_envs
        self._records = np.zeros(g, GAME)
        self._records["game_seed"] = self.game_seeds(seed)
        self._records["episode"] = -1
        self._obstacles = np.zeros((g, options.capacity, 3))
        self._queued_obstacles = np.zeros_like(self._obstacles)
        rows = options.history_length if options.mode == "sensors" else 0
        shape = (g, 2, rows, 7 + options.lidar_rays)
        self._history = np.zeros(shape, np.float32)
        self._stale = np.zeros((g, GRID * GRID))
        self._rays = ray_table(options)
        self._actions = np.full((n, 2), FULL_SPEED)
        self._given = self._actions[:, first:]
        self._final_obs = np.zeros((n, size), np.float32)
        self._finished = np.zeros(g, GAME)
        self._ended = np.zeros(g, np.uint8)
        self._mask = np.ones(n, np.bool_)
        if options.task == "navigation":
            self._mask[0::2] = False
        self._starts = StartQueue(self._records, self._queued_obstacles)

    @property
    def sensors(self) -> tuple[int, ...]:
        """Lidar rays and rows of history."""
        if self.options.mode != "sensors":
            return ()
        return (self.options.lidar_rays, self.options.history_length)

    @property
    def truth_size(self) -> int:
        """Two: a place."""
        return 2 if self.options.mode == "sensors" else 0

    def truth(self) -> F32:
        """Return x and y, in metres, of whom or what the opponent sensor of each slot looks for, `[N, 2]`."""
        if not self.truth_size:
            return super().truth()
        places = self._records["pose"][:, ::-1, :2].astype(np.float32)
        if self.options.task == "navigation":
            seeks = ~self._records["flee"]
            places[seeks, 1] = self._records["goal"][seeks, :2]
        return places.reshape(self.num_envs, 2)

    @property
    def records(self) -> Array:
        """State of the games as the kernels hold it, `[G]` of dtype `layout.GAME`; not to be written."""
        return self._records

    @property
    def obstacles(self) -> F64:
        """Obstacles of the games, `[G, K, 3]`: x, y, radius; valid up to `records["n_obstacles"]`."""
        return self._obstacles

    @property
    def params(self) -> Array:
        """Parameters as the kernels hold them, `[levels]` of dtype `layout.PARAMS`; not to be written."""
        return self._levels.params

    @property
    def finished(self) -> Array:
        """Last state of each game's last episode, `[G]` of dtype `layout.GAME`; not to be written."""
        return self._finished

    @property
    def threads(self) -> Threads:
        """The threads that share the games."""
        return self._threads

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begin a new episode in every game and return `(obs [N, D], info)`."""
        if seed is not None:
            self._records["game_seed"] = self.game_seeds(seed)
            self._records["episode"] = -1
        obs = self._fresh_obs()
        self._threads.over(
            self.games,
            lambda lo, hi: reset_games(
                self._levels.params,
                self._records,
                self._obstacles,
                self._queued_obstacles,
                self._history,
                self._stale,
                self._rays,
                obs,
                lo,
                hi,
            ),
        )
        for g in range(self.games):
            self._starts.taken(g)
        return obs, {"mask": self._mask.copy()}

    def step_into(
        self,
        actions: Array,
        obs: Array,
        rewards: F64,
        terminations: Bools,
        truncations: Bools,
        mask: Bools,
    ) -> dict[str, Any]:
        """Step all slots once into the given rows; `info["final_obs"]` is valid until the next step."""
        if obs.dtype != np.float32 or not obs.flags.c_contiguous:
            return self._step_by_copy(actions, obs, rewards, terminations, truncations, mask)
        self._given[...] = np.reshape(actions, self._given.shape)
        self._threads.over(
            self.games,
            lambda lo, hi: step_games(
                self._levels.params,
                self._records,
                self._obstacles,
                self._queued_obstacles,
                self._history,
                self._stale,
                self._rays,
                self._actions,
                obs,
                rewards,
                terminations,
                truncations,
                mask,
                self._final_obs,
                self._finished,
                self._ended,
                lo,
                hi,
            ),
        )
        if self.options.fixed_speed:
            self._actions[:, 0] = FULL_SPEED
        if not self._ended.any():
            return {}
        which = np.flatnonzero(self._ended)
        info: dict[str, Any] = {
            "final_obs": self._final_obs,
            "_final_obs": np.repeat(self._ended != 0, 2),
            "episodes": self._episodes(which),
        }
        for g in which.tolist():
            self._starts.taken(g)
        return info

    def _step_by_copy(self, actions: Array, obs: Array, *rest: Any) -> dict[str, Any]:
        """Step into a fresh observation array and copy it: for rows that the kernel cannot write to."""
        fresh = self._fresh_obs()
        info = self.step_into(actions, fresh, *rest)
        obs[...] = fresh
        return info

    def step(self, actions: Array) -> tuple[Array, F64, Bools, Bools, dict[str, Any]]:
        """Step all slots once into fresh arrays, as Gymnasium does."""
        obs, rewards, terminations, truncations, info = super().step(actions)
        if "final_obs" in info:
            info["final_obs"] = info["final_obs"].copy()
        return obs, rewards, terminations, truncations, info

    def _episodes(self, which: Array) -> list[Episode]:
        starts = [self._starts.running(g) for g in which.tolist()]
        why, last = self._ended[which], self._finished[which]
        return describe(which, why, last, starts, self.params, self.options)

    def queue_starts(self, slots: Sequence[int], starts: Sequence[Start]) -> None:
        """Append `starts[k]` to what the next resets of the game of `slots[k]` begin from.

        A snapshot has `pose [2, 3]`, and where obstacles stand `obstacles [k, 3]` and `n_obstacles`; a
        seed beside it keys the episode's noise.
        """
        self._starts.add(self.games_of(slots), starts)

    def queued(self) -> list[int]:
        """Return how many starts wait in each game."""
        return self._starts.waiting()

    def current_starts(self) -> list[Start]:
        """Return the start of the episode that each game plays now."""
        seeds = self._records["seed"].tolist()
        return [self._starts.running(g) or Start(seed=seed) for g, seed in enumerate(seeds)]

    def request_reset(self, slots: Sequence[int]) -> None:
        """Cut the games of these slots at their next step (truncated, then reset as usual)."""
        self._records["cut"][self.games_of(slots)] = True

    def observe(self) -> tuple[Array, Bools]:
        """Return the current `(obs, mask)`."""
        obs = self._fresh_obs()
        self._observe_into(obs, forget=False)
        return obs, self._mask.copy()

    def _fresh_obs(self) -> Array:
        return np.zeros((self.num_envs, self.options.observation_size), np.float32)

    def _observe_into(self, obs: Array, *, forget: bool) -> None:
        self._threads.over(
            self.games,
            lambda lo, hi: observe_games(
                self._levels.params,
                self._records,
                self._obstacles,
                self._history,
                self._stale,
                self._rays,
                obs,
                forget,
                lo,
                hi,
            ),
        )

    def get_state(self) -> State:
        """Return a copy of the whole state; `pose`, `obstacles`, `n_obstacles`, `last_action`, `t` may be
        edited before `set_state`."""
        state: State = {name: self._records[name].copy() for name in _FIELDS}
        state["obstacles"] = self._obstacles.copy()
        state["history"] = self._history.copy()
        state["stale"] = self._stale.copy()
        state["values"] = self._levels.table()
        state.update(self._starts.pack())
        return state

    def set_state(self, state: State) -> None:
        """Go on from `state`; what follows from pose and obstacles is computed anew.

        With the five keys `pose, obstacles, n_obstacles, last_action, t` alone, the sums of the episode,
        the history and the search grid begin here.
        """
        missing = [name for name in _NEEDED if name not in state]
        if missing:
            raise ConfigError(
                f"A pursuit state needs {', '.join(_NEEDED)}; missing: {', '.join(missing)}."
            )
        if not np.isfinite(state["pose"]).all():
            raise ConfigError("The state's 'pose' holds numbers that are not finite.")
        most = int(np.max(state["n_obstacles"]))
        if most > self._obstacles.shape[1]:
            raise ConfigError(
                f"The state has {most} obstacles and this world room for {self._obstacles.shape[1]}; "
                f"make the world with obstacle_capacity={most}."
            )
        if "values" in state:
            self._levels.restore(np.asarray(state["values"]))
        self._copy_fields(state)
        if not all(name in state for name in (*_FIELDS, "history", "stale")):
            self._observe_into(self._fresh_obs(), forget=True)
            self._copy_fields(state)
        if "queues" in state:
            self._starts.unpack(state["queues"], state["running"])
        self._refresh()

    def _copy_fields(self, state: Mapping[str, Any]) -> None:
        for name in _FIELDS:
            if name in state:
                given = np.asarray(state[name])
                if given.shape != self._records[name].shape:
                    raise ConfigError(
                        f"The state's '{name}' has shape {list(given.shape)}; this world's is "
                        f"{list(self._records[name].shape)}. States fit worlds with as many games."
                    )
                self._records[name] = given
        self._records["pose"] = with_short_headings(state["pose"])
        given = np.asarray(state["obstacles"])
        rows = min(given.shape[1], self._obstacles.shape[1])
        # Rows beyond the count may hold anything, such as NaN padding; none of it may be saved again.
        used = np.arange(rows) < np.asarray(state["n_obstacles"])[:, None]
        self._obstacles[:, :rows] = np.where(used[..., None], given[:, :rows], 0.0)
        for name, own in (("history", self._history), ("stale", self._stale)):
            if name in state:
                own[...] = state[name]

    def set_value(self, name: str, value: float, *, level: int | None = None) -> None:
        """Set one of `value_names` from the next step (or reset) on, for all levels or for one.

        -1 unsets a radius, an angle, the obstacle range or the mixed distances (either one ends both); setting
        `n_obstacles` ends the range.
        """
        if name == "mixed_share":
            old = min(max(round(value * self.games), int(value > 0)), self.games)
            self.set_levels([1] * old + [0] * (self.games - old))
        elif name in MIXED_DISTANCES and value == -1:
            self.set_levels([0] * self.games)
            self._levels.shrink()
        elif name in MIXED_DISTANCES:
            self._levels.grow(2)
            self.set_values({name.removeprefix("mixed_"): value}, level=1)
        elif f"mixed_{name}" in MIXED_DISTANCES and self._levels.mixed and level is None:
            self.set_values({name: value}, level=0)
        else:
            self.set_values({name: value}, level=level)

    def set_values(self, values: Mapping[str, float], *, level: int | None = None) -> None:
        """Set several values at once, so that they are only checked together."""
        for name in values:
            if name not in VALUES:
                raise self._unknown_value(name)
        self._levels.turn(values, level)
        if "w_obs_approach" in values:
            self._refresh()

    def turn(self, values: Mapping[str, float]) -> None:
        """Set several values of a new world, so that those of a level are only checked together."""
        self.set_values({name: value for name, value in values.items() if name not in MIXED})
        distances = {n: values[n] for n in MIXED_DISTANCES if values.get(n, -1) != -1}
        if distances:
            self._levels.grow(2)
            own = {name.removeprefix("mixed_"): value for name, value in distances.items()}
            self.set_values(own, level=1)
        if "mixed_share" in values:
            self.set_value("mixed_share", values["mixed_share"])

    def value(self, name: str, *, level: int = 0) -> float:
        """Return what the kernels use now for `name`; -1 where it is unset."""
        if name == "mixed_share":
            return float(np.mean(self._records["row"] == 1))
        if name in MIXED_DISTANCES:
            own = name.removeprefix("mixed_")
            return self._levels.read(own, 1) if self._levels.mixed else -1.0
        if name not in VALUES:
            raise self._unknown_value(name)
        return self._levels.read(name, level)

    def drive(self, role: str, games: Array, speeds: Array) -> None:
        """Let a role drive at `speeds` in the coming step of `games` although its speed is fixed: scripts do."""
        self._actions[2 * games + ROLES.index(role), 0] = speeds

    def scripted(self, name: str, role: str, games: Array | None = None) -> Array:
        """Return what the script `name` does now in `games` (all without), `[n, A]`."""
        from holdfast.worlds.pursuit.policies import Scripted

        return Scripted(name, role).act(self, games)

    def set_levels(self, levels: Sequence[int]) -> None:
        """Give each game its level, `[G]`: the row of values that it plays under; level 0 is the default.

        A new level begins as a copy of level 0. Mixed-level replay sets a few games to level 1.
        """
        if len(levels) != self.games or min(levels) < 0:
            raise ConfigError(f"set_levels needs {self.games} levels of at least 0, one a game.")
        self._levels.grow(max(levels) + 1)
        self._records["row"] = np.asarray(levels, np.int64)
        self._refresh()

    def _refresh(self) -> None:
        """Bring the memory of the last step up to date: what no weight needed was not kept."""
        self._observe_into(self._fresh_obs(), forget=False)

    def close_extras(self, **kwargs: Any) -> None:
        """Let the threads go."""
        self._threads.close()
