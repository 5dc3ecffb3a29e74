"""`report.html`: one file that tells a run, with everything inside it.

What happened, how good it is beside what was possible, how to make it again, the curves, the clips, every
probe, every decision with its cause, every session, every setting. It needs no network and no
script.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from html import escape
from pathlib import Path
from statistics import median
from typing import Any

from holdfast.commands import to_type
from holdfast.errors import HoldfastError
from holdfast.probes.headlines import words
from holdfast.store.files import read_json, write_atomic
from holdfast.toml_text import untyped
from holdfast.view.files import Line, RunFiles
from holdfast.view.numbers import brackets, clock, figure, number, short
from holdfast.view.page import (
    Cell,
    card,
    chip,
    film,
    folded,
    page,
    paragraph,
    picture,
    section,
    table,
    text_block,
)
from holdfast.worlds import OURS

STATES = {
    "finished": "good",
    "running": "good",
    "interrupted": "warn",
    "out_of_time": "warn",
    "killed": "bad",
    "stopped": "bad",
    "failed": "bad",
}
FREE = ("world.kwargs.", "probe.world.kwargs.", "guards.own.")
"""Tables whose values are typed as TOML has them."""
SHOWN_DECISIONS = 200
FILM_BYTES = 12_000_000
"""Most bytes of films inside the page; older ones are only listed."""
INSIDE = frozenset({"worst", "grid"})
"""Films of evaluations that stand in the page."""


def write_report(run: Path) -> Path:
    """Write `report.html` from the files of a run and return its path."""
    files = RunFiles(run)
    body = [
        _header(files),
        _cards(files),
        section("Learning", _figures(files, lambda name: name == "learning"), _growth(files)),
        section("Episodes of the best policy", _clips(files)),
        section("Self-play", *_selfplay(files)),
        section("Pictures", _figures(files, _of_the_rest)),
        section("Probes", _probes(files)),
        section("Evaluations on film", *_films(files)),
        section("Decisions of the guards", _decisions(files)),
        section("Sessions", _sessions(files)),
        section("How to make it again", *_again(files)),
        section("Settings", _settings(files)),
        f"<footer>Holdfast, {time.strftime('%Y-%m-%d %H:%M %Z')}. This file is complete in itself.</footer>",
    ]
    path = run / "report.html"
    write_atomic(path, page(f"{files.name}: a run in {files.world}", body))
    return path


def command(files: RunFiles) -> str:
    """Return the command that makes the same run under another name."""
    again = f"{files.name}-again"
    try:
        from holdfast.config import from_tables, leaves, resolve

        config = from_tables(files.config)
        if config.phases:  # tables of phases cannot be typed
            raise KeyError("phase")
        usual = leaves(resolve(config.world.name))
        words = ["holdfast", "train", config.world.name, "--run", again]
        # Giving `updates` takes the preset's `env_steps` away, so only the one that rules is named.
        length = "run.env_steps" if config.run.env_steps else "run.updates"
        named, unnamed = ("run.seed", length), ("run.name", "world.name", "run.updates")
        for key, value in leaves(config).items():
            if key not in named and (key in unnamed or usual.get(key) == value):
                continue
            words += _typed(key, value)
        return shlex.join(words)
    except (HoldfastError, KeyError):
        return shlex.join(["holdfast", "train", str(files.path / "run.toml"), "--run", again])


def _typed(key: str, value: Any) -> list[str]:
    """Return a setting as it is typed, a table one by one."""
    if isinstance(value, dict):
        return [word for name, inner in value.items() for word in _typed(f"{key}.{name}", inner)]
    if key.startswith(FREE):
        return [_flag(key), untyped(value)]
    return [_flag(key), ",".join(map(str, value)) if isinstance(value, tuple) else str(value)]


def _flag(key: str) -> str:
    return "--" + key.removeprefix("run.").replace("_", "-")


def repeatable(files: RunFiles) -> bool:
    """Return whether the command that makes a run again makes the same one: it was neither resumed with other settings, nor
    resumed at all in an environment that cannot save its state."""
    begun = [line for line in files.sessions if line.get("event") == "begin"]
    if any(line.get("changed") for line in begun):
        return False
    return files.world in OURS or not any(line.get("resumed") for line in begun)


def _header(files: RunFiles) -> str:
    state = state_of(files)
    beat = files.heartbeat
    facts = [files.world]
    seed = files.config.get("run", {}).get("seed")
    if seed is not None:
        facts.append(f"seed {seed}")
    if beat.get("updates"):
        facts.append(f"update {beat.get('update', 0)} of {beat['updates']}")
    if files.metrics:
        facts.append(f"{short(number(files.metrics[-1].get('env_steps')) or 0)} environment steps")
        facts.append(f"{clock(files.trained_s)} of training")
    return (
        f"<header><h1>{escape(files.name)}</h1>{chip(state.replace('_', ' '), STATES.get(state, ''))}"
        f'</header>\n<p class="sub">{escape(" · ".join(facts))}</p>'
    )


def state_of(files: RunFiles) -> str:
    """Return running, finished, interrupted, killed and so on."""
    from holdfast.run import RunDirectory

    try:
        return RunDirectory(files.path).state()
    except HoldfastError:
        return "unknown"


def _cards(files: RunFiles) -> str:
    cards = []
    if files.evals:
        last, main = files.evals[-1], files.main
        shared = files.headline.share and main == files.headline.metric
        value = number(last["metrics"].get(main))
        ceiling = number(last["metrics"].get(f"ceiling_{main}"))
        if value is not None:
            note = _interval(last, main, "95 % interval ")
            if ceiling is not None:
                note += f"; ceiling {figure(ceiling)}"
            share = value if shared else None
            name = f"{words(main)}, last probe (update {last.get('update')})"
            cards.append(card(name.capitalize(), figure(value), note, share, ceiling or 0))
            best = next((e for e in files.evals if e.get("update") == files.best_update), last)
            found = number(best["metrics"].get(main))
            if found is not None and best is not last:
                name = f"{words(main)}, best probe (update {best.get('update')})".capitalize()
                share = found if shared else None
                note = _interval(best, main, "95 % interval ")
                cards.append(card(name, figure(found), note, share, ceiling or 0))
        for name in files.headline.cards:
            value = number(last["metrics"].get(name))
            if value is not None and name != main:
                cards.append(
                    card(words(name).capitalize(), figure(value), _interval(last, name, "95 % "))
                )
    speeds = [number(line.get("time/env_steps_per_s")) for line in files.metrics]
    known = [s for s in speeds if s is not None]
    if known:
        cards.append(card("Speed", f"{short(median(known))}/s", "environment steps, median"))
    return f'<div class="cards">{"".join(cards)}</div>' if cards else ""


def _figures(files: RunFiles, wanted: Callable[[str], bool]) -> str:
    from holdfast.view.plots import plots

    shown = []
    for plot in plots():
        path = files.path / "plots" / f"{plot.name}.png"
        if path.is_file() and wanted(plot.name):
            shown.append(
                picture(path, plot.title, plot.caption, "plot wide" if plot.wide else "plot")
            )
    return f'<div class="figures">{"".join(shown)}</div>' if shown else ""


def _selfplay(files: RunFiles) -> list[str]:
    from holdfast.view.selfplay import selfplay_parts

    return [*selfplay_parts(files), _figures(files, _of_selfplay)]


def _of_selfplay(name: str) -> bool:
    return name.startswith("selfplay_")


def _of_the_rest(name: str) -> bool:
    return name != "learning" and not _of_selfplay(name)


def _clips(files: RunFiles) -> str:
    """Return the films of the best policy."""
    try:
        clips = read_json(files.path / "media" / "clips.json")
    except HoldfastError:
        return ""
    shown = []
    for clip in sorted(clips, key=lambda clip: str(clip["rank"])):  # best, median, worst
        path = files.path / "media" / f"{clip['name']}.mp4"
        if path.is_file():
            rank = str(clip["rank"])
            name = "Episodes of the probe" if rank == "grid" else f"{rank.capitalize()} episode"
            seeds = f"seed {clip['seed']}" if rank != "grid" else f"{len(clip['seeds'])} seeds"
            caption = f"{clip.get('outcome', '')}; {seeds}, update {clip['update']}."
            shown.append(film(path, name, caption, playing=True))
    kind = "clips" if len(shown) > 1 else "single"
    return f'<div class="figures {kind}">{"".join(shown)}</div>' if shown else ""


def _growth(files: RunFiles) -> str:
    path = files.path / "media" / "curve.gif"
    if not path.is_file():
        return ""
    shown = picture(path, "The curve as it grew", "Training, probes and their ceiling.", "clip")
    return folded("The curve as it grew", f'<div class="figures">{shown}</div>')


def _films(files: RunFiles) -> list[str]:
    """Return the films of every evaluation: the worst ones inside the page, newest first, and all as a table."""
    folder = files.path / "media" / "evals"
    told: list[Line] = []
    for listed in sorted(folder.glob("u*.json")):
        try:
            told += read_json(listed)
        except HoldfastError:
            continue
    inside, rows, size = [], [], 0
    for clip in reversed(told):
        path = folder / str(clip["file"])
        if not path.is_file():
            continue
        rank = str(clip["rank"])
        size += path.stat().st_size if rank in INSIDE else 0
        if rank in INSIDE and size <= FILM_BYTES:
            name = f"update {clip['update']}, {rank}{'' if rank == 'grid' else ' episode'}"
            inside.append(
                film(path, name.capitalize(), f"{clip.get('outcome', '')}; seed {clip['seed']}.")
            )
        rows.append(
            [
                Cell(str(clip["update"]), right=True),
                Cell(rank),
                Cell(str(clip.get("outcome", ""))),
                Cell(f"media/evals/{clip['file']}"),
                Cell(str(clip["replay"])),
            ]
        )
    shown = f'<div class="figures films">{"".join(inside)}</div>' if inside else ""
    listing = table(["update", "episode", "outcome", "film", "command that shows it again"], rows)
    return (
        [shown, folded("All films and the commands that show them again", listing)] if rows else []
    )


def _probes(files: RunFiles) -> str:
    names = [
        n
        for n in files.headline.columns
        if any(number(e["metrics"].get(n)) is not None for e in files.evals)
    ]
    if files.main not in names and files.evals:
        names.insert(0, files.main)
    ceiling = f"ceiling_{files.main}"
    if any(ceiling in e["metrics"] for e in files.evals):
        names.insert(names.index(files.main) + 1, ceiling)
    rows = []
    for e in files.evals:
        row = [
            Cell(str(e.get("update", "")), right=True),
            Cell(short(number(e.get("env_steps")) or 0), right=True),
        ]
        for n in names:
            value = number(e["metrics"].get(n))
            text = "" if value is None else figure(value)
            row.append(Cell(text, _interval(e, n) if n == files.main else "", True))
        rows.append(row)
    best = next(
        (k for k, e in enumerate(files.evals) if e.get("update") == files.best_update), None
    )
    head = ["update", "env steps", *(words(n) for n in names)]
    made = table(head, rows, best)
    episodes = len(files.evals[-1].get("seeds", [])) if files.evals else 0
    fresh = files.config.get("probe", {}).get("seeds") == "fresh"
    seeds = "new seeds" if fresh else "the same seeds"
    note = (
        f"{episodes} episodes on {seeds} each time; bold is the best; brackets are 95 % intervals."
    )
    return made + paragraph(note, "sub") if made else paragraph("No probe was made.", "empty")


def _decisions(files: RunFiles) -> str:
    rows = []
    for d in files.decisions[-SHOWN_DECISIONS:]:
        cause: Line = d.get("cause") or {}
        why = f"{cause.get('signal', '?')} = {_plain(cause.get('value'))}"
        limits = f"threshold {_plain(cause.get('threshold'))}, window {_plain(cause.get('window'))}"
        did = " ".join(str(d[k]) for k in ("kind", "name") if d.get(k))
        value = f"{_plain(d.get('value'))}" if d.get("value") is not None else ""
        applied = f"read back {_plain(d.get('applied'))}" if d.get("applied") is not None else ""
        rows.append(
            [
                Cell(str(d.get("update", "")), right=True),
                Cell(str(d.get("guard", ""))),
                Cell(f"{did} {value}".strip(), applied),
                Cell(why, limits),
                Cell(str(d.get("message", ""))),
            ]
        )
    hidden = len(files.decisions) - len(rows)
    note = paragraph(f"{hidden} earlier ones stand in journal.jsonl.", "sub") if hidden else ""
    made = table(["update", "guard", "decision", "cause", "in words"], rows)
    return made + note if made else paragraph("The guards watched and changed nothing.", "empty")


def _sessions(files: RunFiles) -> str:
    rows = []
    for line in files.sessions:
        event = str(line.get("event", ""))
        if event == "begin":
            event = "resumed" if line.get("resumed") else "started"
        reason = str(line.get("reason", ""))
        rows.append(
            [
                Cell(str(line.get("at", ""))),
                Cell(f"{event}: {reason.replace('_', ' ')}" if reason else event),
                Cell(str(line.get("update", "")), right=True),
                Cell(str(line.get("pid", "")), right=True),
                Cell(str(line.get("message", ""))),
            ]
        )
    return table(["when", "what", "update", "process", "message"], rows)


def _again(files: RunFiles) -> list[str]:
    parts = [text_block(command(files))]
    manifest = files.manifest
    if manifest.get("parameters_sha256") and not repeatable(files):
        parts.append(
            paragraph(
                "It was resumed with other settings, or in an environment that cannot save its state: made again in one "
                "go it ends with other parameters.",
                "sub",
            )
        )
    elif manifest.get("parameters_sha256"):
        versions = ", ".join(f"{k} {v}" for k, v in dict(manifest.get("versions", {})).items())
        parts.append(
            paragraph(
                f"The same seed, versions, learner threads ({manifest.get('learner_threads', '?')}) and device "
                f"({manifest.get('learner_device', 'cpu')}) give the same parameters at update {manifest.get('update')}: "
                f"SHA-256 {manifest['parameters_sha256']} ({versions}). "
                f"Compare with: holdfast ckpt show {files.name}-again",
                "sub",
            )
        )
    parts.append(
        paragraph(
            f"Evaluate it with: {to_type('eval', files.path)}. Watch it with: {to_type('watch', files.path)}",
            "sub",
        )
    )
    return parts


def _settings(files: RunFiles) -> str:
    try:
        text = (files.path / "run.toml").read_text()
    except OSError:
        return ""
    return folded("run.toml, every setting as it was resolved", text_block(text))


def _interval(probe: Line, name: str, before: str = "") -> str:
    ends = [number(v) for v in (probe.get("intervals") or {}).get(name) or ()]
    if len(ends) != 2 or ends[0] is None or ends[1] is None:
        return ""
    return before + brackets(ends[0], ends[1])


def _plain(value: Any) -> str:
    found = number(value)
    return str(value) if found is None or found.is_integer() else figure(found)
