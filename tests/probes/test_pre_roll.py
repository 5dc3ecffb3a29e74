from __future__ import annotations

import math
from typing import Any

from holdfast.probes.pre_roll import angle_histogram, circular, describe, summarise


def stats(angle: float, override: bool = False) -> dict[str, Any]:
    return {
        "spawn_radius": 1.0,
        "spawn_angle_deg": angle,
        "angle_jitter_deg": [1.0, -1.0],
        "speed_scale": [],
        "initial_speed": 1.5,
        "initial_heading_deg": angle,
        "heading_bias_angle_deg": None,
        "prewarm_velocity_override": override,
        "final_speed": 2.0,
        "final_heading_deg": angle,
    }


def test_no_angle_falls_out_of_the_histogram() -> None:
    angles = [-180.0, -170.0, -1.0, 0.0, 29.9, 30.0, 359.9, 360.0, 180.0]
    counts = angle_histogram(angles)
    assert len(counts) == 12
    assert sum(counts) == len(angles)
    assert counts[0] == 3  # 0, 29.9 and 360
    assert counts[11] == 2  # -1 and 359.9
    assert counts[6] == 3  # 180, -180, -170


def test_the_mean_of_angles_is_that_of_the_circle() -> None:
    found = circular([350.0, 10.0])
    assert min(found["mean"], 360.0 - found["mean"]) < 1e-9
    assert math.isclose(circular([90.0] * 5)["resultant"], 1.0)
    assert circular([0.0, 180.0])["resultant"] < 1e-12


def test_a_summary_describes_numbers_angles_and_overrides() -> None:
    found = summarise([stats(-90.0), stats(90.0, override=True)])
    assert found["episodes"] == 2
    assert found["override_ratio"] == 0.5
    assert found["angle_jitter_deg"] == describe([1.0, -1.0, 1.0, -1.0])
    assert "speed_scale" not in found
    assert "heading_bias_angle_deg" not in found
    assert found["spawn_angle_deg"]["histogram"][9] == 1
    assert sum(found["final_speed"]["histogram"]["counts"]) == 2


def test_nothing_to_summarise_is_no_error() -> None:
    assert summarise([]) == {"episodes": 0, "overrides": 0, "override_ratio": 0.0}
