"""What an ended episode reports: outcome, distances, reward components, safety rates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.records import Array, Episode, Start
from holdfast.worlds.pursuit.layout import CAPTURED, CUT, ENDINGS, ESCAPED, PARTS, ROLES
from holdfast.worlds.pursuit.options import PursuitOptions

_GAME_PARTS = (
    ("distance", "capture", "timeout", "visibility", "collision", "wall", "search", "barrier"),
    (
        "distance",
        "capture",
        "timeout",
        "visibility",
        "occlusion",
        "hiding",
        "survival",
        "approach",
        "collision",
        "wall",
        "barrier",
    ),
)
_NAVIGATION_PARTS: tuple[tuple[str, ...], ...] = (
    (),
    ("goal_distance", "goal", "goal_wall", "flee_distance", "flee_capture"),
)


def _keys(table: tuple[tuple[str, ...], ...]) -> list[tuple[str, int]]:
    """Return fact names and places in the flattened `parts` of the components that a task can pay."""
    return [
        (f"reward/{role}/{part}", me * len(PARTS) + PARTS.index(part))
        for me, role in enumerate(ROLES)
        for part in table[me]
    ]


_GAME_KEYS, _NAVIGATION_KEYS = _keys(_GAME_PARTS), _keys(_NAVIGATION_PARTS)


def describe(
    which: Array,
    why: Array,
    finished: Array,
    starts: Sequence[Start | None],
    params: Array,
    options: PursuitOptions,
) -> list[Episode]:
    """Return one record a finished game, `which [E]` being its number and `finished [E]` its last state.

    Facts: `captured`, `escaped`, `min_distance_m`, `init_distance_m`, `n_obstacles`, `capture_time_s` where
    captured, `reward/<role>/<part>`, and for a guarded role `safety/<role>/{intervention,violation,
    infeasible}_rate` over the steps of the episode.
    """
    keys = _NAVIGATION_KEYS if options.task == "navigation" else _GAME_KEYS
    guarded = [me for me in range(2) if params[0]["guarded"][me]]
    parts = finished["parts"].reshape(len(finished), -1).tolist()
    columns = zip(
        which.tolist(),
        why.tolist(),
        starts,
        parts,
        finished["returns"].copy(),
        finished["t"].tolist(),
        finished["seed"].tolist(),
        finished["min_distance"].tolist(),
        finished["init_distance"].tolist(),
        finished["n_obstacles"].tolist(),
        strict=True,
    )
    episodes = []
    for k, (game, code, start, paid, returns, steps, seed, least, first, count) in enumerate(
        columns
    ):
        facts: dict[str, float] = {
            "captured": float(code == CAPTURED),
            "escaped": float(code == ESCAPED),
            "min_distance_m": least,
            "init_distance_m": first,
            "n_obstacles": float(count),
        }
        if code == CAPTURED:
            facts["capture_time_s"] = steps * options.dt
        for name, place in keys:
            facts[name] = paid[place]
        if guarded:
            facts.update(_safety(finished[k], guarded, steps))
        if options.task == "navigation":
            facts["flee"] = float(finished[k]["flee"])
            facts["goals_reached"] = float(finished[k]["goals_reached"])
        used = Start(seed=seed) if start is None else start
        episodes.append(Episode(game, used, steps, returns, ENDINGS[code], facts, cut=code == CUT))
    return episodes


def _safety(record: Any, guarded: Sequence[int], steps: int) -> dict[str, float]:
    rates = {}
    for me in guarded:
        at = f"safety/{ROLES[me]}"
        rates[f"{at}/intervention_rate"] = float(record["interventions"][me]) / steps
        rates[f"{at}/violation_rate"] = float(record["violations"][me]) / steps
        rates[f"{at}/infeasible_rate"] = float(record["infeasible"][me]) / steps
    return rates
