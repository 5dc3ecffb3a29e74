"""`holdfast bench`: measure speed on this machine."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

from holdfast.cli.settings import overrides


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("world", "learner"), help="what to measure")
    parser.add_argument("name", nargs="?", default="shoal", help="the world (bench world NAME)")
    parser.add_argument("--world", default="shoal", help="the world (bench learner)")
    parser.add_argument("--hidden", default="64,64", help="hidden widths (bench learner)")
    parser.add_argument("--minibatch", type=int, default=1024, help="samples a gradient step")
    parser.add_argument("--learners", default="fused,torch", help="implementations to compare")
    parser.add_argument("--seconds", type=float, default=2.0, help="time of one measurement")
    parser.add_argument("--repeats", type=int, default=3, help="interleaved repetitions")
    parser.epilog = (
        "Examples:\n  holdfast bench world shoal\n"
        "  holdfast bench learner --world shoal --hidden 64,64 --minibatch 1024 --learners fused,torch"
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    settings = overrides(rest)
    report = bench_world(args, settings) if args.what == "world" else bench_learner(args, settings)
    if args.json:
        print(json.dumps(report))
    else:
        for name, row in report.items():
            print(
                name,
                "  ".join(
                    f"{k} {v:,.0f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()
                ),
            )
    return 0


def bench_world(args: argparse.Namespace, settings: list[tuple[str, Any]]) -> dict[str, Any]:
    """Step a world alone with random actions, observations and resets included."""
    import numpy as np

    from holdfast.config import resolve
    from holdfast.worlds import make_world

    base = [("games", "256"), ("fish", "25")] if args.name == "shoal" else []
    config = resolve(args.name, [*base, *settings])
    world = make_world(config.world.name, config.world.options)
    obs, _ = world.reset(seed=0)
    n = world.num_envs
    rng = np.random.default_rng(0)
    world.action_space.seed(0)
    actions = [world.action_space.sample() for _ in range(16)]
    rows = (obs, np.zeros(n), np.zeros(n, np.bool_), np.zeros(n, np.bool_), np.ones(n, np.bool_))
    world.step_into(actions[0], *rows)
    rates = []
    for _ in range(args.repeats):
        count, began = 0, time.perf_counter()
        while (seconds := time.perf_counter() - began) < args.seconds:
            world.step_into(actions[int(rng.integers(16))], *rows)
            count += 1
        rates.append(count * n / seconds)
    world.close()
    row = {
        "slots": n,
        "env_steps_per_s": statistics.median(rates),
        "fastest_per_s": max(rates),
        "slowest_per_s": min(rates),
    }
    return {args.name: row}


def bench_learner(args: argparse.Namespace, settings: list[tuple[str, Any]]) -> dict[str, Any]:
    """Collect and update with each learner in turn, interleaved, on the same world."""
    from holdfast.collect import Collector, whole
    from holdfast.config import resolve
    from holdfast.learn.learner import make_learner
    from holdfast.learn.spec import spec_for
    from holdfast.rng import Streams
    from holdfast.worlds import make_world

    base = [
        ("learner.steps", "128"),
        ("learner.epochs", "5"),
        ("learner.hidden", args.hidden),
        ("learner.minibatch", str(args.minibatch)),
    ]
    collectors: dict[str, Collector] = {}
    for kind in args.learners.split(","):
        config = resolve(args.world, [*base, *settings, ("learner.kind", kind)])
        world = make_world(config.world.name, config.world.options)
        world.reset(seed=0)
        spec = spec_for(
            world.single_observation_space,
            world.single_action_space,
            config.learner.hidden,
            config.learner.activation,
            config.learner.shared,
        )
        learner = make_learner(spec, config.learner, Streams(0), world.num_envs)
        collectors[kind] = whole(world, learner)
    times: dict[str, list[tuple[float, float]]] = {kind: [] for kind in collectors}
    for repeat in range(args.repeats + 1):
        for kind, collector in collectors.items():
            began = time.perf_counter()
            collector.collect()
            collected = time.perf_counter()
            seat = collector.seats[0]
            seat.learner.update(seat.rollout)
            if repeat:  # the first round compiles and warms up
                times[kind].append((collected - began, time.perf_counter() - collected))
    report: dict[str, Any] = {}
    for kind, pairs in times.items():
        size = collectors[kind].seats[0].rollout.rewards.size
        rates = [size / (a + b) for a, b in pairs]
        report[kind] = {
            "transitions_per_s": statistics.median(rates),
            "fastest_per_s": max(rates),
            "slowest_per_s": min(rates),
            "collect_share": statistics.median(a / (a + b) for a, b in pairs),
            "threads": collectors[kind].seats[0].learner.threads,
        }
    return report
