"""Where everything lies in the memory of the fused kernels, computed once from a `NetSpec`.

    theta    [P]         the parameters, end to end, torch's shapes and order; so are Adam's moments
    packed   [...]       copies of the weights in the order the tiles read them, and padded biases
    grads    [lanes, .]  padded gradients, one set a lane
    work     [threads, .] activations and scratch of one block of samples

A *net* is a chain of layers that ends in a head: separate trunks are two nets (policy, value), a shared
trunk is one net whose head holds the logits and, in a vector of its own, the value. A *lane* is a fixed
share of every minibatch; threads take whole lanes, so the sums do not depend on the thread count.
Offsets in the tables are in bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.learn.fused_adam import BIAS, LOG_STD, WEIGHT
from holdfast.learn.fused_loss import SEGMENT_COLUMNS, SEGMENTS
from holdfast.learn.fused_tiles import (
    FEW,
    LINEAR,
    PANEL,
    RELU,
    RELU_SLOPE,
    TANH,
    TANH_SLOPE,
    WIDE,
    panel_of,
)
from holdfast.learn.spec import NetSpec
from holdfast.records import F32

LAYER = np.dtype(
    [
        (name, np.int64)
        for name in [
            "inputs",
            "outputs",
            "columns",
            "source",
            "source_row",
            "source_columns",
            "out",
            "out_row",
            "forward",
            "backward",
            "bias",
            "grad",
            "grad_row",
            "grad_bias",
            "turned",
            "forward_sums",
            "backward_sums",
            "source_sums",
            "sevenths",
            "activate",
            "slope",
        ]
    ]
)
"""One linear layer: `source` and `out` in `work`, `forward`, `backward` and `bias` in `packed`; `turned` in `work` is where
the gradient is added up with inputs in rows and outputs in columns, or -1; `forward_sums` and `backward_sums` in `packed`,
`source_sums` and `sevenths` (the parts of the gradient) in `work` are for `fused_seven`, or -1."""

ROW = np.dtype(
    [
        (name, np.int64)
        for name in [
            "theta",
            "size",
            "grad",
            "kind",
            "forward",
            "forward_step",
            "backward",
            "backward_wide",
            "backward_half",
            "backward_tail",
            "depth",
            "eight",
            "net",
        ]
    ]
)
"""One contiguous run of `theta`: a row of weights, a bias (or a segment of it), or log_std. `eight`: it begins a block of
eight rows of eight weights or more that lie side by side in `theta` and in `packed`. Of its weights, the first
`backward_wide` go to wide tiles from `backward` on, 16 to `backward_half` unless that is -1, the last to `backward_tail`."""

PLAN = np.dtype(
    [
        (name, np.int64)
        for name in [
            "nets",
            "policy_layers",
            "layers",
            "gaussian",
            "block",
            "logits",
            "logits_row",
            "logits_vectors",
            "values",
            "values_row",
            "exps",
            "exps_row",
            "scratch",
            "staged",
            "log_std",
            "inverse_std",
            "grad_log_std",
            "inputs",
            "source_row",
            "actions",
            "sums",
            "sums_row",
            "kept",
        ]
    ]
)
"""What is not per layer; `values` is the byte offset of the value of row 0 in `work`."""


LINE = 64
"""Bytes of a cache line."""
WIDE_LAYER = 256
"""Inputs and outputs from which updates multiply by `fused_seven`."""


def _up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def _stride(columns: int) -> int:
    """Bytes from row to row: an odd number of cache lines, so that a column of rows spreads over the cache."""
    lines = _up(4 * columns, LINE) // LINE
    return 4 * _up(columns, 8) if lines == 1 else LINE * (lines | 1)


def aligned(*shape: int) -> F32:
    """Return float32 zeros that start on a cache line."""
    size = int(np.prod(shape))
    raw = np.zeros(size + LINE // 4, np.float32)
    first = -raw.ctypes.data % LINE // 4
    return raw[first : first + size].reshape(shape)


class Layout:
    """Tables for the kernels and the map between parameter names and `theta`."""

    def __init__(self, spec: NetSpec) -> None:
        self.spec = spec
        names = [(f"{n}.{p}", shape) for n, i, o in spec.layers()
                 for p, shape in (("weight", (o, i)), ("bias", (o,)))]  # fmt: skip
        if spec.action == "gaussian":
            names.append(("log_std", (spec.action_size,)))
        self.slices: dict[str, tuple[int, tuple[int, ...]]] = {}
        at = 0
        for name, shape in names:
            self.slices[name] = (at, shape)
            at += int(np.prod(shape))
        self.size = at
        self._segments()
        self.block = self._pick_block()
        self._work = self._packed = self._grads = 0
        self._layers: list[tuple[int, ...]] = []
        self._rows: list[tuple[int, ...]] = []
        self._place()
        self.work_size, self.packed_size, self.grads_size = (
            self._work,
            _up(self._packed, LINE),
            self._grads,
        )
        self.layers = np.array(self._layers, LAYER)
        self.rows = np.array(sorted(self._rows), ROW)
        if int(self.rows["size"].sum()) != self.size:
            raise AssertionError("the rows must cover theta exactly")

    def views(self, flat: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        """Return named, shaped views of a vector laid out like `theta`."""
        return {
            name: flat[at : at + int(np.prod(shape))].reshape(shape)
            for name, (at, shape) in self.slices.items()
        }

    def cut_rows(self, threads: int) -> npt.NDArray[np.int64]:
        """Return `[threads + 1]` cuts of the row table into parts of about equal size."""
        done = np.concatenate([[0], np.cumsum(self.rows["size"])])
        goals = self.size * np.arange(threads + 1) // threads
        cuts: npt.NDArray[np.int64] = np.searchsorted(done, goals).astype(np.int64)
        cuts[-1] = len(self.rows)
        return cuts

    def _segments(self) -> None:
        """Columns of the policy head: (first column, true size, vectors) of every segment."""
        sizes = [self.spec.action_size] if self.spec.action == "gaussian" else list(self.spec.nvec)
        rows, first = [], 0
        for size in sizes:
            vectors = _up(size, 8) // 8
            rows.append((first, size, vectors))
            first += 8 * vectors
        self.segments = np.array(rows, np.int64).reshape(-1, 3)
        self.head_columns = first

    def _pick_block(self) -> int:
        """Samples that pass through a net at a time: activations should stay in the second cache."""
        row = _up(self.spec.obs_size, 8) + sum(_up(h, 8) for h in self.spec.hidden)
        return 96 if 4 * 96 * row <= 256 * 1024 else 48

    def _take_work(self, columns: int) -> int:
        """Reserve a column block of float32 rows in `work`, 64-byte aligned."""
        at = self._work
        self._work = _up(at + 4 * columns, 64)
        return at

    def _sums_row(self) -> int:
        """Bytes from row to row of the sums that `fused_seven` makes of a block's activations."""
        return _stride(max(self.spec.hidden, default=0) // 2)

    def _sums_size(self) -> int:
        """Floats of four quarters of sums."""
        return 4 * (self.block // 2) * self._sums_row() // 4

    def _take_turned(self) -> int:
        """Reserve room in `work` for the first layer's gradient, turned, if it has less padding so; return where, or -1.

        An input that is always 1 takes part, and needs a place in the padding of the inputs.
        """
        inputs, outputs = self.spec.obs_size, (*self.spec.hidden, 0)[0]
        rows, columns = _up(inputs + 1, 6), _up(outputs, 8)
        if inputs % 8 == 0 or rows > 48 or rows * columns >= _up(outputs, 6) * _up(inputs, 8):
            return -1
        return self._take_work(max(rows, _up(inputs, 8)) * columns)

    def _place(self) -> None:
        spec, block = self.spec, self.block
        source_row = _stride(spec.obs_size)
        source = self._take_work(block * source_row // 4)
        trunks = ["trunk"] if spec.shared else ["pi", "vf"]
        turned = [self._take_turned() for _ in trunks]
        base, ends = self._work, []
        heads: dict[str, tuple[int, int]] = {}
        policy_layers = 0
        for net, (trunk, room) in enumerate(zip(trunks, turned, strict=True)):
            self._work = base  # the nets run one after another in the same activations
            at, row, size = source, source_row, spec.obs_size
            for i, width in enumerate(spec.hidden):
                name = f"{trunk}.{i}"
                rows = [(name, o, o) for o in range(width)]
                biases = [(name, 0, 0, width)]
                at, row = self._layer(
                    net, rows, biases, size, width, at, row, i == 0, True, -1 if i else room
                )
                size = width
            parts, biases, outputs = [], [], 0
            if trunk != "vf":
                true = 0
                for first, choices, _ in self.segments.tolist():
                    parts += [("pi_out", true + k, first + k) for k in range(choices)]
                    biases.append(("pi_out", true, first, choices))
                    true += choices
                    outputs = first + choices
            value_column = self.head_columns if trunk == "trunk" else 0
            if trunk != "pi":
                parts.append(("vf_out", 0, value_column))
                biases.append(("vf_out", 0, value_column, 1))
                outputs = value_column + 1
            out, out_row = self._layer(
                net, parts, biases, size, outputs, at, row, not spec.hidden, False
            )
            if trunk != "vf":
                heads["logits"] = (out, out_row)
                policy_layers = len(self._layers)
            if trunk != "pi":
                heads["values"] = (out + 4 * value_column, out_row)
            ends.append(self._work)
        self._work = max(ends)
        exps_row = 4 * self.head_columns
        exps = self._take_work(block * self.head_columns)
        columns = SEGMENTS + SEGMENT_COLUMNS * len(self.segments)
        scratch = self._take_work(columns * block)
        staged = self._take_work(spec.noise_size * block)
        sums = self._take_work(self._sums_size())
        kept = self._take_work(3 * (block // 2) * max(spec.hidden, default=0) // 2)
        self._work += 256  # the last tile's rows may pass the end of a block
        log_std = self._packed
        self._packed += 8 * self.head_columns
        grad_log_std = self._grads
        self._grads = _up(self._grads + 4 * self.head_columns, 64)
        if spec.action == "gaussian":
            theta = self.slices["log_std"][0]
            self._rows.append(
                (
                    theta,
                    spec.action_size,
                    grad_log_std,
                    LOG_STD,
                    log_std,
                    4 * self.head_columns,
                    -1,
                    0,
                    -1,
                    -1,
                    0,
                    0,
                    0,
                )
            )
        self.plan = np.zeros((), PLAN)
        values = {
            "nets": len(trunks), "policy_layers": policy_layers, "layers": len(self._layers),
            "gaussian": int(spec.action == "gaussian"), "block": block,
            "logits": heads["logits"][0], "logits_row": heads["logits"][1],
            "logits_vectors": self.head_columns // 8,
            "values": heads["values"][0], "values_row": heads["values"][1],
            "exps": exps, "exps_row": exps_row, "scratch": scratch, "staged": staged,
            "log_std": log_std, "inverse_std": log_std + 4 * self.head_columns,
            "grad_log_std": grad_log_std, "inputs": spec.obs_size, "source_row": source_row,
            "actions": spec.noise_size, "sums": sums, "sums_row": self._sums_row(), "kept": kept,
        }  # fmt: skip
        for key, value in values.items():
            self.plan[key] = value

    def _layer(
        self,
        net: int,
        parts: list[tuple[str, int, int]],
        biases: list[tuple[str, int, int, int]],
        inputs: int,
        outputs: int,
        source: int,
        source_row: int,
        first: bool,
        hidden: bool,
        turned: int = -1,
    ) -> tuple[int, int]:
        """Add a layer of a net, of `parts` (name, row of the tensor, padded row); return where its output lies."""
        columns, source_columns = _up(outputs, 8), _up(inputs, 8)
        out_row = _stride(max(columns, _up(outputs, 6)))
        out = self._take_work((self.block + 6) * out_row // 4)
        forward = self._packed
        few = outputs <= FEW and not hidden  # `few_product`
        bias = forward + 4 * max(inputs * columns, outputs * source_columns if few else 0)
        backward = -1 if first else _up(bias + 4 * columns, LINE)
        end = bias + 4 * columns if first else backward + 4 * outputs * source_columns
        self._packed = _up(end, LINE)
        forward_sums = backward_sums = source_sums = sevenths = -1
        if (
            hidden
            and not first
            and min(inputs, outputs) >= WIDE_LAYER
            and inputs % 64 == outputs % 64 == 0
        ):
            forward_sums = self._packed
            backward_sums = forward_sums + 4 * inputs * outputs
            self._packed = backward_sums + 4 * inputs * outputs
            source_sums = self._take_work(self._sums_size())
            sevenths = self._take_work(7 * inputs * outputs // 4)
        grad, grad_row = self._grads, _stride(source_columns)
        grad_bias = grad + grad_row * max(_up(outputs, 6), columns)
        self._grads = _up(grad_bias + 4 * columns, 64)
        tanh = self.spec.activation == "tanh"
        self._layers.append(
            (
                inputs,
                outputs,
                columns,
                source,
                source_row,
                source_columns,
                out,
                out_row,
                forward,
                backward,
                bias,
                grad,
                grad_row,
                grad_bias,
                turned,
                forward_sums,
                backward_sums,
                source_sums,
                sevenths,
                (TANH if tanh else RELU) if hidden else LINEAR,
                TANH_SLOPE if tanh else RELU_SLOPE,
            )
        )
        inputs_wide, inputs_half = source_columns // WIDE * WIDE, source_columns // 16 * 16
        back_half, back_tail = (
            backward + 4 * inputs_wide * outputs,
            backward + 4 * inputs_half * outputs,
        )
        for k, (name, row, padded) in enumerate(parts):
            eight = padded % 8 == 0 and parts[k + 7 : k + 8] == [(name, row + 7, padded + 7)]
            begin, width = panel_of.py_func(padded, columns)  # type: ignore[attr-defined]
            place = begin * inputs + padded - begin
            if few:
                width, place = 1, padded * source_columns
            self._rows.append(
                (
                    self.slices[f"{name}.weight"][0] + row * inputs,
                    inputs,
                    grad + padded * grad_row,
                    WEIGHT,
                    forward + 4 * place,
                    4 * width,
                    -1 if first else backward + PANEL * padded,
                    inputs_wide,
                    back_half + 64 * padded if inputs_half > inputs_wide and not first else -1,
                    -1 if first else back_tail + 32 * padded,
                    outputs,
                    int(eight and inputs >= 8),
                    net,
                )
            )
        for name, row, padded, count in biases:
            theta = self.slices[f"{name}.bias"][0] + row
            self._rows.append(
                (
                    theta,
                    count,
                    grad_bias + 4 * padded,
                    BIAS,
                    bias + 4 * padded,
                    0,
                    -1,
                    0,
                    -1,
                    -1,
                    0,
                    0,
                    net,
                )
            )
        return out, out_row
