"""PufferLib's PuffeRL trainer on the shoal, through a native PufferEnv that steps into its buffers."""

from __future__ import annotations

from typing import Any

from case import (
    CLIP,
    ENTROPY,
    GAMMA,
    LAMBDA,
    LR,
    MAX_GRAD_NORM,
    NO_MASKS,
    TORCH_SETTINGS,
    VALUE_COEF,
    Meter,
    read_case,
    ready_torch,
)


def main() -> None:
    case = read_case()
    ready_torch(case)
    from importlib.metadata import version

    import gymnasium
    import numpy as np
    import pufferlib
    import torch
    from pufferlib import pufferl

    # It takes any nvcc on the path for a GPU kernel of its own; torch here is a CPU build.
    pufferl.ADVANTAGE_CUDA = False
    meter = Meter(case)
    pufferl.compute_puff_advantage = meter.timed_advantages(pufferl.compute_puff_advantage)

    class Shoals(pufferlib.PufferEnv):
        def __init__(self) -> None:
            self.world = meter.make_world()
            self.single_observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (11,), np.float32)
            self.single_action_space = gymnasium.spaces.Discrete(5)
            self.num_agents = self.world.num_envs
            super().__init__()
            self.wide = np.zeros(self.num_agents)
            self.alive = np.zeros(self.num_agents, np.bool_)

        def reset(self, seed: int | None = None) -> Any:
            self.observations[:] = self.world.reset(seed=0)[0]
            return self.observations, []

        def step(self, actions: Any) -> Any:
            self.world.step_into(
                actions, self.observations, self.wide, self.terminals, self.truncations, self.alive
            )
            self.rewards[:] = self.wide
            return self.observations, self.rewards, self.terminals, self.truncations, []

        @property
        def agents_per_batch(self) -> int:
            return self.num_agents

        def close(self) -> None:
            self.world.close()

    class Policy(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.actor, self.critic = self.net(5), self.net(1)

        def net(self, outputs: int) -> Any:
            layers: list[Any] = []
            width = 11
            for size in case.hidden:
                layers += [torch.nn.Linear(width, size), torch.nn.Tanh()]
                width = size
            return torch.nn.Sequential(*layers, torch.nn.Linear(width, outputs))

        def forward(self, obs: Any, state: Any = None) -> Any:
            return self.actor(obs), self.critic(obs)

        forward_eval = forward

    class Quiet(pufferl.PuffeRL):
        def print_dashboard(self, *args: Any, **kwargs: Any) -> None:
            pass

        def mean_and_log(self) -> None:
            pass

        def save_checkpoint(self) -> str:
            return ""

    updates = case.warmup + case.updates
    config = {
        "env": "shoal",
        "seed": 0,
        "torch_deterministic": False,
        "cpu_offload": False,
        "device": "cpu",
        "optimizer": "adam",
        "anneal_lr": False,
        "precision": "float32",
        "total_timesteps": case.transitions * (updates + 1),
        "learning_rate": LR,
        "gamma": GAMMA,
        "gae_lambda": LAMBDA,
        "update_epochs": case.epochs,
        "clip_coef": CLIP,
        "vf_coef": VALUE_COEF,
        "vf_clip_coef": CLIP,
        "max_grad_norm": MAX_GRAD_NORM,
        "ent_coef": ENTROPY,
        "adam_beta1": 0.9,
        "adam_beta2": 0.999,
        "adam_eps": 1e-5,
        "data_dir": ".",
        "checkpoint_interval": 10**9,
        "batch_size": case.transitions,
        "minibatch_size": case.minibatch,
        "max_minibatch_size": case.minibatch,
        "bptt_horizon": case.steps,
        "compile": False,
        "use_rnn": False,
        "vtrace_rho_clip": 1.0,
        "vtrace_c_clip": 1.0,
        "prio_alpha": 0.0,
        "prio_beta0": 1.0,
    }
    trainer = Quiet(config, Shoals(), Policy())
    trainer.utilization.stop()
    meter.watch_optimiser(trainer.optimizer)
    for _ in range(updates):
        meter.start()
        trainer.evaluate()
        meter.learn()
        trainer.train()
        meter.end()
    meter.report(
        "PufferLib",
        version("pufferlib"),
        [
            *TORCH_SETTINGS,
            "native PufferEnv that steps into its buffers, no worker processes",
            "Adam instead of Muon, uniform priorities, no compile, dashboard off",
            "its own rule: advantages anew before every minibatch, minibatches of whole segments, drawn",
            NO_MASKS,
        ],
    )


if __name__ == "__main__":
    main()
