"""What a policy carries from step to step: GRU, LSTM, or a transformer that looks back over a window.

All have one method for acting (one step) and for learning (a whole rollout), so the two cannot differ:

    y, state = core(x, state, begun)       # x [T, N, F], state [N, M], begun [T, N]

Where `begun` is True the row is the first of an episode: what was carried to it is dropped there and nothing flows back
through it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from holdfast.learn.layers import Dense, Norm, write_orthogonal
from holdfast.learn.spec import NetSpec

HEADS = 4


class Gates(nn.Module):
    """Parameters of a gated recurrent cell: `gates` matrices for the input and as many for the state."""

    def __init__(self, inputs: int, width: int, gates: int) -> None:
        super().__init__()
        self.width, self.gates = width, gates
        self.weight_ih = nn.Parameter(torch.empty(gates * width, inputs))
        self.weight_hh = nn.Parameter(torch.empty(gates * width, width))
        self.bias_ih = nn.Parameter(torch.empty(gates * width))
        self.bias_hh = nn.Parameter(torch.empty(gates * width))

    def draw(self, rng: np.random.Generator) -> None:
        """Draw each gate's matrices orthogonal; biases are zero."""
        for weight in (self.weight_ih, self.weight_hh):
            for gate in weight.data.chunk(self.gates):
                write_orthogonal(gate, rng, 1.0)
        for bias in (self.bias_ih, self.bias_hh):
            nn.init.zeros_(bias)


class Gru(Gates):
    """Gated recurrent unit (Cho 2014), with torch's gate order: reset, update, new."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__(inputs, width, 3)

    def forward(self, x: Tensor, state: Tensor, begun: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs `[T, N, H]` and the state after the last step."""
        inputs = functional.linear(x, self.weight_ih, self.bias_ih)
        keep = (~begun).to(state.dtype).unsqueeze(-1)
        h, outputs = state, []
        for t in range(len(x)):
            h = h * keep[t]
            reset_x, update_x, new_x = inputs[t].chunk(3, 1)
            reset_h, update_h, new_h = functional.linear(h, self.weight_hh, self.bias_hh).chunk(
                3, 1
            )
            reset = torch.sigmoid(reset_x + reset_h)
            update = torch.sigmoid(update_x + update_h)
            new = torch.tanh(new_x + reset * new_h)
            h = new + update * (h - new)
            outputs.append(h)
        return torch.stack(outputs), h


class Lstm(Gates):
    """Long short-term memory (Hochreiter 1997), with torch's gate order: input, forget, new, output."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__(inputs, width, 4)

    def draw(self, rng: np.random.Generator) -> None:
        """Draw as all gates do; the forget gate begins open (bias 1)."""
        super().draw(rng)
        nn.init.ones_(self.bias_ih.data[self.width : 2 * self.width])

    def forward(self, x: Tensor, state: Tensor, begun: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs `[T, N, H]` and the state `[N, 2H]` (output, cell) after the last step."""
        inputs = functional.linear(x, self.weight_ih, self.bias_ih)
        keep = (~begun).to(state.dtype).unsqueeze(-1)
        (h, cell), outputs = state.chunk(2, 1), []
        for t in range(len(x)):
            h, cell = h * keep[t], cell * keep[t]
            gates = inputs[t] + functional.linear(h, self.weight_hh, self.bias_hh)
            enter, forget, new, leave = gates.chunk(4, 1)
            cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(new)
            h = torch.sigmoid(leave) * torch.tanh(cell)
            outputs.append(h)
        return torch.stack(outputs), torch.cat([h, cell], 1)


class Block(nn.Module):
    """Attention over the window and a dense layer, each beside a short cut, normalised before."""

    def __init__(self, width: int, window: int) -> None:
        super().__init__()
        self.width, self.window = width, window
        self.norm_attention, self.norm_dense = Norm(width), Norm(width)
        self.query, self.key, self.value = (Dense(width, width, 1.0) for _ in range(3))
        # Short cuts carry nearly everything at first (Parisotto 2020), so learning begins as without memory.
        self.mix = Dense(width, width, 0.1)
        self.up, self.down = Dense(width, 2 * width), Dense(2 * width, width, 0.1)
        self.distance = nn.Parameter(torch.empty(HEADS, window))

    def draw(self, rng: np.random.Generator) -> None:
        """Begin with no preference for near or far; the layers inside draw for themselves."""
        nn.init.zeros_(self.distance)

    def forward(self, x: Tensor, past: Tensor, bias: Tensor) -> Tensor:
        """Return `[T, N, H]`; `past [W-1, N, H]` are the inputs before, `bias [N, heads, T, W-1+T]` is added."""
        steps, slots, width = x.shape
        rows = self.norm_attention(torch.cat([past, x]))

        def heads(y: Tensor) -> Tensor:
            return y.reshape(len(y), slots, HEADS, width // HEADS).permute(1, 2, 0, 3)

        query, key, value = self.query(rows[-steps:]), self.key(rows), self.value(rows)
        scores = heads(query) @ heads(key).transpose(2, 3) / math.sqrt(width // HEADS)
        mixed = torch.softmax(scores + bias, -1) @ heads(value)
        x = x + self.mix(mixed.permute(2, 0, 1, 3).reshape(steps, slots, width))
        out: Tensor = x + self.down(torch.relu(self.up(self.norm_dense(x))))
        return out


class Transformer(nn.Module):
    """Attention back over `window` steps of the same episode; each layer's past inputs are what is carried."""

    def __init__(self, inputs: int, width: int, window: int, layers: int) -> None:
        super().__init__()
        self.width, self.window = width, window
        self.enter = Dense(inputs, width)
        self.blocks = nn.ModuleList(Block(width, window) for _ in range(layers))
        self.leave = Norm(width)

    def forward(self, x: Tensor, state: Tensor, begun: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs `[T, N, H]` and the last `window - 1` inputs of every layer, with their validity."""
        steps, back = len(x), self.window - 1
        pasts = state[:, back:].reshape(len(state), len(self.blocks), back, self.width)
        # Rows of one episode have one number; what was carried has 0, and what is not valid there has -1.
        number = torch.cumsum(begun.long(), 0)
        numbers = torch.cat([state[:, :back].T.long() - 1, number])
        places = torch.arange(back + steps, device=x.device)
        apart = places[:steps, None] + back - places[None]
        seen = (apart >= 0) & (apart <= back)
        same = numbers.T[:, None, :] == number.T[:, :, None]
        hidden = ~(seen & same).unsqueeze(1)
        carried = [(numbers[steps:] == number[-1]).to(x.dtype).T]
        x = self.enter(x)
        for k, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            past = pasts[:, k].transpose(0, 1)
            carried.append(torch.cat([past, x])[steps:].transpose(0, 1).flatten(1))
            bias = block.distance[:, apart.clamp(0, back)].unsqueeze(0)
            x = block(x, past, bias.masked_fill(hidden, -math.inf))
        return self.leave(x), torch.cat(carried, 1)


class Layers(nn.Module):
    """Memories on top of each other: each reads what the one below returns."""

    def __init__(self, layers: Sequence[Gru | Lstm]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor, state: Tensor, begun: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs `[T, N, H]` of the last and the states of all after the last step."""
        states = []
        for layer, part in zip(self.layers, state.chunk(len(self.layers), 1), strict=True):
            x, after = layer(x, part, begun)
            states.append(after)
        return x, torch.cat(states, 1)


def make_core(spec: NetSpec, inputs: int) -> Gru | Lstm | Layers | Transformer:
    """Return the memory that `spec.memory` names, for `inputs` features."""
    if spec.memory == "transformer":
        return Transformer(inputs, spec.memory_size, spec.memory_window, spec.memory_layers)
    kinds: dict[str, type[Gru] | type[Lstm]] = {"gru": Gru, "lstm": Lstm}
    if spec.memory not in kinds:
        raise ValueError(f"there is no memory '{spec.memory}'")
    kind, width = kinds[spec.memory], spec.memory_size
    layers = [kind(inputs if k == 0 else width, width) for k in range(spec.memory_layers)]
    return layers[0] if len(layers) == 1 else Layers(layers)
