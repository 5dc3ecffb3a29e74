"""The update of the fused learner: all minibatches of all epochs in one compiled call.

`update` is called once by every thread and returns when all minibatches of all epochs are done:

    each lane      stage -> forward -> loss -> backward, block by block, into gradients of its own;
                   with separate trunks, policy and value are two pieces of work; threads have one that is theirs, pack
                   its weights for themselves, and help with the other when theirs is done
    barrier        KL stop is decided by every thread from the same sums
    each thread    adds the lanes' gradients of its rows of `theta`, and their squares
    barrier        the norm, clipped
    each thread    Adam on its rows
    barrier

Every sum has an order that does not depend on which thread does it.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import math

import numpy as np

from holdfast.jit import kernel
from holdfast.learn.fused_act import forward
from holdfast.learn.fused_adam import (
    BETA1,
    BETA2,
    adam,
    clear_rows,
    copy_row,
    pack_rows,
    reduce_row,
)
from holdfast.learn.fused_loss import KL, NOTES, SUMS, policy_block, value_block
from holdfast.learn.fused_seven import (
    LEAST_ROWS,
    panel_sums,
    row_sums,
    seven_backward,
    seven_gradient,
    seven_gradient_end,
)
from holdfast.learn.fused_simd import address, peek, poke
from holdfast.learn.fused_stage import fetch, stage, write_records
from holdfast.learn.fused_sync import barrier, ticket
from holdfast.learn.fused_tiles import ADD, SET, column_sums, gradient, product
from holdfast.learn.fused_transpose import transpose

SETTINGS = np.dtype(
    [
        (name, np.float64)
        for name in [
            "lr",
            "clip",
            "value_clip",
            "entropy",
            "value_coef",
            "max_grad_norm",
            "target_kl",
            "ewc",
            "normalise",
        ]
    ]
    + [("step", np.int64)]
)
"""`value_clip`, `max_grad_norm`, `target_kl`, `ewc`: 0 is off; `step` counts Adam's steps so far."""

OUT = ("policy_loss", "value_loss", "entropy_mean", "approx_kl", "clip_fraction", "grad_norm")
"""What `update` sums over minibatches into `out`; the last place holds the number of steps made."""

SEVEN_SAMPLES = 512
"""Samples of a minibatch from which large layers are multiplied by `fused_seven`."""
PARTS_SAMPLES = 192
"""Samples of a lane from which their gradients are, too."""
ZERO, ONE = np.float32(0.0), np.float32(1.0)


@kernel
def _backward(first, last, plan, layers, packed, work, grads, rows, full, mode, parts):
    """Add (or set) the gradients of layers `first..last-1`; activations become derivatives.

    `full` rows (those beyond `rows` are zeros) go through large layers with seven products, 0 if none is to. With `parts`,
    their gradients are left in parts. These, and the first layer's, are finished once a lane: see `_finish_lane`.
    """
    sums, sums_row = work + plan.sums, plan.sums_row
    for k in range(last - 1, first - 1, -1):
        y = layers[k]
        x, z = work + y.source, work + y.out
        seven = full > 0 and y.sevenths >= 0
        if seven:
            row_sums(True, z, y.out_row, full, y.outputs, sums, sums_row)
        if seven and parts:
            seven_gradient(
                z, y.out_row, sums, y.outputs, x, y.source_row, work + y.source_sums, y.inputs, sums_row,
                full, work + y.sevenths, mode,
            )  # fmt: skip
        elif y.turned >= 0:
            gradient(
                x, y.source_row, y.inputs + 1, z, y.out_row, y.columns, rows, work + y.turned, 4 * y.columns,
                mode,
            )  # fmt: skip
        else:
            # In a lane with parts, only its last block can be too small for them.
            gradient(
                z, y.out_row, y.outputs, x, y.source_row, y.source_columns, rows, grads + y.grad, y.grad_row,
                SET if parts and y.sevenths >= 0 else mode,
            )  # fmt: skip
        if k > first or y.inputs == y.source_columns:
            column_sums(z, y.out_row, y.columns, rows, grads + y.grad_bias, mode)
        if seven:
            seven_backward(
                z, y.out_row, full, sums, sums_row, packed + y.backward, packed + y.backward_sums,
                y.outputs, y.source_columns, x, y.source_row, y.slope, work + plan.kept,
            )  # fmt: skip
        elif k > first:
            product(
                z, y.out_row, max(rows, full), packed + y.backward, y.outputs, y.source_columns, x,
                y.source_row, 0, y.slope,
            )  # fmt: skip


@kernel
def _finish_lane(first, last, layers, work, grads, mode):
    """Turn the first layer's gradient back; that of its biases is that of the input that is always 1. Put those of layers
    `first..last-1` together that are in parts."""
    layer = layers[first]
    if layer.turned >= 0:
        at, row = work + layer.turned, 4 * layer.columns
        for o in range(0, layer.columns, 8):
            to = grads + layer.grad + o * layer.grad_row
            for i in range(0, layer.inputs, 8):
                transpose(at + i * row + 4 * o, row, to + 4 * i, layer.grad_row)
        copy_row(at + layer.inputs * row, layer.outputs, grads + layer.grad_bias)
    elif layer.inputs < layer.source_columns:
        at = grads + layer.grad + 4 * layer.inputs
        for o in range(layer.outputs):
            poke(grads + layer.grad_bias + 4 * o, peek(at + o * layer.grad_row))
    for k in range(first, last):
        y = layers[k]
        if y.sevenths >= 0:
            seven_gradient_end(
                work + y.sevenths, y.outputs, y.inputs, grads + y.grad, y.grad_row, mode
            )


@kernel
def _lane(
    net, plan, layers, segments, settings, mean, scale, count, packed, work, grads, obs, records,
    order, start, end, then, sums, seven,
):  # fmt: skip
    """Write the gradients and sums of one net and the samples `order[start:end]`, a part of a minibatch of `count`.

    `then` is where this thread goes on if all are equally fast.
    """
    column = 4 * plan.block
    scratch, actions = work + plan.scratch, work + plan.staged
    notes, width = address(records), 4 * records.shape[1]
    data, stride = address(obs), 4 * plan.inputs
    together = width >= 4 * (NOTES + plan.actions + plan.inputs)
    if together:
        data, stride = notes + 4 * (NOTES + plan.actions), width
    padded = plan.inputs < layers[0].source_columns
    source = work + layers[0].source
    first = net * plan.policy_layers
    last = plan.policy_layers if net == 0 else plan.layers
    head = layers[last - 1]
    parts = seven and end - start >= PARTS_SAMPLES
    full = 0
    for lo in range(start, end, plan.block):
        rows = min(plan.block, end - lo)
        full = (rows + 3) // 4 * 4 if seven and rows >= LEAST_ROWS else 0
        stage(
            order, lo, rows, notes, width, plan.actions, data, stride, plan.inputs, source,
            plan.source_row, padded, scratch, column, actions,
        )  # fmt: skip
        clear_rows(source, plan.source_row, rows, full, layers[0].source_columns)
        # While this block is computed, fetch the next one.
        ahead = lo + plan.block if lo + plan.block < end else then
        fetch(
            order, ahead, min(ahead + plan.block, order.size), notes, width, data, stride, plan.inputs,
            together,
        )  # fmt: skip
        mode = SET if lo == start else ADD
        forward(first, last, plan, layers, packed, work, max(rows, full), full > 0)
        if net == 0:
            policy_block(
                rows, plan, segments, settings, mean, scale, count, packed, work, grads, lo == start,
                sums,
            )  # fmt: skip
        if net == 1 or plan.nets == 1:
            value_block(rows, plan, settings, count, work, sums)
        clear_rows(work + head.out, head.out_row, rows, full, head.columns)
        _backward(first, last, plan, layers, packed, work, grads, rows, full, mode, parts)
    if end > start:
        _finish_lane(first, last if parts else first, layers, work, grads, SET if full > 0 else ADD)


@kernel
def _sum_weights(net, plan, layers, packed):
    """Make the sums of a net's weights that `fused_seven` needs."""
    for k in range(net * plan.policy_layers, plan.policy_layers if net == 0 else plan.layers):
        y = layers[k]
        if y.forward_sums >= 0:
            panel_sums(False, packed + y.forward, y.inputs, y.columns, packed + y.forward_sums)
            panel_sums(
                True, packed + y.backward, y.outputs, y.source_columns, packed + y.backward_sums
            )


@kernel
def _standardise(advantages, order, wanted):
    """Return (mean, 1 / (std + 1e-8)) of a minibatch's advantages, or (0, 1) if not wanted."""
    count = order.size
    if not wanted or count < 2:
        return ZERO, ONE
    # One pass, relative to the first of them: no sample is further from the mean than sqrt(count) deviations, so
    # the difference of sums below costs at most a factor of `count` of float64's 1e-16.
    first = np.float64(advantages[order[0]])
    # Two chains of additions, because one would wait for itself.
    s = t = squares = others = 0.0
    for k in range(0, count - 1, 2):
        x, y = advantages[order[k]] - first, advantages[order[k + 1]] - first
        s += x
        t += y
        squares += x * x
        others += y * y
    if count % 2:
        x = advantages[order[-1]] - first
        s += x
        squares += x * x
    away = (s + t) / count
    variance = (squares + others - count * away * away) / (count - 1)
    if variance < 0.0:
        variance = 0.0
    return np.float32(first + away), np.float32(1.0 / (math.sqrt(variance) + 1e-8))


@kernel
def update(
    thread, threads, plans, layers, rows, cuts, segments, options,
    theta, m, v, grad, squares, anchor, fisher, packed, grads, shares, work,
    obs, actions, log_probs, values, advantages, returns, records, order, borders, moments,
    lane_sums, sync, out,
):  # fmt: skip
    """Make all gradient steps; return 0, or 1 when the call was aborted.

    `shares [lanes + 1]` say where lanes begin and end, in parts of the last; `actions [n, K]` are float32 whatever
    their bits mean; `records [n, NOTES + K or more]` is scratch (with room for the observations if they are short);
    `order [epochs, S]` are flat positions in the rollout; `borders [M+1]` cut each epoch into minibatches;
    `moments [epochs * M, 2]` is scratch for what `_standardise` says of them; `out [7]` receives the sums of
    `OUT` and the number of steps.
    """
    plan, settings = plans[0], options[0]
    lanes = grads.shape[0]
    units = lanes * plan.nets
    lane_bytes = 4 * grads.shape[1]
    at_theta, at_grads = address(theta), address(grads)
    at_packed = address(packed) + 4 * packed.shape[1] * thread
    at_work = address(work) + 4 * work.shape[1] * thread
    at_sync = address(sync)
    # The places in `theta` of this thread's rows.
    lo = rows[cuts[thread]].theta if cuts[thread] < rows.size else theta.size
    hi = rows[cuts[thread + 1]].theta if cuts[thread + 1] < rows.size else theta.size
    results = np.zeros(len(OUT) + 1)
    minibatch = 0
    step = settings.step
    # Which step's weights this thread has packed for itself, and summed. It has a copy of its own, because what one core
    # writes another would have to fetch line by line.
    packed_at, summed_at = np.full(2, step), np.full(2, step - 1)
    home = thread * plan.nets // threads
    stopped, lag = False, 0.0
    samples = advantages.size
    write_records(
        samples * thread // threads, samples * (thread + 1) // threads,
        log_probs, advantages, returns, values, actions, obs, records,
    )  # fmt: skip
    parts = borders.size - 1
    for k in range(thread, moments.shape[0], threads):
        batch = order[k // parts, borders[k % parts] : borders[k % parts + 1]]
        moments[k, 0], moments[k, 1] = _standardise(advantages, batch, settings.normalise > 0)
    if barrier(at_sync, threads):
        return 1
    for epoch in range(order.shape[0]):
        for b in range(parts):
            first, count = borders[b], borders[b + 1] - borders[b]
            mean, scale = moments[minibatch, 0], moments[minibatch, 1]
            # Not for few samples: the sums of weights would cost more than they save.
            seven = count >= SEVEN_SAMPLES
            for turn in range(plan.nets):
                net = (home + turn) % plan.nets
                # Whoever is free takes the next lane; small ones come last, so a thread that lost its core for a while
                # holds up little. Each thread draws one ticket too many a net and minibatch, which fixes the first of
                # the next.
                while True:
                    lane = ticket(at_sync, net) - minibatch * (lanes + threads)
                    if lane >= lanes:
                        break
                    if packed_at[net] < step:
                        pack_rows(rows, net, at_theta, at_packed)
                        packed_at[net] = step
                    if seven and summed_at[net] < step:
                        _sum_weights(net, plan, layers, at_packed)
                        summed_at[net] = step
                    unit = lane * plan.nets + net
                    lane_sums[unit, :] = 0.0
                    start = first + count * shares[lane] // shares[lanes]
                    end = first + count * shares[lane + 1] // shares[lanes]
                    after = min(lane + max(1, threads // plan.nets), lanes)
                    then = first + count * shares[after] // shares[lanes]
                    if start == end:
                        grads[lane, :] = ZERO
                    _lane(
                        net, plan, layers, segments, settings, mean, scale, count, at_packed, at_work,
                        at_grads + lane * lane_bytes, obs, records, order[epoch], start, end, then,
                        lane_sums[unit], seven,
                    )  # fmt: skip
            minibatch += 1
            if barrier(at_sync, threads):
                return 1
            kl = 0.0
            for unit in range(units):
                kl += lane_sums[unit, KL]
            if minibatch == 1:
                lag = kl / count
            if settings.target_kl > 0 and kl / count - lag > 1.5 * settings.target_kl:
                stopped = True
                break
            for k in range(SUMS):
                s = 0.0
                for unit in range(units):
                    s += lane_sums[unit, k]
                results[k] += s / count
            for k in range(cuts[thread], cuts[thread + 1]):
                squares[k] = reduce_row(
                    rows[k], lanes, at_grads, lane_bytes, settings, theta, anchor, fisher,
                    address(grad),
                )  # fmt: skip
            if barrier(at_sync, threads):
                return 1
            norm = 0.0
            for k in range(squares.size):
                norm += squares[k]
            norm = math.sqrt(norm)
            coefficient = 1.0
            if settings.max_grad_norm > 0:
                # Written so that a NaN norm spoils the step visibly, as torch's does.
                ratio = settings.max_grad_norm / (norm + 1e-6)
                coefficient = 1.0 if ratio > 1.0 else ratio
            step += 1
            size = np.float32(settings.lr / (1.0 - BETA1**step))
            unbias = np.float32(1.0 / math.sqrt(1.0 - BETA2**step))
            adam(
                lo, hi, at_theta, address(m), address(v), address(grad),
                np.float32(coefficient), size, unbias, at_work + plan.scratch,
            )  # fmt: skip
            results[SUMS] += norm
            results[SUMS + 1] += 1
            if barrier(at_sync, threads):
                return 1
        if stopped:
            break
    for net in range(plan.nets):
        if packed_at[net] < step:
            pack_rows(rows, net, at_theta, at_packed)
    if thread == 0:
        out[:] = results
    return 0
