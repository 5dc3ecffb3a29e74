"""`holdfast envcheck`: does an environment construct, reset, step and close, again and again, in every mode?

holdfast envcheck CartPole-v1 --modes serial,threads,process --trials 20 --games 8
holdfast envcheck my_module:make_env --json out.jsonl --report report.md --world.kwargs.size 8
holdfast envcheck diag DIR                   # what collected diagnostics say
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.cli.answer import answer
from holdfast.cli.settings import at_least, no_settings, overrides
from holdfast.errors import ConfigError, nearest

MODES = ("serial", "threads", "process")
KWARGS = "world.kwargs."
"""Begins the only settings that are taken here: what the environment is made with."""


def add(parser: argparse.ArgumentParser) -> None:
    # The other verbs have a plain --json; here it may name a file.
    parser._optionals.conflict_handler = "resolve"
    parser.add_argument("env", help="a Gymnasium id or 'module:function', or the word diag")
    parser.add_argument("folder", nargs="?", default="", help="with diag: the directory")
    parser.add_argument("--modes", default=",".join(MODES), help="serial,threads,process")
    parser.add_argument("--trials", type=int, default=5, help="trials a mode (default: 5)")
    parser.add_argument("--games", type=int, default=4, help="environments at once (default: 4)")
    parser.add_argument("--steps", type=int, default=600, help="steps a trial (default: 600)")
    parser.add_argument(
        "--timeout", type=float, default=60.0, help="longest seconds of one phase (default: 60)"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the first trial (default: 1)")
    parser.add_argument("--endless", action="store_true", help="episodes need not end")
    parser.add_argument(
        "--json", nargs="?", const="-", default="", help="write the records as JSON lines to a file"
    )
    parser.add_argument("--report", default="", help="write a Markdown report to a file")
    parser.add_argument("--diag-dir", default="", help="directory for diagnostics of failed trials")
    parser.epilog = __doc__


def run(args: argparse.Namespace, rest: list[str]) -> int:
    settings = overrides(rest)
    if args.env == "diag" or not all(key.startswith(KWARGS) for key, _ in settings):
        no_settings(rest)
    if args.env == "diag":
        return _diag(args)
    if args.folder:
        raise ConfigError(f"'{args.folder}' is not understood here. Leave it out, or see --help.")
    modes = _checked(args)
    from holdfast.config import resolve
    from holdfast.store.files import storage_errors, write_atomic
    from holdfast.worlds import OURS, check_name

    if args.env in OURS:
        raise ConfigError(
            f"{args.env} is a world of Holdfast's own, which has no modes. Type: holdfast doctor {args.env}"
        )
    check_name(args.env)
    records = _trials(args, modes, resolve(args.env, settings).world.options.kwargs)
    text = report(args.env, records)
    if args.json == "-":
        for record in records:
            answer(record)
    else:
        print(text, end="")
    if args.report:
        write_atomic(Path(args.report), text)
    if args.json and args.json != "-":
        with storage_errors(Path(args.json)), open(args.json, "a") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)
    return 0 if all(record["ok"] for record in records) else 6


def _checked(args: argparse.Namespace) -> list[str]:
    modes = [word.strip() for word in args.modes.split(",") if word.strip()]
    for mode in modes:
        if mode not in MODES:
            raise ConfigError(
                f"--modes {args.modes}: there is no mode '{mode}'.{nearest(mode, MODES)} "
                f"There are: {', '.join(MODES)}."
            )
    if not modes:
        raise ConfigError(f"--modes '{args.modes}' names no mode. There are: {', '.join(MODES)}.")
    for name in ("trials", "games", "steps", "timeout"):
        if not getattr(args, name) > 0:
            raise ConfigError(f"--{name} {getattr(args, name)} is not allowed. It takes above 0.")
    at_least(args, seed=0)
    return modes


def _trials(
    args: argparse.Namespace, modes: Sequence[str], kwargs: dict[str, Any]
) -> list[dict[str, Any]]:
    import shutil
    import sys

    from holdfast.worlds.pool_trial import Trial, run_trial

    root = Path(args.diag_dir or f"envcheck_diag_{time.strftime('%Y%m%d-%H%M%S')}")
    records = []
    for mode in modes:
        for number in range(args.trials):
            folder = root / f"{mode}_{number:03d}_seed_{args.seed + number}"
            trial = Trial(
                env=args.env,
                mode=mode,
                trial=number,
                seed=args.seed + number,
                games=args.games,
                steps=args.steps,
                timeout_s=args.timeout,
                endless=args.endless,
                folder=str(folder),
                kwargs=kwargs,
            )
            record = run_trial(trial)
            if record["ok"]:
                shutil.rmtree(folder, ignore_errors=True)
                record["diag_dir"] = None
            records.append(record)
            said = "ok" if record["ok"] else f"{record['error_type']} in {record['phase_failed']}"
            sys.stderr.write(f"{mode} trial {number + 1} of {args.trials}: {said}\n")
    if root.is_dir() and not any(root.iterdir()):
        root.rmdir()
    return records


def report(env: str, records: Sequence[dict[str, Any]]) -> str:
    """Return the Markdown report of all trials."""
    from holdfast.probes.stats import wilson

    lines = [f"# envcheck {env}", ""]
    head = records[0]
    lines += [
        f"{head['num_envs']} environments, {head['backend']} {head['backend_version']}, Python "
        f"{head['python']}, NumPy {head['numpy']}.",
        "",
        "| mode | ok | rate | 95 % interval | construct s (median, max) | reset s (median, max) | steps/s |",
        "|---|---|---|---|---|---|---|",
    ]
    modes = list(dict.fromkeys(record["mode"] for record in records))
    for mode in modes:
        own = [r for r in records if r["mode"] == mode]
        good = sum(r["ok"] for r in own)
        low, high = wilson(good, len(own))
        lines.append(
            f"| {mode} | {good} of {len(own)} | {good / len(own):.0%} | {low:.0%} to {high:.0%} | "
            f"{_quantiles(own, 'construct_s')} | {_quantiles(own, 'reset_s')} | "
            f"{_median(own, 'steps_per_s'):,.0f} |"
        )
    bad = [r for r in records if not r["ok"]]
    if bad:
        lines += ["", "## Failed phases", "", "| phase | " + " | ".join(modes) + " |"]
        lines += ["|---" * (len(modes) + 1) + "|"]
        for phase in sorted({str(r["phase_failed"]) for r in bad}):
            counts = [
                str(sum(r["mode"] == m and str(r["phase_failed"]) == phase for r in bad))
                for m in modes
            ]
            lines.append(f"| {phase} | " + " | ".join(counts) + " |")
        lines += ["", "## Errors", ""]
        kinds = Counter((r["error_type"], r["phase_failed"]) for r in bad)
        for (kind, phase), count in kinds.most_common(10):
            first = next(r for r in bad if (r["error_type"], r["phase_failed"]) == (kind, phase))
            lines.append(f"- {count} x {kind} in {phase}: {first['error']}")
        lines += ["", "Diagnostics:", "", *(f"- {r['diag_dir']}" for r in bad)]
    lines += ["", *_same_beginnings(records)]
    return "\n".join(lines).rstrip() + "\n"


def _same_beginnings(records: Sequence[dict[str, Any]]) -> list[str]:
    hashes: dict[int, set[str]] = {}
    for record in records:
        if record["first_obs_hash"]:
            hashes.setdefault(record["seed"], set()).add(record["first_obs_hash"])
    odd = sorted(seed for seed, found in hashes.items() if len(found) > 1)
    if odd:
        return [
            f"The first observations of seed {odd[0]} differ between trials: not deterministic."
        ]
    return ["The first observations of a seed are the same in all trials."] if hashes else []


def _values(records: Sequence[dict[str, Any]], key: str) -> list[float]:
    return sorted(float(r[key]) for r in records if r[key] is not None)


def _median(records: Sequence[dict[str, Any]], key: str) -> float:
    values = _values(records, key)
    return values[len(values) // 2] if values else 0.0


def _quantiles(records: Sequence[dict[str, Any]], key: str) -> str:
    values = _values(records, key)
    return f"{values[len(values) // 2]:.3f}, {values[-1]:.3f}" if values else "none"


def _diag(args: argparse.Namespace) -> int:
    from holdfast.store.files import write_atomic, write_json
    from holdfast.worlds.pool_diag import markdown, summarise

    if not args.folder:
        raise ConfigError(
            "Which diagnostics? Type for example: holdfast envcheck diag envcheck_diag"
        )
    summary = summarise(Path(args.folder))
    text = markdown(summary)
    if args.json == "-":
        answer(summary)
    else:
        print(text, end="")
    if args.report:
        write_atomic(Path(args.report), text)
    if args.json not in ("", "-"):
        write_json(Path(args.json), summary)
    return 0
