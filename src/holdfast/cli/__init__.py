"""The command line: one file a verb.

    holdfast train shoal --run first --updates 60 --seed 1
    holdfast resume first

A verb module has `HELP` (one line), `add(parser)` and `run(args, rest) -> int`; `rest` are the words that
argparse did not know, which are settings. Verbs are imported when they are called, so `holdfast --help`
answers at once. Deliberate errors become one message and their exit code; anything else is a bug and
shows its traceback.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Sequence

from holdfast.cli.answer import answers_alone
from holdfast.cli.settings import target_first
from holdfast.errors import HoldfastError, nearest

VERBS = {
    "train": "train a policy in a world",
    "resume": "go on with a run that was stopped or killed",
    "eval": "evaluate a run's policy on fixed seeds",
    "runs": "list the runs",
    "ckpt": "find, check, compare, export and mend checkpoints",
    "metrics": "the numbers of a run: tail, summary, plot, SQL",
    "watch": "see a policy play, also while it trains",
    "report": "write a run's plots, clips and report.html",
    "starts": "mine hard starts from a run, and look at them",
    "whatif": "what other guard rules would have decided in a run",
    "exploit": "what best responses can still win against self-play",
    "study": "many seeds, variants, or a search for settings, side by side",
    "envcheck": "try an environment again and again in every mode",
    "doctor": "check the machine, or an environment, before a long run",
    "bench": "measure speed on this machine",
}
TARGETS = ("train", "study", "doctor")
"""Verbs that take a target, and settings for it."""

USAGE = """usage: holdfast VERB ...

Holdfast trains reinforcement-learning policies and keeps the run under control.

verbs:
{verbs}

Type 'holdfast VERB --help' for one verb, for example: holdfast train shoal --help
"""


class Parser(argparse.ArgumentParser):
    """An argument parser that never guesses abbreviations and fails with one line."""

    def __init__(self, verb: str) -> None:
        super().__init__(
            prog=f"holdfast {verb}",
            description=VERBS[verb],
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> None:  # type: ignore[override]
        sys.stderr.write(f"error: {message}. Type: {self.prog} --help\n")
        raise SystemExit(2)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help", "help"):
        rows = "\n".join(f"  {verb:<9} {text}" for verb, text in VERBS.items())
        print(USAGE.format(verbs=rows), end="")
        return 0
    if words[0] in ("-V", "--version"):
        from importlib.metadata import version

        print(f"holdfast {version('holdfast')}")
        return 0
    verb = words[0]
    if verb not in VERBS:
        sys.stderr.write(
            f"error: '{verb}' is not a verb.{nearest(verb, VERBS)} Verbs: {', '.join(VERBS)}. "
            "Type: holdfast --help\n"
        )
        return 2
    module = importlib.import_module(f"holdfast.cli.{verb}")
    parser = Parser(verb)
    parser.add_argument("--runs-dir", default="runs", help="directory of the runs (default: runs)")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object on standard output"
    )
    module.add(parser)
    given = target_first(words[1:]) if verb in TARGETS else words[1:]
    # Intermixed: options may stand between the places and names that a verb takes.
    args, rest = parser.parse_known_intermixed_args(given)
    alone = answers_alone() if args.json in (True, "-") else contextlib.nullcontext()
    try:
        with alone:
            return int(module.run(args, rest))
    except HoldfastError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
    except BrokenPipeError:
        # The reader of our output (head, less) has gone; nothing is wrong.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def run_main() -> None:
    """Entry point of the `holdfast` command."""
    raise SystemExit(main())
