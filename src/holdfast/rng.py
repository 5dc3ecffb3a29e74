"""One root seed, split into named streams.

    streams = Streams(seed=1)
    streams["policy"].random(3)      # the same numbers in every run with seed 1

A stream is a NumPy PCG64 generator whose seed is (root seed, hash of the name): adding a new stream
never shifts an old one. The position of every stream is part of the checkpoint.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

MASK_63 = (1 << 63) - 1


def stream_key(name: str) -> int:
    """Return the 64-bit number that stands for `name` (stable across processes and versions)."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def derive_seed(*parts: int | str) -> int:
    """Return a non-negative 63-bit seed that depends on all parts and on nothing else."""
    words = [stream_key(p) if isinstance(p, str) else int(p) & ((1 << 64) - 1) for p in parts]
    state = np.random.SeedSequence(words).generate_state(1, np.uint64)
    return int(state[0]) & MASK_63


class Streams:
    """Named random streams of one run, made on first use."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._generators: dict[str, np.random.Generator] = {}

    def __getitem__(self, name: str) -> np.random.Generator:
        if name not in self._generators:
            sequence = np.random.SeedSequence([self.seed, stream_key(name)])
            self._generators[name] = np.random.Generator(np.random.PCG64(sequence))
        return self._generators[name]

    def state_dict(self) -> dict[str, Any]:
        """Return the position of every stream that was used."""
        return {
            "seed": self.seed,
            "streams": {name: g.bit_generator.state for name, g in self._generators.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put every stream back to the recorded position; streams not recorded start afresh."""
        self.seed = int(state["seed"])
        self._generators = {}
        for name, position in state["streams"].items():
            self[name].bit_generator.state = position
