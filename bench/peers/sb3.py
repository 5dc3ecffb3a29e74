"""Stable-Baselines3's PPO on the shoal, through a VecEnv that hands the batched world straight on."""

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
    import numpy as np
    import stable_baselines3
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.logger import Logger
    from stable_baselines3.common.vec_env import VecEnv

    meter = Meter(case)

    class Shoals(VecEnv):
        def __init__(self) -> None:
            self.world = meter.make_world()
            world = self.world
            super().__init__(
                world.num_envs, world.single_observation_space, world.single_action_space
            )
            # SB3 reads one dict a slot; one shared empty dict costs it least.
            self.infos: list[dict[str, Any]] = [{}] * world.num_envs

        def reset(self) -> Any:
            return self.world.reset(seed=0)[0]

        def step_async(self, actions: Any) -> None:
            self.actions = actions

        def step_wait(self) -> Any:
            obs, rewards, terminations, truncations, _ = self.world.step(self.actions)
            return obs, rewards.astype(np.float32), terminations | truncations, self.infos

        def close(self) -> None:
            self.world.close()

        def get_attr(self, name: str, indices: Any = None) -> Any:
            return [None] * self.num_envs

        def set_attr(self, name: str, value: Any, indices: Any = None) -> None:
            raise NotImplementedError

        def env_method(self, name: str, *args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError

        def env_is_wrapped(self, wrapper: Any, indices: Any = None) -> list[bool]:
            return [False] * self.num_envs

    class Marks(BaseCallback):
        begun = 0

        def _on_rollout_start(self) -> None:
            if self.begun:
                meter.end()
            self.begun += 1
            meter.start()

        def _on_rollout_end(self) -> None:
            meter.learn()

        def _on_step(self) -> bool:
            return True

        def _on_training_end(self) -> None:
            meter.end()

    model = PPO(
        "MlpPolicy",
        Shoals(),
        learning_rate=LR,
        n_steps=case.steps,
        batch_size=case.minibatch,
        n_epochs=case.epochs,
        gamma=GAMMA,
        gae_lambda=LAMBDA,
        clip_range=CLIP,
        ent_coef=ENTROPY,
        vf_coef=VALUE_COEF,
        max_grad_norm=MAX_GRAD_NORM,
        policy_kwargs={"net_arch": {"pi": list(case.hidden), "vf": list(case.hidden)}},
        device="cpu",
        seed=0,
        verbose=0,
    )
    model.set_logger(Logger(None, []))
    meter.watch_optimiser(model.policy.optimizer)
    buffer: Any = model.rollout_buffer
    buffer.compute_returns_and_advantage = meter.timed_advantages(
        buffer.compute_returns_and_advantage
    )
    updates = case.warmup + case.updates
    model.learn(case.transitions * updates, callback=Marks(), log_interval=None)
    meter.report(
        "Stable-Baselines3",
        stable_baselines3.__version__,
        [
            *TORCH_SETTINGS,
            "own VecEnv over the batched world, one shared info dict",
            "cut episodes count as ended (no terminal_observation: SB3 would call the net once a slot)",
            NO_MASKS,
        ],
    )


if __name__ == "__main__":
    main()
