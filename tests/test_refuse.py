"""Settings that could do nothing are refused before a run is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.config import resolve
from holdfast.errors import ConfigError
from holdfast.refuse import refuse_unfit
from holdfast.rng import Streams
from holdfast.team import make_team
from holdfast.worlds import make_world

SAC = [("kind", "sac"), ("learner.sac.auto_entropy", "false"), ("entropy", "0.1")]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ([("rho_bar", "2")], "rho_bar = 2.0 does nothing with kind = 'auto'"),
        ([("kind", "vtrace"), ("target_kl", "0.1")], "target_kl = 0.1 does nothing with kind"),
        ([("kind", "vtrace"), ("value_clip", "0.1")], "value_clip = 0.1 does nothing with kind"),
        ([*SAC, ("accumulate", "2")], "accumulate = 2 does nothing with kind = 'sac'"),
        ([*SAC, ("log_std", "-1")], "log_std = -1.0 does nothing with kind = 'sac'"),
        (
            [*SAC, ("learner.sac.auto_entropy", "true"), ("entropy_windows", "3+:0.1")],
            "does nothing with sac.auto_entropy = true",
        ),
    ],
)
def test_a_setting_of_the_learner_that_would_do_nothing_is_refused(
    settings: list[tuple[str, str]], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        refuse_unfit(resolve("Pendulum-v1", settings), Path("runs"))


def test_guards_turn_only_what_acts() -> None:
    guard = [("guards.adaptive.enabled", "true"), ("guards.adaptive.signal", "train/reward_mean")]
    turned = ("guards.adaptive.channels", "learner.clip:0.1..0.2@0.1")
    with pytest.raises(ConfigError, match="'clip' is no value of a learner"):
        refuse_unfit(resolve("Pendulum-v1", [("kind", "vtrace"), *guard, turned]), Path("runs"))
    refuse_unfit(resolve("Pendulum-v1", [*guard, turned]), Path("runs"))


def test_what_a_kind_uses_is_taken() -> None:
    refuse_unfit(
        resolve("Pendulum-v1", [("kind", "vtrace"), ("rho_bar", "2"), ("lam", "0.9")]), Path("runs")
    )
    refuse_unfit(
        resolve("Pendulum-v1", [("clip", "0.1"), ("value_clip", "1"), ("log_std", "-1")]),
        Path("runs"),
    )
    refuse_unfit(resolve("Pendulum-v1", [*SAC, ("entropy_windows", "3+:0.1")]), Path("runs"))


def test_details_of_a_part_that_is_off_may_stay() -> None:
    details = [("memory_size", "32"), ("noisy_update", "fresh"), ("encoder", "lstm")]
    refuse_unfit(resolve("Pendulum-v1", details), Path("runs"))


@pytest.mark.parametrize(("guard", "setting"), [("balance", "memory"), ("protocol", "noisy")])
def test_a_guard_cannot_protect_what_has_no_fisher_diagonal(guard: str, setting: str) -> None:
    more = [("memory", "gru")] if setting == "memory" else [("noisy", "true")]
    asked = [(f"guards.{guard}.enabled", "true"), (f"guards.{guard}.protect", "10")]
    config = resolve("pursuit", [("selfplay.enabled", "true"), ("games", "2"), *asked, *more])
    world = make_world(config.world.name, config.world.options)
    with pytest.raises(ConfigError, match="EWC covers networks that"):
        make_team(config, world, Streams(1))
