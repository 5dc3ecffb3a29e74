from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from holdfast.probes.pairs import kept, paired
from holdfast.probes.runner import ProbeSpec, draw_lot, draw_seeds, run_probe
from holdfast.probes.shoal import against_ceiling, hot_spot, measure_deaths
from holdfast.probes.start_types import by_start_type
from holdfast.probes.worst import worst_starts, write_worst
from holdfast.records import Array, EvalReport
from holdfast.worlds.shoal import ShoalOptions
from holdfast.worlds.shoal.ceiling import CeilingReport


class Keep:
    """Never acts."""

    def act(self, obs: Array, rng: np.random.Generator | None = None) -> Array:
        return np.full(len(obs), 4, np.int32)


def report(seed: int = 5, values: tuple[tuple[str, float], ...] = ()) -> EvalReport:
    options = ShoalOptions(fish=40, max_steps=60, force_reset_steps=20)
    return run_probe(ProbeSpec("shoal", options, draw_seeds(seed, 6), values=values), Keep(), 7)


@pytest.fixture(scope="module")
def found() -> EvalReport:
    return report()


def test_the_metrics_follow_from_the_death_steps() -> None:
    deaths = np.array([[-1, 1, 99, 150], [-1, -1, 100, 1]])
    m = measure_deaths(deaths, 500).metrics
    assert m["avg_final"] == 0.375
    assert m["min_final"] == 0.25
    assert m["survival_fraction"] == 0.375
    assert m["ed100"] == 3 / 8  # steps 1, 99, 1; 100 is not early
    assert m["ed150"] == 4 / 8
    assert m["step_one_count"] == 2
    assert m["step_one_ratio"] == 0.25
    assert m["first_death_mean"] == 1.0
    steps = [500, 1, 99, 150, 500, 500, 100, 1]
    assert m["p10"] == np.percentile(steps, 10)


def test_a_step_one_death_is_avoidable_if_some_action_gets_past_step_one() -> None:
    deaths = np.array([[1, 1, 1, -1]])
    best = np.array([[1, 3, -1, -1]], np.int32)
    report = CeilingReport(best < 0, best, np.ones_like(best, np.bool_))
    measures = measure_deaths(deaths, 500)
    against_ceiling(measures, deaths, report, 500)
    assert measures.metrics["avoidable_step_one_count"] == 2
    assert measures.metrics["avoidable_death_fraction"] == 0.25
    assert measures.metrics["ceiling_step_one_count"] == 1
    assert measures.metrics["ceiling_ed100"] == 0.5
    assert measures.detail["avoidable"].tolist() == [1]


def test_the_hot_spot_is_the_bin_with_most_deaths_and_its_lift() -> None:
    starts = [
        {"heading_deg": 5.0, "speed": 0.1},
        {"heading_deg": 355.0, "speed": 0.1},
        {"heading_deg": 358.0, "speed": 0.2},
        {"heading_deg": 100.0, "speed": 2.0},
    ]
    died = np.array([[1, 0, 0], [1, 0, 0], [1, 1, 0], [0, 0, 0]], np.bool_)
    hot = hot_spot(starts, died)
    assert hot is not None
    assert (hot["heading_from"], hot["deaths"], hot["episodes"]) == (330.0, 3, 2)
    assert hot["share"] == 0.75
    assert hot["lift"] == 1.5
    assert hot_spot(starts, np.zeros((4, 3), np.bool_)) is None


def test_a_probe_measures_places_pre_roll_and_the_ceiling_of_its_own_seeds(
    found: EvalReport,
) -> None:
    for name in ("hot_spot_share", "ceiling_p10", "avoidable_step_one_count", "first_death_mean"):
        assert name in found.metrics, name
    assert found.detail["lengths"] == [60.0] * 6  # force_reset_steps does not cut an evaluation
    assert found.detail["pre_roll"]["episodes"] == 6
    counts = [r["count"] for r in found.detail["step_one"]]
    assert sum(counts) == found.metrics["step_one_count"]
    assert found.metrics["avg_final"] <= found.metrics["ceiling_avg_final"]
    assert set(found.detail["samples"]) <= set(found.intervals)


def test_values_that_guards_turned_hold_in_the_probe_and_in_its_ceiling(found: EvalReport) -> None:
    slow = report(values=(("escape_boost_speed", 0.0), ("force_reset_steps", 10.0)))
    assert slow.detail["values"]["escape_boost_speed"] == 0.0
    assert slow.detail["lengths"] == [60.0] * 6
    assert slow.metrics["ceiling_avg_final"] <= found.metrics["ceiling_avg_final"]
    assert slow.metrics["avg_final"] != found.metrics["avg_final"]


def test_probes_on_the_same_seeds_are_paired_with_an_interval(found: EvalReport) -> None:
    first = kept(found)
    assert json.loads(json.dumps(first)) == first
    again = paired(report(), first)
    assert again.metrics["change_avg_final"] == 0.0
    assert again.intervals["change_avg_final"] == (0.0, 0.0)
    assert again.detail["paired_with_update"] == 7
    assert "change_avg_final" not in paired(report(6), first).metrics
    assert paired(found, {}) is found


def test_fresh_seeds_are_the_lots_of_one_stream_as_in_the_original() -> None:
    first = (774941881, 1153548809, 1861755986, 1855747823, 572279594, 1383995792)
    assert draw_lot(411232, 12, 0)[:6] == first
    assert draw_lot(411232, 12, 4)[:3] == (1790440378, 1639549627, 879975675)
    rng = np.random.default_rng(9)
    lots = [tuple(rng.integers(0, 2**31 - 1, 5).tolist()) for _ in range(4)]
    assert [draw_lot(9, 5, k) for k in range(4)] == lots


def test_the_worst_starts_are_ranked_by_avoidable_deaths_and_written_whole(
    found: EvalReport, tmp_path: Path
) -> None:
    path = write_worst(found, tmp_path)
    assert path is not None
    content = json.loads(path.read_text())
    assert content["seeds"] == "evaluation"
    ranks = [(e["avoidable"], e["deaths"]) for e in content["episodes"]]
    assert ranks == sorted(ranks, reverse=True)
    assert content["episodes"][0]["replay"].startswith(f"holdfast watch {tmp_path.name}")
    assert content["step_one"]["total"] == found.metrics["step_one_count"]
    assert [p.name for p in tmp_path.iterdir()] == ["worst_starts.json"]


def test_a_world_without_deaths_has_no_worst_starts(tmp_path: Path) -> None:
    plain = EvalReport("probe", 1, 1, (1,), {"return_mean": 1.0})
    assert worst_starts(plain, "r") is None
    assert write_worst(plain, tmp_path) is None


def test_episodes_are_summed_by_type_of_start() -> None:
    def line(kind: str, survival: float, alive: float, step_one: float) -> dict[str, object]:
        return {
            "start": {"type": kind},
            "facts/survival": survival,
            "facts/final_alive": alive,
            "facts/step_one_deaths": step_one,
        }

    lines = [line("fresh", 1.0, 20, 0), line("ne", 0.5, 5, 2), line("ne", 0.0, 0, 1), {"update": 1}]
    found = by_start_type(lines, fish=10)
    assert found["fresh"]["fish"] == 20
    assert found["ne"] == {
        "episodes": 2,
        "fish": 20,
        "step_one": 3.0,
        "survival": 0.25,
        "step_one_ratio": 0.15,
    }
    # A shoal of 5 that dies out is not one of 10, the number in the last phase.
    small = by_start_type([line("ne", 0.8, 4, 0), line("ne", 0.0, 0, 5)], fish=10)
    assert (small["ne"]["fish"], small["ne"]["survival"]) == (10, 0.4)
    cut = {**line("ne", 1.0, 10, 0), "cut": True}
    assert by_start_type([*lines, cut], fish=10) == found
