"""The plan of a run: which settings hold for which updates.

A run has one phase, or the phases that the config lists: `[[phase]]` tables, or the short form
`plan.curriculum = "15:9,20:10,25:9"`, which sets one world option (`plan.option`) for so many updates each.
A run whose length is not said is as long as its phases; `run.updates` cuts it short, or lets the last phase go on.
A phase may change the world's options and the learner's settings, but not the shape of the network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from holdfast.errors import ConfigError
from holdfast.learn.options import LearnerConfig
from holdfast.tables import overlay

if TYPE_CHECKING:
    from holdfast.config import Config

SHAPE = (
    *("kind", "hidden", "activation", "shared", "normalise_obs", "normalise_rewards", "threads"),
    *("net", "memory", "memory_size", "memory_window", "memory_layers", "noisy", "optimiser"),
    *("compile", "bfloat16", "replay", "encoder", "belief", "sac", "log_std", "accumulate"),
    "device",
)
"""Learner settings that stay as they are for the whole run."""


@dataclass(frozen=True)
class PhaseConfig:
    """One `[[phase]]` table."""

    name: str = ""
    """Name of the phase in records and plots."""
    updates: Annotated[int, Meta(ge=1)] = 1
    """Updates that it lasts."""
    world: dict[str, Any] = field(default_factory=dict)
    """World options that differ in this phase."""
    learner: dict[str, Any] = field(default_factory=dict)
    """Learner settings that differ in this phase."""


@dataclass(frozen=True)
class PlanConfig:
    """The short form of a curriculum."""

    curriculum: str = ""
    """Phases as `value:updates,...`, for example `15:9,20:10,25:9`; the last goes on until `run.updates`, if that is said."""
    option: str = "fish"
    """World option that the curriculum sets."""


@dataclass(frozen=True)
class Phase:
    """A stretch of updates under one setting."""

    index: int
    """From 1."""
    name: str
    first: int
    """First update, from 1."""
    last: int
    options: Any
    learner: LearnerConfig


def parse_curriculum(text: str, option: str) -> tuple[PhaseConfig, ...]:
    """Read `15:9,20:10` into phases."""
    phases = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        value, colon, updates = item.partition(":")
        if not colon or not updates.strip().isdigit() or int(updates) < 1:
            raise ConfigError(
                f"plan.curriculum: '{item}' is not a phase. Write 'value:updates' joined by commas, for "
                "example '15:9,20:10,25:9'."
            )
        phases.append(
            PhaseConfig(f"{option}={value.strip()}", int(updates), {option: value.strip()})
        )
    return tuple(phases)


class Plan:
    """The phases of a run in order."""

    def __init__(
        self,
        phases: tuple[PhaseConfig, ...],
        short: PlanConfig,
        updates: int,
        options: Any,
        learner: LearnerConfig,
    ) -> None:
        if phases and short.curriculum:
            raise ConfigError("Give either [[phase]] tables or plan.curriculum, not both.")
        listed = phases or parse_curriculum(short.curriculum, short.option)
        listed = listed or (PhaseConfig("main", updates),)
        self.updates = updates
        """Updates of the whole run: phases beyond them are not reached, and the last one holds until then."""
        self.phases: list[Phase] = []
        first = 1
        for index, phase in enumerate(listed, 1):
            if first > updates:
                break
            last = min(first + phase.updates - 1, updates)
            self.phases.append(
                Phase(
                    index=index,
                    name=phase.name or f"phase{index}",
                    first=first,
                    last=updates if index == len(listed) else last,
                    options=overlay(options, phase.world, f"phase {index} world"),
                    learner=_learner(learner, phase.learner, f"phase {index} learner"),
                )
            )
            first += phase.updates

    def phase(self, update: int) -> Phase:
        """Return the phase of an update (from 1); the last one holds for all that follow."""
        return next((p for p in self.phases if update <= p.last), self.phases[-1])

    def updates_for(self, env_steps: int, slots_of: Callable[[Any], int]) -> int:
        """Return how many updates make so many steps; `slots_of` says how many slots learn in a world of some options."""
        left, made = env_steps, 0
        for phase in self.phases:
            each = max(slots_of(phase.options), 1) * phase.learner.steps
            updates = min(-(-left // each), phase.last - phase.first + 1)
            left, made = left - updates * each, made + updates
            if left <= 0:
                break
        return made

    def built_at(self, phase: Phase) -> int:
        """Return the first update of the world that a phase is played in: a phase with other options builds a new one."""
        first = phase.first
        for earlier in reversed(self.phases[: phase.index - 1]):
            if earlier.options != phase.options:
                break
            first = earlier.first
        return first


def _learner(base: LearnerConfig, changes: Mapping[str, Any], where: str) -> LearnerConfig:
    fixed = [key for key in changes if key in SHAPE]
    if fixed:
        raise ConfigError(f"{where}: '{fixed[0]}' cannot change during a run. Set it in [learner].")
    if base.replay.enabled and "steps" in changes:
        raise ConfigError(
            f"{where}: 'steps' cannot change during a run with learner.replay.enabled = true, which keeps whole rollouts. "
            "Set it in [learner]."
        )
    return overlay(base, changes, where)


def make_plan(config: Config, slots: int | Callable[[Any], int]) -> Plan:
    """Return the phases of a run; `env_steps` is turned into updates.

    `slots` are those that learn: as many in every phase, or as a function says of the options of one.
    """
    slots_of = slots if callable(slots) else lambda options: slots
    settings = (config.world.options, config.learner)
    updates, steps = config.run.updates, config.run.env_steps
    if steps > 0:
        # No run of so many steps has more updates than steps.
        updates = Plan(config.phases, config.plan, steps, *settings).updates_for(steps, slots_of)
    return Plan(config.phases, config.plan, updates, *settings)
