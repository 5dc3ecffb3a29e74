"""What is written down of an episode when it ends, and how its seeds follow from the game's.

Facts are numbers (they become signals, averaged over recent episodes): every column of `books.COLUMNS` as it was at
the end, `clear`, `death`, one `end_<reason>` each, `gain_share` (steps that won new ground), and `reward_<component>`.
Detail holds the stage, the place of the end, how often each action was taken, and `before`: a start one to two
`trail_every` before a death by an enemy or in a pit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from holdfast.errors import ConfigError
from holdfast.records import Array, Episode, Start
from holdfast.worlds.mario import books as b
from holdfast.worlds.mario.books import Books
from holdfast.worlds.mario.frames import SIDE
from holdfast.worlds.mario.machine import Bank
from holdfast.worlds.mario.options import stage_name
from holdfast.worlds.mario.play import is_busy
from holdfast.worlds.mario.rewards import COMPONENTS
from holdfast.worlds.mario.stages import mix
from holdfast.worlds.mario.trail import Trail

OPTIONAL = {"area_best": (b.AREAS,), "frame": (SIDE, SIDE)}
"""Shapes of what a snapshot may hold besides the console."""
PLACE = 16
"""Pixels within which two deaths are at the same place."""


def make_episode(
    books: Books, g: int, start: Start, action_names: Sequence[str], trail: Trail
) -> Episode:
    """Return the record of game `g`, which has ended."""
    counts = dict(zip(b.COLUMNS, books.counts[g].tolist(), strict=True))
    ended, steps = b.ENDS[int(books.ended[g])], int(counts.pop("steps"))
    gains = counts.pop("gains")
    parts = dict(zip(COMPONENTS, books.sums[g].tolist(), strict=True))
    stage = stage_name((counts["world"], counts["stage"]))
    place = f"{stage}:{counts['area']}:{counts['x'] // PLACE * PLACE}"
    return Episode(
        game=g,
        start=start,
        steps=steps,
        returns=np.array([sum(parts.values())]),
        ended=ended,
        facts={
            **{name: float(value) for name, value in counts.items()},
            "clear": float(ended == "clear"),
            "death": float(ended in b.DEATHS),
            "gain_share": gains / max(steps, 1),
            **{f"end_{name}": float(ended == name) for name in b.ENDS[1:]},
            **{f"reward_{name}": value for name, value in parts.items()},
        },
        detail={
            "stage": stage,
            "place": place,
            "actions": dict(zip(action_names, books.chosen[g].tolist(), strict=True)),
            "before": trail.before(g, steps, place) if ended in b.PLACED else None,
        },
        cut=ended in b.CUTS,
    )


def episode_seed(seed: int, episode: int) -> int:
    """Return the seed of a game's n-th episode: the literal seed for the first, then a mix of both."""
    return seed if episode == 0 else mix(seed, 1000 + episode)


def check_snapshot(snapshot: Mapping[str, Array], bank: Bank) -> None:
    """Raise a ConfigError unless a console of this bank can go on from the snapshot."""
    shapes: dict[str, tuple[int, ...]] = {
        name: rows.shape[1:] for name, rows in bank._asdict().items()
    }
    shapes.update({name: shape for name, shape in OPTIONAL.items() if name in snapshot})
    for name, shape in shapes.items():
        if name not in snapshot or np.shape(snapshot[name]) != shape:
            found = f"shape {np.shape(snapshot[name])}" if name in snapshot else "nothing"
            raise ConfigError(
                f"A start's snapshot has '{name}' with {found}. Allowed: shape {shape}; make snapshots with "
                "MarioWorld.snapshot or holdfast.worlds.mario.starts."
            )
    if is_busy(np.ascontiguousarray(snapshot["ram"], np.uint8)):
        raise ConfigError(
            "A start's snapshot was taken in a cut-scene, where nobody can steer. Take it between two steps "
            "of a world."
        )
