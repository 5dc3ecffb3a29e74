"""`holdfast watch`: see a policy play, in a window or on film, also while it still trains."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.answer import answer
from holdfast.cli.settings import no_settings
from holdfast.errors import ConfigError, nearest

if TYPE_CHECKING:
    from holdfast.run import RunDirectory
    from holdfast.view.watch import Stage, Wish


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="name of the run")
    parser.add_argument(
        "--checkpoint", default="", metavar="WHICH", help="best (default), latest, or an update"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=None,
        help="of the first episode (default: those of the checkpoint's evaluation)",
    )
    parser.add_argument(
        "--episodes", type=int, default=0, help="how many (default: 1; --live: all)"
    )
    parser.add_argument(
        "--sampled", action="store_true", help="sample actions (default: as the run's probes do)"
    )
    parser.add_argument(
        "--live", action="store_true", help="follow a run: take its newest checkpoint each time"
    )
    parser.add_argument(
        "--out", default="", metavar="FILE", help="film to write, .mp4 or .gif, instead of a window"
    )
    parser.epilog = (
        "Without a screen, and without --out, the film goes to the run's media/.\n"
        "Examples:\n"
        "  holdfast watch first\n"
        "  holdfast watch first --checkpoint 40 --seed 774941881 --out tail.mp4\n"
        "  holdfast watch first --live"
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    no_settings(rest)
    wish = _wish(args)
    from holdfast.run import RunDirectory
    from holdfast.store.media import checked_path

    if args.out:
        checked_path(args.out)
    directory = RunDirectory.open(Path(args.runs_dir), args.run)
    record = _live(args, directory, wish) if args.live else _recorded(args, directory, wish)
    if args.json:
        answer({"run": directory.name, **record})
    return 0


def _recorded(args: argparse.Namespace, directory: RunDirectory, wish: Wish) -> dict[str, Any]:
    """Show one checkpoint."""
    from holdfast.view.watch import OnFile, OnScreen, choose_checkpoint, perform, set_scene

    config = directory.config()
    checkpoint = choose_checkpoint(directory, wish.checkpoint)
    scene = set_scene(directory, config, checkpoint, wish)
    say = _say(args)
    window = _window(args, directory)
    if window is not None:
        try:
            return {"file": None, "episodes": perform(scene, OnScreen(window), say)}
        finally:
            window.close()
    stem = f"watch-u{checkpoint.update:06d}"
    path = Path(args.out or directory.path / "media" / f"{stem}.mp4")
    with OnFile(path, quiet=args.json) as stage:
        told = perform(scene, stage, say, quiet=args.json)
    say(f"film    {path}")
    return {"file": str(path), "episodes": told}


def _live(args: argparse.Namespace, directory: RunDirectory, wish: Wish) -> dict[str, Any]:
    """Show the newest checkpoint again and again while the run goes on."""
    from holdfast.view.watch import OnFile, OnScreen, follow

    config, say = directory.config(), _say(args)
    window = _window(args, directory)
    path = Path(args.out or directory.path / "media" / "watch-live.mp4")

    def stages() -> contextlib.AbstractContextManager[Stage]:
        if window is not None:
            return contextlib.nullcontext(OnScreen(window))
        return OnFile(path, quiet=args.json)

    told: list[dict[str, Any]] = []
    try:
        for made in follow(directory, config, wish, stages, say, once=window is None):
            told += made
            if window is None and made:
                say(f"film    {path}, update {made[-1]['update']}")
            if args.episodes and len(told) >= args.episodes:
                break
    except KeyboardInterrupt:
        say("stopped watching; the run goes on")
    finally:
        if window is not None:
            window.close()
    return {"file": str(path) if window is None and told else None, "episodes": told}


def _window(args: argparse.Namespace, directory: RunDirectory) -> Any:
    """Return a window, or None if a file is wanted or there is no screen."""
    if args.out:
        return None
    from holdfast.view.window import open_window

    window = open_window(f"holdfast · {directory.name}")
    if window is None:
        _say(args)("There is no screen here: a film is written instead.")
    return window


def _wish(args: argparse.Namespace) -> Wish:
    """Return what is asked for, or raise if it makes no sense."""
    from holdfast.view.watch import Wish

    if args.live and args.checkpoint:
        raise ConfigError(
            f"--live always takes the newest checkpoint, so not '{args.checkpoint}'. Leave one of them out."
        )
    which = args.checkpoint or "best"
    if which not in ("best", "latest") and not which.isdigit():
        raise ConfigError(
            f"--checkpoint '{which}' is not understood. Allowed: best, latest, or the number of an update, "
            f"for example 40.{nearest(which, ['best', 'latest'])}"
        )
    if args.episodes < 0:
        raise ConfigError(f"--episodes {args.episodes} is not allowed. It takes 1 or more.")
    if args.seed is not None and args.seed < 0:
        raise ConfigError(f"--seed {args.seed} is not allowed. It takes 0 or more.")
    return Wish(which, args.seed, args.episodes or 1, args.sampled)


def _say(args: argparse.Namespace) -> Callable[[str], None]:
    return lambda text: print(text, file=sys.stderr, flush=True)
