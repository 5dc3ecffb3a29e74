"""What a policy network looks like, and its first parameters.

Parameter names are torch's, so that every learner reads every other learner's checkpoint:
`pi.0.weight [out, in]`, `pi.0.bias`, ..., `pi_out.weight`, `vf.0.weight`, ..., `vf_out.weight`
(shared trunk: `trunk.0.weight`, ...), and `log_std [A]` for Gaussian actions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from holdfast.errors import ConfigError, StorageError
from holdfast.records import F32

ActionKind = Literal["discrete", "multi_discrete", "gaussian"]


@dataclass(frozen=True)
class NetSpec:
    """Sizes and kinds that fix the shape of every parameter."""

    obs_size: int
    action: ActionKind
    nvec: tuple[int, ...] = ()
    """Number of choices of each discrete action dimension."""
    action_size: int = 1
    """Dimensions of a continuous action."""
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    """Bounds of a continuous action; the network works in [-1, 1]."""
    hidden: tuple[int, ...] = (64, 64)
    activation: Literal["tanh", "relu"] = "tanh"
    shared: bool = False

    @property
    def outputs(self) -> int:
        """Size of the action head."""
        return self.action_size if self.action == "gaussian" else sum(self.nvec)

    @property
    def noise_size(self) -> int:
        """How many random numbers one action takes."""
        return self.action_size if self.action == "gaussian" else len(self.nvec)

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Shape of one action in a rollout."""
        if self.action == "discrete":
            return ()
        return (self.noise_size,)

    @property
    def action_dtype(self) -> type[np.float32] | type[np.int32]:
        """Type of an action in a rollout."""
        return np.float32 if self.action == "gaussian" else np.int32

    def layers(self) -> list[tuple[str, int, int]]:
        """Return (name, inputs, outputs) of every linear layer, in order."""
        trunks = ["trunk"] if self.shared else ["pi", "vf"]
        rows = []
        for trunk in trunks:
            size = self.obs_size
            for i, width in enumerate(self.hidden):
                rows.append((f"{trunk}.{i}", size, width))
                size = width
        last = self.hidden[-1] if self.hidden else self.obs_size
        rows += [("pi_out", last, self.outputs), ("vf_out", last, 1)]
        return rows

    def state(self) -> dict[str, Any]:
        """Return the spec as plain values, for a checkpoint."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> NetSpec:
        """Return the spec that `state()` described."""
        fields: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in state.items()
        }
        return cls(**fields)


def spec_for(
    observation_space: gym.Space[Any],
    action_space: gym.Space[Any],
    hidden: tuple[int, ...] = (64, 64),
    activation: Literal["tanh", "relu"] = "tanh",
    shared: bool = False,
) -> NetSpec:
    """Return the spec of an MLP policy for these spaces (of one slot)."""
    if not isinstance(observation_space, gym.spaces.Box):
        raise ConfigError(
            f"The observation space {observation_space} is not a Box. Flatten it first, for example "
            "with gymnasium.wrappers.FlattenObservation, and pass 'my_module:make_env'."
        )
    if observation_space.dtype != np.float32:
        raise ConfigError(
            f"Observations of the type {observation_space.dtype} (shape {observation_space.shape}) need a "
            "network for pictures, and the learners here are MLPs. For mario, type: --observation tiles"
        )
    size = int(np.prod(observation_space.shape))
    if isinstance(action_space, gym.spaces.Discrete):
        if action_space.start != 0:
            raise ConfigError(f"The action space {action_space} must start at 0.")
        return NetSpec(
            size,
            "discrete",
            nvec=(int(action_space.n),),
            hidden=hidden,
            activation=activation,
            shared=shared,
        )
    if isinstance(action_space, gym.spaces.MultiDiscrete):
        return NetSpec(
            size,
            "multi_discrete",
            nvec=tuple(int(n) for n in action_space.nvec.ravel()),
            hidden=hidden,
            activation=activation,
            shared=shared,
        )
    if isinstance(action_space, gym.spaces.Box):
        low, high = action_space.low.ravel(), action_space.high.ravel()
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise ConfigError(
                f"The action space {action_space} has no finite bounds. "
                "Rescale it, for example with gymnasium.wrappers.RescaleAction."
            )
        return NetSpec(
            size,
            "gaussian",
            action_size=len(low),
            low=tuple(map(float, low)),
            high=tuple(map(float, high)),
            hidden=hidden,
            activation=activation,
            shared=shared,
        )
    raise ConfigError(
        f"The action space {action_space} is not supported. "
        "Allowed: Discrete, MultiDiscrete, Box with finite bounds."
    )


def initial_parameters(
    spec: NetSpec, rng: np.random.Generator, log_std: float = 0.0
) -> dict[str, F32]:
    """Return orthogonal weights (gain sqrt 2; 0.01 for the action head, 1 for the value head)."""
    parameters: dict[str, F32] = {}
    for name, inputs, outputs in spec.layers():
        gain = {"pi_out": 0.01, "vf_out": 1.0}.get(name, float(np.sqrt(2.0)))
        parameters[f"{name}.weight"] = _orthogonal(rng, outputs, inputs, gain)
        parameters[f"{name}.bias"] = np.zeros(outputs, np.float32)
    if spec.action == "gaussian":
        parameters["log_std"] = np.full(spec.action_size, log_std, np.float32)
    return parameters


def _orthogonal(rng: np.random.Generator, rows: int, columns: int, gain: float) -> F32:
    tall = rng.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(tall)
    q = q * np.sign(np.diag(r))
    return np.ascontiguousarray((q if rows >= columns else q.T) * gain, dtype=np.float32)


def check_parameters(mine: dict[str, Any], given: dict[str, Any]) -> None:
    """Raise with a list of the differences when names or shapes do not match."""
    shapes = {k: tuple(v.shape) for k, v in mine.items()}
    other = {k: tuple(v.shape) for k, v in given.items()}
    if shapes != other:
        rows = [
            f"  {name}: checkpoint {other.get(name, 'missing')}, network {shapes.get(name, 'none')}"
            for name in sorted(set(shapes) | set(other))
            if shapes.get(name) != other.get(name)
        ]
        raise StorageError("The parameters do not fit the network:\n" + "\n".join(rows))
