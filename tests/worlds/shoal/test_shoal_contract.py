"""The world checker finds nothing to say about the shoal."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.worlds.check import check_world
from holdfast.worlds.shoal import ShoalOptions, ShoalWorld


@pytest.mark.parametrize(
    "changes", [{}, {"neighbors": True, "threads": 2}, {"predator_hunts": True}]
)
def test_the_checker_finds_no_violation(changes: dict[str, Any]) -> None:
    options = ShoalOptions(games=3, fish=6, max_steps=40, **changes)
    assert check_world(lambda: ShoalWorld(options, seed=1), steps=120) == []
