"""`holdfast doctor`: check the machine, an environment, or a config before a long run."""

from __future__ import annotations

import argparse
from itertools import chain
from pathlib import Path
from typing import Any

from holdfast.cli.answer import answer
from holdfast.cli.settings import no_settings, overrides
from holdfast.errors import ConfigError


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        nargs="?",
        default="",
        help="a world, Gymnasium id, 'module:function' or TOML file",
    )
    parser.add_argument(
        "--steps", type=int, default=300, help="steps of each examination (default: 300)"
    )
    parser.epilog = (
        "Takes the settings of 'holdfast train'. Exit code: 0 nothing stands against a run, 4 too slow, "
        "5 storage, 6 the environment.\n"
        "Examples:\n"
        "  holdfast doctor\n"
        "  holdfast doctor CartPole-v1\n"
        "  holdfast doctor configs/shoal/best.toml --min-sps 50000"
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    if args.steps < 2:
        raise ConfigError(f"--steps {args.steps} is not allowed. It takes 2 or more.")
    settings = overrides(rest)
    if not args.target:
        no_settings(rest)
    from holdfast.checkup import Finding, examine, examine_machine
    from holdfast.config import resolve
    from holdfast.store.checkpoint import versions

    runs_dir = Path(args.runs_dir)
    config = resolve(args.target, settings) if args.target else None
    found: list[Finding] = []
    report: dict[str, Any] = {
        "target": args.target,
        "versions": versions(),
        "runs_dir": args.runs_dir,
    }
    if not args.json:
        print("versions      " + ", ".join(f"{k} {v}" for k, v in report["versions"].items()))
    machine = examine_machine(runs_dir)
    for finding in chain(machine, examine(config, runs_dir, args.steps) if config else ()):
        found.append(finding)
        report.update(finding.numbers)
        if not args.json:
            print(f"{finding.check:<13} {_mark(finding.level)}{finding.text}", flush=True)
    report["findings"] = [
        {"check": f.check, "level": f.level, "text": f.text, "numbers": dict(f.numbers)}
        for f in found
    ]
    refused = [f for f in found if f.level == "refused"]
    report["problems"] = [f"{f.check}: {f.text}" for f in refused]
    report["warnings"] = [f"{f.check}: {f.text}" for f in found if f.level == "warning"]
    if args.json:
        answer(report)
    else:
        print(_summary(len(refused), len(report["warnings"])))
    return refused[0].code if refused else 0


def _mark(level: str) -> str:
    return {"ok": "", "warning": "WARNING: ", "refused": "REFUSED: "}[level]


def _summary(refused: int, warnings: int) -> str:
    if refused:
        return f"{refused} of these stand against a run"
    said = f"{warnings} warning{'s' if warnings > 1 else ''}"
    return f"no problems found, {said}" if warnings else "no problems found"
