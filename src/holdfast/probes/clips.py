"""Films of an evaluation: its best, median and worst episode, each with the command that shows it again.

    media/evals/u000012-worst.mp4  u000012-median.mp4  u000012-best.mp4      (pursuit: u000012-grid.mp4)
    media/evals/u000012.json       what they show

The evaluation is played again in a world of its own: neither it nor the training notices. A film that fails is
reported and never stops a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.learn.roles import Player
from holdfast.probes.films import Take, chosen_games, film_games, side_by_side
from holdfast.probes.headlines import headline
from holdfast.probes.runner import ProbeSpec
from holdfast.probes.worst import FILE as WORST
from holdfast.probes.worst import replay_command
from holdfast.records import EvalReport
from holdfast.store.files import write_json
from holdfast.store.journal import plain
from holdfast.store.media import write_film

EVERY = 2
"""Moments from one picture to the next."""
SIZES = {"shoal": 320, "mario": 256, "pursuit": 540}
"""Width of a film in pixels; foreign environments draw themselves as large as they like."""
FOLDER = Path("media") / "evals"


def film_probe(
    report: EvalReport,
    spec: ProbeSpec,
    policy: Player,
    directory: Path,
    warn: Callable[[str], None],
) -> list[Path]:
    """Film the telling episodes of a report below a run's directory; return the films."""
    try:
        told = film_chosen(report, spec, policy, directory / FOLDER, directory.name)
    except Exception as error:  # a film must never stop training; it is reported
        warn(f"The evaluation could not be filmed: {type(error).__name__}: {error}")
        return []
    write_json(directory / FOLDER / f"{stem_of(report.update)}.json", told)
    return [directory / FOLDER / clip["file"] for clip in told]


def shown_again(directory: Path, clips: bool, probed: int) -> set[int]:
    """Return the updates whose episodes a file of the run says how to show again; their checkpoints are kept.

    These are the evaluations with films, if there are `clips`, and with worst starts the newest one, of update `probed`.
    """
    films = {int(p.stem[1:]) for p in (directory / FOLDER).glob("u*.json")} if clips else set()
    return films | {probed} if (directory / WORST).is_file() else films


def film_chosen(
    report: EvalReport, spec: ProbeSpec, policy: Player, folder: Path, run: str
) -> list[dict[str, Any]]:
    """Write the films of a report to a folder and return what each shows."""
    games = chosen_games(spec.world, report.detail, len(report.seeds))
    told = []
    for rank, take in takes_of(spec, policy, games, report.env_steps).items():
        path = folder / f"{stem_of(report.update)}-{rank}.mp4"
        title = f"update {report.update} · {rank}"
        pictures = take.film.pictures(size=SIZES.get(spec.world, 0), every=EVERY, title=title)
        write_film(path, pictures, fps=take.film.rate / EVERY)
        told.append(clip_record(report, spec.world, rank, games[rank], path, run, take))
    return told


def takes_of(
    spec: ProbeSpec, policy: Player, games: Mapping[str, Sequence[int]], env_steps: int = 0
) -> dict[str, Take]:
    """Play the probe once more, made after `env_steps` of the run, and return one take a rank."""
    wanted = [game for group in games.values() for game in group]
    takes = film_games(spec, policy, wanted, env_steps=env_steps)
    found = dict(zip(wanted, takes, strict=True))
    return {
        rank: side_by_side(spec.world, [found[game] for game in group])
        for rank, group in games.items()
    }


def clip_record(
    report: EvalReport,
    world: str,
    rank: str,
    games: Sequence[int],
    path: Path,
    run: str,
    take: Take,
) -> dict[str, Any]:
    """Return what one film shows, and the command that shows it again."""
    main = headline(world)
    columns = {
        name: report.detail[name][games[0]]
        for name in (key.removeprefix("-") for key in main.rank)
        if name in report.detail and len(games) == 1
    }
    seeds = [int(report.seeds[game]) for game in games]
    record = {
        "rank": rank,
        "file": path.name,
        "update": report.update,
        "seed": seeds[0],
        "seeds": seeds,
        "outcome": take.told(world),
        **columns,
        "replay": replay_command(run, report.update, seeds[0]),
    }
    return dict(plain(record))


def stem_of(update: int) -> str:
    """Return how the names of an evaluation's films begin."""
    return f"u{update:06d}"
