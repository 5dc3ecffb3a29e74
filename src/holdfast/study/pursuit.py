"""What a study of pursuit adds: the seed-variance table of self-play, and how long the sides stayed in balance.

The phases are read from the journal: the protocol guard writes a `train_roles` decision named `cold start`,
`S1`, `S2`, ... when a phase begins, and one named `warm start` when a phase is over and a warm start begins. What a phase
came to is the last evaluation made in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.store.journal import read_lines
from holdfast.study.child import Probed
from holdfast.study.results import Result

BAND = (0.10, 0.90)
"""Capture rates inside which neither side has won."""
COLD, WARM = "cold start", "warm start"


def pursuit_parts(
    results: Sequence[Result], study: Path, stable_after: int
) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of both tables; runs without phases have no row in the first."""
    variance, stability = [], []
    for result in results:
        if not result.probes:
            continue
        about = {"run": result.run, "variant": result.variant, "seed": result.seed}
        journal = list(read_lines(study / result.run / "journal.jsonl", strict=False))
        rollbacks = count_rollbacks(journal)
        phases = phase_rows(journal, result.probes)
        if phases:
            variance.append({**about, **variance_row(phases), "rollbacks": rollbacks})
        held = stability_row(result.probes, stable_after)
        level = full_level(study / result.run)
        gained = exploitability(study / result.run)
        more = {"full_level": level, "rollbacks": rollbacks, "exploitability": gained}
        stability.append({**about, **held, **more})
    return {"seed_variance": variance, "stability": stability}


def count_rollbacks(journal: Iterable[Mapping[str, Any]]) -> int:
    """Return how often a side was taken back because of a collapse.

    Undoing an update that was not finite, and the warm start of the protocol, are no such thing.
    """
    return sum(
        line.get("event") == "decision"
        and line.get("kind") == "rollback"
        and line.get("name") != "last_good"
        and line.get("guard") != "protocol"
        for line in journal
    )


def phase_rows(
    journal: Iterable[Mapping[str, Any]], probes: Sequence[Probed]
) -> list[dict[str, Any]]:
    """Return the phases with who trained and the rates of the last evaluation in each, None without one."""
    starts: list[tuple[str, int, list[str]]] = []
    seen: set[str] = set()
    for line in journal:
        of_protocol = line.get("guard") == "protocol" and line.get("kind") == "train_roles"
        name = str(line.get("name"))
        begins = name == COLD or name[:1] == "S"
        if of_protocol and (name == WARM or (begins and name not in seen)):
            starts.append((name, int(line["update"]), list(line.get("applied") or ())))
            seen.add(name)
    rows = []
    for k, (name, first, roles) in enumerate(starts):
        if name == WARM:
            continue
        last = starts[k + 1][1] if k + 1 < len(starts) else None
        own = [p for p in probes if p.update > first and (last is None or p.update <= last)]
        metrics = own[-1].metrics if own else {}
        rows.append(
            {
                "phase": name,
                "trains": roles,
                "capture": metrics.get("capture_rate"),
                "escape": metrics.get("escape_rate"),
                "gap": metrics.get("win_gap"),
            }
        )
    return rows


def variance_row(phases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return cold-start escape, S1 capture and gap, and the capture rate after every phase."""
    named = {phase["phase"]: phase for phase in phases}
    first = named.get("S1", {})
    return {
        "cold_start_escape": named.get(COLD, {}).get("escape"),
        "s1_capture": first.get("capture"),
        "s1_gap": first.get("gap"),
        "phases": {name: phase["capture"] for name, phase in named.items() if name != COLD},
    }


def stability_row(probes: Sequence[Probed], after: int) -> dict[str, Any]:
    """Return the share of evaluations after `after` environment steps with the capture rate in the band."""
    late = [
        (p.env_steps, p.metrics["capture_rate"])
        for p in probes
        if p.env_steps > after and "capture_rate" in p.metrics
    ]
    rates = [rate for _, rate in late]
    left = [steps for steps, rate in late if not BAND[0] <= rate <= BAND[1]]
    return {
        "evaluations": len(late),
        "inside": 1.0 - len(left) / len(late) if late else None,
        "lowest": min(rates, default=None),
        "highest": max(rates, default=None),
        "first_outside": left[0] if left else None,
        "final": probes[-1].metrics.get("capture_rate"),
    }


def full_level(run: Path) -> bool | None:
    """Return whether the run stands at the full level of its curriculum; None if it has none."""
    try:
        last = json.loads((run / "latest.json").read_text())["metrics"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    found = [bool(v) for k, v in last.items() if re.fullmatch(r"guard/\w+/full_level", k)]
    return all(found) if found else None


def exploitability(run: Path) -> float | None:
    """Return the exploitability that `holdfast exploit` has measured for the run; None before that."""
    try:
        found = json.loads((run / "selfplay.json").read_text())["exploitability"][-1]
        return float(found["exploitability"]["value"])
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return None
