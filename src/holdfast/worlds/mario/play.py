"""One step of many games in compiled code: frames, cut-scenes, ends, rewards, scripts.

A step holds the buttons for `skip` frames and looks at RAM after each. What the player cannot steer (pipes, areas
being loaded, Mario growing or shrinking) is played on with released buttons until he can, inside the same step.
A death or a clear ends the step at once: its animation is never played, since the next episode is loaded over it.

Ends that terminate, in order of precedence: clear, death_enemy, death_pit, time_up, warp; then, if none, forced and
timeout_steps, which cut, and stagnation, which terminates: a policy that stands still has lost, and would
otherwise be paid the value of where it stands.
"""

from __future__ import annotations

from holdfast.jit import kernel
from holdfast.records import F32, F64, Bools
from holdfast.worlds.mario import books as b
from holdfast.worlds.mario import memory as at
from holdfast.worlds.mario import rewards as r
from holdfast.worlds.mario.books import Books, Rules
from holdfast.worlds.mario.frame import run_frame
from holdfast.worlds.mario.machine import PAD, Bank, Board, Bytes, Canvas, Longs, Machine, widen
from holdfast.worlds.mario.shrink import keep_brightest, shrink
from holdfast.worlds.mario.tiles import signed, write_tiles

START = 8
PATIENCE = 3000
"""Frames that a cut-scene may last; a longer one means that the game hangs."""
TELEPORT = 64
"""Pixels (or 4 a frame, if that is more): nobody runs this far in one step, so it is no ground won."""


@kernel
def row_of(bank: Bank, board: Board, slot: int) -> Machine:
    """Return machine `slot` as the kernels of the console take it."""
    return Machine(
        bank.ram[slot],
        bank.vram[slot],
        bank.palette[slot],
        bank.sprites[slot],
        bank.regs[slot],
        board.program,
        board.pictures,
        board.pages,
    )


@kernel
def is_busy(ram: Bytes) -> bool:
    """Return whether the player cannot steer: an area is loaded, a pipe entered, Mario changes size."""
    return bool(ram[at.MODE] != 1 or ram[at.TASK] != 3 or ram[at.SUBROUTINE] != at.CONTROLLED)


@kernel
def end_of(ram: Bytes, world: int, stage: int) -> int:
    """Return why the episode on stage `world`-`stage` is over, or RUNNING."""
    mode, routine = ram[at.MODE], ram[at.SUBROUTINE]
    if mode == 2:
        return b.CLEARED
    if mode != 1:
        return b.BY_ENEMY
    if routine in (at.SLIDING, at.ENDING):
        return b.CLEARED
    if routine == at.DYING:
        return b.BY_TIME if ram[at.TIME_EXPIRED] else b.BY_ENEMY
    # Below the picture there is death, except under the clouds of a bonus area.
    if routine == at.LOST or (ram[at.Y_PAGE] > 1 and ram[at.CLOUDS] == 0 and ram[at.TASK] == 3):
        return b.BY_PIT
    if ram[at.WORLD] + 1 != world or ram[at.STAGE] + 1 != stage:
        return b.WARPED
    return b.RUNNING


@kernel
def unpause(m: Machine, canvas: Canvas) -> None:
    """Press START until the game goes on; it accepts a press 43 frames after the last."""
    for _ in range(PATIENCE):
        if m.ram[at.PAUSED] & 1 == 0:
            break
        ready = m.ram[at.PAUSE_TIMER] == 0 and m.ram[at.PAUSED] & 0x80 == 0
        m.regs[PAD] = START if ready else 0
        run_frame(m, canvas, 0)


@kernel
def play_step(
    m: Machine, canvas: Canvas, rules: Rules, pad: int, world: int, stage: int
) -> tuple[int, int, int]:
    """Play one step; return (end, screen that was drawn last, how many were drawn)."""
    ram, regs, skip = m.ram, m.regs, rules.skip
    if ram[at.PAUSED] & 1 and pad & START == 0:
        unpause(m, canvas)
    regs[PAD] = pad
    end, last, drawn = b.RUNNING, 2, 0
    busy = False
    for frame in range(skip):
        screen = 0
        if rules.pixels and frame == skip - 1:
            screen = 2
        elif rules.pixels and rules.brightest and frame == skip - 2:
            screen = 1
        run_frame(m, canvas, screen)
        if screen:
            last = screen
            drawn += 1
        end = end_of(ram, world, stage)
        busy = is_busy(ram)
        if end or busy:
            break
    if end or not busy:
        return end, last, drawn
    regs[PAD] = 0
    for _ in range(PATIENCE):
        last = 3 - last
        run_frame(m, canvas, last if rules.pixels else 0)
        drawn += 1
        end = end_of(ram, world, stage)
        if end or not is_busy(ram):
            return end, last, drawn
    return b.STUCK, last, drawn


@kernel
def show(canvas: Canvas, rules: Rules, last: int, drawn: int, out: Bytes) -> None:
    """Write the grey picture of the screens just drawn."""
    if rules.brightest and drawn > 1:
        keep_brightest(canvas.screens[2 - last], canvas.screens[last - 1])
    shrink(canvas.screens[last - 1], rules.top, out)


@kernel
def number_at(ram: Bytes, address: int, digits: int) -> int:
    """Return the number whose decimal digits stand one a byte from `address` on."""
    value = widen(0)
    for k in range(digits):
        value = value * 10 + ram[address + k]
    return value


@kernel
def read_row(ram: Bytes, counts: Longs) -> None:
    """Set what a row of counts copies from RAM."""
    # A maze that sends Mario back may leave him left of the beginning, on page -1.
    counts[b.X] = signed(ram[at.X_PAGE]) * 256 + ram[at.X_LOW]
    counts[b.Y] = (widen(ram[at.Y_PAGE]) - 1) * 256 + ram[at.Y_LOW]
    counts[b.TIME_LEFT] = number_at(ram, at.TIMER, 3)
    counts[b.POINTS] = number_at(ram, at.SCORE, 6) * 10
    counts[b.COIN_COUNT] = ram[at.COINS]
    counts[b.POWER_NOW] = min(widen(ram[at.POWER]), 2)
    counts[b.LIVES_NOW] = ram[at.LIVES]


@kernel
def area_of(ram: Bytes) -> int:
    """Return which area the picture shows, 0-127."""
    return (widen(ram[at.AREA_KIND]) & 3) * 32 + (widen(ram[at.AREA_NUMBER]) & 31)


@kernel
def open_books(ram: Bytes, counts: Longs, area_best: Longs) -> None:
    """Begin an episode at the present moment: nothing won or lost so far."""
    for k in range(counts.shape[0]):
        counts[k] = 0
    for k in range(area_best.shape[0]):
        area_best[k] = -1
    read_row(ram, counts)
    counts[b.WORLD], counts[b.STAGE] = widen(ram[at.WORLD]) + 1, widen(ram[at.STAGE]) + 1
    counts[b.AREA] = area_of(ram)
    counts[b.BEST_X] = area_best[counts[b.AREA]] = counts[b.X]


@kernel
def new_ground(ram: Bytes, counts: Longs, area_best: Longs, skip: int) -> int:
    """Return the pixels of new ground that this step won; the furthest x of each area is kept."""
    x, area = counts[b.X], area_of(ram)
    gain = x - area_best[area]
    arrived = area != counts[b.AREA]
    if arrived:
        counts[b.AREA] = area
        counts[b.STALL] = 0
    if gain <= 0:  # a maze that leads back to its beginning pays nothing twice
        return 0
    area_best[area] = x
    counts[b.BEST_X] = max(counts[b.BEST_X], x)
    return 0 if arrived or gain > max(TELEPORT, 4 * skip) else gain


@kernel
def settle_step(
    ram: Bytes,
    rules: Rules,
    weights: F64,
    counts: Longs,
    area_best: Longs,
    parts: F64,
    end: int,
    scripted: bool,
    pending: bool,
) -> int:
    """Bring the books up to date after a step; write the reward's `parts`, and return why it ended or RUNNING."""
    timer, points, coins = counts[b.TIME_LEFT], counts[b.POINTS], counts[b.COIN_COUNT]
    power, stones = counts[b.POWER_NOW], widen(0)
    counts[b.STEPS] += 1
    gain = widen(0)
    if end not in (b.WARPED, b.STUCK):
        read_row(ram, counts)
        gain = new_ground(ram, counts, area_best, rules.skip)
    if gain > 0:
        x, apart = counts[b.X], rules.milestone_pixels
        stones = x // apart - (x - gain) // apart
        counts[b.MILESTONES] += stones
        counts[b.GROUND] += gain
        counts[b.GAINS] += 1
        counts[b.STALL] = 0
    elif not scripted:
        counts[b.STALL] += 1
    if end == b.RUNNING:
        if pending:
            end = b.FORCED
        elif counts[b.STEPS] >= rules.max_steps > 0:
            end = b.TIMED_OUT
        elif counts[b.STALL] >= rules.stagnation_steps > 0:
            end = b.STAGNATED
    for k in range(parts.shape[0]):
        parts[k] = 0.0
    if scripted:
        return end
    scale = weights[r.SCALE]
    parts[r.PROGRESS] = scale * weights[r.PROGRESS] * gain
    parts[r.TIME] = scale * weights[r.TIME] * min(counts[b.TIME_LEFT] - timer, 0)
    parts[r.SCORE] = scale * weights[r.SCORE] * max(counts[b.POINTS] - points, 0) / 100.0
    parts[r.COINS] = scale * weights[r.COINS] * ((counts[b.COIN_COUNT] - coins) % 100)
    parts[r.POWER] = scale * weights[r.POWER] * (counts[b.POWER_NOW] - power)
    parts[r.MILESTONE] = scale * weights[r.MILESTONE] * stones
    if weights[r.CLIP] > 0.0:
        whole = 0.0
        for k in range(r.WITHIN):
            whole += parts[k]
        parts[r.CLIPPED] = min(max(whole, -weights[r.CLIP]), weights[r.CLIP]) - whole
    if end == b.CLEARED:
        parts[r.CLEAR] = scale * weights[r.CLEAR]
    elif end in (b.BY_ENEMY, b.BY_PIT, b.BY_TIME):
        parts[r.DEATH] = scale * weights[r.DEATH]
    elif end == b.STAGNATED:
        parts[r.STAGNATION] = scale * weights[r.STAGNATION]
    elif end == b.TIMED_OUT:
        parts[r.TIMEOUT] = scale * weights[r.TIMEOUT]
    return end


@kernel
def step_games(
    bank: Bank,
    board: Board,
    canvas: Canvas,
    books: Books,
    rules: Rules,
    weights: F64,
    actions: Longs,
    parts: F64,
    greys: Bytes,
    tiles: F32,
    rewards: F64,
    terminations: Bools,
    truncations: Bools,
    mask: Bools,
    lo: int,
    hi: int,
) -> None:
    """Step games `[lo, hi)` once; `parts [N, K]` is scratch. A terminated game's picture is not drawn."""
    for g in range(lo, hi):
        m = row_of(bank, board, g)
        counts = books.counts[g]
        scripted = books.forced[g]
        if scripted:
            pad = widen(books.script[g, books.script_at[g]])
            books.script_at[g] += 1
            counts[b.SCRIPTED] += 1
        else:
            pad = widen(rules.pads[actions[g]])
            books.chosen[g, actions[g]] += 1
        end, last, drawn = play_step(m, canvas, rules, pad, counts[b.WORLD], counts[b.STAGE])
        end = settle_step(
            m.ram,
            rules,
            weights,
            counts,
            books.area_best[g],
            parts[g],
            end,
            scripted,
            books.pending[g],
        )
        reward = 0.0
        for k in range(parts.shape[1]):
            reward += parts[g, k]
            books.sums[g, k] += parts[g, k]
        rewards[g] = reward
        terminations[g] = 0 < end < b.TIMED_OUT
        truncations[g] = end >= b.TIMED_OUT
        books.ended[g] = end
        if end and scripted:  # a script ends with its episode
            books.script_at[g] = books.script_end[g]
        books.forced[g] = end == b.RUNNING and books.script_at[g] < books.script_end[g]
        mask[g] = not books.forced[g]
        if rules.pixels:
            if not terminations[g]:
                show(canvas, rules, last, drawn, greys[g])
        else:
            write_tiles(m.ram, tiles[g])


@kernel
def begin_game(
    bank: Bank, board: Board, canvas: Canvas, rules: Rules, g: int, frames: int, grey: Bytes
) -> None:
    """Let game `g` stand still for some frames, 1 or more; draw the last two if pictures are wanted."""
    m = row_of(bank, board, g)
    m.regs[PAD] = 0
    last, drawn = 2, 0
    for frame in range(frames):
        screen = 0
        if rules.pixels and frame >= frames - 2:
            screen = 2 if frame == frames - 1 else 1
            last = screen
            drawn += 1
        run_frame(m, canvas, screen)
    if rules.pixels:
        show(canvas, rules, last, drawn, grey)


@kernel
def tile_games(bank: Bank, only: Bools, tiles: F32, lo: int, hi: int) -> None:
    """Write the symbolic observation of the games of `[lo, hi)` that `only` names."""
    for g in range(lo, hi):
        if only[g]:
            write_tiles(bank.ram[g], tiles[g])
