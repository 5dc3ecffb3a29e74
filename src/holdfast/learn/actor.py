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
        one = {**spec.state(), "shared": True}
        if spec.action == "squashed":  # its outputs are asked for, never an action
            one.update(action="gaussian", action_size=spec.outputs)
        self._net = FusedNet(NetSpec.from_state(one))
        for name, view in self._net.views(self._net.theta).items():
            source = name if spec.shared else name.replace("trunk.", "pi.")
            if source in parameters and not name.startswith("vf_out."):
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
        self._run(rows, noise, actions, BEST if rng is None else SAMPLE)
        return actions

    def heads(self, rows: F32) -> F32:
        """Return the outputs `[n, outputs]` of a network with continuous actions."""
        shape = (len(rows), self.spec.outputs)
        heads = np.empty(shape, np.float32)
        self._run(rows, np.zeros(shape, np.float32), heads, BEST)
        return heads

    def _run(self, rows: F32, noise: F32, actions: Array, mode: int) -> None:
        unused = np.empty(len(rows), np.float32)
        self._net.act(np.ascontiguousarray(rows), noise, actions, unused, unused, mode)
