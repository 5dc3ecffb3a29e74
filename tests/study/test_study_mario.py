"""A search on a config of mario: real trials on the console, gone on with by calling it again."""

from __future__ import annotations

from pathlib import Path

from study_calls import call, record

CONFIG = str(Path(__file__).parents[2] / "configs" / "mario" / "1-1-tiles.toml")
SMALL = (
    "--games 3 --steps 32 --hidden 8,8 --minibatch 48 --epochs 1 --updates 2 --probe.every 1 --probe.episodes 2 "
    "--world.max-steps 60 --no-tensorboard --jobs 1 --no-prune --name m --space learner.lr=log:1e-4:1e-2"
).split()


def test_a_search_for_settings_is_gone_on_with(tmp_path: Path) -> None:
    call("study", CONFIG, "--optuna", "1", *SMALL, cwd=tmp_path)
    first = record(tmp_path / "runs" / "m")
    assert first["main"] == "reach" and [r["run"] for r in first["runs"]] == ["t0000"]
    (row,) = first["runs"]
    assert (
        row["value"] == max(row["best"]["metrics"]["reach"], row["final"]["metrics"]["reach"]) > 0
    )
    _, said = call("study", CONFIG, "--optuna", "2", *SMALL, cwd=tmp_path)
    assert "1 trials are there already; 1 are new" in said
    after = record(tmp_path / "runs" / "m")
    assert [r["state"] for r in after["runs"]] == ["finished", "finished"]
    assert after["runs"][0]["settings"] == first["runs"][0]["settings"]
