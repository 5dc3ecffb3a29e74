"""The parts alone: worlds, advantages, checkpoints, start-up, growth. Each returns rows of (what, figure, note)."""

from __future__ import annotations

import itertools
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from turns import Player

Rows = list[tuple[str, str, str]]
Runner = Callable[..., dict[str, Any]]
"""Runs ours.py with these case settings and returns its record."""
Starter = Callable[..., Player]
"""Starts ours.py with these case settings."""
FLAT = 1.05
"""Costs whose ratio is not above this count as equal."""


def worlds(quick: bool) -> Rows:
    """Step worlds alone with random actions, resets and observations included."""
    import numpy as np

    import holdfast

    cases: list[tuple[str, str, dict[str, Any]]] = [
        ("shoal, 256 games x 25, 11 observations", "shoal", {"games": 256, "fish": 25}),
        (
            "shoal, 256 games x 25, neighbours",
            "shoal",
            {"games": 256, "fish": 25, "neighbors": True},
        ),
        ("pursuit, 256 games x 2", "pursuit", {"games": 256}),
    ]
    seconds, repeats = (0.3, 1) if quick else (1.0, 3)
    rows: Rows = []
    for text, name, options in cases:
        for threads in (1, 2):
            world = holdfast.make(name, seed=0, threads=threads, **options)
            obs, _ = world.reset(seed=0)
            n = world.num_envs
            world.action_space.seed(0)
            actions = [world.action_space.sample() for _ in range(8)]
            out = (obs, np.zeros(n), np.zeros(n, bool), np.zeros(n, bool), np.ones(n, bool))
            world.step_into(actions[0], *out)
            rates = []
            for _ in range(repeats):
                count, began = 0, time.perf_counter()
                while (spent := time.perf_counter() - began) < seconds:
                    world.step_into(actions[count % 8], *out)
                    count += 1
                rates.append(count * n / spent)
            world.close()
            rows.append(
                (
                    f"{text}, {threads} thread(s)",
                    f"{statistics.median(rates) / 1e6:.1f} M steps/s",
                    "slots x steps",
                )
            )
    return rows


def advantages(quick: bool) -> Rows:
    """GAE and V-trace of one rollout of 128 steps x 1600 slots."""
    import numpy as np

    from holdfast.learn.returns import gae
    from holdfast.learn.vtrace_kernels import vtrace

    steps, slots = 128, 1600
    rng = np.random.default_rng(0)
    rewards = rng.normal(size=(steps, slots))
    values = rng.normal(size=(steps + 1, slots)).astype(np.float32)
    ends, cuts = rng.random((2, steps, slots)) < 0.01
    final = np.zeros((steps, slots), np.float32)
    out, returns = np.empty((2, steps, slots), np.float32)
    mask = np.ones((steps + 1, slots), bool)
    facts = (ends, cuts, final, 0.99, 0.95)
    weights = (0.1 * rng.normal(size=(steps, slots))).astype(np.float32)
    rows: Rows = []
    for what, kernel, args in (
        ("GAE", gae, (rewards, values, mask, *facts, out, returns)),
        ("V-trace", vtrace, (weights, mask, rewards, values, *facts, 1.0, 1.0, out, returns)),
    ):
        kernel(*args)
        times = []
        for _ in range(5 if quick else 30):
            began = time.perf_counter()
            kernel(*args)
            times.append(time.perf_counter() - began)
        took = statistics.median(times)
        note = f"{steps * slots / took / 1e6:.0f} M transitions/s, one thread"
        rows.append((f"{what}, 128 x 1600", f"{took * 1e3:.2f} ms", note))
    return rows


def checkpoints(quick: bool) -> Rows:
    """Save and load a learner of 64x64 and 256x256 with a world of 64 games, fsync and hashes included."""
    import holdfast
    from holdfast.learn.learner import make_learner
    from holdfast.learn.options import LearnerConfig
    from holdfast.learn.spec import spec_for
    from holdfast.rng import Streams
    from holdfast.store.checkpoint import Checkpoints

    rows: Rows = []
    for hidden in ((64, 64), (256, 256)):
        world = holdfast.make("shoal", seed=0, games=64, fish=25)
        spec = spec_for(
            world.single_observation_space, world.single_action_space, hidden, "tanh", False
        )
        learner = make_learner(
            spec, LearnerConfig(hidden=hidden, threads=1), Streams(0), world.num_envs
        )
        state = {"learner": learner.state_dict(), "world": world.state_dict()}
        saves, loads, size = [], [], 0
        with tempfile.TemporaryDirectory() as directory:
            store = Checkpoints(Path(directory))
            for k in range(3 if quick else 10):
                began = time.perf_counter()
                saved = store.save(k, state, {}, frozenset())
                saves.append(time.perf_counter() - began)
                began = time.perf_counter()
                faults = saved.problems()
                saved.load()
                loads.append(time.perf_counter() - began)
                assert not faults, faults
                size = sum(f.stat().st_size for f in saved.path.rglob("*") if f.is_file())
        rows.append(
            (
                f"checkpoint, {hidden[0]}x{hidden[1]}, 64 games",
                f"save {statistics.median(saves) * 1e3:.0f} ms, check and load {statistics.median(loads) * 1e3:.0f} ms",
                f"{size / 1024:,.0f} KB; fsync and SHA-256 included",
            )
        )
    return rows


def startup(quick: bool, run_ours: Runner) -> Rows:
    """Process starts: the help text, the import, the first update with kernels from the disk cache."""
    repeats = 2 if quick else 5
    program = Path(sys.executable).with_name("holdfast")
    commands = {
        "`holdfast --help`": [str(program), "--help"],
        "`import holdfast`": [sys.executable, "-c", "import holdfast"],
        "`import holdfast; holdfast.make`": [
            sys.executable,
            "-c",
            "import holdfast; holdfast.make",
        ],
        "python alone": [sys.executable, "-c", ""],
    }
    rows: Rows = []
    for text, command in commands.items():
        times = []
        for _ in range(repeats):
            began = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            times.append(time.perf_counter() - began)
        rows.append(
            (text, f"{statistics.median(times):.2f} s", f"median of {repeats}, process included")
        )
    times, compiled = [], 0.0
    for _ in range(repeats):
        began = time.perf_counter()
        record = run_ours(games=8, updates=1, warmup=0)
        times.append(time.perf_counter() - began)
        compiled = max(compiled, record.get("compile_s", 0.0))
    rows.append(
        (
            "first training update, 8 games, warm kernel cache",
            f"{statistics.median(times):.2f} s",
            f"process start to update done; {compiled:.1f} s of it compiling",
        )
    )
    return rows


def growth(quick: bool, start_ours: Starter) -> tuple[Rows, str]:
    """Ours fused over the number of games; return the rows and the verdict in words.

    Sizes take turns, up and down, and one is compared with the next larger in turns that follow each other.
    """
    sizes, sweeps = ((1, 4, 16, 64), 1) if quick else ((1, 4, 16, 64, 256), 8)
    schedule = [*sizes, *sizes[-2:0:-1]] * sweeps + [sizes[0]]
    players: dict[int, Player] = {}
    try:
        for games in sizes:
            burst = max(1, min(8, 256 // games))
            updates = burst * schedule.count(games)
            players[games] = start_ours(games=games, uneven=1, burst=burst, updates=updates)
            players[games].wait()
            players[games].turn()
        for number, games in enumerate(schedule):
            players[games].turn(number)
        records = {games: player.record() for games, player in players.items()}
    finally:
        for player in players.values():
            player.close(kill=True)
    rows: Rows = []
    for games, record in records.items():
        if "failed" in record:
            raise RuntimeError(record["failed"])
        cost = 1e6 / statistics.median(record["transitions_per_s"])
        rows.append(
            (
                f"{games} games ({games * 25} slots)",
                f"{cost:.2f} us a transition",
                f"{1e6 / cost / 1000:,.0f}k transitions/s, {record['rss_mb']:,.0f} MB at most",
            )
        )
    return rows, growth_verdict(records, schedule)


def growth_verdict(records: dict[int, dict[str, Any]], schedule: list[int]) -> str:
    """Say whether a size costs more a transition than the one before it, by the medians of turns side by side."""
    costs: dict[int, list[float]] = {}
    for record in records.values():
        for turn, rate in zip(record["turns"], record["transitions_per_s"], strict=True):
            costs.setdefault(turn, []).append(1e6 / rate)
    told, met = [], True
    for small, large in itertools.pairwise(sorted(records)):
        found = []
        for turn, pair in enumerate(itertools.pairwise(schedule)):
            if sorted(pair) == [small, large]:
                first, second = (statistics.median(costs[t]) for t in (turn, turn + 1))
                found.append(second / first if pair[0] == small else first / second)
        ratio = statistics.median(found)
        met = met and ratio <= FLAT
        told.append(f"{large} games cost {ratio:.2f} of what {small} do")
    words = (
        "met: cost a transition falls or stays flat" if met else "NOT MET: cost a transition rises"
    )
    return f"{words} (up to {FLAT:g} counts as flat): {'; '.join(told)}"


def table(rows: Rows) -> list[str]:
    """Return the rows as Markdown."""
    return ["| | | |", "|---|--:|---|", *(f"| {a} | {b} | {c} |" for a, b, c in rows)]
