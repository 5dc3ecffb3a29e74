"""What the torch learners have in common: acting with stacks, memory and noise, and gradients in lanes.

Acting uses a copy of the network that is refreshed by `begin`, so that a rollout is played with one set of weights even
if an update runs meanwhile.

With pictures, a gradient is the sum over *pieces* of a minibatch, small enough for the processor's cache. Pieces are
dealt out to lanes, lanes to threads; each lane adds up its own, and the lanes are added in order. So a result depends on
the number of lanes, never on the threads that work on them. Without pictures, or on a GPU, there is one piece, and torch's
own threads work on that.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.learn.carry import Carry, mark_begun
from holdfast.learn.device import CPU, choose, has_bfloat16, put, take
from holdfast.learn.layers import arrays, load
from holdfast.learn.learner import Index, Learner, RolloutLearner
from holdfast.learn.nets import ActorCritic
from holdfast.learn.optimiser import Optimiser, pull_back
from holdfast.learn.options import LearnerConfig
from holdfast.learn.pixels import Longs, View
from holdfast.learn.policy import pick_discrete, to_box
from holdfast.learn.spec import NetSpec, check_parameters
from holdfast.parallel import Threads
from holdfast.records import F32, Array, Bools, Rollout
from holdfast.rng import Streams

LANES = 4
"""Shares of a gradient: up to four threads give equal results, more take a lane each."""
PIECE = 1_806_336
"""Numbers of a piece, at most: 64 stacks of four frames of 84 x 84."""
LEAST = 32
"""Stacks from which on a piece is shared with another lane."""
COMPILED = "_orig_mod."
"""What torch.compile puts before the names of a wrapped network's parameters."""
NOTHING = torch.zeros(0)
T = TypeVar("T")


class NetLearner(RolloutLearner):
    """A torch network that acts; subclasses say how it learns."""

    device: torch.device

    def __init__(
        self,
        spec: NetSpec,
        config: LearnerConfig,
        streams: Streams,
        slots: int,
        name: str = "policy",
    ) -> None:
        self.device = choose(spec, config)
        if config.bfloat16 and not has_bfloat16(self.device):
            raise ConfigError(
                f"learner.bfloat16 = true, and the device here ({self.device}) has no bfloat16 units: float32 is many "
                "times as fast. Leave it out."
            )
        self.net = ActorCritic(spec).to(self.device)
        self.actor = copy.deepcopy(self.net)
        self.optimiser = Optimiser(self.net, config)
        self.view = View(spec) if spec.picture else None
        super().__init__(spec, config, streams, slots, name)
        self.pieced = self.view is not None and not config.compile and self.device == CPU
        self.rows = 0 if self.view is None else max(1, PIECE // self.view.floats())
        self.lanes = max(LANES, self.threads)
        unroll = self.net.unroll_held
        self._unroll = torch.compile(unroll) if config.compile else unroll
        self._pools = {use: Threads(self.threads if self.pieced else 1) for use in ("act", "learn")}
        self._rooms: dict[tuple[str, int], F32] = {}
        self._memory = np.zeros((slots, spec.memory_floats), np.float32)
        self._carry: Carry | None = None
        self._last: Rollout | None = None
        torch.set_num_threads(1 if self.pieced else self.threads)

    def first_parameters(self) -> dict[str, F32]:
        rng = self.streams[f"{self.name}/init"]
        return self.net.first_parameters(rng, self.config.log_std)

    def parameters(self) -> dict[str, F32]:
        return arrays(self.net)

    def load_parameters(self, parameters: dict[str, F32]) -> None:
        plain = {name.removeprefix(COMPILED): value for name, value in parameters.items()}
        check_parameters(self.net.state_dict(), plain)
        load(self.net, plain)
        self.actor.load_state_dict(self.net.state_dict())

    def new_rollout(self, slots: int) -> Rollout:
        self.restart()
        return super().new_rollout(slots)

    def restart(self) -> None:
        """Forget frames and memory: the next rollout begins with new episodes in every slot."""
        self._carry = self._last = None

    def begin(self, rollout: Rollout) -> None:
        super().begin(rollout)
        carry = self._now()
        if carry is None or not carry.fits(rollout):
            carry = Carry.fresh(rollout)
        carry.into(rollout)
        self._last = rollout
        if self.spec.noisy:
            rollout.noise_seed = self._noise_seed()
        self._take_weights(rollout)

    def _take_weights(self, rollout: Rollout) -> None:
        """Act with the weights of now, under the noise of the rollout."""
        self.actor.load_state_dict(self.net.state_dict())
        if self.spec.noisy:
            self.actor.set_noise(rollout.noise_seed)

    def shadow(self) -> Learner:
        other = super().shadow()
        assert isinstance(other, NetLearner)
        other.actor = copy.deepcopy(self.actor)
        other._pools = {use: Threads(pool.count) for use, pool in self._pools.items()}
        other._rooms = {}
        other._memory = np.zeros_like(self._memory)
        other.restart()
        return other

    def use_noise_of(self, rollout: Rollout) -> None:
        """Let the network learn under the noise that the rollout was played with."""
        self.net.set_noise(rollout.noise_seed if self.spec.noisy else None)

    def _noise_seed(self) -> int:
        return int(self.streams[f"{self.name}/noise"].integers(2**63))

    def act(self, rollout: Rollout, t: int) -> Array:
        mark_begun(rollout, t)
        if self.norm is not None:
            self.norm.apply_in_place(rollout.obs[t], rollout.mask[t])
        if t == 0:
            self._memory = rollout.memory[0]
        everyone = np.arange(rollout.slots)
        head, values, self._memory = self._play(
            rollout.frames, rollout.begun, rollout.history + t, everyone, self._memory
        )
        if t == rollout.steps - 1:
            rollout.memory[1] = self._memory
        rollout.values[t] = values
        actions = rollout.actions[t]
        self._sample(head, rollout.noise[t], actions, rollout.log_probs[t])
        return to_box(self.spec, actions) if self.spec.action == "gaussian" else actions

    def end(self, rollout: Rollout, t: int, over: Bools, final_obs: Array) -> None:
        rollout.begun[rollout.history + t + 1] |= over
        cut = np.flatnonzero(rollout.truncations[t])
        if not len(cut):
            return
        rows = slice(t + 1, rollout.history + t + 2)
        frames, begun = rollout.frames[rows, cut].copy(), rollout.begun[rows, cut].copy()
        last = final_obs[cut].reshape(len(cut), -1)
        frames[-1] = last if self.norm is None else self.norm.apply(last)
        begun[-1] = False
        _, values, _ = self._play(
            frames, begun, rollout.history, np.arange(len(cut)), self._memory[cut]
        )
        rollout.final_values[t, cut] = values

    def _values(self, obs: Array) -> F32:
        """Return the value of observations as if each were the first of its episode."""
        return self._first(obs)[1]

    def _forward(self, obs: Array, noise: F32, actions: Array, log_probs: F32, values: F32) -> None:
        head, values[:] = self._first(obs)
        self._sample(head, noise, actions, log_probs)

    def _first(self, obs: Array) -> tuple[F32, F32]:
        count = len(obs)
        frames = np.ascontiguousarray(obs, self.spec.obs_dtype).reshape(1, count, -1)
        memory = np.zeros((count, self.spec.memory_floats), np.float32)
        begun = np.ones((1, count), np.bool_)
        return self._play(frames, begun, 0, np.arange(count), memory)[:2]

    def _bootstrap(self, rollout: Rollout) -> F32:
        if self._last is not rollout:  # a shadow has played it; the present network looks ahead
            self._take_weights(rollout)
        mark_begun(rollout, rollout.steps)
        row, everyone = rollout.history + rollout.steps, np.arange(rollout.slots)
        if self.norm is None:
            return self._play(rollout.frames, rollout.begun, row, everyone, rollout.memory[1])[1]
        obs = self.norm.apply(rollout.obs[-1])[None]
        return self._play(obs, rollout.begun[row:], 0, everyone, rollout.memory[1])[1]

    def _play(
        self, frames: Array, begun: Bools, row: int, slots: Longs, memory: F32
    ) -> tuple[F32, F32, F32]:
        """Return heads, values and memory after the step of `frames [R, N, D]` at `row` in these slots."""
        size = max(self.rows // LANES, 1) if self.pieced else max(len(slots), 1)
        shares = [slots[k : k + size] for k in range(0, len(slots), size)]
        heads = np.empty((len(slots), self.spec.outputs), np.float32)
        values = np.empty(len(slots), np.float32)
        after = np.empty_like(memory)

        def work(lo: int, hi: int) -> None:
            # A thread that was never told takes another count of threads at first, and rounds otherwise.
            torch.set_num_threads(1 if self.pieced else self.threads)
            for k in range(lo, hi):
                mine = shares[k]
                part = slice(k * size, k * size + len(mine))
                rows = np.full(len(mine), row)
                inputs = self.inputs(frames, begun, rows, mine, ("act", k))
                # Each thread has a gradient mode of its own.
                with torch.no_grad(), self.precision():
                    head, value, state = self.actor.unroll(
                        inputs,
                        self.put(memory[part]),
                        self.put(begun[row, mine][None]),
                    )
                heads[part], values[part] = take(head.float()), take(value.float())
                after[part] = take(state.float())

        self._pools["act"].over(len(shares), work)
        return heads, values, after

    def _sample(self, head: F32, noise: F32, actions: Array, log_probs: F32) -> None:
        if self.spec.action == "gaussian":
            actions[:] = head + np.exp(take(self.actor.log_std)) * noise
        else:
            actions[:] = pick_discrete(head, self.spec.nvec, noise).reshape(actions.shape)
        with torch.no_grad():
            found = self.actor.log_prob_entropy(self.put(head), self.put(actions))
        log_probs[:] = take(found[0])

    def inputs(
        self, frames: Array, begun: Bools, rows: Longs, slots: Longs, room: tuple[str, int]
    ) -> Tensor:
        """Return what the network reads at these rows and slots; valid until the room is used again."""
        if self.view is None:
            return self.put(frames[rows, slots])
        if self.device != CPU:
            return self.view.lay_out(self.put(self.view.stacks(frames, begun, rows, slots)))
        held = self._rooms.get(room)
        if held is None or len(held) < len(rows):
            held = self._rooms[room] = self.view.empty(len(rows))
        out = held[: len(rows)]
        self.view.fill(frames, begun, rows, slots, out)
        return torch.from_numpy(out).permute(0, 3, 1, 2)

    def put(self, array: Array) -> Tensor:
        """Return an array as a tensor where the network is."""
        return put(array, self.device)

    def precision(self) -> AbstractContextManager[None]:
        """Return the context of a forward pass."""
        if not self.config.bfloat16:
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16)

    def evaluate(
        self, rollout: Rollout, positions: Longs, lane: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return heads, values and what the belief reads, of single steps t * N + n with today's weights."""
        rows, slots = positions // rollout.slots + rollout.history, positions % rollout.slots
        inputs = self.inputs(rollout.frames, rollout.begun, rows, slots, ("learn", lane))
        with self.precision():
            head, value, held = self._unroll(inputs, NOTHING, NOTHING)
        return head.float(), value.float(), held.float()

    def unroll(
        self, rollout: Rollout, steps: int, slots: Longs, lane: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return heads, values and what the belief reads, `[steps * n]` step by step, of whole sequences."""
        rows = np.repeat(np.arange(steps) + rollout.history, len(slots))
        inputs = self.inputs(
            rollout.frames, rollout.begun, rows, np.tile(slots, steps), ("learn", lane)
        )
        begun = rollout.begun[rollout.history : rollout.history + steps, slots]
        state = self.put(rollout.memory[0, slots])
        with self.precision():
            head, value, held = self._unroll(inputs, state, self.put(begun))
        return head.float(), value.float(), held.float()

    def sequences(self, rollout: Rollout, passes: int) -> tuple[Index, Longs]:
        """Return `[passes, N]` shuffled slots and the borders of minibatches of whole sequences."""
        rng = self.streams[f"{self.name}/minibatches"]
        slots = rollout.slots
        order = np.stack([rng.permutation(slots) for _ in range(passes)]).astype(np.int32)
        count = min(slots, max(1, round(slots * rollout.steps / self.config.minibatch)))
        return order, np.arange(count + 1, dtype=np.int64) * slots // count

    def pieces_of(self, items: Longs, rows_each: int) -> list[Longs]:
        """Return the items of a minibatch, of `rows_each` stacks, in pieces."""
        if not self.pieced:
            return [items]
        total = len(items) * rows_each
        count = max(round(total / self.rows), min(LANES, total // LEAST))
        count = max(1, min(count, len(items)))
        cuts = np.arange(count + 1) * len(items) // count
        return [items[a:b] for a, b in pairwise(cuts)]

    def gradient(
        self, pieces: Sequence[T], loss_of: Callable[[T, int], tuple[Tensor, dict[str, float]]]
    ) -> dict[str, float]:
        """Add the gradient of the summed losses to that of the parameters; return the summed metrics."""
        if self.spec.noisy and self.config.noisy_update == "fresh":
            self.net.set_noise(self._noise_seed())
        parameters = list(self.net.parameters())
        lanes = min(self.lanes, len(pieces))
        grads: list[list[Tensor]] = [[] for _ in range(lanes)]
        metrics: list[list[dict[str, float]]] = [[] for _ in range(lanes)]

        def work(lo: int, hi: int) -> None:
            if self.pieced:
                torch.set_num_threads(1)
            for lane in range(lo, hi):
                for piece in pieces[lane::lanes]:
                    loss, found = loss_of(piece, lane)
                    # The mixture density has no part in the loss while no belief is taught.
                    new = torch.autograd.grad(loss, parameters, materialize_grads=True)
                    metrics[lane].append(found)
                    if grads[lane]:
                        for total, grad in zip(grads[lane], new, strict=True):
                            total.add_(grad)
                    else:
                        grads[lane] = list(new)

        self._pools["learn"].over(lanes, work)
        for lane in grads:
            for parameter, grad in zip(parameters, lane, strict=True):
                parameter.grad = grad if parameter.grad is None else parameter.grad.add_(grad)
        flat = [found for lane in metrics for found in lane]
        return {key: sum(found[key] for found in flat) for key in flat[0]}

    def step(self, gradients: int) -> float:
        """Make one step along the mean of the gradients that were added; return its norm."""
        for parameter in self.net.parameters():
            assert parameter.grad is not None
            if gradients > 1:
                parameter.grad /= gradients
        pull_back(self.net, self.anchor)
        lr = self.settings["lr"] * self.settings["lr_scale"]
        return self.optimiser.step(lr, self.config.max_grad_norm)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "carry": self._carried()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._carry_on(state.get("carry"))

    def acting_state(self) -> dict[str, Any]:
        return {**super().acting_state(), "carry": self._carried()}

    def load_acting_state(self, state: dict[str, Any]) -> None:
        super().load_acting_state(state)
        self._carry_on(state.get("carry"))  # the compiled learner has none

    def _carried(self) -> dict[str, Any] | None:
        carry = self._now()
        return None if self.spec.plain or carry is None else carry.state_dict()

    def _carry_on(self, state: dict[str, Any] | None) -> None:
        self.restart()
        if state is not None:
            self._carry = Carry.from_state(state)

    def _now(self) -> Carry | None:
        """Return what the next rollout goes on from."""
        return self._carry if self._last is None else Carry.after(self._last)

    def _optimiser_state(self) -> dict[str, Any]:
        return self.optimiser.state()

    def _load_optimiser_state(self, state: dict[str, Any]) -> None:
        self.optimiser.load(state)
