"""Super Mario Bros itself: every stage boots, and play is what FCEUmm plays.

Needs the user's ROM: `pip install --no-deps gym-super-mario-bros==7.4.0`.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.worlds.mario import boot
from holdfast.worlds.mario.boot import boot_stage, timer_of
from holdfast.worlds.mario.nes import RIGHT, A, B, Machines, State
from holdfast.worlds.mario.rom import Cartridge, find_rom

GOLDEN: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "golden" / "nes_smb.json").read_text()
)


@pytest.fixture(scope="module")
def cartridge() -> Cartridge:
    return find_rom()


@pytest.fixture(scope="module")
def stages(cartridge: Cartridge) -> dict[tuple[int, int], State]:
    return boot.boot_all(cartridge)


def test_all_32_stages_boot_where_they_should(stages: dict[tuple[int, int], State]) -> None:
    assert len(stages) == 32
    for (world, stage), state in stages.items():
        ram = np.asarray(state["ram"], np.uint8)
        assert (ram[boot.WORLD] + 1, ram[boot.STAGE] + 1) == (world, stage)
        assert ram[boot.AREA] + 1 == boot.area_of(world, stage)
        assert int(timer_of(ram)) in (299, 399)
        assert (ram[boot.X_PAGE], ram[boot.X_LOW]) == (0, 40)
        assert (ram[boot.GAME_MODE], ram[boot.PLAYER_STATE]) == (1, 8)


def test_every_stage_is_playable(
    cartridge: Cartridge, stages: dict[tuple[int, int], State]
) -> None:
    machines = Machines(cartridge, 32)
    for slot, state in enumerate(stages.values()):
        machines.load_machine(slot, state)
    timers = timer_of(machines.ram)
    for step in range(30):
        machines.run(RIGHT | (A if step % 8 < 6 else 0), 4)
    x = machines.ram[:, boot.X_PAGE].astype(int) * 256 + machines.ram[:, boot.X_LOW]
    assert (x > 100).all()
    assert (timer_of(machines.ram) < timers).all()


def test_a_stage_that_does_not_exist_is_refused(cartridge: Cartridge) -> None:
    with pytest.raises(ValueError, match="there is no stage 9-1"):
        boot_stage(cartridge, 9, 1)


@pytest.mark.parametrize("name", GOLDEN)
def test_play_has_the_hashes_that_were_verified_against_fceumm(
    cartridge: Cartridge, name: str
) -> None:
    """`bench/nes_conformance.py --golden` wrote these after comparing every frame."""
    episode = GOLDEN[name]
    machines = Machines(cartridge, 1)
    machines.load_machine(0, boot_stage(cartridge, episode["world"], episode["stage"]))
    picture = np.zeros((1, 240, 256), np.uint8)
    presses = [buttons for buttons, frames in episode["presses"] for _ in range(frames)]
    every = episode["every"]
    for frame, buttons in enumerate(presses, 1):
        at_mark = frame % every == 0
        machines.run(buttons, 1, picture=picture if at_mark else None)
        if at_mark:
            digest = hashlib.sha256(machines.ram[0].tobytes() + picture.tobytes()).hexdigest()[:16]
            assert digest == episode["hashes"][frame // every - 1], f"{name}: frame {frame}"


def test_mario_dies_at_the_first_enemy_when_he_only_runs(cartridge: Cartridge) -> None:
    machines = Machines(cartridge, 1)
    machines.load_machine(0, boot_stage(cartridge, 1, 1))
    for _ in range(60):
        machines.run(RIGHT | B, 4)
        if machines.ram[0, boot.PLAYER_STATE] == 0x0B:
            break
    assert machines.ram[0, boot.PLAYER_STATE] == 0x0B
    x = int(machines.ram[0, boot.X_PAGE]) * 256 + int(machines.ram[0, boot.X_LOW])
    assert 250 < x < 350
