"""One config on many stages: a run for each, two side by side, then 100 sampled episodes each and a table.

    python bench/mario_stages.py                                        # eight stages, at most 20 minutes each
    python bench/mario_stages.py --stages 1-1,1-2 --minutes 5 --out docs/mario.md

It is `holdfast study configs/mario/stages.toml --seeds S --vary world.stages=...` and an evaluation of every best
checkpoint on seeds that no probe has used. Called again it goes on: finished runs are read, others resumed, evaluations
kept in `stage.json` of each run. With `--out` the table replaces the one between the markers `stages` there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from many_runs import insert

from holdfast.api import evaluate
from holdfast.run import RunDirectory
from holdfast.store.journal import read_lines
from holdfast.worlds.mario.options import parse_stages, stage_name

ROOT = Path(__file__).parent.parent
STAGES = "1-1,1-2,1-3,2-1,3-1,4-1,5-1,6-1"
EVAL_SEED = 20_000_003


def study(args: argparse.Namespace, stages: list[str], rest: list[str]) -> int:
    """Train what is missing; return the exit code."""
    command = [
        *(sys.executable, "-m", "holdfast", "study", args.config, "--name", args.name),
        *("--seeds", str(args.seed), "--jobs", str(args.jobs), "--runs-dir", args.runs_dir),
        *("--max-minutes", str(args.minutes), "--plain"),
    ]
    if len(stages) > 1:
        command += ["--vary", f"world.stages={','.join(stages)}"]
    else:
        command += ["--world.stages", stages[0]]
    return subprocess.run([*command, *rest], check=False).returncode


def measured(run: RunDirectory, episodes: int) -> dict[str, Any]:
    """Return what a run came to; its evaluation is made once and kept."""
    kept = run.path / "stage.json"
    if kept.is_file():
        found: dict[str, Any] = json.loads(kept.read_text())
        if found["episodes"] == episodes:
            return found
    config = run.config()
    report = evaluate(run.path, episodes=episodes, seed=EVAL_SEED, deterministic=False)
    lines = list(read_lines(run.path / "metrics.jsonl"))
    found = {
        "stage": config.world.options.stages,
        "seed": config.run.seed,
        "episodes": episodes,
        "update": report.update,
        "env_steps": int(lines[-1]["env_steps"]),
        "minutes": sum(line["time/update_s"] for line in lines) / 60,
        "clear_rate": report.metrics["clear_rate"],
        "clear_interval": report.detail["stages"][config.world.options.stages]["clear_interval"],
        "best_x_mean": report.metrics["best_x_mean"],
        "best_x_max": report.metrics["best_x_max"],
    }
    kept.write_text(json.dumps(found, indent=2) + "\n")
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """Return a Markdown table, in the order of the stages."""
    lines = [
        "| stage | cleared | Wilson interval | mean x | furthest x | steps | minutes |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        low, high = row["clear_interval"]
        lines.append(
            f"| {row['stage']} | {row['clear_rate']:.0%} | {low:.0%} to {high:.0%} | {row['best_x_mean']:.0f} | "
            f"{row['best_x_max']:.0f} | {row['env_steps'] / 1e6:.2f} M | {row['minutes']:.0f} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Train, evaluate, and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--config", default=str(ROOT / "configs" / "mario" / "stages.toml"))
    parser.add_argument("--stages", default=STAGES, help="such as 1-1,1-2 or 1-1..2-4")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=20.0, help="of training a stage")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, one thread each")
    parser.add_argument("--episodes", type=int, default=100, help="sampled, of each evaluation")
    parser.add_argument("--name", default="mario-stages", help="of the study")
    parser.add_argument("--runs-dir", default="runs")
    parser.add_argument("--out", help="Markdown file whose table is replaced")
    args, rest = parser.parse_known_args()
    stages = [stage_name(stage) for stage in parse_stages(args.stages)]
    code = study(args, stages, rest)
    if code not in (0, 1, 4):
        return code
    folder = Path(args.runs_dir) / args.name
    rows = []
    for path in sorted(folder.glob("*/run.toml")):
        run = RunDirectory(path.parent)
        if run.state() in ("finished", "out_of_time", "stopped"):
            rows.append(measured(run, args.episodes))
    rows.sort(key=lambda row: (stages.index(row["stage"]), row["seed"]))
    text = table(rows)
    cleared = sum(row["clear_rate"] >= 0.5 for row in rows)
    print(
        text,
        f"{cleared} of {len(rows)} stages are cleared in at least half of the episodes.",
        sep="\n\n",
    )
    if args.out:
        insert(Path(args.out), text, "stages")
    return code


if __name__ == "__main__":
    sys.exit(main())
