"""What the results of runs are made into: differences, effects of a grid, pages, and what counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.study.child import Followed, Probed, read_probe
from holdfast.study.folder import shrunk
from holdfast.study.page import change, markdown
from holdfast.study.results import (
    Result,
    by_seed,
    differences,
    effects,
    exit_code_of,
    run_record,
    summarise,
)
from holdfast.study.specs import Variant, make_variants, parse_vary


def result(variant: Variant, seed: int, *values: float, state: str = "finished") -> Result:
    probes = tuple(Probed(k, 100 * k, {"m": value}) for k, value in enumerate(values, 1))
    best = max(probes, key=lambda p: (p.metrics["m"], p.update)) if probes else None
    return Result(
        run=variant.run(seed),
        variant=variant.name,
        seed=seed,
        state=state,
        update=len(probes),
        updates=len(probes),
        env_steps=100 * len(probes),
        probes=probes,
        best=best,
        checkpoint="",
    )


def results_of(
    variants: list[Variant], value: Callable[[dict[str, str], int], float]
) -> list[Result]:
    return [result(v, s, value(dict(v.settings), s)) for s in (1, 2) for v in variants]


def test_final_and_best_are_different_evaluations() -> None:
    (base,) = make_variants([], False)
    results = [result(base, 1, 0.2, 0.9, 0.4), result(base, 2, 0.1, 0.3, 0.3)]
    assert by_seed(results, "base", "m", "final") == {1: 0.4, 2: 0.3}
    assert by_seed(results, "base", "m", "best") == {1: 0.9, 2: 0.3}
    assert run_record(results[1])["best"]["update"] == 3
    assert summarise(results, "base", "m")["best"]["m"]["mean"] == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("state", "counts"),
    [
        ("finished", True),
        ("out_of_time", True),
        ("stopped", True),
        ("failed", False),
        ("killed", False),
        ("interrupted", False),
        ("waiting", False),
    ],
)
def test_only_runs_that_came_to_an_end_count(state: str, counts: bool) -> None:
    (base,) = make_variants([], False)
    one = result(base, 1, 0.5, state=state)
    assert one.counts is counts
    assert by_seed([one], "base", "m", "final") == ({1: 0.5} if counts else {})
    assert not replace(one, probes=()).counts


def test_a_grid_has_the_effect_of_each_value_over_the_other_keys() -> None:
    varies = [parse_vary("a=0,1"), parse_vary("b=0,5,7")]
    variants = make_variants(varies, grid=True)
    # a adds 1 whatever b is; b=5 adds 10 where a is 0 and 20 where a is 1.
    extra = {"0": 0.0, "5": 10.0, "7": 0.0}
    found = results_of(
        variants, lambda s, seed: seed + int(s["a"]) + extra[s["b"]] * (1 + int(s["a"]))
    )
    rows = {
        (r["key"], r["value"]): r
        for r in effects(found, variants, varies, "m")
        if r["end"] == "final"
    }
    assert rows["b", "5"]["count"] == 4
    assert rows["b", "5"]["mean"] == pytest.approx(15.0)
    # Within each stratum both seeds agree, so resampling inside the strata changes nothing.
    assert (rows["b", "5"]["low"], rows["b", "5"]["high"]) == pytest.approx((15.0, 15.0))
    assert rows["b", "7"]["mean"] == pytest.approx(0.0)
    assert rows["a", "1"]["mean"] == pytest.approx((1 + 11 + 1) / 3)


def test_every_variant_is_compared_with_the_first() -> None:
    variants = make_variants([parse_vary("a=0,1"), parse_vary("b=0,5")], grid=False)
    found = results_of(variants, lambda s, seed: seed * (1 + int(s["a"])) - int(s["b"]))
    rows = {r["variant"]: r for r in differences(found, variants, "m") if r["end"] == "final"}
    assert rows["a=1"]["mean"] == pytest.approx(1.5)
    assert (rows["a=1"]["above"], rows["a=1"]["count"]) == (2, 2)
    assert (rows["b=5"]["low"], rows["b=5"]["high"]) == (-5.0, -5.0)
    assert rows["b=5"]["above"] == 0
    assert change(rows["b=5"]) == "-5 (no spread seen), above in 0 of 2"


def test_the_page_shows_runs_without_any_evaluation(tmp_path: Path) -> None:
    (base,) = make_variants([], False)
    results = [result(base, 1, state="waiting")]
    page = markdown(
        {
            "name": "x",
            "command": "holdfast study shoal --seeds 1",
            "main": "m",
            "seeds": [1],
            "variants": [{"name": "base", "settings": []}],
            "runs": [run_record(r) for r in results],
            "summary": {"base": summarise(results, "base", "m")},
            "differences": [],
        }
    )
    assert "1 seed, 1 variant; runs: 1 waiting." in page
    assert "No run of this variant is finished." in page


@pytest.mark.parametrize(
    ("states", "signal", "code"),
    [
        (["finished", "out_of_time"], 0, 0),
        (["finished", "stopped"], 0, 4),
        (["finished", "failed", "stopped"], 0, 1),
        (["finished", "killed"], 0, 1),
        (["finished", "interrupted"], 0, 1),
        (["finished", "pruned"], 0, 0),
        (["interrupted", "waiting"], 2, 130),
        (["interrupted"], 15, 143),
    ],
)
def test_the_exit_code_says_how_the_runs_ended(states: list[str], signal: int, code: int) -> None:
    assert exit_code_of(states, signal) == code


def test_evaluations_are_followed_as_the_file_grows_and_when_it_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "evals.jsonl"

    def line(update: int) -> str:
        metrics = {"m": update / 10, "none": None}
        return json.dumps({"update": update, "env_steps": update * 5, "metrics": metrics}) + "\n"

    seen = Followed(tmp_path)
    assert seen.read() == []
    path.write_text(line(1) + line(2) + line(3)[:20])
    assert [p.update for p in seen.read()] == [1, 2]
    path.write_text(line(1) + line(2) + line(3))
    assert [p.update for p in seen.read()] == [3]
    path.write_text(
        line(1)
    )  # a resumed run cuts the file to its checkpoint, then writes the same again
    assert seen.read() == []
    path.write_text(line(1) + line(2) + line(3) + line(4))
    assert [p.update for p in seen.read()] == [4]
    assert [value for _, value in seen.values("m")] == [0.1, 0.2, 0.3, 0.4]
    assert seen.values("none") == []


@pytest.mark.parametrize("line", [b"", b"x", b"[]", b"{}", b'{"update": 1, "metrics": 3}', b"\xff"])
def test_a_broken_line_is_no_evaluation(line: bytes) -> None:
    assert read_probe(line) is None


def test_a_run_that_was_out_of_memory_is_told_apart(tmp_path: Path) -> None:
    assert shrunk(tmp_path) == []
    events = [
        {"event": "begin", "changed": []},
        {"event": "out_of_memory", "changed": ["learner.steps: 64 -> 32"]},
    ]
    (tmp_path / "sessions.jsonl").write_text("".join(json.dumps(e) + "\n" for e in events))
    assert shrunk(tmp_path) == ["learner.steps: 64 -> 32"]
