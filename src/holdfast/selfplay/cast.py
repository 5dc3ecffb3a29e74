"""Who plays the slots that no learner plays: scripts, frozen policies, and past opponents.

With two learners and `history` above 0 the games fall into three parts:

    both learners                     1 - history     of the games
    first role against its past foes      history / 2
    second role against its past foes     history / 2

The parts stay the same for the whole run. A past opponent is drawn when an episode begins and plays it to its
end; scripts and frozen policies play a role in every game. What a player remembers of its episode belongs to its
seat, is saved with the run, and is empty when the next episode begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.learn.policy import Policy
from holdfast.learn.restore import policy_of
from holdfast.learn.roles import RolePolicies
from holdfast.records import F32, Array, Bools, Episode
from holdfast.rng import Streams
from holdfast.selfplay.lineups import Lineups, check_player
from holdfast.selfplay.options import SelfPlayConfig
from holdfast.selfplay.pool import Pool
from holdfast.worlds.contract import World

Slots = npt.NDArray[np.int64]
STREAM = "selfplay/opponents"


class Cast:
    """The players of a run that do not learn."""

    def __init__(
        self,
        config: SelfPlayConfig,
        world: World,
        streams: Streams,
        scripts: Mapping[str, str],
        frozen: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """Lay out the games; `scripts` and `frozen` give the players of roles that do not learn."""
        self.config, self.streams = config, streams
        self.roles = tuple(world.roles[: world.slots_per_game])
        self.scripts = dict(scripts)
        self._frozen = {role: dict(state) for role, state in frozen.items()}
        for role, state in frozen.items():
            check_player(role, state, world)
        self._fixed = {role: Lineups([state]) for role, state in frozen.items()}
        learning = [r for r in self.roles if r not in self.scripts and r not in self._frozen]
        self._learning = list(dict.fromkeys(learning)) if config.enabled else []
        self.pools: dict[str, Pool] = {}
        if len(self.roles) == len(self._learning) == 2 and config.history > 0:
            self.pools = {r: make_pool(config) for r in self._learning}
        self._who: dict[str, Slots] = {}
        self._lineups: dict[str, tuple[list[int], Lineups]] = {}
        self._memory: dict[str, F32] = {}
        self._begun: dict[str, Bools] = {}
        self._stand_ins: dict[str, str] = {}
        self.fit(world)

    def fit(self, world: World) -> None:
        """Lay out the games of a world; in a new one, past opponents are drawn anew."""
        none = np.zeros(0, np.int64)
        self._games, self._restores = world.games, world.saves_state
        if not self.config.enabled:
            self.seats: dict[str, Slots] = {"": np.arange(world.num_envs)}
            """Slots of each learner."""
            self._parts: dict[str, Slots] = {}
            self.slots: Slots = none
            return
        slots = np.arange(world.num_envs).reshape(world.games, len(self.roles))
        own = {
            role: slots[:, [k for k, r in enumerate(self.roles) if r == role]].ravel()
            for role in dict.fromkeys(self.roles)
        }
        past = dict.fromkeys(own, none)
        if self.pools:
            part = round(world.games * self.config.history / 2)
            first, second = self.roles
            past[second] = slots[world.games - 2 * part : world.games - part, 1]
            past[first] = slots[world.games - part :, 0]
        self.seats = {r: np.setdiff1d(own[r], past[r]) for r in self._learning}
        given = {r: own[r] for r in own if r not in self._learning}
        self._parts = {**given, **{r: past[r] for r in self.pools}}
        self.slots = np.concatenate([none, *self._parts.values()])
        remember = {r: slots for r, slots in self._parts.items() if r not in self.scripts}
        self._memory = {r: np.zeros((len(slots), 0), np.float32) for r, slots in remember.items()}
        self._begun = {r: np.ones(len(slots), np.bool_) for r, slots in remember.items()}
        for role, pool in self.pools.items():
            self._who[role] = np.full(len(past[role]), -1)
            if pool.members:
                self._draw(role, np.arange(len(past[role])))

    def remember(self, role: str, state: Mapping[str, Any], update: int) -> None:
        """Offer a policy to the pool of its role; the first one takes every seat of the pool."""
        if role not in self.pools:
            return
        pool = self.pools[role]
        # A policy that leaves the pool is kept while it still plays an episode.
        pool.add(state, f"{role}@{update}", update, set(self._who[role].tolist()))
        if (self._who[role] < 0).any():
            self._draw(role, np.flatnonzero(self._who[role] < 0))

    def complete(self, policy: Policy | RolePolicies) -> Policy | RolePolicies:
        """Return the learners' policy with the frozen players beside it; scripts are the world's."""
        if not isinstance(policy, RolePolicies) or not self._frozen:
            return policy
        frozen = {role: policy_of(state) for role, state in self._frozen.items()}
        return RolePolicies(policy.roles, {**policy.policies, **frozen})

    def act(self, world: World, obs: Array) -> Array:
        """Return the world's actions for the rows of `slots`."""
        rng = self.streams[STREAM]
        found, first = [], 0
        for role, slots in self._parts.items():
            rows = obs[first : first + len(slots)]
            first += len(slots)
            if role in self.scripts:
                found.append(np.asarray(world.scripted(self.scripts[role], role)))
            elif len(slots):
                found.append(self._play(role, rows, rng))
        return np.concatenate(found)

    def _play(self, role: str, rows: Array, rng: np.random.Generator) -> Array:
        """Return what the frozen players of a role do, who remember it."""
        if role in self._fixed:
            lineups, who = self._fixed[role], np.zeros(len(rows), np.int64)
        else:
            ids, lineups = self._lineup(role)
            who = np.searchsorted(ids, self._who[role])
        missing = lineups.memory_floats - self._memory[role].shape[1]
        if missing > 0:
            self._memory[role] = np.pad(self._memory[role], ((0, 0), (0, missing)))
        actions = lineups.act(rows, who, self._memory[role], self._begun[role], rng)
        self._begun[role][:] = False
        return actions

    def stand_in(self, role: str, script: str, world: World) -> str:
        """Let a script play the slots of a learner from now on; an empty name ends it."""
        if script:
            world.scripted(script, role, self.seats[role][:0])  # refuses a script that is none
            self._stand_ins[role] = script
        else:
            self._stand_ins.pop(role, None)
        return script

    def overrule(self, world: World, actions: Array) -> None:
        """Replace the actions of learners for whom a script stands in."""
        for role, script in self._stand_ins.items():
            slots = self.seats[role]
            actions[slots] = world.scripted(script, role, slots // len(self.roles))

    def ended(self, episodes: Sequence[Episode]) -> None:
        """Count who won against past opponents, draw the next ones, and begin new episodes in their seats."""
        stride = len(self.roles)
        over = [episode.game for episode in episodes]
        for role, begun in self._begun.items():
            begun |= np.isin(self._parts[role] // stride, over)
        for role, slots in self._parts.items():
            if role not in self.pools:
                continue
            k = self.roles.index(role)
            places = {int(slot) // stride: i for i, slot in enumerate(slots)}
            free = []
            for episode in episodes:
                if episode.game in places:
                    place = places[episode.game]
                    member = int(self._who[role][place])
                    self.pools[role].result(member, int(won(episode, k)), 1)
                    free.append(place)
            if free:
                self._draw(role, np.array(free))

    def _draw(self, role: str, places: Array) -> None:
        pool = self.pools[role]
        self._who[role][places] = pool.draw(len(places), self.streams[STREAM])
        pool.release(set(self._who[role].tolist()))
        self._lineups.pop(role, None)

    def _lineup(self, role: str) -> tuple[list[int], Lineups]:
        if role not in self._lineups:
            ids = [int(i) for i in np.unique(self._who[role])]
            members = [self.pools[role].member(i).state for i in ids]
            self._lineups[role] = (ids, Lineups(members))
        return self._lineups[role]

    def signals(self) -> dict[str, Any]:
        """Return the state of the pools as signals."""
        found: dict[str, Any] = {}
        for role, pool in self.pools.items():
            found[f"selfplay/{role}_pool"] = len(pool.members)
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return the pools, who plays where, and what they remember."""
        pools = {
            role: {"pool": pool.state_dict(), "who": self._who[role].copy()}
            for role, pool in self.pools.items()
        }
        carried = {
            role: {"memory": self._memory[role].copy(), "begun": begun.copy()}
            for role, begun in self._begun.items()
        }
        return {
            "pools": pools,
            "stand_ins": dict(self._stand_ins),
            "games": self._games,
            "carried": carried,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with these pools and players; where the world begins anew, so do all who remember."""
        self._lineups.clear()
        self._stand_ins = dict(state["stand_ins"])
        for role, pool in self.pools.items():
            kept = state["pools"][role]
            pool.load_state_dict(kept["pool"])
            self._who[role] = np.array(kept["who"], np.int64)
            if pool.members and (self._who[role] < 0).any():
                self._draw(role, np.flatnonzero(self._who[role] < 0))
        same = self._restores and state.get("games") == self._games
        for role, begun in self._begun.items():
            kept = state.get("carried", {}).get(role)
            begun[:] = True
            if same and kept is not None:
                begun[:] = kept["begun"]
                self._memory[role] = np.array(kept["memory"], np.float32)


def make_pool(config: SelfPlayConfig) -> Pool:
    """Return an empty pool by the settings of `[selfplay]`."""
    return Pool(
        config.pool,
        config.pool_size,
        weighting=config.pool_weighting,
        estimate=config.pool_estimate,
        memory=config.pool_memory,
        floor=config.pool_floor,
        seed=config.pool_seed,
    )


def won(episode: Episode, k: int) -> bool:
    """Return whether the k-th role of the game won: by capture or escape, else by the higher return."""
    if "captured" in episode.facts:
        return bool(episode.facts["captured"]) == (k == 0)
    return bool(episode.returns[k] > np.delete(episode.returns, k).max())


def policy_state(learner_state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a learner's state that plays: spec, parameters, normalisation."""
    return {name: learner_state[name] for name in ("spec", "parameters", "norm")}
