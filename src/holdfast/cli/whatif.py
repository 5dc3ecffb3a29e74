"""`holdfast whatif`: feed a run's recorded signals through changed guards and show what would have differed."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.answer import answer
from holdfast.cli.settings import no_settings

if TYPE_CHECKING:
    from holdfast.config import Config
    from holdfast.guards.guard import Guard
    from holdfast.guards.stages import TailStage
    from holdfast.guards.whatif import Difference, Made, Replayed
    from holdfast.run import RunDirectory

SHOWN = 60
"""Rows of the table without --all."""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="name of the run")
    parser.add_argument(
        "--set",
        dest="changes",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of a guard, for example guards.gate.success_early_death=0.09; may be repeated",
    )
    parser.add_argument(
        "--all", action="store_true", help=f"every row (default: the first {SHOWN})"
    )
    parser.add_argument("--no-plot", action="store_true", help="no plots/whatif.png")
    parser.epilog = (
        "The signals are those of the run as it was: the first differing decision is a fact, what follows is a\n"
        "reading, because a changed run would have had other signals.\n"
        "Examples:\n"
        "  holdfast whatif first --set guards.gate.success_early_death=0.09\n"
        "  holdfast whatif first --set guards.plateau.patience=10 --set guards.plateau.window=5"
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    no_settings(rest)
    from holdfast.errors import ConfigError, StorageError
    from holdfast.guards.whatif import compare
    from holdfast.refuse import refuse_names, refuse_probe
    from holdfast.run import RunDirectory, load_stages
    from holdfast.store.journal import read_lines
    from holdfast.view.plots_whatif import draw_whatif

    directory = RunDirectory.open(Path(args.runs_dir), args.run)
    if not args.changes:
        raise ConfigError(
            "What shall differ? Add for example: --set guards.gate.success_early_death=0.09"
        )
    lines = list(read_lines(directory.path / "metrics.jsonl"))
    journal = list(read_lines(directory.path / "journal.jsonl"))
    if not lines:
        raise StorageError(f"{directory.path / 'metrics.jsonl'} holds no update yet.")
    old = directory.config()
    new, changed = changed_config(old, args.changes)
    ended = directory.state() == "finished"
    stages = held_stages(directory, old)
    same = old.guards.tails.enabled and new.guards.tails.stages == old.guards.tails.stages
    others = stages if same else load_stages(new)
    refuse_names(new)
    refuse_probe(new)
    blind = [guard.name for guard in guards_of(new, others) if guard.reads_starts]
    if blind and not any("starts/begun" in line for line in lines):
        raise ConfigError(
            f"guards.{blind[0]} reads which episodes began and ended, and {directory.name} has not recorded it, because "
            "no guard of the run asked: what it would have decided is not known. Only a run that has it can be replayed."
        )
    own, _ = decide(old, lines, ended, stages)
    names = {guard.name for guard in guards_of(old, stages) + guards_of(new, others)}
    unlike = compare(journal, own, names)
    after, series = decide(new, lines, ended, others)
    # Where the recorded run is not its own rules' doing (it was resumed under others), both sides are replayed.
    found = compare(own if unlike else journal, after, names)
    record: dict[str, Any] = {
        "run": directory.name,
        "updates": int(lines[-1]["update"]),
        "changed": changed,
        "first_difference": found[0].update if found else None,
        "differences": [_as_record(d) for d in found],
        "not_reproduced": len(unlike),
        "plot": None,
    }
    if not args.no_plot:
        path = directory.path / "plots" / "whatif.png"
        draw_whatif(path, lines, series, found, changed)
        record["plot"] = str(path)
    if args.json:
        answer(record)
    else:
        show(record, found, None if args.all else SHOWN)
    return 0


def changed_config(config: Config, changes: Sequence[str]) -> tuple[Config, list[str]]:
    """Return the config with guard settings changed, and what differs in words."""
    from holdfast.config import differences, from_tables, place, to_toml
    from holdfast.errors import ConfigError

    tables: dict[str, Any] = tomllib.loads(to_toml(config))
    for change in changes:
        key, equals, value = change.partition("=")
        key = key.strip()
        if not equals or not key.replace("-", "_").startswith("guards."):
            raise ConfigError(
                f"'{change}' is not a change of a guard. Write guards.NAME.SETTING=VALUE, for example: "
                "--set guards.gate.success_early_death=0.09"
            )
        place(tables, key, value.strip(), type(config.world.options))
    made = from_tables(tables)
    lines = differences(config, made)
    if not lines:
        raise ConfigError(f"Nothing differs: the run has {', '.join(changes)} already.")
    return made, lines


def held_stages(directory: RunDirectory, config: Config) -> list[TailStage]:
    """Return the tail stages of a run with the starts that its checkpoints hold: its files may be gone or changed."""
    from dataclasses import replace

    from holdfast.records import unpack_starts
    from holdfast.run import load_stages

    checkpoints = directory.checkpoints(config)
    if not config.guards.tails.enabled or not checkpoints.all():
        return load_stages(config)
    book = checkpoints.find(None).load()["guard.tails"]
    held = zip(book["stages"], unpack_starts(bytes(book["starts"])), strict=False)
    return [
        replace(stage, type=str(own["type"]), starts=tuple(starts))
        for stage, (own, starts) in zip(load_stages(config, held=True), held, strict=False)
    ]


def guards_of(config: Config, stages: Sequence[TailStage]) -> list[Guard]:
    """Return fresh guards of a config with their tail stages."""
    from holdfast.guards import make_guards

    return make_guards(config.guards, stages, config.world.options)


def own_values(config: Config) -> dict[int, dict[str, float]]:
    """Return, by phase, the signals of the world's values when it is new: its options."""
    from holdfast.plan import make_plan
    from holdfast.worlds import world_type

    names = world_type(config.world.name).value_names
    found = {}
    for phase in make_plan(config, 1).phases:
        values = {name: getattr(phase.options, name, None) for name in names}
        found[phase.index] = {
            f"world/{name}": float(value)
            for name, value in values.items()
            if isinstance(value, int | float)
        }
    return found


def decide(
    config: Config, lines: Sequence[dict[str, Any]], ended: bool, stages: Sequence[TailStage] = ()
) -> tuple[list[Replayed], dict[str, list[Any]]]:
    """Return the decisions of a config's guards on recorded lines, and their statuses update by update."""
    from holdfast.guards.whatif import Watched, replay

    watched = [Watched(guard) for guard in guards_of(config, stages)]
    found = replay(lines, watched, own_values(config))
    if ended:
        last = lines[-1]
        found += [(int(last["update"]), g.name, d) for g in watched for d in g.final(last)]
    series: dict[str, list[Any]] = {}
    for guard in watched:
        keys = dict.fromkeys(key for status in guard.statuses for key in status)
        for key in keys:
            series[f"guard/{guard.name}/{key}"] = [s.get(key) for s in guard.statuses]
    return found, series


def show(record: dict[str, Any], found: Sequence[Difference], most: int | None) -> None:
    """Print the changes and the table of differing decisions."""
    for line in record["changed"]:
        print(f"changed  {line}")
    if record["not_reproduced"]:
        print(
            f"note     {record['not_reproduced']} recorded decisions do not follow from the stored settings (the "
            "run was resumed under others); both sides below are replayed"
        )
    if not found:
        print(f"no decision would have differed in {record['updates']} updates")
    else:
        at = found[0].update
        many = f"{len(found)} decisions would have differed, the first at update {at}"
        one = f"1 decision would have differed, at update {at}"
        print(
            f"{one if len(found) == 1 else many} (a fact; what follows is a reading, since the signals are those of the "
            "run as it was)"
        )
        sides = [str(side or "-") for d in found for side in (d.before, d.after)]
        width = max(24, min(44, max(map(len, sides))))
        print(
            f"{'update':>6}  {'guard':<9} {'recorded':<{width}} {'would have been':<{width}} because"
        )
        for d in found[:most]:
            before, after = _short(d.before, width), _short(d.after, width)
            why = (d.after or d.before).cause if (d.after or d.before) else ""  # type: ignore[union-attr]
            print(f"{d.update:>6}  {d.guard:<9} {before:<{width}} {after:<{width}} {why}")
        if most is not None and len(found) > most:
            print(f"... and {len(found) - most} more; add --all")
    if record["plot"]:
        print(f"plot     {record['plot']}")


def _short(made: Made | None, width: int) -> str:
    text = "-" if made is None else str(made)
    return text if len(text) <= width else text[: width - 1] + "…"


def _as_record(d: Difference) -> dict[str, Any]:
    before, after = (None if m is None else asdict(m) for m in (d.before, d.after))
    return {"update": d.update, "guard": d.guard, "before": before, "after": after}
