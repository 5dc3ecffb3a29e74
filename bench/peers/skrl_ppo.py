"""skrl's PPO on the shoal, with its own Gymnasium wrapper and sequential trainer."""

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

    import torch
    from skrl.agents.torch.ppo import PPO, ppo
    from skrl.envs.wrappers.torch import wrap_env
    from skrl.memories.torch import RandomMemory
    from skrl.models.torch import CategoricalMixin, DeterministicMixin, Model
    from skrl.trainers.torch import SequentialTrainer

    meter = Meter(case)
    env: Any = wrap_env(meter.make_world(), wrapper="gymnasium", verbose=False)

    def net(outputs: int) -> Any:
        layers: list[Any] = []
        width = 11
        for size in case.hidden:
            layers += [torch.nn.Linear(width, size), torch.nn.Tanh()]
            width = size
        return torch.nn.Sequential(*layers, torch.nn.Linear(width, outputs))

    spaces = {"observation_space": env.observation_space, "action_space": env.action_space}

    class Actor(CategoricalMixin, Model):
        def __init__(self) -> None:
            Model.__init__(self, **spaces, device="cpu")
            CategoricalMixin.__init__(self)
            self.net = net(5)

        def compute(self, inputs: Any, role: str = "") -> Any:
            return self.net(inputs["observations"]), {}

    class Critic(DeterministicMixin, Model):
        def __init__(self) -> None:
            Model.__init__(self, **spaces, device="cpu")
            DeterministicMixin.__init__(self)
            self.net = net(1)

        def compute(self, inputs: Any, role: str = "") -> Any:
            return self.net(inputs["observations"]), {}

    class Marked(PPO):
        def pre_interaction(self, *, timestep: int, timesteps: int) -> None:
            if timestep % case.steps == 0:
                meter.start()
            super().pre_interaction(timestep=timestep, timesteps=timesteps)

        def update(self, **kwargs: Any) -> None:
            meter.learn()
            super().update(**kwargs)

        def post_interaction(self, *, timestep: int, timesteps: int) -> None:
            super().post_interaction(timestep=timestep, timesteps=timesteps)
            if (timestep + 1) % case.steps == 0:
                meter.end()

    ppo.compute_gae = meter.timed_advantages(ppo.compute_gae)
    agent = Marked(
        models={"policy": Actor(), "value": Critic()},
        memory=RandomMemory(memory_size=case.steps, num_envs=env.num_envs, device="cpu"),
        **spaces,
        device="cpu",
        cfg={
            "rollouts": case.steps,
            "learning_epochs": case.epochs,
            "mini_batches": case.minibatches,
            "discount_factor": GAMMA,
            "gae_lambda": LAMBDA,
            "learning_rate": LR,
            "grad_norm_clip": MAX_GRAD_NORM,
            "ratio_clip": CLIP,
            "value_clip": 0.0,
            "entropy_loss_scale": ENTROPY,
            "value_loss_scale": VALUE_COEF,
            "experiment": {"write_interval": 0, "checkpoint_interval": 0},
        },
    )
    meter.watch_optimiser(agent.optimizer)
    trainer = SequentialTrainer(
        env=env,
        agents=agent,
        cfg={
            "timesteps": case.steps * (case.warmup + case.updates),
            "headless": True,
            "disable_progressbar": True,
        },
    )
    trainer.train()
    meter.report(
        "skrl",
        version("skrl"),
        [*TORCH_SETTINGS, "write_interval 0, progress bar off, headless", NO_MASKS],
    )


if __name__ == "__main__":
    main()
