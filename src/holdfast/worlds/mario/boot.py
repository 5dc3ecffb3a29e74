"""Booting a stage of Super Mario Bros: from power-on to the first frame that the player controls.

The game is started with START while RAM is told which world, stage and area to load; the "WORLD 1-1"
screen is cut short; then the machine idles until the level timer has begun to fall. What comes out
is a snapshot: loading it is what a reset is.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from holdfast.errors import AssetError, EnvironmentFault
from holdfast.worlds.mario.nes import START, Machines, State
from holdfast.worlds.mario.rom import Cartridge

WORLDS, STAGES = range(1, 9), range(1, 5)

# Addresses in RAM.
PLAYER_STATE = 0x000E
X_PAGE, X_LOW = 0x006D, 0x0086
GAME_MODE = 0x0770
WORLD, STAGE, AREA = 0x075F, 0x075C, 0x0760
PRE_LEVEL_TIMER = 0x07A0
TIMER_DIGITS = slice(0x07F8, 0x07FB)

WORLDS_WITH_INTRO = (1, 2, 4, 7)
"""Worlds whose stages 2, 3 and 4 are areas 3, 4 and 5: an area where Mario walks into a pipe comes first."""

PATIENCE = 2000
"""Frames after which booting has failed."""

TITLE_FRAMES = 60
"""Frames in which the game clears its RAM and shows its title."""

CONTROLLABLE = 0x08
PLAYING = 1


def area_of(world: int, stage: int) -> int:
    """Return the number of the area in which this stage begins, counted from 1."""
    return stage + 1 if world in WORLDS_WITH_INTRO and stage >= 2 else stage


def timer_of(ram: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Return the level timer `[...]` of RAM `[..., 2048]`."""
    digits = ram[..., TIMER_DIGITS].astype(np.int64)
    timer: npt.NDArray[np.int64] = digits @ np.array([100, 10, 1])
    return timer


def boot_stage(cartridge: Cartridge, world: int, stage: int) -> State:
    """Return the machine at the start of this stage: playable, its timer just fallen by one."""
    if world not in WORLDS or stage not in STAGES:
        raise ValueError(f"there is no stage {world}-{stage}: worlds are 1-8, stages 1-4")
    try:
        return _boot(cartridge, world, stage)
    except EnvironmentFault as error:  # the file is at fault, not the machine
        raise AssetError(
            f"Stage {world}-{stage} did not boot: {error} The cartridge is {cartridge.source}. Only the checked Super "
            "Mario Bros boots; leave out --any-rom, or give that file with --rom."
        ) from None


def _boot(cartridge: Cartridge, world: int, stage: int) -> State:
    machines = Machines(cartridge, 1)
    ram = machines.ram[0]

    def choose_stage() -> None:
        ram[WORLD], ram[STAGE], ram[AREA] = world - 1, stage - 1, area_of(world, stage) - 1

    machines.run(0, TITLE_FRAMES)
    frames = TITLE_FRAMES
    while ram[GAME_MODE] != PLAYING and frames < PATIENCE:
        for buttons in (START, 0):
            choose_stage()
            machines.run(buttons, 1)
        frames += 2
    highest = 0
    while frames < PATIENCE:
        ram[PRE_LEVEL_TIMER] = 0
        machines.run(0, 1)
        frames += 1
        timer = int(timer_of(ram))
        if ram[PLAYER_STATE] == CONTROLLABLE and 0 < timer < highest:
            break
        highest = max(highest, timer) if ram[PLAYER_STATE] == CONTROLLABLE else 0
    loaded = (int(ram[WORLD]) + 1, int(ram[STAGE]) + 1)
    if loaded != (world, stage) or ram[GAME_MODE] != PLAYING or ram[PLAYER_STATE] != CONTROLLABLE:
        raise EnvironmentFault(
            f"after {frames} frames the game is in {loaded[0]}-{loaded[1]}, mode {ram[GAME_MODE]}, player state "
            f"{ram[PLAYER_STATE]}, timer {int(timer_of(ram))}."
        )
    return machines.save_machine(0)


def boot_all(cartridge: Cartridge) -> dict[tuple[int, int], State]:
    """Return the 32 starts by (world, stage)."""
    return {(w, s): boot_stage(cartridge, w, s) for w in WORLDS for s in STAGES}
