"""What a team of learners goes back to when an update is undone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from holdfast.apply import apply
from holdfast.config import resolve
from holdfast.records import Cause, Decision
from holdfast.run import RunDirectory, build
from test_phases import SMALL

NOVEL = {**SMALL, "novelty.weight": 0.1, "novelty.hidden": "8", "run": "r"}


@pytest.mark.parametrize("roles", ["", "evader"])
def test_an_update_that_is_undone_is_undone_for_the_novelty_too(roles: str, tmp_path: Path) -> None:
    sides = {"selfplay.enabled": True, "selfplay.novelty_roles": roles}
    config = resolve("pursuit", list({**NOVEL, **sides}.items()))
    loop = build(config, RunDirectory.create(tmp_path, config), lambda line: None, print)
    loop.recorder.load_state_dict(dict.fromkeys(loop.recorder.lines, 0))
    loop.begin()
    loop.update()
    before = {role: one.state_dict() for role, one in loop.team.novelties.items()}
    assert list(before) == ([roles] if roles else ["pursuer", "evader"])
    loop.update()
    apply(loop, Decision("rollback", Cause("health/nonfinite", 1), name="last_good"))
    for role, state in before.items():
        now = loop.team.novelties[role].state_dict()
        assert now["rollouts"] == 1 and now["steps"] == state["steps"]
        for name in ("theta", "m", "v", "moments", "running"):
            np.testing.assert_array_equal(now[name], state[name])
        np.testing.assert_array_equal(now["norm"]["mean"], state["norm"]["mean"])
    loop.world.close()
