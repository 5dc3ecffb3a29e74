"""Inference: actions, log-probabilities and values of rows of observations, in one compiled call."""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import math

import numpy as np

from holdfast.jit import kernel
from holdfast.learn.fused_adam import copy_row
from holdfast.learn.fused_seven import row_sums, seven_forward
from holdfast.learn.fused_simd import (
    address,
    exp,
    fill,
    load,
    log,
    peek,
    poke,
    poke_int,
    store,
    upper_of,
    where_less,
)
from holdfast.learn.fused_tiles import FEW, LINEAR, few_product, product
from holdfast.learn.fused_transpose import choice, turn_over

SAMPLE, BEST, VALUES = range(3)
"""What a job asks for: sample from the noise; take the best action; only values."""

MODE, ROWS, PART, OBS, NOISE, ACTIONS, LOG_PROBS, VALUES_OUT, JOB = range(9)
"""What a job says; `ROWS` are dealt out in runs of `PART`."""

ZERO = np.float32(0.0)
HALF_LOG_2PI = 0.9189385332046727


@kernel
def forward(first, last, plan, layers, packed, work, rows, seven):
    """Run layers `first..last-1` on the staged block, large ones with seven products if so told."""
    for k in range(first, last):
        y = layers[k]
        if y.outputs <= FEW and y.activate == LINEAR:
            few_product(
                work + y.source, y.source_row, rows, packed + y.forward, 4 * y.source_columns, y.outputs,
                y.inputs, work + y.out, y.out_row, packed + y.bias,
            )  # fmt: skip
            continue
        if seven and y.forward_sums >= 0:
            sums = work + y.source_sums
            row_sums(False, work + y.source, y.source_row, rows, y.inputs, sums, plan.sums_row)
            seven_forward(
                work + y.source, y.source_row, rows, sums, plan.sums_row, packed + y.forward,
                packed + y.forward_sums, y.inputs, y.columns, work + y.out, y.out_row, packed + y.bias,
                y.activate, work + plan.kept,
            )  # fmt: skip
            continue
        product(
            work + y.source, y.source_row, rows, packed + y.forward, y.inputs, y.columns,
            work + y.out, y.out_row, packed + y.bias, y.activate,
        )  # fmt: skip


@kernel
def act_rows(worker, lo, hi, job, plans, layers, segments, packed, work):
    """Write actions, log-probabilities and values of rows `lo..hi-1` of a job with the weights and scratch of `worker`.

    `job [JOB]` holds the mode and byte addresses of obs `[n, D]`, noise `[n, K]` (uniform for discrete actions,
    standard normal for Gaussian ones), actions `[n, K]` (int32 or float32), log-probabilities and values `[n]`.
    A choice is the first whose cumulated weight reaches noise * total.
    """
    plan = plans[0]
    at_work = address(work) + 4 * work.shape[1] * worker
    at_packed = address(packed) + 4 * packed.shape[1] * worker
    source = at_work + layers[0].source
    mode, wide = job[MODE], 4 * plan.actions
    for start in range(lo, hi, plan.block):
        rows = min(plan.block, hi - start)
        for r in range(rows):
            row = job[OBS] + 4 * plan.inputs * (start + r)
            copy_row(row, plan.inputs, source + r * plan.source_row)
        if mode != VALUES or plan.nets == 1:
            forward(0, plan.policy_layers, plan, layers, at_packed, at_work, rows, False)
            noise, to = job[NOISE] + wide * start, job[ACTIONS] + wide * start
            log_probs = job[LOG_PROBS] + 4 * start
            if mode != VALUES and plan.gaussian:
                for r in range(rows):
                    z = at_work + plan.logits + r * plan.logits_row
                    log_prob = _act_gaussian(
                        z, mode, plan, at_packed, noise + wide * r, to + wide * r
                    )
                    poke(log_probs + 4 * r, log_prob)
            elif mode != VALUES:
                _act_discrete(
                    at_work + plan.logits, plan.logits_row, at_work + plan.exps, plan.exps_row,
                    rows, mode, segments, at_work + plan.scratch, noise, to, log_probs,
                )  # fmt: skip
        if plan.nets == 2:
            forward(plan.policy_layers, plan.layers, plan, layers, at_packed, at_work, rows, False)
        for r in range(rows):
            value = peek(at_work + plan.values + r * plan.values_row)
            poke(job[VALUES_OUT] + 4 * (start + r), value)


@kernel
def _act_discrete(
    z, z_row, e, e_row, rows, mode, segments, room, noise, picks, log_probs
):  # fmt: skip
    """Choose in every segment, for eight rows at a time; logits `z` are transposed, `room` is for one vector."""
    size = segments.shape[0]
    for r in range(0, rows, 8):
        count = min(8, rows - r)
        log_prob = fill(ZERO)
        for d in range(size):
            first, choices, vectors = segments[d, 0], segments[d, 1], segments[d, 2]
            at, to = z + r * z_row + 4 * first, e + r * e_row + 4 * first
            highest = turn_over(at, z_row, choices, vectors)
            weight = fill(ZERO)
            for j in range(choices):
                w = exp(load(choice(at, z_row, j)) - highest)
                store(choice(to, e_row, j), w)
                weight = weight + w
            pick, chosen = fill(ZERO), load(at)
            if mode == BEST:
                for j in range(1, choices):
                    v = load(choice(at, z_row, j))
                    pick = where_less(chosen, v, fill(np.float32(j)), pick)
                    chosen = upper_of(v, chosen)
            else:
                for i in range(count):
                    poke(room + 4 * i, peek(noise + 4 * ((r + i) * size + d)))
                goal, reached = load(room) * weight, load(to)
                for j in range(1, choices):
                    pick = where_less(reached, goal, fill(np.float32(j)), pick)
                    chosen = where_less(reached, goal, load(choice(at, z_row, j)), chosen)
                    reached = reached + load(choice(to, e_row, j))
            log_prob = log_prob + (chosen - highest - log(weight))
            store(room, pick)
            for i in range(count):
                poke_int(picks + 4 * ((r + i) * size + d), np.int64(peek(room + 4 * i)))
        store(room, log_prob)
        for i in range(count):
            poke(log_probs + 4 * (r + i), peek(room + 4 * i))


@kernel
def _act_gaussian(z, mode, plan, packed, noise, moves):
    """Write mean + std * noise (or the mean); return the log-probability."""
    log_prob = ZERO
    for j in range(plan.actions):
        log_std = peek(packed + plan.log_std + 4 * j)
        u = ZERO if mode == BEST else peek(noise + 4 * j)
        poke(moves + 4 * j, peek(z + 4 * j) + np.float32(math.exp(log_std)) * u)
        log_prob -= np.float32(0.5) * u * u + log_std + np.float32(HALF_LOG_2PI)
    return log_prob
