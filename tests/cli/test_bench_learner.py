"""`holdfast bench learner` measures what was asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.cli import main
from holdfast.learn import fused_bench

SMALL = ("--repeats", "1", "--games", "2", "--learner.steps", "8", "--minibatch", "16")


@pytest.mark.parametrize(
    ("words", "spec"),
    [
        (["CartPole-v1", "--learners", "torch", "--memory", "gru"], {"memory": "gru"}),
        (["--world", "CartPole-v1", "--learners", "vtrace"], {"obs_size": 4}),
        (
            [
                "Pendulum-v1",
                "--learners",
                "sac",
                "--normalise-obs",
                "false",
                "--learner.sac.warmup",
                "1",
            ],
            {"action": "squashed"},
        ),
    ],
)
def test_the_network_of_the_settings_is_measured_in_the_world_that_was_named(
    words: list[str], spec: dict[str, Any], monkeypatch: Any, capsys: Any
) -> None:
    seen: dict[str, Any] = {}
    take_turns = fused_bench.take_turns

    def watched(benches: Any, repeats: int) -> Any:
        seen.update(benches)
        return take_turns(benches, repeats)

    monkeypatch.setattr(fused_bench, "take_turns", watched)
    assert main(["bench", "learner", *words, *SMALL, "--json"]) == 0
    (kind,) = seen
    assert {name: getattr(seen[kind].learner.spec, name) for name in spec} == spec
    assert json.loads(capsys.readouterr().out)[kind]["transitions_per_s"] > 0


def test_two_worlds_are_refused(capsys: Any) -> None:
    assert main(["bench", "learner", "pursuit", "--world", "shoal"]) == 2
    assert "two worlds" in capsys.readouterr().err
