"""Sample Factory's synchronous PPO on the shoal: serial mode, batched sampling, one vectorised environment."""

from __future__ import annotations

import math
import os
import tempfile
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
    import torch
    from sample_factory.algo.learning import learner as learner_module
    from sample_factory.algo.runners import runner as runner_module
    from sample_factory.algo.utils.env_info import extract_env_info
    from sample_factory.algo.utils.make_env import make_env_func_batched
    from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
    from sample_factory.envs.env_utils import register_env
    from sample_factory.train import run_rl
    from sample_factory.utils.utils import log

    log.setLevel("ERROR")
    gymnasium.Wrapper.__getattr__ = forward  # type: ignore[attr-defined]
    meter = Meter(case)
    updates = case.warmup + case.updates

    class Shoals(gymnasium.Env):  # type: ignore[type-arg]
        """The batched world as one multi-agent environment that speaks tensors."""

        def __init__(self, metered: bool) -> None:
            source = meter if metered else Meter(case)
            self.world = source.make_world()
            self.num_agents = self.world.num_envs
            self.is_multiagent = True
            self.observation_space = self.world.single_observation_space
            self.action_space = self.world.single_action_space
            self.render_mode = None
            self.infos: list[dict[str, Any]] = [{}] * self.num_agents

        def reset(self, **kwargs: Any) -> Any:
            return torch.from_numpy(self.world.reset(seed=0)[0]), self.infos

        def step(self, actions: Any) -> Any:
            obs, rewards, terminated, truncated, _ = self.world.step(
                np.asarray(actions).reshape(-1)
            )
            return (
                torch.from_numpy(obs),
                torch.from_numpy(rewards).float(),
                torch.from_numpy(terminated),
                torch.from_numpy(truncated),
                self.infos,
            )

    register_env("shoal", lambda name, cfg, env_config, *_: Shoals(env_config is not None))
    # It asks a process of its own for the spaces; a class made here cannot be sent there.
    runner_module.obtain_env_info_in_a_separate_process = lambda cfg: extract_env_info(
        make_env_func_batched(cfg, env_config=None), cfg
    )
    # It ends an update when the losses of two epochs differ by less than 1e-6, a number that no option sets. The only bare
    # `abs` of that file is that of the difference.
    learner_module.abs = lambda difference: math.inf
    learner_module.gae_advantages = meter.timed_advantages(learner_module.gae_advantages)
    train = learner_module.Learner.train

    def marked(self: Any, batch: Any) -> Any:
        if not meter.rows:
            meter.watch_optimiser(self.optimizer)
        meter.learn()
        result = train(self, batch)
        meter.end()
        if len(meter.rows) == updates:
            finish(meter, version("sample-factory"))
        meter.start()
        return result

    learner_module.Learner.train = marked
    arguments = {
        "algo": "APPO",
        "env": "shoal",
        "experiment": "bench",
        "train_dir": tempfile.mkdtemp(),
        "restart_behavior": "overwrite",
        "device": "cpu",
        "seed": 0,
        "async_rl": False,
        "serial_mode": True,
        "batched_sampling": True,
        "num_workers": 1,
        "num_envs_per_worker": 1,
        "worker_num_splits": 1,
        "batch_size": case.minibatch,
        "num_batches_per_epoch": case.minibatches,
        "num_epochs": case.epochs,
        "rollout": case.steps,
        "recurrence": 1,
        "shuffle_minibatches": True,
        "gamma": GAMMA,
        "gae_lambda": LAMBDA,
        "reward_scale": 0.01,  # above this it prints a line about high losses every minibatch
        "reward_clip": 1e9,
        "value_bootstrap": False,
        "normalize_input": False,
        "normalize_returns": False,
        "exploration_loss": "entropy",
        "exploration_loss_coeff": ENTROPY,
        "value_loss_coeff": VALUE_COEF,
        "kl_loss_coeff": 0.0,
        "ppo_clip_ratio": CLIP,
        "ppo_clip_value": 1e9,
        "with_vtrace": False,
        "adam_eps": 1e-5,
        "max_grad_norm": MAX_GRAD_NORM,
        "learning_rate": LR,
        "use_rnn": False,
        "nonlinearity": "tanh",
        "actor_critic_share_weights": False,
        "max_policy_lag": 10**9,
        "decorrelate_experience_max_seconds": 0,
        "decorrelate_envs_on_one_worker": False,
        "set_workers_cpu_affinity": False,
        "force_envs_single_thread": False,
        "log_to_file": False,
        "experiment_summaries_interval": 10**6,
        "save_every_sec": 10**6,
        "save_best_every_sec": 10**6,
        "train_for_env_steps": case.transitions * (updates + 8),
        "use_env_info_cache": False,
        "with_wandb": False,
    }
    argv = [f"--{key}={value}" for key, value in arguments.items()]
    argv += ["--encoder_mlp_layers", *map(str, case.hidden)]
    parser, _ = parse_sf_args(argv)
    cfg = parse_full_cfg(parser, argv)
    meter.start()
    run_rl(cfg)
    raise SystemExit(f"Sample Factory ended after {len(meter.rows)} of {updates} updates.")


def forward(wrapper: Any, name: str) -> Any:
    """Look `name` up in the wrapped environment, as wrappers of Gymnasium 0.29 did and Sample Factory expects."""
    if name.startswith("_") or name == "env":
        raise AttributeError(name)
    return getattr(wrapper.env, name)


def finish(meter: Meter, version: str) -> None:
    """Print the line and leave: its runner has no other end than a number of steps."""
    meter.report(
        "Sample Factory",
        version,
        [
            *TORCH_SETTINGS,
            "serial mode, synchronous, batched sampling, one environment of all slots",
            "separate actor and critic, no RNN, no input or return normalisation; never ends an update early",
            NO_MASKS,
        ],
    )
    os._exit(0)


if __name__ == "__main__":
    main()
