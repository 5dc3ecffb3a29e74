"""A single-file PPO loop in eager torch, in the manner of CleanRL: our writing, its structure.

Tensors `[steps, slots]`, one forward pass a step, advantages in a Python loop over the steps, shuffled indices,
one loss a minibatch with the usual diagnostics.
"""

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
    torch_version = ready_torch(case)
    import numpy as np
    import torch
    from torch import nn
    from torch.distributions import Categorical

    def mlp(outputs: int, gain: float) -> Any:
        layers: list[Any] = []
        width = 11
        for size in case.hidden:
            layers += [layer(width, size, 2**0.5), nn.Tanh()]
            width = size
        return nn.Sequential(*layers, layer(width, outputs, gain))

    def layer(inputs: int, outputs: int, gain: float) -> Any:
        linear = nn.Linear(inputs, outputs)
        nn.init.orthogonal_(linear.weight, gain)
        nn.init.zeros_(linear.bias)
        return linear

    meter = Meter(case)
    world = meter.make_world()
    actor, critic = mlp(5, 0.01), mlp(1, 1.0)
    parameters = [*actor.parameters(), *critic.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=LR, eps=1e-5)
    meter.watch_optimiser(optimiser)

    shape = (case.steps, case.slots)
    all_obs = torch.zeros((*shape, 11))
    all_actions = torch.zeros(shape, dtype=torch.int64)
    all_log_probs, all_rewards = torch.zeros(shape), torch.zeros(shape)
    all_dones, all_values = torch.zeros(shape), torch.zeros(shape)
    next_obs = torch.from_numpy(world.reset(seed=0)[0])
    next_done = torch.zeros(case.slots)
    rng = np.random.default_rng(0)

    for _ in range(case.warmup + case.updates):
        meter.start()
        for t in range(case.steps):
            all_obs[t], all_dones[t] = next_obs, next_done
            with torch.no_grad():
                choice = Categorical(logits=actor(next_obs))
                action = choice.sample()
                all_values[t] = critic(next_obs).flatten()
                all_log_probs[t] = choice.log_prob(action)
            all_actions[t] = action
            obs, reward, terminated, truncated, _ = world.step(action.numpy())
            all_rewards[t] = torch.from_numpy(reward)
            next_obs = torch.from_numpy(obs)
            next_done = torch.from_numpy(np.logical_or(terminated, truncated).astype(np.float32))
        meter.learn()

        with torch.no_grad(), meter.advantages():
            advantages = torch.zeros(shape)
            running = torch.zeros(case.slots)
            value_after, goes_on = critic(next_obs).flatten(), 1.0 - next_done
            for t in reversed(range(case.steps)):
                delta = all_rewards[t] + GAMMA * value_after * goes_on - all_values[t]
                running = delta + GAMMA * LAMBDA * goes_on * running
                advantages[t] = running
                value_after, goes_on = all_values[t], 1.0 - all_dones[t]
            returns = advantages + all_values

        flat_obs, flat_actions = all_obs.reshape(-1, 11), all_actions.reshape(-1)
        flat_log_probs, flat_advantages = all_log_probs.reshape(-1), advantages.reshape(-1)
        flat_returns = returns.reshape(-1)
        order = np.arange(case.transitions)
        clipped_shares = []
        for _ in range(case.epochs):
            rng.shuffle(order)
            for lo in range(0, case.transitions, case.minibatch):
                rows = order[lo : lo + case.minibatch]
                batch = flat_obs[rows]
                choice = Categorical(logits=actor(batch))
                log_ratio = choice.log_prob(flat_actions[rows]) - flat_log_probs[rows]
                ratio = log_ratio.exp()
                with torch.no_grad():
                    ((ratio - 1) - log_ratio).mean()
                    clipped_shares.append(((ratio - 1.0).abs() > CLIP).float().mean().item())
                gain = flat_advantages[rows]
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                policy_loss = torch.max(
                    -gain * ratio, -gain * torch.clamp(ratio, 1 - CLIP, 1 + CLIP)
                ).mean()
                value_loss = 0.5 * ((critic(batch).flatten() - flat_returns[rows]) ** 2).mean()
                entropy = choice.entropy().mean()
                loss = policy_loss - ENTROPY * entropy + VALUE_COEF * value_loss
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parameters, MAX_GRAD_NORM)
                optimiser.step()
        meter.end()

    meter.report("CleanRL style", f"torch {torch_version}", [*TORCH_SETTINGS, NO_MASKS])


if __name__ == "__main__":
    main()
