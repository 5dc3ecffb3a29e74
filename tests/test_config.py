from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from holdfast.config import (
    differences,
    from_tables,
    leaves,
    read_toml,
    resolve,
    to_toml,
    with_changes,
)
from holdfast.errors import ConfigError
from holdfast.refuse import refuse_unfit


def test_a_key_without_a_section_finds_its_place() -> None:
    config = resolve("shoal", [("updates", "7"), ("fish", "10"), ("lr", "1e-3"), ("every", "3")])
    assert config.run.updates == 7
    assert config.world.options.fish == 10
    assert config.learner.lr == 1e-3
    assert config.probe.every == 3


def test_numbers_of_numpy_are_numbers() -> None:
    given = [
        ("seed", np.int64(5)),
        ("lr", np.float64(0.5)),
        ("hidden", [np.int32(8)]),
        ("fish", np.int8(9)),
    ]
    config = resolve("shoal", given)
    assert (config.run.seed, config.learner.lr, config.learner.hidden) == (5, 0.5, (8,))
    assert type(config.run.seed) is int
    assert "fish = 9\n" in to_toml(config)


def test_short_names_for_run_and_learner() -> None:
    config = resolve("shoal", [("run", "first"), ("learner", "torch"), ("threads", "1")])
    assert (config.run.name, config.learner.kind, config.learner.threads) == ("first", "torch", 1)


def test_a_nested_guard_setting_is_reached_by_its_dotted_key() -> None:
    config = resolve("shoal", [("guards.plateau.patience", "9")])
    assert config.guards.plateau.patience == 9
    assert config.guards.plateau.signal == "shoal/survival"


def test_the_resolved_config_comes_back_from_its_own_toml(tmp_path: Path) -> None:
    config = resolve("shoal", [("hidden", "32,16"), ("entropy_windows", "1-3:0.1"), ("run", "a")])
    path = tmp_path / "run.toml"
    path.write_text(to_toml(config))
    assert leaves(from_tables(read_toml(path))) == leaves(config)


def test_a_toml_file_lies_between_preset_and_overrides(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(
        '[world]\nname = "shoal"\nfish = 7\n[run]\nupdates = 3\n[learner]\nhidden = [8]\n'
    )
    config = resolve(str(path), [("updates", "4")])
    assert (config.world.options.fish, config.run.updates, config.learner.hidden) == (7, 4, (8,))
    assert config.learner.normalise_rewards  # from the preset


def test_updates_given_by_the_user_win_over_the_presets_env_steps() -> None:
    assert resolve("CartPole-v1").run.env_steps > 0
    assert resolve("CartPole-v1", [("updates", "5")]).run.env_steps == 0


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("updatse", "3", "Did you mean 'updates'"),
        (
            "learner.epochs",
            "many",
            "learner.epochs = 'many' is not allowed. It takes a whole number >= 1",
        ),
        ("learner.epochs", "0", "whole number >= 1"),
        ("updates", "-5", "run.updates = '-5'"),
        ("updates", "1.5", "whole number"),
        ("lr", "nan", "takes a number"),
        ("lr", "0", "a number > 0"),
        ("learner.kind", "jax", "one of auto, torch, fused"),
        ("hidden", "64,x", "learner.hidden"),
        ("normalise_obs", "maybe", "true or false"),
        ("guards.plateau.patence", "3", "Did you mean 'patience'"),
        ("guards.plato.patience", "3", "Did you mean 'plateau'"),
        ("wrold.fish", "3", "Did you mean 'world'"),
        ("games", "0", "games"),
    ],
)
def test_a_bad_setting_names_the_key_the_value_and_what_is_allowed(
    key: str, value: str, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve("shoal", [(key, value)])
    assert words in str(caught.value)


def test_an_unknown_table_or_key_in_a_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('[world]\nname = "shoal"\n[learnr]\nlr = 1\n')
    with pytest.raises(ConfigError, match="Did you mean 'learner'"):
        resolve(str(path))


@pytest.mark.parametrize(
    ("content", "words"), [("[run", "not valid TOML"), ("[run]\nupdates=3", "needs a name")]
)
def test_a_broken_file_is_explained(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "a.toml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=words):
        resolve(str(path))


def test_a_missing_file_is_explained() -> None:
    with pytest.raises(ConfigError, match="is not there"):
        resolve("nowhere.toml")


def test_resume_may_change_the_length_and_nothing_that_would_change_the_past() -> None:
    config = resolve("shoal", [("run", "a")])
    longer = with_changes(config, [("updates", "500")])
    assert differences(config, longer) == ["run.updates: 100 -> 500"]
    with pytest.raises(ConfigError, match=r"learner\.lr: .* -> 0\.5"):
        with_changes(config, [("lr", "0.5")])


def test_soft_actor_critic_has_settings_of_its_own_in_foreign_environments() -> None:
    config = resolve("Pendulum-v1", [("learner", "sac"), ("lr", "5e-4")])
    learner = config.learner
    assert (learner.normalise_obs, learner.sac.auto_entropy, learner.steps) == (False, True, 16)
    assert (learner.lr, config.world.options.games) == (5e-4, 4)
    refuse_unfit(config, Path("runs"))
    assert resolve("Pendulum-v1").learner.normalise_obs
    assert resolve("pursuit", [("learner", "sac")]).world.options.games == 128
