"""Compare our NES with FCEUmm, frame by frame: RAM and picture, same inputs, from power-on.

FCEUmm runs through stable-retro, which is no dependency of Holdfast: it lives in a virtual
environment of its own and in a process of its own. To repeat the comparison:

    python3.11 -m venv /tmp/venv-retro
    /tmp/venv-retro/bin/pip install stable-retro==1.0.1
    pip install --no-deps gym-super-mario-bros==7.4.0        # or: export HOLDFAST_ROM=FILE
    python bench/nes_conformance.py --frames 2500            # about 10 minutes

Each episode boots one stage with the same presses and RAM writes on both sides and then plays: random
presses (they die), or presses found by a small search on our machine (they clear stages). After
every frame these must be equal:

- all 2,048 bytes of RAM, except the part of the stack below the stack pointer, which no program
  reads, and except bytes that the game has not written since power-on (they are noise in a real machine);
- the 240x224 pixels that FCEUmm shows (it crops 8 pixels on every side): every colour number of
  ours must always meet the same RGB value of theirs.

`--golden FILE` writes hashes of our own RAM and pictures along short verified episodes, for the test
that runs without FCEUmm (`tests/worlds/mario/test_nes_golden.py`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np

CROP = (slice(8, 232), slice(8, 248))
SCREEN_BYTES = 224 * 240 * 3
RETRO_ORDER = (1, None, 2, 3, 4, 5, 6, 7, 0)  # our bit behind each place of retro's button mask

GOLDEN_EVERY = 50
"""Frames between two golden hashes."""

Tape = list[tuple[int, dict[int, int]]]
"""What is done before each frame: buttons held, and RAM cells written."""


# The process that runs FCEUmm: imports nothing of Holdfast.


def serve_reference(rom: str) -> None:
    """Read tapes from stdin, play each from power-on, write RAM and screen of every frame to stdout."""
    import stable_retro  # noqa: F401  (registers the cores)
    from stable_retro._retro import GameDataGlue, RetroEmulator

    emulator, data = RetroEmulator(rom), GameDataGlue()
    emulator.configure_data(data)
    power_on = emulator.get_state()
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while header := source.read(4):
        tape = json.loads(source.read(struct.unpack("<I", header)[0]))
        emulator.set_state(power_on)
        data.update_ram()
        for buttons, pokes in tape:
            for address, value in pokes.items():
                data.memory.assign(int(address), "|u1", value)
            mask = [0 if bit is None else (buttons >> bit) & 1 for bit in RETRO_ORDER]
            emulator.set_button_mask(np.array(mask, np.uint8), 0)
            emulator.step()
            data.update_ram()
            blocks = data.memory.blocks
            sink.write(blocks[0] + blocks[1024] + emulator.get_screen().tobytes())
        sink.flush()


# The process that runs our machine.


class Reference:
    """FCEUmm in its own process."""

    def __init__(self, python: str, rom: str) -> None:
        self._process = subprocess.Popen(
            [python, __file__, "--serve", rom], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def play(self, tape: Tape) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield `(ram [2048], screen [224, 240, 3])` after every frame of the tape."""
        sink: IO[bytes] = self._process.stdin  # type: ignore[assignment]
        source: IO[bytes] = self._process.stdout  # type: ignore[assignment]
        text = json.dumps(tape).encode()
        sink.write(struct.pack("<I", len(text)) + text)
        sink.flush()
        for _ in tape:
            answer = source.read(2048 + SCREEN_BYTES)
            if len(answer) < 2048 + SCREEN_BYTES:
                raise SystemExit("the FCEUmm process died: see its message above")
            cells = np.frombuffer(answer, np.uint8)
            yield cells[:2048], cells[2048:].reshape(224, 240, 3)

    def close(self) -> None:
        self._process.stdin.close()  # type: ignore[union-attr]
        self._process.wait()


@dataclass
class Verdict:
    """What the comparison has found so far."""

    frames: int = 0
    pictures: int = 0
    deaths: int = 0
    clears: int = 0
    ram_differs: list[str] = field(default_factory=list)
    picture_differs: list[str] = field(default_factory=list)
    colours: np.ndarray = field(default_factory=lambda: np.full((64, 3), -1, np.int64))


def record_boot(world: int, stage: int) -> tuple[Any, Tape]:
    """Return a machine at the start of a stage and the tape that brought it there from power-on."""
    from holdfast.worlds.mario import boot
    from holdfast.worlds.mario.nes import START, Machines
    from holdfast.worlds.mario.rom import find_rom

    machines, tape = Machines(find_rom(), 1), Tape()
    ram = machines.ram[0]
    choice = {
        boot.WORLD: world - 1,
        boot.STAGE: stage - 1,
        boot.AREA: boot.area_of(world, stage) - 1,
    }

    def frame(buttons: int, pokes: dict[int, int]) -> None:
        for address, value in pokes.items():
            ram[address] = value
        tape.append((buttons, pokes))
        machines.run(buttons, 1)

    for _ in range(boot.TITLE_FRAMES):
        frame(0, {})
    while ram[boot.GAME_MODE] != boot.PLAYING:
        frame(START, choice)
        frame(0, choice)
    while ram[boot.PLAYER_STATE] != boot.CONTROLLABLE or boot.timer_of(ram) % 100 != 99:
        frame(0, {boot.PRE_LEVEL_TIMER: 0})
    booted = boot.boot_stage(machines.cartridge, world, stage)
    for name, rows in machines.save_machine(0).items():
        if not np.array_equal(rows, booted[name]):
            raise SystemExit(f"this script boots {world}-{stage} otherwise than boot_stage: {name}")
    return machines, tape


def random_presses(rng: np.random.Generator, frames: int) -> list[int]:
    """Return buttons for each frame: mostly rightward, held for a while, now and then anything."""
    from holdfast.worlds.mario.nes import RIGHT, A, B

    presses: list[int] = []
    while len(presses) < frames:
        kind = rng.random()
        buttons = RIGHT | (A if rng.random() < 0.5 else 0) | (B if rng.random() < 0.5 else 0)
        if kind > 0.85:
            buttons = int(rng.integers(256)) & ~0x0C  # neither SELECT nor START
        presses += [buttons] * int(rng.integers(4, 40))
    return presses[:frames]


def searched_presses(machines: Any, rng: np.random.Generator, frames: int) -> list[int]:
    """Return buttons that bring Mario on: of many random plans, the one that gets furthest alive."""
    from holdfast.worlds.mario.nes import Machines

    plans, length = 48, 60
    crowd = Machines(machines.cartridge, plans)
    trail = [machines.save_machine(0)]
    presses: list[int] = []
    stuck = 0
    while len(presses) < frames:
        for slot in range(plans):
            crowd.load_machine(slot, trail[-1])
        plan = np.array([random_presses(rng, length) for _ in range(plans)], np.uint8)
        alive = np.ones(plans, bool)
        for k in range(length):
            crowd.run(plan[:, k], 1)
            alive &= (crowd.ram[:, 0x0E] != 0x0B) & (crowd.ram[:, 0xB5] <= 1)
        ram = crowd.ram.astype(np.int64)
        score = ram[:, 0x6D] * 256 + ram[:, 0x86] + 10_000 * (ram[:, 0x75F] * 4 + ram[:, 0x75C])
        score += 5_000 * (ram[:, 0x1D] == 3)
        if not alive.any():
            stuck += 1
            back = min(len(trail) - 1, stuck)
            del trail[len(trail) - back :]
            del presses[len(trail) * (length // 2) - length // 2 :]
            if stuck > 12:
                break
            continue
        best = int(np.argmax(np.where(alive, score, -1)))
        slot = Machines(machines.cartridge, 1)
        slot.load_machine(0, trail[-1])
        for k in range(length // 2):
            slot.run(int(plan[best, k]), 1)
        trail.append(slot.save_machine(0))
        presses += [int(b) for b in plan[best, : length // 2]]
        stuck = max(0, stuck - 1) if len(trail) % 4 == 0 else stuck
    return presses


def compare(reference: Reference, tape: Tape, verdict: Verdict, where: str) -> list[str]:
    """Play the tape on both sides, add to the verdict, return a hash of our state at every frame."""
    from holdfast.worlds.mario.machine import S
    from holdfast.worlds.mario.nes import Machines
    from holdfast.worlds.mario.rom import find_rom

    machines = Machines(find_rom(), 1)
    picture = np.zeros((1, 240, 256), np.uint8)
    ram = machines.ram[0]
    written = np.zeros(2048, bool)
    hashes, dying, level = [], False, None
    for frame, (theirs, screen) in enumerate(reference.play(tape)):
        buttons, pokes = tape[frame]
        before = ram.copy()
        for address, value in pokes.items():
            ram[address] = value
        machines.run(buttons, 1, picture=picture)
        written |= ram != before
        verdict.frames += 1
        compared = written.copy()
        compared[0x100 : 0x101 + int(machines.bank.regs[0, S])] = False
        wrong = np.flatnonzero((ram != theirs) & compared)
        if wrong.size:
            cells = ", ".join(f"${a:04X} {ram[a]:02X}/{theirs[a]:02X}" for a in wrong[:6])
            verdict.ram_differs.append(f"{where} frame {frame}: {cells}")
        ours = picture[0][CROP]
        verdict.pictures += 1
        for colour in np.unique(ours):
            if verdict.colours[colour, 0] < 0:
                y, x = np.argwhere(ours == colour)[0]
                verdict.colours[colour] = screen[y, x]
        unequal = (verdict.colours[ours] != screen).any(axis=2)
        if unequal.any():
            y, x = np.argwhere(unequal)[0]
            verdict.picture_differs.append(
                f"{where} frame {frame}: {int(unequal.sum())} pixels, first at line {y + 8} column {x + 8}"
            )
        hashes.append(hashlib.sha256(ram.tobytes() + picture.tobytes()).hexdigest()[:16])
        now_dying = bool(ram[0x0E] == 0x0B or ram[0xB5] > 1) and ram[0x770] == 1
        verdict.deaths += now_dying and not dying
        dying = now_dying
        stage = (int(ram[0x75F]), int(ram[0x75C]))
        verdict.clears += level is not None and stage > level and ram[0x770] != 0 and frame > 300
        level = stage
    return hashes


def main() -> None:
    """Run the comparison and exit 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--serve", metavar="ROM", help=argparse.SUPPRESS)
    parser.add_argument(
        "--python", default="/tmp/venv-retro/bin/python", help="python with stable-retro"
    )
    parser.add_argument(
        "--stages", default="1-1,1-2,2-2,3-1,4-3,5-4,6-1,7-2,8-1,8-4", help="stages to play"
    )
    parser.add_argument("--frames", type=int, default=1500, help="frames of play an episode")
    parser.add_argument("--seeds", type=int, default=1, help="random episodes a stage")
    parser.add_argument(
        "--searched", default="1-1,3-1,4-1,2-3", help="stages also played by search"
    )
    parser.add_argument("--searched-frames", type=int, default=2500, help="frames of each of those")
    parser.add_argument("--golden", help="write hashes of short episodes to this file")
    args = parser.parse_args()
    if args.serve:
        serve_reference(args.serve)
        return
    from holdfast.worlds.mario.rom import find_rom

    reference = Reference(args.python, find_rom().source)
    verdict = Verdict()
    began = time.perf_counter()
    golden: dict[str, Any] = {}

    def play(name: str, how: str, seed: int, frames: int) -> None:
        world, stage = (int(part) for part in name.split("-"))
        machines, tape = record_boot(world, stage)
        rng = np.random.default_rng([world, stage, seed])
        if how == "searched":
            presses = searched_presses(machines, rng, frames)
        else:
            presses = random_presses(rng, frames)
        tape += [(buttons, {}) for buttons in presses]
        hashes = compare(reference, tape, verdict, f"{name} {how} {seed}")
        booted = len(tape) - len(presses)
        golden[f"{name} {how} {seed}"] = {
            "world": world,
            "stage": stage,
            "presses": run_lengths(presses),
            "every": GOLDEN_EVERY,
            "hashes": hashes[booted + GOLDEN_EVERY - 1 :: GOLDEN_EVERY],
        }
        print(
            f"{name} {how} {seed}: {len(tape)} frames, {verdict.deaths} deaths and {verdict.clears} clears so "
            f"far, RAM differs on {len(verdict.ram_differs)}, picture on {len(verdict.picture_differs)}",
            flush=True,
        )

    for seed in range(args.seeds):
        for name in args.stages.split(","):
            play(name, "random", seed, args.frames)
    for name in filter(None, args.searched.split(",")):
        play(name, "searched", 0, args.searched_frames)
    reference.close()
    for line in (*verdict.ram_differs[:20], *verdict.picture_differs[:20]):
        print(line)
    print(
        f"{verdict.frames} frames, {verdict.deaths} deaths, {verdict.clears} clears in "
        f"{time.perf_counter() - began:.0f} s: RAM differs on {len(verdict.ram_differs)} frames, "
        f"picture on {len(verdict.picture_differs)} of {verdict.pictures}"
    )
    failed = bool(verdict.ram_differs or verdict.picture_differs)
    if args.golden and not failed:
        with open(args.golden, "w") as file:
            file.write("{\n")
            lines = (f"{json.dumps(name)}: {json.dumps(golden[name])}" for name in golden)
            file.write(",\n".join(lines) + "\n}\n")
    sys.exit(1 if failed else 0)


def run_lengths(presses: list[int]) -> list[list[int]]:
    """Return `[buttons, frames]` pairs."""
    pairs: list[list[int]] = []
    for buttons in presses:
        if pairs and pairs[-1][0] == buttons:
            pairs[-1][1] += 1
        else:
            pairs.append([buttons, 1])
    return pairs


if __name__ == "__main__":
    main()
