"""The ablation table of docs/shoal.md: what tail replay, the gate and the curriculum are worth on hard.toml.

    python bench/shoal_ablation.py                     # five seeds of every variant, half an hour on two cores
    python bench/shoal_ablation.py --quick             # two seeds of tiny runs: shows that it works, says nothing
    python bench/shoal_ablation.py --out docs/shoal.md # puts the table between its markers

All variants make the same number of environment steps. Each run's *last* policy (no selection) plays the same
evaluation seeds, which no training and no probe has seen. Differences to the plain run are paired by training
seed. Finished runs are taken from --runs-dir, so an interrupted ablation goes on where it stood.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from many_runs import holdfast, insert, interval

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / "configs" / "shoal" / "hard.toml"
METRICS = ("avg_final", "min_final", "ed100", "death_step_mean")
HEADS = ("alive at the end", "worst episode", "dead before 100", "mean death step")
EVAL_SEED = 20_260_101

TAILS = [
    "--guards.tails.enabled",
    *"--guards.tails.mine --guards.tails.share 0.25 --guards.tails.success-min 0.8".split(),
]
DENSITY = [
    "--guards.density.enabled",
    *"--guards.density.targets 0,0.02,0.04,0.05 --guards.density.lock-until 0".split(),
]
GATE = [
    *DENSITY,
    *"--guards.gate.enabled --guards.gate.allowance 1,2,3,4".split(),
    *"--guards.gate.success-step-one -1 --guards.gate.success-step-one-ratio 0".split(),
    *"--guards.gate.success-early-death 0.2 --guards.gate.success-p10 0".split(),
    *"--guards.gate.failure-p10 0 --guards.gate.failure-min-final 0.2".split(),
    *"--guards.gate.required-successes 1".split(),
]


def variants(quick: bool) -> dict[str, list[str]]:
    """Return the settings of every variant; phases are equal quarters unless the curriculum says otherwise."""
    fish, updates = (20, 20) if quick else (250, 100)
    equal = ",".join([f"{fish}:{updates // 4}"] * 4)
    # Half of the fish make half of the steps, so small phases last longer.
    growing = f"{fish // 5}:{updates // 4},{fish // 2}:{updates // 2},{fish}:{updates * 7 // 10}"
    same, grows = ["--plan.curriculum", equal], ["--plan.curriculum", growing]
    return {
        "plain": same,
        "tail replay": [*same, *TAILS],
        "density penalty": [*same, *DENSITY],
        "density penalty with gate": [*same, *GATE],
        "curriculum": grows,
        "tail replay, gate, curriculum": [*grows, *TAILS, *GATE],
    }


QUICK = (
    "--games 4 --fish 20 --steps 16 --hidden 16,16 --minibatch 256 --max-steps 60 --force-reset-steps 30 "
    "--probe.every 4 --probe.episodes 2"
).split()


def main(argv: Sequence[str] | None = None) -> int:
    """Train what is missing, evaluate everything, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two seeds of tiny runs")
    parser.add_argument("--seeds", type=int, default=0, help="training seeds (default 5; quick 2)")
    parser.add_argument("--runs-dir", default="runs/ablation", help="where the runs are kept")
    parser.add_argument("--out", default="", help="Markdown file with the markers to fill")
    args = parser.parse_args(argv)
    seeds = range(1, (args.seeds or (2 if args.quick else 5)) + 1)
    runs = Path(args.runs_dir) / ("quick" if args.quick else "full")
    began = time.monotonic()
    results: dict[str, list[dict[str, Any]]] = {}
    for name, settings in variants(args.quick).items():
        for seed in seeds:
            results.setdefault(name, []).append(outcome(runs, name, seed, settings, args.quick))
            print(f"{time.monotonic() - began:7.0f} s  {name}, seed {seed}", file=sys.stderr)
    text = table(results, args.quick)
    print(text)
    if args.out:
        insert(Path(args.out), text, "ablation")
    return 0


def outcome(
    runs: Path, variant: str, seed: int, settings: Sequence[str], quick: bool
) -> dict[str, Any]:
    """Return the evaluation of one run, trained first unless it is there."""
    name = f"{variant.replace(',', '').replace(' ', '-')}-s{seed}"
    where = ["--runs-dir", str(runs)]
    kept = runs / name / "ablation.json"
    if kept.is_file():
        return dict(json.loads(kept.read_text()))
    if (runs / name / "run.toml").is_file():
        holdfast("resume", name, "--plain", "--no-report", *where)
    else:
        words = ["train", str(CONFIG), "--run", name, "--seed", str(seed), *settings]
        holdfast(*words, *(QUICK if quick else ()), "--plain", "--no-report", *where)
    episodes = "4" if quick else "24"
    said = holdfast(
        "eval", name, "--latest", "--episodes", episodes, "--seed", str(EVAL_SEED), "--json", *where
    )
    record = dict(json.loads(said))
    kept.write_text(json.dumps(record))
    return record


def table(results: dict[str, list[dict[str, Any]]], quick: bool) -> str:
    """Return the Markdown table: means over training seeds, and paired differences with 95 % intervals."""
    base = results["plain"]
    count = len(base)
    lines = [
        f"| variant | {' | '.join(HEADS)} | change of alive | better in |",
        f"|---|{'---|' * (len(HEADS) + 2)}",
    ]
    for name, found in results.items():
        cells = [f"{np.mean([r[m] for r in found]):.4g}" for m in METRICS]
        spread = interval([r["avg_final"] for r in found])
        cells[0] += f" [{spread[0]:.3f}, {spread[1]:.3f}]"
        change = [r["avg_final"] - b["avg_final"] for r, b in zip(found, base, strict=True)]
        if name == "plain":
            cells += ["", ""]
        else:
            low, high = interval(change)
            cells += [f"{np.mean(change):+.3f} [{low:+.3f}, {high:+.3f}]"]
            cells += [f"{sum(c > 0 for c in change)} of {count}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    steps = {int(r["env_steps"]) for found in results.values() for r in found}
    note = (
        f"{count} training seeds; {base[0]['episodes']:.0f} episodes each; "
        f"{min(steps) / 1e6:.2f} to {max(steps) / 1e6:.2f} M environment steps; brackets are 95 % Student "
        "intervals over training seeds, paired with `plain` in the change."
    )
    if quick:
        note += (
            " **Made with --quick: it shows that the command works and says nothing about worth.**"
        )
    return "\n".join([*lines, "", note])


if __name__ == "__main__":
    raise SystemExit(main())
