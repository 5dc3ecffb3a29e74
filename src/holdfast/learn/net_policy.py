"""A frozen policy with stacked pictures or memory: it remembers, for each row, the episode that is played there."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from holdfast.learn.nets import ActorCritic
from holdfast.learn.normalise import ObsNorm
from holdfast.learn.pixels import View
from holdfast.learn.policy import Policy
from holdfast.learn.spec import NetSpec, check_parameters
from holdfast.records import F32, Array, Bools

ROWS = 64
"""Observations that pass through the network at a time."""


class NetPolicy(Policy):
    """Plays without parameter noise. Rows of `obs` are slots, the same ones in every call until `begin`."""

    def __init__(
        self, spec: NetSpec, parameters: Mapping[str, F32], norm: ObsNorm | None = None
    ) -> None:
        super().__init__(spec, parameters, norm)
        self.net = ActorCritic(spec)
        check_parameters(self.net.state_dict(), self.parameters)
        self.net.load_state_dict({k: torch.tensor(v) for k, v in self.parameters.items()})
        self.view = View(spec) if spec.picture else None
        self._frames: Array | None = None
        self._begun = np.zeros((spec.stack, 0), np.bool_)
        self._memory = np.zeros((0, spec.memory_floats), np.float32)

    def begin(self) -> None:
        self._frames = None

    def act(
        self,
        obs: Array,
        rng: np.random.Generator | None = None,
        begun: Bools | None = None,
    ) -> Array:
        self._see(obs, begun)
        head, _, self._memory = self._run()
        return self._pick(head, rng)

    def values(self, obs: Array, begun: Bools | None = None) -> F32:
        kept = self._frames, self._begun
        self._see(obs, begun)
        value = self._run()[1]
        self._frames, self._begun = kept
        return value

    def _see(self, obs: Array, begun: Bools | None) -> None:
        """Add the newest frame of every row; all begin with the first call and with another number of rows."""
        rows = np.asarray(obs, self.spec.obs_dtype).reshape(len(obs), -1)
        if self.norm is not None:
            rows = self.norm.apply(rows)
        stack = self.spec.stack
        if self._frames is None or self._frames.shape[1] != len(rows):
            self._frames = np.zeros((stack, *rows.shape), rows.dtype)
            self._begun = np.zeros((stack, len(rows)), np.bool_)
            self._memory = np.zeros((len(rows), self.spec.memory_floats), np.float32)
            begun = np.ones(len(rows), np.bool_)
        first = np.zeros(len(rows), np.bool_) if begun is None else np.asarray(begun, np.bool_)
        self._frames = np.concatenate([self._frames[1:], rows[None]])
        self._begun = np.concatenate([self._begun[1:], first[None]])

    @torch.no_grad()
    def _run(self) -> tuple[F32, F32, F32]:
        """Return heads, values and the memory after this step."""
        assert self._frames is not None
        count, last = self._frames.shape[1], self.spec.stack - 1
        heads = np.empty((count, self.spec.outputs), np.float32)
        values = np.empty(count, np.float32)
        memory = np.empty_like(self._memory)
        for lo in range(0, count, ROWS):
            part = slice(lo, min(lo + ROWS, count))
            slots = np.arange(part.start, part.stop)
            if self.view is None:
                inputs = torch.from_numpy(self._frames[last, part])
            else:
                room = self.view.empty(len(slots))
                self.view.fill(self._frames, self._begun, np.full(len(slots), last), slots, room)
                inputs = torch.from_numpy(room).permute(0, 3, 1, 2)
            state = torch.from_numpy(self._memory[part])
            begun = torch.from_numpy(self._begun[last:, part])
            head, value, after = self.net.unroll(inputs, state, begun)
            heads[part], values[part], memory[part] = head.numpy(), value.numpy(), after.numpy()
        return heads, values, memory
