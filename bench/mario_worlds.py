"""Our mario world with pictures beside gym-super-mario-bros in its usual wrappers: env steps a second.

    make .venv-mario/.ready                          # once: the peer needs NumPy 1 and an environment of its own
    python bench/mario_worlds.py [--games 16] [--turns 7] [--out docs/mario.md]

Both play stage 1-1 with random actions of the simple set, four frames a step, the brighter of the last two frames, grey
84 x 84, stacks of four. They live at the same time and take turns in an order that alternates, so that whatever else the
machine does hits both alike. The figure is the median over the turns, the ratio the ratio of the medians. On a machine that
others use too, sixteen processes get a larger share of it than two threads: there only the steps of a second of processor
time can be compared, which the table has as well. With `--out` it replaces what stands between the markers `worlds`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

import numpy as np
import psutil
from many_runs import insert

from holdfast.worlds.mario import MarioOptions, MarioWorld
from holdfast.worlds.mario.frames import Stacker

ROOT = Path(__file__).parent.parent
BAR = 25.0
Turn = tuple[float, float]
"""Env steps a second of the clock, and of processor time."""


class Ours:
    """The world with threads; frames are stacked as the peer does it, though our learners stack by index."""

    def __init__(self, games: int, threads: int) -> None:
        self.about = f"holdfast, {games} games, {threads} threads"
        self.world = MarioWorld(MarioOptions(games=games, threads=threads), seed=0)
        self.stack = Stacker(games, 4)
        self.stack.begin(self.world.observe()[0])
        self.rng = np.random.default_rng(0)
        self.turn(0.2)

    def turn(self, seconds: float) -> Turn:
        """Step for so long; return env steps by the clock and by processor time."""
        world, began, steps = self.world, time.perf_counter(), 0
        cpu, choices = time.process_time(), len(world.action_names)
        while time.perf_counter() - began < seconds:
            actions = self.rng.integers(0, choices, world.games)
            obs, _, terminated, truncated, _ = world.step(actions)
            self.stack.push(obs, terminated | truncated)
            steps += world.games
        used = time.process_time() - cpu
        return steps / (time.perf_counter() - began), steps / used


class Peer:
    """The process of the peer, which steps when it is told to."""

    def __init__(self, python: Path, games: int) -> None:
        command = [str(python), str(ROOT / "bench" / "peers" / "mario_gym.py"), f"--envs={games}"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        found = self._answer()
        self.about, self.shape = found["about"], found["shape"]
        self.turn(1.0)

    def turn(self, seconds: float) -> Turn:
        """Step for so long; return env steps by the clock and by processor time."""
        send: IO[str] | None = self.process.stdin
        assert send is not None
        cpu = self._cpu()
        send.write(f"{seconds}\n")
        send.flush()
        found = self._answer()
        steps = float(found["steps"])
        return steps / float(found["seconds"]), steps / (self._cpu() - cpu)

    def _cpu(self) -> float:
        """Return the processor time that the process and its workers have used."""
        parent = psutil.Process(self.process.pid)
        used = [p.cpu_times() for p in (parent, *parent.children(recursive=True))]
        return sum(times.user + times.system for times in used)

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit("The peer ended without an answer; what it said stands above.")
        return dict(json.loads(line))

    def close(self) -> None:
        """Let it end."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait(timeout=30)


def table(rows: dict[str, list[Turn]]) -> tuple[str, float, float]:
    """Return a Markdown table, and the ratios of the first medians to the second: by the clock, by processor time."""
    lines = [
        "| world | env steps/s, median | quartiles | a second of one processor |",
        "|---|---|---|---|",
    ]
    medians = []
    for name, found in rows.items():
        low, middle, high = statistics.quantiles([wall for wall, _ in found], n=4)
        by_cpu = statistics.median(cpu for _, cpu in found)
        medians.append((middle, by_cpu))
        lines.append(f"| {name} | {middle:,.0f} | {low:,.0f} to {high:,.0f} | {by_cpu:,.0f} |")
    (ours, ours_cpu), (theirs, theirs_cpu) = medians
    return "\n".join(lines), ours / theirs, ours_cpu / theirs_cpu


def main() -> None:
    """Measure in turns and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--games", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2, help="of our world")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0, help="of one turn")
    parser.add_argument("--peer", default=str(ROOT / ".venv-mario" / "bin" / "python"))
    parser.add_argument("--out", help="Markdown file whose table is replaced")
    args = parser.parse_args()
    if not Path(args.peer).is_file():
        sys.exit(f"There is no {args.peer}. Type: make .venv-mario/.ready")
    ours, peer = Ours(args.games, args.threads), Peer(Path(args.peer), args.games)
    pair: list[Ours | Peer] = [ours, peer]
    rows: dict[str, list[Turn]] = {one.about: [] for one in pair}
    for turn in range(args.turns):
        for one in pair if turn % 2 == 0 else pair[::-1]:
            rows[one.about].append(one.turn(args.seconds))
    peer.close()
    text, ratio, by_cpu = table(rows)
    verdict = f"Ratio of the medians: {ratio:.1f} (bar: {BAR:g}); by processor time {by_cpu:.1f}."
    print(text, verdict, sep="\n\n")
    if args.out:
        insert(Path(args.out), f"{text}\n\n{verdict}", "worlds")


if __name__ == "__main__":
    main()
