"""What is averaged over episodes is averaged rightly."""

from __future__ import annotations

import numpy as np
import pytest

import holdfast
from holdfast.progress import Progress, mean_fact, start_signals
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


def test_cut_episodes_are_counted_but_not_averaged() -> None:
    world = holdfast.make("pursuit", games=2, max_steps=40)
    world.reset(seed=0)
    world.request_reset([0])
    *_, info = world.step(world.action_space.sample())
    (cut,) = info["episodes"]
    assert cut.cut and cut.facts["captured"] == 0.0
    caught = Episode(1, Start(seed=1), 5, np.zeros(2), "captured", {"captured": 1.0})
    progress = Progress()
    progress.add([cut, caught], "pursuit", world.game_roles)
    assert (progress.episodes, progress.uncut) == (2, 1)
    assert progress.averages()["pursuit/captured"] == 1.0
    assert progress.averages()["episode/length_steps"] == 5.0
    signals = start_signals(world, [cut, caught])
    assert signals["starts/fresh/episodes"] == 2 and signals["starts/fresh/captured"] == 1.0
    assert [entry.get("cut", False) for entry in signals["starts/ended"]] == [True, False]
