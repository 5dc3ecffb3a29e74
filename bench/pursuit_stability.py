"""The stability table of docs/pursuit.md: does self-play hold, seed by seed, and what can it still be exploited by?

    holdfast study configs/pursuit/best.toml --seeds 1-8 --name best    # trains; an hour and a half on two cores
    python bench/pursuit_stability.py runs/best                         # exploits every finished run, prints the table
    python bench/pursuit_stability.py runs/best --out docs/pursuit.md   # puts it between its markers

A seed passes when it stands at the full level, no evaluation after the first million steps left [0.10, 0.90], and
its exploitability is at most 0.15. What was exploited before is not exploited again; an interrupted best response
goes on where it stood. A response may miss what the response to another seed finds, so every side also meets the responses
of all seeds; the strongest of them is chosen on games of its own.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from many_runs import holdfast, insert, side_by_side

from holdfast.learn.policy import Policy
from holdfast.learn.restore import learner_states, policy_of
from holdfast.run import RunDirectory
from holdfast.selfplay.crossplay import crossplay
from holdfast.selfplay.duel import duel
from holdfast.selfplay.records import Rate, Verdict, read
from holdfast.selfplay.verdict import COHORTS, cohort
from holdfast.study.child import Followed
from holdfast.study.exploit import played_options
from holdfast.study.pursuit import full_level, stability_row
from holdfast.worlds.pursuit.layout import ROLES

AFTER = 1_000_000
CHOOSING = 400
"""Games of each pair among which the strongest response of all seeds is chosen."""
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
    rows = side_by_side(jobs, args.jobs)
    text = table(rows, meet_all(done, args.games), args.steps, args.games)
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
        "run": path.name,
        "seed": directory.config().run.seed,
        "env_steps": measured["env_steps"],
        "full_level": full,
        "measured": measured,
        "verdict": found["verdict"],
        "passed": passed and measured["exploitability"]["value"] <= LIMIT,
    }


def meet_all(paths: Sequence[Path], games: int) -> dict[str, tuple[Rate, Rate]]:
    """Return by run SR_P of its pursuer, and against its evader, when the strongest response to any seed plays."""
    config = RunDirectory(paths[0]).config()
    options, sampled = played_options(config, {}), () if config.probe.deterministic else ROLES
    own = {role: {path.name: newest(path, role) for path in paths} for role in ROLES}
    responses = {
        role: {
            path.name: newest(next((path / "exploit").glob(f"{role}-u*")), role) for path in paths
        }
        for role in ROLES
    }
    chase, flee = ((own["pursuer"], responses["evader"]), (responses["pursuer"], own["evader"]))
    low = crossplay(*chase, options, CHOOSING, 1, sampled, partial(say, "pursuers"))
    high = crossplay(*flee, options, CHOOSING, 1, sampled, partial(say, "evaders"))
    caught, catching = np.array(low.captures), np.array(high.captures)
    found = {}
    for i, path in enumerate(paths):
        evader = responses["evader"][paths[int(caught[i].argmin())].name]
        pursuer = responses["pursuer"][paths[int(catching[:, i].argmax())].name]
        found[path.name] = (
            duel(own["pursuer"][path.name], evader, options, games, 2, sampled).rate,
            duel(pursuer, own["evader"][path.name], options, games, 2, sampled).rate,
        )
    return found


def newest(path: Path, role: str) -> Policy:
    """Return the policy of a role at the end of a run."""
    directory = RunDirectory(path)
    return policy_of(learner_states(directory.checkpoints(directory.config()).find(None))[role])


def say(whose: str, done: int, of: int) -> None:
    """Say how many pairs of a run's side and a response have played."""
    if done == of or done % 16 == 0:
        print(f"{whose} against the responses of all seeds: {done} of {of}", file=sys.stderr)


def table(
    rows: Sequence[Record], met: Mapping[str, tuple[Rate, Rate]], steps: int, games: int
) -> str:
    """Return the Markdown table and what it comes to."""
    heads = ["seed", "steps", "full level", "SR_P, lowest and highest", "evaluations inside"]
    heads += ["the pair", "value interval", "exploitability", "verdict", "passes"]
    heads += ["interval with the responses of all seeds"]
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
            " to ".join(f"{one.value:.3f}" for one in met[row["run"]]),
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
