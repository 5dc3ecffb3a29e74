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

MICRO = [("guards.protocol.phase_steps", "0")]
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


SIDES = ("selfplay.enabled", "true")
NEVER = ("probe.every", "0")
GATED = [("guards.gate.enabled", "true"), ("guards.density.enabled", "true")]


@pytest.mark.parametrize(
    ("guard", "setting", "value"),
    [
        ("protocol", "evader_first", "true"),
        ("protocol", "warm_start_steps", "100"),
        ("protocol", "mixed_share", "0.2"),
        ("protocol", "protect", "10"),
        ("balance", "protect", "10"),
    ],
)
def test_what_is_to_happen_at_an_advance_needs_levels(guard: str, setting: str, value: str) -> None:
    settings = [SIDES, (f"guards.{guard}.enabled", "true"), (f"guards.{guard}.{setting}", value)]
    flag = f"--guards.{guard}.{setting.replace('_', '-')} (0|0.0|false)$"
    with pytest.raises(ConfigError, match=rf"{setting} = .* there are no levels.*{flag}"):
        refuse_unfit(resolve("pursuit", settings), Path("runs"))
    levels = (f"guards.{guard}.curriculum.kind", "smooth")
    refuse_unfit(resolve("pursuit", [*settings, levels]), Path("runs"))
    off = (f"guards.{guard}.enabled", "false")
    refuse_unfit(resolve("pursuit", [*settings, off]), Path("runs"))


@pytest.mark.parametrize(
    ("world", "guard", "settings"),
    [
        ("shoal", "gate", GATED),
        ("pursuit", "balance", [SIDES]),
        ("pursuit", "dampen", [SIDES]),
        ("pursuit", "collapse", [SIDES, ("guards.collapse.rate_below", "0.1")]),
        ("pursuit", "protocol", [SIDES, *MICRO, ("guards.protocol.boost_gap", "0.3")]),
        ("pursuit", "protocol", [SIDES, *MICRO, ("guards.protocol.freeze.role", "evader")]),
        ("shoal", "plateau", [("guards.plateau.signal", "probe/ed100")]),
    ],
)
def test_a_guard_that_decides_by_evaluations_needs_some(
    world: str, guard: str, settings: list[tuple[str, str]]
) -> None:
    settings = [*settings, (f"guards.{guard}.enabled", "true")]
    with pytest.raises(
        ConfigError, match=rf"guards\.{guard} decides by evaluations.*--probe\.every"
    ):
        refuse_unfit(resolve(world, [*settings, NEVER]), Path("runs"))
    refuse_unfit(resolve(world, settings), Path("runs"))


@pytest.mark.parametrize(
    "settings",
    [
        [("guards.collapse.enabled", "true")],
        [("guards.protocol.enabled", "true"), ("guards.dampen.enabled", "true")],
        [("guards.protocol.enabled", "true"), *MICRO],
    ],
)
def test_guards_that_need_no_evaluations_or_ask_for_them_are_taken_without(
    settings: list[tuple[str, str]],
) -> None:
    refuse_unfit(resolve("pursuit", [SIDES, NEVER, *settings]), Path("runs"))


def test_a_boost_without_fish_that_start_with_one_is_refused(tmp_path: Path) -> None:
    boost, off = ("guards.boost.enabled", "true"), ("world.escape_boost", "false")
    with pytest.raises(
        ConfigError, match=r"escape_boost_speed, which does nothing.*--world\.escape"
    ):
        refuse_unfit(resolve("shoal", [boost, off]), Path("runs"))
    refuse_unfit(resolve("shoal", [boost]), Path("runs"))
    path = tmp_path / "a.toml"
    path.write_text(
        '[world]\nname = "shoal"\n[[phase]]\n[[phase]]\nworld = { escape_boost = true }\n'
    )
    refuse_unfit(resolve(str(path), [boost, off]), Path("runs"))


@pytest.mark.parametrize("mined", ["true", "false"])
def test_a_threshold_for_a_type_that_no_tail_stage_has_is_refused(mined: str) -> None:
    settings = [*GATED, ("guards.tails.enabled", mined), ("guards.tails.mine", mined)]
    wrong = [*settings, ("guards.gate.success_p10_by_type", "tial:60")]
    have = "Did you mean 'tail'.*: tail" if mined == "true" else ": none"
    with pytest.raises(ConfigError, match=rf"success_p10_by_type is for .*'tial'.*{have}\."):
        refuse_unfit(resolve("shoal", wrong), Path("runs"))
    right = [*settings, ("guards.gate.success_p10_by_type", "tail:60")]
    if mined == "true":
        refuse_unfit(resolve("shoal", right), Path("runs"))


@pytest.mark.parametrize(
    ("world", "name", "guard", "settings"),
    [
        ("shoal", "density_penalty", "density", []),
        ("shoal", "escape_boost_speed", "boost", []),
        ("pursuit", "min_init_distance", "balance", [SIDES, ("curriculum.kind", "smooth")]),
        ("shoal", "view_reward", "adaptive", [("channels", "world.view_reward:1..4@0.1")]),
    ],
)
def test_an_option_of_evaluations_that_a_guard_sets_there_too_is_refused(
    world: str, name: str, guard: str, settings: list[tuple[str, str]]
) -> None:
    more = [(k if "selfplay" in k else f"guards.{guard}.{k}", value) for k, value in settings]
    more += [("guards.adaptive.signal", "episode/length_steps"), (f"probe.world.{name}", "1")]
    on, off = ((f"guards.{guard}.enabled", word) for word in ("true", "false"))
    with pytest.raises(
        ConfigError, match=rf"probe\.world\.{name} would do nothing: guards\.{guard}"
    ):
        refuse_unfit(resolve(world, [*more, on]), Path("runs"))
    refuse_unfit(resolve(world, [*more, off]), Path("runs"))
