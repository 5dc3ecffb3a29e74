"""`holdfast study`: seeds and variants of a run side by side, or a search for settings."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.answer import answer
from holdfast.cli.settings import overrides

if TYPE_CHECKING:
    from holdfast.study.folder import Order
    from holdfast.study.seeds import SeedStudy
    from holdfast.study.sweep import Search

ONLY_SEARCH = {"space": "--space", "objective": "--objective", "no_prune": "--no-prune"}
ONLY_SEEDS = {"vary": "--vary", "grid": "--grid"}


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", nargs="?", help="a world's name or a TOML file, as for train")
    parser.add_argument("--seeds", help="seeds, such as 1-8 or 1,3,5 (with --optuna: one)")
    parser.add_argument("--name", default="", help="name of the study (default: from the target)")
    parser.add_argument("--jobs", type=int, help="runs at a time (default: one a core)")
    parser.add_argument("--plain", action="store_true", help="plain lines instead of the table")
    parser.add_argument(
        "--vary",
        action="append",
        default=[],
        metavar="KEY=V1,V2,...",
        help="compare values of a setting, the base's first; may be repeated",
    )
    parser.add_argument(
        "--grid", action="store_true", help="vary all keys together, not one at a time"
    )
    parser.add_argument(
        "--stable-after",
        type=int,
        default=1_000_000,
        metavar="STEPS",
        help="pursuit: judge stability after so many environment steps (1000000)",
    )
    parser.add_argument("--optuna", type=int, metavar="N", help="search with N trials")
    parser.add_argument(
        "--space",
        action="append",
        default=[],
        metavar="KEY=LAW",
        help="what a search may set: KEY=log:LOW:HIGH, float:LOW:HIGH, int:LOW:HIGH or choice:A,B,C",
    )
    parser.add_argument(
        "--objective",
        choices=("best", "last"),
        help="evaluation that a search goes by: a run's best (default) or last",
    )
    parser.add_argument("--no-prune", action="store_true", help="let bad trials train to their end")
    parser.epilog = (
        "Settings: --key value, as for train. Called again with the same words it goes on where it stood.\n"
        "Exit code: 0 all runs are done, 1 some failed, 4 a guard ended some, 130 stopped by Ctrl-C.\n"
        "Examples:\n"
        "  holdfast study configs/pursuit/best.toml --seeds 1-8\n"
        "  holdfast study shoal --seeds 1-3 --vary learner.lr=2e-3,1e-3 --vary learner.epochs=5,3\n"
        "  holdfast study CartPole-v1 --optuna 20 --space learner.lr=log:1e-4:1e-2 "
        "--space learner.steps=choice:64,128,256"
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    from holdfast.errors import ConfigError
    from holdfast.study.folder import Order

    if not args.target:
        raise ConfigError(
            "What shall be studied? Type for example: holdfast study shoal --seeds 1-4"
        )
    if args.jobs is not None and args.jobs < 1:
        raise ConfigError(f"--jobs {args.jobs} is not allowed. It takes 1 or more.")
    order = Order(
        target=args.target,
        settings=tuple(overrides(rest)),
        runs_dir=Path(args.runs_dir),
        command=command_of(args, rest),
        name=args.name,
        jobs=args.jobs or 0,
    )
    unfit = ONLY_SEARCH if args.optuna is None else ONLY_SEEDS
    for name, flag in unfit.items():
        if getattr(args, name):
            raise ConfigError(
                f"{flag} belongs to a search: add --optuna N."
                if args.optuna is None
                else f"{flag} does not go with --optuna. Search with --space, or compare with {flag}."
            )
    study = seed_study(args, order) if args.optuna is None else search(args, order)
    return carried_out(args, study)


def seed_study(args: argparse.Namespace, order: Order) -> SeedStudy:
    """Return the study of seeds that was asked for."""
    from holdfast.errors import ConfigError
    from holdfast.study.seeds import SeedOrder, SeedStudy
    from holdfast.study.specs import parse_seeds, parse_vary

    if args.seeds is None:
        raise ConfigError("Which seeds? Type for example: --seeds 1-8")
    return SeedStudy(
        SeedOrder(
            study=order,
            seeds=tuple(parse_seeds(args.seeds)),
            varies=tuple(parse_vary(text) for text in args.vary),
            grid=args.grid,
            stable_after=args.stable_after,
        )
    )


def search(args: argparse.Namespace, order: Order) -> Search:
    """Return the search that was asked for."""
    from holdfast.errors import ConfigError
    from holdfast.study.specs import parse_seeds, parse_space
    from holdfast.study.sweep import Search, SearchOrder

    seeds = parse_seeds(args.seeds or "1")
    if len(seeds) > 1:
        raise ConfigError(
            f"--seeds {args.seeds}: a search trains every trial with one seed. Write for example --seeds 1, "
            "and study the best settings with more seeds afterwards."
        )
    return Search(
        SearchOrder(
            study=order,
            trials=args.optuna,
            space=tuple(parse_space(text) for text in args.space),
            seed=seeds[0],
            objective=args.objective or "best",
            prune=not args.no_prune,
        )
    )


def carried_out(args: argparse.Namespace, study: SeedStudy | Search) -> int:
    """Train with a display, then say what came out and where it is."""
    from holdfast.study.page import plural
    from holdfast.study.show import Board

    folder = study.folder
    with Board(folder.name, folder.main, plain=args.plain or None) as board:
        board.say(
            f"study {folder.path}: {folder.jobs} at a time, "
            f"{plural(folder.threads, 'learner thread')} each"
        )
        record, code = study.run(board)
    if args.json:
        answer(record)
    else:
        tell(record, folder.path)
    if code:
        print(unfinished(record, code), file=sys.stderr)
    return code


def tell(record: dict[str, Any], path: Path) -> None:
    """Print the main metric, and where the rest is."""
    from holdfast.study.page import bracket, plural, value

    main = record["main"]
    variants = record.get("variants", ())
    for variant in variants:
        name = variant["name"] if len(variants) > 1 else record["name"]
        for end in ("final", "best"):
            found = record["summary"][variant["name"]][end].get(main)
            if found:
                print(
                    f"{name}: {end} {main} IQM {value(found['iqm'])}{bracket(found)}, "
                    f"median {value(found['median'])}, {value(found['min'])} to {value(found['max'])}, "
                    f"{plural(found['count'], 'seed')}"
                )
    best = record.get("best")
    if best:
        settings = " ".join(f"--{key}={setting}" for key, setting in best["settings"])
        print(f"best trial {best['run']}: {main} {value(best['value'])} with {settings}")
    for name in ("table.md", "plot.png", "study.json"):
        if (path / name).is_file():
            print(f"  {name:<11} {path / name}")


def unfinished(record: dict[str, Any], code: int) -> str:
    """Return what is not done, and what to type."""
    states: dict[str, int] = {}
    for one in record["runs"]:
        states[one["state"]] = states.get(one["state"], 0) + 1
    told = ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in states.items())
    if code == 4:
        return f"runs: {told}. A guard ended some of them; table.md says why."
    return f"runs: {told}. To go on with what is left, type the same again:\n  {record['command']}"


def command_of(args: argparse.Namespace, rest: list[str]) -> str:
    """Return the command that does the same again."""
    words = ["holdfast", "study", args.target]
    for name in ("seeds", "optuna", "objective"):
        found = getattr(args, name)
        words += [f"--{name}", str(found)] if found is not None else []
    for name in ("vary", "space"):
        for text in getattr(args, name):
            words += [f"--{name}", text]
    words += ["--grid"] if args.grid else []
    words += ["--no-prune"] if args.no_prune else []
    words += ["--name", args.name] if args.name else []
    words += ["--stable-after", str(args.stable_after)] if args.stable_after != 1_000_000 else []
    words += ["--runs-dir", args.runs_dir] if args.runs_dir != "runs" else []
    return shlex.join([*words, *rest])
