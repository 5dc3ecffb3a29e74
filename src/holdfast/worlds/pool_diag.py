"""What a directory of collected diagnostics says: where each worker stopped, for how long, and why.

It reads `env_events.jsonl` files, fault reports and stack files of Holdfast, and the per-environment
logs of the original system (`env_init_idx<i>_pid<pid>.log`: Unix time, TAB, phase tag).
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.errors import StorageError
from holdfast.store.journal import read_lines

OLD_LOG = re.compile(r"env_init_idx(\d+)_pid(\d+)\.log")
SIGNATURES = (
    ("uint8", "NumPy 2 refuses to overflow uint8: nes_py 8.2.1 with NumPy >= 2 (pin, or patch it)"),
    ("NumPy 1.x cannot be run", "a module compiled for NumPy 1 in a process with NumPy 2"),
    ("cannot open shared object", "a native library is missing"),
    ("No space left", "the disk or /dev/shm is full"),
    ("Cannot allocate memory", "out of memory"),
)


@dataclass
class Trail:
    """The phases of one environment in one process, in order."""

    source: str
    env: int
    pid: int
    marks: list[tuple[float, str, str]] = field(default_factory=list)
    """Time, phase, status (begin, ok, error)."""
    texts: list[str] = field(default_factory=list)


def summarise(folder: Path) -> dict[str, Any]:
    """Return the summary of a directory of diagnostics."""
    if not folder.is_dir():
        raise StorageError(f"The directory {folder} is not there.")
    trails = [*_from_events(folder), *_from_logs(folder)]
    if not trails:
        raise StorageError(
            f"There are no diagnostics in {folder}: neither env_events.jsonl nor env_init_idx*.log."
        )
    ends: dict[str, float] = {}
    for trail in trails:
        ends[trail.source] = max(ends.get(trail.source, 0.0), trail.marks[-1][0])
    rows = [_row(trail, ends[trail.source]) for trail in trails]
    gaps = [(row["longest_gap_s"], row) for row in rows]
    longest = max(gaps, key=lambda pair: pair[0])[1] if gaps else {}
    return {
        "directory": str(folder),
        "workers": rows,
        "last_phases": dict(Counter(row["last_phase"] for row in rows).most_common()),
        "longest_gap": {k: longest[k] for k in ("env", "pid", "longest_gap_s", "gap_after")},
        "signatures": dict(
            Counter(row["signature"] for row in rows if row["signature"]).most_common()
        ),
        "reports": sorted(str(p) for p in folder.rglob("env_fault_*.md")),
        "stacks": sorted(str(p) for p in folder.rglob("stacks.txt") if p.stat().st_size),
    }


def markdown(summary: dict[str, Any]) -> str:
    """Return a summary as Markdown."""
    lines = [
        f"# Diagnostics of {summary['directory']}",
        "",
        "| last phase | workers |",
        "|---|---|",
    ]
    lines += [f"| {phase} | {count} |" for phase, count in summary["last_phases"].items()]
    gap = summary["longest_gap"]
    lines += [
        "",
        f"Longest gap: {gap['longest_gap_s']:.2f} s after `{gap['gap_after']}` in env {gap['env']} "
        f"(pid {gap['pid']}).",
        "",
    ]
    for text, count in summary["signatures"].items():
        lines.append(f"- {count} x {text}")
    lines += ["", "| env | pid | last phase | s in it | signature |", "|---|---|---|---|---|"]
    lines += [
        f"| {r['env']} | {r['pid']} | {r['last_phase']} | {r['time_in_last_phase_s']:.2f} | "
        f"{r['signature']} |"
        for r in summary["workers"]
    ]
    for key in ("reports", "stacks"):
        lines += ["", *(f"- {key[:-1]}: {path}" for path in summary[key])]
    return "\n".join(lines).rstrip() + "\n"


def _from_events(folder: Path) -> Iterable[Trail]:
    for path in sorted(folder.rglob("env_events.jsonl")):
        trails: dict[tuple[int, int], Trail] = {}
        last = 0.0
        for event in read_lines(path):
            last = float(event["ts"])
            if event["env"] < 0:
                continue
            key = (int(event["env"]), int(event["pid"]))
            trail = trails.setdefault(key, Trail(str(path), *key))
            trail.marks.append((last, str(event["phase"]), str(event["status"])))
            trail.texts += [str(event.get(k) or "") for k in ("error_type", "error_msg")]
        yield from trails.values()


def _from_logs(folder: Path) -> Iterable[Trail]:
    for path in sorted(folder.rglob("env_init_idx*_pid*.log")):
        match = OLD_LOG.fullmatch(path.name)
        if match is None:
            continue
        trail = Trail(str(path.parent), int(match[1]), int(match[2]))
        for line in path.read_text(errors="replace").splitlines():
            time_text, tab, tag = line.partition("\t")
            try:
                at = float(time_text)
            except ValueError:
                trail.texts.append(line)
                continue
            if not tab:
                continue
            phase, _, detail = tag.partition(":")
            failed = "error" in phase or "timeout" in phase
            status = "error" if failed else "ok" if phase.endswith(("done", "ok")) else "begin"
            trail.marks.append((at, phase, status))
            trail.texts.append(detail)
        if trail.marks:
            yield trail


def _row(trail: Trail, end: float) -> dict[str, Any]:
    times = [at for at, _, _ in trail.marks] + [max(end, trail.marks[-1][0])]
    gaps = [b - a for a, b in itertools.pairwise(times)]
    widest = max(range(len(gaps)), key=gaps.__getitem__)
    _, phase, status = trail.marks[-1]
    return {
        "env": trail.env,
        "pid": trail.pid,
        "source": trail.source,
        "last_phase": phase if status != "error" else f"{phase} (error)",
        "time_in_last_phase_s": gaps[-1],
        "longest_gap_s": gaps[widest],
        "gap_after": trail.marks[widest][1],
        "signature": _signature(trail),
    }


def _signature(trail: Trail) -> str:
    text = " ".join(trail.texts)
    for needle, meaning in SIGNATURES:
        if needle in text:
            return meaning
    phases = [phase for _, phase, _ in trail.marks]
    _, last, status = trail.marks[-1]
    if set(phases) == {"startup_wait"}:
        return "starved by its predecessor: it only ever waited for its turn"
    if status == "begin" and last in ("construct", "calling_mario_make"):
        return "stopped in the environment's constructor: native initialisation"
    if status == "begin" and last in ("reset", "step"):
        return f"stopped in {last}"
    if "Hang" in trail.texts:
        return f"hung in {last}"
    crashed = next((t for t in trail.texts if t.startswith("SIG")), "")
    return f"killed by {crashed} in {last}" if crashed else text.strip()[:120]
