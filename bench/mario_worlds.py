"""Our mario world with pictures beside gym-super-mario-bros in its usual wrappers: env steps a second.

    make .venv-mario/.ready                          # once: the peer needs NumPy 1 and an environment of its own
    python bench/mario_worlds.py [--games 16] [--turns 7] [--out docs/mario.md]

Both play stage 1-1 with random actions of the simple set, four frames a step, the brighter of the last two frames, grey
84 x 84, stacks of four. They live at the same time and take turns in an order that alternates, so that whatever else the
machine does hits both alike. The figure is the median over the turns, the ratio the ratio of the medians. With `--out` the
table replaces the one between the marks `<!-- worlds -->` in that file.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import numpy as np

from holdfast.worlds.mario import MarioOptions, MarioWorld
from holdfast.worlds.mario.frames import Stacker

ROOT = Path(__file__).parent.parent
BAR = 25.0
MARK = "<!-- worlds -->"


class Ours:
    """The world with threads; frames are stacked as the peer does it, though our learners stack by index."""

    def __init__(self, games: int, threads: int) -> None:
        self.about = f"holdfast, {games} games, {threads} threads"
        self.world = MarioWorld(MarioOptions(games=games, threads=threads), seed=0)
        self.stack = Stacker(games, 4)
        self.stack.begin(self.world.observe()[0])
        self.rng = np.random.default_rng(0)
        self.turn(0.2)

    def turn(self, seconds: float) -> float:
        """Step for so long; return env steps a second."""
        world, began, steps = self.world, time.perf_counter(), 0
        choices = len(world.action_names)
        while time.perf_counter() - began < seconds:
            actions = self.rng.integers(0, choices, world.games)
            obs, _, terminated, truncated, _ = world.step(actions)
            self.stack.push(obs, terminated | truncated)
            steps += world.games
        return steps / (time.perf_counter() - began)


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

    def turn(self, seconds: float) -> float:
        """Step for so long; return env steps a second."""
        send: IO[str] | None = self.process.stdin
        assert send is not None
        send.write(f"{seconds}\n")
        send.flush()
        found = self._answer()
        return float(found["steps"]) / float(found["seconds"])

    def _answer(self) -> dict[str, object]:
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


def table(rows: dict[str, list[float]]) -> tuple[str, float]:
    """Return a Markdown table of medians and quartiles, and the ratio of the first median to the second."""
    lines = ["| world | env steps/s, median | quartiles |", "|---|---|---|"]
    medians = []
    for name, found in rows.items():
        low, middle, high = statistics.quantiles(found, n=4)
        medians.append(middle)
        lines.append(f"| {name} | {middle:,.0f} | {low:,.0f} to {high:,.0f} |")
    return "\n".join(lines), medians[0] / medians[1]


def put(path: Path, text: str) -> None:
    """Replace what stands between two marks of the file."""
    page = path.read_text()
    if page.count(MARK) != 2:
        sys.exit(f"{path} needs the mark {MARK} twice, before and after the table.")
    between = re.compile(re.escape(MARK) + ".*" + re.escape(MARK), re.DOTALL)
    path.write_text(between.sub(lambda _: f"{MARK}\n{text}\n{MARK}", page))


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
    rows: dict[str, list[float]] = {one.about: [] for one in pair}
    for turn in range(args.turns):
        for one in pair if turn % 2 == 0 else pair[::-1]:
            rows[one.about].append(one.turn(args.seconds))
    peer.close()
    text, ratio = table(rows)
    verdict = f"Ratio of the medians: {ratio:.1f} (bar: {BAR:g})."
    print(text, verdict, sep="\n\n")
    if args.out:
        put(Path(args.out), f"{text}\n\n{verdict}")


if __name__ == "__main__":
    main()
