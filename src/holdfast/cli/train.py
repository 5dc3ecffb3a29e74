"""`holdfast train`: make a run and train it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from holdfast.cli.settings import overrides


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target", nargs="?", help="shoal, a Gymnasium id, 'module:function', or a TOML file"
    )
    parser.add_argument("--plain", action="store_true", help="plain lines instead of the panel")
    parser.add_argument(
        "--no-report", action="store_true", help="skip plots, clips and report.html"
    )
    parser.epilog = (
        "Settings: --key value, see 'holdfast train TARGET --settings'.\n"
        "Examples:\n"
        "  holdfast train shoal --run first --updates 60 --seed 1\n"
        "  holdfast train CartPole-v1 --env-steps 100000\n"
        "  holdfast train my_module:make_env --games 16\n"
        "  holdfast train configs/shoal/best.toml --run best"
    )
    parser.add_argument("--settings", action="store_true", help="list every setting of the target")


def run(args: argparse.Namespace, rest: list[str]) -> int:
    from holdfast.config import resolve
    from holdfast.errors import ConfigError

    if not args.target:
        raise ConfigError(
            "What shall be trained? Type for example: holdfast train shoal --run first"
        )
    if args.settings:
        return list_settings(args.target)
    config = resolve(args.target, overrides(rest))
    from holdfast.run import start

    def call(show: Any, say: Any) -> Any:
        return start(config, Path(args.runs_dir), show, say)

    return trained(args, config.run.name or args.target, call)


def trained(args: argparse.Namespace, name: str, call: Any) -> int:
    """Train with a display, write the report, say where everything is."""
    from holdfast.view.console import Console

    with Console(f"holdfast · {name}", plain=args.plain or None) as console:
        outcome = call(console.show, console.say)
    if outcome.state != "nothing_to_do" and not args.no_report:
        from holdfast.view.finish import finish

        finish(outcome.directory, lambda text: print(text, file=sys.stderr))
    if args.json:
        print(
            json.dumps(
                {
                    "run": outcome.directory.name,
                    "directory": str(outcome.directory),
                    "state": outcome.state,
                    "update": outcome.update,
                    "updates": outcome.updates,
                }
            )
        )
    elif outcome.state in ("interrupted", "out_of_time"):
        print(
            f"{outcome.state.replace('_', ' ')} at update {outcome.update} of {outcome.updates}; "
            f"go on with: holdfast resume {outcome.directory.name}",
            file=sys.stderr,
        )
    return int(outcome.exit_code)


def list_settings(target: str) -> int:
    """Print every setting that the target takes, with its default and meaning."""
    from holdfast.config import ProbeConfig, RunConfig, leaves, resolve
    from holdfast.guards import GuardsConfig
    from holdfast.learn.options import LearnerConfig
    from holdfast.tables import help_rows, text

    config = resolve(target)
    values = leaves(config)
    for section, kind in (
        ("run", RunConfig),
        ("world", type(config.world.options)),
        ("learner", LearnerConfig),
        ("probe", ProbeConfig),
        ("guards", GuardsConfig),
    ):
        print(f"[{section}]")
        for flag, takes, _, doc in help_rows(kind, section):
            key = flag[2:].replace("-", "_")
            print(f"  {flag} {text(values.get(key))!s}\n      {doc} ({takes})")
    return 0
