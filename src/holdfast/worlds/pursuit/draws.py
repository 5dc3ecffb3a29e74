"""Random numbers inside kernels: NumPy's own generator for resets, a counter-based hash elsewhere.

`seed_generator` and `next_double` reproduce `numpy.random.default_rng(seed).random()` bit for bit, so an
episode's start follows from its seed exactly as in NumPy. The hash gives noise that depends only on
(episode seed, step, slot, index): not on threads, nor on what was drawn before.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from holdfast.jit import kernel

U32 = np.uint32
U64 = np.uint64
_MULT_HI = U64(0x2360ED051FC65DA4)
_MULT_LO = U64(0x4385DF649FCCF645)
_LOW32 = U64(0xFFFFFFFF)
_S32, _S58, _S11, _S63 = U64(32), U64(58), U64(11), U64(63)
_ONE = U64(1)
_INIT_A, _MULT_A = U32(0x43B0D7E5), U32(0x931E8875)
_INIT_B, _MULT_B = U32(0x8B51F9DD), U32(0x58F38DED)
_MIX_L, _MIX_R = U32(0xCA01F9DD), U32(0x4973F715)
_X16 = U32(16)
_GOLDEN = U64(0x9E3779B97F4A7C15)
_M1, _M2 = U64(0xBF58476D1CE4E5B9), U64(0x94D049BB133111EB)
_R30, _R27, _R31 = U64(30), U64(27), U64(31)
_MASK63 = U64((1 << 63) - 1)

GENERATOR_WORDS = 6
"""State high and low, increment high and low, whether half a word is left, that half."""


@kernel
def _hash32(value: Any, const: Any) -> Any:
    value = U32(value ^ const)
    const = U32(const * _MULT_A)
    value = U32(value * const)
    return U32(value ^ (value >> _X16)), const


@kernel
def _mix32(x: Any, y: Any) -> Any:
    r = U32(U32(x * _MIX_L) - U32(y * _MIX_R))
    return U32(r ^ (r >> _X16))


@kernel
def _advance(g: Any) -> None:
    """g.state := g.state * MULT + g.inc modulo 2^128."""
    hi, lo = g[0], g[1]
    a0, a1 = lo & _LOW32, lo >> _S32
    b0, b1 = _MULT_LO & _LOW32, _MULT_LO >> _S32
    p00, p01, p10, p11 = a0 * b0, a0 * b1, a1 * b0, a1 * b1
    mid = (p00 >> _S32) + (p01 & _LOW32) + (p10 & _LOW32)
    top = p11 + (p01 >> _S32) + (p10 >> _S32) + (mid >> _S32)
    low = lo * _MULT_LO
    top = top + hi * _MULT_LO + lo * _MULT_HI
    new = low + g[3]
    g[0] = top + g[2] + (_ONE if new < low else U64(0))
    g[1] = new


@kernel
def seed_generator(g: Any, seed: int) -> None:
    """Put the generator words `g` where `numpy.random.default_rng(seed)` starts (0 <= seed < 2^63)."""
    pool = np.zeros(4, np.uint32)
    s = U64(seed)
    entropy = (U32(s & _LOW32), U32(s >> _S32), U32(0), U32(0))
    const = _INIT_A
    for i in range(4):
        pool[i], const = _hash32(entropy[i], const)
    for src in range(4):
        for dst in range(4):
            if src != dst:
                h, const = _hash32(pool[src], const)
                pool[dst] = _mix32(pool[dst], h)
    words = np.empty(8, np.uint32)
    const = _INIT_B
    for i in range(8):
        value = U32(pool[i % 4] ^ const)
        const = U32(const * _MULT_B)
        value = U32(value * const)
        words[i] = U32(value ^ (value >> _X16))
    w0 = U64(words[0]) | (U64(words[1]) << _S32)
    w1 = U64(words[2]) | (U64(words[3]) << _S32)
    w2 = U64(words[4]) | (U64(words[5]) << _S32)
    w3 = U64(words[6]) | (U64(words[7]) << _S32)
    g[2] = (w2 << _ONE) | (w3 >> _S63)
    g[3] = (w3 << _ONE) | _ONE
    g[0] = U64(0)
    g[1] = U64(0)
    _advance(g)
    low = g[1] + w1
    g[0] = g[0] + w0 + (_ONE if low < w1 else U64(0))
    g[1] = low
    _advance(g)
    g[4] = U64(0)
    g[5] = U64(0)


@kernel
def next_word(g: Any) -> Any:
    """Return the next 64 bits."""
    _advance(g)
    x = g[0] ^ g[1]
    rot = g[0] >> _S58
    return (x >> rot) | (x << ((U64(64) - rot) & _S63))


@kernel
def next_double(g: Any) -> float:
    """Return the next number in [0, 1)."""
    return float(next_word(g) >> _S11) * (1.0 / 9007199254740992.0)


@kernel
def uniform(g: Any, low: float, high: float) -> float:
    """Return `Generator.uniform(low, high)`."""
    return low + (high - low) * next_double(g)


@kernel
def _next_half(g: Any) -> Any:
    if g[4] == _ONE:
        g[4] = U64(0)
        return g[5]
    word = next_word(g)
    g[4] = _ONE
    g[5] = word >> _S32
    return word & _LOW32


@kernel
def integer(g: Any, low: int, high: int) -> int:
    """Return `Generator.integers(low, high + 1)`: Lemire's method on 32-bit halves."""
    if high <= low:
        return low
    span = U64(high - low + 1)
    m = _next_half(g) * span
    if (m & _LOW32) < span:
        threshold = (U64(0x100000000) - span) % span
        while (m & _LOW32) < threshold:
            m = _next_half(g) * span
    return int(low + np.int64(m >> _S32))


@kernel
def mix(x: Any) -> Any:
    """Return the splitmix64 finaliser of `x`."""
    x = (x ^ (x >> _R30)) * _M1
    x = (x ^ (x >> _R27)) * _M2
    return x ^ (x >> _R31)


@kernel
def key(seed: int, a: int, b: int) -> Any:
    """Return 64 bits that depend on all three numbers and on nothing else."""
    x = mix(U64(seed) + _GOLDEN)
    x = mix(x ^ (U64(a) * _GOLDEN + _M1))
    return mix(x + U64(b) * _M2 + _GOLDEN)


@kernel
def unit(word: Any) -> float:
    """Return 64 bits as a number in (0, 1)."""
    return (float(word >> _S11) + 0.5) * (1.0 / 9007199254740992.0)


@kernel
def normal_pair(word: Any, index: int) -> tuple[float, float]:
    """Return the standard normal numbers 2 index and 2 index + 1 of stream `word` (Box and Muller)."""
    base = word + U64(2 * index) * _GOLDEN
    radius = math.sqrt(-2.0 * math.log(unit(mix(base))))
    angle = 2.0 * math.pi * unit(mix(base + _GOLDEN))
    return radius * math.cos(angle), radius * math.sin(angle)


@kernel
def episode_seed(game_seed: int, episode: int) -> int:
    """Return the seed of an episode: the game's own for the first, then a hash of both."""
    if episode == 0:
        return game_seed
    return int(np.int64(key(game_seed, episode, 1) & _MASK63))
