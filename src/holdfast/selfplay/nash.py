"""How good a pair is: the gap of the original, and what best responses can still win.

    found = exploitability(Pair(pursuer, evader), train_best_response, options)
    found.value_low, found.value_high     # SR_P against the BR evader, SR_P of the BR pursuer

The gap |SR_P - SR_E| of the original says how far a pair is from winning equally often. A game need not be
even at its equilibrium, so it says nothing of how near that is; exploitability does, as far as the training
of the best responses goes: more training can only widen the interval.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from holdfast.probes.stats import wilson
from holdfast.records import F64
from holdfast.rng import derive_seed
from holdfast.selfplay.duel import Duel, duel
from holdfast.selfplay.players import Ready, Side, prepare
from holdfast.selfplay.records import Exploitability, Rate, Response
from holdfast.selfplay.verdict import ne_gap
from holdfast.worlds.pursuit import PursuitOptions

__all__ = ["BestResponse", "Duel", "Pair", "duel", "exploitability", "gains", "ne_gap"]

RESAMPLES = 2000


class Pair(NamedTuple):
    """A pursuer and an evader."""

    pursuer: Side
    evader: Side


class BestResponse(Protocol):
    """Trains a best response."""

    def __call__(self, role: str, incumbent: Side, opponent: Side) -> Iterable[tuple[int, Side]]:
        """Train `role`, beginning as `incumbent`, against the frozen `opponent`.

        Yield (environment steps so far, policy) at every checkpoint that may be chosen.
        """
        ...


@dataclass
class _Choice:
    """The best candidate for a role so far, by its wins on the seeds of the selection."""

    side: Ready
    score: float
    env_steps: int = 0
    trained: int = 0
    tried: int = 1

    def consider(self, side: Ready, score: float, env_steps: int) -> None:
        """Take the candidate if it wins more often."""
        self.tried, self.trained = self.tried + 1, env_steps
        if score > self.score:
            self.side, self.score, self.env_steps = side, score, env_steps

    def response(self, role: str, sr_p: Rate, gain: Rate) -> Response:
        """Return the record of what was chosen."""
        return Response(role, sr_p, gain, self.env_steps, self.trained, self.tried)


def exploitability(
    pair: Pair,
    train_best_response: BestResponse,
    options: PursuitOptions,
    *,
    games: int = 5000,
    selection_games: int = 2000,
    seed: int = 0,
    sampled: Collection[str] = (),
    update: int = 0,
    env_steps: int = 0,
) -> Exploitability:
    """Train a best response to each side of the pair and measure what it wins.

    The incumbent is a candidate like every checkpoint of the response, so nothing worse than it is ever chosen.
    Checkpoints are chosen on seeds of their own; then the pair and both responses play the same fresh seeds,
    and gains are means of paired differences.
    """
    ready = {"pursuer": prepare(pair.pursuer), "evader": prepare(pair.evader)}

    def play(role: str, side: Ready, count: int, purpose: str) -> Duel:
        """Play the pair with `side` in the place of `role`."""
        sides = {**ready, role: side}
        at = derive_seed(seed, "exploitability", purpose)
        return duel(sides["pursuer"], sides["evader"], options, count, at, sampled)

    def choose(role: str, incumbent: Side, opponent: Side) -> _Choice:
        def score(side: Ready) -> float:
            rate = play(role, side, selection_games, f"choose {role}").rate.value
            return rate if role == "pursuer" else 1.0 - rate

        best = _Choice(ready[role], score(ready[role]))
        for steps, candidate in train_best_response(role, incumbent, opponent):
            side = prepare(candidate)
            best.consider(side, score(side), steps)
        return best

    chosen = {
        "pursuer": choose("pursuer", pair.pursuer, pair.evader),
        "evader": choose("evader", pair.evader, pair.pursuer),
    }
    base = play("pursuer", ready["pursuer"], games, "measure")
    played = {
        role: base if best.side is ready[role] else play(role, best.side, games, "measure")
        for role, best in chosen.items()
    }
    won = base.captured.astype(np.float64)
    own = tuple(played[role] is base for role in ("pursuer", "evader"))
    gain_pursuer, gain_evader, both = gains(
        played["pursuer"].captured - won, won - played["evader"].captured, seed, own
    )
    rate = base.rate
    return Exploitability(
        update=update,
        env_steps=env_steps,
        games=games,
        incumbent=rate,
        pursuer=chosen["pursuer"].response("pursuer", played["pursuer"].rate, gain_pursuer),
        evader=chosen["evader"].response("evader", played["evader"].rate, gain_evader),
        value_low=min(rate.value, played["evader"].rate.value),
        value_high=max(rate.value, played["pursuer"].rate.value),
        exploitability=both,
    )


def gains(
    pursuer: F64, evader: F64, seed: int = 0, own: Sequence[bool] = (False, False)
) -> tuple[Rate, Rate, Rate]:
    """Return mean gains of pursuer, evader and both, with bootstrap intervals over games.

    `pursuer [n]` and `evader [n]` are differences in {-1, 0, 1} on the same seeds. A loss counts as no gain:
    whoever responds can always play as the incumbent does. Where all differences are equal the bootstrap knows no other
    one, however few the games: there the interval ends where Wilson's does for what was never seen, unless the response
    is the incumbent itself (`own`), which gains nothing for certain.
    """
    kinds, counts = np.unique(np.stack([pursuer, evader]), axis=1, return_counts=True)
    games = int(counts.sum())
    rng = np.random.default_rng(derive_seed(seed, "gains"))
    draws = rng.multinomial(games, counts / games, RESAMPLES)
    found = [*np.maximum(kinds @ counts / games, 0.0)]
    resampled = [*np.maximum(draws @ kinds.T / games, 0.0).T]
    found.append(found[0] + found[1])
    resampled.append(resampled[0] + resampled[1])
    ends = np.quantile(np.array(resampled), [0.025, 0.975], axis=1)
    unseen = wilson(0, games)[1]
    for side, values in enumerate((pursuer, evader)):
        if not own[side] and np.ptp(values) == 0:
            one = float(values[0])
            low, high = one - (one + 1) * unseen, one + (1 - one) * unseen
            wider = np.maximum([low, high], 0.0) - found[side]
            ends[:, [side, 2]] += wider[:, None]
    rates = [
        Rate(float(value), max(float(low), 0.0), float(high))
        for value, (low, high) in zip(found, ends.T, strict=True)
    ]
    return rates[0], rates[1], rates[2]
