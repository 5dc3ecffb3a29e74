"""A frozen policy with stacked pictures or memory: it remembers, for each row, the episode that is played there."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from holdfast.learn.layers import load
from holdfast.learn.nets import ActorCritic
from holdfast.learn.normalise import ObsNorm
from holdfast.learn.pixels import View
from holdfast.learn.policy import Policy, observation_rows
from holdfast.learn.sac_nets import SacPlayer
from holdfast.learn.spec import NetSpec, check_parameters
from holdfast.records import F32, Array, Bools

ROWS = 64
"""Pictures that pass through the network at a time."""


class NetPolicy(Policy):
    """Plays without parameter noise. Rows of `obs` are slots, the same ones in every call until `begin`."""

    def __init__(
        self, spec: NetSpec, parameters: Mapping[str, F32], norm: ObsNorm | None = None
    ) -> None:
        super().__init__(spec, parameters, norm)
        self.net = network(spec, self.parameters)
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

    def answer(
        self, obs: Array, memory: F32, begun: Bools, rng: np.random.Generator | None = None
    ) -> tuple[Array, F32]:
        """Return one action a row and the memory after it, for rows whose `memory [n, M]` is kept elsewhere.

        What the policy remembers of its own rows stays as it is. Frames are not stacked here.
        """
        head, _, after = self._pass(self._rows(obs)[None], np.asarray(begun)[None], memory)
        return self._pick(head, rng), after

    def values(self, obs: Array, begun: Bools | None = None) -> F32:
        kept = self._frames, self._begun
        self._see(obs, begun)
        value = self._run()[1]
        self._frames, self._begun = kept
        return value

    def _see(self, obs: Array, begun: Bools | None) -> None:
        """Add the newest frame of every row; all begin with the first call and with another number of rows."""
        rows = self._rows(obs)
        stack = self.spec.stack
        if self._frames is None or self._frames.shape[1] != len(rows):
            self._frames = np.zeros((stack, *rows.shape), rows.dtype)
            self._begun = np.zeros((stack, len(rows)), np.bool_)
            self._memory = np.zeros((len(rows), self.spec.memory_floats), np.float32)
            begun = np.ones(len(rows), np.bool_)
        first = np.zeros(len(rows), np.bool_) if begun is None else np.asarray(begun, np.bool_)
        self._frames = np.concatenate([self._frames[1:], rows[None]])
        self._begun = np.concatenate([self._begun[1:], first[None]])

    def _rows(self, obs: Array) -> Array:
        rows = observation_rows(obs, self.spec).astype(self.spec.obs_dtype, copy=False)
        return rows if self.norm is None else self.norm.apply(rows)

    def _run(self) -> tuple[F32, F32, F32]:
        """Return heads, values and the memory after this step."""
        assert self._frames is not None
        return self._pass(self._frames, self._begun, self._memory)

    @torch.no_grad()
    def _pass(self, frames: Array, begun: Bools, memory: F32) -> tuple[F32, F32, F32]:
        """Return heads, values and memory after the last of `frames [S, n, D]`, in pieces of pictures."""
        count, last = frames.shape[1], len(frames) - 1
        heads = np.empty((count, self.spec.outputs), np.float32)
        values = np.empty(count, np.float32)
        after = np.empty_like(memory)
        size = max(count, 1) if self.view is None else ROWS
        for lo in range(0, count, size):
            part = slice(lo, min(lo + size, count))
            slots = np.arange(part.start, part.stop)
            if self.view is None:
                inputs = torch.from_numpy(frames[last, part])
            else:
                room = self.view.empty(len(slots))
                self.view.fill(frames, begun, np.full(len(slots), last), slots, room)
                inputs = torch.from_numpy(room).permute(0, 3, 1, 2)
            state = torch.from_numpy(memory[part])
            first = torch.from_numpy(begun[last:, part])
            head, value, carried = self.net.unroll(inputs, state, first)
            heads[part], values[part], after[part] = head.numpy(), value.numpy(), carried.numpy()
        return heads, values, after


def network(spec: NetSpec, parameters: Mapping[str, F32]) -> ActorCritic | SacPlayer:
    """Return the network that plays with these parameters."""
    if spec.action == "squashed":
        return SacPlayer(spec, parameters)
    net = ActorCritic(spec)
    check_parameters(net.state_dict(), dict(parameters))
    load(net, parameters)
    return net
