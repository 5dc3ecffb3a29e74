from __future__ import annotations

from typing import Any

from holdfast.selfplay.pairs import Pairs


class Side:
    """A learner as far as pairs look into it."""

    def state_dict(self) -> dict[str, Any]:
        return {"parameters": {}, "norm": None, "reward_norm": None}


def test_milestones_are_never_dropped_and_leave_room_for_the_newest_pairs() -> None:
    pairs, learners = Pairs(3), {"pursuer": Side(), "evader": Side()}
    for update in range(1, 11):
        pairs.keep(f"u{update}", update, learners, False, 0.5)  # type: ignore[arg-type]
        if update % 2 == 0:
            pairs.keep(f"S{update}", update, learners, True, 0.5)  # type: ignore[arg-type]
    held = pairs.list()
    assert [p["label"] for p in held if p["milestone"]] == ["S2", "S4", "S6", "S8", "S10"]
    assert [p["label"] for p in held if not p["milestone"]] == ["u8", "u9", "u10"]
