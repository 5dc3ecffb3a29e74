"""From a rollout to the block that a lane computes: records of samples, and the rows and columns made of them.

A record is what the loss needs of one sample, side by side: a cache line or two, fetched in the random order of minibatches.
The observation stands in it if there is room, else it is read where the rollout has it. `data` is the address of the first
observation and `stride` the bytes to the next, `notes` that of the first record and `width` its bytes.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import numpy as np

from holdfast.jit import kernel
from holdfast.learn.fused_adam import copy_here
from holdfast.learn.fused_loss import ADVANTAGE, NOTES, OLD_LOGP, OLD_VALUE, RETURN
from holdfast.learn.fused_simd import peek, poke, prefetch

NEAR = 12
"""How many samples ahead `stage` asks for what `fetch` has brought near, but which a block's activations have pushed out of
the first-level cache since."""
ONE = np.float32(1.0)


def record_width(actions: int, inputs: int) -> int:
    """Return the floats of a sample's record: with the observation if all of it fits into two cache lines."""
    whole = -(-(NOTES + actions + inputs) // 16) * 16
    return whole if whole <= 32 else -(-(NOTES + actions) // 4) * 4


@kernel
def write_records(lo, hi, log_probs, advantages, returns, values, actions, obs, records):
    """Write the records of samples `lo..hi-1`."""
    size = actions.shape[1]
    behind = NOTES + size
    room = records.shape[1] >= behind + obs.shape[1]
    for n in range(lo, hi):
        records[n, OLD_LOGP] = log_probs[n]
        records[n, ADVANTAGE] = advantages[n]
        records[n, RETURN] = returns[n]
        records[n, OLD_VALUE] = values[n]
        for k in range(size):
            records[n, NOTES + k] = actions[n, k]
        if room:
            for k in range(obs.shape[1]):
                records[n, behind + k] = obs[n, k]


@kernel
def fetch(order, lo, hi, notes, width, data, stride, inputs, together):
    """Ask for the samples `order[lo:hi]`, whose observations are, or are not, `together` with the rest."""
    for k in range(lo, hi):
        n = order[k]
        for line in range(notes + width * n, notes + width * (n + 1), 64):
            prefetch(line)
        if not together:
            for line in range(data + stride * n, data + stride * n + 4 * inputs, 64):
                prefetch(line)
            prefetch(data + stride * n + 4 * inputs - 4)


@kernel
def stage(
    order, lo, rows, notes, width, size, data, stride, inputs, source, source_row, padded, scratch,
    column, actions,
):  # fmt: skip
    """Lay out the samples `order[lo:lo + rows]`: observations in rows at `source`, the notes of each in the columns of
    `scratch`, its actions `[size]` at `actions`.

    If rows are `padded`, an input that is always 1 follows the others: the gradient of its weights is that of the biases.
    """
    last = order.size - 1
    for r in range(rows):
        near = order[min(lo + r + NEAR, last)]
        prefetch(notes + width * near)
        prefetch(data + stride * near + 4 * inputs - 4)
        n = order[lo + r]
        to = source + r * source_row
        copy_here(data + stride * n, inputs, to)
        if padded:
            poke(to + 4 * inputs, ONE)
        at, to = notes + width * n, scratch + 4 * r
        for k in range(NOTES):
            poke(to + k * column, peek(at + 4 * k))
        copy_here(at + 4 * NOTES, size, actions + 4 * size * r)
