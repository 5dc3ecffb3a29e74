"""`holdfast train`: make a run and train it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from holdfast.cli.answer import answer
from holdfast.cli.settings import overrides
from holdfast.commands import to_type


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        nargs="?",
        help="shoal, pursuit, mario, a Gymnasium id, 'module:function', or a TOML file",
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
    parser.add_argument(
        "--dry-run", action="store_true", help="print the resolved plan and begin nothing"
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    from holdfast.config import resolve
    from holdfast.errors import ConfigError

    if not args.target:
        raise ConfigError(
            "What shall be trained? Type for example: holdfast train shoal --run first"
        )
    config = resolve(args.target, overrides(rest))
    if args.settings:
        return list_settings(config, args.json)
    if args.dry_run:
        return dry_run(args, config)
    from holdfast.run import start

    def call(show: Any, say: Any) -> Any:
        return start(config, Path(args.runs_dir), show, say)

    return trained(args, config.run.name or args.target, call)


def trained(args: argparse.Namespace, name: str, call: Any) -> int:
    """Train with a display, write the report, say where everything is."""
    from holdfast.errors import GuardStop
    from holdfast.view.console import Console

    try:
        with Console(f"holdfast · {name}", plain=args.plain or None) as console:
            outcome = call(console.show, console.say)
    except GuardStop as stop:  # what stopped it is what one wants to look at
        if stop.directory is not None and not args.no_report:
            write_report(stop.directory)
        raise
    if outcome.state != "nothing_to_do" and not args.no_report:
        write_report(outcome.directory)
    if args.json:
        answer(
            {
                "run": outcome.directory.name,
                "directory": str(outcome.directory),
                "state": outcome.state,
                "update": outcome.update,
                "updates": outcome.updates,
            }
        )
    elif outcome.state in ("interrupted", "out_of_time"):
        print(
            f"{outcome.state.replace('_', ' ')} at update {outcome.update} of {outcome.updates}; "
            f"go on with: {to_type('resume', outcome.directory)}",
            file=sys.stderr,
        )
    return int(outcome.exit_code)


def write_report(directory: Path) -> None:
    """Write the pictures and the report of a run, and say where they are."""
    from holdfast.errors import HoldfastError
    from holdfast.view.finish import finish

    try:
        finish(directory, lambda text: print(text, file=sys.stderr))
    except (HoldfastError, OSError) as error:  # a full disk must not hide how the run ended
        print(f"the report could not be written: {error}", file=sys.stderr)


def dry_run(args: argparse.Namespace, config: Any) -> int:
    """Print what the run would do, phase by phase."""
    from holdfast.preflight import plan_rows
    from holdfast.refuse import refuse_unfit
    from holdfast.tables import text

    refuse_unfit(config, Path(args.runs_dir))
    rows = plan_rows(config)
    sizes = {
        "games": config.world.options.games,
        "steps": config.learner.steps,
        "minibatch": config.learner.minibatch,
        "epochs": config.learner.epochs,
        "hidden": text(config.learner.hidden),
        "checkpoint_every": config.run.checkpoint_every,
        "probe_every": config.probe.every,
        "seed": config.run.seed,
    }
    guards = config.guards.on()
    if args.json:
        about = {"world": config.world.name, **sizes, "guards": guards, "phases": rows}
        answer(about)
        return 0
    print(f"world {config.world.name}: " + ", ".join(f"{k} {v}" for k, v in sizes.items()))
    print("guards: " + (", ".join(guards) or "none"))
    for row in rows:
        changes = ", ".join(f"{k}={v}" for k, v in row["changes"].items()) or "as configured"
        print(
            f"phase {row['phase']} {row['name']}: updates {row['first']} to {row['last']}, "
            f"{row['env_steps_after']:,} env steps after it; {changes}"
        )
    print("nothing was begun (--dry-run)")
    return 0


def list_settings(config: Any, as_json: bool) -> int:
    """Print every setting that the target takes, with its value here and its meaning."""
    from dataclasses import fields

    from holdfast.config import leaves
    from holdfast.tables import help_rows, text

    values = leaves(config)
    found: dict[str, dict[str, Any]] = {}
    for section in (f.name for f in fields(config) if f.name != "phases"):
        chosen = getattr(config, section)
        kind = type(chosen.options if section == "world" else chosen)
        if not as_json:
            print(f"[{section}]")
        for flag, takes, _, doc in help_rows(kind, section):
            key = flag[2:].replace("-", "_")
            found[key] = {"value": values.get(key), "takes": takes, "help": doc}
            if not as_json:
                print(f"  {flag} {text(values.get(key))!s}\n      {doc} ({takes})")
    if as_json:
        answer(found)
    return 0
