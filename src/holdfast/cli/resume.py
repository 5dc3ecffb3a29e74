"""`holdfast resume`: go on with a run from its newest intact checkpoint."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from holdfast.cli.settings import overrides
from holdfast.cli.train import trained


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="name of the run")
    parser.add_argument("--plain", action="store_true", help="plain lines instead of the panel")
    parser.add_argument(
        "--no-report", action="store_true", help="skip plots, clips and report.html"
    )
    parser.epilog = "Example: holdfast resume first --updates 200"


def run(args: argparse.Namespace, rest: list[str]) -> int:
    from holdfast.run import resume

    changes = overrides(rest)

    def call(show: Any, say: Any) -> Any:
        return resume(args.run, Path(args.runs_dir), changes, show, say)

    return trained(args, args.run, call)
