from __future__ import annotations

import math

import numpy as np
import pytest

from holdfast.errors import ConfigError
from holdfast.probes.sectors import (
    SECTORS,
    bin_edges,
    bin_of,
    clusters,
    fast_share,
    in_range,
    parse_sector,
    sector_of,
    sector_range,
)


@pytest.mark.parametrize(
    ("heading", "name"),
    [
        (0, "E"),
        (45, "NE"),
        (90, "N"),
        (135, "NW"),
        (180, "W"),
        (225, "SW"),
        (270, "S"),
        (315, "SE"),
    ],
)
def test_a_sector_is_centred_on_its_compass_direction(heading: float, name: str) -> None:
    assert sector_of(heading) == name
    assert sector_of(heading - 22.5) == name
    assert sector_of(heading + 22.4) == name
    assert sector_of(heading + 22.5) != name


@pytest.mark.parametrize("heading", [359.9, -0.1, 0.0, 360.0, 720.0, -1e-20, 337.5])
def test_east_wraps_round(heading: float) -> None:
    assert sector_of(heading) == "E"
    assert in_range(heading, sector_range("E"))


def test_metric_and_mix_agree_on_every_heading() -> None:
    for heading in np.arange(-360, 720, 0.25):
        homes = [name for name in SECTORS if in_range(heading, sector_range(name))]
        assert homes == [sector_of(heading)]


def test_a_sector_is_a_name_or_a_range_that_may_wrap() -> None:
    assert parse_sector("ne") == (22.5, 67.5)
    assert parse_sector("60-90") == (60.0, 90.0)
    low, high = parse_sector("330-30")
    assert in_range(350, (low, high))
    assert in_range(10, (low, high))
    assert not in_range(30, (low, high))
    assert not in_range(180, (low, high))


@pytest.mark.parametrize("text", ["NNE", "north", "", "10", "10-10", "360-0", "400-20", "a-b"])
def test_what_is_not_a_sector_is_refused_with_what_is(text: str) -> None:
    with pytest.raises(ConfigError, match="E is 0 and N is 90"):
        parse_sector(text)


def test_a_cluster_names_every_sector_that_its_headings_lie_in() -> None:
    records = [{"heading_deg": heading, "speed": 1.0} for heading in (65.0, 45.0, 350.0)]
    found = {one["heading_from"]: one["sector"] for one in clusters(records)}
    assert found == {60.0: "NE/N", 30.0: "NE", 330.0: "SE/E"}


def test_every_bin_holds_its_lower_edge_and_not_its_upper_one() -> None:
    for heading in range(12):
        for speed in range(20):
            edges = bin_edges((heading, speed))
            low, high = edges["speed_from"], edges["speed_to"]
            assert low is not None
            assert high is not None
            assert bin_of(float(edges["heading_from"] or 0.0), low) == (heading, speed)
            assert bin_of(float(edges["heading_to"] or 0.0) - 1e-9, low) == (heading, speed)
            assert bin_of(30.0 * heading, np.float32(low)) == (heading, speed)
            assert bin_of(30.0 * heading, high) == (heading, speed + 1)


def test_two_point_zero_lies_in_the_bin_that_says_so() -> None:
    assert bin_edges(bin_of(95.0, 2.0))["speed_from"] == 2.0
    found = clusters(
        [{"heading_deg": 95.0, "speed": 1.89}, {"heading_deg": 95.0, "speed": 2.0}] * 2
    )
    for one in found:
        assert one["speed_from"] <= one["sample"]["speed"] < one["speed_to"]


def test_a_very_fast_predator_is_in_the_last_bin_without_an_upper_end() -> None:
    assert bin_edges(bin_of(0.0, 1e6))["speed_to"] is None


def test_clusters_are_sorted_by_count_and_their_shares_add_up() -> None:
    records = [
        {"heading_deg": 10.0, "speed": 0.1},
        {"heading_deg": 350.0, "speed": 1.7, "count": 3},
        {"heading_deg": 12.0, "speed": 0.2},
    ]
    found = clusters(records)
    assert [one["count"] for one in found] == [3, 2]
    assert math.isclose(sum(one["share"] for one in found), 1.0)
    assert found[0]["heading_from"] == 330.0
    assert found[0]["sample"]["heading_deg"] == 350.0
    assert clusters([]) == []


def test_the_share_of_fast_starts_counts_fish_and_includes_the_edge() -> None:
    records = [
        {"heading_deg": 45.0, "speed": float(np.float32(1.6)), "count": 3},
        {"heading_deg": 45.0, "speed": 1.5},
        {"heading_deg": 90.0, "speed": 2.0},
    ]
    assert fast_share(records, sector_range("NE")) == 0.6
    assert fast_share([], sector_range("NE")) is None
