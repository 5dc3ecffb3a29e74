"""The look of report.html and the small pieces of HTML that it is made of; everything is escaped here."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

MIME = {".png": "image/png", ".gif": "image/gif", ".mp4": "video/mp4"}

RIGHT, BEST = ' class="n"', ' class="best"'

CSS = """
:root { color-scheme: light dark; --ground: #f4f6f8; --card: #ffffff; --ink: #18222c; --quiet: #5d6b78;
  --line: #e0e5ea; --accent: #0072B2; --good: #00805d; --warn: #a86a00; --bad: #c04400; --code: #eef2f5; }
@media (prefers-color-scheme: dark) { :root { --ground: #0e141a; --card: #17202a; --ink: #e6edf3;
  --quiet: #98a6b3; --line: #2a3642; --accent: #56B4E9; --good: #2fc294; --warn: #e6a63c; --bad: #ff8a4c;
  --code: #101820; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); line-height: 1.5;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 32px 24px 64px; }
header { display: flex; flex-wrap: wrap; align-items: baseline; gap: 6px 14px; }
h1 { font-size: 30px; line-height: 1.2; margin: 0; letter-spacing: -.01em; overflow-wrap: anywhere; }
h2 { font-size: 19px; margin: 44px 0 14px; letter-spacing: -.005em; }
.sub { color: var(--quiet); margin: 6px 0 0; }
.chip { font-size: 13px; font-weight: 600; padding: 2px 11px; border-radius: 99px; border: 1px solid currentColor; }
.good { color: var(--good); } .warn { color: var(--warn); } .bad { color: var(--bad); }
.cards { display: grid; gap: 14px; grid-template-columns: repeat(auto-fit, minmax(235px, 1fr)); margin-top: 24px; }
.card, figure, .box { background: var(--card); border: 1px solid var(--line); border-radius: 12px; }
.card { padding: 14px 18px 16px; }
.card .name { color: var(--quiet); font-size: 13px; }
.card .value { font-size: 29px; font-weight: 650; line-height: 1.25; font-variant-numeric: tabular-nums; }
.card .note { color: var(--quiet); font-size: 13px; font-variant-numeric: tabular-nums; }
.gauge { position: relative; height: 7px; border-radius: 4px; background: var(--line); margin-top: 10px; }
.gauge i { position: absolute; inset: 0 auto 0 0; border-radius: 4px; background: var(--accent); }
.gauge b { position: absolute; top: -4px; bottom: -4px; width: 2px; background: var(--ink); }
.figures { display: grid; gap: 16px; grid-template-columns: repeat(2, minmax(0, 1fr)); grid-auto-flow: dense; }
figure { margin: 0; overflow: hidden; display: flex; flex-direction: column; }
figure.clip { align-self: start; }
figure.wide { grid-column: 1 / -1; }
figure .scroll { flex: 1; display: flex; align-items: center; background: #fff; }
figure img { display: block; width: 100%; height: auto; background: #fff; padding: 12px 14px 6px; }
figure.clip img { padding: 0; background: #0b0f15; }
figure video { display: block; width: 100%; background: #0b0f15; }
.films { grid-template-columns: repeat(3, minmax(0, 1fr)); }
figcaption { padding: 10px 16px 12px; font-size: 13.5px; color: var(--quiet); border-top: 1px solid var(--line); }
figcaption b { color: var(--ink); }
.clips { grid-template-columns: repeat(3, minmax(0, 1fr)); }
.single { grid-template-columns: minmax(0, 720px); }
.box { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { padding: 8px 14px; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
tr:last-child td { border-bottom: 0; }
th { color: var(--quiet); font-weight: 600; font-size: 13px; vertical-align: bottom; }
td.n, th.n { text-align: right; }
td.n { white-space: nowrap; }
td small { color: var(--quiet); font-size: 12px; }
tr.best td { font-weight: 650; }
pre { margin: 0; padding: 14px 18px; overflow-x: auto; background: var(--code); border-radius: 12px;
  border: 1px solid var(--line); font: 13px/1.55 ui-monospace, "SF Mono", Menlo, Consolas, monospace;
  white-space: pre-wrap; overflow-wrap: anywhere; }
code { font: 13px ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
pre + p, p + pre, .box + p, pre + details { margin-top: 12px; }
details summary { cursor: pointer; color: var(--quiet); padding: 4px 0; }
.empty { color: var(--quiet); }
footer { color: var(--quiet); font-size: 13px; margin-top: 48px; }
@media (max-width: 760px) { main { padding: 20px 14px 48px; } .figures, .clips, .films { grid-template-columns: minmax(0, 1fr); }
  .cards { grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 10px; } .card { padding: 12px 14px; }
  figure .scroll { overflow-x: auto; } figure.wide img { width: 760px; max-width: none; } }
@media (prefers-color-scheme: dark) { figure.plot .scroll { background: #1d1d1d; } figure.plot img { filter: invert(.91) hue-rotate(180deg) contrast(.94); } }
@media print { body { background: #fff; } .card, figure, .box { break-inside: avoid; } }
"""


@dataclass(frozen=True)
class Cell:
    """One cell of a table; `note` stands small beside it, numbers are set to the right."""

    text: str
    note: str = ""
    right: bool = False


def page(title: str, body: Sequence[str]) -> str:
    """Return a whole HTML document that needs nothing but itself."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in body if part)
        + "\n</main>\n</body>\n</html>\n"
    )


def section(title: str, *parts: str) -> str:
    """Return a titled section, or nothing when it has no content."""
    inside = "\n".join(part for part in parts if part)
    return f"<section>\n<h2>{escape(title)}</h2>\n{inside}\n</section>" if inside else ""


def chip(text: str, kind: str = "") -> str:
    """Return a small label: good, warn or bad."""
    return f'<span class="chip {escape(kind)}">{escape(text)}</span>'


def card(name: str, value: str, note: str = "", share: float | None = None, mark: float = 0) -> str:
    """Return a headline figure; `share` in [0, 1] draws a gauge, `mark` a line on it."""
    gauge = ""
    if share is not None:
        line = f'<b style="left:{100 * min(max(mark, 0), 1):.2f}%"></b>' if mark else ""
        gauge = f'<div class="gauge"><i style="width:{100 * min(max(share, 0), 1):.2f}%"></i>{line}</div>'
    return (
        f'<div class="card"><div class="name">{escape(name)}</div>'
        f'<div class="value">{escape(value)}</div><div class="note">{escape(note)}</div>{gauge}</div>'
    )


def table(head: Sequence[str], rows: Sequence[Sequence[Cell]], best: int | None = None) -> str:
    """Return a table; row `best` is set in bold. No rows, no table."""
    if not rows:
        return ""
    sides = [RIGHT if cell.right else "" for cell in rows[0]]
    top = "".join(f"<th{side}>{escape(h)}</th>" for h, side in zip(head, sides, strict=True))
    lines = []
    for k, row in enumerate(rows):
        cells = "".join(_cell(cell) for cell in row)
        lines.append(f"<tr{BEST if k == best else ''}>{cells}</tr>")
    body = "\n".join(lines)
    return f'<div class="box"><table><thead><tr>{top}</tr></thead>\n<tbody>{body}</tbody></table></div>'


def picture(path: Path, title: str, caption: str, kind: str = "") -> str:
    """Return a figure with the image inside the page; on a narrow screen a wide one is scrolled."""
    return (
        f'<figure class="{escape(kind)}"><div class="scroll"><img alt="{escape(title)}" '
        f'src="{data_uri(path)}"></div>'
        f"<figcaption><b>{escape(title)}.</b> {escape(caption)}</figcaption></figure>"
    )


def film(path: Path, title: str, caption: str, playing: bool = False) -> str:
    """Return a figure with the film inside the page; `playing` begins at once and goes on for ever."""
    how = "autoplay playsinline" if playing else 'preload="metadata"'
    return (
        f'<figure class="clip"><video controls loop muted {how} aria-label="{escape(title)}" '
        f'src="{data_uri(path)}"></video>'
        f"<figcaption><b>{escape(title)}.</b> {escape(caption)}</figcaption></figure>"
    )


def data_uri(path: Path) -> str:
    """Return a file as a data URI."""
    coded = base64.b64encode(path.read_bytes()).decode("ascii")
    return f"data:{MIME[path.suffix]};base64,{coded}"


def text_block(text: str) -> str:
    """Return preformatted text."""
    return f"<pre>{escape(text)}</pre>"


def paragraph(text: str, kind: str = "") -> str:
    """Return one paragraph."""
    return f'<p class="{escape(kind)}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def folded(summary: str, content: str) -> str:
    """Return content behind a summary that opens it."""
    return f"<details><summary>{escape(summary)}</summary>\n{content}\n</details>"


def _cell(cell: Cell) -> str:
    note = f" <small>{escape(cell.note)}</small>" if cell.note else ""
    return f"<td{RIGHT if cell.right else ''}>{escape(cell.text)}{note}</td>"
