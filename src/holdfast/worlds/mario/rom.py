"""The cartridge: where the user's own file is looked for, what is accepted, and what is said if not.

Holdfast ships no game and downloads none. The file is looked for in this order:

    1. the path given (`--rom`)
    2. the environment variable HOLDFAST_ROM
    3. the file that an installed `gym-super-mario-bros` package carries; the package is located,
       never imported, so `pip install --no-deps gym-super-mario-bros==7.4.0` is enough

An iNES file is 16 bytes of header, an optional 512-byte trainer, program banks of 16 KiB and picture
banks of 8 KiB. Accepted is mapper 0 (NROM): one or two program banks, one picture bank.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from holdfast.errors import AssetError
from holdfast.worlds.mario.machine import Bytes

ENV_VARIABLE = "HOLDFAST_ROM"
PACKAGE = "gym_super_mario_bros"
PACKAGE_FILE = "_roms/super-mario-bros.nes"
INSTALL = "pip install --no-deps gym-super-mario-bros==7.4.0"

SUPER_MARIO_BROS = "6b3189414053f975bcac33eb51a1e9991e0d06f42abead7919969417cc26e2ad"
"""SHA-256 of the 40,960 bytes of program and picture data (the header does not count)."""

HEADER_BYTES = 16
TRAINER_BYTES = 512
PROGRAM_BANK = 16 * 1024
PICTURE_BANK = 8 * 1024


@dataclass(frozen=True)
class Cartridge:
    """A mapper-0 cartridge, ready to be put into `Machines`."""

    program: Bytes = field(repr=False)
    """`[32768]`, what the CPU sees at $8000 (a single bank stands there twice)."""
    pictures: Bytes = field(repr=False)
    """`[8192]`, the two pattern tables."""
    vertical_mirroring: bool
    """True: the two name tables lie side by side (the game scrolls across)."""
    sha256: str
    """Hash of program and picture data as they are in the file."""
    source: str
    """Where it came from."""


def find_rom(path: str | None = None, any_rom: bool = False) -> Cartridge:
    """Return the first cartridge of the search order; refuse another game unless `any_rom`."""
    file = _locate(path)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise AssetError(
            f"The ROM file {file} cannot be read: {error.strerror}. {_how_to_give()}"
        ) from error
    cartridge = parse_ines(data, str(file))
    if cartridge.sha256 != SUPER_MARIO_BROS and not any_rom:
        raise AssetError(
            f"{file} is not the Super Mario Bros that Holdfast was checked with.\n"
            f"  found    SHA-256 {cartridge.sha256}\n"
            f"  expected SHA-256 {SUPER_MARIO_BROS}\n"
            "Both are over program and picture data, without the header. Give the expected file "
            "with --rom FILE, or add --any-rom to use this one at your own risk."
        )
    if cartridge.sha256 == SUPER_MARIO_BROS and not cartridge.vertical_mirroring:
        raise AssetError(
            f"{file} has the data of Super Mario Bros under a wrong header: bit 0 of byte 6 says horizontal "
            "mirroring, with which the pictures are wrong. This game has vertical mirroring (the bit is 1). Take a "
            f"file with the right header. {_how_to_give()}"
        )
    return cartridge


def parse_ines(data: bytes, source: str) -> Cartridge:
    """Return the cartridge in the bytes of an iNES file; raise AssetError for what is not mapper 0."""
    if len(data) < HEADER_BYTES or data[:4] != b"NES\x1a":
        raise _refusal(source, f"it is not an iNES file ({_opening(data)})")
    program_banks, picture_banks, flags6, flags7 = data[4], data[5], data[6], data[7]
    # Old tools wrote their names over bytes 7-15; then the high half of the mapper is not to be trusted.
    archaic = flags7 & 0x0C != 0x08 and any(data[12:16])
    mapper = flags6 >> 4 | (0 if archaic else flags7 & 0xF0)
    if mapper != 0:
        raise _refusal(source, f"it needs mapper {mapper}")
    if flags6 & 0x08:
        raise _refusal(source, "it brings its own four-screen video memory")
    if program_banks not in (1, 2):
        raise _refusal(source, f"its header announces {program_banks} program banks of 16 KiB")
    if picture_banks != 1:
        raise _refusal(source, f"its header announces {picture_banks} picture banks of 8 KiB")
    start = HEADER_BYTES + (TRAINER_BYTES if flags6 & 0x04 else 0)
    size = program_banks * PROGRAM_BANK + PICTURE_BANK
    body = data[start : start + size]
    if len(body) < size:
        raise _refusal(
            source, f"it is cut short: {len(data)} bytes, but its header announces {start + size}"
        )
    program = np.frombuffer(body[: program_banks * PROGRAM_BANK], np.uint8)
    return Cartridge(
        program=np.tile(program, 2 // program_banks),
        pictures=np.frombuffer(body[program_banks * PROGRAM_BANK :], np.uint8).copy(),
        vertical_mirroring=bool(flags6 & 0x01),
        sha256=hashlib.sha256(body).hexdigest(),
        source=source,
    )


def package_rom() -> Path | None:
    """Return the file inside an installed gym-super-mario-bros, which is not imported, or None."""
    try:
        spec = importlib.util.find_spec(PACKAGE)
    except (ImportError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        file = Path(folder) / PACKAGE_FILE
        if file.is_file():
            return file
    return None


def _locate(path: str | None) -> Path:
    """Return the file to use: a place that was named must hold it; the package is the last resort."""
    named = [("--rom", path), (ENV_VARIABLE, os.environ.get(ENV_VARIABLE))]
    for origin, name in named:
        if name:
            file = Path(name).expanduser()
            if file.is_file():
                return file
            state = "is a directory" if file.is_dir() else "does not exist"
            raise AssetError(f"The ROM file {file} (from {origin}) {state}. {_how_to_give()}")
    found = package_rom()
    if found is not None:
        return found
    raise AssetError(
        "No Super Mario Bros ROM was found. Looked for, in this order:\n"
        "  1. --rom FILE                       not given\n"
        f"  2. {ENV_VARIABLE}                     not set\n"
        f"  3. {PACKAGE_FILE} in the package gym-super-mario-bros   not installed here\n"
        f"Holdfast ships no game. {_how_to_give()}"
    )


def _how_to_give() -> str:
    return f"Give your own file with --rom FILE or {ENV_VARIABLE}=FILE, or type: {INSTALL}"


def _refusal(source: str, reason: str) -> AssetError:
    return AssetError(
        f"{source} cannot be used: {reason}. Allowed is an iNES file with mapper 0 (NROM), one or two "
        f"16 KiB program banks and one 8 KiB picture bank. {_how_to_give()}"
    )


def _opening(data: bytes) -> str:
    if not data:
        return "it is empty"
    return f"it has {len(data)} bytes and begins with {data[:4].hex(' ')}, not 4e 45 53 1a"
