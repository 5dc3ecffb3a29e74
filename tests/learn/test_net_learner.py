"""Learners with stacks, memory and noise: what is learned from is what was played, and a run goes on exactly."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest
import torch
from learn_games import Catch, Noise, collect, config, spec
from torch.nn import functional

from holdfast.errors import ConfigError, StorageError
from holdfast.learn import net_learner
from holdfast.learn.learner import Anchor, Learner, make_learner
from holdfast.learn.net_learner import NetLearner
from holdfast.learn.pixels import MIDDLE, SPREAD
from holdfast.learn.ppo import TorchLearner
from holdfast.learn.spec import NetSpec
from holdfast.records import Rollout
from holdfast.rng import Streams

SLOTS = 6
FLAT = NetSpec(5, "discrete", nvec=(3,), hidden=(8,), memory="gru", memory_size=8)
EVERY = {
    "pictures": spec(),
    "pictures, GRU, noisy": spec(memory="gru", memory_size=8, noisy=True),
    "pictures, LSTM": spec(memory="lstm", memory_size=8),
    "pictures, transformer": spec(
        memory="transformer", memory_size=8, memory_window=4, memory_layers=2
    ),
    "numbers, GRU": FLAT,
    "numbers, noisy": NetSpec(5, "discrete", nvec=(3,), hidden=(8,), noisy=True),
    "numbers, LSTM, continuous": NetSpec(
        5, "gaussian", action_size=2, low=(-1.0, -1.0), high=(1.0, 1.0), hidden=(8,),
        memory="lstm", memory_size=8,
    ),
}  # fmt: skip
KINDS = ("torch", "vtrace")


def learner(one: NetSpec, seed: int = 3, **settings: Any) -> NetLearner:
    made = make_learner(one, config(**settings), Streams(seed), SLOTS)
    assert isinstance(made, NetLearner)
    return made


def game_for(one: NetSpec, seed: int = 0) -> Noise:
    return Noise(SLOTS, one.obs_size, seed, pixels=bool(one.picture))


def played(who: Learner, game: Any, rollouts: int = 1) -> Rollout:
    rollout = who.new_rollout(SLOTS)
    for _ in range(rollouts):
        collect(who, game, rollout)
    return rollout


def same(one: Learner, two: Learner) -> None:
    for name, value in one.parameters().items():
        np.testing.assert_array_equal(value, two.parameters()[name], err_msg=name)


def naive_forward(
    parameters: dict[str, torch.Tensor], stack: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The small network written out, on stacks `[n, K, H, W]` in [0, 1]."""
    p = parameters
    x = functional.conv2d(stack, p["trunk.stem.weight"], p["trunk.stem.bias"], stride=6).relu()
    x = functional.conv2d(
        x, p["trunk.convs.0.weight"], p["trunk.convs.0.bias"], stride=2, padding=1
    ).relu()
    x = functional.conv2d(x, p["trunk.convs.1.weight"], p["trunk.convs.1.bias"]).relu()
    x = functional.linear(x.flatten(1), p["trunk.out.weight"], p["trunk.out.bias"]).relu()
    head = functional.linear(x, p["pi_out.weight"], p["pi_out.bias"])
    return head, functional.linear(x, p["vf_out.weight"], p["vf_out.bias"]).squeeze(-1)


class Deques:
    """Stacks kept the plain way: one deque a slot, filled with the first frame of an episode."""

    def __init__(self, stack: int) -> None:
        self.size, self.held = stack, [deque[np.ndarray](maxlen=stack) for _ in range(SLOTS)]

    def push(self, obs: np.ndarray, begun: np.ndarray) -> np.ndarray:
        for n, held in enumerate(self.held):
            held.extend([obs[n].copy()] * (self.size if begun[n] else 1))
        return np.stack([np.stack(held) for held in self.held]).reshape(SLOTS, self.size, 36, 36)


def seen(pictures: np.ndarray) -> torch.Tensor:
    """What a network reads of bytes."""
    return torch.from_numpy((pictures - np.float32(MIDDLE)) / np.float32(SPREAD)).float()


def test_acting_sees_the_stacks_of_a_deque_across_rollouts() -> None:
    one = spec(stack=4)
    who, game, deques = learner(one, steps=5), game_for(one), Deques(4)
    rollout = who.new_rollout(SLOTS)
    begun = np.ones(SLOTS, bool)
    parameters = {k: torch.from_numpy(v) for k, v in who.parameters().items()}
    for _ in range(4):
        collect(who, game, rollout)
        for t in range(5):
            stacks = seen(deques.push(rollout.obs[t], begun))
            _, value = naive_forward(parameters, stacks)
            np.testing.assert_allclose(rollout.values[t], value, atol=1e-5)
            begun = rollout.terminations[t] | rollout.truncations[t]


def test_the_last_picture_of_a_cut_episode_is_valued_with_the_stack_before_it() -> None:
    one = spec(stack=3)
    who, deques = learner(one, steps=6), Deques(3)

    class Cut(Noise):
        def step(self, actions: np.ndarray) -> tuple[Any, ...]:
            found = super().step(actions)
            self.lasts.append(found[3])
            return found

    game = Cut(SLOTS, one.obs_size, 1)
    game.lasts = []
    rollout = played(who, game)
    parameters = {k: torch.from_numpy(v) for k, v in who.parameters().items()}
    begun, checked = np.ones(SLOTS, bool), 0
    for t in range(6):
        deques.push(rollout.obs[t], begun)
        for n in np.flatnonzero(rollout.truncations[t]):
            stack = [*deques.held[n], game.lasts[t][n]][-3:]
            pictures = seen(np.stack(stack).reshape(1, 3, 36, 36))
            _, value = naive_forward(parameters, pictures)
            assert rollout.final_values[t, n] == pytest.approx(float(value), abs=1e-5)
            checked += 1
        begun = rollout.terminations[t] | rollout.truncations[t]
    assert checked > 2


def test_a_ppo_update_from_pictures_is_plain_autograd_on_stacks() -> None:
    one = spec(stack=3)
    settings: dict[str, Any] = {
        "steps": 12,
        "epochs": 1,
        "minibatch": 72,
        "value_clip": 0.3,
        "lr": 1e-3,
    }
    who, game, deques = learner(one, **settings), game_for(one), Deques(3)
    begin = {k: torch.tensor(v, requires_grad=True) for k, v in who.parameters().items()}
    rollout = played(who, game)
    rollout.mask[:-1, 2] = False
    rollout.log_probs += np.random.default_rng(5).normal(0, 0.2, rollout.log_probs.shape)
    begun, stacks = np.ones(SLOTS, bool), []
    for t in range(12):
        stacks.append(deques.push(rollout.obs[t], begun))
        begun = rollout.terminations[t] | rollout.truncations[t]
    metrics = who.update(rollout)
    rows = np.flatnonzero(rollout.mask[:-1])

    def flat(x: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(x.reshape(72, *x.shape[2:])[rows])

    pictures = seen(flat(np.stack(stacks)).numpy())
    head, value = naive_forward(begin, pictures)
    logs = torch.log_softmax(head, 1)
    log_prob = logs.gather(1, flat(rollout.actions).long()[:, None])[:, 0]
    ratio = (log_prob - flat(rollout.log_probs)).exp()
    advantage = flat(rollout.advantages)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    policy = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    old, target = flat(rollout.values[:-1]), flat(rollout.returns)
    near = old + (value - old).clamp(-0.3, 0.3)
    critic = 0.5 * torch.max((value - target) ** 2, (near - target) ** 2).mean()
    entropy = -(logs.exp() * logs).sum(1).mean()
    (policy + 0.5 * critic - 0.01 * entropy).backward()
    adam = torch.optim.Adam(list(begin.values()), lr=1e-3, eps=1e-5)
    norm = torch.nn.utils.clip_grad_norm_(list(begin.values()), 0.5)
    adam.step()
    assert metrics["policy_loss"] == pytest.approx(float(policy.detach()), abs=1e-5)
    assert metrics["grad_norm"] == pytest.approx(float(norm), rel=1e-4)
    assert metrics["clip_fraction"] > 0.05
    for name, value in who.parameters().items():
        np.testing.assert_allclose(value, begin[name].detach(), atol=2e-6, err_msg=name)


@pytest.mark.parametrize("name", EVERY)
def test_before_the_first_step_every_ratio_is_one(name: str) -> None:
    one = EVERY[name]
    who, game = learner(one, epochs=1, minibatch=10_000), game_for(one)
    rollout = played(who, game, rollouts=3)
    metrics = who.update(rollout)
    assert metrics["minibatches"] == 1
    assert abs(metrics["approx_kl"]) < 1e-8 and metrics["clip_fraction"] == 0.0


def test_fresh_noise_in_the_update_is_another_policy() -> None:
    one = EVERY["numbers, noisy"]
    kl = {}
    for mode in ("rollout", "fresh"):
        who, game = learner(one, epochs=1, minibatch=10_000, noisy_update=mode), game_for(one)
        kl[mode] = who.update(played(who, game))["approx_kl"]
    assert abs(kl["rollout"]) < 1e-8 < 1e-4 < kl["fresh"]


def test_noise_lasts_for_one_rollout_and_a_frozen_policy_has_none() -> None:
    one = EVERY["numbers, noisy"]
    who = learner(one)
    obs = np.ones((SLOTS, 5), np.float32)
    rollout = who.new_rollout(SLOTS)
    values = []
    for _ in range(2):
        who.begin(rollout)
        rollout.obs[:] = obs
        for t in range(2):
            who.act(rollout, t)
        np.testing.assert_array_equal(rollout.values[0], rollout.values[1])
        values.append(float(rollout.values[0, 0]))
    assert values[0] != values[1]
    who.net.set_noise(None)
    with torch.no_grad():
        _, plain = who.net(torch.from_numpy(obs))
    np.testing.assert_allclose(who.policy().values(obs), plain, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", EVERY)
def test_a_saved_learner_goes_on_exactly(name: str, kind: str) -> None:
    one = EVERY[name]
    first, game = learner(one, kind=kind), game_for(one)
    rollout = first.new_rollout(SLOTS)
    for _ in range(2):
        collect(first, game, rollout)
        first.update(rollout)
    second = learner(one, seed=99, kind=kind)
    other = second.new_rollout(SLOTS)
    second.load_state_dict(first.state_dict())
    second.streams.load_state_dict(first.streams.state_dict())
    twin = game_for(one)
    twin.rng.bit_generator.state, twin.obs = game.rng.bit_generator.state, game.obs.copy()
    for _ in range(2):
        collect(first, game, rollout)
        collect(second, twin, other)
        np.testing.assert_array_equal(rollout.log_probs, other.log_probs)
        assert first.update(rollout) == second.update(other)
    same(first, second)


@pytest.mark.parametrize("kind", KINDS)
def test_one_seed_gives_one_set_of_parameters_whatever_torch_drew_before(kind: str) -> None:
    one = EVERY["pictures, GRU, noisy"]
    made = []
    for noise in (1, 2):
        torch.manual_seed(noise)
        who, game = learner(one, kind=kind), game_for(one)
        who.update(played(who, game))
        made.append(who)
    same(*made)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["pictures", "pictures, GRU, noisy"])
def test_threads_change_nothing(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(net_learner, "PIECE", 8 * 3 * 36 * 36)
    one = EVERY[name]
    made = []
    for threads in (1, 2, 3):
        who = learner(one, kind=kind, threads=threads, minibatch=48)
        game = game_for(one)
        who.update(played(who, game))
        made.append(who)
    same(made[0], made[1])
    same(made[0], made[2])


def test_pieces_add_up_to_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    one = EVERY["pictures, GRU, noisy"]
    made = []
    for rows in (4, 10_000):
        monkeypatch.setattr(net_learner, "PIECE", rows * 3 * 36 * 36)
        monkeypatch.setattr(net_learner, "LEAST", 10_000)
        who, game = learner(one, minibatch=24, lr=1e-3), game_for(one)
        who.update(played(who, game))
        made.append(who.parameters())
    for name, value in made[0].items():
        np.testing.assert_allclose(value, made[1][name], atol=1e-5, err_msg=name)


def test_accumulated_minibatches_are_one_large_one() -> None:
    made = []
    for minibatch, accumulate in ((48, 1), (12, 4)):
        who = learner(
            spec(), minibatch=minibatch, accumulate=accumulate, epochs=1, normalise_advantages=False
        )
        metrics = who.update(played(who, game_for(spec())))
        assert metrics["minibatches"] == accumulate
        made.append((who.parameters(), metrics["grad_norm"], who.state_dict()["optimiser"]["step"]))
    assert made[0][1] == pytest.approx(made[1][1], rel=1e-4) and made[0][2] == made[1][2] == 1
    for name, value in made[0][0].items():
        np.testing.assert_allclose(value, made[1][0][name], atol=2e-5, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [slice(None), slice(3, 6)])
def test_masked_steps_of_sequences_enter_no_loss(steps: slice, kind: str) -> None:
    one, two = learner(FLAT, kind=kind), learner(FLAT, kind=kind)
    a, b = played(one, game_for(FLAT)), played(two, game_for(FLAT))
    for rollout in (a, b):
        rollout.mask[:-1][steps, 2] = False
    b.rewards[steps, 2] = 1e6
    b.log_probs[steps, 2] -= 1.0
    one.update(a)
    two.update(b)
    same(one, two)


def test_a_rollout_collected_before_the_last_update_is_played_with_the_weights_of_its_beginning() -> (
    None
):
    one = spec(memory="gru", memory_size=8)
    who, game = learner(one), game_for(one)
    first, second = who.new_rollout(SLOTS), who.new_rollout(SLOTS)
    collect(who, game, first)
    before = who.parameters()
    who.begin(second)
    who.update(first)
    assert any((value != before[name]).any() for name, value in who.parameters().items())
    second.obs[0] = game.obs
    who.act(second, 0)
    other = learner(one)
    other.load_parameters(before)
    again = other.new_rollout(SLOTS)
    other.begin(again)
    again.frames[:] = second.frames
    again.begun[:], again.memory[:] = second.begun, second.memory
    other.act(again, 0)
    np.testing.assert_array_equal(second.values[0], again.values[0])


def test_new_slots_and_a_restart_begin_new_episodes() -> None:
    one = spec(memory="gru", memory_size=8)
    who, game = learner(one), game_for(one)
    rollout = played(who, game)
    assert not rollout.begun[-1].all() and rollout.memory[1].any()
    who.restart()
    who.begin(rollout)
    assert rollout.begun[: rollout.history + 1].all() and not rollout.memory[0].any()
    collect(who, game, rollout)
    fewer = TorchLearner.new_rollout(who, 2)
    who.begin(fewer)
    assert fewer.begun[0].all()


def test_an_anchor_holds_a_network_for_pictures() -> None:
    drift = {}
    for weight in (0.0, 1e4):
        who, game = learner(spec(), lr=1e-3), game_for(spec())
        values = who.parameters()
        who.protect(Anchor(weight, {k: np.ones_like(v) for k, v in values.items()}, values))
        for _ in range(3):
            who.update(played(who, game))
        drift[weight] = sum(float(abs(v - values[k]).sum()) for k, v in who.parameters().items())
    assert drift[1e4] < 0.5 * drift[0.0]


def test_parameters_of_a_compiled_network_load_by_their_plain_names() -> None:
    one, two = learner(spec(), seed=1), learner(spec(), seed=2)
    two.load_parameters({f"_orig_mod.{k}": v for k, v in one.parameters().items()})
    same(one, two)
    with pytest.raises(StorageError, match=r"trunk\.stem\.weight"):
        two.load_parameters(learner(spec("nature")).parameters())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_compiled_network_learns_the_same_and_its_checkpoint_loads_without(tmp_path) -> None:
    one = spec()
    made = []
    for compile in (True, False):
        who, game = learner(one, compile=compile), game_for(one)
        who.update(played(who, game))
        made.append(who)
    for name, value in made[0].parameters().items():
        np.testing.assert_allclose(value, made[1].parameters()[name], atol=1e-5, err_msg=name)
    plain = learner(one)
    plain.load_state_dict(made[0].state_dict())
    same(plain, made[0])


def test_bfloat16_is_refused_where_it_is_slow_and_works_where_it_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(net_learner, "has_bfloat16", lambda device: False)
    with pytest.raises(ConfigError, match="no bfloat16 units"):
        learner(FLAT, bfloat16=True)
    monkeypatch.setattr(net_learner, "has_bfloat16", lambda device: True)
    who = learner(FLAT, bfloat16=True)
    metrics = who.update(played(who, game_for(FLAT)))
    assert all(np.isfinite(v).all() for v in metrics.values())
    assert all(v.dtype == np.float32 for v in who.parameters().values())


@pytest.mark.parametrize(
    ("one", "settings", "words"),
    [
        (spec(), {}, "net = 'small'"),
        (FLAT, {}, "memory = 'gru'"),
        (NetSpec(5, "discrete", (3,)), {"optimiser": "rmsprop"}, "optimiser = 'rmsprop'"),
        (NetSpec(5, "discrete", (3,)), {"accumulate": 2}, "accumulate = 2"),
    ],
)
def test_fused_says_what_it_cannot_and_auto_takes_torch(one, settings, words) -> None:
    with pytest.raises(ConfigError, match=rf"cannot have {words}.*--learner.kind torch"):
        make_learner(one, config(kind="fused", **settings), Streams(0), SLOTS)
    assert isinstance(
        make_learner(one, config(kind="auto", **settings), Streams(0), SLOTS), TorchLearner
    )


def test_another_optimisers_state_is_refused() -> None:
    one, two = learner(FLAT, optimiser="rmsprop"), learner(FLAT)
    one.update(played(one, game_for(FLAT)))
    with pytest.raises(StorageError, match=r"another optimiser than learner\.optimiser = 'adam'"):
        two.load_state_dict(one.state_dict())


@pytest.mark.parametrize("kind", KINDS)
def test_catch_is_learned_from_pictures(kind: str) -> None:
    """The ball's drift shows only in a stack; a policy that ignores pictures catches one in six."""
    slots, settings = 32, {"steps": 20, "lr": 2e-3, "gamma": 0.95}
    if kind == "torch":
        settings |= {"minibatch": 320, "epochs": 2, "entropy": 0.003}
    else:
        settings |= {"minibatch": 80, "entropy": 0.02}
    who = make_learner(spec(stack=2), config(kind=kind, **settings), Streams(1), slots)
    game, rollout = Catch(slots), who.new_rollout(slots)
    shares = []
    for _ in range(60):
        collect(who, game, rollout)
        shares.append(float((rollout.rewards == 1).sum() / (rollout.rewards != 0).sum()))
        if np.mean(shares[-4:]) > 0.7:
            break
        who.update(rollout)
    assert np.mean(shares[:3]) < 0.35
    assert np.mean(shares[-4:]) > 0.7
