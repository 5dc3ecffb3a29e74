"""The progress panel: one rich renderable made from a `Tally`."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from holdfast.probes.headlines import words
from holdfast.view.numbers import clock, figure, number, short
from holdfast.view.tally import PARTS, Tally

WIDTH = 118
BAR = 22
BARS = {"world": "blue", "policy": "cyan", "learn": "yellow", "probe": "green", "other": "white"}
LIGHTS = {"green": "green", "yellow": "yellow", "red": "bold red"}
TICKS = "▁▂▃▄▅▆▇█"
SIGNALS = (
    ("return", "episode/return_mean"),
    ("length", "episode/length_steps"),
    ("entropy", "train/entropy_mean"),
    ("KL", "train/approx_kl"),
    ("explained var.", "train/explained_variance"),
)
"""Rows of the training column below the main signal, where they are known."""


def draw(title: str, tally: Tally, width: int) -> RenderableType:
    """Return the panel of the moment, at most `width` columns wide."""
    columns = Table.grid(expand=True, padding=(0, 1))
    columns.add_column(ratio=1)
    columns.add_column(ratio=1)
    columns.add_row(_time(tally), _training(tally))
    rows: list[RenderableType] = [_progress(tally), _speed(tally), Text(""), columns, Text("")]
    if tally.probe is not None:
        rows.append(_probe(tally))
    if tally.lights:
        rows.append(_lights(tally))
    rows += [
        Text(f" › {event}", style="dim", no_wrap=True, overflow="ellipsis")
        for event in list(tally.events)
    ]
    return Panel(
        Group(*rows),
        title=Text(f" {title} ", style="bold"),
        title_align="left",
        subtitle=Text(f" {clock(tally.elapsed_s)} ", style="dim"),
        subtitle_align="right",
        border_style="blue",
        box=box.ROUNDED,
        width=min(width, WIDTH),
    )


def _progress(tally: Tally) -> RenderableType:
    line = Table.grid(expand=True, padding=(0, 1))
    line.add_column(ratio=1)
    line.add_column(justify="right", no_wrap=True)
    share = tally.update / tally.updates if tally.updates else 0.0
    left = tally.left_s
    words = Text(f"{tally.update}/{tally.updates or '?'} updates", style="bold")
    words.append(f"  {share:.0%}", style="cyan")
    if not tally.line:
        words = Text("the first update is under way", style="dim")
    elif left is not None:
        words.append(f"  {clock(left)} left" if left else "  done", style="dim")
    line.add_row(
        ProgressBar(total=max(tally.updates, 1), completed=tally.update, complete_style="cyan"),
        words,
    )
    return line


def _speed(tally: Tally) -> Text:
    text = Text(" ")
    text.append(short(tally.env_steps), style="bold")
    text.append(" steps", style="dim")
    speed = tally.steps_per_s
    if speed is not None:
        text.append("   ")
        text.append(short(speed), style="bold green")
        text.append(" steps/s", style="dim")
    episodes = number(tally.line.get("episode/count"))
    if episodes is not None:
        text.append("   ")
        text.append(short(episodes), style="bold")
        text.append(" episodes", style="dim")
    return text


def _time(tally: Tally) -> RenderableType:
    rows: list[tuple[str, Text]] = []
    for part in PARTS:
        share = tally.shares[part]
        full = round(BAR * share)
        bar = Text("━" * full, style=BARS[part])
        bar.append("━" * (BAR - full), style="bright_black")
        bar.append(f" {share:4.0%}", style="default")
        rows.append((part, bar))
    return _block("where the time goes", rows, 7)


def _training(tally: Tally) -> RenderableType:
    main = tally.headline.signal
    wanted = [(name, signal) for name, signal in SIGNALS if signal != main]
    wanted.insert(0, (words(main), main))
    rows: list[tuple[str, Text]] = []
    for name, signal in wanted:
        values = tally.values(signal)
        if values:
            parts = [f"{role} {figure(value)}".lstrip() for role, value in values]
            text = Text(f"{'  '.join(parts):<9}", style="default")
            if signal == main:
                text.append(sparkline(list(tally.history), 18), style="cyan")
            rows.append((name, text))
    scales = dict(tally.values("train/lr_scale"))
    rates = [
        f"{role} {rate * scales.get(role, 1.0):.2e}".lstrip()
        for role, rate in tally.values("train/lr")
    ]
    if rates:
        rows.append(("learning rate", Text("  ".join(rates))))
    return _block("training", rows, 14)


def _block(title: str, rows: list[tuple[str, Text]], width: int) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(style="dim", no_wrap=True, width=width)
    grid.add_column(no_wrap=True)
    for name, value in rows:
        grid.add_row(name, value)
    return Padding(Group(Text(title, style="bold"), grid), (0, 0, 0, 1))


def sparkline(values: list[float], width: int) -> str:
    """Return the course of values as `width` block characters, low to high."""
    if len(values) < 2:
        return ""
    count = min(width, len(values))
    picked = [values[round(k * (len(values) - 1) / (count - 1))] for k in range(count)]
    low, high = min(picked), max(picked)
    span = (high - low) or 1.0
    return "".join(TICKS[int((v - low) / span * (len(TICKS) - 1) + 0.5)] for v in picked)


def _probe(tally: Tally) -> Text:
    probe = tally.probe
    text = Text(" probe   ", style="bold", no_wrap=True, overflow="ellipsis")
    if probe is None:
        return text
    text.append(f"{probe.name} ", style="not bold dim")
    text.append(figure(probe.value), style="bold cyan")
    text.append(f" at update {probe.update}", style="not bold dim")
    text.append("   best ", style="not bold dim")
    text.append(figure(probe.best), style="bold green")
    text.append(f" at {probe.best_update}", style="not bold dim")
    if probe.ceiling is not None:
        text.append("   ceiling ", style="not bold dim")
        text.append(figure(probe.ceiling), style="not bold")
    for word, value in probe.beside:
        text.append(f"   {word} ", style="not bold dim")
        text.append(figure(value), style="not bold")
    return text


def _lights(tally: Tally) -> Text:
    text = Text(" guards  ", style="bold", no_wrap=True, overflow="ellipsis")
    for name, light in tally.lights.items():
        text.append("● ", style=LIGHTS.get(light, "white"))
        text.append(f"{name}   ", style="not bold")
    return text
