"""PPO's losses and their derivatives for one block of samples, in place of the network's outputs.

The heads' outputs lie in rows of eight-lane vectors: each discrete action dimension ("segment") starts
at a multiple of eight, and its padding is never read. Everything goes eight samples at a time: logits as blocks
that are transposed in place, single numbers through the columns of `Scratch`, whose padding (the samples up to
the next multiple of eight) is neutral in every sum.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import numpy as np

from holdfast.jit import kernel
from holdfast.learn.fused_act import HALF_LOG_2PI
from holdfast.learn.fused_simd import (
    exp,
    fill,
    fma,
    load,
    log,
    lower_of,
    peek,
    peek_int,
    poke,
    splat,
    store,
    total,
    upper_of,
    where_less,
)
from holdfast.learn.fused_transpose import choice, transpose, turn_over

ZERO, ONE, HALF = np.float32(0.0), np.float32(1.0), np.float32(0.5)
GAUSSIAN_ENTROPY = 1.4189385332046727

# Columns of float32 [block] in a thread's scratch; four more per segment follow.
OLD_LOGP, ADVANTAGE, RETURN, OLD_VALUE, VALUE, LOGP, SLOPE, SEGMENTS = range(8)
NOTES = 4
"""The first columns come from the rollout."""
TOTAL, WEIGHTED, CHOSEN, SHIFT = range(4)
SEGMENT_COLUMNS = 4

# Sums over samples that a lane reports.
POLICY_LOSS, VALUE_LOSS, ENTROPY, KL, CLIPPED, SUMS = range(6)


@kernel
def softmax_columns(z, z_row, e, e_row, rows, actions, segments, scratch, column):
    """Transpose the logits in blocks of eight samples; replace them by logits minus their maximum, write exp of that
    to `e`, and fill per segment: TOTAL = sum exp, WEIGHTED = sum exp * shifted logit, CHOSEN = shifted logit of the
    action (`actions` is the address of int32 [rows, segments])."""
    size = segments.shape[0]
    for d in range(size):
        first, choices, vectors = segments[d, 0], segments[d, 1], segments[d, 2]
        out = scratch + (SEGMENTS + SEGMENT_COLUMNS * d) * column
        for r in range(0, rows, 8):
            at = z + r * z_row + 4 * first
            to = e + r * e_row + 4 * first
            top = turn_over(at, z_row, choices, vectors)
            s = fill(ZERO)
            t = fill(ZERO)
            for j in range(choices):
                v = load(choice(at, z_row, j)) - top
                w = exp(v)
                store(choice(at, z_row, j), v)
                store(choice(to, e_row, j), w)
                s = s + w
                t = fma(w, v, t)
            store(out + TOTAL * column + 4 * r, s)
            store(out + WEIGHTED * column + 4 * r, t)
            for i in range(min(8, rows - r)):
                action = peek_int(actions + 4 * ((r + i) * size + d))
                shifted = peek(choice(at, z_row, action) + 4 * i)
                poke(out + CHOSEN * column + 4 * (r + i), shifted)
        for r in range(rows, (rows + 7) // 8 * 8):
            poke(out + TOTAL * column + 4 * r, ONE)
            poke(out + WEIGHTED * column + 4 * r, ZERO)
            poke(out + CHOSEN * column + 4 * r, ZERO)


@kernel
def categorical_samples(rows, segments, scratch, column):
    """Write LOGP and, per segment, TOTAL = 1 / sum exp and SHIFT = entropy - log sum exp;
    return the sum of entropies."""
    entropy = fill(ZERO)
    for r in range(0, rows, 8):
        at = scratch + 4 * r
        logp = fill(ZERO)
        for d in range(segments.shape[0]):
            out = at + (SEGMENTS + SEGMENT_COLUMNS * d) * column
            s = load(out + TOTAL * column)
            log_s = log(s)
            inverse = fill(ONE) / s
            mean = load(out + WEIGHTED * column) * inverse
            logp = logp + (load(out + CHOSEN * column) - log_s)
            entropy = entropy + (log_s - mean)
            store(out + TOTAL * column, inverse)
            store(out + SHIFT * column, fill(ZERO) - mean)
        store(at + LOGP * column, logp)
    return total(entropy)


@kernel
def softmax_slopes(z, z_row, e, e_row, rows, actions, segments, bonus, scratch, column):
    """Replace the transposed, shifted logits by rows of derivatives of the loss; `bonus` is ent_coef / samples."""
    weight = fill(bonus)
    size = segments.shape[0]
    for d in range(size):
        first, choices, vectors = segments[d, 0], segments[d, 1], segments[d, 2]
        out = scratch + (SEGMENTS + SEGMENT_COLUMNS * d) * column
        for r in range(0, rows, 8):
            at = z + r * z_row + 4 * first
            of = e + r * e_row + 4 * first
            g = load(scratch + SLOPE * column + 4 * r)
            inverse = load(out + TOTAL * column + 4 * r)
            shift = load(out + SHIFT * column + 4 * r)
            for j in range(choices):
                p = load(choice(of, e_row, j)) * inverse
                # d entropy / d z = -p (log p + entropy)
                slope = p * (weight * (load(choice(at, z_row, j)) + shift) - g)
                store(choice(at, z_row, j), slope)
            for j in range(choices, 8 * vectors):
                store(choice(at, z_row, j), fill(ZERO))
            for k in range(vectors):
                transpose(at + 32 * k, z_row, at + 32 * k, z_row)
        for r in range(rows):
            chosen = z + r * z_row + 4 * (first + peek_int(actions + 4 * (r * size + d)))
            poke(chosen, peek(chosen) + peek(scratch + SLOPE * column + 4 * r))


@kernel
def gaussian_rows(
    z, z_row, e, e_row, rows, vectors, actions, size, inverse_std, constant, scratch, column
):
    """Write u = (action - mean) / std to `e` and LOGP = constant - sum u^2 / 2.

    `actions` is the address of float32 `[rows, size]`.
    """
    for r in range(rows):
        at, to = z + r * z_row, e + r * e_row
        for j in range(size):
            poke(to + 4 * j, peek(actions + 4 * (r * size + j)))
        s = fill(ZERO)
        for k in range(vectors):
            u = (load(to + 32 * k) - load(at + 32 * k)) * load(inverse_std + 32 * k)
            store(to + 32 * k, u)
            s = fma(u, u, s)
        poke(scratch + LOGP * column + 4 * r, constant - HALF * total(s))
    for r in range(rows, (rows + 7) // 8 * 8):
        poke(scratch + LOGP * column + 4 * r, ZERO)


@kernel
def gaussian_slopes(
    z, z_row, e, e_row, rows, vectors, inverse_std, g_log_std, fresh, scratch, column
):
    """Write the derivative for the means over `z` and add that for log_std to `g_log_std`."""
    for k in range(vectors):
        inverse = load(inverse_std + 32 * k)
        s = fill(ZERO) if fresh else load(g_log_std + 32 * k)
        for r in range(rows):
            g = splat(scratch + SLOPE * column + 4 * r)
            u = load(e + r * e_row + 32 * k)
            gu = g * u
            store(z + r * z_row + 32 * k, gu * inverse)
            s = s + (gu * u - g)
        store(g_log_std + 32 * k, s)


@kernel
def surrogate(rows, clip, mean, scale, share, scratch, column, sums):
    """Write SLOPE = d loss / d logp of every sample and add to the sums; `share` is 1 / samples.

    The advantage used is (ADVANTAGE - mean) * scale.
    """
    one, zero = fill(ONE), fill(ZERO)
    low, high, limit = fill(ONE - clip), fill(ONE + clip), fill(clip)
    shift, factor, part = fill(mean), fill(scale), fill(share)
    loss = kl = clipped = fill(ZERO)
    for r in range(rows, (rows + 7) // 8 * 8):
        poke(scratch + OLD_LOGP * column + 4 * r, ZERO)
        poke(scratch + ADVANTAGE * column + 4 * r, mean)
    for r in range(0, rows, 8):
        at = scratch + 4 * r
        gap = load(at + LOGP * column) - load(at + OLD_LOGP * column)
        advantage = (load(at + ADVANTAGE * column) - shift) * factor
        ratio = exp(gap)
        free = ratio * advantage
        bound = lower_of(high, upper_of(low, ratio)) * advantage
        loss = loss - lower_of(bound, free)
        off = ratio - one
        kl = kl + (off - gap)
        clipped = clipped + where_less(limit, upper_of(off, zero - off), one, zero)
        store(at + SLOPE * column, where_less(bound, free, zero, zero - free * part))
    sums[POLICY_LOSS] += total(loss)
    sums[KL] += total(kl)
    sums[CLIPPED] += total(clipped)


@kernel
def value_loss(rows, value_clip, weight, scratch, column, sums):
    """Write SLOPE = d loss / d value (`weight` is vf_coef / samples); no clipping if it is negative."""
    zero, half, factor = fill(ZERO), fill(HALF), fill(weight)
    bound, negative = fill(value_clip), fill(-value_clip)
    loss = fill(ZERO)
    for r in range(rows, (rows + 7) // 8 * 8):
        poke(scratch + VALUE * column + 4 * r, ZERO)
        poke(scratch + RETURN * column + 4 * r, ZERO)
        poke(scratch + OLD_VALUE * column + 4 * r, ZERO)
    for r in range(0, rows, 8):
        at = scratch + 4 * r
        value, target = load(at + VALUE * column), load(at + RETURN * column)
        error = value - target
        square = error * error
        if value_clip >= ZERO:
            old = load(at + OLD_VALUE * column)
            moved = value - old
            held = (old + lower_of(bound, upper_of(negative, moved))) - target
            held_square = held * held
            # Inside the clip range both branches are the same function; outside it the held one is flat.
            flat = where_less(bound, upper_of(moved, zero - moved), zero, error)
            error = where_less(square, held_square, flat, error)
            square = upper_of(held_square, square)
        loss = fma(half, square, loss)
        store(at + SLOPE * column, error * factor)
    sums[VALUE_LOSS] += total(loss)


@kernel
def policy_block(
    rows, plan, segments, settings, mean, scale, count, packed, work, grads, fresh, sums
):  # fmt: skip
    """Turn the policy head's outputs of a block into derivatives of the loss."""
    column = 4 * plan.block
    scratch, actions = work + plan.scratch, work + plan.staged
    z, e = work + plan.logits, work + plan.exps
    share = np.float32(1.0 / count)
    clip = np.float32(settings.clip)
    if plan.gaussian:
        logs = 0.0
        for j in range(plan.actions):
            logs += peek(packed + plan.log_std + 4 * j)
        constant = np.float32(-logs - plan.actions * HALF_LOG_2PI)
        inverse = packed + plan.inverse_std
        vectors = plan.logits_vectors
        gaussian_rows(
            z, plan.logits_row, e, plan.exps_row, rows, vectors, actions, plan.actions,
            inverse, constant, scratch, column,
        )  # fmt: skip
        sums[ENTROPY] += rows * (logs + plan.actions * GAUSSIAN_ENTROPY)
        surrogate(rows, clip, mean, scale, share, scratch, column, sums)
        gaussian_slopes(
            z, plan.logits_row, e, plan.exps_row, rows, vectors, inverse,
            grads + plan.grad_log_std, fresh, scratch, column,
        )  # fmt: skip
        return
    softmax_columns(z, plan.logits_row, e, plan.exps_row, rows, actions, segments, scratch, column)
    sums[ENTROPY] += categorical_samples(rows, segments, scratch, column)
    surrogate(rows, clip, mean, scale, share, scratch, column, sums)
    bonus = np.float32(settings.entropy / count)
    softmax_slopes(
        z, plan.logits_row, e, plan.exps_row, rows, actions, segments, bonus, scratch,
        column,
    )  # fmt: skip


@kernel
def value_block(rows, plan, settings, count, work, sums):
    """Turn the values of a block into derivatives of the loss."""
    column = 4 * plan.block
    scratch = work + plan.scratch
    at = work + plan.values
    for r in range(rows):
        poke(scratch + VALUE * column + 4 * r, peek(at + r * plan.values_row))
    limit = np.float32(settings.value_clip if settings.value_clip > 0 else -1.0)
    value_loss(rows, limit, np.float32(settings.value_coef / count), scratch, column, sums)
    for r in range(rows):
        poke(at + r * plan.values_row, peek(scratch + SLOPE * column + 4 * r))
