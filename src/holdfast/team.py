"""The learners of a run: one for all slots, or one a role, and which of them learn now."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from holdfast.collect import Seat
from holdfast.config import Config
from holdfast.errors import ConfigError, nearest
from holdfast.learn.ewc import check_covered, penalty
from holdfast.learn.learner import Learner, make_learner
from holdfast.learn.options import check_samples
from holdfast.learn.policy import Policy
from holdfast.learn.rnd import Novelty
from holdfast.learn.roles import RolePolicies
from holdfast.learn.spec import spec_from
from holdfast.records import F32, Rollout, is_picture
from holdfast.rng import Streams
from holdfast.selfplay.check import check_sides
from holdfast.selfplay.opponents import LEARN, players
from holdfast.state import Stateful
from holdfast.worlds.contract import World

ALL = ""
"""The role of a learner that plays every slot."""


class Team:
    """Learners by role. What is asked of no role in particular is asked of all of them."""

    def __init__(
        self,
        learners: dict[str, Learner],
        roles: Sequence[str] = (),
        novelties: Mapping[str, Novelty] | None = None,
    ) -> None:
        """Take the learners; `roles` names the slots of one game, `novelties` pay some of them for the new."""
        self.learners, self.roles = learners, tuple(roles)
        self.novelties = dict(novelties or {})
        self.training = tuple(learners)
        """Roles that learn from the coming rollouts; the others play on unchanged."""
        self._last_good: dict[str, dict[str, Any]] = {}
        self._last_known: dict[str, dict[str, Any]] = {}
        """What each novelty was before the last `learn`."""

    @property
    def parts(self) -> dict[str, Stateful]:
        """What is saved, by its names in a checkpoint."""
        return {
            "team": self,
            **{part_name(role): learner for role, learner in self.learners.items()},
            **{part_name(role, "novelty"): one for role, one in self.novelties.items()},
            **{
                part_name(role, "replay"): learner.replay
                for role, learner in self.learners.items()
                if learner.replay is not None
            },
        }

    @property
    def device(self) -> str:
        """Where the learners compute."""
        return str(next(iter(self.learners.values())).device)

    @property
    def threads(self) -> int:
        """Threads of each learner."""
        return next(iter(self.learners.values())).threads

    def pick(self, role: str) -> dict[str, Learner]:
        """Return the learner of a role, or all of them for the empty role."""
        if role == ALL or list(self.learners) == [ALL]:
            return self.learners
        if role not in self.learners:
            raise ConfigError(
                f"No learner plays the role '{role}'. Learners: {', '.join(self.learners)}."
                f"{nearest(role, list(self.learners))}"
            )
        return {role: self.learners[role]}

    def configure(self, config: Any) -> None:
        """Use the settings of a phase."""
        for learner in self.learners.values():
            learner.configure(config)

    def set_value(self, name: str, value: float, role: str = ALL) -> float:
        """Set a value of one role or of all; return what was read back."""
        read = value
        for learner in self.pick(role).values():
            learner.set_value(name, value)
            read = learner.value(name)
        return read

    def train(self, roles: Sequence[str]) -> tuple[str, ...]:
        """Let these roles learn from now on."""
        chosen = {name for role in roles for name in self.pick(role)}
        self.training = tuple(name for name in self.learners if name in chosen)
        return self.training

    def learn(self, seats: Sequence[Seat]) -> dict[str, float]:
        """Update those that train; return `train/...` signals and how many numbers were not finite."""
        self._last_good = {role: self.learners[role].state_dict() for role in self.training}
        paid = [role for role in self.training if role in self.novelties]
        self._last_known = {role: self.novelties[role].state_dict() for role in paid}
        signals: dict[str, float] = {}
        bad = 0
        for (role, learner), seat in zip(self.learners.items(), seats, strict=True):
            if role not in self.training:
                learner.rest()
                continue
            metrics = {"reward_mean": float(seat.rollout.rewards.mean())}
            metrics.update(self._explore(role, seat.rollout))
            metrics.update(learner.update(seat.rollout))
            if learner.anchor is not None:
                metrics["ewc_penalty"] = penalty(learner)
            bad += sum(not math.isfinite(value) for value in metrics.values())
            bad += sum(int((~np.isfinite(p)).sum()) for p in learner.parameters().values())
            prefix = f"train/{role}/" if role else "train/"
            signals.update({prefix + name: value for name, value in metrics.items()})
        signals["health/nonfinite"] = bad
        return signals

    def _explore(self, role: str, rollout: Rollout) -> dict[str, float]:
        """Add what new states are worth to the rewards, and get used to them."""
        novelty = self.novelties.get(role)
        if novelty is None:
            return {}
        bonus = novelty.bonus(rollout)
        rollout.rewards += bonus
        return {"novelty_bonus": float(bonus.mean()), **novelty.learn(rollout)}

    def undo(self) -> None:
        """Go back to before the last `learn`, but keep the settings."""
        for role, state in self._last_good.items():
            restore(self.learners[role], state)
        for role, state in self._last_known.items():
            self.novelties[role].load_state_dict(state)

    def policy(self) -> Policy | RolePolicies:
        """Return frozen copies of what the learners play now."""
        if list(self.learners) == [ALL]:
            return self.learners[ALL].policy()
        return RolePolicies(self.roles, {r: x.policy() for r, x in self.learners.items()})

    def parameters(self) -> dict[str, F32]:
        """Return all parameters by role and name."""
        return {
            f"{role}:{name}": value
            for role, learner in self.learners.items()
            for name, value in learner.parameters().items()
        }

    def parameter_hash(self) -> str:
        """Return a short hash of all parameters: two runs that agree here took the same steps."""
        digest = hashlib.blake2b(digest_size=8)
        for name, value in sorted(self.parameters().items()):
            digest.update(name.encode())
            digest.update(value.tobytes())
        return digest.hexdigest()

    def state_dict(self) -> dict[str, Any]:
        """Return who trains, and whose the slots of a game are; the learners are saved as parts of their own."""
        return {"training": list(self.training), "roles": list(self.roles)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let those train who did."""
        self.training = tuple(state["training"])


def part_name(role: str, kind: str = "learner") -> str:
    """Return the name of a role's part in a checkpoint."""
    return f"{kind}.{role}" if role else kind


def restore(learner: Learner, state: dict[str, Any]) -> None:
    """Put a learner back to `state`, but keep the settings that schedules and guards have made."""
    settings = dict(learner.settings)
    learner.load_state_dict(state)
    learner.settings = settings


def make_team(config: Config, world: World, streams: Streams) -> Team:
    """Return the learners that the config asks for."""
    roles = world.game_roles
    check_sides(config.selfplay, config.guards, config.world.options, config.novelty, roles)
    spec = spec_from(
        config.learner,
        world.single_observation_space,
        world.single_action_space,
        world.frame_stack,
        world.sensors,
        world.truth_size,
    )
    guards = (config.guards.balance, config.guards.protocol)
    if any(guard.enabled and guard.protect > 0 for guard in guards):
        check_covered(spec)
    if config.selfplay.enabled:
        chosen = players(config.selfplay, roles)
        check_samples(config.learner, world.num_envs // len(set(roles)))
        learners = {
            role: make_learner(spec, config.learner, streams, world.games, role)
            for role, player in chosen.items()
            if player == LEARN
        }
        if not learners:
            raise ConfigError(
                "No role learns. Set selfplay.pursuer or selfplay.evader to 'learn', or turn selfplay.enabled off."
            )
    else:
        check_samples(config.learner, world.num_envs)
        learners = {ALL: make_learner(spec, config.learner, streams, world.num_envs)}
    novelties = {}
    if config.novelty.weight or config.novelty.last_weight:
        shape = world.single_observation_space.shape or ()
        size = shape if is_picture(shape) else spec.obs_size
        wanted = config.selfplay.novelty_roles or tuple(learners)
        novelties = {
            role: Novelty(size, config.novelty, streams, part_name(role, "novelty"))
            for role in learners
            if role in wanted
        }
    return Team(learners, roles, novelties)
