"""What a policy network looks like, and the first parameters of a plain MLP.

Parameter names are torch's, so that every learner reads every other learner's checkpoint:
`pi.0.weight [out, in]`, `pi.0.bias`, ..., `pi_out.weight`, `vf.0.weight`, ..., `vf_out.weight`
(shared trunk: `trunk.0.weight`, ...), and `log_std [A]` for Gaussian actions. Networks for pictures and
networks with memory (`nets.py`) have one trunk for policy and value, `trunk....`, and `core....`. A network
for sensors has these and `pi`, `vf` after them. SAC has `q1` and `q2` in place of `vf`, and its `pi_out` gives means and
log deviations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from holdfast.errors import ConfigError, StorageError
from holdfast.learn.options import LearnerConfig
from holdfast.records import F32, SMALLEST_PICTURE, is_picture

ActionKind = Literal["discrete", "multi_discrete", "gaussian", "squashed"]
"""`squashed`: tanh of a Gaussian whose deviation depends on the observation too (SAC)."""
Trunk = Literal["mlp", "sensors", "small", "nature", "impala", "big"]
Encoder = Literal["bimdn", "lstm", "mlp"]
Memory = Literal["none", "gru", "lstm", "transformer"]
FUSED_WIDTH = 512
"""Widest hidden layer that compiled code runs unless it is asked to."""
STATE = 7
"""Numbers of an observation of sensors that are the state."""
FEWEST_RAYS = 4
PLACE = 2
"""Numbers of a place: x and y."""


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
    trunk: Trunk = "mlp"
    """What reads the observation."""
    picture: tuple[int, ...] = ()
    """Height, width and channels of one frame; empty for flat observations."""
    pixel: Literal["uint8", "float32"] = "uint8"
    """Type of a frame's numbers; uint8 is centred before the network (`learn.pixels.MIDDLE`, `SPREAD`)."""
    stack: int = 1
    """Frames that the network sees at once, the newest last."""
    memory: Memory = "none"
    memory_size: int = 128
    """Width of the memory, and of what the heads read."""
    memory_window: int = 16
    """Steps that a transformer looks back, the present one included."""
    memory_layers: int = 1
    """Layers of the memory."""
    noisy: bool = False
    """Whether both heads have parameter noise."""
    sensors: tuple[int, ...] = ()
    """Lidar rays and rows of history in an observation of sensors; empty for other observations."""
    encoder: Encoder = "bimdn"
    """What reads the history of sensors."""
    metres: bool = False
    """Whether sensors come in metres and radians, which the network then scales, or normalised."""
    truth: int = 0
    """Numbers a slot that teach the belief: what a rollout holds besides observations."""

    def __post_init__(self) -> None:
        if self.action == "discrete" and len(self.nvec) != 1:
            raise ValueError(
                f"A discrete action is one choice, so nvec has one number, not {self.nvec}. "
                "Several choices at once are 'multi_discrete'."
            )

    @property
    def plain(self) -> bool:
        """Whether it is an MLP without memory or noise: what needs no torch."""
        return self.trunk == "mlp" and self.memory == "none" and not self.noisy

    @property
    def continuous(self) -> bool:
        """Whether actions are numbers rather than choices."""
        return self.action in ("gaussian", "squashed")

    @property
    def obs_dtype(self) -> type[np.float32] | type[np.uint8]:
        """Type of an observation in a rollout."""
        return np.uint8 if self.picture and self.pixel == "uint8" else np.float32

    @property
    def memory_floats(self) -> int:
        """How many numbers a slot carries from step to step."""
        if self.memory == "transformer":
            return (self.memory_window - 1) * (self.memory_layers * self.memory_size + 1)
        numbers = {"none": 0, "gru": 1, "lstm": 2}[self.memory]
        return numbers * self.memory_layers * self.memory_size

    @property
    def outputs(self) -> int:
        """Size of the action head."""
        if self.action == "squashed":
            return 2 * self.action_size
        return self.action_size if self.continuous else sum(self.nvec)

    @property
    def noise_size(self) -> int:
        """How many random numbers one action takes."""
        return self.action_size if self.continuous else len(self.nvec)

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Shape of one action in a rollout."""
        if self.action == "discrete":
            return ()
        return (self.noise_size,)

    @property
    def action_dtype(self) -> type[np.float32] | type[np.int32]:
        """Type of an action in a rollout."""
        return np.float32 if self.continuous else np.int32

    def layers(self) -> list[tuple[str, int, int]]:
        """Return (name, inputs, outputs) of every linear layer of a plain MLP, in order."""
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
    """Return the spec of a plain MLP policy for these spaces (of one slot)."""
    config = LearnerConfig(hidden=hidden, activation=activation, shared=shared)
    return spec_from(config, observation_space, action_space)


def spec_from(
    config: LearnerConfig,
    observation_space: gym.Space[Any],
    action_space: gym.Space[Any],
    stack: int = 1,
    sensors: tuple[int, ...] = (),
    truth: int = 0,
) -> NetSpec:
    """Return the spec that the config asks for; `stack`, `sensors` and `truth` are what the world says of itself."""
    actions = action_fields(action_space)
    if config.kind == "sac":
        actions = {**actions, "action": _squashed(actions["action"])}
    if not isinstance(observation_space, gym.spaces.Box):
        raise ConfigError(
            f"The observation space {observation_space} is not a Box. Flatten it first, for example "
            "with gymnasium.wrappers.FlattenObservation, and pass 'my_module:make_env'."
        )
    shape, pixels = observation_space.shape, observation_space.dtype == np.uint8
    pictures = is_picture(shape)
    trunk = config.net if config.net != "auto" else "nature" if pixels and pictures else "mlp"
    if observation_space.dtype not in (np.float32, np.uint8):
        raise ConfigError(
            f"Observations of the type {observation_space.dtype} (shape {shape}) are not supported. "
            "Allowed: float32, or uint8 for pictures."
        )
    if trunk == "sensors":
        _check_sensors(config, sensors, truth)
    elif trunk != "mlp" and not pictures:
        raise ConfigError(
            f"learner.net = '{trunk}' reads pictures, and the observations have the shape {shape}. Allowed: "
            f"(height, width) or (height, width, channels) from {SMALLEST_PICTURE} x {SMALLEST_PICTURE} on. "
            "For other observations, type: --learner.net mlp"
        )
    if trunk == "mlp" and (pixels or stack > 1):
        raise ConfigError(
            f"learner.net = 'mlp' cannot read pictures ({observation_space.dtype}, shape {shape}). "
            "Type: --learner.net nature; for mario, --observation tiles gives numbers instead."
        )
    numbers = trunk in ("mlp", "sensors")
    if not numbers and config.kind == "sac":
        raise ConfigError(
            f"learner.kind = 'sac' has no net = '{trunk}': it keeps observations as numbers. "
            "Type: --learner.kind torch"
        )
    return NetSpec(
        obs_size=int(np.prod(shape)),
        hidden=config.hidden,
        activation=config.activation,
        shared=config.shared,
        trunk=trunk,
        picture=() if numbers else (*shape, 1) if len(shape) == 2 else tuple(shape),
        pixel="uint8" if pixels else "float32",
        stack=stack,
        memory=config.memory,
        memory_size=config.memory_size,
        memory_window=config.memory_window,
        memory_layers=config.memory_layers,
        noisy=config.noisy,
        sensors=sensors if trunk == "sensors" else (),
        encoder=config.encoder if trunk == "sensors" else "bimdn",
        metres=trunk == "sensors" and not config.normalise_obs,
        truth=truth if config.belief > 0 else 0,
        **actions,
    )


def _check_sensors(config: LearnerConfig, sensors: tuple[int, ...], truth: int) -> None:
    """Refuse `net = "sensors"` where the world has none, or not what is asked of them."""
    if not sensors:
        raise ConfigError(
            "learner.net = 'sensors' reads lidar, history and state, and these observations are something else. "
            "For pursuit, type: --observation sensors; else: --learner.net mlp"
        )
    if sensors[0] < FEWEST_RAYS:
        raise ConfigError(
            f"learner.net = 'sensors' cannot read {sensors[0]} lidar rays. Allowed: {FEWEST_RAYS} or more "
            "(world.lidar_rays)."
        )
    if config.belief > 0 and truth != PLACE:
        raise ConfigError(
            f"learner.belief = {config.belief:g} needs a world that tells the opponent's place (x, y); this one tells "
            f"{truth} numbers. Type: --learner.belief 0"
        )


def check_actions(spec: NetSpec, space: gym.Space[Any]) -> None:
    """Raise if the actions of a policy are not those of an action space."""
    theirs = action_fields(space)
    if (spec.nvec, spec.low, spec.high) != tuple(
        theirs.get(k, ()) for k in ("nvec", "low", "high")
    ):
        mine = f"choices {spec.nvec}" if spec.nvec else f"numbers from {spec.low} to {spec.high}"
        raise ConfigError(
            f"The policy's actions are {mine}, and the environment takes {space}: it is not the one that the policy was "
            "trained in. Put it back as it was, or train a new policy."
        )


def check_same(saved: Mapping[str, Any], spec: NetSpec, world: str) -> None:
    """Raise if the spec of a checkpoint is not that of the network which the world now asks for."""
    before, now = asdict(NetSpec.from_state(dict(saved))), asdict(spec)
    unlike = [
        f"{k}: {before[k]} in the checkpoint, {now[k]} now" for k in now if before[k] != now[k]
    ]
    if unlike:
        raise StorageError(
            f"The run cannot go on: {world} is not as it was when the checkpoint was made.\n  "
            + "\n  ".join(unlike)
            + "\nPut it back as it was, or start a new run with 'holdfast train'; --init-from takes over parameters that fit."
        )


def action_fields(space: gym.Space[Any]) -> dict[str, Any]:
    """Return the fields of a spec that describe an action space."""
    if isinstance(space, gym.spaces.Discrete):
        if space.start != 0:
            raise ConfigError(f"The action space {space} must start at 0.")
        return {"action": "discrete", "nvec": (int(space.n),)}
    if isinstance(space, gym.spaces.MultiDiscrete):
        return {"action": "multi_discrete", "nvec": tuple(int(n) for n in space.nvec.ravel())}
    if isinstance(space, gym.spaces.Box):
        low, high = space.low.ravel(), space.high.ravel()
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise ConfigError(
                f"The action space {space} has no finite bounds. "
                "Rescale it, for example with gymnasium.wrappers.RescaleAction."
            )
        return {
            "action": "gaussian",
            "action_size": len(low),
            "low": tuple(map(float, low)),
            "high": tuple(map(float, high)),
        }
    raise ConfigError(
        f"The action space {space} is not supported. "
        "Allowed: Discrete, MultiDiscrete, Box with finite bounds."
    )


def _squashed(kind: ActionKind) -> ActionKind:
    """Return the kind of SAC's actions."""
    if kind != "gaussian":
        raise ConfigError(
            "learner.kind = 'sac' needs a Box of continuous actions, and these are choices. "
            "Allowed for them: auto, torch, fused, vtrace."
        )
    return "squashed"


def initial_parameters(
    spec: NetSpec, rng: np.random.Generator, log_std: float = 0.0
) -> dict[str, F32]:
    """Return orthogonal weights (gain sqrt 2; 0.01 for the action head, 1 for the value head)."""
    parameters: dict[str, F32] = {}
    for name, inputs, outputs in spec.layers():
        gain = {"pi_out": 0.01, "vf_out": 1.0}.get(name, float(np.sqrt(2.0)))
        parameters[f"{name}.weight"] = orthogonal(rng, outputs, inputs, gain)
        parameters[f"{name}.bias"] = np.zeros(outputs, np.float32)
    if spec.action == "gaussian":
        parameters["log_std"] = np.full(spec.action_size, log_std, np.float32)
    return parameters


def orthogonal(rng: np.random.Generator, rows: int, columns: int, gain: float) -> F32:
    """Return a matrix whose rows or columns, whichever are fewer, are orthogonal and of length `gain`."""
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
