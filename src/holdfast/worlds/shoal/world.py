"""The shoal as a world: many fish with one shared policy, one predator a game, slots are games x fish.

A fish that dies is terminated once and masked until its game ends. A game ends when all its fish are dead
(`terminated`), at `max_steps` (`truncated`), or when it is cut by `force_reset_steps` or `request_reset`
(`forced`); the living are then truncated, and the game begins anew in the same step. A game that reached its
`force_reset_steps` has an outcome like any other; one that `request_reset` broke off before has none.
"""

from __future__ import annotations

import dataclasses
import math
import secrets
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from holdfast.errors import EnvironmentFault
from holdfast.parallel import Threads
from holdfast.records import F64, Array, Bools, Episode, Start
from holdfast.rng import MASK_63
from holdfast.worlds.contract import State, World
from holdfast.worlds.queues import StartQueues
from holdfast.worlds.ranges import clipped
from holdfast.worlds.shoal import arrays, kernels
from holdfast.worlds.shoal.arrays import Rules
from holdfast.worlds.shoal.neighbors import crowd_games
from holdfast.worlds.shoal.options import RANGES, ShoalOptions
from holdfast.worlds.shoal.reset import (
    BEFORE_ROLL,
    StartLaw,
    begin_games,
    check_snapshot,
    pre_roll_stats,
)

_ENDINGS = {
    arrays.EXTINCT: "terminated",
    arrays.TIME_LIMIT: "truncated",
    arrays.FORCED: "forced",
}
_LAW_VALUES = (
    "escape_boost_speed",
    "escape_jitter",
    "spawn_jitter",
    "pre_roll_angle_jitter",
    "pre_roll_speed_jitter",
)
_BOOKS = ("death_steps", "returns", "first_predator", "pending")
"""Arrays of `Shoals` that the state carries under their own names."""

_NO_REWARDS: F64 = np.empty(0)


class ShoalWorld(World):
    """A batch of shoals in compiled code."""

    game_roles = ("fish",)
    value_names = (
        "density_penalty",
        "density_target",
        "divergence_reward",
        "view_reward",
        "force_reset_steps",
        *_LAW_VALUES,
        "predator_view",
        "predator_speed",
        "predator_acceleration",
    )

    value_ranges = RANGES
    fact_names = (
        "survival",
        "final_alive",
        "first_death_step",
        "step_one_deaths",
        "mean_return",
        "start_heading_deg",
        "start_speed",
    )

    def __init__(self, options: ShoalOptions | None = None, *, seed: int | None = None) -> None:
        """Make the games and begin their first episodes from `seed` (from the system without one)."""
        self.options = options if options is not None else ShoalOptions()
        o = self.options
        super().__init__(
            games=o.games,
            slots_per_game=o.fish,
            roles=self.game_roles * o.fish,
            observation_space=gym.spaces.Box(-np.inf, np.inf, (o.observation_size,), np.float32),
            action_space=gym.spaces.Discrete(5),
        )
        self._threads = Threads(o.threads)
        self._everywhere = np.ones(o.games, np.bool_)
        self._values = {name: float(getattr(o, name)) for name in self.value_names}
        self._apply_values()
        self._shoals = arrays.empty_shoals(o.games, o.fish)
        self._records = np.zeros((o.games, self._law.record_size))
        self._starts = StartQueues(o.games)
        self._first = np.zeros((o.games, 4), np.float32)
        self._seeds = np.zeros(o.games, np.int64)
        self._episodes = np.zeros(o.games, np.int64)
        self.reset(seed=secrets.randbits(62) if seed is None else seed)

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begin a new episode in every game; see the contract for what `seed` means."""
        if seed is not None:
            self._seeds[:] = self.game_seeds(seed)
            self._episodes[:] = 0
        self._begin(list(range(self.games)))
        obs, mask = self.observe()
        return obs, {"mask": mask}

    def step_into(
        self,
        actions: Array,
        obs: Array,
        rewards: F64,
        terminations: Bools,
        truncations: Bools,
        mask: Bools,
    ) -> dict[str, Any]:
        """Step all slots once into the given rows; games that end begin anew."""
        chosen = np.ascontiguousarray(actions, np.int32)
        if chosen.shape != (self.num_envs,):
            raise EnvironmentFault(
                f"The shoal got actions of the shape {chosen.shape}. Allowed: ({self.num_envs},), one "
                f"whole number from 0 to 4 a slot ({self.games} games x {self.slots_per_game} fish)."
            )
        shoals, rules = self._shoals, self._rules
        crowd, everywhere = rules.neighbors or rules.crowd, self._everywhere

        def work(lo: int, hi: int) -> None:
            kernels.step_games(
                shoals, rules, chosen, obs, rewards, terminations, truncations, mask, lo, hi
            )
            if crowd:
                crowd_games(shoals, rules, everywhere, True, obs, rewards, lo, hi)

        self._threads.over(self.games, work)
        if not shoals.ended.any():
            return {}
        return self._renew(obs, truncations, mask)

    def observe(self) -> tuple[Array, Bools]:
        """Return the current `(obs, mask)`."""
        obs = np.empty((self.num_envs, self.options.observation_size), np.float32)
        mask = np.empty(self.num_envs, np.bool_)
        self._observe_games(self._everywhere, obs, mask)
        return obs, mask

    def queue_starts(self, slots: Sequence[int], starts: Sequence[Start]) -> None:
        """Append `starts[k]` to what the next resets of the game of `slots[k]` begin from."""
        for start in starts:
            if start.snapshot is not None:
                check_snapshot(start.snapshot, self.slots_per_game)
        self._starts.add(self.games_of(slots), starts)

    def queued(self) -> list[int]:
        """Return how many starts wait in each game."""
        return self._starts.waiting()

    def current_starts(self) -> list[Start]:
        """Return the start of the episode that each game plays now."""
        return list(self._starts.running)

    def request_reset(self, slots: Sequence[int]) -> None:
        """Cut the games of these slots at their next step."""
        self._shoals.pending[self.games_of(slots)] = True

    def set_value(self, name: str, value: float) -> None:
        """Set one of `value_names`, clipped to the option's range, from the next step or reset on."""
        if name not in self._values:
            raise self._unknown_value(name)
        self._values[name] = float(clipped(f"shoal value '{name}'", value, RANGES[name]))
        self._apply_values()

    def value(self, name: str) -> float:
        """Return what the simulator uses now for `name`."""
        if name not in self._values:
            raise self._unknown_value(name)
        if name in _LAW_VALUES:
            return float(getattr(self._law, name))
        return self._values[name]

    def bodies(self) -> State:
        """Return copies of the six simulator arrays: fish, predators and clocks, without the bookkeeping."""
        s = self._shoals
        return {
            "fish_pos": np.stack([s.x, s.y], axis=-1),
            "fish_vel": np.stack([s.vx, s.vy], axis=-1),
            "alive": s.alive.copy(),
            "predator_pos": s.predator[:, :2].copy(),
            "predator_vel": s.predator[:, 2:].copy(),
            "t": s.t.copy(),
        }

    def get_state(self) -> State:
        """Return a copy of everything from which stepping goes on bit for bit."""
        s = self._shoals
        return {
            **self.bodies(),
            **{name: getattr(s, name).copy() for name in _BOOKS},
            "start_predator": self._first.copy(),
            "pre_roll": self._records.copy(),
            "seeds": self._seeds.copy(),
            "episodes": self._episodes.copy(),
            "values": np.array([self._values[name] for name in self.value_names]),
            **self._starts.state(),
        }

    def set_state(self, state: State) -> None:
        """Go on from `state`; what it leaves out (all but the six simulator arrays may be) stays as it is."""
        s = self._shoals
        targets: dict[str, Array] = {
            "alive": s.alive,
            "predator_pos": s.predator[:, :2],
            "predator_vel": s.predator[:, 2:],
            "t": s.t,
            **{name: getattr(s, name) for name in _BOOKS},
            "start_predator": self._first,
            "pre_roll": self._records,
            "seeds": self._seeds,
            "episodes": self._episodes,
        }
        shapes = {name: target.shape for name, target in targets.items()}
        shapes["fish_pos"] = shapes["fish_vel"] = (*s.x.shape, 2)
        shapes["values"] = (len(self.value_names),)
        for name, shape in shapes.items():
            if name in state and np.shape(state[name]) != shape:
                raise EnvironmentFault(
                    f"The state of a shoal has '{name}' with the shape {np.shape(state[name])}. Allowed: "
                    f"{shape}, for {self.games} games of {self.slots_per_game} fish. Make the world "
                    "with the options that the state was saved under."
                )
        for name, target in targets.items():
            if name in state:
                target[...] = state[name]
        for name, (first, second) in {"fish_pos": (s.x, s.y), "fish_vel": (s.vx, s.vy)}.items():
            if name in state:
                first[...], second[...] = np.moveaxis(np.asarray(state[name]), -1, 0)
        if "values" in state:
            self._values = dict(zip(self.value_names, map(float, state["values"]), strict=True))
            self._apply_values()
        self._starts.load(state)
        # A caller may have edited `alive` alone; the death steps follow it.
        s.death_steps[s.alive] = -1
        fallen = ~s.alive & (s.death_steps < 0)
        s.death_steps[fallen] = np.broadcast_to(s.t[:, None], fallen.shape)[fallen]

    def close_extras(self, **kwargs: Any) -> None:
        """Let the threads go."""
        self._threads.close()

    def _apply_values(self) -> None:
        o, v = self.options, self._values
        law_values: dict[str, Any] = {name: v[name] for name in _LAW_VALUES}
        self._law = StartLaw.of(dataclasses.replace(o, **law_values))
        self._rules = Rules(
            max_steps=o.max_steps,
            force_reset_steps=int(v["force_reset_steps"]),
            neighbors=o.neighbors,
            crowd=v["density_penalty"] != 0.0 or v["divergence_reward"] != 0.0,
            neighbor_radius=o.neighbor_radius,
            neighbor_count=o.neighbor_count,
            density_penalty=v["density_penalty"],
            density_target=v["density_target"],
            divergence_reward=v["divergence_reward"],
            near_slope=v["view_reward"] * 3.0 / 10.0,
            hunts=o.predator_hunts,
            sight=v["predator_view"],
            hunt_speed=v["predator_speed"],
            hunt_change=v["predator_acceleration"] * 0.1,
        )

    def _begin(self, games: list[int]) -> None:
        own = [episode_seed(int(self._seeds[g]), int(self._episodes[g])) for g in games]
        starts = [self._starts.take(g, seed) for g, seed in zip(games, own, strict=True)]
        self._episodes[games] += 1
        seeds = [start.seed or 0 for start in starts]
        snapshots = [start.snapshot for start in starts]
        begin_games(self._shoals, games, self._law, seeds, snapshots, self._records)
        self._first[games] = self._shoals.predator[games]

    def _renew(self, obs: Array, truncations: Bools, mask: Bools) -> dict[str, Any]:
        """Record the games that ended, begin them anew, and overwrite their rows of `obs` and `mask`."""
        over = self._shoals.ended != arrays.RUNNING
        games = np.flatnonzero(over).tolist()
        info: dict[str, Any] = {
            "final_obs": obs.copy(),
            "_final_obs": truncations.copy(),
            "episodes": [self._episode(g) for g in games],
        }
        self._begin(games)
        self._observe_games(over, obs, mask)
        return info

    def _observe_games(self, only: Bools, obs: Array, mask: Bools) -> None:
        shoals, rules = self._shoals, self._rules

        def work(lo: int, hi: int) -> None:
            kernels.observe_games(shoals, only, obs, mask, lo, hi)
            if rules.neighbors:
                crowd_games(shoals, rules, only, False, obs, _NO_REWARDS, lo, hi)

        self._threads.over(self.games, work)

    def _episode(self, g: int) -> Episode:
        s, start = self._shoals, self._starts.running[g]
        deaths = s.death_steps[g].copy()
        dead = deaths[deaths >= 0]
        step_one = np.flatnonzero(deaths == 1)
        returns = s.returns[g].copy()
        vx, vy = float(self._first[g, 2]), float(self._first[g, 3])
        living = int(s.alive[g].sum())
        override = start.snapshot is not None and BEFORE_ROLL in start.snapshot
        own_end = 0 < self._rules.force_reset_steps <= s.t[g]
        return Episode(
            game=g,
            start=start,
            steps=int(s.t[g]),
            returns=returns,
            ended=_ENDINGS[int(s.ended[g])],
            facts={
                "survival": living / self.slots_per_game,
                "final_alive": float(living),
                "first_death_step": float(dead.min()) if dead.size else -1.0,
                "step_one_deaths": float(step_one.size),
                "mean_return": float(returns.mean()),
                "start_heading_deg": math.degrees(math.atan2(vy, vx)) % 360.0,
                "start_speed": math.hypot(vx, vy),
            },
            begin={
                "predator_pos": self._first[g, :2].tolist(),
                "predator_vel": self._first[g, 2:].tolist(),
            },
            detail={
                "death_steps": deaths,
                "step_one": [self._step_one(g, int(i)) for i in step_one],
                "pre_roll_stats": pre_roll_stats(
                    self._law, self._records[g], self._first[g], override
                ),
            },
            cut=bool(s.ended[g] == arrays.FORCED and not own_end),
        )

    def _step_one(self, g: int, i: int) -> dict[str, Any]:
        # A dead fish keeps its last position, and the predator's of step 1 was kept for this.
        s = self._shoals
        predator = [float(v) for v in s.first_predator[g]]
        return {
            "fish_idx": i,
            "predator_index": 0,
            "fish_position": [float(s.x[g, i]), float(s.y[g, i])],
            "predator_position": predator[:2],
            "predator_velocity": predator[2:],
            "timestep": 1,
        }


def episode_seed(seed: int, episode: int) -> int:
    """Return the seed of a game's n-th episode: the literal seed for the first, then a 63-bit mix of both."""
    if episode == 0:
        return seed
    # splitmix64 (Steele, Lea, Flood 2014) over the pair; `rng.derive_seed` is ten times slower.
    mask = (1 << 64) - 1
    z = (seed * 0xD1342543DE82EF95 + episode * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return (z ^ (z >> 31)) & MASK_63
