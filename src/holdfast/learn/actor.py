"""The actor of a plain policy in compiled code.

It needs neither the critic nor log-probabilities. One thread does all of it: a frozen policy plays beside other work, in
probes, studies and worker processes, where a matrix library that takes every core makes everybody wait. So what it
returns depends neither on the number of cores nor on which rows are asked for together.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from holdfast.learn.fused import FusedNet
from holdfast.learn.fused_act import BEST, SAMPLE
from holdfast.learn.spec import NetSpec
from holdfast.records import F32, Array


class Actor:
    """Maps rows `[n, D]` to the network's actions: choices, or numbers around [-1, 1]."""

    def __init__(self, spec: NetSpec, parameters: Mapping[str, F32]) -> None:
        # One trunk for both heads: the value costs one column of the last layer instead of a network.
        self.spec = spec
        self._net = FusedNet(NetSpec.from_state({**spec.state(), "shared": True}))
        for name, view in self._net.views(self._net.theta).items():
            source = name if spec.shared else name.replace("trunk.", "pi.")
            if not name.startswith("vf_out."):
                view[...] = parameters[source]
        self._net.pack()

    def act(self, rows: F32, rng: np.random.Generator | None) -> Array:
        """Return the best action of each row, or a sampled one when `rng` is given."""
        spec, n = self.spec, len(rows)
        noise = np.zeros((n, spec.noise_size), np.float32)
        if rng is not None and spec.action == "gaussian":
            rng.standard_normal(dtype=np.float32, out=noise)
        elif rng is not None:
            rng.random(dtype=np.float32, out=noise)
        actions = np.empty((n, *spec.action_shape), spec.action_dtype)
        unused = np.empty(n, np.float32)
        mode = BEST if rng is None else SAMPLE
        self._net.act(np.ascontiguousarray(rows), noise, actions, unused, unused, mode)
        return actions
