"""The worst starts of a probe, for people and for `holdfast starts`: `worst_starts.json` of a run.

    {"format": "holdfast-worst/1", "run": "a", "update": 40, "probe": "probe", "seeds": "evaluation",
     "episodes": [{"seed": 7, "final": 0.81, "deaths": 18, "avoidable": 12, "first_death_step": 1,
                   "heading_deg": 61.2, "speed": 1.9, "sector": "NE", "replay": "holdfast watch a ..."}],
     "step_one": {"total": 22, "heading_bin_deg": 30.0, "speed_bin": 0.4, "clusters": [...]}}

It describes the newest probe and is replaced whole after each. These are starts of an *evaluation*: training on
them would teach the test, so nothing reads this file by itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from holdfast.probes.sectors import BIN_DEG, BIN_SPEED, sector_of
from holdfast.records import EvalReport
from holdfast.store.files import write_json
from holdfast.store.journal import plain

FORMAT = "holdfast-worst/1"
FILE = "worst_starts.json"
MOST = 12


def worst_starts(report: EvalReport, run: str, most: int = MOST) -> dict[str, Any] | None:
    """Return the worst episodes of a shoal's probe, most avoidable deaths first; None for other worlds."""
    detail = report.detail
    if "death_steps" not in detail or "start_heading_deg" not in detail:
        return None
    deaths = np.asarray(detail["death_steps"])
    lost = (deaths >= 0).sum(1)
    avoidable = np.asarray(detail["avoidable"]) if "avoidable" in detail else None
    rank = [-lost] if avoidable is None else [-lost, -avoidable]
    episodes = []
    for k in np.lexsort(rank).tolist()[:most]:
        if not lost[k]:
            break
        heading, speed = float(detail["start_heading_deg"][k]), float(detail["start_speed"][k])
        seed = int(report.seeds[k])
        episodes.append(
            {
                "seed": seed,
                "final": float((deaths[k] < 0).mean()),
                "deaths": int(lost[k]),
                "avoidable": None if avoidable is None else int(avoidable[k]),
                "first_death_step": int(deaths[k][deaths[k] >= 0].min()),
                "heading_deg": heading,
                "speed": speed,
                "sector": sector_of(heading),
                "replay": replay_command(run, report.update, seed),
            }
        )
    return {
        "format": FORMAT,
        "run": run,
        "update": report.update,
        "probe": report.probe,
        "seeds": "evaluation",
        "episodes": episodes,
        "step_one": {
            "total": int((deaths == 1).sum()),
            "heading_bin_deg": BIN_DEG,
            "speed_bin": BIN_SPEED,
            "clusters": detail.get("step_one_clusters") or [],
        },
    }


def replay_command(run: str, update: int, seed: int) -> str:
    """Return the command that shows this episode of this probe again."""
    return f"holdfast watch {run} --checkpoint {update} --seed {seed}"


def write_worst(report: EvalReport, directory: Path) -> Path | None:
    """Replace the run's `worst_starts.json`; None where the world has none."""
    found = worst_starts(report, directory.name)
    if found is None:
        return None
    path = directory / FILE
    write_json(path, plain(found))
    return path
