"""TorchRL's PPO parts on the shoal: its collector, GAE, replay buffer and clipped loss, as its examples join them."""

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
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule
    from torchrl.collectors import Collector
    from torchrl.data import (
        Binary,
        Categorical,
        Composite,
        LazyTensorStorage,
        SamplerWithoutReplacement,
        TensorDictReplayBuffer,
        Unbounded,
    )
    from torchrl.envs import EnvBase
    from torchrl.modules import MLP, ProbabilisticActor, ValueOperator
    from torchrl.objectives import ClipPPOLoss
    from torchrl.objectives.value import GAE

    meter = Meter(case)
    n = case.slots

    class Shoals(EnvBase):
        """The batched world as one TorchRL environment of batch size [slots]."""

        def __init__(self) -> None:
            super().__init__(device="cpu", batch_size=[n])
            self.world = meter.make_world()
            self.obs = self.world.reset(seed=0)[0]
            self.observation_spec = Composite(observation=Unbounded((n, 11)), shape=(n,))
            self.action_spec = Categorical(5, shape=(n,), dtype=torch.int64)
            self.reward_spec = Unbounded((n, 1))
            self.full_done_spec = Composite(
                {
                    key: Binary(1, shape=(n, 1), dtype=torch.bool)
                    for key in ("done", "terminated", "truncated")
                },
                shape=(n,),
            )

        def _reset(self, tensordict: Any = None, **kwargs: Any) -> Any:
            # The world begins ended games anew in the same step: its rows are already the first ones.
            return TensorDict({"observation": torch.from_numpy(self.obs)}, [n])

        def _step(self, tensordict: Any) -> Any:
            obs, rewards, terminated, truncated, _ = self.world.step(tensordict["action"].numpy())
            self.obs = obs
            ended, cut = torch.from_numpy(terminated), torch.from_numpy(truncated)
            return TensorDict(
                {
                    "observation": torch.from_numpy(obs),
                    "reward": torch.from_numpy(rewards).float().unsqueeze(-1),
                    "terminated": ended.unsqueeze(-1),
                    "truncated": cut.unsqueeze(-1),
                    "done": (ended | cut).unsqueeze(-1),
                },
                [n],
            )

        def _set_seed(self, seed: int | None) -> None:
            pass

    def net(outputs: int) -> Any:
        return MLP(
            in_features=11,
            out_features=outputs,
            num_cells=list(case.hidden),
            activation_class=torch.nn.Tanh,
        )

    env = Shoals()
    actor = ProbabilisticActor(
        TensorDictModule(net(5), in_keys=["observation"], out_keys=["logits"]),
        in_keys=["logits"],
        out_keys=["action"],
        distribution_class=torch.distributions.Categorical,
        return_log_prob=True,
        spec=env.action_spec,
    )
    critic = ValueOperator(net(1), in_keys=["observation"])
    updates = case.warmup + case.updates
    collector = Collector(
        env,
        actor,
        frames_per_batch=case.transitions,
        total_frames=case.transitions * updates,
        device="cpu",
        trust_policy=True,
        use_buffers=True,
    )
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(case.transitions, device="cpu"),
        sampler=SamplerWithoutReplacement(),
        batch_size=case.minibatch,
    )
    gae = GAE(gamma=GAMMA, lmbda=LAMBDA, value_network=critic, average_gae=False)
    losses = ClipPPOLoss(
        actor_network=actor,
        critic_network=critic,
        clip_epsilon=CLIP,
        entropy_coeff=ENTROPY,
        critic_coeff=VALUE_COEF,
        loss_critic_type="l2",
        normalize_advantage=True,
    )
    parameters = list(losses.parameters())
    optimiser = torch.optim.Adam(parameters, lr=LR, eps=1e-5)
    meter.watch_optimiser(optimiser)

    meter.start()
    for data in collector:
        assert data.numel() == case.transitions
        meter.learn()
        with torch.no_grad(), meter.advantages():
            gae(data)
        buffer.empty()
        buffer.extend(data.reshape(-1))
        for _ in range(case.epochs):
            for _ in range(case.minibatches):
                batch = buffer.sample()
                loss = losses(batch)
                total = loss["loss_objective"] + loss["loss_critic"] + loss["loss_entropy"]
                optimiser.zero_grad(set_to_none=True)
                total.backward()
                torch.nn.utils.clip_grad_norm_(parameters, MAX_GRAD_NORM)
                optimiser.step()
        meter.end()
        meter.start()
    collector.shutdown()
    meter.report(
        "TorchRL",
        version("torchrl"),
        [
            *TORCH_SETTINGS,
            "own EnvBase over the batched world, single-process collector with trust_policy",
            "vectorised GAE (values computed there, not in the rollout), eager loss",
            NO_MASKS,
        ],
    )


if __name__ == "__main__":
    main()
