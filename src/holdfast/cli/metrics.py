"""`holdfast metrics`: the numbers that a run wrote down.

holdfast metrics tail first --follow
holdfast metrics tail first --kind episodes -n 3 --json
holdfast metrics summary first --match 'train/*'
holdfast metrics plot first train/entropy_mean 'probe/avg_*' --x update --out curves.png
holdfast metrics query first 'SELECT ended, count(*) FROM episodes GROUP BY ended'
holdfast metrics parquet first
holdfast metrics schema                      # what every field means
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.answer import answer
from holdfast.cli.settings import no_settings
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.run import RunDirectory

SHOWN = (
    "episode/return_mean",
    "train/entropy_mean",
    "train/approx_kl",
    "train/explained_variance",
    "time/env_steps_per_s",
)
"""What `tail` shows of an update unless `--keys` says otherwise."""
MOST = 20
"""Signals that one picture takes."""
OPTIONS = {
    "kind": ("tail", "summary"),
    "lines": ("tail",),
    "follow": ("tail",),
    "keys": ("tail",),
    "match": ("summary",),
    "x": ("plot",),
    "out": ("plot",),
}
"""Options and the actions that take them."""
AXES = {"env_steps": "env_steps", "update": "update", "time": "time/at"}


def add(parser: argparse.ArgumentParser) -> None:
    actions = ("tail", "summary", "plot", "query", "parquet", "schema")
    parser.add_argument("action", choices=actions, help="what to do")
    parser.add_argument("run", nargs="?", default="", help="name or directory of the run")
    parser.add_argument("what", nargs="*", help="plot: names or patterns; query: the SQL")
    parser.add_argument("--kind", default="metrics", help="tail, summary: metrics, episodes, ...")
    parser.add_argument("-n", "--lines", type=int, default=10, help="tail: lines (default: 10)")
    parser.add_argument("-f", "--follow", action="store_true", help="tail: go on while it trains")
    parser.add_argument(
        "--keys",
        default="",
        help="tail: names that are shown, with commas; lines without them are left out",
    )
    parser.add_argument("--match", default="*", help="summary: pattern, such as 'train/*'")
    parser.add_argument(
        "--x", choices=tuple(AXES), default="env_steps", help="plot: horizontal axis"
    )
    parser.add_argument("--out", default="", help="plot: PNG file (default: plots/metrics.png)")
    parser.epilog = __doc__

    parser.set_defaults(given=parser)


def run(args: argparse.Namespace, rest: list[str]) -> int:
    no_settings(rest)
    for option, actions in OPTIONS.items():
        if getattr(args, option) != args.given.get_default(option) and args.action not in actions:
            raise ConfigError(
                f"--{option} is not for '{args.action}', but for {' and '.join(actions)}. Leave it out, or see --help."
            )
    if args.action == "schema":
        return _schema(args)
    if not args.run:
        raise ConfigError(f"Which run? Type for example: holdfast metrics {args.action} first")
    if args.what and args.action not in ("plot", "query"):
        raise ConfigError(f"'{args.what[0]}' is not understood here. Leave it out, or see --help.")
    directory = _directory(args)
    if args.action == "tail":
        return _tail(args, directory)
    if args.action == "summary":
        return _summary(args, directory)
    if args.action == "plot":
        return _plot(args, directory)
    if args.action == "query":
        return _query(args, directory)
    return _parquet(args, directory)


def _directory(args: argparse.Namespace) -> RunDirectory:
    from holdfast.run import RunDirectory

    if (Path(args.run) / "run.toml").is_file():
        return RunDirectory(Path(args.run).resolve())
    return RunDirectory.open(Path(args.runs_dir), args.run)


def _schema(args: argparse.Namespace) -> int:
    from holdfast.store.schema import KINDS, json_schema, markdown

    if args.json:
        answer({kind.file: json_schema(kind) for kind in KINDS.values()}, indent=2)
    else:
        print(markdown(), end="")
    return 0


def _tail(args: argparse.Namespace, directory: RunDirectory) -> int:
    from holdfast.store.metrics import check_names, follow, parsed, records_of
    from holdfast.store.pieces import tail

    if args.lines < 0:
        raise ConfigError(f"--lines {args.lines} is not allowed. It takes 0 or more.")
    path = records_of(directory.path, args.kind)
    keys = [key.strip() for key in args.keys.split(",") if key.strip()]
    try:
        lines, end = tail(path, args.lines)
        found = list(parsed(lines))
        if absent := [key for key in keys if not any(key in line for line in found)]:
            check_names(path, absent)
        shown = _print_lines(found, keys, args)
        if args.follow:
            training = directory.locked_by
            _print_lines(follow(path, lambda: training() is not None, end), keys, args)
        elif keys and found and not shown:
            print(
                f"none of the last {len(found)} lines has it; ask for more with -n", file=sys.stderr
            )
    except KeyboardInterrupt:
        if not args.follow:
            raise
    return 0  # Ctrl-C is how one leaves a tail


def _print_lines(lines: Iterable[dict[str, Any]], keys: list[str], args: argparse.Namespace) -> int:
    """Print the lines, or what they have of the keys, and return how many have something to show."""
    shown = 0
    usual = ["update", "env_steps", *SHOWN] if args.kind == "metrics" else []
    for line in lines:
        told = {key: line[key] for key in keys if key in line} if keys else line
        if not told:
            continue
        shown += 1
        if args.json:
            answer(told)
            continue
        if not keys:
            names = usual or [k for k, v in line.items() if not isinstance(v, dict | list)]
            told = {key: line[key] for key in names if key in line}
        row = [f"{key.rpartition('/')[2]} {_text(value)}" for key, value in told.items()]
        print("  ".join(row), flush=True)
    return shown


def _summary(args: argparse.Namespace, directory: RunDirectory) -> int:
    from holdfast.store.files import read_json
    from holdfast.store.journal import read_lines
    from holdfast.store.metrics import courses, records_of
    from holdfast.store.sinks import STATUS

    path = records_of(directory.path, args.kind)
    rows = [course.row() for course in courses(read_lines(path, strict=False), args.match)]
    status = directory.path / STATUS
    sinks = read_json(status)["sinks"] if status.is_file() else {}
    if args.json:
        answer({"run": directory.name, "signals": rows, "sinks": sinks})
        return 0
    if not rows:
        raise ConfigError(
            f"No number in {path.name} fits --match '{args.match}'. Leave it out to see all of them."
        )
    columns = ("count", "first", "last", "min", "max", "mean")
    wide = max(len(str(row["name"])) for row in rows)
    print(" " * wide + "".join(f"{name:>11}" for name in columns))
    for row in rows:
        print(f"{row['name']:<{wide}}" + "".join(f"{_text(row[name]):>11}" for name in columns))
    for name, fares in sinks.items():
        problem = f": {fares['problem']}" if fares["problem"] else ""
        print(
            f"sink {name}: {fares['state']}, {fares['sent']} sent, {fares['dropped']} dropped{problem}"
        )
    return 0


def _plot(args: argparse.Namespace, directory: RunDirectory) -> int:
    from holdfast.store.metrics import records_of, series

    if not args.what:
        raise ConfigError(
            f"What shall be drawn? Type for example: holdfast metrics plot {args.run} train/entropy_mean"
        )
    found = series(records_of(directory.path, "metrics"), args.what, AXES[args.x])
    if len(found) > MOST:
        raise ConfigError(
            f"{len(found)} signals fit, and a picture takes {MOST} at most. Name fewer, or write them "
            "out: holdfast metrics parquet " + args.run
        )
    target = Path(args.out) if args.out else directory.path / "plots" / "metrics.png"
    _draw(found, args.x, directory.name, target)
    if args.json:
        answer({"run": directory.name, "plot": str(target), "signals": list(found)})
    else:
        print(target)
    return 0


def _draw(found: dict[str, Any], x: str, title: str, target: Path) -> None:
    """Write one small picture a signal, above each other on the same axis."""
    from holdfast.store.files import storage_errors
    from holdfast.view.style import BLUE, WIDE, canvas, count_axis, house_style

    first = min(xs[0] for xs, _ in found.values())
    span = max(xs[-1] for xs, _ in found.values()) - first
    label, scale = {"update": ("updates", 1.0), "env_steps": ("environment steps", 1.0)}.get(
        x, ("hours", 3600.0) if span > 7200 else ("minutes", 60.0)
    )
    origin = first if x == "time" else 0.0
    with house_style(), storage_errors(target):
        figure, axes = canvas(WIDE, 0.9 + 2.1 * len(found), rows=len(found))
        for place, (name, (xs, ys)) in zip(axes, found.items(), strict=True):
            place.set_title(name)
            mark = "o" if len(xs) < 30 else ""
            place.plot([(at - origin) / scale for at in xs], ys, BLUE, marker=mark, markersize=3.5)
            place.sharex(axes[0])
            if x != "time":
                count_axis(place.xaxis)
        axes[-1].set_xlabel(label)
        figure.suptitle(title, x=0.01, ha="left")
        target.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(target, format="png")


def _query(args: argparse.Namespace, directory: RunDirectory) -> int:
    from holdfast.store.query import query

    if len(args.what) != 1:
        raise ConfigError(
            "A query is one argument in quotes, for example: "
            f"holdfast metrics query {args.run} 'SELECT count(*) FROM metrics'"
        )
    found = query(directory.path, args.what[0])
    if args.json:
        answer({"columns": found.columns, "rows": found.rows})
        return 0
    cells = [list(found.columns), *([_text(value) for value in row] for row in found.rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(found.columns))]
    for row in cells:
        print("  ".join(f"{text:<{wide}}" for text, wide in zip(row, widths, strict=True)).rstrip())
    return 0


def _parquet(args: argparse.Namespace, directory: RunDirectory) -> int:
    from holdfast.store.parquet import FOLDER, write_parquet

    written = write_parquet(directory.path)
    files = {name: str(directory.path / FOLDER / f"{name}.parquet") for name in written}
    if args.json:
        answer({"run": directory.name, "rows": written, "files": files})
        return 0
    if not written:
        print(f"'{directory.name}' has no records yet")
    for name, count in written.items():
        print(f"{count:>9,} lines  {files[name]}")
    return 0


def _text(value: Any) -> str:
    from holdfast.view.numbers import figure

    if isinstance(value, float):
        return figure(value)
    return json.dumps(value) if isinstance(value, dict | list) else str(value)
