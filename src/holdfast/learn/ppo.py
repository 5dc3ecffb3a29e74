"""PPO in torch: the readable reference, and the learner for what the fused kernels do not cover."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from holdfast.learn.learner import Index, Learner
from holdfast.learn.nets import ActorCritic
from holdfast.learn.options import LearnerConfig
from holdfast.learn.policy import pick_discrete
from holdfast.learn.spec import NetSpec, check_parameters
from holdfast.records import F32, Array, Rollout
from holdfast.rng import Streams

METRICS = ("policy_loss", "value_loss", "entropy_mean", "approx_kl", "clip_fraction", "grad_norm")


class TorchLearner(Learner):
    """Clipped PPO with Adam, on the CPU."""

    def __init__(
        self,
        spec: NetSpec,
        config: LearnerConfig,
        streams: Streams,
        slots: int,
        name: str = "policy",
    ) -> None:
        self.net = ActorCritic(spec)
        self.adam = torch.optim.Adam(self.net.parameters(), lr=config.lr, eps=1e-5)
        super().__init__(spec, config, streams, slots, name)
        torch.set_num_threads(self.threads)

    def parameters(self) -> dict[str, F32]:
        return {k: v.detach().numpy().copy() for k, v in self.net.state_dict().items()}

    def load_parameters(self, parameters: dict[str, F32]) -> None:
        check_parameters(self.net.state_dict(), parameters)
        self.net.load_state_dict({k: torch.tensor(v) for k, v in parameters.items()})

    @torch.no_grad()
    def _forward(self, obs: F32, noise: F32, actions: Array, log_probs: F32, values: F32) -> None:
        head, value = self.net(torch.from_numpy(obs))
        values[:] = value.numpy()
        if self.spec.action == "gaussian":
            actions[:] = (head + torch.exp(self.net.log_std) * torch.from_numpy(noise)).numpy()
        else:
            picks = pick_discrete(head.numpy(), self.spec.nvec, noise)
            actions[:] = picks.reshape(actions.shape)
        log_probs[:] = self.net.log_prob_entropy(head, torch.from_numpy(actions))[0].numpy()

    @torch.no_grad()
    def _values(self, obs: F32) -> F32:
        values: F32 = self.net.value(torch.from_numpy(np.ascontiguousarray(obs))).numpy()
        return values

    def _optimise(
        self, rollout: Rollout, order: Index, borders: npt.NDArray[np.int64]
    ) -> dict[str, float]:
        config = self.config
        for group in self.adam.param_groups:
            group["lr"] = self.settings["lr"] * self.settings["lr_scale"]
        samples = Samples(rollout)
        sums = dict.fromkeys(METRICS, 0.0)
        done = 0
        for epoch in order:
            for lo, hi in pairwise(borders):
                loss, metrics = self.loss(samples, torch.from_numpy(epoch[lo:hi].astype(np.int64)))
                if config.target_kl > 0 and metrics["approx_kl"] > 1.5 * config.target_kl:
                    return self._means(sums, done)
                self.adam.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                self._pull_back()
                limit = config.max_grad_norm or float("inf")
                norm = torch.nn.utils.clip_grad_norm_(self.net.parameters(), limit)
                self.adam.step()
                metrics["grad_norm"] = float(norm)
                done += 1
                for key in METRICS:
                    sums[key] += metrics[key]
        return self._means(sums, done)

    def loss(self, samples: Samples, rows: Tensor) -> tuple[Tensor, dict[str, float]]:
        """Return the loss of one minibatch and its metrics."""
        config, clip = self.config, self.settings["clip"]
        head, value = self.net(samples.obs[rows])
        log_prob, entropy = self.net.log_prob_entropy(head, samples.actions[rows])
        log_ratio = log_prob - samples.log_probs[rows]
        ratio = log_ratio.exp()
        advantage = samples.advantages[rows]
        if config.normalise_advantages:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        policy_loss = -torch.min(
            ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage
        ).mean()
        target, old = samples.returns[rows], samples.values[rows]
        error = (value - target) ** 2
        if config.value_clip > 0:
            near = old + (value - old).clamp(-config.value_clip, config.value_clip)
            error = torch.max(error, (near - target) ** 2)
        value_loss = 0.5 * error.mean()
        bonus = entropy.mean()
        loss = policy_loss + config.value_coef * value_loss - self.settings["entropy"] * bonus
        with torch.no_grad():
            metrics = {
                "policy_loss": float(policy_loss),
                "value_loss": float(value_loss),
                "entropy_mean": float(bonus),
                "approx_kl": float(((ratio - 1) - log_ratio).mean()),
                "clip_fraction": float(((ratio - 1).abs() > clip).float().mean()),
            }
        return loss, metrics

    def _pull_back(self) -> None:
        if self.anchor is None or self.anchor.weight <= 0:
            return
        for name, parameter in self.net.named_parameters():
            fisher = torch.from_numpy(self.anchor.fisher[name])
            old = torch.from_numpy(self.anchor.values[name])
            assert parameter.grad is not None
            parameter.grad += self.anchor.weight * fisher * (parameter.detach() - old)

    @staticmethod
    def _means(sums: dict[str, float], done: int) -> dict[str, float]:
        means = {key: total / max(done, 1) for key, total in sums.items()}
        means["minibatches"] = float(done)
        return means

    def _optimiser_state(self) -> dict[str, Any]:
        named = dict(self.net.named_parameters())
        step, m, v = 0, {}, {}
        for name, parameter in named.items():
            state = self.adam.state.get(parameter)
            if state:
                step = int(state["step"])
                m[name] = state["exp_avg"].numpy().copy()
                v[name] = state["exp_avg_sq"].numpy().copy()
            else:
                m[name] = np.zeros(parameter.shape, np.float32)
                v[name] = np.zeros(parameter.shape, np.float32)
        return {"step": step, "m": m, "v": v}

    def _load_optimiser_state(self, state: dict[str, Any]) -> None:
        self.adam.state.clear()
        if int(state["step"]) == 0:
            return
        for name, parameter in self.net.named_parameters():
            self.adam.state[parameter] = {
                "step": torch.tensor(float(state["step"])),
                "exp_avg": torch.tensor(state["m"][name]),
                "exp_avg_sq": torch.tensor(state["v"][name]),
            }


class Samples:
    """A rollout as flat torch views `[T*N, ...]`; nothing is copied."""

    def __init__(self, rollout: Rollout) -> None:
        count = rollout.steps * rollout.slots
        self.obs = torch.from_numpy(rollout.obs[:-1].reshape(count, -1))
        self.actions = torch.from_numpy(rollout.actions.reshape(count, *rollout.actions.shape[2:]))
        self.log_probs = torch.from_numpy(rollout.log_probs.reshape(count))
        self.values = torch.from_numpy(rollout.values[:-1].reshape(count))
        self.advantages = torch.from_numpy(rollout.advantages.reshape(count))
        self.returns = torch.from_numpy(rollout.returns.reshape(count))
