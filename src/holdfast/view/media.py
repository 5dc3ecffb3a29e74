"""Clips of a run's best policy in its `media/`: the median episode of its probe, the best and the worst.

    media/episode.gif  episode.mp4     the median episode
    media/best.gif     worst.gif       small, with worst.mp4
    media/clips.json                   what each clip shows: seed, update, outcome

An episode is chosen by its outcome in `evals.jsonl` and played again from its seed. A foreign
environment gives a clip if it can render to RGB arrays; otherwise the run has none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.config import Config, from_tables, read_toml
from holdfast.errors import HoldfastError
from holdfast.learn.policy import Policy
from holdfast.learn.restore import policy_from_checkpoint
from holdfast.probes.runner import draw_seeds
from holdfast.records import Array
from holdfast.store.checkpoint import Checkpoint, Checkpoints
from holdfast.store.files import write_json
from holdfast.view.files import Line, RunFiles

FOREIGN_FRAMES = 1000
"""Longest clip of a foreign environment, in frames."""


HEADLESS = {
    "SDL_VIDEODRIVER": "dummy",
    "SDL_AUDIODRIVER": "dummy",
    "PYGAME_HIDE_SUPPORT_PROMPT": "1",
}


@dataclass(frozen=True)
class Clip:
    """What one clip shows."""

    name: str
    """File name without its ending."""
    rank: str
    """median, best or worst of its probe."""
    seed: int
    update: int
    outcome: str = ""


def make_media(run: Path) -> list[Path]:
    """Write the clips of the run's best checkpoint and return the files; none if nothing can be drawn."""
    files = RunFiles(run)
    checkpoint = best_checkpoint(files)
    if checkpoint is None or not files.config:
        return []
    config = from_tables(read_toml(run / "run.toml"))
    clips = choose(files, config, checkpoint.update)
    act = player(policy_from_checkpoint(checkpoint), config.probe.deterministic)
    film = _film_shoal if config.world.name == "shoal" else _film_foreign
    directory = run / "media"
    directory.mkdir(exist_ok=True)
    made: list[Path] = []
    told: list[dict[str, Any]] = []
    for clip in clips:
        written = film(config, clip, act, directory)
        if written:
            made += written
            told.append({**asdict(clip), "files": [path.name for path in written]})
    write_json(directory / "clips.json", told)
    return made


def best_checkpoint(files: RunFiles) -> Checkpoint | None:
    """Return the checkpoint of the best probe, or the newest intact one; None when there is none."""
    held = Checkpoints(files.path / "checkpoints").all()
    best = [c for c in held if c.update == files.best_update]
    for checkpoint in (*best, *reversed(held)):
        if not checkpoint.problems():
            return checkpoint
    return None


def choose(files: RunFiles, config: Config, update: int) -> list[Clip]:
    """Return the median, best and worst episode of the probe of `update` (or of the newest probe)."""
    probes = [e for e in files.evals if e.get("update") == update] or files.evals
    if not probes or not probes[-1].get("seeds"):
        seed = draw_seeds(config.probe.seed, 1)[0]
        return [Clip("episode", "first", seed, update)]
    probe = probes[-1]
    values, words = _outcomes(probe)
    order = np.argsort(values, kind="stable")
    picks = {"median": int(order[len(order) // 2]), "best": int(order[-1]), "worst": int(order[0])}
    return [
        Clip(
            name="episode" if rank == "median" else rank,
            rank=rank,
            seed=int(probe["seeds"][k]),
            update=update,
            outcome=words(values[k]),
        )
        for rank, k in picks.items()
        if rank == "median" or k != picks["median"]
    ]


def player(policy: Policy, deterministic: bool) -> Callable[[Array], Array]:
    """Return the policy as a function from observations to actions."""
    rng = None if deterministic else np.random.default_rng(0)
    return lambda obs: policy.act(obs, rng)


def _outcomes(probe: Line) -> tuple[list[float], Callable[[float], str]]:
    detail = probe.get("detail") or {}
    if len(detail.get("final") or ()) == len(probe["seeds"]):
        return list(detail["final"]), lambda v: f"{v:.0%} of the fish alive"
    found = list(detail.get("returns") or [0.0] * len(probe["seeds"]))
    return found, lambda v: f"return {v:.1f}"


def _film_shoal(
    config: Config, clip: Clip, act: Callable[[Array], Array], directory: Path
) -> list[Path]:
    from holdfast.worlds.shoal.draw import film_episode, frames, write_gif, write_mp4

    film = film_episode(config.world.options, clip.seed, act)
    title = f"{config.run.name} · update {clip.update} · {clip.rank}"
    large = clip.name == "episode"
    gif = frames(film, size=400 if large else 280, every=4 if large else 6, title=clip.rank)
    made = [write_gif(directory / f"{clip.name}.gif", gif)]
    if clip.name != "best":
        pictures = frames(film, size=640 if large else 480, title=title)
        made.append(write_mp4(directory / f"{clip.name}.mp4", pictures, fps=50))
    return made


def _film_foreign(
    config: Config, clip: Clip, act: Callable[[Array], Array], directory: Path
) -> list[Path]:
    from holdfast.worlds.shoal.draw import write_gif, write_mp4

    every = 1 if clip.name == "episode" else 2
    pictures = list(_foreign_frames(config.world.name, clip.seed, act))
    if not pictures:
        return []
    small = [p[:: _step(p), :: _step(p)] for p in pictures[::every]]
    made = [write_gif(directory / f"{clip.name}.gif", small[:250])]
    if clip.name == "episode":
        made.append(write_mp4(directory / f"{clip.name}.mp4", pictures))
    return made


def _foreign_frames(name: str, seed: int, act: Callable[[Array], Array]) -> Iterator[Array]:
    """Yield the frames of one episode, or nothing where the environment cannot be drawn."""
    import gymnasium as gym

    # pygame opens no window, tries no sound and prints no greeting (standard output is for --json).
    for variable, setting in HEADLESS.items():
        os.environ.setdefault(variable, setting)

    from holdfast.worlds.foreign import GymnasiumGame, make_game

    try:
        if name in gym.registry:
            game = GymnasiumGame(gym.make(name, render_mode="rgb_array"))
        else:
            made = make_game(name)()
            if not isinstance(made, GymnasiumGame) or made.env.render_mode != "rgb_array":
                made.close()
                return
            game = made
    except (gym.error.Error, HoldfastError, ImportError):
        return
    try:
        rows, over = game.reset(seed), False
        for _ in range(FOREIGN_FRAMES):
            picture = game.env.render()
            if not isinstance(picture, np.ndarray) or picture.ndim != 3:
                return
            yield picture
            if over:
                return
            rows, _, _, _, over = game.step(act(np.asarray(rows, np.float32)))
    except gym.error.DependencyNotInstalled:
        return
    finally:
        game.close()


def _step(picture: Array) -> int:
    return max(1, int(picture.shape[1]) // 300)
