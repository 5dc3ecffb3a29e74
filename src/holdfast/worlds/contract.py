"""The world contract: a `gymnasium.vector.VectorEnv` whose `num_envs` are slots.

A *slot* is one agent. Slot `i` belongs to game `i // slots_per_game` and has the role `roles[i]`:
25 fish of a shoal, pursuer and evader of one game, or a single Mario are the same interface.

Autoreset is SAME_STEP: when a game ends, the observation returned is already the first of its
next episode. What `step` returns besides the usual arrays stands in `info`:

    info["mask"]        bool [N]      False: this slot carries no decision now (a dead fish, a scripted
                                      frame, an agent that joins later); its next action is ignored
                                      and it enters no loss
    info["final_obs"]   [N, ...]      only when a game ended: the last observation of the old episode,
                                      valid where `info["_final_obs"]` is True
    info["episodes"]    list[Episode] only when a game ended: one record a game, with its start

`terminations[i]` is True once, when the episode of slot i ends for good; `truncations[i]` when it was
cut (a time limit, a forced reset) and the learner must bootstrap from `final_obs`.

The loop steps through `step_into`, which writes into the rollout's own rows; `step` is the
Gymnasium face of the same thing.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from holdfast.errors import ConfigError, nearest
from holdfast.records import F32, F64, Array, Bools, Start
from holdfast.rng import MASK_63
from holdfast.worlds.ranges import Range

State = dict[str, Any]
"""Arrays or bytes by name, from which stepping goes on bit for bit."""


class World(VectorEnv[Array, Array, Array]):
    """Base of all worlds. A subclass sets the spaces and implements the abstract methods."""

    games: int
    slots_per_game: int
    roles: tuple[str, ...]
    """Role of each slot, `[N]`."""
    saves_state = True
    """False for foreign environments that cannot be saved: their runs resume, but not bit for bit."""
    options: Any
    """The frozen options that the world was made with."""
    value_names: tuple[str, ...] = ()
    """What `set_value` may turn while the world runs."""
    value_ranges: Mapping[str, Range] = {}
    """What `set_value` clips to, where a world knows it beforehand."""
    fact_names: tuple[str, ...] = ()
    """Facts that every episode has, where a world knows them beforehand."""
    game_roles: tuple[str, ...] = ()
    """Roles of the slots of one game; of the class, each role once, or nothing where only a world that is made knows them."""
    start_labels: tuple[str, ...] = ()
    """Labels of the starts that belong to this world, where it tells them apart: the stages that it plays."""
    scripts: tuple[str, ...] = ()
    """Names of policies that the world plays by itself: opponents and baselines."""

    def __init__(
        self,
        *,
        games: int,
        slots_per_game: int,
        roles: Sequence[str],
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
    ) -> None:
        """Set the counts and spaces; `roles` names the slots of one game."""
        self.games = games
        self.slots_per_game = slots_per_game
        self.game_roles = tuple(roles)
        self.roles = self.game_roles * games
        self.num_envs = games * slots_per_game
        self.single_observation_space = observation_space
        self.single_action_space = action_space
        self.observation_space = batch_space(observation_space, self.num_envs)
        self.action_space = batch_space(action_space, self.num_envs)
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

    @property
    def frame_stack(self) -> int:
        """Frames that a learner should see at once; the world gives each of them once."""
        return 1

    @property
    def sensors(self) -> tuple[int, ...]:
        """Lidar rays and rows of history, where an observation is laid out as `pursuit/sensors.py` says; else empty."""
        return ()

    @property
    def truth_size(self) -> int:
        """How many numbers `truth` has for a slot."""
        return 0

    def truth(self) -> F32:
        """Return `[N, truth_size]` of the current observation: what no policy sees, but may be taught by."""
        return np.zeros((self.num_envs, 0), np.float32)

    @abstractmethod
    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begin a new episode in every game and return `(obs [N, ...], info)`.

        With an integer, the first episode of game g has the seed `seed + g`; with a sequence, one
        literal seed a game. Later episodes draw their seeds from these. Without a seed, the streams
        go on. Queued starts are used before seeds.
        """

    @abstractmethod
    def step_into(
        self,
        actions: Array,
        obs: Array,
        rewards: F64,
        terminations: Bools,
        truncations: Bools,
        mask: Bools,
    ) -> dict[str, Any]:
        """Step all slots once, write the five results into the given rows, return `info`."""

    @abstractmethod
    def get_state(self) -> State:
        """Return a copy of the whole state: simulator, counters, random positions, queued starts."""

    @abstractmethod
    def set_state(self, state: State) -> None:
        """Go on from `state`; the next `step` equals the next step of the world that returned it."""

    @abstractmethod
    def observe(self) -> tuple[Array, Bools]:
        """Return the current `(obs, mask)`: what the next action of each slot answers."""

    @abstractmethod
    def queue_starts(self, slots: Sequence[int], starts: Sequence[Start]) -> None:
        """Append `starts[k]` to what the next resets of the game of `slots[k]` begin from."""

    @abstractmethod
    def queued(self) -> list[int]:
        """Return how many starts wait in each game."""

    @abstractmethod
    def current_starts(self) -> list[Start]:
        """Return the start of the episode that each game plays now."""

    @abstractmethod
    def request_reset(self, slots: Sequence[int]) -> None:
        """Cut the games of these slots at their next step (truncated, then reset as usual)."""

    def set_value(self, name: str, value: float) -> None:
        """Set one of `value_names` from the next step (or reset) on."""
        raise self._unknown_value(name)

    def turn(self, values: Mapping[str, float]) -> None:
        """Set several values of a new world."""
        for name, value in values.items():
            self.set_value(name, value)

    def value(self, name: str) -> float:
        """Return what the simulator uses now for `name`."""
        raise self._unknown_value(name)

    def unset_value(self, name: str) -> None:
        """Let the option of this name hold again, as if `set_value` had never replaced it."""
        if name not in self.value_names or not hasattr(self.options, name):
            raise self._unknown_value(name)
        own = getattr(self.options, name)
        self.set_value(name, -1.0 if own is None else float(own))

    def set_clock(self, env_steps: int, ticks: bool = True) -> None:
        """Say how many env steps the run has made: what changes with them goes on from there.

        The world counts its own steps on top; without `ticks` the clock stands still, as in an evaluation.
        """

    def inherit(self, before: World) -> None:
        """Take over what was learned of the game in the world of the phase before, which may be closed."""

    def inherit_state(self, state: State) -> None:
        """Take over the same from the state of a world that differs in its number of games alone."""

    def override(self, slots: Sequence[int], script: str) -> int:
        """Let a script such as `RIGHT+B:180` choose the actions of these slots; return its frames."""
        raise ConfigError(f"This world takes no scripted actions, so not '{script}' either.")

    def scripted(self, name: str, role: str, games: Array | None = None) -> Array:
        """Return what the script `name` does now as `role` in `games` (all without), one action a game."""
        known = ", ".join(self.scripts) or "none"
        raise ConfigError(
            f"This world has no script '{name}'. It has: {known}.{nearest(name, self.scripts)}"
        )

    def step(self, actions: Array) -> tuple[Array, F64, Bools, Bools, dict[str, Any]]:
        """Step all slots once into fresh arrays, as Gymnasium does."""
        n = self.num_envs
        space = self.single_observation_space
        obs = np.empty((n, *(space.shape or ())), space.dtype)
        rewards = np.empty(n, np.float64)
        terminations, truncations = np.empty(n, np.bool_), np.empty(n, np.bool_)
        mask = np.empty(n, np.bool_)
        info = self.step_into(np.asarray(actions), obs, rewards, terminations, truncations, mask)
        info["mask"] = mask
        return obs, rewards, terminations, truncations, info

    def state_dict(self) -> dict[str, Any]:
        """Return `get_state()`: a world is Stateful."""
        return self.get_state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Call `set_state`."""
        self.set_state(state)

    def games_of(self, slots: Sequence[int]) -> list[int]:
        """Return the game of each slot."""
        return [int(slot) // self.slots_per_game for slot in slots]

    def game_seeds(self, seed: int | Sequence[int]) -> list[int]:
        """Return the seed of each game: `seed + g`, or those that were given, one a game or one a slot."""
        one = isinstance(seed, int | np.integer)
        given = [int(seed)] if isinstance(seed, int | np.integer) else [int(k) for k in seed]
        if len(given) == self.num_envs:
            given = given[:: self.slots_per_game]
        wrong = [k for k in given if not 0 <= k <= MASK_63]
        if wrong or not (one or len(given) == self.games):
            got = f"the seed {wrong[0]}" if wrong else f"{len(given)} seeds for {self.games} games"
            raise ConfigError(
                f"A world got {got}. Allowed: one whole number from 0 to 2^63 - 1, or one a game."
            )
        # Beyond 63 bits the count goes on from 0: a derived seed may lie at the upper end.
        return [(given[0] + g) & MASK_63 for g in range(self.games)] if one else given

    def _unknown_value(self, name: str) -> ConfigError:
        known = ", ".join(self.value_names) or "none"
        return ConfigError(
            f"This world has no value '{name}' that can be turned while it runs. "
            f"It has: {known}.{nearest(name, self.value_names)}"
        )
