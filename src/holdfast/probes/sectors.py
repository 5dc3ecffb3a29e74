"""Compass sectors and (heading, speed) bins of the predator: one definition for metric, mining and mix.

Headings are degrees in the world's mathematical frame: E is 0, N is 90 (+y, where the predator falls to). A
sector is 45 degrees wide and centred on its direction, so NE is [22.5, 67.5) and E is [337.5, 22.5). Bins are 30
degrees by 0.4 units of speed, closed below and open above; the last speed bin has no upper end. What a bin
prints as its edges is what it was cut with: a speed of exactly 2.0 lies in 2.0-2.4.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from holdfast.errors import ConfigError, nearest

SECTORS = ("E", "NE", "N", "NW", "W", "SW", "S", "SE")
"""In the order of their headings: 0, 45, 90, ... degrees."""
SECTOR_DEG = 45.0
BIN_DEG, BIN_SPEED = 30.0, 0.4
HIGH_SPEED = 1.6
"""From this speed on a start is fast."""
_EDGES = np.array([round(BIN_SPEED * k, 10) for k in range(21)], np.float32)

Bin = tuple[int, int]
"""Heading bin 0..11, speed bin 0..20."""


def sector_of(heading_deg: float) -> str:
    """Return the compass sector of a heading; any number of degrees is taken round the circle."""
    return SECTORS[int((heading_deg + SECTOR_DEG / 2) % 360.0 // SECTOR_DEG) % len(SECTORS)]


def sector_range(sector: str) -> tuple[float, float]:
    """Return from and to in degrees; to exceeds 360 where the sector wraps (E: 337.5 to 382.5)."""
    low = (SECTORS.index(sector) * SECTOR_DEG - SECTOR_DEG / 2) % 360.0
    return low, low + SECTOR_DEG


def parse_sector(text: str) -> tuple[float, float]:
    """Return from and to in degrees of a sector's name (`NE`) or of a range (`60-90`, `330-30`)."""
    name = text.strip().upper()
    if name in SECTORS:
        return sector_range(name)
    match = re.fullmatch(r"(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)", name)
    low, high = (float(v) for v in match.groups()) if match else (0.0, 0.0)
    if match is None or max(low, high) > 360.0 or low == high or (low, high) == (360.0, 0.0):
        raise ConfigError(
            f"'{text}' is not a sector.{nearest(name, SECTORS)} Allowed: {', '.join(SECTORS)}, or degrees "
            "from-to such as 60-90 or 330-30; E is 0 and N is 90."
        )
    return low, high if high > low else high + 360.0


def in_range(heading_deg: float, span: tuple[float, float]) -> bool:
    """Return whether a heading lies in [from, to), round the circle."""
    return bool((heading_deg - span[0]) % 360.0 < span[1] - span[0])


def bin_of(heading_deg: float, speed: float) -> Bin:
    """Return the bin of a heading and a speed."""
    heading = int(heading_deg % 360.0 // BIN_DEG) % round(360 / BIN_DEG)
    # Velocities are float32, so a speed of 2.8 may read 2.7999999; the edges are rounded the same way.
    return heading, int(np.searchsorted(_EDGES, np.float32(speed), side="right")) - 1


def bin_edges(place: Bin) -> dict[str, float | None]:
    """Return the edges that the bin was cut with; the last speed bin has no upper one."""
    heading, speed = place
    last = speed + 1 >= len(_EDGES)
    return {
        "heading_from": heading * BIN_DEG,
        "heading_to": (heading + 1) * BIN_DEG,
        "speed_from": round(speed * BIN_SPEED, 10),
        "speed_to": None if last else round((speed + 1) * BIN_SPEED, 10),
    }


def clusters(records: Sequence[Mapping[str, Any]], most: int = 0) -> list[dict[str, Any]]:
    """Return the bins of records with `heading_deg` and `speed`, the fullest first, each with a sample.

    A record may have a `count` (1 without). Bins with the same count keep the order in which they came.
    """
    counts: Counter[Bin] = Counter()
    samples: dict[Bin, Mapping[str, Any]] = {}
    for record in records:
        place = bin_of(record["heading_deg"], record["speed"])
        counts[place] += int(record.get("count", 1))
        samples.setdefault(place, record)
    total = counts.total()
    found = [
        {
            **bin_edges(place),
            "sector": _sectors_of(place[0]),
            "count": count,
            "share": count / total,
            "sample": dict(samples[place]),
        }
        for place, count in counts.most_common()
    ]
    return found[:most] if most > 0 else found


def _sectors_of(heading_bin: int) -> str:
    """Return the sector that a bin of headings lies in; `NE/N` where it lies in two."""
    low, high = heading_bin * BIN_DEG, (heading_bin + 1) * BIN_DEG
    return "/".join(dict.fromkeys((sector_of(low), sector_of(np.nextafter(high, low)))))


def fast_share(
    records: Iterable[Mapping[str, Any]], span: tuple[float, float], min_speed: float = HIGH_SPEED
) -> float | None:
    """Return the share of records in a range of headings at `min_speed` or faster; None without records."""
    inside = total = 0
    for record in records:
        count = int(record.get("count", 1))
        total += count
        if np.float32(record["speed"]) >= np.float32(min_speed):
            inside += count * in_range(record["heading_deg"], span)
    return inside / total if total else None
