"""`holdfast runs`: list the runs of a directory."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from holdfast.cli.answer import answer
from holdfast.cli.settings import no_settings


def add(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Example: holdfast runs --runs-dir runs"


def run(args: argparse.Namespace, rest: list[str]) -> int:
    no_settings(rest)
    from holdfast.config import read_toml
    from holdfast.errors import HoldfastError
    from holdfast.run import RunDirectory

    rows: list[dict[str, Any]] = []
    for path in sorted(Path(args.runs_dir).glob("*/run.toml")):
        directory = RunDirectory(path.parent)
        try:
            beat = directory.heartbeat()
            world = str(read_toml(path).get("world", {}).get("name", "?"))
            state = directory.state()
        except HoldfastError as error:
            rows.append({"run": path.parent.name, "state": "broken", "problem": str(error)})
            continue
        rows.append(
            {
                "run": directory.name,
                "world": world,
                "state": state,
                "update": beat.get("update", 0),
                "updates": beat.get("updates", 0),
                "env_steps": beat.get("env_steps", 0),
                "seen_s_ago": round(time.time() - beat["at"], 1) if "at" in beat else None,
            }
        )
    if args.json:
        answer({"runs_dir": args.runs_dir, "runs": rows})
        return 0
    if not rows:
        print(f"no runs in {args.runs_dir}; start one: holdfast train shoal --run first")
    for row in rows:
        if "problem" in row:
            print(f"{row['run']:<24} broken  {row['problem']}")
            continue
        done = f"{row['update']}/{row['updates']}"
        print(
            f"{row['run']:<24} {row['world']:<16} {row['state']:<12} {done:>11} {row['env_steps']:>12,}"
        )
    return 0
