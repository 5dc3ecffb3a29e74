"""V-trace targets (Espeholt 2018), compiled.

All arrays are `[T, N]`, `values` and `mask` are `[T+1, N]`. With the importance weight `w = pi(a|x) / mu(a|x)`, `rho = min(rho_bar, w)`
and `c = lam * min(c_bar, w)`:

    target_t    = v_t + delta_t + gamma * c_t * (target_{t+1} - v_{t+1})
    delta_t     = rho_t * (r_t + gamma * v_{t+1} - v_t)
    advantage_t = rho_t * (r_t + gamma * target_{t+1} - v_t)

A terminated step is followed by nothing; a truncated one by `final_values`, and one after which the policy has no say
(the next one is masked) by the value of what it led to: across these nothing is chained. In a masked step the weight is 1.
"""

from __future__ import annotations

import math

import numpy as np

from holdfast.jit import kernel
from holdfast.records import F32, F64, Bools

ROUNDING = 0.01
"""Share by which a weight may exceed `rho_bar` before it counts as cut: a memory keeps log-probabilities in half precision."""


@kernel
def vtrace(
    log_weights: F32,
    mask: Bools,
    rewards: F64,
    values: F32,
    terminations: Bools,
    truncations: Bools,
    final_values: F32,
    gamma: float,
    lam: float,
    rho_bar: float,
    c_bar: float,
    advantages: F32,
    targets: F32,
) -> float:
    """Write advantages and value targets; return how many unmasked weights were cut to `rho_bar`."""
    steps, slots = rewards.shape
    cut = 0.0
    # Target minus value of the next step, and the target itself.
    carries = np.zeros(slots)
    followings = values[steps].astype(np.float64)
    for t in range(steps - 1, -1, -1):
        for n in range(slots):
            weight = 1.0
            if mask[t, n]:
                weight = math.exp(log_weights[t, n])
                if weight > (1.0 + ROUNDING) * rho_bar:
                    cut += 1.0
            rho, c = min(rho_bar, weight), lam * min(c_bar, weight)
            value = float(values[t, n])
            after = float(values[t + 1, n])
            if terminations[t, n]:
                after, followings[n], c = 0.0, 0.0, 0.0
            elif truncations[t, n]:
                after = followings[n] = float(final_values[t, n])
                c = 0.0
            elif mask[t, n] and not mask[t + 1, n]:
                followings[n], c = after, 0.0
            advantages[t, n] = rho * (rewards[t, n] + gamma * followings[n] - value)
            carries[n] = rho * (rewards[t, n] + gamma * after - value) + gamma * c * carries[n]
            followings[n] = value + carries[n]
            targets[t, n] = followings[n]
    return cut
