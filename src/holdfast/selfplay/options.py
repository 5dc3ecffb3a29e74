"""Settings of self-play: the `[selfplay]` table of a config."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

Share = Annotated[float, Meta(ge=0, le=1)]


@dataclass(frozen=True)
class SelfPlayConfig:
    """One learner a role, and who plays against them.

    A role's player is `learn`, a script of the world (`greedy`, `flee`, ...), or `run:NAME` or
    `run:NAME@UPDATE`: the frozen policy of that role in another run of the same runs directory (a path
    works too). Roles of the world that are not named learn.
    """

    enabled: bool = False
    """Give every role its own learner; off, one learner plays all slots."""
    pursuer: str = "learn"
    """Player of the pursuer's slots."""
    evader: str = "learn"
    """Player of the evader's slots."""
    history: Share = 0.0
    """Share of the games in which a learner meets past opponents instead of the other learner."""
    pool: Literal["fifo", "reservoir", "pfsp"] = "reservoir"
    """Which past opponents are kept and met: the newest, an even sample of all, or those that win."""
    pool_size: Annotated[int, Meta(ge=1, le=1000)] = 16
    """Past opponents kept of each role."""
    pool_every: Annotated[int, Meta(ge=1)] = 10
    """Updates between two entries into the pool."""
    pool_weighting: Literal["hard", "variance", "even"] = "hard"
    """How `pfsp` meets members by their win rate p: by p^2, by p (1 - p), or all alike."""
    pool_estimate: Literal["smoothed", "interval"] = "smoothed"
    """What stands for p: Laplace's rule, or the end of the 95 % interval that weighs most."""
    pool_memory: Annotated[float, Meta(gt=0)] = 500.0
    """Games that a member's record stands for at most, so that old ones fade."""
    pool_floor: Share = 0.1
    """Share of the draws of `pfsp` that are even whatever the records say."""
    pool_seed: Annotated[int, Meta(ge=0)] = 0
    """Decides which offers a full pool takes (reservoir, pfsp)."""
    tremble: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    """Share of the steps in which past opponents hold a random action; learners then meet what no learner plays."""
    tremble_steps: Annotated[float, Meta(ge=1)] = 40.0
    """Steps that such an action is held, in the mean."""
    pairs: Annotated[int, Meta(ge=1)] = 12
    """Newest consistent pairs of learners kept for going back to; milestones are kept beside them, all of them."""
    novelty_roles: tuple[str, ...] = ()
    """Roles that `[novelty]` pays; empty: all that learn."""
