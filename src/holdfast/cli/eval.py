"""`holdfast eval`: evaluate a run's policy on fixed seeds."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from holdfast.cli.answer import answer
from holdfast.cli.settings import at_least, no_settings


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="name of the run")
    parser.add_argument(
        "--protocol",
        help="a named protocol of the world (shoal: v36, mario: plain); the run's own without",
    )
    parser.add_argument(
        "--episodes", type=int, default=None, help="episodes (default: as the run's probe)"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=None,
        help="seed from which the episodes' seeds follow (default: probe.seed of the run, so with fresh seeds those of "
        "its first probe, whatever the checkpoint)",
    )
    parser.add_argument("--update", type=int, default=None, help="checkpoint (default: the best)")
    parser.add_argument(
        "--latest", action="store_true", help="the newest checkpoint instead of the best"
    )
    parser.add_argument(
        "--sampled",
        action=argparse.BooleanOptionalAction,
        help="sample actions, or take the best ones (default: as the run's probes do)",
    )
    parser.epilog = "Example: holdfast eval first --protocol v36 --episodes 60 --seed 12345 --json"


def run(args: argparse.Namespace, rest: list[str]) -> int:
    no_settings(rest)
    from holdfast.api import directory_of, evaluate
    from holdfast.view.numbers import brackets
    from holdfast.view.progress import Progress

    at_least(args, episodes=1, seed=0, update=0)
    config = directory_of(args.run, args.runs_dir).config()
    sampled = not config.probe.deterministic if args.sampled is None else args.sampled
    with Progress("evaluating", off=args.json) as progress:
        report = evaluate(
            args.run,
            runs_dir=Path(args.runs_dir),
            protocol=args.protocol,
            episodes=args.episodes,
            seed=args.seed,
            update=args.update,
            latest=args.latest,
            deterministic=not sampled,
            progress=progress.show,
        )
    record = {
        "run": args.run,
        "update": report.update,
        "env_steps": report.env_steps,
        "protocol": report.probe if report.probe != "probe" else None,
        "deterministic": not sampled,
        **report.metrics,
        "intervals": {k: list(v) for k, v in report.intervals.items()},
    }
    if args.json:
        answer(record)
        return 0
    print(f"{args.run}, update {report.update}, {len(report.seeds)} episodes", file=sys.stderr)
    for about in ("cut", "unplayed"):
        if about in report.detail:
            print(report.detail[about], file=sys.stderr)
    for name, value in report.metrics.items():
        interval = report.intervals.get(name)
        spread = f"   {brackets(*interval, form='{:.4f}'.format)}" if interval else ""
        print(f"{name:<26} {value:10.4f}{spread}")
    return 0
