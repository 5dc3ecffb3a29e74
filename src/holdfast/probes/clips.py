"""Films of an evaluation: its best, median and worst episode, each with the command that films it again.

    media/evals/u000012-worst.mp4  u000012-median.mp4  u000012-best.mp4
    media/evals/u000012.json       what they show

An episode is played again from its seed with the evaluated policy in a world of its own: neither the evaluation
nor the training notices. A film that fails is reported and never stops a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.probes.runner import Actor, ProbeSpec
from holdfast.probes.worst import replay_command
from holdfast.records import EvalReport
from holdfast.store.files import write_json

EVERY = 2
"""Steps between two pictures."""
SIZE = 320
FPS = 30


def film_probe(
    report: EvalReport,
    spec: ProbeSpec,
    policy: Actor,
    directory: Path,
    warn: Callable[[str], None],
) -> list[Path]:
    """Film the best, median and worst episode of a report below a run's directory; return the films."""
    if spec.world != "shoal":
        return []
    try:
        return _film(report, spec, policy, directory)
    except Exception as error:  # a film must never stop training; it is reported
        warn(f"The evaluation could not be filmed: {type(error).__name__}: {error}")
        return []


def picks(detail: Mapping[str, Any]) -> dict[str, int]:
    """Return the worst, best and median episode, each once: by survival, then by avoidable deaths."""
    final = np.asarray(detail["final"], np.float64)
    avoidable = np.asarray(detail.get("avoidable", np.zeros(len(final))))
    order = np.lexsort((-avoidable, final)).tolist()
    found = {order[0]: "worst"}
    found.setdefault(order[-1], "best")
    found.setdefault(order[len(order) // 2], "median")
    return {rank: k for k, rank in found.items()}


def film_seed(
    spec: ProbeSpec, policy: Actor, seed: int, path: Path, title: str, every: int = EVERY
) -> Any:
    """Film one episode of a shoal to an MP4 and return its `Episode`."""
    from holdfast.probes import shoal
    from holdfast.worlds.shoal.draw import film_episode, frames, write_mp4

    options = shoal.prepare(replace(spec.options, **dict(spec.values)), spec.protocol)
    rng = None if spec.deterministic else np.random.default_rng([seed])
    film = film_episode(options, seed, lambda obs: policy.act(obs, rng))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_mp4(path, frames(film, size=SIZE, every=every, title=title), fps=FPS)
    return film.episode


def _film(report: EvalReport, spec: ProbeSpec, policy: Actor, directory: Path) -> list[Path]:
    folder, run = directory / "media" / "evals", directory.name
    stem = f"u{report.update:06d}"
    made, told = [], []
    for rank, k in picks(report.detail).items():
        path, seed = folder / f"{stem}-{rank}.mp4", int(report.seeds[k])
        film_seed(spec, policy, seed, path, f"update {report.update} · {rank}")
        made.append(path)
        told.append(
            {
                "rank": rank,
                "file": path.name,
                "update": report.update,
                "seed": seed,
                "final": float(report.detail["final"][k]),
                "replay": replay_command(run, report.update, seed),
            }
        )
    write_json(folder / f"{stem}.json", told)
    return made
