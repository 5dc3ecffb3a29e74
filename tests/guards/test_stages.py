from __future__ import annotations

import pytest

from holdfast.errors import ConfigError
from holdfast.guards.stages import StageSpec, parse_numbered, parse_pairs, parse_stages


def test_the_v36_form_names_stages_by_number_and_file() -> None:
    assert parse_stages("20:mixes/v34_ne.json; 24:/data/v32_stage1.json") == (
        StageSpec(20, "mixes/v34_ne.json", "stage1:v34_ne", "unknown"),
        StageSpec(24, "/data/v32_stage1.json", "stage2:v32_stage1", "unknown"),
    )


def test_the_v38_form_takes_type_and_label_in_any_order_and_case() -> None:
    text = "8:a.json|type=NE|label=North block;4:b.json|LABEL=x|stage_type=main;"
    assert parse_stages(text) == (
        StageSpec(8, "a.json", "North block", "ne"),
        StageSpec(4, "b.json", "x", "main"),
    )


def test_a_count_replaces_updates_times_games() -> None:
    assert parse_stages("8:a.json|count=300")[0].count == 300
    assert parse_stages("8:a.json")[0].count == 0


def test_a_path_may_hold_a_colon() -> None:
    assert parse_stages("8:C:/mixes/a.json")[0].path == "C:/mixes/a.json"


def test_an_empty_spec_has_no_stages() -> None:
    assert parse_stages("") == ()
    assert parse_stages(" ; ") == ()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a.json", "no 'updates:path'"),
        ("20:", "no 'updates:path'"),
        ("x:a.json", "updates = 'x'"),
        ("0:a.json", "updates = '0'"),
        ("-3:a.json", "updates = '-3'"),
        ("1.5:a.json", "updates = '1.5'"),
        ("8:a.json;9:b.json|typ=ne", r"stage 2 .*'typ=ne' .*Did you mean 'type'"),
        ("8:a.json|ne", "'ne' is none of"),
        ("8:a.json|type=", "has no value"),
        ("8:a.json|type=ne|stage_type=x", "'type' is given twice"),
        ("8:a.json|type=n e", "the type 'n e'"),
        ("8:a.json|count=no", "count = 'no'"),
    ],
)
def test_bad_text_is_refused_with_its_place_and_an_example(text: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what) as caught:
        parse_stages(text)
    assert "guards.tails.stages: stage" in str(caught.value)
    assert "for example" in str(caught.value)


def test_pairs_are_read_by_lower_case_name() -> None:
    assert parse_pairs("NE:0.13, main:0.10,", "x") == {"ne": 0.13, "main": 0.1}
    assert parse_pairs("", "x") == {}


@pytest.mark.parametrize("text", ["ne", "ne:", ":1", "ne:nan", "ne:1,NE:2", "ne:-1"])
def test_bad_pairs_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="success_x"):
        parse_pairs(text, "success_x", low=0)


def test_numbered_pairs_take_whole_numbers_only() -> None:
    assert parse_numbered("3:0.76,4:0.78", "x") == {3: 0.76, 4: 0.78}
    with pytest.raises(ConfigError, match="'a' is not a whole number"):
        parse_numbered("a:0.76", "x")
    with pytest.raises(ConfigError, match="twice"):
        parse_numbered("3:0.76,03:0.8", "x")
