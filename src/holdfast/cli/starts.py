"""`holdfast starts`: mine hard starts from a run, look at a file of starts."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.answer import answer
from holdfast.cli.settings import at_least, no_settings

if TYPE_CHECKING:
    from holdfast.probes.mining import Found, Hold
    from holdfast.records import Start

ACTIONS = {
    "mine": "turn the bad episodes of a run into a file of starts",
    "draw": "draw starts of a world with certain headings and speeds",
    "show": "say what a file of starts holds",
    "worst": "show the worst starts of a run's evaluations",
}
DRAWN, TRIES = 64, 1000
"""Starts that `draw` makes without --count, and how often it draws 64 to find them."""


def add(parser: argparse.ArgumentParser) -> None:
    words = "; ".join(f"{name}: {text}" for name, text in ACTIONS.items())
    parser.add_argument("action", choices=list(ACTIONS), help=words)
    parser.add_argument(
        "target", help="name of a run (show: a file of starts; draw: shoal or a TOML file)"
    )
    mine = parser.add_argument_group("mine and draw")
    mine.add_argument(
        "--sector", default="", help="N, NE, E ... or degrees such as 60-90 or 330-30"
    )
    mine.add_argument("--min-speed", type=float, default=0.0, help="slowest predator (default 0)")
    mine.add_argument("--max-speed", type=float, default=None, help="fastest predator")
    mine.add_argument(
        "--below", type=float, default=0.95, help="survival of a bad episode (default 0.95)"
    )
    text = f"mine: most starts, the worst first (0: all); draw: how many (0: {DRAWN})"
    mine.add_argument("--count", type=int, default=0, help=text)
    mine.add_argument(
        "--type", default="", help="type of the starts (default: the sector, or tail)"
    )
    mine.add_argument(
        "--hold",
        choices=["auto", "all", "predator", "seed"],
        default="auto",
        help="what a start holds: fish and predator, the predator, or the seed (auto: all, but "
        "the predator where the run changes the number of fish)",
    )
    mine.add_argument(
        "--from-probes",
        action="store_true",
        help="mine the evaluations: a run trained on these is no longer judged by them",
    )
    parser.add_argument("--seed", type=int, default=None, help="of the drawing (draw)")
    parser.add_argument("--out", default="", help="file to write")
    parser.epilog = (
        "Examples:\n"
        "  holdfast starts mine first --sector NE --min-speed 1.6 --out mix.json\n"
        "  holdfast starts draw shoal --sector 45-90 --min-speed 1.6 --count 64 --out ne.json\n"
        "  holdfast starts show mix.json\n"
        "  holdfast starts worst first\n"
        "  holdfast train shoal --guards.tails.enabled --guards.tails.stages '40:mix.json|type=ne'"
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    no_settings(rest)
    at_least(args, count=0, seed=0)
    action = {"mine": mine, "draw": draw, "show": show, "worst": worst}[args.action]
    record = action(args)
    if args.json:
        answer(record)
    return 0


def mine(args: argparse.Namespace) -> dict[str, Any]:
    """Write a file of starts from a run's training episodes, or from its evaluations if so asked."""
    from holdfast.errors import ConfigError
    from holdfast.probes import mining
    from holdfast.store.journal import read_lines
    from holdfast.study import played
    from holdfast.view.progress import Progress
    from holdfast.worlds.shoal.starts import write_starts

    directory, config = _shoal_run(args, "mined")
    if not args.out:
        raise ConfigError("Where shall the starts go? Add for example: --out mix.json")
    wanted, kind = _wanted(args, args.below), _kind(args)
    if args.from_probes:
        _say(
            args,
            "These starts are the run's own evaluation seeds. A run that trains on them can no longer be judged "
            "by them: give it other evaluation seeds with --probe.seed, and compare on those.",
        )
        probes = list(read_lines(directory.path / "evals.jsonl"))
        episodes = [one for line in probes for one in mining.from_probe(line)]
        options_of, several = played.in_probes(config, probes)
        origin = f"{mining.EVALUATION}{directory.name}"
    else:
        episodes = mining.from_training(read_lines(directory.path / "episodes.jsonl"))
        options_of, several = played.in_training(config, directory.path, args.hold)
        origin = f"training of {directory.name}"
    hold = _hold(args, "predator" if several else "all")
    chosen = mining.choose(episodes, wanted)
    with Progress("mining", off=args.json) as progress:
        starts = mining.as_starts(
            chosen,
            _counted(options_of, len(chosen), progress.show),
            hold,
            label=f"{directory.name}-{kind}",
            type=kind,
            origin=origin,
        )
    if not starts:
        raise ConfigError(
            f"No episode of {directory.name} fits: {len(episodes)} were read"
            f"{', ' + str(len(chosen)) + ' chosen but their options are not known' if chosen else ''}. "
            "Widen --sector, --min-speed or --below (the share of fish alive at the end)."
        )
    path = write_starts(args.out, starts)
    _say(args, f"{len(starts)} starts of type '{kind}' ({hold}) in {path}, the worst first")
    if len(starts) < len(chosen):
        _say(
            args,
            f"{len(chosen) - len(starts)} more were left out: a value of the world changed as they began",
        )
    if not args.json:
        _print_clusters(_records(starts, chosen))
    return {"file": str(path), "starts": len(starts), "type": kind, "hold": hold, "origin": origin}


def draw(args: argparse.Namespace) -> dict[str, Any]:
    """Write starts of a world whose predators have the wanted headings and speeds, from seeds of their own."""
    import numpy as np

    from holdfast.config import resolve
    from holdfast.errors import ConfigError
    from holdfast.probes import mining
    from holdfast.view.progress import Progress
    from holdfast.worlds.shoal.starts import write_starts

    config = resolve(args.target)
    if config.world.name != "shoal" or not args.out:
        raise ConfigError(
            "Starts are drawn for shoal, to a file: holdfast starts draw shoal --out x.json"
        )
    wanted, kind = _wanted(args, below=np.inf), _kind(args)
    options, hold = config.world.options, _hold(args, "predator")
    count = args.count or DRAWN
    # A stream of its own: these seeds meet neither those of training nor those of evaluations.
    rng = np.random.default_rng([0x5747, 1 if args.seed is None else args.seed])
    chosen: list[Found] = []
    tries = 0
    with Progress("drawing", off=args.json) as progress:
        while len(chosen) < count and tries < TRIES:
            tries += 1
            seeds = [int(s) for s in rng.integers(2**62, 2**63, 64)]
            found = _drawn(options, seeds)
            chosen += [one for one in found if wanted.takes(one)]
            progress.show(min(len(chosen), count), count, f"{64 * tries} drawn")
    if len(chosen) < count:
        raise ConfigError(
            f"Only {len(chosen)} of {count} starts were found in {64 * tries} draws. Widen --sector or the "
            "speeds, or ask for fewer with --count."
        )
    seed = 1 if args.seed is None else args.seed
    starts = mining.as_starts(
        chosen[:count],
        lambda one: options,
        hold,
        label=kind,
        type=kind,
        origin=f"drawn with seed {seed}",
    )
    path = write_starts(args.out, starts)
    _say(args, f"{count} starts of type '{kind}' ({hold}) in {path}, of {64 * tries} drawn")
    if not args.json:
        _print_clusters(_records(starts, chosen))
    return {"file": str(path), "starts": count, "type": kind, "hold": hold, "drawn": 64 * tries}


def _counted(
    options_of: Callable[[Found], Any], total: int, show: Callable[[int, int], None]
) -> Callable[[Found], Any]:
    """Return `options_of`, which tells `show` how many episodes it was asked about."""
    asked = 0

    def counted(one: Found) -> Any:
        nonlocal asked
        asked += 1
        show(asked, total)
        return options_of(one)

    return counted


def _drawn(options: Any, seeds: list[int]) -> list[Found]:
    import math
    from dataclasses import replace

    from holdfast.probes.mining import Found
    from holdfast.worlds import make_world

    world: Any = make_world("shoal", replace(options, games=len(seeds)))
    world.reset(seed=seeds)
    velocities = world.bodies()["predator_vel"].tolist()
    world.close()
    return [
        Found(seed, 0.0, math.degrees(math.atan2(vy, vx)) % 360.0, math.hypot(vx, vy), 0)
        for seed, (vx, vy) in zip(seeds, velocities, strict=True)
    ]


def show(args: argparse.Namespace) -> dict[str, Any]:
    """Say how many starts of which type a file holds, and from where the predators come."""
    from collections import Counter

    from holdfast.probes.sectors import clusters
    from holdfast.worlds.shoal.starts import read_starts

    starts = read_starts(args.target)
    records = _records(starts, ())
    forms = Counter(_form(start) for start in starts)
    record = {
        "file": args.target,
        "starts": len(starts),
        "unique": len({start.id for start in starts}),
        "types": dict(Counter(start.type for start in starts)),
        "labels": dict(Counter(start.label for start in starts)),
        "origins": len({start.origin for start in starts}),
        "hold": dict(forms),
        "clusters": [{k: v for k, v in one.items() if k != "sample"} for one in clusters(records)],
    }
    if not args.json:
        for name in ("starts", "unique", "types", "labels", "hold"):
            value = record[name]
            text = (
                ", ".join(f"{k}: {v}" for k, v in value.items())
                if isinstance(value, dict)
                else value
            )
            print(f"{name:<8} {text}")
        print(f"{'origin':<8} {starts[0].origin}{' ...' if record['origins'] != 1 else ''}")
        _print_clusters(records)
    return record


def worst(args: argparse.Namespace) -> dict[str, Any]:
    """Show the worst episodes of the newest evaluation, and the step-one deaths of all of them."""
    from holdfast.errors import StorageError
    from holdfast.probes.sectors import clusters
    from holdfast.probes.worst import FILE
    from holdfast.store.files import read_json
    from holdfast.store.journal import read_lines

    directory, _ = _shoal_run(args, "ranked")
    path = directory.path / FILE
    if not path.is_file():
        raise StorageError(
            f"{path} is not there: the run has made no evaluation yet. It is written after each."
        )
    found = dict(read_json(path))
    records = [
        record
        for line in read_lines(directory.path / "evals.jsonl")
        for record in (line.get("detail") or {}).get("step_one") or ()
    ]
    found["all_step_one"] = clusters(records)
    if not args.json:
        print(f"{directory.name}, evaluation at update {found['update']}, worst first")
        print(
            f"{'seed':>12} {'alive':>7} {'dead':>5} {'avoidable':>9} {'first':>6} {'heading':>8} speed"
        )
        for one in found["episodes"]:
            lost = "" if one["avoidable"] is None else one["avoidable"]
            print(
                f"{one['seed']:>12} {one['final']:>7.3f} {one['deaths']:>5} {lost:>9} "
                f"{one['first_death_step']:>6} {one['heading_deg']:>5.0f} {one['sector']:<2} {one['speed']:.2f}"
            )
        print("step-one deaths of all evaluations:")
        _print_clusters(records)
    return found


def _wanted(args: argparse.Namespace, below: float) -> Any:
    from holdfast.errors import ConfigError
    from holdfast.probes.mining import Wanted
    from holdfast.probes.sectors import parse_sector

    fastest = float("inf") if args.max_speed is None else args.max_speed
    if not args.min_speed <= fastest:
        raise ConfigError(
            f"No speed is from --min-speed {args.min_speed:g} to --max-speed {fastest:g}. Swap or widen them."
        )
    if args.below != args.below:
        raise ConfigError("--below nan is not allowed. It takes a share of fish, for example 0.95.")
    return Wanted(
        span=parse_sector(args.sector) if args.sector else (0.0, 360.0),
        min_speed=args.min_speed,
        max_speed=fastest,
        below=below,
        count=args.count,
    )


def _hold(args: argparse.Namespace, auto: Hold) -> Hold:
    chosen: Hold = auto if args.hold == "auto" else args.hold
    return chosen


def _kind(args: argparse.Namespace) -> str:
    from holdfast.errors import ConfigError
    from holdfast.guards.stages import wrong_type

    kind = str(args.type or (args.sector if args.sector.isalpha() else "tail")).lower()
    if wrong := wrong_type(kind):
        raise ConfigError(f"--type '{args.type}': {wrong}. Type for example: --type ne")
    return kind


def _shoal_run(args: argparse.Namespace, done: str) -> tuple[Any, Any]:
    from holdfast.errors import ConfigError
    from holdfast.run import RunDirectory

    directory = RunDirectory.open(Path(args.runs_dir), args.target)
    config = directory.config()
    if config.world.name != "shoal":
        raise ConfigError(
            f"{directory.name} is a run in {config.world.name}; only shoal is {done}."
        )
    return directory, config


def _records(starts: list[Start], chosen: Any) -> list[dict[str, float]]:
    """Return heading and speed of the predators, from the starts or, by seed, from the episodes."""
    import math

    known = {one.seed: (one.heading_deg, one.speed) for one in chosen}
    found = []
    for start in starts:
        if start.snapshot is not None and "predator_vel" in start.snapshot:
            vx, vy = (float(v) for v in start.snapshot["predator_vel"])
            heading, speed = math.degrees(math.atan2(vy, vx)) % 360.0, math.hypot(vx, vy)
        elif start.seed in known:
            heading, speed = known[start.seed]
        else:
            continue
        found.append({"heading_deg": heading, "speed": speed})
    return found


def _form(start: Start) -> str:
    if start.snapshot is None:
        return "seed"
    return "all" if "fish_pos" in start.snapshot else "predator"


def _print_clusters(records: list[Any]) -> None:
    from holdfast.probes.sectors import clusters

    for one in clusters(records, 8):
        top = "and up" if one["speed_to"] is None else f"- {one['speed_to']:.1f}"
        print(
            f"  {one['heading_from']:>5.0f} - {one['heading_to']:<3.0f} {one['sector']:<5}  speed "
            f"{one['speed_from']:.1f} {top:<6} {one['count']:>6}  {one['share']:6.1%}"
        )


def _say(args: argparse.Namespace, text: str) -> None:
    print(text, file=sys.stderr)
