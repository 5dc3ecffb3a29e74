"""How an episode begins: the original's random draws in their exact order (spec section 1.8).

All draws of one reset come in three vectorised calls on `numpy.random.default_rng(seed)`, which yield
the same stream as the original's one-by-one calls; a kernel turns them into positions. A start is
therefore a pure function of the seed and the options, bit for bit the original's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.errors import ConfigError, nearest
from holdfast.jit import kernel
from holdfast.records import F32, F64, Array, Bools
from holdfast.worlds.shoal.arrays import Shoals
from holdfast.worlds.shoal.kernels import fall
from holdfast.worlds.shoal.options import Bin, ShoalOptions, parse_heading_bias, parse_speed_bias

SPAWN_RADIUS = 8.0
START_SPEED = 1.5
SPAWN_X, SPAWN_Y, FIRST_VX, FIRST_VY, BIAS_HEADING, HEAD = 0, 1, 2, 3, 4, 5
"""Columns of a pre-roll record; from HEAD on follow the turns, the scales and the target speeds."""

BEFORE_ROLL = "predator_vel_before_roll"
"""Snapshot key: velocity that enters the pre-roll instead of a drawn heading, as the original injected it."""
SNAPSHOT_SHAPES = {
    "fish_pos": ("fish", 2),
    "fish_vel": ("fish", 2),
    "alive": ("fish",),
    "predator_pos": (2,),
    "predator_vel": (2,),
    BEFORE_ROLL: (2,),
}


@dataclass
class StartLaw:
    """The distribution of starts: options that may be turned while the world runs, and parsed bins."""

    fish: int
    escape_boost: bool
    escape_boost_speed: float
    escape_jitter: float
    spawn_jitter: float
    pre_roll_steps: int
    pre_roll_angle_jitter: float
    pre_roll_speed_jitter: float
    heading_bins: F64
    """`[B, 3]` from, to, weight."""
    speed_bins: F64

    @classmethod
    def of(cls, options: ShoalOptions) -> StartLaw:
        """Return the law of these options."""
        return cls(
            fish=options.fish,
            escape_boost=options.escape_boost,
            escape_boost_speed=options.escape_boost_speed,
            escape_jitter=options.escape_jitter,
            spawn_jitter=options.spawn_jitter,
            pre_roll_steps=options.pre_roll_steps,
            pre_roll_angle_jitter=options.pre_roll_angle_jitter,
            pre_roll_speed_jitter=options.pre_roll_speed_jitter,
            heading_bins=_table(parse_heading_bias(options.heading_bias)),
            speed_bins=_table(parse_speed_bias(options.speed_bias)),
        )

    @property
    def record_size(self) -> int:
        """Numbers in one pre-roll record."""
        return HEAD + 3 * self.pre_roll_steps


def begin_games(
    s: Shoals,
    games: Sequence[int],
    law: StartLaw,
    seeds: Sequence[int],
    snapshots: Sequence[Mapping[str, Array] | None],
    records: F64,
) -> None:
    """Put these games at their starts: drawn from their seeds, then overwritten by what the snapshots hold."""
    which = np.array(games, np.int64)
    first = np.full((len(games), 2), np.nan)
    for k, snapshot in enumerate(snapshots):
        if snapshot is not None and BEFORE_ROLL in snapshot:
            first[k] = snapshot[BEFORE_ROLL]
    uniforms, turns, aims, rest = _draws(law, seeds)
    place(
        s, which, records, uniforms, turns, aims, rest, first,
        law.escape_boost, law.escape_boost_speed, min(law.spawn_jitter, SPAWN_RADIUS),
        law.heading_bins, law.pre_roll_steps, law.pre_roll_angle_jitter,
        law.pre_roll_speed_jitter, law.speed_bins,
    )  # fmt: skip
    s.alive[which] = True
    s.t[which] = 0
    s.death_steps[which] = -1
    s.returns[which] = 0.0
    s.first_predator[which] = 0.0
    s.pending[which] = False
    s.ended[which] = 0
    for g, snapshot in zip(games, snapshots, strict=True):
        if snapshot is not None:
            _overwrite(s, g, snapshot)


def check_snapshot(snapshot: Mapping[str, Array], fish: int) -> None:
    """Raise `ConfigError` unless every entry is known, finite and has the right shape."""
    for key, value in snapshot.items():
        if key not in SNAPSHOT_SHAPES:
            raise ConfigError(
                f"A shoal snapshot has the key '{key}'.{nearest(key, SNAPSHOT_SHAPES)} "
                f"Allowed: {', '.join(SNAPSHOT_SHAPES)}; what is left out is drawn from the seed."
            )
        shape = tuple(fish if size == "fish" else size for size in SNAPSHOT_SHAPES[key])
        array = np.asarray(value)
        if array.shape != shape:
            raise ConfigError(
                f"A shoal snapshot's '{key}' has the shape {array.shape}. Allowed: {shape}, "
                f"for a world of {fish} fish."
            )
        if not np.isfinite(array.astype(np.float64)).all():
            raise ConfigError(f"A shoal snapshot's '{key}' holds numbers that are not finite.")
        if key == "alive" and not array.any():
            raise ConfigError("A shoal snapshot's 'alive' is false for every fish. One must live.")


def pre_roll_stats(law: StartLaw, record: F64, predator: F32, override: bool) -> dict[str, Any]:
    """Return the original's `pre_roll_stats` of one start; `predator` is its state after the roll."""
    steps = law.pre_roll_steps
    x, y, vx, vy, bias = (float(v) for v in record[:HEAD])
    fx, fy = float(predator[2]), float(predator[3])
    rolls = record[HEAD:].reshape(3, steps)
    stats: dict[str, Any] = {
        "spawn_radius": math.hypot(x, y),
        "spawn_angle_deg": math.degrees(math.atan2(y, x)),
        "pre_roll_steps": steps,
        "angle_jitter_deg": rolls[0].tolist() if law.pre_roll_angle_jitter > 0 else [],
        "speed_scale": rolls[1].tolist()
        if law.pre_roll_speed_jitter > 0 or len(law.speed_bins)
        else [],
        "initial_velocity": [vx, vy],
        "initial_speed": math.hypot(vx, vy),
        "initial_heading_deg": math.degrees(math.atan2(vy, vx)),
        "heading_bias_angle_deg": None if math.isnan(bias) else bias,
        "prewarm_velocity_override": override,
        "final_velocity": [fx, fy],
        "final_speed": math.hypot(fx, fy),
        "final_heading_deg": math.degrees(math.atan2(fy, fx)),
    }
    if override:
        stats["prewarm_velocity"] = [vx, vy]
    if len(law.speed_bins):
        stats["speed_bias_target"] = rolls[2].tolist()
    return stats


def _draws(law: StartLaw, seeds: Sequence[int]) -> tuple[F64, F64, F64, F64]:
    """Return the raw draws, one row a game: fish, escape turns, escape aims (mostly none), predator."""
    games, fish = len(seeds), law.fish
    per_step = 2 * (len(law.speed_bins) > 0)
    per_step += (law.pre_roll_angle_jitter > 0) + (law.pre_roll_speed_jitter > 0)
    fixed = 2 * (law.spawn_jitter > 0) + 2 * (len(law.heading_bins) > 0)
    uniforms = np.empty((games, 4 * fish))
    turns = np.empty((games, fish if law.escape_boost else 0))
    aims = np.empty((0, fish, 2))
    rest = np.empty((games, fixed + per_step * law.pre_roll_steps))
    for k, seed in enumerate(seeds):
        rng = np.random.default_rng(seed)
        rng.random(out=uniforms[k])
        if law.escape_boost:
            # A fish within 1e-5 of the centre has no outward direction and draws one (1 in a million).
            if uniforms[k, 1::4].min() * SPAWN_RADIUS < 1.1e-5:
                if not aims.size:
                    aims = np.full((games, fish, 2), np.nan)
                _central_draws(rng, uniforms[k], turns[k], aims[k])
            else:
                rng.standard_normal(out=turns[k])
        # With an injected velocity the last two of these stay unused: nothing is drawn after them.
        rng.random(out=rest[k])
    turns *= law.escape_jitter
    return uniforms, turns, aims, rest


def _central_draws(rng: np.random.Generator, uniforms: F64, turns: F64, aims: F64) -> None:
    for i in range(turns.size):
        angle, radius = uniforms[4 * i] * 2.0 * math.pi, uniforms[4 * i + 1] * SPAWN_RADIUS
        x, y = np.float32(radius * math.cos(angle)), np.float32(radius * math.sin(angle))
        if math.sqrt(x * x + y * y) < 1e-5:
            aims[i] = rng.standard_normal(2)
        turns[i] = rng.standard_normal()


def _table(bins: tuple[Bin, ...]) -> F64:
    return np.array(bins, np.float64).reshape(-1, 3)


def _overwrite(s: Shoals, g: int, snapshot: Mapping[str, Array]) -> None:
    check_snapshot(snapshot, s.x.shape[1])
    if "fish_pos" in snapshot:
        s.x[g], s.y[g] = np.asarray(snapshot["fish_pos"]).T
    if "fish_vel" in snapshot:
        s.vx[g], s.vy[g] = np.asarray(snapshot["fish_vel"]).T
    if "predator_pos" in snapshot:
        s.predator[g, :2] = snapshot["predator_pos"]
    if "predator_vel" in snapshot:
        s.predator[g, 2:] = snapshot["predator_vel"]
    if "alive" in snapshot:
        alive: Bools = np.asarray(snapshot["alive"], np.bool_)
        s.alive[g] = alive
        s.death_steps[g] = np.where(alive, -1, 0)


@kernel
def pick(bins: F64, draw: float) -> Any:
    """Return the first bin whose cumulative weight reaches `draw` of the whole, `draw` in [0, 1)."""
    total = 0.0
    for b in range(bins.shape[0]):
        total += bins[b, 2]
    target = draw * total
    reached = 0.0
    for b in range(bins.shape[0]):
        reached += bins[b, 2]
        if target <= reached:
            return b
    return bins.shape[0] - 1


@kernel
def place(
    shoals: Shoals,
    which: Array,
    records: F64,
    uniforms: F64,
    turns: F64,
    aims: F64,
    rest: F64,
    first: F64,
    boost: bool,
    boost_speed: float,
    spawn_jitter: float,
    heading_bins: F64,
    roll_steps: int,
    angle_jitter: float,
    speed_jitter: float,
    speed_bins: F64,
) -> None:
    """Turn draws into fish, predators and pre-roll records."""
    for k in range(which.shape[0]):
        g = which[k]
        x, y, vx, vy = shoals.x[g], shoals.y[g], shoals.vx[g], shoals.vy[g]
        scatter_fish(x, y, vx, vy, uniforms[k], not boost)
        if boost:
            for i in range(x.shape[0]):
                own = aims.shape[0] > 0 and not math.isnan(aims[k, i, 0])
                aim_x = aims[k, i, 0] if own else np.float64(x[i])
                aim_y = aims[k, i, 1] if own else np.float64(y[i])
                vx[i], vy[i] = escape_velocity(aim_x, aim_y, turns[k, i], boost_speed)
        p, record = shoals.predator[g], records[g]
        used = spawn_predator(p, record, rest[k], first[k], spawn_jitter, heading_bins)
        pre_roll(p, record, rest[k, used:], roll_steps, angle_jitter, speed_jitter, speed_bins)


@kernel
def scatter_fish(x: F32, y: F32, vx: F32, vy: F32, uniforms: F64, moving: bool) -> None:
    """Place fish uniformly in angle and radius (so dense at the centre), with random velocities if `moving`."""
    for i in range(x.shape[0]):
        angle, radius = uniforms[4 * i] * (2.0 * math.pi), uniforms[4 * i + 1] * SPAWN_RADIUS
        x[i], y[i] = radius * math.cos(angle), radius * math.sin(angle)
        if moving:
            angle, speed = uniforms[4 * i + 2] * (2.0 * math.pi), uniforms[4 * i + 3]
            vx[i], vy[i] = speed * math.cos(angle), speed * math.sin(angle)


@kernel
def escape_velocity(aim_x: float, aim_y: float, turn: float, boost_speed: float) -> Any:
    """Return the start velocity along an aim, turned; the unit vector is float32, as in the original."""
    x, y = np.float32(aim_x), np.float32(aim_y)
    norm = math.sqrt(x * x + y * y)
    ux, uy = np.float64(x / norm), np.float64(y / norm)
    c, s = math.cos(turn), math.sin(turn)
    speed = 2.0 * boost_speed
    return (c * ux - s * uy) * speed, (s * ux + c * uy) * speed


@kernel
def spawn_predator(
    p: F32, record: F64, rest: F64, first: F64, spawn_jitter: float, heading_bins: F64
) -> int:
    """Place the predator and give it its first velocity; return how many draws that took."""
    k = 0
    p[0], p[1], p[2], p[3] = 0.0, 0.0, START_SPEED, 0.0
    if spawn_jitter > 0:
        radius, angle = rest[0] * spawn_jitter, rest[1] * (2.0 * math.pi)
        p[0], p[1] = radius * math.cos(angle), radius * math.sin(angle)
        k = 2
    record[BIAS_HEADING] = np.nan
    if not math.isnan(first[0]):
        p[2], p[3] = first[0], first[1]
    elif heading_bins.shape[0] > 0:
        b = pick(heading_bins, rest[k])
        degrees = heading_bins[b, 0] + (heading_bins[b, 1] - heading_bins[b, 0]) * rest[k + 1]
        k += 2
        record[BIAS_HEADING] = degrees if degrees < 360.0 else degrees - 360.0
        heading = math.radians(degrees)
        p[2], p[3] = START_SPEED * math.cos(heading), START_SPEED * math.sin(heading)
    record[SPAWN_X], record[SPAWN_Y], record[FIRST_VX], record[FIRST_VY] = p[0], p[1], p[2], p[3]
    return k


@kernel
def pre_roll(
    p: F32,
    record: F64,
    rest: F64,
    steps: int,
    angle_jitter: float,
    speed_jitter: float,
    speed_bins: F64,
) -> None:
    """Move the predator `steps` times with random turns and speeds, and record them.

    Which products are float32 and which float64 follows the original to the bit.
    """
    k = 0
    for n in range(steps):
        turn, scale, speed = 0.0, 1.0, 0.0
        if angle_jitter > 0:
            turn = -angle_jitter + 2.0 * angle_jitter * rest[k]
            k += 1
            c, s = math.cos(turn), math.sin(turn)
            p[2], p[3] = c * p[2] - s * p[3], s * p[2] + c * p[3]
        if speed_jitter > 0:
            scale = max(0.05, 1.0 + (-speed_jitter + 2.0 * speed_jitter * rest[k]))
            k += 1
            p[2] *= np.float32(scale)
            p[3] *= np.float32(scale)
        if speed_bins.shape[0] > 0:
            b = pick(speed_bins, rest[k])
            speed = speed_bins[b, 0] + (speed_bins[b, 1] - speed_bins[b, 0]) * rest[k + 1]
            k += 2
            norm = math.sqrt(p[2] * p[2] + p[3] * p[3])
            if norm <= 1e-9:
                p[2], p[3] = speed, 0.0
            else:
                ratio = speed / np.float64(norm)
                scale *= ratio
                p[2] *= np.float32(ratio)
                p[3] *= np.float32(ratio)
        record[HEAD + n] = math.degrees(turn)
        record[HEAD + steps + n] = scale
        record[HEAD + 2 * steps + n] = speed
        fall(p)
