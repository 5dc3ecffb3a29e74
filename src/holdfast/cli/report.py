"""`holdfast report`: write a run's plots, clips and report.html."""

from __future__ import annotations

import argparse
from pathlib import Path

from holdfast.cli.answer import answer
from holdfast.cli.settings import no_settings


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="name of the run")
    parser.epilog = "Example: holdfast report first"


def run(args: argparse.Namespace, rest: list[str]) -> int:
    no_settings(rest)
    from holdfast.run import RunDirectory
    from holdfast.view.finish import finish

    directory = RunDirectory.open(Path(args.runs_dir), args.run)
    say = (lambda text: None) if args.json else print
    path = finish(directory.path, say, quiet=args.json)
    if args.json:
        answer({"run": args.run, "report": str(path)})
    return 0
