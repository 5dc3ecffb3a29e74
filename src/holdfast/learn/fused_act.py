"""Inference: actions, log-probabilities and values of rows of observations, in one compiled call."""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import math

import numpy as np

from holdfast.jit import kernel
from holdfast.learn.fused_adam import copy_row
from holdfast.learn.fused_simd import (
    address,
    exp,
    fill,
    largest,
    load,
    peek,
    poke,
    poke_int,
    store,
    total,
    upper_of,
)
from holdfast.learn.fused_tiles import LINEAR, product, single_product

SAMPLE, BEST, VALUES = range(3)
"""What a job asks for: sample from the noise; take the best action; only values."""

MODE, ROWS, PART, OBS, NOISE, ACTIONS, LOG_PROBS, VALUES_OUT, JOB = range(9)
"""What a job says; `ROWS` are dealt out in runs of `PART`."""

ZERO = np.float32(0.0)
HALF_LOG_2PI = 0.9189385332046727


@kernel
def forward(first, last, layers, packed, work, rows):
    """Run layers `first..last-1` on the staged block."""
    for k in range(first, last):
        y = layers[k]
        if y.outputs == 1 and y.activate == LINEAR:
            single_product(
                work + y.source, y.source_row, rows, packed + y.forward, y.inputs,
                work + y.out, y.out_row, packed + y.bias,
            )  # fmt: skip
            continue
        product(
            work + y.source, y.source_row, rows, packed + y.forward, y.inputs, y.columns,
            work + y.out, y.out_row, packed + y.bias, y.activate,
        )  # fmt: skip


@kernel
def act_rows(worker, lo, hi, job, plans, layers, segments, packed, work):
    """Write actions, log-probabilities and values of rows `lo..hi-1` of a job; `worker` chooses the row of `work`.

    `job [JOB]` holds the mode and byte addresses of obs `[n, D]`, noise `[n, K]` (uniform for discrete actions,
    standard normal for Gaussian ones), actions `[n, K]` (int32 or float32), log-probabilities and values `[n]`.
    A choice is the first whose cumulated weight reaches noise * total.
    """
    plan = plans[0]
    at_work = address(work) + 4 * work.shape[1] * worker
    at_packed = address(packed)
    source = at_work + layers[0].source
    mode, wide = job[MODE], 4 * plan.actions
    for start in range(lo, hi, plan.block):
        rows = min(plan.block, hi - start)
        for r in range(rows):
            row = job[OBS] + 4 * plan.inputs * (start + r)
            copy_row(row, plan.inputs, source + r * plan.source_row)
        if mode != VALUES or plan.nets == 1:
            forward(0, plan.policy_layers, layers, at_packed, at_work, rows)
            if mode != VALUES:
                for r in range(rows):
                    z = at_work + plan.logits + r * plan.logits_row
                    e = at_work + plan.exps + r * plan.exps_row
                    noise = job[NOISE] + wide * (start + r)
                    to = job[ACTIONS] + wide * (start + r)
                    if plan.gaussian:
                        log_prob = _act_gaussian(z, mode, plan, at_packed, noise, to)
                    else:
                        log_prob = _act_discrete(z, e, mode, segments, noise, to)
                    poke(job[LOG_PROBS] + 4 * (start + r), log_prob)
        if plan.nets == 2:
            forward(plan.policy_layers, plan.layers, layers, at_packed, at_work, rows)
        for r in range(rows):
            value = peek(at_work + plan.values + r * plan.values_row)
            poke(job[VALUES_OUT] + 4 * (start + r), value)


@kernel
def _act_discrete(z, e, mode, segments, noise, picks):
    """Choose in every segment; return the log-probability."""
    log_prob = ZERO
    for d in range(segments.shape[0]):
        first, choices, vectors = segments[d, 0], segments[d, 1], segments[d, 2]
        at, to = z + 4 * first, e + 4 * first
        top = load(at)
        for k in range(1, vectors):
            top = upper_of(load(at + 32 * k), top)
        highest = largest(top)
        shift = fill(highest)
        s = fill(ZERO)
        for k in range(vectors):
            w = exp(load(at + 32 * k) - shift)
            store(to + 32 * k, w)
            s = s + w
        weight = total(s)
        pick = 0
        if mode == BEST:
            while pick < choices - 1 and not peek(at + 4 * pick) >= highest:
                pick += 1
        else:
            last = ZERO
            for k in range(choices):
                last += peek(to + 4 * k)
            goal = peek(noise + 4 * d) * last
            reached = peek(to)
            while pick < choices - 1 and reached < goal:
                pick += 1
                reached += peek(to + 4 * pick)
        poke_int(picks + 4 * d, pick)
        log_prob += peek(at + 4 * pick) - highest - np.float32(math.log(weight))
    return log_prob


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
