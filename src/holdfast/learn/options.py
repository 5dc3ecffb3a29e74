"""Settings of the learner: the `[learner]` table of a config."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta


@dataclass(frozen=True)
class LearnerConfig:
    """PPO on rollouts of `steps` steps from all slots."""

    kind: Literal["auto", "torch", "fused"] = "auto"
    """Implementation: `fused` (compiled, MLP on CPU), `torch` (everything), `auto` picks."""
    steps: Annotated[int, Meta(ge=1)] = 128
    """Steps of one rollout (1 or more)."""
    epochs: Annotated[int, Meta(ge=1)] = 5
    """Passes over a rollout (1 or more)."""
    minibatch: Annotated[int, Meta(ge=2)] = 1024
    """Samples of one gradient step (2 or more)."""
    lr: Annotated[float, Meta(gt=0)] = 3e-4
    """Learning rate of Adam (above 0)."""
    lr_schedule: Literal["constant", "linear", "cosine", "warm_cosine"] = "linear"
    """How the learning rate falls over the whole run."""
    lr_warmup: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Share of the run over which the learning rate rises from 0 (0 to 1)."""
    gamma: Annotated[float, Meta(ge=0, le=1)] = 0.99
    """Discount a step (0 to 1)."""
    lam: Annotated[float, Meta(ge=0, le=1)] = 0.95
    """Lambda of the advantage estimate (0 to 1)."""
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
    """An update ends early when a minibatch's KL exceeds 1.5 times this; 0 is off."""
    normalise_advantages: bool = True
    """Shift and scale the advantages of every minibatch."""
    normalise_obs: bool = False
    """Shift and scale observations by running statistics."""
    normalise_rewards: bool = False
    """Divide rewards by the running deviation of the discounted return."""
    hidden: Annotated[tuple[int, ...], Meta(ge=1, le=4096)] = (64, 64)
    """Widths of the hidden layers (each 1 to 4096)."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Nonlinearity of the hidden layers."""
    shared: bool = False
    """One trunk for policy and value instead of two."""
    log_std: float = 0.0
    """First log standard deviation of continuous actions."""
    threads: Annotated[int, Meta(ge=0, le=1024)] = 0
    """Threads of the learner; 0 takes all cores."""
