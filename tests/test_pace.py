"""The speed of a run is told once, when it means something."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.jit import compiling
from holdfast.pace import Pace


class Made:
    """A loop of which only the counters matter."""

    def __init__(self, total: int, every: int = 0) -> None:
        self.total = total
        self.progress = SimpleNamespace(update=0, env_steps=0)
        self.config = SimpleNamespace(probe=SimpleNamespace(every=every))
        self.team = SimpleNamespace(learners={"": SimpleNamespace(device="cpu", threads=2)})
        self.said: list[str] = []
        self.shown: list[dict[str, Any]] = []
        self.pace = Pace(self, self.shown.append, self.said.append)  # type: ignore[arg-type]

    def update(self, train_s: float, probe_s: float = 0.0) -> None:
        self.progress.update += 1
        self.progress.env_steps += 1000
        self.pace.show({"time/update_s": train_s + probe_s, "time/probe_s": probe_s})

    def speeds(self) -> list[str]:
        return [text for text in self.said if "env steps/s" in text]


def test_a_run_that_ends_within_two_seconds_says_no_speed() -> None:
    made = Made(total=4)
    for _ in range(4):
        made.update(0.5)
    assert made.speeds() == []
    assert len(made.shown) == 4


def test_the_first_update_and_probes_do_not_count_as_training() -> None:
    made = Made(total=100, every=2)
    made.update(60.0)
    made.update(0.5, probe_s=7.0)
    made.update(0.5)
    made.update(0.5, probe_s=8.0)
    assert made.speeds() == []
    made.update(0.5)
    made.update(0.5)
    (said,) = made.speeds()
    assert "2,000 env steps/s" in said and "device cpu" in said and "2 threads" in said
    # 95 updates of half a second and 47 probes of eight
    assert "about 7 min to go" in said


def test_a_short_rest_is_not_told() -> None:
    made = Made(total=10)
    for _ in range(10):
        made.update(1.0)
    (said,) = made.speeds()
    assert said.endswith("1,000 env steps/s")


def test_what_was_compiled_before_the_first_update_is_told_too_and_told_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiling.untold()
    monkeypatch.setattr(compiling, "kernels", compiling.kernels + 40)
    monkeypatch.setattr(compiling, "seconds", compiling.seconds + 60.0)
    made = Made(total=4)
    monkeypatch.setattr(compiling, "kernels", compiling.kernels + 2)
    monkeypatch.setattr(compiling, "seconds", compiling.seconds + 5.0)
    made.update(1.0)
    made.update(1.0)
    assert made.said == ["compiled 42 kernels in 65 s, once"]
    monkeypatch.undo()
    compiling.untold()
