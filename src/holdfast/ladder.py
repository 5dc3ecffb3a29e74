"""The memory ladder: a run that is out of memory begins again with less, and writes down with how much less.

| tier | games | steps | minibatch |
|------|-------|-------|-----------|
| 1    | 1     | 1     | 1         |     shares of what the config asks for
| 2    | 1     | 1/2   | 1         |
| 3    | 4/5   | 1     | 1         |
| 4    | 4/5   | 1/2   | 1/2       |
| 5    | 3/5   | 1/2   | 1/2       |
| 6    | 3/5   | 1/3   | 1/2       |

After a failure the next tier follows that has a smaller rollout (games x steps) than the one that failed: after
tier 2 that is tier 4. There are never fewer than 2 games and 16 steps, unless the config asks for fewer. The
policy, its optimiser, the guards and the clock go on from the last checkpoint; the episodes begin anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.config import Config, differences
from holdfast.store.journal import read_lines
from holdfast.worlds.pool_faults import PoolFault

TIERS: tuple[tuple[Fraction, Fraction, Fraction], ...] = tuple(
    (Fraction(games), Fraction(steps), Fraction(minibatch))
    for games, steps, minibatch in (
        ("1", "1", "1"),
        ("1", "1/2", "1"),
        ("4/5", "1", "1"),
        ("4/5", "1/2", "1/2"),
        ("3/5", "1/2", "1/2"),
        ("3/5", "1/3", "1/2"),
    )
)
"""Shares of games, steps and minibatch."""
LEAST_GAMES, LEAST_STEPS, LEAST_MINIBATCH = 2, 16, 2
EVENT = "out_of_memory"
"""Name of the event in sessions.jsonl and in the journal."""
WORDS = ("can't allocate memory", "not enough memory", "out of memory", "cannot allocate memory")
"""What torch and the operating system say when there is none left."""


def out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that there was no memory left, here or in a worker process."""
    if isinstance(error, PoolFault):
        return error.fault.out_of_memory
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    said = str(error).lower()
    return isinstance(error, RuntimeError | OSError) and any(word in said for word in WORDS)


@dataclass(frozen=True)
class Sizes:
    """What decides how much memory a run needs."""

    games: int
    steps: int
    minibatch: int

    @classmethod
    def of(cls, config: Config) -> Sizes:
        """Return the sizes that a config asks for."""
        return cls(config.world.options.games, config.learner.steps, config.learner.minibatch)

    def at(self, tier: int) -> Sizes:
        """Return these sizes at a tier, from 1."""
        games, steps, minibatch = TIERS[tier - 1]
        return Sizes(
            _scaled(self.games, games, LEAST_GAMES),
            _scaled(self.steps, steps, LEAST_STEPS),
            _scaled(self.minibatch, minibatch, LEAST_MINIBATCH),
        )

    @property
    def rollout(self) -> int:
        """Steps of all games in one rollout."""
        return self.games * self.steps


@dataclass(frozen=True)
class Rung:
    """One restart: which tier follows, and the config for it."""

    number: int
    """The how manieth restart, from 1."""
    tier: int
    base: Sizes
    config: Config
    changed: tuple[str, ...]


def climb_down(config: Config, directory: Path) -> Rung | None:
    """Return what follows after the run was out of memory with `config`, or None if nothing is left.

    Earlier restarts of the run are known from its sessions.jsonl.
    """
    earlier = [e for e in read_lines(directory / "sessions.jsonl") if e.get("event") == EVENT]
    if len(earlier) >= config.run.memory_restarts:
        return None
    now = Sizes.of(config)
    base, tier = now, 1
    if earlier:
        base, tier = Sizes(**earlier[-1]["base"]), int(earlier[-1]["tier"])
    for following in range(tier + 1, len(TIERS) + 1):
        sizes = base.at(following)
        if sizes.rollout < now.rollout:
            lower = at_tier(config, base, following)
            changed = tuple(differences(config, lower))
            return Rung(len(earlier) + 1, following, base, lower, changed)
    return None


def at_tier(config: Config, base: Sizes, tier: int) -> Config:
    """Return the config with the sizes of a tier; phases that set sizes of their own are lowered alike."""
    sizes, (games, steps, minibatch) = base.at(tier), TIERS[tier - 1]
    before = Sizes.of(config)
    share = {
        "games": (games * base.games / before.games, LEAST_GAMES),
        "steps": (steps * base.steps / before.steps, LEAST_STEPS),
        "minibatch": (minibatch * base.minibatch / before.minibatch, LEAST_MINIBATCH),
    }
    return replace(
        config,
        world=replace(config.world, options=replace(config.world.options, games=sizes.games)),
        learner=replace(config.learner, steps=sizes.steps, minibatch=sizes.minibatch),
        phases=tuple(
            replace(p, world=_lowered(p.world, share), learner=_lowered(p.learner, share))
            for p in config.phases
        ),
    )


def _lowered(table: Mapping[str, Any], share: Mapping[str, tuple[Fraction, int]]) -> dict[str, Any]:
    return {
        key: _scaled(int(value), *share[key]) if key in share else value
        for key, value in table.items()
    }


def _scaled(size: int, share: Fraction, least: int) -> int:
    return max(int(size * share), min(size, least))


def same_size(saved: Mapping[str, Any], fresh: Mapping[str, Any]) -> bool:
    """Return whether two states have arrays of the same shapes under the same names."""
    return all(
        name in fresh and np.shape(saved[name]) == np.shape(fresh[name])
        for name, value in saved.items()
        if isinstance(value, np.ndarray)
    )


def fitted(saved: Any, fresh: Any) -> Any:
    """Return `saved` with every array that has another shape now taken from `fresh`."""
    if isinstance(saved, dict) and isinstance(fresh, dict):
        return {k: fitted(v, fresh[k]) if k in fresh else v for k, v in saved.items()}
    if isinstance(saved, np.ndarray) and isinstance(fresh, np.ndarray):
        return saved if saved.shape == fresh.shape else fresh
    return saved


def refitted(
    saved: Mapping[str, Any],
    fresh: Mapping[str, Any],
    anew: Sequence[str] = ("world", "collector", "overlap"),
) -> dict[str, Any]:
    """Return a checkpoint's state for a run of another size; the parts in `anew` are as they are now."""
    return {
        name: fresh[name] if name in anew else fitted(state, fresh.get(name))
        for name, state in saved.items()
    }
