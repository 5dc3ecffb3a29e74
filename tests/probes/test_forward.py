"""The forward probe on the real console, and scripts that are checked before a run begins."""

from __future__ import annotations

import json

import pytest

from holdfast.errors import ConfigError
from holdfast.probes.forward import check_scripts, probe_forward
from holdfast.worlds.mario import MarioOptions


def test_running_right_comes_furthest_from_the_level_start() -> None:
    report = probe_forward(MarioOptions(actions="complex", games=3), 12)
    dx = {row.buttons: row.dx for row in report.rows}
    assert report.best == "RIGHT+B" and len(dx) == 12
    assert dx["RIGHT+B"] > dx["RIGHT"] > 20
    assert dx["NOOP"] == dx["DOWN"] == 0, "nothing moves by itself at the level start"
    assert dx["LEFT"] < 0
    assert [row.dx for row in report.rows] == sorted(dx.values(), reverse=True)
    assert json.loads(json.dumps(report.record()))["best"] == "RIGHT+B"
    assert "RIGHT+B" in str(report).splitlines()[1] and "forward is RIGHT+B" in str(report)


def test_an_action_that_dies_comes_after_those_that_live() -> None:
    report = probe_forward(MarioOptions(actions="right"), 45)
    dead = [row for row in report.rows if row.ended]
    assert {row.buttons for row in dead} >= {"RIGHT", "RIGHT+B"}
    assert list(report.rows[-len(dead) :]) == dead
    assert all(row.steps < 45 and row.dx > 200 for row in dead)


def test_scripts_are_checked_with_the_worlds_own_grammar() -> None:
    check_scripts("mario", {"script": "START:8,RIGHT+B:180", "forward": "right+b"})
    with pytest.raises(ConfigError, match=r"guards\.bootstrap\.inject = 'RIHT:3'.*RIGHT"):
        check_scripts("mario", {"inject": "RIHT:3"})
    with pytest.raises(ConfigError, match="'shoal' has not"):
        check_scripts("shoal", {})
