"""Advantages and targets: generalised advantage estimation and discounted-return tracking, compiled.

All arrays are `[T, N]`, `values` and `mask` are `[T+1, N]`. A terminated step is followed by nothing; a
truncated step is followed by `final_values`, the value of the observation at which the episode was cut.
A step after which the policy has no say (the next one is masked, as when a script plays on) is followed by
the value of what it led to: what others do there is neither its merit nor its fault. Masked steps are
computed like any other and enter no loss.
"""

from __future__ import annotations

import numpy as np

from holdfast.jit import kernel
from holdfast.records import F32, F64, Bools


@kernel
def gae(
    rewards: F64,
    values: F32,
    mask: Bools,
    terminations: Bools,
    truncations: Bools,
    final_values: F32,
    gamma: float,
    lam: float,
    advantages: F32,
    returns: F32,
) -> None:
    """Write GAE(gamma, lam) advantages and the value targets (advantage + value)."""
    steps, slots = rewards.shape
    carries = np.zeros(slots)
    for t in range(steps - 1, -1, -1):
        for n in range(slots):
            follow = values[t + 1, n]
            chain = 0.0 if mask[t, n] and not mask[t + 1, n] else 1.0
            if terminations[t, n]:
                follow, chain = 0.0, 0.0
            elif truncations[t, n]:
                follow, chain = final_values[t, n], 0.0
            delta = rewards[t, n] + gamma * follow - values[t, n]
            carries[n] = delta + gamma * lam * chain * carries[n]
            advantages[t, n] = carries[n]
            returns[t, n] = carries[n] + values[t, n]


@kernel
def track_returns(
    rewards: F64,
    terminations: Bools,
    truncations: Bools,
    mask: Bools,
    gamma: float,
    running: F64,
    moments: F64,
) -> None:
    """Roll the discounted return of every slot forward and merge its moments.

    `running [N]` is the discounted return so far, carried from rollout to rollout; `moments [3]` is
    (count, mean, sum of squared deviations) over all unmasked steps seen (Welford's update).
    """
    steps, slots = rewards.shape
    for t in range(steps):
        for n in range(slots):
            running[n] = gamma * running[n] + rewards[t, n]
            if mask[t, n]:
                moments[0] += 1.0
                shift = running[n] - moments[1]
                moments[1] += shift / moments[0]
                moments[2] += shift * (running[n] - moments[1])
            if terminations[t, n] or truncations[t, n]:
                running[n] = 0.0


@kernel
def explained_variance(values: F32, returns: F32, mask: Bools) -> float:
    """Return 1 - Var(returns - values) / Var(returns) over unmasked steps; 0 where undefined."""
    count = 0.0
    mean_r = mean_e = m2_r = m2_e = 0.0
    steps, slots = returns.shape
    for t in range(steps):
        for n in range(slots):
            if mask[t, n]:
                count += 1.0
                r = returns[t, n]
                e = r - values[t, n]
                shift_r = r - mean_r
                mean_r += shift_r / count
                m2_r += shift_r * (r - mean_r)
                shift_e = e - mean_e
                mean_e += shift_e / count
                m2_e += shift_e * (e - mean_e)
    if m2_r <= 0.0:
        return 0.0
    return 1.0 - m2_e / m2_r
