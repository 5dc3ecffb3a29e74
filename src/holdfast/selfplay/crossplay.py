"""Every pursuer against every evader: checkpoints of a run, scripts, policies of other runs.

    table = crossplay({"u40": p40, "u80": p80}, {"u40": e40, "circling": Scripted("circling", "evader")}, options)
    ratings(table)

Each pair plays seeds of its own, so that the counts of different pairs are independent of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from holdfast.errors import ConfigError
from holdfast.probes.stats import wilson
from holdfast.rng import derive_seed
from holdfast.selfplay.duel import duel
from holdfast.selfplay.players import Side, prepare
from holdfast.selfplay.records import CrossPlay
from holdfast.worlds.pursuit import PursuitOptions


def crossplay(
    pursuers: Mapping[str, Side],
    evaders: Mapping[str, Side],
    options: PursuitOptions,
    games: int = 500,
    seed: int = 0,
    sampled: Collection[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> CrossPlay:
    """Play all pairs and return captures with Wilson's 95 % intervals; rows are pursuers.

    `progress` is called with (pairs played, pairs in all) after each pair.
    """
    if not pursuers or not evaders:
        raise ConfigError("Cross-play needs at least one pursuer and one evader.")
    ready = {name: prepare(side) for name, side in evaders.items()}
    counts: list[tuple[int, ...]] = []
    for i, (p, pursuer) in enumerate(pursuers.items()):
        side = prepare(pursuer)
        row = []
        for j, (e, evader) in enumerate(ready.items()):
            at = derive_seed(seed, "crossplay", p, e)
            row.append(int(duel(side, evader, options, games, at, sampled).captured.sum()))
            if progress is not None:
                progress(i * len(evaders) + j + 1, len(pursuers) * len(evaders))
        counts.append(tuple(row))
    ends = [[wilson(wins, games) for wins in row] for row in counts]
    return CrossPlay(
        pursuers=tuple(pursuers),
        evaders=tuple(evaders),
        games=games,
        captures=tuple(counts),
        low=tuple(tuple(low for low, _ in row) for row in ends),
        high=tuple(tuple(high for _, high in row) for row in ends),
    )
