"""Soft actor-critic (Haarnoja 2018): learns from all that was played, with a bonus for entropy, continuous actions only.

A rollout goes into the memory (`ring.py`), then `sac.gradients` gradient steps are made for each of its steps:

    target   r + gamma * (min of the target critics at the next action - alpha * its log-density), r alone at an end
    critics  squared error of both to the target
    actor    alpha * log-density - min of the critics at its own action
    alpha    `learner.entropy`, or learned so that the entropy stays near `sac.target_entropy`

An episode that was cut goes on from its last observation. All that is random comes from NumPy streams, and the memory is
saved with the run, so a resumed run goes on bit for bit.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from holdfast.errors import ConfigError
from holdfast.learn.device import choose, put, take
from holdfast.learn.layers import arrays, draw_all, load
from holdfast.learn.learner import Learner
from holdfast.learn.optimiser import Optimiser, pull_back
from holdfast.learn.options import LearnerConfig
from holdfast.learn.returns import explained_variance
from holdfast.learn.ring import Cut, Ring
from holdfast.learn.sac_nets import SacActor, SacCritic, Temperature
from holdfast.learn.spec import NetSpec, check_parameters
from holdfast.records import F32, Array, Bools, Rollout
from holdfast.rng import Streams

TARGET = "_target"
"""Ends the names of the critics that follow slowly."""


class SacLearner(Learner):
    """An actor and two critics."""

    device: torch.device
    replay: Ring

    def __init__(
        self,
        spec: NetSpec,
        config: LearnerConfig,
        streams: Streams,
        slots: int,
        name: str = "policy",
    ) -> None:
        sac = config.sac
        self.device = choose(spec, config)
        self.actor, self.critic = SacActor(spec).to(self.device), SacCritic(spec).to(self.device)
        self.target = SacCritic(spec, TARGET).to(self.device)
        self.temperature = None
        if sac.auto_entropy:
            if config.entropy <= 0:
                raise ConfigError(
                    "sac.auto_entropy = true begins with learner.entropy, which is 0. Allowed: above 0."
                )
            self.temperature = Temperature(config.entropy).to(self.device)
        self.replay = Ring(sac.capacity, sac.max_gb, sac.save)
        self.optimisers = {net: Optimiser(net, config) for net in self._learning()}
        self._player = copy.deepcopy(self.actor)
        self._first: dict[str, F32] = {}
        self._at_random = True
        self._cuts: list[Cut] = []
        super().__init__(spec, config, streams, slots, name)
        self._first = arrays(self.actor)
        self.threads = config.threads or 1  # a small batch is not worth sharing
        torch.set_num_threads(self.threads)

    def _learning(self) -> list[nn.Module]:
        return [self.actor, self.critic] + ([self.temperature] if self.temperature else [])

    def first_parameters(self) -> dict[str, F32]:
        rng = self.streams[f"{self.name}/init"]
        draw_all(self.actor, rng)
        draw_all(self.critic, rng)
        self._follow_critics(1.0)
        return self.parameters()

    def parameters(self) -> dict[str, F32]:
        found: dict[str, F32] = {}
        for net in [*self._learning(), self.target]:
            found.update(arrays(net))
        return found

    def load_parameters(self, parameters: dict[str, F32]) -> None:
        check_parameters(self.parameters(), parameters)
        for net in [*self._learning(), self.target]:
            load(net, parameters)
        self._player.load_state_dict(self.actor.state_dict())

    def begin(self, rollout: Rollout) -> None:
        super().begin(rollout)
        self._player.load_state_dict(self.actor.state_dict())
        self._cuts = []
        # A policy that was given to the run, or has learned, plays from the start.
        self._at_random = self.replay.pushed < self.config.sac.warmup and all(
            np.array_equal(value, self._first[name]) for name, value in arrays(self.actor).items()
        )

    def end(self, rollout: Rollout, t: int, over: Bools, final_obs: Array) -> None:
        cut = np.flatnonzero(rollout.truncations[t])
        if len(cut):
            last = np.asarray(final_obs[cut], np.float32).reshape(len(cut), -1)
            self._cuts.append(Cut(t, cut, last))

    @torch.no_grad()
    def _forward(self, obs: F32, noise: F32, actions: Array, log_probs: F32, values: F32) -> None:
        if self._at_random:
            chance = 0.5 * (1.0 + torch.erf(torch.from_numpy(noise) / 2.0**0.5))
            actions[:] = 2.0 * chance.numpy() - 1.0
            log_probs[:] = -noise.shape[1] * np.log(2.0)
            return
        made, logs = self._player(self._put(obs), self._put(noise))
        actions[:], log_probs[:] = take(made), take(logs)

    @torch.no_grad()
    def _values(self, obs: F32) -> F32:
        """Return what the best action is worth."""
        rows = self._put(np.ascontiguousarray(obs, np.float32))
        return take(torch.min(*self.critic(rows, self.actor.best(rows))))

    def _put(self, array: Array) -> Tensor:
        """Return an array as a tensor where the networks are."""
        return put(array, self.device)

    def update(self, rollout: Rollout) -> dict[str, float]:
        mask = rollout.mask[:-1]
        if self.reward_norm is not None:
            self.reward_norm.track(rollout)
        self.replay.push(rollout, self._cuts)
        metrics = {
            "samples": float(mask.sum()),
            "masked_share": 1.0 - float(mask.mean()),
            "replay_fill_rate": self.replay.size / max(self.replay.room, 1),
            "minibatches": 0.0,
        }
        steps = max(1, round(rollout.steps * self.config.sac.gradients))
        if self.replay.size and self.replay.pushed >= self.config.sac.warmup:
            metrics.update(self._learn(steps))
        metrics.update(self.in_use())
        return metrics

    def _learn(self, steps: int) -> dict[str, float]:
        """Make gradient steps; return their mean metrics."""
        batch, size = self.config.sac.batch, self.spec.action_size
        draws = self.streams[f"{self.name}/minibatches"].integers(
            self.replay.size, size=(steps, batch)
        )
        noise = self.streams[f"{self.name}/update_noise"].standard_normal(
            (steps, 2, batch, size), np.float32
        )
        sums: dict[str, float] = {}
        for index, now in zip(draws, self._put(noise), strict=True):
            for key, value in self._step(index, now[0], now[1]).items():
                sums[key] = sums.get(key, 0.0) + value / steps
        return {**sums, "minibatches": float(steps)}

    def _step(self, index: Array, noise: Tensor, next_noise: Tensor) -> dict[str, float]:
        """Make one gradient step of all networks from these transitions."""
        rows = self.replay.take(index)
        obs, next_obs = self._put(rows.obs), self._put(rows.next_obs)
        alpha = self.alpha
        if self.reward_norm is not None:
            self.reward_norm.scale_in_place(rows.rewards)
        with torch.no_grad():
            next_actions, next_logs = self.actor(next_obs, next_noise)
            follows = torch.min(*self.target(next_obs, next_actions)) - alpha * next_logs
            go_on = self._put(~rows.ended).float()
            target = self._put(rows.rewards) + self.config.gamma * go_on * follows
        first, second = self.critic(obs, self._put(rows.actions))
        value_loss = 0.5 * ((first - target) ** 2 + (second - target) ** 2).mean()
        grad_norm = self._descend(self.critic, value_loss)

        actions, logs = self.actor(obs, noise)
        worth = torch.min(*self.critic(obs, actions))
        actor_loss = (alpha * logs - worth).mean()
        self._descend(self.actor, actor_loss)
        entropy = -float(logs.detach().mean())
        if self.temperature is not None:
            above = entropy - self._target_entropy
            self._descend(self.temperature, (self.temperature.log_alpha * above).sum())
        self._follow_critics(self.config.sac.tau)
        predicted, known = take(first)[None], take(target)[None]
        return {
            "actor_loss": float(actor_loss.detach()),
            "value_loss": float(value_loss.detach()),
            "entropy_mean": entropy,
            "alpha": alpha,
            "q_mean": float(worth.detach().mean()),
            "grad_norm": grad_norm,
            "explained_variance": explained_variance(predicted, known, np.ones_like(known, bool)),
        }

    @property
    def alpha(self) -> float:
        """The weight of the entropy now."""
        if self.temperature is None:
            return self.settings["entropy"]
        return float(self.temperature.log_alpha.detach().exp())

    def in_use(self) -> dict[str, float]:
        return {**super().in_use(), "entropy": self.alpha}

    @property
    def _target_entropy(self) -> float:
        given = self.config.sac.target_entropy
        return -float(self.spec.action_size) if given is None else given

    def _descend(self, net: nn.Module, loss: Tensor) -> float:
        """Make one step of one network down its loss; return the norm of the gradient."""
        parameters = list(net.parameters())
        grads = torch.autograd.grad(loss, parameters, materialize_grads=True)
        for parameter, grad in zip(parameters, grads, strict=True):
            parameter.grad = grad
        if net is self.actor:
            pull_back(net, self.anchor)
        lr = self.settings["lr"] * self.settings["lr_scale"]
        return self.optimisers[net].step(lr, self.config.max_grad_norm)

    @torch.no_grad()
    def _follow_critics(self, tau: float) -> None:
        """Move the target critics towards the critics."""
        pairs = zip(self.target.parameters(), self.critic.parameters(), strict=True)
        for slow, fast in pairs:
            slow.lerp_(fast, tau)

    def shadow(self) -> Learner:
        other = super().shadow()
        assert isinstance(other, SacLearner)
        other._player = copy.deepcopy(self._player)
        return other

    def adopt(self, shadow: Learner) -> None:
        super().adopt(shadow)
        assert isinstance(shadow, SacLearner)
        self._cuts, shadow._cuts = shadow._cuts, []

    def acting_state(self) -> dict[str, Any]:
        return {**super().acting_state(), "cuts": [dict(vars(cut)) for cut in self._cuts]}

    def load_acting_state(self, state: dict[str, Any]) -> None:
        super().load_acting_state(state)
        self._cuts = [Cut(**cut) for cut in state["cuts"]]

    def _optimiser_state(self) -> dict[str, Any]:
        found: dict[str, Any] = {"step": 0, "m": {}, "v": {}}
        for optimiser in self.optimisers.values():
            state = optimiser.state()
            found["step"] = state["step"]
            found["m"].update(state["m"])
            found["v"].update(state["v"])
        return found

    def _load_optimiser_state(self, state: dict[str, Any]) -> None:
        for optimiser in self.optimisers.values():
            optimiser.load(state)
