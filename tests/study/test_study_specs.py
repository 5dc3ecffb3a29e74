"""Seeds, variants and spaces as they are typed; every wrong one is explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.config import resolve
from holdfast.errors import ConfigError
from holdfast.run import checked_name
from holdfast.study.crew import cores, threads_each
from holdfast.study.specs import (
    check_settings,
    check_space,
    check_variants,
    make_variants,
    named_runs,
    parse_seeds,
    parse_space,
    parse_vary,
)


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("3", [3]), ("1-4", [1, 2, 3, 4]), ("1,5,10-12", [1, 5, 10, 11, 12]), ("0", [0])],
)
def test_seeds_are_numbers_and_ranges(text: str, seeds: list[int]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no seed"),
        ("a", "'a' is no seed"),
        ("-1", "no seed"),
        ("1.5", "no seed"),
        ("1,", "no seed"),
        ("8-1", "backwards. Write: --seeds 1-8"),
        ("1-3,2", "seed 2 is named twice"),
        ("1-5000", "more than 1000"),
    ],
)
def test_wrong_seeds_are_explained(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_seeds(text)


def test_one_key_is_varied_at_a_time_against_the_first_values() -> None:
    varies = [
        parse_vary("selfplay.history=0.3,0,0.6"),
        parse_vary("guards.balance.enabled=true,false"),
    ]
    variants = make_variants(varies, grid=False)
    assert [v.name for v in variants] == [
        "base",
        "selfplay.history=0",
        "selfplay.history=0.6",
        "guards.balance.enabled=false",
    ]
    assert variants[0].settings == (("selfplay.history", "0.3"), ("guards.balance.enabled", "true"))
    assert variants[3].settings == (
        ("selfplay.history", "0.3"),
        ("guards.balance.enabled", "false"),
    )
    assert [v.run(7) for v in variants[:2]] == ["base-s7", "selfplay.history-0-s7"]


def test_a_grid_is_the_full_product() -> None:
    variants = make_variants([parse_vary("a.b=1,2,3"), parse_vary("c.d=x,y")], grid=True)
    assert len(variants) == 6
    assert variants[0].name == "base"
    assert variants[-1].name == "a.b=3, c.d=y"
    assert len({v.run(1) for v in variants}) == 6


def test_without_keys_there_is_one_variant_and_short_names() -> None:
    (only,) = make_variants([], grid=False)
    assert (only.name, only.run(3)) == ("base", "s3")


@pytest.mark.parametrize(
    "text", ["learner.hidden=8,8;16,16;8-8;8,8,8", "probe.world=a/b;a-b;../x", f"k=a;{'b' * 300}"]
)
def test_every_variant_gets_a_name_of_its_own_that_a_run_may_have(text: str) -> None:
    variants = make_variants([parse_vary(text)], grid=False)
    names = [v.run(1) for v in variants]
    assert len(set(names)) == len(variants)
    assert [checked_name(name) for name in names] == names


def test_values_with_commas_are_parted_by_semicolons() -> None:
    assert parse_vary("learner.hidden=64,64;128,128").values == ("64,64", "128,128")


@pytest.mark.parametrize("text", ["learner.lr", "learner.lr=1", "=1,2", "learner.lr=1,,2", ""])
def test_a_wrong_vary_is_explained(text: str) -> None:
    with pytest.raises(ConfigError, match="two or more values"):
        parse_vary(text)


def test_a_key_that_is_varied_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="given twice"):
        make_variants([parse_vary("a=1,2"), parse_vary("a=3,4")], grid=False)


def test_variants_are_checked_as_configs() -> None:
    variants = make_variants([parse_vary("learner.lr=1e-3,fast")], grid=False)
    with pytest.raises(ConfigError, match=r"learner\.lr = 'fast'"):
        check_variants("shoal", [], variants)
    same = make_variants([parse_vary("learner.lr=1e-3,0.001")], grid=False)
    with pytest.raises(ConfigError, match="are the same run"):
        check_variants("shoal", [], same)


@pytest.mark.parametrize("key", ["seed", "run.seed", "run", "run.name"])
def test_what_the_study_gives_to_its_runs_cannot_be_set(key: str) -> None:
    with pytest.raises(ConfigError, match="is given to each run by the study"):
        check_settings([(key, "1")])
    with pytest.raises(ConfigError, match="is given to each run by the study"):
        parse_vary(f"{key}=1,2")


def test_a_space_is_read_and_written_back() -> None:
    for text in (
        "learner.lr=log:0.0001:0.01",
        "learner.entropy=float:0:0.02",
        "learner.epochs=int:1:8",
        "learner.steps=choice:64,128,256",
        "learner.hidden=choice:8,8;16,16",
    ):
        assert parse_space(text).text == text
    assert parse_space("learner.epochs=int:1:8").edges() == ("1", "8")
    assert parse_space("learner.hidden=choice:8,8;16,16").choices == ("8,8", "16,16")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("learner.lr", "KEY=log:LOW:HIGH"),
        ("learner.lr=exp:1:2", "KEY=log:LOW:HIGH"),
        ("learner.lr=log:1e-2:1e-4", "the lower first"),
        ("learner.lr=log:0:1", "begins above 0"),
        ("learner.lr=float:a:1", "two numbers"),
        ("learner.lr=float:1", "two numbers"),
        ("learner.lr=float:0:inf", "two numbers"),
        ("learner.epochs=int:1.5:3", "two whole numbers"),
        ("learner.steps=choice:64", "two or more different"),
        ("learner.steps=choice:64,64", "two or more different"),
        ("seed=int:1:9", "given to each run by the study"),
    ],
)
def test_a_wrong_space_is_explained(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_space(text)


def test_a_space_must_stay_inside_what_the_config_allows() -> None:
    with pytest.raises(ConfigError, match=r"--space learner\.gamma=float:0\.9:1\.5: .*<= 1"):
        check_space("shoal", [], [parse_space("learner.gamma=float:0.9:1.5")])
    with pytest.raises(ConfigError, match="Unknown key 'lrr'"):
        check_space("shoal", [], [parse_space("learner.lrr=log:1e-4:1e-2")])
    twice = [parse_space("threads=int:1:2"), parse_space("learner.threads=int:1:3")]
    with pytest.raises(ConfigError, match="given twice"):
        check_space("shoal", [], twice)


def test_runs_that_a_config_names_are_found_from_inside_the_study(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "run.toml").write_text("")
    settings = [("selfplay.enabled", "true"), ("selfplay.evader", "run:old@60")]
    config = resolve("pursuit", settings)
    assert named_runs(config, tmp_path) == [("selfplay.evader", f"run:{tmp_path / 'old'}@60")]
    assert named_runs(resolve("pursuit", [("selfplay.evader", "greedy")]), tmp_path) == []
    begun = resolve("pursuit", [("run.init_from", "pursuer=old@60,evader=elsewhere")])
    assert named_runs(begun, tmp_path) == [
        ("run.init_from", f"pursuer={tmp_path / 'old'}@60,evader=elsewhere")
    ]


def test_jobs_and_threads_together_use_every_core_once() -> None:
    assert threads_each(cores()) == 1
    assert threads_each(1) == cores()
    assert threads_each(10 * cores()) == 1
