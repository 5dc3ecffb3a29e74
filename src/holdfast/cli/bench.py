"""`holdfast bench`: measure speed on this machine."""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

from holdfast.cli.answer import answer
from holdfast.cli.settings import at_least, overrides
from holdfast.errors import ConfigError


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("world", "learner"), help="what to measure")
    parser.add_argument("name", nargs="?", default="", help="the world (shoal if none is named)")
    parser.add_argument("--world", default="", help="the world, said in another way")
    parser.add_argument("--hidden", default="64,64", help="hidden widths (bench learner)")
    parser.add_argument("--minibatch", type=int, default=1024, help="samples a gradient step")
    parser.add_argument("--learners", default="fused,torch", help="implementations to compare")
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="time of one measurement (bench world)"
    )
    parser.add_argument("--repeats", type=int, default=3, help="interleaved repetitions")
    parser.epilog = (
        "Examples:\n  holdfast bench world shoal\n"
        "  holdfast bench learner --world shoal --hidden 64,64 --minibatch 1024 --learners fused,torch"
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    settings = overrides(rest)
    at_least(args, repeats=1, seconds=0.001, minibatch=2)
    if args.name and args.world and args.name != args.world:
        raise ConfigError(
            f"bench {args.what} got two worlds, '{args.name}' and --world {args.world}. Name one of them."
        )
    args.world = args.name or args.world or "shoal"
    report = bench_world(args, settings) if args.what == "world" else bench_learner(args, settings)
    if args.json:
        answer(report)
    else:
        for name, row in report.items():
            print(name, "  ".join(f"{key} {_text(value)}" for key, value in row.items()))
    return 0


def _text(value: float | int) -> str:
    return f"{value:.3g}" if isinstance(value, float) and value < 10 else f"{value:,.0f}"


def bench_world(args: argparse.Namespace, settings: list[tuple[str, Any]]) -> dict[str, Any]:
    """Step a world alone with random actions, observations and resets included."""
    import numpy as np

    from holdfast.config import resolve
    from holdfast.worlds import make_world

    base = [("games", "256"), ("fish", "25")] if args.world == "shoal" else []
    config = resolve(args.world, [*base, *settings])
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
    return {args.world: row}


def bench_learner(args: argparse.Namespace, settings: list[tuple[str, Any]]) -> dict[str, Any]:
    """Collect and update with each learner in turn, interleaved, on the same world."""
    from holdfast.collect import whole
    from holdfast.config import resolve
    from holdfast.learn.fused_bench import LearnerBench, take_turns
    from holdfast.learn.learner import make_learner
    from holdfast.learn.spec import spec_from
    from holdfast.rng import Streams
    from holdfast.worlds import make_world
    from holdfast.worlds.contract import World

    base = [
        ("learner.steps", "128"),
        ("learner.epochs", "5"),
        ("learner.hidden", args.hidden),
        ("learner.minibatch", str(args.minibatch)),
    ]
    worlds: list[World] = []
    benches: dict[str, LearnerBench] = {}
    try:
        for kind in args.learners.split(","):
            config = resolve(args.world, [*base, *settings, ("learner.kind", kind)])
            world = make_world(config.world.name, config.world.options)
            worlds.append(world)
            world.reset(seed=0)
            spec = spec_from(
                config.learner,
                world.single_observation_space,
                world.single_action_space,
                world.frame_stack,
                world.sensors,
                world.truth_size,
            )
            learner = make_learner(spec, config.learner, Streams(0), world.num_envs)
            collector = whole(world, learner)
            rollout = collector.seats[0].rollout
            benches[kind] = LearnerBench(learner, rollout, collector.collect)
        found = take_turns(benches, args.repeats)
    finally:
        for world in worlds:
            world.close()
    # The share of the limit is left out: slots without a decision cost the learner nothing.
    return {
        kind: {
            "transitions_per_s": row["transitions_per_s"],
            "transitions_per_s_best": row["transitions_per_s_best"],
            "collect_s": row["inference_s"],
            "update_s": row["update_s"],
            "threads": int(row["threads"]),
        }
        for kind, row in found.items()
    }
