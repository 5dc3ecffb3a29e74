"""Films of a run's best policy in its `media/`: the median episode of its probe, the best and the worst.

    media/episode.mp4  episode.gif     the median episode, or a grid of episodes
    media/best.mp4     worst.mp4
    media/clips.json                   what each film shows: seed, update, outcome

The probe of `evals.jsonl` is played again with its checkpoint (`probes/films.py`). An environment that cannot
draw itself has no films, which is said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.api import players_of
from holdfast.config import Config
from holdfast.errors import ConfigError, EnvironmentFault
from holdfast.probes.clips import clip_record, takes_of
from holdfast.probes.films import Take, chosen_games
from holdfast.probes.runner import ProbeSpec
from holdfast.records import EvalReport
from holdfast.run import RunDirectory, probe_spec
from holdfast.store.checkpoint import Checkpoint, Checkpoints
from holdfast.store.files import write_json
from holdfast.store.media import halved, open_film, write_film
from holdfast.view.files import RunFiles

LARGE = {"shoal": 640, "mario": 512, "pursuit": 720}
SMALL = {"shoal": 480, "mario": 512, "pursuit": 540}
"""Widths of the main film and of the others; foreign environments draw themselves as large as they like."""
EVERY = 2
"""Moments from one picture to the next."""
GIF_EVERY, GIF_MOST = 2, 300
"""Pictures of the film from one of the GIF to the next, and the most that a GIF has."""


def make_media(
    run: Path,
    say: Callable[[str], None] = lambda text: None,
    progress: Callable[[str], None] = lambda text: None,
) -> list[Path]:
    """Write the films of the run's best checkpoint and return the files; none if nothing can be drawn."""
    files = RunFiles(run)
    checkpoint = best_checkpoint(files)
    if checkpoint is None or not files.config:
        return []
    config = RunDirectory(run).config()
    report = probe_of(files, config, checkpoint.update)
    policy, scripts = players_of(RunDirectory(run), config, checkpoint)
    spec = replace(
        probe_spec(config),
        seeds=report.seeds,
        values=tuple(sorted((report.detail.get("values") or {}).items())),
        scripts=scripts,
    )
    games = chosen_games(spec.world, report.detail, len(report.seeds))
    folder = run / "media"
    made, told = [], []
    try:
        env_steps = int(checkpoint.manifest().get("env_steps", 0))
        for rank, take in takes_of(spec, policy, games, env_steps).items():
            progress(f"the {rank} episode")
            name = file_name(rank, games)
            made += _write(spec, take, folder, name, f"{config.run.name} · {rank}")
            path = folder / f"{name}.mp4"
            record = clip_record(report, spec.world, rank, games[rank], path, run.name, take)
            told.append({"name": name, **record})
    except (ConfigError, EnvironmentFault) as error:
        say(f"{'not all' if made else 'no'} films: {error}")
    finally:  # a film that could not be made must not stand there under what is told of an older one
        folder.mkdir(exist_ok=True)
        write_json(folder / "clips.json", told)
    return made


def best_checkpoint(files: RunFiles) -> Checkpoint | None:
    """Return the checkpoint of the best probe, or the newest intact one; None when there is none."""
    held = Checkpoints(files.path / "checkpoints").all()
    best = [c for c in held if c.update == files.best_update]
    for checkpoint in (*best, *reversed(held)):
        if not checkpoint.problems():
            return checkpoint
    return None


def probe_of(files: RunFiles, config: Config, update: int) -> EvalReport:
    """Return the probe of `update` (or the newest one before) as it was recorded; without one, a single new episode."""
    probes = [e for e in files.evals if e.get("update", 0) <= update and e.get("seeds")]
    if not probes:
        seeds = probe_spec(config).seeds[:1]
        return EvalReport("probe", update, 0, seeds, {}, {}, {})
    probe = next((e for e in reversed(probes) if e.get("update") == update), probes[-1])
    seeds = tuple(int(seed) for seed in probe["seeds"])
    return EvalReport("probe", update, 0, seeds, {}, {}, probe.get("detail") or {})


def file_name(rank: str, games: Mapping[str, Any]) -> str:
    """Return the name of a film without its ending; one film is always called `episode`."""
    first = "median" if "median" in games else next(iter(games))
    return "episode" if rank == first else rank


def _write(spec: ProbeSpec, take: Take, folder: Path, name: str, title: str) -> list[Path]:
    """Write one film, the main one also as a small GIF."""
    fps, mp4 = take.film.rate / EVERY, folder / f"{name}.mp4"
    sizes = LARGE if name == "episode" else SMALL
    pictures = take.film.pictures(size=sizes.get(spec.world, 0), every=EVERY, title=title)
    if name != "episode":
        return [write_film(mp4, pictures, fps=fps)]
    gif = folder / f"{name}.gif"
    with open_film(mp4, fps) as film, open_film(gif, fps / GIF_EVERY) as small:
        for k, picture in enumerate(pictures):
            film.add(picture)
            if k % GIF_EVERY == 0 and small.count < GIF_MOST:
                small.add(halved(picture))
    return [mp4, gif]
