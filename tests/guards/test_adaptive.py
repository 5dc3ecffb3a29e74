"""The adaptive scheduler: its exact numbers, its dead band, its cooldown, its memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.errors import ConfigError
from holdfast.guards.adaptive import EXAMPLE, AdaptiveConfig, AdaptiveGuard, parse_channels
from holdfast.records import Decision
from holdfast.run import resume
from holdfast.store.journal import read_lines


def guard(channels: str = "world.w:0.001..0.05@0.5", **settings: Any) -> AdaptiveGuard:
    usual = {"enabled": True, "signal": "ratio", "interval": 1, "cooldown": 0, "window": 5}
    return AdaptiveGuard(AdaptiveConfig(channels=channels, **{**usual, **settings}))


class Run:
    """A world and a learner that do what they are told."""

    def __init__(self, guard: AdaptiveGuard, **values: float) -> None:
        self.guard, self.values, self.update = guard, dict(values), 0

    def feed(self, ratio: float | None) -> list[Decision]:
        self.update += 1
        signals: dict[str, Any] = {"update": self.update, **self.values}
        if ratio is not None:
            signals["ratio"] = ratio
        made = self.guard.step(signals)
        for decision in made:
            place = "world" if decision.kind == "set_world" else "train"
            role = f"{decision.role}/" if decision.role else ""
            self.values[f"{place}/{role}{decision.name}"] = decision.value
        return made


def test_without_progress_the_value_goes_half_way_to_its_maximum_each_time() -> None:
    run = Run(guard(), **{"world/w": 0.01})
    seen = [run.feed(0.0)[0].value for _ in range(4)]
    assert seen == pytest.approx([0.03, 0.04, 0.045, 0.0475], abs=1e-15)


def test_with_much_progress_the_value_goes_towards_its_minimum() -> None:
    run = Run(guard("world.w:0.01..0.05@0.5"), **{"world/w": 0.05})
    seen = [run.feed(0.9)[0].value for _ in range(3)]
    assert seen == pytest.approx([0.03, 0.02, 0.015])


@pytest.mark.parametrize("ratio", [0.05, 0.2, 0.3])
def test_in_the_dead_band_nothing_changes(ratio: float) -> None:
    run = Run(guard(), **{"world/w": 0.01})
    assert [run.feed(ratio) for _ in range(5)] == [[]] * 5


def test_values_rise_monotonously_stay_within_their_bounds_and_stop_when_nothing_moves() -> None:
    run = Run(guard("learner.entropy:0.001..0.03@1"), **{"train/entropy": 0.5})
    assert run.feed(0.0)[0].value == 0.03, "clamped"
    assert run.feed(0.0) == [], "no decision without a change"


def test_the_mean_over_the_window_decides_and_a_missing_signal_is_no_input() -> None:
    run = Run(guard(), **{"world/w": 0.01})
    for _ in range(5):
        run.feed(0.2)
    assert [bool(run.feed(0.0)) for _ in range(5)] == [False, False, False, True, True]
    assert run.guard.level() == pytest.approx(0.0)
    run.feed(None)
    assert len(run.guard.recent) == 5


def test_all_channels_move_together_each_at_its_own_rate() -> None:
    text = "world.w:0..0.4@0.05,learner.entropy:0.001..0.02@0.1,learner.lr_scale:0.5..2@0.05"
    run = Run(guard(text), **{"world/w": 0.1, "train/entropy": 0.01, "train/lr_scale": 1.0})
    made = {d.name: d for d in run.feed(0.0)}
    assert made["w"].value == pytest.approx(0.1 + 0.05 * 0.3)
    assert made["entropy"].value == pytest.approx(0.01 + 0.1 * 0.01)
    assert made["lr_scale"].value == pytest.approx(1.05)
    assert [d.kind for d in made.values()] == ["set_world", "set_learner", "set_learner"]
    cause = made["w"].cause
    assert (cause.signal, cause.value, cause.threshold, cause.window) == ("ratio", 0.0, 0.05, 1)


def test_one_role_can_be_turned_alone() -> None:
    run = Run(
        guard("learner.evader.entropy:0..0.02@0.5"),
        **{"train/evader/entropy": 0.01, "train/pursuer/entropy": 0.002},
    )
    (made,) = run.feed(0.0)
    assert (made.role, made.name, made.value) == ("evader", "entropy", pytest.approx(0.015))


def test_looks_come_every_interval() -> None:
    run = Run(guard(interval=10), **{"world/w": 0.01})
    assert [n for n in range(1, 31) if run.feed(0.0)] == [10, 20, 30]


def test_when_the_direction_turns_nothing_moves_for_the_cooldown() -> None:
    run = Run(guard(cooldown=3), **{"world/w": 0.01})
    assert run.feed(0.0)
    moves = [bool(run.feed(1.0)) for _ in range(6)]
    # The mean turns at the first; that look and three more hold still.
    assert moves == [False, False, False, False, True, True]
    assert run.guard.direction == -1


def test_a_gain_needs_a_full_window_and_compares_its_halves() -> None:
    slow = guard(measure="gain", window=6, low=0.0, high=0.5)
    run = Run(slow, **{"world/w": 0.01})
    assert [run.feed(v) for v in (1.0, 1.0, 1.0, 2.0, 2.0)] == [[]] * 5
    assert run.feed(2.0), "twice as much: enough progress"
    assert slow.level() == pytest.approx(1.0)


def test_disabled_settings_are_checked_but_need_no_channels() -> None:
    assert AdaptiveConfig().enabled is False
    assert AdaptiveGuard(AdaptiveConfig()).step({"update": 1, "ratio": 0.0}) == []


def test_the_memory_survives_a_checkpoint() -> None:
    one, two = Run(guard(cooldown=3), **{"world/w": 0.01}), guard(cooldown=3)
    for value in (0.0, 0.0, 1.0, 1.0):
        one.feed(value)
    two.load_state_dict(json.loads(json.dumps(one.guard.state_dict())))
    other = Run(two, **one.values)
    assert two.status() == one.guard.status()
    assert [one.feed(1.0) for _ in range(6)] == [other.feed(1.0) for _ in range(6)]


def test_the_moving_averages_are_reported() -> None:
    run = Run(guard(window=9), **{"world/w": 0.01})
    for value in (0.2, 0.1):
        run.feed(value)
    status = run.guard.status()
    assert status["level"] == pytest.approx(0.15)
    assert status["ema"] == 0.18  # 0.2 + 2 / 10 * (0.1 - 0.2)


def test_the_example_is_what_it_claims() -> None:
    first, entropy, scale = parse_channels(EXAMPLE)
    assert (first.place, first.name, first.low, first.high, first.rate) == (
        "world", "reward_progress", 0.5, 2.0, 0.05,
    )  # fmt: skip
    assert (entropy.target, scale.target) == ("learner.entropy", "learner.lr_scale")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"channels": "entropy:0..1@0.1"}, "is not a channel"),
        ({"channels": "world.a.b:0..1@0.1"}, "is not a channel"),
        ({"channels": "learner.entropy:0-1@0.1"}, "is not a channel"),
        ({"channels": "learner.entropy:0..x@0.1"}, "is not a channel"),
        ({"channels": "learner.entropy:1..0@0.1"}, "MIN must be below MAX"),
        ({"channels": "learner.entropy:0..1@0"}, "RATE above 0"),
        ({"channels": "learner.a:0..1@1,learner.a:0..2@1"}, "twice"),
        ({"channels": "learner.lr:0..1@0.1"}, "lr_scale"),
        ({"enabled": True}, "channels is empty"),
        ({"low": 0.5, "high": 0.1}, "above high"),
    ],
)
def test_a_bad_rule_is_explained(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        AdaptiveConfig(**settings)


def test_what_is_turned_stays_turned_and_reaches_the_learner_also_after_a_resume(
    tmp_path: Path,
) -> None:
    """0.01 towards 0.05 by halves: the numbers of the update that used them."""
    run: dict[str, Any] = {"run": "r", "runs_dir": tmp_path, "say": lambda text: None}
    settings = {
        "games": 2,
        "mode": "serial",
        "learner.kind": "torch",
        "learner.steps": 8,
        "learner.minibatch": 16,
        "learner.hidden": "8",
        "learner.entropy": 0.01,
        "learner.entropy_windows": "6+:0.02",
        "probe.every": 0,
        "probe.episodes": 1,
        "guards.adaptive.enabled": True,
        "guards.adaptive.signal": "episode/count",
        "guards.adaptive.low": 1e9,
        "guards.adaptive.high": 1e9,
        "guards.adaptive.interval": 1,
        "guards.adaptive.channels": "learner.entropy:0.001..0.05@0.5,learner.lr_scale:0.5..3@0.5",
    }
    holdfast.train("CartPole-v1", updates=3, **run, **settings)
    resume("r", tmp_path, [("updates", "7")], say=lambda text: None)
    lines = list(read_lines(tmp_path / "r" / "metrics.jsonl"))
    used = [line["train/entropy"] for line in lines]
    # The schedule has its say when it changes (0.02 from update 6 on), not at every update.
    assert used == pytest.approx([0.01, 0.03, 0.04, 0.045, 0.0475, 0.02, 0.035])
    scales = [line["train/lr_scale"] for line in lines]
    assert scales == pytest.approx([1.0, 2.0, 2.5, 2.75, 2.875, 2.9375, 2.96875])
