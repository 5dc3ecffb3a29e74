"""A tiny recorded run, written by hand: what the views read and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

UPDATES = 12
FISH = 5


def line(update: int, updates: int = UPDATES, **more: Any) -> dict[str, Any]:
    """What the loop shows after an update."""
    return {
        "update": update,
        "updates": updates,
        "env_steps": 1000 * update,
        "episode/count": 4 * update,
        "episode/return_mean": 10.0 * update,
        "episode/length_steps": 400.0 + update,
        "shoal/survival": 0.5 + 0.03 * update,
        "shoal/final_alive": 2.5 + 0.15 * update,
        "shoal/first_death_step": 10.0 + update if update > 1 else -1.0,
        "shoal/first_death_p10": 1.0,
        "world/density_penalty": 0.0 if update < 6 else 0.02,
        "guard/tails/remaining_ratio": 1.0 - 0.05 * update,
        "guard/tails/stage_1_remaining_ratio": max(1.0 - 0.1 * update, 0.0),
        "guard/tails/stage_2_remaining_ratio": 1.0,
        "guard/tails/capacity": 40,
        "guard/tails/episodes": 4,
        "guard/tails/overrides": 3,
        "guard/tails/cured": update // 2,
        "guard/tails/relapsed": 1,
        "guard/tails/warn_active": int(update in (8, 9, 12)),
        "train/policy_loss": -0.01 / update,
        "train/value_loss": 5.0 / update,
        "train/entropy_mean": 1.6 - 0.02 * update,
        "train/approx_kl": 0.002,
        "train/clip_fraction": 0.01,
        "train/explained_variance": 0.05 * update,
        "train/lr": 2e-3 * (1 - update / updates),
        "train/lr_scale": 1.0,
        "train/entropy": 0.001 if update < 4 else 0.002,
        "time/update_s": 1.0,
        "time/env_steps_per_s": 1000.0,
        "time/world_s": 0.1,
        "time/policy_s": 0.2,
        "time/learn_s": 0.5,
        "time/probe_s": 0.1,
        "lights": {"nonfinite": "green", "plateau": "green"},
        **more,
    }


def probe(update: int, survival: float) -> dict[str, Any]:
    """One line of evals.jsonl."""
    deaths = [[-1, -1, -1, 40, 1], [-1, -1, -1, -1, 300]]
    return {
        "probe": "probe",
        "update": update,
        "env_steps": 1000 * update,
        "seeds": [11, 22],
        "metrics": {
            "avg_final": survival,
            "min_final": survival - 0.1,
            "ed100": 0.2,
            "p10": 40.0,
            "step_one_ratio": 0.1,
            "avoidable_death_fraction": 0.2,
            "ceiling_avg_final": 0.9,
            "return_mean": 100.0 * survival,
            "length_mean": 500.0,
        },
        "intervals": {"avg_final": [survival - 0.05, survival + 0.05], "ed100": [0.1, 0.3]},
        "detail": {
            "returns": [50.0, 70.0],
            "final": [0.6, 0.8],
            "death_steps": deaths,
            "survivable": [[True, True, True, True, False], [True] * FISH],
            "avoidable": [1, 1],
            "start_heading_deg": [80.0, 350.0],
            "start_speed": [1.9, 0.3],
            "step_one": [{"heading_deg": 80.0, "speed": 1.9, "count": 1, "seed": 11}],
            "values": {},
        },
    }


def decision(update: int, message: str) -> dict[str, Any]:
    """One decision of the journal."""
    return {
        "event": "decision",
        "update": update,
        "guard": "nonfinite",
        "kind": "set_learner",
        "name": "lr_scale",
        "value": 0.5,
        "message": message,
        "cause": {"signal": "health/nonfinite", "value": 3, "threshold": 0, "window": 1},
        "applied": 0.5,
    }


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))


def write_run(path: Path, message: str = "the learning rate is cut") -> Path:
    """Write a finished shoal run and return its directory."""
    path.mkdir(parents=True)
    (path / "run.toml").write_text(
        '[world]\nname = "shoal"\nfish = 5\nmax_steps = 500\n[run]\nname = "tiny"\nseed = 7\nupdates = 12\n'
        "[guards.tails]\nwarn_ratio = 0.65\n"
    )
    write_lines(path / "metrics.jsonl", [line(u) for u in range(1, UPDATES + 1)])
    write_lines(path / "evals.jsonl", [probe(4, 0.7), probe(8, 0.8), probe(12, 0.75)])
    write_lines(
        path / "journal.jsonl",
        [
            {"event": "run", "update": 0, "world": "shoal"},
            {"event": "phase", "update": 0, "index": 1, "first": 1, "last": 6},
            decision(5, message),
            {"event": "phase", "update": 6, "index": 2, "first": 7, "last": 12},
            {**decision(8, "gate locked"), "guard": "gate", "kind": "hold_phase", "name": "locked"},
        ],
    )
    write_lines(
        path / "episodes.jsonl",
        [
            {
                "update": 1 + k // 10,
                "steps": 150,
                "start": {
                    "seed": k,
                    "snapshot": False,
                    "type": "ne" if k % 3 else "fresh",
                    "id": "",
                },
                "facts/start_heading_deg": 7.3 * k % 360,
                "facts/start_speed": 0.02 * k,
                "facts/survival": (k % 5) / 5,
                "facts/final_alive": k % 5,
                "facts/step_one_deaths": k % 2,
            }
            for k in range(120)
        ],
    )
    write_lines(
        path / "sessions.jsonl",
        [
            {
                "event": "begin",
                "pid": 1,
                "update": 0,
                "resumed": False,
                "at": "2026-01-01T00:00:00",
            },
            {
                "event": "end",
                "pid": 1,
                "update": 6,
                "reason": "interrupted",
                "at": "2026-01-01T00:01:00",
            },
            {"event": "begin", "pid": 2, "update": 6, "resumed": True, "at": "2026-01-01T00:02:00"},
            {
                "event": "end",
                "pid": 2,
                "update": 12,
                "reason": "finished",
                "at": "2026-01-01T00:03:00",
            },
        ],
    )
    beat = {"state": "finished", "update": 12, "updates": 12, "env_steps": 12000}
    (path / "heartbeat.json").write_text(json.dumps(beat))
    return path
