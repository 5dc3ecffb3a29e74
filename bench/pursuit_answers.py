"""Pursuit games whose answer is known, and how strong the sides become: the tables of docs/pursuit.md.

    python bench/pursuit_answers.py                        # everything; see docs/pursuit.md for how long
    python bench/pursuit_answers.py --only chauffeur       # one of: chauffeur, faster, strength
    python bench/pursuit_answers.py --quick                # tiny runs: shows that it works, says nothing
    python bench/pursuit_answers.py --out docs/pursuit.md  # puts the tables between their markers

    chauffeur   a learned pair against the dynamic-programming value on a grid of starts (bar: within 10 %)
    faster      a pursuer 1.5 times as fast: capture 1.00, and a best-response evader escapes 0.00
    strength    an evader against greedy escapes >= 0.98; a pursuer against that frozen evader captures >= 0.95

Finished runs are taken from --runs-dir, and unfinished ones go on where they stood.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from many_runs import holdfast, insert, side_by_side, trained

from holdfast.learn.restore import learner_states, policy_of
from holdfast.records import F64, Array
from holdfast.run import RunDirectory
from holdfast.selfplay.duel import duel
from holdfast.selfplay.players import Ready, Side, prepare
from holdfast.worlds.pursuit import PursuitOptions, PursuitWorld
from holdfast.worlds.pursuit.chauffeur import Chauffeur, ChauffeurPolicy, solve
from holdfast.worlds.pursuit.policies import Scripted

CONFIGS = Path(__file__).resolve().parent.parent / "configs" / "pursuit"
ROLES = ("pursuer", "evader")
GAMES = 5000
MEASURE_SEED = 20_260_103
SPEC_STARTS = ((2, 0), (3, 1), (0, 1), (0, 2), (-1, 0), (-2, 0), (-1, 1), (1.5, -2))
QUICK = (
    "--updates 2 --games 16 --steps 32 --hidden 16,16 --minibatch 128 --stagger 0 --max-steps 60 "
    "--probe.episodes 4"
).split()
Record = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Train what is missing, measure everything, print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=list(ANSWERS), help="one answer instead of all")
    parser.add_argument("--quick", action="store_true", help="tiny runs")
    parser.add_argument("--seeds", type=int, default=5, help="training seeds (default 5)")
    parser.add_argument("--jobs", type=int, default=2, help="runs at once, one thread each")
    parser.add_argument("--runs-dir", default="runs/answers", help="where the runs are kept")
    parser.add_argument("--out", default="", help="Markdown file with the markers to fill")
    args = parser.parse_args(argv)
    runs = Path(args.runs_dir) / ("quick" if args.quick else "full")
    for name in [args.only] if args.only else list(ANSWERS):
        make, tell = ANSWERS[name]
        jobs = [
            (f"{name}, seed {seed}", partial(kept, runs, name, seed, make, args.quick))
            for seed in range(1, args.seeds + 1)
        ]
        text = tell(side_by_side(jobs, args.jobs))
        if args.quick:
            text += "\n\n**Made with --quick: it shows that the command works and says nothing.**"
        print(f"\n{text}\n")
        if args.out:
            insert(Path(args.out), text, name)
    return 0


def kept(
    runs: Path, name: str, seed: int, make: Callable[[Path, int, bool], Record], quick: bool
) -> Record:
    """Return the record of one seed, made first unless it is there."""
    path = runs / f"{name}-s{seed}.json"
    if not path.is_file():
        found = make(runs, seed, quick)
        path.write_text(json.dumps({"seed": seed, **found}))
    return dict(json.loads(path.read_text()))


def run(runs: Path, config: str, seed: int, quick: bool, *more: str) -> RunDirectory:
    """Return a run of one of our configs, trained to its end on one thread."""
    words = ["--seed", str(seed), "--learner.threads", "1", *more, *(QUICK if quick else ())]
    return RunDirectory(trained(runs, f"{config}-s{seed}", CONFIGS / f"{config}.toml", words))


def side(directory: RunDirectory, role: str) -> Side:
    """Return what the run's last policy plays."""
    return policy_of(learner_states(directory.checkpoints().find(None))[role])


def rate(pursuer: Side, evader: Side, options: PursuitOptions, quick: bool) -> Record:
    """Return the capture rate of a pair on seeds that no training has seen."""
    found = duel(pursuer, evader, options, 64 if quick else GAMES, MEASURE_SEED).rate
    return {"value": found.value, "low": found.low, "high": found.high}


# --- the homicidal chauffeur ---------------------------------------------------------------------


def chauffeur(runs: Path, seed: int, quick: bool) -> Record:
    """Return the largest and mean deviations from the value, for the pair and for each side against the table."""
    directory = run(runs, "chauffeur", seed, quick)
    table = solve(cell=0.2, sweeps=30) if quick else solve()
    starts = grid(table)
    values = np.array([table.value(x, y) for x, y in starts])
    options = directory.config().world.options
    learned = {role: prepare(side(directory, role)) for role in ROLES}
    known = {role: ChauffeurPolicy(table, role) for role in ROLES}
    found: Record = {"starts": len(starts)}
    for name, pair in (
        ("pair", (learned["pursuer"], learned["evader"])),
        ("pursuer", (learned["pursuer"], known["evader"])),
        ("evader", (known["pursuer"], learned["evader"])),
    ):
        off = capture_times(table, options, starts, pair) / values - 1.0
        found[name] = {
            "mean": float(np.abs(off).mean()),
            "worst": float(off[np.abs(off).argmax()]),
            "at": list(starts[int(np.abs(off).argmax())]),
            "within": float((np.abs(off) <= 0.10).mean()),
        }
    return found


def grid(table: Chauffeur) -> list[tuple[float, float]]:
    """Return the starts: the spec's eight, and every half metre up to 3 m outside of 0.75 m."""
    line = np.arange(-3.0, 3.01, 0.5)
    plane = [(float(x), float(y)) for x in line for y in line if np.hypot(x, y) > 0.75]
    return [*((float(x), float(y)) for x, y in SPEC_STARTS), *plane]


def capture_times(
    table: Chauffeur,
    options: PursuitOptions,
    starts: Sequence[tuple[float, float]],
    pair: tuple[Ready | ChauffeurPolicy, Ready | ChauffeurPolicy],
) -> F64:
    """Return the seconds to capture from each start; an escape counts as the time limit."""
    from dataclasses import replace

    world = PursuitWorld(replace(options, games=len(starts)))
    world.queue_starts(range(0, world.num_envs, 2), [table.start(x, y) for x, y in starts])
    obs, _ = world.reset(seed=0)
    actions = np.zeros((world.num_envs, 1), np.float32)
    times = np.full(len(starts), np.nan)
    begun = np.ones(len(starts), np.bool_)
    while np.isnan(times).any():
        for me, player in enumerate(pair):
            write(player, world, me, obs, begun, actions)
        obs, *_, info = world.step(actions)
        begun[:] = False
        for episode in info.get("episodes", ()):
            begun[episode.game] = True
            if np.isnan(times[episode.game]):
                times[episode.game] = episode.steps * options.dt
    world.close()
    return times


def write(
    player: Ready | ChauffeurPolicy,
    world: PursuitWorld,
    me: int,
    obs: Array,
    begun: Array,
    actions: Array,
) -> None:
    """Write the actions of one role."""
    if isinstance(player, ChauffeurPolicy):
        player.write(world, actions)
    else:
        actions[me::2] = player.play(world, np.ascontiguousarray(obs[me::2]), None, begun)


def tell_chauffeur(found: Sequence[Record]) -> str:
    """Return the table of the chauffeur."""
    lines = [
        "| seed | learned pair: mean deviation | largest | starts within 10 % | learned pursuer, table evader: "
        "mean, largest | table pursuer, learned evader: mean, largest |",
        "|---|---|---|---|---|---|",
    ]
    for one in found:
        pair = one["pair"]
        cells = [f"{pair['mean']:.1%}", f"{pair['worst']:+.1%} at {tuple(pair['at'])}"]
        cells.append(f"{pair['within']:.0%}")
        cells += [
            f"{one[k]['mean']:.1%}, {one[k]['worst']:+.1%} at {tuple(one[k]['at'])}" for k in ROLES
        ]
        lines.append(f"| {one['seed']} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"{found[0]['starts']} starts; deviation is T / V - 1."])


# --- a faster pursuer ----------------------------------------------------------------------------


def faster(runs: Path, seed: int, quick: bool) -> Record:
    """Return the pair's capture rate, and that against the best evader found."""
    directory = run(runs, "faster", seed, quick)
    options = directory.config().world.options
    pair = rate(side(directory, "pursuer"), side(directory, "evader"), options, quick)
    scripted = rate(
        Scripted("greedy", "pursuer"), side(directory, "evader"), options, quick
    )  # what check 2 of the spec proves for any evader
    effort = ["--steps", "1000" if quick else "2000000", "--games", "64" if quick else str(GAMES)]
    said = holdfast(
        *("exploit", directory.name, "--checkpoints", "0", "--json", "--no-report"),
        *effort,
        *("--runs-dir", str(runs)),
    )
    measured = json.loads(said)["exploitability"][-1]
    return {"pair": pair, "scripted": scripted, "best_evader": measured["evader"]["sr_p"]}


def tell_faster(found: Sequence[Record]) -> str:
    """Return the table of the faster pursuer."""
    lines = [
        "| seed | capture, the pair | capture, scripted pursuer and learned evader | escape of the best evader found |",
        "|---|---|---|---|",
    ]
    for one in found:
        best = one["best_evader"]
        escape = f"{1 - best['value']:.4f} [{1 - best['high']:.4f}, {1 - best['low']:.4f}]"
        cells = [interval_of(one["pair"]), interval_of(one["scripted"]), escape]
        lines.append(f"| {one['seed']} | {' | '.join(cells)} |")
    return "\n".join(lines)


# --- strength ------------------------------------------------------------------------------------


def strength(runs: Path, seed: int, quick: bool) -> Record:
    """Return what the evader escapes of greedy, and what a pursuer then catches of that evader."""
    prey = run(runs, "escape", seed, quick)
    options = prey.config().world.options
    evader = side(prey, "evader")
    escaped = rate(Scripted("greedy", "pursuer"), evader, options, quick)
    straight = rate(Scripted("pure_pursuit", "pursuer"), evader, options, quick)
    hunter = run(runs, "hunt", seed, quick, "--selfplay.evader", f"run:{prey.name}")
    caught = rate(side(hunter, "pursuer"), evader, options, quick)
    return {"greedy": escaped, "pure_pursuit": straight, "hunter": caught}


def tell_strength(found: Sequence[Record]) -> str:
    """Return the table of strengths."""
    lines = [
        "| seed | evader escapes greedy | the same evader, pure pursuit | pursuer catches that evader |",
        "|---|---|---|---|",
    ]
    for one in found:
        cells = [turned(one["greedy"]), turned(one["pure_pursuit"]), interval_of(one["hunter"])]
        lines.append(f"| {one['seed']} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"{GAMES} games each; brackets are 95 % intervals."])


def interval_of(record: Record) -> str:
    """Return a rate with its interval."""
    return f"{record['value']:.4f} [{record['low']:.4f}, {record['high']:.4f}]"


def turned(record: Record) -> str:
    """Return the rate of the other side."""
    ends = {"value": "value", "low": "high", "high": "low"}
    return interval_of({name: 1.0 - record[of] for name, of in ends.items()})


ANSWERS: dict[str, tuple[Callable[[Path, int, bool], Record], Callable[[Sequence[Record]], str]]]
ANSWERS = {
    "chauffeur": (chauffeur, tell_chauffeur),
    "faster": (faster, tell_faster),
    "strength": (strength, tell_strength),
}

if __name__ == "__main__":
    raise SystemExit(main())
