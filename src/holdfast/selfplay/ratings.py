"""Elo ratings of both roles from a cross-play table, by maximum likelihood.

A pursuer of rating a beats an evader of rating b with the odds 10^((a - b + advantage) / 400): Bradley and
Terry's model. Pursuers never meet pursuers, so each role has a scale of its own with the mean 1200, and
what the roles differ by is the advantage. Half a win and half a loss are added to every pair: without them
a side that always won would have no finite rating.
"""

from __future__ import annotations

import numpy as np

from holdfast.errors import ConfigError
from holdfast.records import F64
from holdfast.rng import derive_seed
from holdfast.selfplay.records import CrossPlay, Elo, Rate

MEAN = 1200.0
POINTS = 400.0 / float(np.log(10.0))
"""Elo points of one unit of log-odds."""
PRIOR = 0.5
"""Wins and losses that are added to every pair."""
RIDGE = 1e-6
"""Holds the one direction in which ratings can be shifted without changing any odds."""
STEPS, TOLERANCE = 100, 1e-9


def ratings(table: CrossPlay, resamples: int = 400, seed: int = 0) -> Elo:
    """Return all ratings with 95 % intervals from a bootstrap over the games of each pair."""
    if table.games < 1:
        raise ConfigError("Ratings need at least one game of each pair.")
    wins = np.array(table.captures, np.float64)
    games = table.games + 2.0 * PRIOR
    won = wins + PRIOR
    rng = np.random.default_rng(derive_seed(seed, "ratings"))
    # Resampling with the smoothed rate: a pair that one side won every time may go otherwise.
    drawn = np.float64(PRIOR) + rng.binomial(table.games, won / games, (resamples, *wins.shape))
    values = _strengths(won[None], games)
    spread = _strengths(drawn, games)
    rates = [
        Rate(float(value), *map(float, np.quantile(column, [0.025, 0.975])))
        for value, column in zip(values[0], spread.T, strict=True)
    ]
    count = len(table.pursuers)
    predicted = _odds(values[:, :count], values[:, count:-1], values[:, -1:])
    return Elo(
        pursuers=dict(zip(table.pursuers, rates[:count], strict=True)),
        evaders=dict(zip(table.evaders, rates[count:-1], strict=True)),
        advantage=rates[-1],
        misfit=float(np.abs(predicted[0] - wins / table.games).max()),
    )


def _odds(pursuers: F64, evaders: F64, advantage: F64) -> F64:
    """Return the chances `[B, P, E]` that ratings in points predict."""
    logit = (pursuers[:, :, None] - evaders[:, None, :] + advantage[:, :, None]) / POINTS
    chances: F64 = 1.0 / (1.0 + np.exp(-logit))
    return chances


def _strengths(won: F64, games: float) -> F64:
    """Return ratings `[B, P + E + 1]` (pursuers, evaders, advantage) from wins `[B, P, E]`.

    Newton's method on the log-likelihood, which is concave, with steps of at most one unit of log-odds.
    """
    batch, p, e = won.shape
    x = np.zeros((batch, p + e))
    hessian = np.zeros((batch, p + e, p + e))
    diagonal = np.arange(p + e)
    for _ in range(STEPS):
        chance = 1.0 / (1.0 + np.exp(x[:, None, p:] - x[:, :p, None]))
        off = won - games * chance
        slope = np.concatenate([off.sum(2), -off.sum(1)], 1) - RIDGE * x
        weight = games * chance * (1.0 - chance)
        hessian[:, :p, p:] = -weight
        hessian[:, p:, :p] = -weight.transpose(0, 2, 1)
        hessian[:, diagonal, diagonal] = np.concatenate([weight.sum(2), weight.sum(1)], 1) + RIDGE
        step = np.linalg.solve(hessian, slope[:, :, None])[:, :, 0]
        longest = np.abs(step).max(1, keepdims=True)
        x += step / np.maximum(1.0, longest)
        if longest.max() < TOLERANCE:
            break
    first, second = x[:, :p], x[:, p:]
    advantage = first.mean(1, keepdims=True) - second.mean(1, keepdims=True)
    parts = [
        MEAN + POINTS * (first - first.mean(1, keepdims=True)),
        MEAN + POINTS * (second - second.mean(1, keepdims=True)),
        POINTS * advantage,
    ]
    return np.concatenate(parts, 1)
