"""The sum tree of a replay, and the copies into and out of its storage, compiled.

The tree has `FAN` children a node, so that a way down among a million items reads five groups of two cache lines
instead of twenty nodes one by one. All nodes stand in one vector, the group below the root first; `offsets[k]` is where
level k begins, `offsets[-1]` where the last (the leaves) ends. Every level is padded to whole groups with zeros. A node
is always the sum of its children in their order, so equal leaves give an equal tree, however they came about.

A row of `side` holds what a step has beside its frame, as bytes: the action, the scalars (log-probability, reward, final
value, and in one mode advantage and return), padding, and last the flags. Kernels take it in several widths at once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from holdfast.jit import kernel
from holdfast.records import F32, F64, Array, Bools

FAN = 16
SHIFT = 4
"""log2 of FAN."""
MASK, TERMINATED, TRUNCATED, BEGUN = 1, 2, 4, 8
"""Bits of the flags."""
HALF_MAX = np.float32(6e4)
"""Bound of what is stored with half precision."""
UP, DOWN = np.float32(2.0**112), np.float32(2.0**-112)
"""Between a float32 and the one whose bits, moved by 13, are those of the half-precision number."""

Longs = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Shorts = npt.NDArray[np.uint16]
Words = npt.NDArray[np.uint32]


def tree_offsets(items: int) -> Longs:
    """Return where the levels of a tree of so many leaves begin and end."""
    sizes = []
    size = items
    while True:
        groups = -(-size // FAN)
        sizes.append(groups * FAN)
        if groups == 1:
            break
        size = groups
    return np.concatenate([[0], np.cumsum(sizes[::-1])]).astype(np.int64)


@kernel
def tree_total(nodes: F64) -> float:
    """Return the sum of all leaves."""
    total = 0.0
    for k in range(FAN):
        total += nodes[k]
    return total


@kernel
def tree_repair(nodes: F64, offsets: Longs, items: Longs) -> None:
    """Bring the sums above these leaves up to date."""
    for level in range(len(offsets) - 2, 0, -1):
        depth = len(offsets) - 1 - level
        first, above = offsets[level], offsets[level - 1]
        done = -1
        for i in range(len(items)):
            parent = items[i] >> (SHIFT * depth)
            if parent != done:
                total = 0.0
                child = first + (parent << SHIFT)
                for k in range(FAN):
                    total += nodes[child + k]
                nodes[above + parent] = total
                done = parent


@kernel
def tree_descend(nodes: F64, first: int, chosen: Longs, places: F64) -> None:
    """Replace nodes by those of their children (a level that begins at `first`) at which the sum passes `places`.

    What was passed is taken off `places`. Rounding may leave one beyond the end: then it is the last child that weighs
    anything. There are no branches, so that the reads of one draw need not wait for those of another.
    """
    for i in range(len(chosen)):
        group = chosen[i] << SHIFT
        place, passed, taken, which = places[i], 0.0, 0.0, 0
        for k in range(FAN):
            weight = nodes[first + group + k]
            here = (weight > 0.0) & (passed <= place)
            which = k if here else which
            taken = passed if here else taken
            passed += weight
        chosen[i] = group + which
        places[i] = place - taken


@kernel
def draw(
    nodes: F64,
    offsets: Longs,
    places: F64,
    stratified: bool,
    beta: float,
    items: Longs,
    weights: F32,
) -> int:
    """Draw items with probability `leaf / total`, in order; write importance weights; return how many are distinct.

    `places` are numbers from [0, 1), which are used up; they are sorted unless `stratified`: then draw i comes from the
    i-th of equal shares of the total. Since the draws ascend, one walk along a level of about as many nodes serves them
    all; from there on they go down level by level. The weights are `probability ** -beta`, divided by the largest.
    """
    count = len(places)
    total, leaves = tree_total(nodes), offsets[len(offsets) - 2]
    level = 0
    while level < len(offsets) - 2 and offsets[level + 2] - offsets[level + 1] <= 4 * count:
        level += 1
    first = offsets[level]
    last = offsets[level + 1] - first - 1
    while last > 0 and nodes[first + last] <= 0.0:
        last -= 1
    node, passed = 0, 0.0
    for i in range(count):
        place = ((i + places[i]) / count if stratified else places[i]) * total
        while node < last and place - passed >= nodes[first + node]:
            passed += nodes[first + node]
            node += 1
        items[i], places[i] = node, place - passed
    for below in range(level + 1, len(offsets) - 1):
        tree_descend(nodes, offsets[below], items, places)
    power, highest, distinct = np.float32(-beta), np.float32(0.0), 0
    for i in range(count):
        if i > 0 and items[i] == items[i - 1]:
            weights[i] = weights[i - 1]
        else:
            weight = np.float32(nodes[leaves + items[i]] / total) ** power
            weights[i] = weight
            highest = max(highest, weight)
            distinct += 1
    for i in range(count):
        weights[i] /= highest
    return distinct


@kernel
def set_priorities(
    nodes: F64, offsets: Longs, items: Longs, priorities: F64, alpha: float, floor: float
) -> float:
    """Set `(priority + floor) ** alpha` of these items, 0 where it is negative; return the highest priority."""
    leaves, highest, power = offsets[len(offsets) - 2], 0.0, np.float32(alpha)
    known, weight = -1.0, 0.0
    for i in range(len(items)):
        priority = priorities[i]
        if priority < 0.0:
            nodes[leaves + items[i]] = 0.0
            continue
        highest = max(highest, priority)
        if priority != known:
            known, weight = priority, float(np.float32(priority + floor) ** power)
        nodes[leaves + items[i]] = weight
    tree_repair(nodes, offsets, items)
    return highest


@kernel
def push_priorities(
    nodes: F64,
    offsets: Longs,
    values: F64,
    finite: Bools,
    serial: int,
    strips: int,
    alpha: float,
    floor: float,
) -> tuple[float, int]:
    """Set the priorities `[N, each]` of the strips from `serial` on; return the highest, and how many are never drawn."""
    slots, each = values.shape
    items = np.empty(slots * each, np.int64)
    left_out = 0
    for n in range(slots):
        place = (serial + n) % strips
        for j in range(each):
            items[n * each + j] = place * each + j
            if not finite[n]:
                values[n, j] = -1.0
            left_out += values[n, j] < 0.0
    flat = values.reshape(slots * each)
    return set_priorities(nodes, offsets, items, flat, alpha, floor), left_out


@kernel
def current_items(
    indices: Longs, following: int, strips: int, each: int, priorities: F64, items: Longs
) -> int:
    """Write the items that indices stand for, with their priorities, to the front; return how many are still there.

    `following` is the serial number of the next strip: those of the last `strips` before it are there.
    """
    kept = 0
    for i in range(len(indices)):
        serial = indices[i] // each
        if following - strips <= serial < following:
            items[kept] = serial % strips * each + indices[i] - serial * each
            priorities[kept] = priorities[i]
            kept += 1
    return kept


@kernel
def sequence_priorities(errors: F32, mask: Bools, length: int, eta: float, out: F64) -> None:
    """Write `eta * max + (1 - eta) * mean` of |errors [T, N]| over the open steps of every sequence, `out [N, T/length]`.

    A sequence without an open step, or with an error that is not a number, gets -1: it is never drawn.
    """
    slots, count = out.shape
    for n in range(slots):
        for j in range(count):
            highest, total, steps = 0.0, 0.0, 0
            for t in range(j * length, (j + 1) * length):
                if mask[t, n]:
                    error = abs(float(errors[t, n]))
                    highest = max(highest, error)
                    total += error
                    steps += 1
            value = eta * highest + (1.0 - eta) * total / max(steps, 1)
            out[n, j] = value if steps > 0 and np.isfinite(total) else -1.0


@kernel
def store_frames(frames: Array, serial: int, out: Array) -> None:
    """Copy `frames [R, N, D]` of the slots to their strips `out [S, R, D]`, slot n to `(serial + n) % S`."""
    rows, slots, size = frames.shape
    strips = len(out)
    for n in range(slots):
        place = (serial + n) % strips
        for r in range(rows):
            for k in range(size):
                out[place, r, k] = frames[r, n, k]


@kernel
def store_side(
    serial: int,
    history: int,
    actions: Words,
    scalars: F32,
    mask: Bools,
    terminations: Bools,
    truncations: Bools,
    begun: Bools,
    half: bool,
    side: Bytes,
    shorts: Shorts,
    words: Words,
    push: int,
    pushed_at: Longs,
    finite: Bools,
) -> None:
    """Pack actions, `scalars [F, T, N]` and flags of the slots; write which slots hold finite numbers only.

    `shorts` and `words` are views of `side`. Numbers are bounded if they are stored with half precision.
    """
    number = np.empty(1, np.float32)
    bits = number.view(np.uint32)
    kinds, steps, slots = scalars.shape
    strips, rows, width = side.shape
    after = actions.shape[2]
    for n in range(slots):
        place = (serial + n) % strips
        good = True
        for r in range(rows):
            t = r - history
            flags = BEGUN if begun[r, n] else 0
            if t >= 0 and mask[t, n]:
                flags |= MASK
            if 0 <= t < steps:
                flags |= TERMINATED if terminations[t, n] else 0
                flags |= TRUNCATED if truncations[t, n] else 0
                for k in range(after):
                    words[place, r, k] = actions[t, n, k]
                for k in range(kinds):
                    value = scalars[k, t, n]
                    if not np.isfinite(value):
                        good, value = False, np.float32(0.0)
                    if half:
                        number[0] = min(abs(value), HALF_MAX) * DOWN
                        # round to the nearest, ties to even
                        odd = (bits[0] >> np.uint32(13)) & np.uint32(1)
                        low = (bits[0] + np.uint32(0xFFF) + odd) >> np.uint32(13)
                        sign = np.uint32(0x8000) if value < 0 else np.uint32(0)
                        shorts[place, r, 2 * after + k] = low | sign
                    else:
                        number[0] = value
                        words[place, r, after + k] = bits[0]
            side[place, r, width - 1] = flags
        pushed_at[place] = push
        finite[n] = good


@kernel
def gather_frames(items: Longs, each: int, length: int, frames: Array, out: Array) -> None:
    """Copy the frames of sequences to `out [H+L+1, B, D]`: item = strip * each + which of its sequences."""
    rows, size = len(out), frames.shape[2]
    for b in range(len(items)):
        strip = items[b] // each
        begin = (items[b] - strip * each) * length
        for r in range(rows):
            for k in range(size):
                out[r, b, k] = frames[strip, begin + r, k]


@kernel
def gather_side(
    items: Longs,
    each: int,
    length: int,
    half: bool,
    side: Bytes,
    shorts: Shorts,
    words: Words,
    following: int,
    pushed_at: Longs,
    push: int,
    indices: Longs,
    ages: Longs,
    actions: Words,
    scalars: F32,
    rewards: F64,
    mask: Bools,
    terminations: Bools,
    truncations: Bools,
    begun: Bools,
) -> None:
    """Copy all but the frames of sequences out of storage, time first; the rewards (scalar 1) as float64 too.

    `following` is the serial number of the next strip, `push` that of the last rollout.
    """
    number = np.empty(1, np.float32)
    bits = number.view(np.uint32)
    kinds, after, rows = len(scalars), actions.shape[2], len(begun)
    history, width, strips = rows - length - 1, side.shape[2], len(side)
    for b in range(len(items)):
        strip = items[b] // each
        j = items[b] - strip * each
        indices[b] = (following - 1 - (following - 1 - strip) % strips) * each + j
        ages[b] = push - pushed_at[strip]
        for r in range(rows):
            row = j * length + r
            t = r - history
            flags = side[strip, row, width - 1]
            begun[r, b] = flags & BEGUN != 0
            if t < 0:
                continue
            mask[t, b] = flags & MASK != 0
            if t == length:
                continue
            terminations[t, b] = flags & TERMINATED != 0
            truncations[t, b] = flags & TRUNCATED != 0
            for k in range(after):
                actions[t, b, k] = words[strip, row, k]
            for k in range(kinds):
                if half:
                    short = np.uint32(shorts[strip, row, 2 * after + k])
                    bits[0] = (short & np.uint32(0x7FFF)) << np.uint32(13)
                    value = number[0] * UP
                    scalars[k, t, b] = -value if short & np.uint32(0x8000) else value
                else:
                    bits[0] = words[strip, row, after + k]
                    scalars[k, t, b] = number[0]
            rewards[t, b] = scalars[1, t, b]
