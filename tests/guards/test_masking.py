from __future__ import annotations

import pytest

from holdfast.guards.masking import MaskingConfig, MaskingGuard


def test_the_chance_falls_in_a_straight_line_and_ends_at_the_residual() -> None:
    guard = MaskingGuard(MaskingConfig(anneal_steps=1000, residual=0.2))
    (first,) = guard.initial({})
    assert (first.kind, first.name, first.value) == ("set_world", "p_full", 1.0)
    values = [d.value for steps in (250, 500, 1000, 1500) for d in guard.step({"env_steps": steps})]
    assert values == pytest.approx([0.8, 0.6, 0.2])  # nothing changes after the end


def test_small_changes_are_put_together_but_the_last_one_is_never_lost() -> None:
    guard = MaskingGuard(MaskingConfig(anneal_steps=1000))
    guard.initial({})
    assert guard.step({"env_steps": 5}) == []
    (far,) = guard.step({"env_steps": 995})
    assert far.value == pytest.approx(0.005)
    (last,) = guard.step({"env_steps": 1000})
    assert (last.value, last.cause.threshold) == (0.0, 1000)


def test_a_restored_guard_decides_as_the_first_would_have() -> None:
    guard, other = (MaskingGuard(MaskingConfig(anneal_steps=100)) for _ in range(2))
    guard.initial({})
    guard.step({"env_steps": 30})
    other.load_state_dict(guard.state_dict())
    assert other.step({"env_steps": 30.5}) == guard.step({"env_steps": 30.5}) == []
    assert other.step({"env_steps": 60}) == guard.step({"env_steps": 60})
    assert other.status() == {"p_full": pytest.approx(0.4)}
