"""Many frozen networks of one shape, evaluated together: row r is answered by network `who[r]`.

Weights are stacked `[members, inputs, outputs]`, so that the inner loop runs along memory; a batch of a few
hundred rows over a dozen members takes one call instead of a dozen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.jit import kernel
from holdfast.learn.policy import choose
from holdfast.learn.spec import NetSpec
from holdfast.records import F32, Array

CLIP = 10.0
"""Normalised observations are clipped as in `learn.normalise`."""


class Lineup:
    """The action heads of several policies of the same shape."""

    def __init__(self, members: Sequence[Mapping[str, Any]]) -> None:
        """Stack the members' `spec`, `parameters` and `norm` states."""
        self.spec = NetSpec.from_state(dict(members[0]["spec"]))
        trunk = "trunk" if self.spec.shared else "pi"
        layers = [f"{trunk}.{i}" for i in range(len(self.spec.hidden))] + ["pi_out"]
        stacked = [[m["parameters"][f"{name}.weight"].T for m in members] for name in layers]
        self._sizes = np.array([self.spec.obs_size, *self.spec.hidden, self.spec.outputs])
        self._weights = np.concatenate(
            [np.stack(w).reshape(len(members), -1).astype(np.float32) for w in stacked], 1
        )
        self._biases = np.concatenate(
            [np.stack([m["parameters"][f"{n}.bias"] for m in members]) for n in layers], 1
        ).astype(np.float32)
        d = self.spec.obs_size
        norms = [m.get("norm") for m in members]
        self._shift = np.stack([np.zeros(d) if n is None else n["mean"] for n in norms])
        self._scale = np.stack(
            [np.ones(d) if n is None else 1.0 / np.sqrt(n["var"] + 1e-8) for n in norms]
        )
        self._clip = np.array([np.inf if n is None else CLIP for n in norms])
        self._tanh = self.spec.activation == "tanh"
        self._deviation = np.stack(
            [
                np.exp(m["parameters"]["log_std"]) if "log_std" in m["parameters"] else np.zeros(1)
                for m in members
            ]
        ).astype(np.float32)

    def act(
        self, obs: Array, who: npt.NDArray[np.int64], rng: np.random.Generator | None = None
    ) -> Array:
        """Return one action a row; sampled when `rng` is given."""
        rows = np.ascontiguousarray(obs, np.float32).reshape(len(obs), -1)
        head = np.empty((len(rows), self.spec.outputs), np.float32)
        evaluate(
            self._sizes,
            self._weights,
            self._biases,
            self._shift,
            self._scale,
            self._clip,
            self._tanh,
            rows,
            who,
            head,
        )
        return choose(self.spec, head, self._deviation[who], rng)


@kernel
def evaluate(
    sizes: Any,
    weights: Any,
    biases: Any,
    shift: Any,
    scale: Any,
    clip: Any,
    tanh: bool,
    rows: F32,
    who: Any,
    out: F32,
) -> None:
    """Write the output of network `who[r]` for every row into `out [n, outputs]`."""
    widest = sizes.max()
    x, y = np.empty(widest, np.float32), np.empty(widest, np.float32)
    for r in range(len(rows)):
        m = who[r]
        for i in range(sizes[0]):
            value = (rows[r, i] - shift[m, i]) * scale[m, i]
            x[i] = min(max(value, -clip[m]), clip[m])
        weight, bias = 0, 0
        for layer in range(len(sizes) - 1):
            inputs, outputs = sizes[layer], sizes[layer + 1]
            y[:outputs] = biases[m, bias : bias + outputs]
            for i in range(inputs):
                factor = x[i]
                row = weights[m, weight + i * outputs : weight + (i + 1) * outputs]
                for j in range(outputs):
                    y[j] += factor * row[j]
            if layer < len(sizes) - 2:
                for j in range(outputs):
                    y[j] = np.tanh(y[j]) if tanh else max(y[j], np.float32(0.0))
            weight += inputs * outputs
            bias += outputs
            x, y = y, x
        out[r] = x[: len(out[r])]
