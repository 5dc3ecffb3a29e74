"""`holdfast doctor`: check the machine, or an environment, before a long run."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

from holdfast.cli.settings import overrides


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target", nargs="?", default="", help="a world, Gymnasium id or 'module:function'"
    )
    parser.add_argument("--steps", type=int, default=300, help="steps to exercise the environment")
    parser.epilog = "Examples:\n  holdfast doctor\n  holdfast doctor CartPole-v1"


def run(args: argparse.Namespace, rest: list[str]) -> int:
    from holdfast.store.checkpoint import versions

    report: dict[str, Any] = {
        "versions": versions(),
        "cores": os.cpu_count(),
        "runs_dir": args.runs_dir,
        "disk_free_gb": round(shutil.disk_usage(_existing(Path(args.runs_dir))).free / 1e9, 1),
        "writable": os.access(_existing(Path(args.runs_dir)), os.W_OK),
        "problems": [],
    }
    if not report["writable"]:
        report["problems"].append(f"{args.runs_dir} cannot be written")
    if report["disk_free_gb"] < 1:
        report["problems"].append(f"only {report['disk_free_gb']} GB are free for runs")
    if args.target:
        report.update(examine(args.target, args.steps, overrides(rest)))
        report["problems"] += report.pop("violations")
    if args.json:
        print(json.dumps(report))
    else:
        for key, value in report.items():
            if key == "versions":
                value = ", ".join(f"{k} {v}" for k, v in value.items())
            if key != "problems":
                print(f"{key:<18} {value}")
        for problem in report["problems"]:
            print(f"PROBLEM            {problem}")
        if not report["problems"]:
            print("no problems found")
    return 6 if report["problems"] else 0


def examine(target: str, steps: int, settings: list[tuple[str, str]]) -> dict[str, Any]:
    """Return what the contract checker and a short speed test say about an environment."""
    from holdfast.config import resolve
    from holdfast.worlds import make_world
    from holdfast.worlds.check import check_world

    config = resolve(target, settings)
    name, options = config.world.name, config.world.options
    violations = check_world(lambda: make_world(name, options), steps)
    world = make_world(name, options)
    world.reset(seed=0)
    actions = [world.action_space.sample() for _ in range(8)]
    rewards: list[float] = []
    ends = count = 0
    began = time.perf_counter()
    while time.perf_counter() - began < 2.0:
        _, reward, terminated, truncated, _ = world.step(actions[count % 8])
        count += 1
        rewards.append(float(abs(reward).max()))
        ends += int(terminated.sum() + truncated.sum())
    seconds = time.perf_counter() - began
    saves = world.saves_state
    world.close()
    if not ends:
        violations.append(
            f"no episode ended in {count} steps: check the environment's ends and limits"
        )
    return {
        "world": name,
        "slots": world.num_envs,
        "observation": str(world.single_observation_space),
        "action": str(world.single_action_space),
        "saves_state": saves,
        "env_steps_per_s": round(count * world.num_envs / seconds),
        "largest_reward": max(rewards),
        "violations": violations,
    }


def _existing(path: Path) -> Path:
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path
