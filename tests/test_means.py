"""What is averaged over episodes is averaged rightly."""

from __future__ import annotations

import numpy as np
import pytest

import holdfast
from holdfast.progress import mean_fact, start_signals
from holdfast.records import Episode, Start


def test_directions_and_first_deaths_have_means_of_their_own() -> None:
    assert mean_fact("start_heading_deg", [350.0, 20.0]) == pytest.approx(5.0)
    assert mean_fact("shoal/first_death_step", [-1.0, 4.0, 6.0]) == 5.0
    assert mean_fact("first_death_step", [-1.0, -1.0]) == -1.0
    assert mean_fact("survival", [0.5, 1.0]) == 0.75


def test_means_by_type_of_start_need_not_have_every_fact_in_every_episode() -> None:
    world = holdfast.make("shoal", games=2, fish=2, seed=0)
    facts = [{"captured": 1.0, "capture_time_s": 4.0}, {"captured": 0.0}]
    ended = [Episode(g, Start(seed=g), 5, np.zeros(2), "x", f) for g, f in enumerate(facts)]
    signals = start_signals(world, ended)
    assert signals["starts/fresh/captured"] == 0.5
    assert signals["starts/fresh/capture_time_s"] == 4.0
