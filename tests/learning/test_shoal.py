from __future__ import annotations

from pathlib import Path

import holdfast


def test_a_few_updates_already_beat_a_random_policy(tmp_path: Path) -> None:
    holdfast.train(
        "shoal", runs_dir=tmp_path, run="r", seed=2, updates=12, games=32, probe__every=0,
        say=lambda text: None,
    )  # fmt: skip
    report = holdfast.evaluate(
        "r", runs_dir=tmp_path, protocol="v36", episodes=6, seed=1, latest=True
    )
    # The random policy survives 0.742 +- 0.005 on this protocol.
    assert report.metrics["avg_final"] >= 0.80
