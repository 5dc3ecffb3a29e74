"""Watching a policy play: in a window where there is a screen, else as a film.

What is played is what the run's probes play: the same options, and the world values that were in use at that
checkpoint. A seed of the evaluation of that update shows the very episode that was measured; any other seed is a new
one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from holdfast.api import players_of, values_at
from holdfast.commands import to_type
from holdfast.config import Config
from holdfast.errors import StorageError
from holdfast.probes.films import ForeignFilm, Take, film_games, side_by_side
from holdfast.probes.headlines import headline, outcome
from holdfast.probes.runner import ProbeSpec, draw_seeds
from holdfast.run import RunDirectory, probe_spec
from holdfast.store.checkpoint import Checkpoint
from holdfast.store.journal import plain, read_lines
from holdfast.store.media import FilmWriter, checked_path, open_film
from holdfast.view.progress import Progress
from holdfast.view.window import Window, play

SIZES = {"shoal": 640, "mario": 512, "pursuit": 720}
"""Width of the picture; foreign environments draw themselves as large as they like."""
SMALL = {"shoal": 360, "mario": 256, "pursuit": 480}
"""The same for GIFs."""
EVERY = {".mp4": 2, ".gif": 3}
"""Moments from one picture of a film to the next."""
POLL_S = 1.0


@dataclass(frozen=True)
class Wish:
    """What somebody wants to see."""

    checkpoint: str = "best"
    """`best`, `latest` or the number of an update."""
    seed: int | None = None
    episodes: int = 1
    sampled: bool = False
    """Sample the actions; otherwise they are chosen as in the run's probes."""


@dataclass(frozen=True)
class Scene:
    """A checkpoint with everything that is needed to play it."""

    run: str
    checkpoint: Checkpoint
    spec: ProbeSpec
    policy: Any
    games: tuple[int, ...]
    """Places in `spec.seeds` that are wanted."""
    env_steps: int
    """Steps of the run at the checkpoint."""

    @property
    def title(self) -> str:
        """Name of the run and update of the checkpoint."""
        return f"{self.run} · update {self.checkpoint.update}"

    def takes(self, progress: Callable[[int, int], None] | None = None) -> list[Take]:
        """Play the episodes and return their films; where several fit into one picture, that is one."""
        takes = film_games(self.spec, self.policy, self.games, progress, self.env_steps)
        return [side_by_side(self.spec.world, takes)] if headline(self.spec.world).grid else takes


def choose_checkpoint(directory: RunDirectory, wish: str) -> Checkpoint:
    """Return the checkpoint that is wanted; without any, say what can be done."""
    checkpoints = directory.checkpoints()
    if not checkpoints.all():
        raise StorageError(
            f"{directory.name} has no checkpoint yet. Wait for the first one, or let this wait: "
            f"{to_type('watch', directory.path, '--live')}"
        )
    if wish == "best":
        return checkpoints.best()
    return checkpoints.find(None if wish == "latest" else int(wish))


def set_scene(directory: RunDirectory, config: Config, checkpoint: Checkpoint, wish: Wish) -> Scene:
    """Return the checkpoint with the episodes that are wanted; its files are not needed afterwards."""
    policy, scripts = players_of(directory, config, checkpoint)
    probes = [p for p in read_lines(directory.path / "evals.jsonl") if p.get("seeds")]
    before = [p for p in probes if int(p["update"]) <= checkpoint.update]
    spec = replace(
        probe_spec(config),
        values=values_at(probes, checkpoint),
        scripts=scripts,
        deterministic=config.probe.deterministic and not wish.sampled,
    )
    measured: Sequence[int] = ()
    if before and int(before[-1]["update"]) == checkpoint.update:
        measured = [int(seed) for seed in before[-1]["seeds"]]
    if wish.seed is not None:
        wanted = [wish.seed + k for k in range(wish.episodes)]
    elif len(measured) >= wish.episodes:
        wanted = list(measured[: wish.episodes])
    else:
        wanted = list(draw_seeds(config.probe.seed, wish.episodes))
    seeds = tuple(measured) if set(wanted) <= set(measured) else tuple(wanted)
    games = tuple(seeds.index(seed) for seed in wanted)
    env_steps = int(checkpoint.manifest().get("env_steps", 0))
    return Scene(directory.name, checkpoint, replace(spec, seeds=seeds), policy, games, env_steps)


class Stage(Protocol):
    """Where a film is shown."""

    @property
    def closed(self) -> bool:
        """Whether nobody looks any more."""
        ...

    def show(self, take: Take, scene: Scene) -> None:
        """Show one film."""
        ...


class OnScreen:
    """A window; films run at their own speed."""

    def __init__(self, window: Window) -> None:
        self.window = window

    @property
    def closed(self) -> bool:
        """Whether the window was closed."""
        return self.window.closed

    def show(self, take: Take, scene: Scene) -> None:
        """Show one film."""
        size = SIZES.get(scene.spec.world, 0)
        play(self.window, take.film.pictures(size=size, title=scene.title), take.film.rate)


class OnFile:
    """A file; the films of one `with` block follow each other in it."""

    closed = False

    def __init__(self, path: Path, quiet: bool = False) -> None:
        self.path, self.quiet = checked_path(path), quiet
        self._every = EVERY[path.suffix]
        self._sizes = SMALL if path.suffix == ".gif" else SIZES
        self._stack = ExitStack()
        self._film: FilmWriter | None = None

    def __enter__(self) -> OnFile:
        self._stack.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._film = None
        self._stack.__exit__(*error)

    def show(self, take: Take, scene: Scene) -> None:
        """Append one film."""
        if self._film is None:
            fps = take.film.rate / self._every
            self._film = self._stack.enter_context(open_film(self.path, fps))
        size = self._sizes.get(scene.spec.world, 0)
        pictures = take.film.pictures(size=size, every=self._every, title=scene.title)
        known = take.film.length // self._every if take.episodes else 0
        with Progress("filming", off=self.quiet) as progress:
            for done, picture in enumerate(pictures, 1):
                self._film.add(picture)
                progress.show(done, known, f"to {self.path}")


def perform(
    scene: Scene, stage: Stage, say: Callable[[str], None], quiet: bool = False
) -> list[dict[str, Any]]:
    """Play a scene on a stage, say how each episode ended, and return that as records."""
    told: list[dict[str, Any]] = []
    with Progress("playing", off=quiet) as progress:
        takes = scene.takes(progress.show)
    for k, take in enumerate(takes):
        if stage.closed:
            break
        stage.show(take, scene)
        made = records(scene, take, k)
        told += made
        for record in made:
            say(
                f"seed {record['seed']}, update {record['update']}: {record['outcome']}, "
                f"{record['steps']} steps"
            )
    return told


def records(scene: Scene, take: Take, k: int) -> list[dict[str, Any]]:
    """Return one record an episode of a take; foreign films know their own end only."""
    about = {"update": scene.checkpoint.update}
    if isinstance(take.film, ForeignFilm):
        film = take.film
        said = {"steps": film.steps, "outcome": take.told(scene.spec.world)}
        return [{"seed": film.seed, **about, **said, "return": film.total}]
    games = scene.games if len(take.episodes) > 1 else scene.games[k : k + 1]
    return [
        dict(
            plain(
                {
                    "seed": scene.spec.seeds[game],
                    **about,
                    "steps": episode.steps,
                    "ended": episode.ended,
                    "outcome": outcome(scene.spec.world, episode),
                    "return": float(episode.returns.mean()),
                    **episode.facts,
                }
            )
        )
        for game, episode in zip(games, take.episodes, strict=True)
    ]


def follow(
    directory: RunDirectory,
    config: Config,
    wish: Wish,
    stages: Callable[[], AbstractContextManager[Stage]],
    say: Callable[[str], None],
    once: bool,
) -> Iterator[list[dict[str, Any]]]:
    """Play the newest checkpoint of a run again and again, and yield what happened, until the run has ended.

    With `once` every checkpoint is played once and the next one is waited for; otherwise new episodes of the same
    checkpoint are played meanwhile.
    """
    seen, tries, episode, waiting = -1, 0, 0, False
    while True:
        over = directory.state() != "running"
        held = directory.checkpoints().all()
        if held and (held[-1].update > seen or (not once and not over)):
            tries = 0 if held[-1].update > seen else tries
            seen, waiting = held[-1].update, False
            seed = None if wish.seed is None else wish.seed + episode
            try:
                one = replace(wish, seed=seed, episodes=1)
                checkpoint = directory.checkpoints().find(seen)
                scene = set_scene(directory, config, checkpoint, one)
            except (StorageError, FileNotFoundError) as error:
                if over:
                    raise
                tries += 1
                if tries == 2:  # the first time it may have been replaced by a newer one meanwhile
                    say(f"waiting for the next checkpoint: {error}")
                time.sleep(POLL_S)
                continue
            with stages() as stage:
                yield perform(scene, stage, say)
                if stage.closed:
                    return
            episode += 1
        elif over:
            return
        else:
            if not waiting:
                after = f"after update {seen}" if seen >= 0 else "at all"
                say(f"waiting: {directory.name} has no checkpoint {after} yet (Ctrl-C ends this)")
            waiting = True
            time.sleep(POLL_S)
