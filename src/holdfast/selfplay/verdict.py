"""What the measurements of a run of self-play allow to be said.

Three questions, each answered from intervals, so that noise is not taken for an answer:

    is the pair even?            judge_gap, Streak: the gap against a threshold, so many times in a row
    is it an equilibrium?        classify, cohort: what best responses win against a tolerance
    did it settle or swing?      analyse: trend, swings and dominance over all evaluations

The original fired on one evaluation of 100 games. By the binomial law that finds a gap below 0.10 in 43 % of
the evaluations of a pair whose true gap is exactly 0.10, and misses an even pair in 37 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from holdfast.records import F64
from holdfast.selfplay.records import Analysis, Evaluation, Exploitability, Rate, Trend, Verdict

By = Literal["interval", "point"]
Judgement = Literal["below", "above", "unsure"]
Z = 1.959964

LEVELS = {
    "L1": "equilibrium: neither best response gains more than epsilon",
    "L2": "the frozen evader can be exploited: the pursuer's best response gains",
    "L3": "the frozen pursuer can be exploited: the evader's best response gains",
    "L4": "no equilibrium: both best responses gain",
}
COHORTS = {
    "H1": "equilibrium claim defended in every seed",
    "H2": "one-sided: the evader can be exploited in every seed",
    "H3": "one-sided: the pursuer can be exploited in every seed",
    "H4": "no equilibrium in any seed",
    "H5": "depends on the seed",
}
UNDECIDED = "undecided"


def judge(rate: Rate, threshold: float) -> Judgement:
    """Return on which side of the threshold the whole interval lies."""
    if rate.high <= threshold:
        return "below"
    return "above" if rate.low > threshold else "unsure"


def ne_gap(rate: Rate) -> Rate:
    """Return |SR_P - SR_E| = |2 SR_P - 1|, the original's NE gap, with the interval that SR_P's implies."""
    value, *ends = (abs(p - (1.0 - p)) for p in (rate.value, rate.low, rate.high))
    return Rate(value, 0.0 if rate.low <= 0.5 <= rate.high else min(ends), max(ends))


def games_needed(eta: float) -> int:
    """Return how many games let an exactly even pair show a gap whose interval ends below `eta`."""
    return math.floor(Z * Z * (1.0 / (eta * eta) - 1.0)) + 1


class Streak:
    """Counts evaluations in a row whose gap is below a threshold: convergence, and NE-gap advancement.

    By `interval` an evaluation counts when the whole 95 % interval is below; by `point`, as in the
    original, when the measured value is.
    """

    def __init__(self, eta: float = 0.10, consecutive: int = 1, by: By = "interval") -> None:
        self.eta, self.consecutive, self.by = eta, consecutive, by
        self.count = 0

    def step(self, rate: Rate) -> bool:
        """Take SR_P of one evaluation; return whether there have now been enough in a row, and then begin anew."""
        gap = ne_gap(rate)
        even = gap.value < self.eta if self.by == "point" else gap.high < self.eta
        self.count = self.count + 1 if even else 0
        if self.count < self.consecutive:
            return False
        self.count = 0
        return True

    def state_dict(self) -> dict[str, Any]:
        """Return the count."""
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a count."""
        self.count = int(state["count"])


def converged(
    evaluations: Iterable[Evaluation],
    *,
    at_top: bool,
    eta: float = 0.10,
    consecutive: int = 1,
    by: By = "interval",
    exploitability: Rate | None = None,
    limit: float | None = None,
) -> bool:
    """Return whether the last evaluations fulfil the rule of the protocol.

    The gap is below `eta` in the last `consecutive` evaluations and the curriculum is at its top. With `limit`
    the exploitability must be known to be below it as well: an even game alone is no equilibrium.
    """
    last = list(evaluations)[-consecutive:]
    streak = Streak(eta, consecutive, by)
    even = [streak.step(evaluation.rate) for evaluation in last]
    if not at_top or not even or not even[-1]:
        return False
    if limit is None:
        return True
    return exploitability is not None and judge(exploitability, limit) == "below"


def classify(found: Exploitability, epsilon: float = 0.05) -> Verdict:
    """Return L1 to L4 for one pair; `undecided` while an interval holds the tolerance."""
    gains = (found.pursuer.gain, found.evader.gain)
    by_point = _level(*(gain.value > epsilon for gain in gains))
    sides = [judge(gain, epsilon) for gain in gains]
    if "unsure" in sides:
        open_ = [r.role for r, side in zip((found.pursuer, found.evader), sides, strict=True)
                 if side == "unsure"]  # fmt: skip
        words = f"the gain of the {' and the '.join(open_)} is not told apart from {epsilon:g}; play more games"
        return Verdict(UNDECIDED, by_point, epsilon, words)
    level = _level(*(side == "above" for side in sides))
    return Verdict(level, by_point, epsilon, LEVELS[level])


def _level(pursuer_gains: bool, evader_gains: bool) -> str:
    return {(False, False): "L1", (True, False): "L2", (False, True): "L3"}.get(
        (pursuer_gains, evader_gains), "L4"
    )


def cohort(verdicts: Sequence[Verdict]) -> str:
    """Return H1 to H4 if all seeds share L1 to L4, H5 if two differ, else `undecided`."""
    decided = {v.level for v in verdicts} - {UNDECIDED}
    if len(decided) > 1:
        return "H5"
    if not decided or any(v.level == UNDECIDED for v in verdicts):
        return UNDECIDED
    return "H" + min(decided)[1:]


def analyse(
    evaluations: Sequence[Evaluation],
    *,
    eta: float = 0.10,
    consecutive: int = 1,
    by: By = "interval",
    top: float = 0.0,
    band: tuple[float, float] = (0.10, 0.90),
    after: int = 1_000_000,
) -> Analysis | None:
    """Return the analysis of a run's evaluations; None without any.

    It has converged when the last `consecutive` evaluations, all at level `top`, have a gap below `eta`.
    """
    if not evaluations:
        return None
    steps = np.array([e.env_steps for e in evaluations], np.float64)
    rates = np.array([e.sr_p for e in evaluations])
    gaps = np.abs(2.0 * rates - 1.0)
    half = len(rates) // 2
    last = evaluations[-1]
    at_top = all(e.level >= top for e in evaluations[-consecutive:])
    turns = _turns(evaluations)
    noise = np.mean([e.sr_p * (1 - e.sr_p) / max(e.games, 1) for e in evaluations])
    variance = float(rates.var(ddof=1)) if len(rates) > 1 else 0.0
    excess = max(0.0, variance - float(noise))
    dominant, dominance = _dominance(evaluations, band)
    oscillation: Literal["settled", "drifts", "oscillates"] = "settled"
    if len(turns) >= 2:
        oscillation = "oscillates"
    elif excess > float(noise):
        oscillation = "drifts"
    return Analysis(
        evaluations=len(rates),
        converged=converged(evaluations, at_top=at_top, eta=eta, consecutive=consecutive, by=by),
        final=last.rate,
        final_gap=ne_gap(last.rate),
        min_gap=float(gaps.min()),
        mean_gap=float(gaps.mean()),
        gap_trend=trend(steps, gaps),
        rate_trend=trend(steps, rates),
        gap_half_change=float(gaps[half:].mean() - gaps[: half or 1].mean()),
        swings=len(turns),
        period_env_steps=2.0 * float(np.diff(turns).mean()) if len(turns) >= 2 else None,
        amplitude=float(np.ptp(rates[half:])),
        excess_variance=excess,
        oscillation=oscillation,
        dominant=dominant,
        dominance=dominance,
        outside=tuple(
            e.update
            for e in evaluations
            if e.env_steps > after and not band[0] <= e.sr_p <= band[1]
        ),
        band=band,
        after=after,
    )


def trend(steps: F64, values: F64) -> Trend:
    """Return the least-squares slope a million steps.

    Evaluations of a run follow from each other, so the interval counts them as n (1 - r) / (1 + r)
    independent ones, r being the correlation of neighbouring residuals.
    """
    n = len(values)
    if n < 3 or np.ptp(steps) == 0:
        return Trend(None, "flat")
    x = (steps - steps.mean()) / 1e6
    slope = float((x * (values - values.mean())).sum() / (x * x).sum())
    residual = values - values.mean() - slope * x
    square = float((residual * residual).sum())
    r = float((residual[1:] * residual[:-1]).sum() / square) if square > 0 else 0.0
    r = min(max(r, 0.0), 0.95)
    error = math.sqrt(square / max(n - 2, 1) / float((x * x).sum()) * (1 + r) / (1 - r))
    rate = Rate(slope, slope - Z * error, slope + Z * error)
    if rate.low > 0:
        return Trend(rate, "rising")
    return Trend(rate, "falling" if rate.high < 0 else "flat")


def _turns(evaluations: Sequence[Evaluation]) -> list[int]:
    """Return the env_steps at which the side that certainly wins more games changed."""
    sides = [
        (e.env_steps, 1 if e.low > 0.5 else -1) for e in evaluations if e.low > 0.5 or e.high < 0.5
    ]
    return [later[0] for earlier, later in pairwise(sides) if earlier[1] != later[1]]


def _dominance(evaluations: Sequence[Evaluation], band: tuple[float, float]) -> tuple[str, int]:
    """Return who stayed outside the band for the most evaluations in a row, and for how many."""
    best, longest, current, count = "", 0, "", 0
    for e in evaluations:
        who = "pursuer" if e.low > band[1] else "evader" if e.high < band[0] else ""
        count = count + 1 if who and who == current else int(bool(who))
        current = who
        if count > longest:
            best, longest = who, count
    return best, longest
