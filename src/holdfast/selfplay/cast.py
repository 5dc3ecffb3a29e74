"""Who plays the slots that no learner plays: scripts, frozen policies, and past opponents.

With two learners and `history` above 0 the games fall into three parts, which stay the same for the whole run:

    both learners                     1 - history     of the games
    first role against its past foes      history / 2, and at least one game
    second role against its past foes     history / 2, and at least one game

In the games of both learners a past opponent can be a *guest* for an episode: `mix` says in which share of them one takes
the seat of a role. The learner of that seat learns nothing from it.

A past opponent is drawn when an episode begins and plays it to its end, with hands that tremble if the settings say so;
what it wins against the learner is counted, and not what it wins while a script plays for that. Scripts and frozen policies
play a role in every game. What a player remembers of its episode belongs to its seat, is saved
with the run, and is empty when the next episode begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from holdfast.errors import ConfigError
from holdfast.learn.policy import Policy
from holdfast.learn.restore import policy_of
from holdfast.learn.roles import RolePolicies
from holdfast.records import Array, Bools, Episode
from holdfast.rng import Streams
from holdfast.selfplay.lineups import Lineups, check_player
from holdfast.selfplay.opponents import LEARN, players
from holdfast.selfplay.options import SelfPlayConfig
from holdfast.selfplay.pool import Pool
from holdfast.selfplay.visitors import NOBODY, Slots, Visitors
from holdfast.worlds.contract import World

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
        self.roles = world.game_roles
        self.scripts = dict(scripts)
        self._frozen = {role: dict(state) for role, state in frozen.items()}
        for role, state in frozen.items():
            check_player(role, state, world)
        self._fixed = {role: Lineups([state]) for role, state in frozen.items()}
        learning = [r for r in self.roles if r not in self.scripts and r not in self._frozen]
        self._learning = list(dict.fromkeys(learning)) if config.enabled else []
        self.pools: dict[str, Pool] = {}
        if len(self.roles) == len(self._learning) == 2 and config.history > 0:
            if world.games < 2:
                raise ConfigError(
                    f"selfplay.history = {config.history:g}: with one game neither side has one for its past opponents. "
                    "Take more: --world.games 8, or leave them out: --selfplay.history 0"
                )
            self.pools = {r: make_pool(config) for r in self._learning}
        self._lineups: dict[str, tuple[list[int], Lineups]] = {}
        self._shares = dict.fromkeys(self.pools, 0.0)
        self._visitors: dict[str, Visitors] = {}
        """Frozen and past players of the slots that are no learner's."""
        self._guests: dict[str, Visitors] = {}
        """Past players of a learner's slots."""
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
            part = past_games(world.games, self.config.history)
            first, second = self.roles
            past[second] = slots[world.games - 2 * part : world.games - part, 1]
            past[first] = slots[world.games - part :, 0]
        self.seats = {r: np.setdiff1d(own[r], past[r]) for r in self._learning}
        given = {r: own[r] for r in own if r not in self._learning}
        self._parts = {**given, **{r: past[r] for r in self.pools}}
        self.slots = np.concatenate([none, *self._parts.values()])
        asked = world.observe()[1]
        self._unasked = {role for role in self._learning if not asked[own[role]].any()}
        """Learners who decide nothing in this world."""
        tremble = (self.config.tremble, self.config.tremble_steps)
        self._visitors = {
            role: Visitors(slots, 0) if role in self._fixed else Visitors(slots, NOBODY, tremble)
            for role, slots in self._parts.items()
            if role not in self.scripts
        }
        self._guests = {}
        self._lineups.clear()
        if self.pools:
            shared = slots[: world.games - 2 * part]
            self._guests = {
                r: Visitors(shared[:, k], NOBODY, tremble) for k, r in enumerate(self.roles)
            }
        for role, pool in self.pools.items():
            if pool.members:
                self._draw(role, np.arange(len(past[role])))

    def idle_history(self) -> str:
        """Return why nobody meets past opponents although `history` asks for some; mostly nothing."""
        share = self.config.history
        if not self.config.enabled or not share or any(map(len, self._parts.values())):
            return ""
        who = f"here {len(self._learning)} of {len(self.roles)} agents learn"
        return (
            f"selfplay.history = {share:g} does nothing: it takes games of two learners, and {who}."
        )

    def idle_tremble(self) -> str:
        """Return why nobody's hands tremble although the settings ask for it; mostly nothing."""
        if not self.config.enabled or not self.config.tremble or self.pools:
            return ""
        return (
            f"selfplay.tremble = {self.config.tremble:g} does nothing: only the hands of past opponents tremble, and there "
            "are none. Meet some with --selfplay.history 0.3 and two learners, or leave it out: --selfplay.tremble 0"
        )

    def remember(self, role: str, state: Mapping[str, Any], update: int) -> None:
        """Offer a policy to the pool of its role; the first one takes every seat of the pool."""
        if role not in self.pools:
            return
        pool = self.pools[role]
        # A policy that leaves the pool is kept while it still plays an episode.
        pool.add(state, f"{role}@{update}", update, self._playing(role))
        self._fill(role)

    def mix(self, role: str, share: float) -> float:
        """Let past opponents play a role in this share of the games of both learners, from their next episodes on."""
        if role not in self.pools:
            raise ConfigError(
                f"No past opponents are kept of the role '{role}'. It takes two learners and selfplay.history above 0."
            )
        self._shares[role] = share
        return share

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
        lineup = ([0], self._fixed[role]) if role in self._fixed else self._lineup(role)
        return self._visitors[role].act(rows, *lineup, rng)

    def stand_in(self, role: str, script: str, world: World) -> str:
        """Let a script play the slots of a learner from now on; an empty name ends it."""
        if script:
            world.scripted(script, role, self.seats[role][:0])  # refuses a script that is none
            self._stand_ins[role] = script
        else:
            self._stand_ins.pop(role, None)
        return script

    def overrule(self, world: World, obs: Array, actions: Array) -> None:
        """Replace the actions of learners for whom a script or a guest plays."""
        for role, script in self._stand_ins.items():
            slots = self.seats[role]
            actions[slots] = world.scripted(script, role, slots // len(self.roles))
        for role, guests in self._guests.items():
            slots = guests.taken
            if len(slots):
                rng = self.streams[STREAM]
                actions[slots] = guests.act(obs[slots], *self._lineup(role), rng)

    def hide(self, mask: Bools) -> None:
        """Leave what guests do out of learning."""
        for guests in self._guests.values():
            mask[guests.taken] = False

    def ended(self, episodes: Sequence[Episode]) -> None:
        """Count who won against past opponents, draw the next ones, and begin new episodes in their seats."""
        stride = len(self.roles)
        for role, visitors in self._visitors.items():
            over = visitors.ended(episodes, stride)
            if over and role in self.pools:
                self._count(role, visitors, over)
                self._draw(role, np.array(list(over)))
        full: set[int] = set()
        for role, guests in self._guests.items():
            over = guests.ended(episodes, stride)
            self._count(role, guests, over)
            free = [place for place, one in over.items() if one.game not in full]
            come = self._invite(role, np.array(list(over), np.int64), np.array(free, np.int64))
            full |= {over[int(place)].game for place in come}

    def _count(self, role: str, visitors: Visitors, over: Mapping[int, Episode]) -> None:
        """Put the episodes that came to their own end into the records of those who played them against the learner."""
        if self._idle - {role}:
            return
        for place, episode in over.items():
            member = int(visitors.who[place])
            if member != NOBODY and not episode.cut:
                score = int(won(episode, self.roles.index(role)))
                self.pools[role].result(member, score, 1)

    @property
    def _idle(self) -> set[str]:
        """Learners for whom a script plays, or the world."""
        return self._unasked | set(self._stand_ins)

    def _draw(self, role: str, places: Array) -> None:
        pool = self.pools[role]
        self._visitors[role].who[places] = pool.draw(len(places), self.streams[STREAM])
        self._changed(role)

    def _fill(self, role: str) -> None:
        """Give every seat of the pool to somebody."""
        places = np.flatnonzero(self._visitors[role].who == NOBODY)
        if self.pools[role].members and len(places):
            self._draw(role, places)

    def _invite(self, role: str, left: Slots, free: Slots) -> Slots:
        """Let the guests go whose episodes ended at the places `left`; return those of `free` where new ones sit."""
        guests, pool, share = self._guests[role], self.pools[role], self._shares[role]
        come: Slots = free[:0]
        before = guests.who[left]
        guests.who[left] = NOBODY
        if share > 0 and pool.members and len(free):
            rng = self.streams[STREAM]
            come = free[rng.random(len(free)) < share]
            guests.who[come] = pool.draw(len(come), rng)
        if not np.array_equal(before, guests.who[left]):
            self._changed(role)
        return come

    def _playing(self, role: str) -> set[int]:
        return self._visitors[role].players | self._guests[role].players

    def _changed(self, role: str) -> None:
        self.pools[role].release(self._playing(role))
        self._lineups.pop(role, None)

    def _lineup(self, role: str) -> tuple[list[int], Lineups]:
        if role not in self._lineups:
            ids = sorted(self._playing(role))
            members = [self.pools[role].member(i).state for i in ids]
            self._lineups[role] = (ids, Lineups(members))
        return self._lineups[role]

    def signals(self) -> dict[str, Any]:
        """Return the state of the pools as signals."""
        found: dict[str, Any] = {}
        for role, pool in self.pools.items():
            found[f"selfplay/{role}_pool"] = len(pool.members)
            taken = len(self._visitors[role].taken) + len(self._guests[role].taken)
            found[f"selfplay/{role}_past"] = taken / self._games
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return the pools, who plays where, and what they remember."""
        return {
            "pools": {
                role: {"pool": pool.state_dict(), "who": self._visitors[role].who.copy()}
                for role, pool in self.pools.items()
            },
            "carried": {role: one.memories() for role, one in self._visitors.items()},
            "guests": {
                role: {"who": one.who.copy(), **one.memories()}
                for role, one in self._guests.items()
            },
            "shares": dict(self._shares),
            "stand_ins": dict(self._stand_ins),
            "games": self._games,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with these pools and players; where the world begins anew, so do all who remember."""
        self._lineups.clear()
        self._stand_ins = dict(state["stand_ins"])
        same = self._restores and state.get("games") == self._games
        for role, visitors in self._visitors.items():
            carried = state.get("carried", {}).get(role)
            visitors.remember(carried if same else None)
        for role, pool in self.pools.items():
            pool.load_state_dict(state["pools"][role]["pool"])
            self._visitors[role].who = np.array(state["pools"][role]["who"], np.int64)
            self._shares[role] = state.get("shares", {}).get(role, 0.0)
            # Guests leave when the world begins anew; runs that were begun before there were any have none.
            guests = state.get("guests", {}).get(role) if same else None
            if guests is not None:
                self._guests[role].who = np.array(guests["who"], np.int64)
                self._guests[role].remember(guests)
            self._fill(role)


def past_games(games: int, history: float) -> int:
    """Return in how many of the games each of two learners meets its past foes."""
    return min(max(1, round(games * history / 2)), games // 2)


def learned_slots(config: SelfPlayConfig, roles: Sequence[str], games: int) -> int:
    """Return how many slots learners play in so many games; `roles` are those of the slots of one."""
    if not config.enabled:
        return games * len(roles)
    who = players(config, roles)
    learning = [role for role in roles if who[role] == LEARN]
    slots = games * len(learning)
    if len(roles) == len(set(learning)) == 2 and config.history > 0:
        slots -= 2 * past_games(games, config.history)
    return slots


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
