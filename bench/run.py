"""Ours and the peers, side by side: `make bench`, or

    .venv-bench/bin/python bench/run.py                       everything; some 100 minutes on two cores
    .venv-bench/bin/python bench/run.py --quick               a smoke run: one small case, one repeat
    .venv-bench/bin/python bench/run.py --only fused,sb3      some contenders or parts
    .venv-bench/bin/python bench/run.py --cases 64x64/1024/2  some cases: hidden/minibatch/threads
    .venv-bench/bin/python bench/run.py --more                what results.jsonl lacks, in a later sitting
    .venv-bench/bin/python bench/run.py --render              the tables anew from bench/results.jsonl

In each case all contenders take turns, each in a process of its own, ours fused before and after everyone else; the
machine's multiply-add limit is measured before and after every update. Writes results.jsonl, RESULTS.md and results.png
beside this file. Nothing here fails because something was slow: the bars are judged in words.
"""

from __future__ import annotations

import argparse
import functools
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))

import parts  # noqa: E402
import picture  # noqa: E402
import table  # noqa: E402
from turns import Player  # noqa: E402

from holdfast.learn.fused_simd import LANES  # noqa: E402

CONTENDERS = {
    "fused": ("ours.py", "fused"),
    "fused-masked": ("ours.py", "fused-masked"),
    "torch": ("ours.py", "torch"),
    "sb3": ("sb3.py", ""),
    "skrl": ("skrl_ppo.py", ""),
    "cleanrl": ("cleanrl_style.py", ""),
    "puffer": ("puffer.py", ""),
    "torchrl": ("torchrl_ppo.py", ""),
    "sf": ("samplefactory.py", ""),
    "jax": ("jax_loop.py", "whole"),
    "jax-one": ("jax_loop.py", "one"),
    "jax-host": ("jax_loop.py", "host"),
}
BURSTS = {"fused": 2, "fused-masked": 2, "jax": 2, "jax-one": 2, "jax-host": 2}
"""Updates of one turn, for contenders whose updates are short. The others have one, and a turn in the first round alone."""
CASES = [f"{h}/{m}/{t}" for h in ("64x64", "256x256") for m in (1024, 8192) for t in (2, 1)]
PARTS = ("worlds", "gae", "checkpoint", "startup", "growth")
PACKAGES = (
    "torch numpy numba gymnasium stable-baselines3 skrl torchrl tensordict pufferlib sample-factory jax"
).split()


def main() -> None:
    os.environ.setdefault("NUMBA_CACHE_DIR", str(ROOT / ".numba_cache" / "bench"))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one small case, one repeat")
    parser.add_argument("--only", default="", help=f"of {', '.join((*CONTENDERS, *PARTS))}")
    parser.add_argument("--cases", default="", help=f"of {', '.join(CASES)}")
    parser.add_argument(
        "--repeats",
        type=int,
        default=0,
        help="rounds of turns (3); slow contenders play in the first",
    )
    parser.add_argument("--games", type=int, default=0, help="games of 25 fish (64)")
    parser.add_argument("--more", action="store_true", help="keep results.jsonl, add what it lacks")
    parser.add_argument("--render", action="store_true", help="only write the tables anew")
    options = parser.parse_args()
    only = options.only.split(",") if options.only else [*CONTENDERS, *PARTS]
    cases = options.cases.split(",") if options.cases else CASES[:1] if options.quick else CASES
    for given, allowed in ((only, (*CONTENDERS, *PARTS)), (cases, CASES)):
        if unknown := [name for name in given if name not in allowed]:
            parser.error(f"unknown: {', '.join(unknown)}. Allowed: {', '.join(allowed)}")
    repeats = options.repeats or (1 if options.quick else 3)
    games = options.games or (8 if options.quick else 64)
    log = HERE / "results.jsonl"
    lines: list[dict[str, Any]] = []
    if options.render or (options.more and log.exists()):
        lines = [json.loads(line) for line in log.read_text().splitlines()]
    if not options.render:
        held = [line for line in lines if not unfinished(line, lines, only, cases)]
        lines = list(held)
        lines.append({"about": describe(options.quick, repeats, games)})
        for line in measure(only, cases, repeats, games, options.quick, held):
            lines.append(line)
            log.write_text("".join(json.dumps(one) + "\n" for one in lines))
            (HERE / "RESULTS.md").write_text(report(lines))
    text = report(lines)
    (HERE / "RESULTS.md").write_text(text)
    picture.draw(lines, HERE / "results.png", any(busy(s) for s in sittings_of(lines)))
    print(text)


def measure(
    only: list[str],
    cases: list[str],
    repeats: int,
    games: int,
    quick: bool,
    held: list[dict[str, Any]],
) -> Any:
    """Yield a line for everything measured that `held` lacks, in the order of measuring."""
    say("kernels")  # compiled now, they are in nobody's memory later
    run("fused", games=8, updates=1, warmup=0)
    absent: dict[str, dict[str, Any]] = {}
    done = {line["case_name"] for line in held if "key" in line}
    for name in cases:
        contenders = contenders_of(name, only)
        if name in done or not contenders:
            continue
        ready = [key for key in contenders if key not in absent]
        for key, record in play(name, ready, repeats, games):
            if record.get("absent"):
                absent[key] = record
            yield {"key": key, "case_name": name, **record}
        for key in (key for key in contenders if key not in ready):
            yield {"key": key, "case_name": name, **absent[key]}
    threads = min(2, os.cpu_count() or 1)

    def run_ours(**settings: Any) -> dict[str, Any]:
        record = run("fused", threads=threads, **settings)
        if "failed" in record:
            raise RuntimeError(record["failed"])
        return record

    parted = {line["part"] for line in held if "part" in line}
    for part in (p for p in PARTS if p in only and p not in parted):
        say(part)
        verdict = ""
        try:
            if part == "worlds":
                rows = parts.worlds(quick)
            elif part == "gae":
                rows = parts.advantages(quick)
            elif part == "checkpoint":
                rows = parts.checkpoints(quick)
            elif part == "startup":
                rows = parts.startup(quick, run_ours)
            else:
                with tempfile.TemporaryDirectory() as directory:
                    begin = functools.partial(start, "fused", Path(directory), threads=threads)
                    rows, verdict = parts.growth(quick, begin)
        except Exception as fault:  # one broken part must not cost the rest of a long run
            rows = [(part, "did not run", f"{type(fault).__name__}: {fault}"[:300])]
        yield {"part": part, "rows": rows, "verdict": verdict}
    yield {"ended": time.strftime("%Y-%m-%d %H:%M:%S"), "load": os.getloadavg()}


def contenders_of(name: str, only: list[str]) -> list[str]:
    """Return who of `only` plays a case: on one thread, JAX has a pool of one thread anyway."""
    alone = table.parse(name)[2] == 1
    return [key for key in CONTENDERS if key in only and not (alone and key == "jax-one")]


def unfinished(
    line: dict[str, Any], lines: list[dict[str, Any]], only: list[str], cases: list[str]
) -> bool:
    """Return whether a line is of a case in which a contender is missing or failed, so that it is played again now."""
    if line.get("case_name") not in cases:
        return False
    case = [other for other in lines if other.get("case_name") == line["case_name"]]
    ran = {other["key"] for other in case if "failed" not in other or other.get("absent")}
    return not ran.issuperset(contenders_of(line["case_name"], only))


def play(
    name: str, contenders: list[str], rounds: int, games: int
) -> list[tuple[str, dict[str, Any]]]:
    """Play one case; return the record of every contender."""
    hidden, minibatch, threads = table.parse(name)
    settings = {
        "hidden": ",".join(map(str, hidden)),
        "minibatch": minibatch,
        "threads": threads,
        "games": games,
        "warmup": 1,
    }
    others = [key for key in contenders if key != table.FUSED]
    turns = others + [key for key in others if key in BURSTS] * (rounds - 1)
    paired = [key for other in turns for key in (table.FUSED, other)]
    schedule = [key for key in (*paired, table.FUSED) if key in contenders]
    players: dict[str, Player] = {}
    # Some peers leave files where they are started.
    with tempfile.TemporaryDirectory() as directory:
        try:
            for key in contenders:
                burst = BURSTS.get(key, 1)
                updates = burst * schedule.count(key)
                say(f"{name} {key}: warm-up")
                players[key] = start(key, Path(directory), **settings, burst=burst, updates=updates)
                if not (players[key].wait() and players[key].turn()):
                    say(f"{name} {key}: ended before its first turn")
            for number, key in enumerate(schedule):
                say(f"{name} turn {number + 1}/{len(schedule)}: {key}")
                players[key].turn(number)
            return [(key, player.record()) for key, player in players.items()]
        finally:
            for player in players.values():
                player.close(kill=True)


def run(key: str, **settings: Any) -> dict[str, Any]:
    """Run one adapter alone, all of its updates at once; return its line, or `{"failed": reason}`."""
    with tempfile.TemporaryDirectory() as directory:
        return start(key, Path(directory), **settings).record()


def start(key: str, directory: Path, **settings: Any) -> Player:
    """Start one adapter in a process of its own."""
    script, variant = CONTENDERS[key]
    arguments = {**settings, "variant": variant} if variant else settings
    threads = str(settings.get("threads", 1))
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "PYTHONWARNINGS": "ignore",
        "WANDB_MODE": "disabled",
    }
    command = [sys.executable, str(HERE / "peers" / script)]
    command += [f"--{name}={value}" for name, value in arguments.items()]
    return Player(command, environment, directory)


def describe(quick: bool, repeats: int, games: int) -> dict[str, Any]:
    """Return what the figures depend on: machine, versions, load."""
    model = "unknown CPU"
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            x.split(":")[1].strip() for x in info.read_text().splitlines() if "model name" in x
        ]
        model = names[0] if names else model
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True
    ).stdout.strip()
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "began": time.strftime("%Y-%m-%d %H:%M:%S"),
        "cpu": model,
        "cores": os.cpu_count(),
        "lanes": LANES,
        "memory_gb": round(memory),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": versions,
        "commit": commit,
        "load": os.getloadavg(),
        "command": " ".join(["bench/run.py", *sys.argv[1:]]),
        "quick": quick,
        "repeats": repeats,
        "games": games,
    }


def sittings_of(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what is known of every sitting in which the lines were measured."""
    return [line["about"] for line in lines if "about" in line]


def busy(about: dict[str, Any]) -> bool:
    """Return whether others used the machine when a sitting began."""
    return bool(about["load"][0] > about["cores"] / 2)


def limits_of(records: list[dict[str, Any]]) -> dict[int, list[float]]:
    """Return all measured limits in GFLOP/s by thread count."""
    limits: dict[int, list[float]] = {}
    for record in records:
        limits.setdefault(table.parse(record["case_name"])[2], []).extend(
            record.get("limit_gflops", [])
        )
    return limits


def report(lines: list[dict[str, Any]]) -> str:
    """Return RESULTS.md from all lines."""
    from holdfast.learn.fused_bench import bench_spec, transition_flops

    sittings = sittings_of(lines)
    ends = [line for line in lines if "ended" in line]
    about = sittings[0]
    records = [line for line in lines if "key" in line]
    out = ["# Bench results", ""]
    if about["quick"]:
        out += [
            "**A smoke run (`--quick`): it shows that everything runs. The figures mean little.**",
            "",
        ]
    if any(busy(sitting) for sitting in sittings):
        out += [
            f"**The machine was busy (load on {about['cores']} cores when this began: below): "
            "ratios are distorted, the bars below are not judged by this run.**",
            "",
        ]
    if "ended" not in lines[-1]:
        out += ["**This run has not ended (or was cut off).**", ""]
    out += [
        f"- {about['cpu']}, {about['cores']} cores, vectors of {about['lanes']} float32 lanes, "
        f"{about['memory_gb']} GB; {about['system']}",
        f"- Python {about['python']}; "
        + ", ".join(f"{k} {v}" for k, v in about["versions"].items()),
        *(
            f"- commit {s['commit']}; `{s['command']}`; began {s['began']}, load "
            + ", ".join(f"{x:.1f}" for x in s["load"])
            for s in sittings
        ),
        *(f"- ended {end['ended']}, load {end['load'][0]:.1f}" for end in ends[-1:]),
        f"- shoal, {about['games']} games x 25 fish, 11 observations, 128 steps, 5 epochs, "
        "each contender in a process of its own, one warm-up update",
        "- contenders take turns, ours fused before and after everyone else. 'Ours fused is': how many times faster it is in the "
        "turns on both sides, the median over a contender's updates",
        "- every adapter counts its world steps and gradient steps and fails unless both are as asked",
        "- transitions/s: median over all timed updates; spread: slowest to fastest. "
        "A CPU second: transitions by processor time of all threads, "
        "which other people's load disturbs less (threads that wait by spinning count). Inference: the rollout without world and advantages",
        "- masks: peers know none and train on all slots; ours does the same here. 'masks on' is ours as it "
        "runs in earnest: dead fish enter no loss, so it does less work for as many transitions",
        "",
    ]
    for threads, several in sorted(limits_of(records).items()):
        if several:
            out.append(
                f"- multiply-add limit, {threads} thread(s): {min(several):.0f} to {max(several):.0f} GFLOP/s, "
                f"median {statistics.median(several):.0f}; measured before and after every timed update, and a "
                "share is the median of an update's rate by the limit beside it. Work is counted as products of rows and "
                "columns; ours makes the three products of a layer of 256x256 or more from seven products of "
                "quarters instead of eight"
            )
    names = table.case_names(records)
    cases = {name: table.rows_of(records, name) for name in names}
    shares: dict[str, float | None] = {}
    for name, rows in cases.items():
        hidden, minibatch, threads = table.parse(name)
        work = transition_flops(bench_spec(hidden), 5)
        out += [
            "",
            f"## {'x'.join(map(str, hidden))} tanh, minibatch {minibatch}, {threads} thread(s)",
            "",
        ]
        out += table.markdown(rows, work)
        if table.FUSED in rows:
            shares[name] = table.share(rows[table.FUSED], work)
    for line in lines:
        if "part" in line:
            titles = dict(zip(PARTS, TITLES, strict=True))
            out += ["", f"## {titles[line['part']]}", "", *parts.table(line["rows"])]
            if line["verdict"]:
                out += ["", line["verdict"]]
    out += ["", "## Bars", ""]
    out += [bar.words for bar in table.bars(cases, shares)]
    out += [
        f"- {line['verdict'] or 'not measured: growth'}"
        for line in lines
        if line.get("part") == "growth"
    ]
    out += [
        "- judged elsewhere: learning to the shoal bar, exact resume and process equality (tests/)",
        "",
        "## Settings of the contenders",
        "",
    ]
    seen = {row.peer: row.settings for rows in cases.values() for row in rows.values() if row.rates}
    out += [f"- **{peer}**: {'; '.join(settings)}" for peer, settings in seen.items()]
    out += [
        "- all: lr 3e-4, gamma 0.99, lambda 0.95, clip 0.2, entropy 0.01, value 0.5, gradient norm 0.5, "
        "Adam; separate actor and critic; the world on one thread; with fewer threads than cores the process "
        "is pinned to that many; OMP_NUM_THREADS = threads",
        "",
    ]
    return "\n".join(out)


TITLES = ("Worlds alone", "Advantages", "Checkpoints", "Start-up", "Growth (64x64, minibatch 1024)")


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
