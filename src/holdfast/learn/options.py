"""Settings of the learner: the `[learner]` table of a config."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Annotated, Literal

from msgspec import Meta

from holdfast.errors import ConfigError
from holdfast.learn.schedule import parse_windows

IDLE = {
    "vtrace": ("clip", "value_clip", "target_kl"),
    "sac": ("accumulate", "lam", "clip", "value_clip", "value_coef", "target_kl", "log_std"),
}
"""Settings that a kind of learner has no use for; the bounds of weights are V-trace's alone."""
BOUNDS = ("rho_bar", "c_bar")


@dataclass(frozen=True)
class ReplayConfig:
    """What is remembered, and how it is drawn."""

    enabled: bool = False
    """Learn again from what older policies did (V-trace only)."""
    batch: Annotated[int, Meta(ge=1)] = 16
    """Sequences of one gradient."""
    gradients: Annotated[int, Meta(ge=1)] = 1
    """Gradient steps from the memory after each rollout that is due."""
    capacity: Annotated[int, Meta(ge=1)] = 100_000
    """Steps that are kept."""
    max_gb: Annotated[float, Meta(gt=0)] = 2.0
    """Memory that they may take; a capacity that needs more is cut. Checkpoints hold no more than that either."""
    mode: Literal["sequence", "transition"] = "sequence"
    """Sequences with what off-policy correction needs, or single steps with stale targets, for comparison."""
    length: Annotated[int, Meta(ge=0)] = 0
    """Steps of a sequence; 0 takes whole rollouts. It divides the steps of a rollout."""
    alpha: Annotated[float, Meta(ge=0)] = 0.6
    """Power of the priorities; 0 draws evenly."""
    beta: Annotated[float, Meta(ge=0, le=1)] = 0.4
    """Power of the importance weights at first; it rises to 1."""
    beta_samples: Annotated[int, Meta(ge=1)] = 100_000
    """Calls of `sample` over which it does."""
    eta: Annotated[float, Meta(ge=0, le=1)] = 0.9
    """Share of the largest error of a sequence in its priority; the rest is the mean."""
    floor: Annotated[float, Meta(gt=0)] = 1e-5
    """Added to every priority, so that nothing is forgotten for ever."""
    stratified: bool = True
    """Draw one from each of equal shares of the total, instead of all from the whole."""
    interval: Annotated[int, Meta(ge=1)] = 1
    """Updates from one sample to the next; every rollout is pushed."""
    adaptive: bool = False
    """Double the interval (up to 16) when the errors hardly change, halve it when they do."""
    half: bool = True
    """Store log-probabilities, rewards and values with half precision."""
    save: bool = True
    """Put the contents into checkpoints; without them a resumed run begins with an empty memory."""


@dataclass(frozen=True)
class SacConfig:
    """What soft actor-critic has of its own."""

    capacity: Annotated[int, Meta(ge=1)] = 1_000_000
    """Transitions that are kept; the oldest make room."""
    max_gb: Annotated[float, Meta(gt=0)] = 2.0
    """Memory that they may take; a capacity that needs more is cut."""
    save: bool = True
    """Put them into checkpoints; without them a resumed run begins with an empty memory."""
    batch: Annotated[int, Meta(ge=2)] = 256
    """Transitions of one gradient step (2 or more)."""
    gradients: Annotated[float, Meta(gt=0)] = 1.0
    """Gradient steps for each step of all slots; they are made after each rollout of `learner.steps`."""
    warmup: Annotated[int, Meta(ge=0)] = 1000
    """Transitions before learning begins; until then actions are drawn evenly, unless `run.init_from` gave a policy."""
    tau: Annotated[float, Meta(gt=0, le=1)] = 0.005
    """How far the target critics move to the critics with each gradient step."""
    auto_entropy: bool = False
    """Learn the weight of the entropy, `learner.entropy` being the first; else it stays what it is set to."""
    target_entropy: float | None = None
    """Entropy that `auto_entropy` aims at, in nats; None is minus the size of an action."""


@dataclass(frozen=True)
class LearnerConfig:
    """PPO or V-trace on rollouts of `steps` steps from all slots, or SAC on all that was played."""

    kind: Literal["auto", "torch", "fused", "vtrace", "sac"] = "auto"
    """`fused` (PPO, compiled, for MLPs), `torch` (PPO for every network), `vtrace` (actor-critic with V-trace, one
    pass, for rollouts of an older policy), `sac` (soft actor-critic, for continuous actions); `auto` is fused for flat
    observations without memory, else torch."""
    steps: Annotated[int, Meta(ge=1)] = 128
    """Steps of one rollout (1 or more)."""
    epochs: Annotated[int, Meta(ge=1)] = 5
    """Passes over a rollout (1 or more; V-trace makes one)."""
    minibatch: Annotated[int, Meta(ge=2)] = 1024
    """Samples of one gradient (2 or more); with memory or V-trace, whole sequences of about as many steps."""
    accumulate: Annotated[int, Meta(ge=1)] = 1
    """Gradients whose mean makes one step of the optimiser (1 or more)."""
    optimiser: Literal["adam", "rmsprop"] = "adam"
    """Rule of the gradient steps."""
    lr: Annotated[float, Meta(gt=0)] = 3e-4
    """Learning rate (above 0)."""
    lr_schedule: Literal["constant", "linear", "cosine", "warm_cosine"] = "linear"
    """How the learning rate falls over the whole run."""
    lr_warmup: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Share of the run over which the learning rate rises (0 to 1); `cosine` falls over the rest."""
    lr_floor: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Share of the learning rate to which the schedule falls (0 to 1)."""
    gamma: Annotated[float, Meta(ge=0, le=1)] = 0.99
    """Discount a step (0 to 1)."""
    lam: Annotated[float, Meta(ge=0, le=1)] = 0.95
    """Lambda of the advantage estimate; for V-trace the factor of every trace (0 to 1)."""
    rho_bar: Annotated[float, Meta(gt=0)] = 1.0
    """Bound of the importance weight of a step in V-trace (above 0)."""
    c_bar: Annotated[float, Meta(gt=0)] = 1.0
    """Bound of the importance weight of a trace in V-trace (above 0, up to `rho_bar`)."""
    clip: Annotated[float, Meta(gt=0)] = 0.2
    """How far the probability ratio may move a minibatch (above 0)."""
    value_clip: Annotated[float, Meta(ge=0)] = 0.0
    """How far a value may move from its old one; 0 is off."""
    entropy: Annotated[float, Meta(ge=0)] = 0.01
    """Weight of the entropy bonus (0 or more)."""
    entropy_windows: str = ""
    """Entropy weights by update, such as `16-24:0.03,25+:0.02`."""
    value_coef: Annotated[float, Meta(ge=0)] = 0.5
    """Weight of the value loss (0 or more)."""
    max_grad_norm: Annotated[float, Meta(ge=0)] = 0.5
    """Largest norm of a gradient; 0 is off."""
    target_kl: Annotated[float, Meta(ge=0)] = 0.0
    """An update ends early when a minibatch's KL exceeds that of the first by 1.5 times this; 0 is off. With overlap the
    policy that learns is ahead of the one that played, so the first has a KL of its own."""
    normalise_advantages: bool = True
    """Shift and scale the advantages of every minibatch (V-trace never does)."""
    normalise_obs: bool = False
    """Shift and scale observations by running statistics; not pictures: those of bytes are centred, others left alone."""
    normalise_rewards: bool = False
    """Divide rewards by the running deviation of the discounted return."""
    net: Literal["auto", "mlp", "sensors", "small", "nature", "impala", "big"] = "auto"
    """What reads the observation: `mlp`, `sensors` (lidar, history and state of pursuit), or for pictures `small` (narrow, about five times as fast as nature),
    `nature` (Mnih 2015), `impala` (residual, Espeholt 2018), `big` (1.2 G multiply-adds: not for a CPU); `auto` is
    mlp for numbers and nature for pictures."""
    encoder: Literal["bimdn", "lstm", "mlp"] = "bimdn"
    """What reads the history of `net = "sensors"`: an LSTM both ways in time with a mixture density of the opponent's
    place beside it, an LSTM, or an MLP."""
    belief: Annotated[float, Meta(ge=0)] = 0.0
    """Weight of the loss that teaches `bimdn` the opponent's true place (0 or more; 0 is off)."""
    memory: Literal["none", "gru", "lstm", "transformer"] = "none"
    """What the policy carries from step to step of an episode."""
    memory_size: Annotated[int, Meta(ge=1, le=4096)] = 128
    """Width of the memory (1 to 4096; a multiple of 4 for `transformer`)."""
    memory_window: Annotated[int, Meta(ge=2, le=1024)] = 16
    """Steps that each layer of a transformer looks back, the present one included (2 to 1024)."""
    memory_layers: Annotated[int, Meta(ge=1, le=16)] = 1
    """Layers of the memory (1 to 16)."""
    noisy: bool = False
    """Parameter noise in both heads, drawn once a rollout; a frozen policy plays without it."""
    noisy_update: Literal["rollout", "fresh"] = "rollout"
    """Noise in the update: that of the rollout, so that the first ratio is 1, or new noise for every gradient."""
    compile: bool = False
    """Compile the network with torch.compile (needs a C++ compiler; checkpoints stay the same)."""
    bfloat16: bool = False
    """Compute in bfloat16; refused where the processor has no units for it, because it is slower there."""
    hidden: Annotated[tuple[int, ...], Meta(ge=1, le=4096)] = (64, 64)
    """Widths of the hidden layers of an MLP (each 1 to 4096)."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Nonlinearity of the hidden layers."""
    shared: bool = False
    """One trunk for policy and value instead of two."""
    log_std: float = 0.0
    """First log standard deviation of continuous actions."""
    threads: Annotated[int, Meta(ge=0, le=1024)] = 0
    """Threads of the learner; 0 takes all cores (`sac` one)."""
    device: str = "auto"
    """Where torch computes: `cpu`, `cuda`, `cuda:1`, ...; `auto` is a GPU for pictures if there is one, else the
    processor. The compiled learner (`fused`) is for the processor alone."""
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    """Prioritised replay of sequences, for V-trace."""
    sac: SacConfig = field(default_factory=SacConfig)
    """Soft actor-critic."""

    def __post_init__(self) -> None:
        parse_windows(self.entropy_windows, "learner.entropy_windows")
        if self.kind == "sac":
            self._check_sac()
        if self.replay.enabled and (self.kind != "vtrace" or self.normalise_obs):
            raise ConfigError(
                f"replay.enabled = true with kind = '{self.kind}' and normalise_obs = "
                f"{str(self.normalise_obs).lower()}. Sequences of older policies need the correction of V-trace, and "
                "observations that mean the same later. Type: --learner.kind vtrace --learner.normalise-obs false"
            )
        if self.replay.enabled:
            sequence_steps(self.replay, self.steps, self.memory != "none")
        if self.belief > 0 and (self.net != "sensors" or self.encoder != "bimdn"):
            raise ConfigError(
                f"belief = {self.belief:g} with net = '{self.net}' and encoder = '{self.encoder}'. Only the mixture "
                "density learns where the opponent is. Type: --learner.net sensors --learner.encoder bimdn"
            )
        if self.net == "sensors" and self.shared:
            raise ConfigError(
                "shared = true with net = 'sensors'. Policy and value share the encoder already, and `hidden` is what "
                "each has of its own. Leave shared out; for one trunk alone, type: --learner.hidden '[]'"
            )
        if self.c_bar > self.rho_bar:
            raise ConfigError(
                f"c_bar = {self.c_bar:g} is above rho_bar = {self.rho_bar:g}. Allowed: up to rho_bar."
            )
        if self.memory == "transformer" and self.memory_size % 4:
            raise ConfigError(
                f"memory_size = {self.memory_size} is not a multiple of 4, which a transformer needs."
            )

    def _check_sac(self) -> None:
        """Refuse what soft actor-critic has not."""
        wrong = {
            f"memory = '{self.memory}'": self.memory != "none",
            f"belief = {self.belief:g}": self.belief > 0,
            **{
                f"{name} = true": getattr(self, name)
                for name in ("noisy", "shared", "compile", "bfloat16", "normalise_obs")
            },
        }
        found = [setting for setting, here in wrong.items() if here]
        if found:
            raise ConfigError(
                f"kind = 'sac' has no {', '.join(found)}: it remembers single steps, and observations that must mean "
                "the same later. Leave it out (such as --learner.normalise-obs false), or choose another kind: auto, "
                "torch, fused, vtrace."
            )


def check_samples(config: LearnerConfig, slots: int) -> None:
    """Raise if a rollout of `slots` slots is one sample: advantages only tell samples from each other."""
    if config.kind != "sac" and slots * config.steps < 2:
        raise ConfigError(
            f"A rollout of {slots} slot x learner.steps = {config.steps} is one sample, and nothing can be learned from "
            "one alone. Type for example: --learner.steps 128, or have more games: --games 8"
        )


def check_idle(config: LearnerConfig) -> None:
    """Raise for what was set and has no meaning for this kind of learner.

    Details of a part that is off (the size of a memory that there is not) are no mistake: a part may be turned off alone.
    """
    kind = f"kind = '{config.kind}'"
    without = dict.fromkeys(IDLE.get(config.kind, ()), kind)
    if config.kind != "vtrace":
        without.update(dict.fromkeys(BOUNDS, kind))
    if config.kind == "sac" and config.sac.auto_entropy:
        without["entropy_windows"] = "sac.auto_entropy = true"
    for setting in fields(config):
        name, value = setting.name, getattr(config, setting.name)
        if name in without and value != setting.default:
            raise ConfigError(
                f"learner.{name} = {value!r} does nothing with {without[name]}. Leave it out, or change the other; "
                "'holdfast train WORLD --settings' tells what each is for."
            )


def sequence_steps(replay: ReplayConfig, steps: int, memory: bool) -> int:
    """Return the steps of a remembered sequence of rollouts of `steps`; raise if they cannot be cut so."""
    length = 1 if replay.mode == "transition" else replay.length or steps
    if steps % length:
        raise ConfigError(
            f"replay.length = {length} does not divide the {steps} steps of a rollout. "
            f"Write a divisor of {steps}, or 0 for whole rollouts."
        )
    if memory and length != steps:
        raise ConfigError(
            f"replay.length = {replay.length} and replay.mode = '{replay.mode}' cut rollouts of {steps} steps, but that of a "
            "policy with memory is stored with what it carried into its first step only, and must stay whole. Write length "
            "= 0 and mode = 'sequence'."
        )
    return length


def check_capacity(config: LearnerConfig, slots: int) -> None:
    """Raise if the memory of older rollouts would not hold one of `slots` slots."""
    replay, steps = config.replay, config.steps
    if replay.enabled and replay.capacity < slots * steps:
        raise ConfigError(
            f"learner.replay.capacity = {replay.capacity} holds less than one rollout of {slots} slots x {steps} steps. "
            f"Allowed: {slots * steps} or more, for example: --learner.replay.capacity {10 * slots * steps}"
        )
