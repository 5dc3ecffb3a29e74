"""The stability table of docs/pursuit.md: does self-play hold, seed by seed, and what can it still be exploited by?

    holdfast study configs/pursuit/best.toml --seeds 1-8 --name best    # trains; hours
    python bench/pursuit_stability.py runs/best                         # exploits every finished run, prints the table
    python bench/pursuit_stability.py runs/best --out docs/pursuit.md   # puts it between its markers

A seed passes when it stands at the full level, no evaluation after the first million steps left [0.10, 0.90], and
its exploitability is at most 0.15. What was exploited before is not exploited again; an interrupted best response
goes on where it stood.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from many_runs import holdfast, insert, side_by_side

from holdfast.run import RunDirectory
from holdfast.selfplay.records import Verdict, read
from holdfast.selfplay.verdict import COHORTS, cohort
from holdfast.study.child import Followed
from holdfast.study.pursuit import full_level, stability_row

AFTER = 1_000_000
LIMIT = 0.15
Record = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Exploit what is missing, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("study", help="directory of a study, whose runs are exploited")
    parser.add_argument("--steps", type=int, default=2_000_000, help="steps of a best response")
    parser.add_argument("--games", type=int, default=5000, help="games of the measurement")
    parser.add_argument("--after", type=int, default=AFTER, help="steps before stability counts")
    parser.add_argument("--jobs", type=int, default=2, help="runs at once")
    parser.add_argument("--out", default="", help="Markdown file with the markers to fill")
    args = parser.parse_args(argv)
    paths = [p.parent for p in sorted(Path(args.study).glob("*/run.toml"))]
    done = [p for p in paths if RunDirectory(p).state() == "finished"]
    if not done:
        raise SystemExit(f"{args.study} holds no finished run. Type first: holdfast study ... ")
    for path in paths:
        if path not in done:
            print(f"{path.name} is {RunDirectory(path).state()}: left out", file=sys.stderr)
    jobs = [(p.name, partial(measure, p, args.steps, args.games, args.after)) for p in done]
    text = table(side_by_side(jobs, args.jobs), args.steps, args.games)
    print(text)
    if args.out:
        insert(Path(args.out), text, "stability")
    return 0


def measure(path: Path, steps: int, games: int, after: int) -> Record:
    """Return the row of one run, exploited first unless it is."""
    directory = RunDirectory(path)
    kept = path / f"stability-{steps}-{games}.json"
    if not kept.is_file():
        effort = ["--steps", str(steps), "--games", str(games)]
        said = holdfast("exploit", path.name, *effort, "--json", "--runs-dir", str(path.parent))
        kept.write_text(said)
    found = json.loads(kept.read_text())
    followed = Followed(path)
    followed.read()
    row = stability_row([followed.probes[u] for u in sorted(followed.probes)], after)
    measured = found["exploitability"][-1]
    full = full_level(path)
    passed = bool(full) and row["inside"] == 1.0
    return {
        **row,
        "seed": directory.config().run.seed,
        "env_steps": measured["env_steps"],
        "full_level": full,
        "measured": measured,
        "verdict": found["verdict"],
        "passed": passed and measured["exploitability"]["value"] <= LIMIT,
    }


def table(rows: Sequence[Record], steps: int, games: int) -> str:
    """Return the Markdown table and what it comes to."""
    heads = ["seed", "steps", "full level", "SR_P, lowest and highest", "evaluations inside"]
    heads += ["the pair", "value interval", "exploitability", "verdict", "passes"]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for row in sorted(rows, key=lambda row: int(row["seed"])):
        one = row["measured"]
        ends = [one["evader"]["sr_p"], one["pursuer"]["sr_p"]]
        inside = "-" if row["inside"] is None else f"{row['inside']:.0%} of {row['evaluations']}"
        spread = "-" if row["lowest"] is None else f"{row['lowest']:.2f}, {row['highest']:.2f}"
        cells = [
            str(row["seed"]),
            f"{row['env_steps'] / 1e6:.1f} M",
            {True: "yes", False: "no", None: "-"}[row["full_level"]],
            spread,
            inside,
            rate(one["incumbent"]),
            " to ".join(map(rate, ends)),
            rate(one["exploitability"]),
            row["verdict"]["level"],
            "yes" if row["passed"] else "no",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    verdicts = [found for row in rows if (found := read(Verdict, row["verdict"])) is not None]
    together = cohort(verdicts)
    note = (
        f"{sum(row['passed'] for row in rows)} of {len(rows)} seeds pass. Together: {together}"
        f"{f' ({COHORTS[together]})' if together in COHORTS else ''}. Best responses of {steps / 1e6:g} M steps, "
        f"{games} games a measure, brackets are 95 % intervals."
    )
    return "\n".join([*lines, "", note])


def rate(record: Record) -> str:
    """Return a rate with its interval."""
    return f"{record['value']:.3f} [{record['low']:.3f}, {record['high']:.3f}]"


if __name__ == "__main__":
    raise SystemExit(main())
