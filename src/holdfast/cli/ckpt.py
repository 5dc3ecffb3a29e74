"""`holdfast ckpt`: show and verify the checkpoints of a run."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from holdfast.cli.settings import no_settings


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("show", "verify", "list"), help="what to do")
    parser.add_argument("run", help="name of the run")
    parser.add_argument("--update", type=int, default=None, help="checkpoint (default: the newest)")
    parser.epilog = "Example: holdfast ckpt show first --json"


def run(args: argparse.Namespace, rest: list[str]) -> int:
    no_settings(rest)
    from holdfast.errors import StorageError
    from holdfast.run import RunDirectory

    directory = RunDirectory.open(Path(args.runs_dir), args.run)
    checkpoints = directory.checkpoints()
    if args.action == "show":
        checkpoint = checkpoints.find(args.update)
        manifest = checkpoint.manifest()
        record: dict[str, Any] = {"run": args.run, "checkpoint": checkpoint.name, **manifest}
        if args.json:
            print(json.dumps(record))
            return 0
        for key in (
            "checkpoint",
            "update",
            "env_steps",
            "world",
            "parameters_sha256",
            "written_at",
        ):
            print(f"{key:<18} {record.get(key)}")
        print(f"{'parts':<18} {', '.join(record['parts'])}")
        for name, entry in record["files"].items():
            print(f"{name:<18} {entry['bytes']:,} bytes, sha256 {entry['sha256'][:16]}...")
        return 0
    rows: list[dict[str, Any]] = [
        {"checkpoint": c.name, "update": c.update, "problems": c.problems()}
        for c in checkpoints.all()
    ]
    if args.json:
        print(json.dumps({"run": args.run, "checkpoints": rows}))
    else:
        for row in rows:
            print(f"{row['checkpoint']}  {'; '.join(row['problems']) or 'intact'}")
    broken = [row for row in rows if row["problems"]]
    if args.action == "verify" and (broken or not rows):
        raise StorageError(f"{len(broken)} of {len(rows)} checkpoints of '{args.run}' are broken.")
    return 0
