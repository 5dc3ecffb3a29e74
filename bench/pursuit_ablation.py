"""The ablation table of docs/pursuit.md: what each countermeasure is worth in best.toml's game.

    python bench/pursuit_ablation.py                       # three seeds of every variant, two runs at a time
    python bench/pursuit_ablation.py --only full "no levels"   # some variants; the table holds what there is
    python bench/pursuit_ablation.py --quick               # tiny runs: shows that it works, says nothing
    python bench/pursuit_ablation.py --out docs/pursuit.md # puts the table between its markers

Both sides of every variant learn from about the same number of steps: where they take turns, there are twice as
many updates. Each run's last pair is measured: how far best responses of a fixed effort exploit it, and what its
sides do against scripts that no training has seen. Finished runs are taken from --runs-dir, unfinished ones go on
where they stood.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from many_runs import holdfast, insert, interval, margin, side_by_side, trained

from holdfast.learn.restore import learner_states, policy_of
from holdfast.run import RunDirectory
from holdfast.selfplay.duel import duel
from holdfast.selfplay.records import LINES_FILE, read_evaluations
from holdfast.store.journal import read_lines
from holdfast.study.exploit import played_options
from holdfast.study.pursuit import count_rollbacks, full_level
from holdfast.worlds.pursuit.policies import Scripted

CONFIG = Path(__file__).resolve().parent.parent / "configs" / "pursuit" / "best.toml"
BAND = (0.10, 0.90)
MEASURE_SEED = 20_260_104
LEVELS = (
    "kind=smooth rule=capture capture-above=0.5 start=5 end=15 increment=2 diagonal=28.28 regress-escape=0"
).split()
STEADY = ["--selfplay.history=0.3", "--selfplay.tremble=0"]
"""What all variants begin with: fewer past opponents than best.toml has, and steady hands."""
TURNS = [
    *STEADY,
    "--guards.balance.enabled=false",
    "--guards.protocol.enabled=true",
    "--guards.protocol.phase-steps=250000",
    *(f"--guards.protocol.curriculum.{level}" for level in LEVELS),
]
AT_ONCE: dict[str, list[str]] = {
    name: [*STEADY, *words.split()]
    for name, words in {
        "full": "",
        "no past opponents": "--selfplay.history=0",
        "no balance": (
            "--guards.balance.low=0 --guards.balance.high=1 --guards.balance.max-rollbacks=0"
        ),
        "no levels": "--guards.balance.curriculum.kind=none",
        "newest four past opponents (fifo)": "--selfplay.pool=fifo --selfplay.pool-size=4",
        "past opponents that win (pfsp)": "--selfplay.pool=pfsp",
        "more past opponents for who learns alone": "--guards.balance.past=0.5",
        "past opponents with trembling hands": "--selfplay.tremble=0.15",
        "with EWC": "--guards.balance.protect=1000",
        "with novelty": "--novelty.weight=0.1 --selfplay.novelty-roles=evader",
        "with dampening": "--guards.dampen.enabled=true",
    }.items()
}
BY_TURNS: dict[str, list[str]] = {
    name: [*TURNS, *words.split()]
    for name, words in {
        "turns": "",
        "turns of one update (micro-phases)": "--guards.protocol.phase-steps=0",
        "turns, short at first": "--guards.protocol.warmup=100000,100000,150000,150000,200000,200000",
        "turns, evader first": "--guards.protocol.evader-first=true",
        "turns, warm start": "--guards.protocol.warm-start-steps=100000",
        "turns, mixed levels": "--guards.protocol.mixed-share=0.2",
        "turns, EWC": "--guards.protocol.protect=1000",
        "turns, discrete levels": "--guards.protocol.curriculum.kind=discrete",
        "turns, levels by gap": "--guards.protocol.curriculum.rule=gap --guards.protocol.curriculum.gap-below=0.25",
        "turns, levels go back": "--guards.protocol.curriculum.regress-escape=0.15",
        "turns, loser again (adaptive ratio)": "--guards.protocol.boost-gap=0.3 --guards.protocol.boost-phases=2",
        "turns, alternate freeze": "--guards.protocol.freeze.role=evader",
        "turns, forced switch": (
            "--guards.protocol.freeze.role=evader --guards.protocol.freeze.force-steps=500000"
        ),
        "turns, health (entropy, captures)": "--guards.collapse.enabled=true",
        "turns, collapse rollback": (
            "--guards.collapse.enabled=true --guards.collapse.rate-below=0.1 --guards.collapse.evaluations=2 "
            "--guards.collapse.capture-low=0 --guards.collapse.capture-high=1"
        ),
        "turns, one-sided rollback": (
            "--guards.collapse.enabled=true --guards.collapse.rate-below=0.1 --guards.collapse.evaluations=2 "
            "--guards.collapse.capture-low=0 --guards.collapse.capture-high=1 --guards.collapse.both=false"
        ),
    }.items()
}
GROUPS = (AT_ONCE, BY_TURNS)
"""Variants of both sides learning at once, and of taking turns; each is compared with the first of its group."""
VARIANTS = {**AT_ONCE, **BY_TURNS}
QUICK = (
    "--games 8 --steps 16 --hidden 16,16 --minibatch 64 --stagger 0 --max-steps 40 --probe.every 2 "
    "--probe.episodes 8 --selfplay.pool-every 1"
).split()
Record = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Train what is missing, measure everything, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(VARIANTS), help="some variants")
    parser.add_argument("--quick", action="store_true", help="tiny runs")
    parser.add_argument("--seeds", type=int, default=3, help="training seeds (default 3)")
    parser.add_argument("--updates", type=int, default=160, help="updates of each run (160)")
    parser.add_argument("--jobs", type=int, default=2, help="runs at once, one thread each")
    parser.add_argument(
        "--runs-dir", default="runs/pursuit-ablation", help="where the runs are kept"
    )
    parser.add_argument("--out", default="", help="Markdown file with the markers to fill")
    args = parser.parse_args(argv)
    updates = 6 if args.quick else args.updates
    runs = Path(args.runs_dir) / ("quick" if args.quick else f"u{updates}")
    wanted = args.only or list(VARIANTS)
    jobs = [
        (f"{name}, seed {seed}", partial(outcome, runs, name, seed, updates, args.quick))
        for seed in range(1, args.seeds + 1)
        for name in wanted
    ]
    found = side_by_side(jobs, args.jobs)
    results = {name: [one for one in found if one["variant"] == name] for name in wanted}
    text = table(results)
    if args.quick:
        text += "\n\n**Made with --quick: it shows that the command works and says nothing.**"
    print(text)
    if args.out:
        insert(Path(args.out), text, "ablation")
    return 0


def outcome(runs: Path, variant: str, seed: int, updates: int, quick: bool) -> Record:
    """Return the measures of one run, trained first unless it is there."""
    slug = "".join(c if c.isalnum() else "-" for c in variant).strip("-")
    kept = runs / f"{slug}-s{seed}.json"
    if kept.is_file():
        return dict(json.loads(kept.read_text()))
    length = updates * (2 if variant in BY_TURNS else 1)
    words = ["--seed", str(seed), "--updates", str(length), "--learner.threads", "1"]
    words += [*VARIANTS[variant], *(QUICK if quick else ())]
    path = trained(runs, f"{slug}-s{seed}", CONFIG, words)
    effort = ["--steps", "500" if quick else "1000000", "--games", "64" if quick else "4000"]
    more = ["--checkpoints", "0", "--json", "--no-report", "--runs-dir", str(runs)]
    said = json.loads(holdfast("exploit", path.name, *effort, *more))
    record = {"variant": variant, "seed": seed, **course(path, quick), **strength(path, quick)}
    record["exploitability"] = said["exploitability"][-1]["exploitability"]["value"]
    kept.write_text(json.dumps(record))
    return record


def course(path: Path, quick: bool) -> Record:
    """Return how the evaluations after the first million steps went."""
    found = read_evaluations(read_lines(path / LINES_FILE, strict=False))
    late = [e.sr_p for e in found if quick or e.env_steps > 1_000_000]
    outside = [r for r in late if not BAND[0] <= r <= BAND[1]]
    return {
        "env_steps": found[-1].env_steps,
        "outside": len(outside) / len(late),
        "lowest": min(late),
        "highest": max(late),
        "final": late[-1],
        "full_level": full_level(path),
        "rollbacks": count_rollbacks(read_lines(path / "journal.jsonl", strict=False)),
    }


def strength(path: Path, quick: bool) -> Record:
    """Return what the last pair does against scripts: a pursuer against circling, an evader against pure pursuit."""
    directory = RunDirectory(path)
    checkpoint = directory.checkpoints().find(None)
    states = learner_states(checkpoint)
    options = played_options(directory.config(), checkpoint.load()["progress"]["turned"])
    games = 64 if quick else 4000
    catches = duel(
        policy_of(states["pursuer"]),
        Scripted("circling", "evader", radius=6.0),
        options,
        games,
        MEASURE_SEED,
    ).rate.value
    caught = duel(
        Scripted("pure_pursuit", "pursuer"),
        policy_of(states["evader"]),
        options,
        games,
        MEASURE_SEED,
    ).rate.value
    return {"pursuer": catches, "evader": 1.0 - caught}


MEASURES = {
    "exploitability": "exploitability",
    "outside": "evaluations outside [0.10, 0.90]",
    "pursuer": "its pursuer catches circling",
    "evader": "its evader escapes pure pursuit",
}


def table(results: dict[str, list[Record]]) -> str:
    """Return the Markdown table: means over training seeds, and paired differences to the first of the group."""
    heads = ["variant", *MEASURES.values(), "change of exploitability", "SR_P, lowest and highest"]
    lines = [
        f"| {' | '.join([*heads, 'full level', 'rollbacks'])} |",
        f"|{'---|' * (len(heads) + 2)}",
    ]
    for group in GROUPS:
        first = next(iter(group))
        there = {name: {o["seed"]: o for o in results[name]} for name in group if results.get(name)}
        seeds = sorted(set.intersection(*map(set, there.values()))) if first in there else []
        values = np.array([[o[s]["exploitability"] for s in seeds] for o in there.values()])
        half = margin(values) if seeds else float("nan")
        for k, name in enumerate(there):
            change = "" if name == first or not seeds else float((values[k] - values[0]).mean())
            lines.append(row(name, results[name], change, half))
    most = max(len(found) for found in results.values())
    steps = [one["env_steps"] for found in results.values() for one in found]
    firsts = " or ".join(f"`{next(iter(group))}`" for group in GROUPS)
    note = (
        f"Means over {most} training seeds; {min(steps) / 1e6:.1f} to {max(steps) / 1e6:.1f} M steps of both learners; "
        f"brackets are 95 % Student intervals over training seeds. Changes are against {firsts} on the same seeds, and their intervals take "
        "seeds to differ equally much in all variants of a group; one in twenty leaves 0 out by chance."
    )
    return "\n".join([*lines, "", note])


def row(name: str, found: Sequence[Record], change: float | str, half: float) -> str:
    """Return the line of one variant; its `change` of exploitability is known to `half`."""
    cells = [spread([one[key] for one in found]) for key in MEASURES]
    if not isinstance(change, str):
        sure = "" if np.isnan(half) else f" [{change - half:+.3f}, {change + half:+.3f}]"
        change = f"{change:+.3f}{sure}"
    cells.append(change)
    cells.append(f"{min(o['lowest'] for o in found):.2f}, {max(o['highest'] for o in found):.2f}")
    levels = [o["full_level"] for o in found]
    cells.append(f"{sum(map(bool, levels))} of {len(levels)}" if None not in levels else "-")
    cells.append(f"{np.mean([o['rollbacks'] for o in found]):.1f}")
    return f"| {name} | {' | '.join(cells)} |"


def spread(values: Sequence[float]) -> str:
    """Return the mean of shares, with its interval from three seeds on: two say next to nothing about their spread."""
    low, high = np.clip(interval(values), 0.0, 1.0)
    mean = f"{np.mean(values):.3f}"
    return mean if len(values) < 3 else f"{mean} [{low:.3f}, {high:.3f}]"


if __name__ == "__main__":
    raise SystemExit(main())
