"""Any Gymnasium environment, or any PettingZoo parallel environment, as a world.

    holdfast train CartPole-v1
    holdfast train my_module:make_env          # a function that returns an environment

A Gymnasium environment is a game with one slot; a PettingZoo parallel environment is a game with one
slot an agent, masked while the agent is out. Every value that comes in is checked: a NaN, a wrong shape
or a wrong type is reported with the game, its seed and its step. Foreign environments cannot save their
state, so a resumed run goes on from fresh episodes; the run says so once.

| mode    | games run in            | a game that raises          | a game that hangs or kills its process   |
|---------|-------------------------|-----------------------------|------------------------------------------|
| serial  | the calling thread      | is made anew                | hangs (reported) or kills the run        |
| threads | threads of this process | is made anew                | stops the run, or kills it               |
| process | worker processes        | its worker is replaced      | its worker is replaced                   |

All modes play the same code on the same arrays (`pool_player.py`), so a deterministic environment gives
the same results in each. What a replaced game was playing counts as truncated, its last seen
observation as the final one, and its next episode has the next seed, as after any end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from holdfast.errors import ConfigError
from holdfast.records import F64, Array, Bools, Episode, Start
from holdfast.rng import MASK_63, derive_seed
from holdfast.worlds.contract import State, World
from holdfast.worlds.events import Events, Record
from holdfast.worlds.pool_faults import Fault, Ledger
from holdfast.worlds.pool_games import Game, GymnasiumGame, ParallelGame, is_bytes, make_game
from holdfast.worlds.pool_modes import choose_mode, make_backend
from holdfast.worlds.pool_options import Backend, ForeignOptions, Mode
from holdfast.worlds.queues import StartQueues

__all__ = [
    "ForeignOptions",
    "ForeignWorld",
    "Game",
    "GymnasiumGame",
    "ParallelGame",
    "make_game",
]

TIMED_EVERY = 8
"""Every so many steps one is timed."""


class ForeignWorld(World):
    """Foreign environments, stepped in one of three ways."""

    saves_state = False

    def __init__(
        self,
        name: str,
        options: ForeignOptions | None = None,
        *,
        seed: int = 0,
        record: Record | None = None,
    ) -> None:
        """Construct the games; `record` says where events and fault reports go."""
        self.name, self.options = name, options or ForeignOptions()
        make = make_game(name, self.options.kwargs)
        self.mode: Mode = choose_mode(name, self.options, make)
        self.events = Events(name, self.mode, record)
        self.ledger = Ledger(name, self.options.max_restarts, self.events)
        began = time.monotonic()
        self._backend: Backend = make_backend(
            name, self.options, self.mode, make, self.ledger, self.events
        )
        try:
            self._set_up(seed)
        except BaseException:
            self._backend.close()
            raise
        self.ready_s = time.monotonic() - began
        self.events.ready(self.ready_s, self._backend.post.construct_s)

    def _set_up(self, seed: int) -> None:
        spec = self._backend.spec
        space = _float_box(spec.observation_space)
        self.ledger.contract = str(space)
        super().__init__(
            games=self.options.games,
            slots_per_game=len(spec.roles),
            roles=spec.roles,
            observation_space=space,
            action_space=spec.action_space,
        )
        self._board = self._backend.board
        self._board.mask[:] = True
        self._returns = np.zeros(self.num_envs, np.float64)
        self._episodes = np.zeros(self.games, np.int64)
        self._seeds = self.game_seeds(seed)
        self._starts = StartQueues(self.games)
        self._in_turn = -(-self.games // len(self._backend.post.phase))
        self.truths: set[str] = set()
        """Facts that the environment told as true or false: their mean is a share."""
        self.steps_made = 0
        """Steps of the whole world so far; a watcher reads it."""

    def health(self) -> dict[str, float]:
        """Return construction and reset times, restarts, and the workers that are alive."""
        post = self._backend.post
        return {
            "pool/construct_total_s": float(post.construct_s.sum()),
            "pool/construct_max_s": float(post.construct_s.max()),
            "pool/reset_total_s": float(post.reset_s.sum()),
            "pool/reset_max_s": float(post.reset_s.max()),
            "pool/restarts": float(self.ledger.total),
            "pool/workers": float(len(self.pids())),
            **{f"pool/restarts_{p}": float(n) for p, n in sorted(self.ledger.by_phase.items())},
        }

    def stacks(self) -> Mapping[str, str]:
        """Return the Python stacks of the worker processes, as they are now."""
        return self._backend.stacks()

    def pids(self) -> list[int]:
        """Return the worker processes (none in the modes serial and threads)."""
        return self._backend.pids()

    def exitcodes(self) -> list[int | None]:
        """Return how every worker process so far has ended (negative: by which signal)."""
        lost = [fault.exitcode for fault in self.ledger.faults if fault.exitcode is not None]
        return [*lost, *getattr(self._backend, "exitcodes", [])]

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        if seed is not None:
            self._seeds = self.game_seeds(seed)
            self._episodes[:] = 0
        for g in range(self.games):
            self.events.begin(g, "reset")
        self._begin(range(self.games))
        for g in range(self.games):
            self.events.ok(g, "reset", float(self._backend.post.reset_s[g]))
        return self._board.obs.copy(), {"mask": self._board.mask.copy()}

    def step_into(
        self,
        actions: Array,
        obs: Array,
        rewards: F64,
        terminations: Bools,
        truncations: Bools,
        mask: Bools,
    ) -> dict[str, Any]:
        board = self._board
        board.actions[...] = actions
        board.side[0] = 1 - board.side[0]
        was_active = board.mask.copy()
        began = time.monotonic() if self.steps_made % TIMED_EVERY == 0 else 0.0
        faults = self._backend.step()
        self.steps_made += 1
        if began:
            self.events.usual.add((time.monotonic() - began) / self._in_turn)
        for fault in faults:
            for g in fault.games:
                self._cut_short(g, was_active)
        rewards[...] = board.rewards
        terminations[...] = board.terminations
        truncations[...] = board.truncations
        self._returns += board.rewards
        info: dict[str, Any] = {}
        if board.ended.any():
            info = self._finish(faults)
        obs[...], mask[...] = board.obs, board.mask
        return info

    def observe(self) -> tuple[Array, Bools]:
        return self._board.obs.copy(), self._board.mask.copy()

    def get_state(self) -> State:
        """Return the seed counters only: a foreign environment keeps its state to itself."""
        return {
            "episodes": self._episodes.copy(),
            "seeds": np.array(self._seeds, np.int64),
            "queues": self._starts.state()["queues"],
        }

    def set_state(self, state: State) -> None:
        """Go on with new episodes after the recorded counters."""
        self._episodes = state["episodes"].copy()
        self._seeds = [int(s) for s in state["seeds"]]
        self._starts.load({"queues": state["queues"]})
        self._begin(range(self.games))

    def queue_starts(self, slots: Sequence[int], starts: Sequence[Start]) -> None:
        for g, start in zip(self.games_of(slots), starts, strict=True):
            if start.seed is None:
                raise ConfigError(f"{self.name} cannot begin from a snapshot, only from a seed.")
            self._starts.add([g], [start])
            self._announce(g)

    def queued(self) -> list[int]:
        return self._starts.waiting()

    def current_starts(self) -> list[Start]:
        return list(self._starts.running)

    def request_reset(self, slots: Sequence[int]) -> None:
        self._board.cut[self.games_of(slots)] = True

    def close_extras(self, **_: Any) -> None:
        self.events.begin(-1, "close")
        self._backend.close()
        self.events.ok(-1, "close")
        self.events.close()

    def _seed(self, g: int) -> int:
        """Return the seed of a game's next episode, unless a start waits."""
        episode = int(self._episodes[g])
        return self._seeds[g] if episode == 0 else derive_seed(self._seeds[g], episode)

    def _announce(self, g: int) -> None:
        """Tell the player the seed of the next episode before it needs it."""
        seed = self._starts.next(g, self._seed(g)).seed
        assert seed is not None
        self._board.seeds[g] = seed & MASK_63

    def _take(self, g: int) -> None:
        """Count the next episode as begun."""
        self._starts.take(g, self._seed(g))
        self._episodes[g] += 1
        slots = self._board.slots(g)
        self._returns[slots] = 0.0
        self._board.cut[g] = False

    def _begin(self, games: Sequence[int]) -> None:
        """Begin an episode in these games; those that fail in it go on to the seed after."""
        while games:
            for g in games:
                self._announce(g)
                self._take(g)
            faults = self._backend.reset(games)
            games = sorted({g for fault in faults for g in fault.games})
        for g in range(self.games):
            self._announce(g)

    def _cut_short(self, g: int, was_active: Bools) -> None:
        """Count the episode of a game that was replaced as truncated."""
        board, slots = self._board, self._board.slots(g)
        if not board.ended[g]:
            board.facts[g] = math.nan
        if board.stage[g] == 0:
            # Nothing of this step holds: the last observation is the one before it.
            board.obs[slots] = board.seen[slots]
            board.rewards[slots] = 0.0
            board.terminations[slots] = False
            board.truncations[slots] = was_active[slots]
            board.lengths[g] = max(int(board.steps[g]) - 1, 0)
            board.final[slots] = board.obs[slots]
        elif not board.ended[g]:
            board.truncations[slots] |= board.mask[slots]
            board.lengths[g] = board.steps[g]
            board.final[slots] = board.obs[slots]
        board.ended[g] = True

    def _finish(self, faults: Sequence[Fault]) -> dict[str, Any]:
        """Record the episodes that ended, begin those that no player has begun."""
        board = self._board
        lost = {g: fault for fault in faults for g in fault.games}
        final_obs = np.zeros_like(board.final)
        final = np.zeros(self.num_envs, np.bool_)
        episodes = []
        for g in map(int, np.flatnonzero(board.ended)):
            slots = board.slots(g)
            final_obs[slots], final[slots] = board.final[slots], True
            terminated = bool(board.terminations[slots].any())
            told = zip(self.options.facts, board.facts[g].tolist(), strict=True)
            self.truths |= {
                n for n, t in zip(self.options.facts, board.truths[g], strict=True) if t
            }
            episodes.append(
                Episode(
                    game=g,
                    start=self._starts.running[g],
                    steps=int(board.lengths[g]),
                    returns=self._returns[slots].copy(),
                    ended="terminated" if terminated else "truncated",
                    facts={name: value for name, value in told if not math.isnan(value)},
                    detail={"fault": str(lost[g])} if g in lost else {},
                    cut=not terminated and (g in lost or bool(board.cut[g])),
                )
            )
            if g not in lost:
                self._take(g)
                self._announce(g)
        for fault in faults:
            if fault.phase == "reset" and board.stage[fault.game] == 1:
                self._take(fault.game)  # that seed was tried
        if lost:
            self._begin(sorted(lost))
        return {"final_obs": final_obs, "_final_obs": final, "episodes": episodes}


def _float_box(space: gym.Space[Any]) -> gym.Space[Any]:
    if not isinstance(space, gym.spaces.Box):
        raise ConfigError(
            f"The observation space {space} is not supported. Allowed: Box, or what "
            "gymnasium.spaces.flatten_space turns into a Box."
        )
    if is_bytes(space):
        return space
    low, high = space.low.astype(np.float32), space.high.astype(np.float32)
    return gym.spaces.Box(low, high, dtype=np.float32)
