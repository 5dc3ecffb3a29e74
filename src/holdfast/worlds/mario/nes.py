"""`Machines`: any number of NES consoles with one cartridge, run in one call.

    machines = Machines(find_rom(), 16)
    machines.run(buttons, frames=4, grey=observations)     # observations [16, 84, 84] uint8
    x = machines.ram[:, 0x6D] * 256 + machines.ram[:, 0x86]

The state of the machines is five arrays with one row a machine (`machine.Bank`); everything that
goes on from a state goes on bit for bit. Threads work on disjoint rows, so their number never
changes a result.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from holdfast.errors import EnvironmentFault
from holdfast.parallel import Threads
from holdfast.worlds.mario.frame import run_range
from holdfast.worlds.mario.machine import (
    HEIGHT,
    HIT,
    JAM,
    PC,
    REGISTERS,
    UNKNOWN,
    WARMUP,
    WIDTH,
    Bank,
    Board,
    Bytes,
    Canvas,
    P,
    S,
    make_canvas,
)
from holdfast.worlds.mario.palette import GREY, PLAIN
from holdfast.worlds.mario.rom import Cartridge

# Buttons, as bits of a pad byte.
A, B, SELECT, START, UP, DOWN, LEFT, RIGHT = (1 << bit for bit in range(8))

STATUS_LINES = 32
"""Height of the status bar of Super Mario Bros, for `top`."""

WARMUP_FRAMES = 1
"""Frames after power-on in which the picture unit does nothing yet, as with FCEUmm in stable-retro."""

State = dict[str, npt.NDArray[np.generic]]
"""The arrays of a bank by name: `[N, ...]` for all machines, `[...]` for one."""

_NO_PICTURES = np.empty((0, HEIGHT, WIDTH), np.uint8)
_NO_GREYS = np.empty((0, 1, 1), np.uint8)


class Machines:
    """N consoles with the same cartridge, freshly switched on."""

    def __init__(self, cartridge: Cartridge, n: int, threads: Threads | None = None) -> None:
        if n < 1:
            raise ValueError(f"the number of machines must be at least 1, not {n}")
        self.cartridge = cartridge
        self.n = n
        self._threads = threads or Threads(1)
        self._canvases: dict[int, Canvas] = {}
        self.board = Board(
            program=cartridge.program,
            pictures=cartridge.pictures,
            pages=np.array(
                [0, 1024, 0, 1024] if cartridge.vertical_mirroring else [0, 0, 1024, 1024], np.int64
            ),
        )
        self.bank = Bank(
            ram=np.zeros((n, 2048), np.uint8),
            vram=np.zeros((n, 2048), np.uint8),
            palette=np.zeros((n, 32), np.uint8),
            sprites=np.zeros((n, 256), np.uint8),
            regs=np.zeros((n, REGISTERS), np.int64),
        )
        for slot in range(n):
            self.power_on(slot)

    @property
    def ram(self) -> Bytes:
        """The 2 KiB of each machine, `[N, 2048]`; writing to it is allowed between runs."""
        return self.bank.ram

    def power_on(self, slot: int) -> None:
        """Switch machine `slot` off and on."""
        for rows in self.bank:
            rows[slot] = 0
        regs, program = self.bank.regs[slot], self.board.program
        regs[PC] = int(program[0x7FFC]) | (int(program[0x7FFD]) << 8)
        regs[S], regs[P] = 0xFD, 0x24
        regs[HIT] = UNKNOWN
        regs[WARMUP] = WARMUP_FRAMES

    def run(
        self,
        buttons: npt.ArrayLike,
        frames: npt.ArrayLike = 1,
        *,
        grey: Bytes | None = None,
        top: int = 0,
        brightest: bool = False,
        picture: Bytes | None = None,
    ) -> None:
        """Hold the pads for some frames, and write what the last frame looks like.

        `buttons` and `frames` are one number for all or `[N]`; a machine with 0 frames stands still
        and its rows of the outputs are not touched. `grey [N, h, w]` receives the area-resized luma
        of the picture from line `top` on (`STATUS_LINES` leaves out the status bar); with
        `brightest`, of the pixel-wise maximum of the last two frames of this call.
        `picture [N, 240, 256]` receives the colour numbers of the last frame.
        """
        # Own arrays, so that their types never vary: every new type would compile everything again.
        pads, counts = np.empty(self.n, np.uint8), np.empty(self.n, np.int64)
        pads[:], counts[:] = buttons, frames
        if not 0 <= top < HEIGHT:
            raise ValueError(f"top must be a line of the picture, 0-{HEIGHT - 1}, not {top}")
        greys = _NO_GREYS if grey is None else self._checked("grey", grey, (HEIGHT - top, WIDTH))
        pictures = _NO_PICTURES
        if picture is not None:
            pictures = self._checked("picture", picture, (HEIGHT, WIDTH))
            if picture.shape[1:] != (HEIGHT, WIDTH):
                raise ValueError(f"picture must be [N, 240, 256], not {picture.shape}")

        def work(lo: int, hi: int) -> None:
            canvas = self._canvas(lo, GREY if picture is None else PLAIN)
            run_range(
                self.bank, self.board, lo, hi, pads, counts,
                canvas, greys, GREY, int(top), bool(brightest), pictures,
            )  # fmt: skip

        self._threads.over(self.n, work)
        if self.bank.regs[:, JAM].any():
            self._report_jam()

    def get_state(self) -> State:
        """Return a copy of all machines: arrays `[N, ...]` by name."""
        return {name: rows.copy() for name, rows in self.bank._asdict().items()}

    def set_state(self, state: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Go on from what `get_state` returned."""
        for name, rows in self.bank._asdict().items():
            rows[...] = self._fitting(state, name, rows.shape)

    def save_machine(self, slot: int) -> State:
        """Return a copy of machine `slot`: its row of each array by name."""
        return {name: rows[slot].copy() for name, rows in self.bank._asdict().items()}

    def load_machine(self, slot: int, state: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Let machine `slot` go on from what `save_machine` returned, here or elsewhere."""
        for name, rows in self.bank._asdict().items():
            rows[slot] = self._fitting(state, name, rows.shape[1:])

    def copy_machine(
        self, state: Mapping[str, npt.NDArray[np.generic]], row: int, slot: int
    ) -> None:
        """Let machine `slot` go on from row `row` of what `get_state` returned (or of a stack)."""
        for name, rows in self.bank._asdict().items():
            rows[slot] = state[name][row]

    def _canvas(self, lo: int, shades: Bytes) -> Canvas:
        """Return the scratch of the thread whose range begins at `lo`, made on its first use."""
        canvas = self._canvases.get(lo)
        if canvas is None:
            canvas = self._canvases[lo] = make_canvas(shades)
        return canvas._replace(shades=shades)

    def _fitting(
        self, state: Mapping[str, npt.NDArray[np.generic]], name: str, shape: tuple[int, ...]
    ) -> npt.NDArray[np.generic]:
        given = state.get(name)
        if given is None or given.shape != shape:
            found = "is missing" if given is None else f"has shape {list(given.shape)}"
            raise ValueError(f"machine state: '{name}' {found}; it must have shape {list(shape)}")
        return given

    def _checked(self, name: str, out: Bytes, largest: tuple[int, int]) -> Bytes:
        if (
            out.dtype != np.uint8
            or out.ndim != 3
            or out.shape[0] != self.n
            or not 0 < out.shape[1] <= largest[0]
            or not 0 < out.shape[2] <= largest[1]
            or not out.flags.c_contiguous
        ):
            raise ValueError(
                f"{name} must be contiguous uint8 [{self.n}, h, w] with h, w up to {largest}, "
                f"not {out.dtype} {list(out.shape)}"
            )
        return out

    def _report_jam(self) -> None:
        slot = int(np.flatnonzero(self.bank.regs[:, JAM])[0])
        byte = int(self.bank.regs[slot, JAM]) & 0xFF
        raise EnvironmentFault(
            f"machine {slot} jammed: byte ${byte:02X} at ${int(self.bank.regs[slot, PC]):04X} is none of "
            f"the 151 official 6502 instructions. A cartridge that needs unofficial ones is not "
            f"supported; if this one is Super Mario Bros, its RAM was changed: load a saved state."
        )
