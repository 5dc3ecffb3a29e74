"""The cartridge: where it is looked for, what is refused and what the message says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from holdfast.errors import AssetError
from holdfast.worlds.mario import rom
from holdfast.worlds.mario.rom import SUPER_MARIO_BROS, find_rom, package_rom, parse_ines


def ines(
    program_banks: int = 2,
    picture_banks: int = 1,
    flags6: int = 0x01,
    flags7: int = 0,
    tail: bytes = bytes(8),
    trainer: bytes = b"",
    body: bytes | None = None,
) -> bytes:
    """Return the bytes of an iNES file whose bank k is filled with k + 1."""
    header = b"NES\x1a" + bytes([program_banks, picture_banks, flags6, flags7]) + tail
    if body is None:
        banks = [bytes([k + 1]) * 0x4000 for k in range(program_banks)]
        body = b"".join(banks) + b"\xaa" * 0x2000 * picture_banks
    return header + trainer + body


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(rom.ENV_VARIABLE, raising=False)
    monkeypatch.setattr(rom, "PACKAGE", "holdfast_no_such_package")


def test_two_program_banks_fill_the_upper_half() -> None:
    cartridge = parse_ines(ines(), "x.nes")
    assert cartridge.program.shape == (32768,)
    assert (cartridge.program[0], cartridge.program[0x4000]) == (1, 2)
    assert cartridge.pictures.tolist() == [0xAA] * 8192
    assert cartridge.vertical_mirroring


def test_one_program_bank_stands_there_twice() -> None:
    cartridge = parse_ines(ines(1, flags6=0), "x.nes")
    assert (cartridge.program == 1).all()
    assert cartridge.program.shape == (32768,)
    assert not cartridge.vertical_mirroring


def test_a_trainer_is_skipped_and_does_not_change_the_hash() -> None:
    with_trainer = parse_ines(ines(flags6=0x05, trainer=b"\x77" * 512), "x.nes")
    assert with_trainer.sha256 == parse_ines(ines(), "x.nes").sha256
    assert with_trainer.program[0] == 1


def test_bytes_behind_the_banks_are_ignored() -> None:
    assert parse_ines(ines() + b"junk", "x.nes").sha256 == parse_ines(ines(), "x.nes").sha256


def test_a_name_written_over_an_old_header_is_no_mapper_number() -> None:
    cartridge = parse_ines(ines(flags7=ord("D"), tail=b"iskDude!"), "x.nes")
    assert cartridge.program[0] == 1


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it is empty"),
        (b"NES", "it has 3 bytes and begins with 4e 45 53"),
        (b"PK\x03\x04" + bytes(100), "begins with 50 4b 03 04, not 4e 45 53 1a"),
        (ines()[:-1], "cut short: 40975 bytes, but its header announces 40976"),
        (ines()[:16], "cut short: 16 bytes"),
        (ines(flags6=0x05), "cut short: 40976 bytes, but its header announces 41488"),
        (ines(flags6=0x11), "it needs mapper 1"),
        (ines(flags7=0x40), "it needs mapper 64"),
        (ines(flags6=0x09), "four-screen"),
        (ines(0), "0 program banks"),
        (ines(4), "4 program banks"),
        (ines(2, 0), "0 picture banks"),
        (ines(2, 2), "2 picture banks"),
    ],
)
def test_a_file_that_is_no_mapper_0_cartridge_is_refused_with_the_reason(
    data: bytes, reason: str
) -> None:
    with pytest.raises(AssetError) as caught:
        parse_ines(data, "some/file.nes")
    message = str(caught.value)
    assert reason in message
    assert "some/file.nes cannot be used" in message
    assert "mapper 0 (NROM)" in message
    assert "--rom FILE" in message
    assert caught.value.exit_code == 3


def test_another_game_is_refused_with_both_hashes_unless_any_rom(tmp_path: Path) -> None:
    file = tmp_path / "other.nes"
    file.write_bytes(ines())
    with pytest.raises(AssetError) as caught:
        find_rom(str(file))
    message = str(caught.value)
    assert parse_ines(ines(), "").sha256 in message
    assert SUPER_MARIO_BROS in message
    assert "--any-rom" in message
    assert find_rom(str(file), any_rom=True).source == str(file)


@pytest.mark.usefixtures("nothing_installed")
def test_a_missing_rom_is_an_error_with_the_whole_search_path() -> None:
    with pytest.raises(AssetError) as caught:
        find_rom()
    message = str(caught.value)
    for part in ("--rom", "HOLDFAST_ROM", "gym-super-mario-bros", rom.INSTALL):
        assert part in message
    assert caught.value.exit_code == 3


@pytest.mark.usefixtures("nothing_installed")
def test_the_path_given_comes_before_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("given", "variable"):
        (tmp_path / f"{name}.nes").write_bytes(ines())
    monkeypatch.setenv(rom.ENV_VARIABLE, str(tmp_path / "variable.nes"))
    assert find_rom(None, any_rom=True).source.endswith("variable.nes")
    assert find_rom(str(tmp_path / "given.nes"), any_rom=True).source.endswith("given.nes")


def test_a_named_file_that_is_not_there_is_an_error_and_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AssetError, match=r"from --rom\) does not exist"):
        find_rom(str(tmp_path / "none.nes"))
    with pytest.raises(AssetError, match=r"from --rom\) is a directory"):
        find_rom(str(tmp_path))
    monkeypatch.setenv(rom.ENV_VARIABLE, str(tmp_path / "none.nes"))
    with pytest.raises(AssetError, match=r"from HOLDFAST_ROM\) does not exist"):
        find_rom()


def test_the_rom_of_the_installed_package_is_found_without_importing_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(rom.ENV_VARIABLE, raising=False)
    cartridge = find_rom()
    assert cartridge.sha256 == SUPER_MARIO_BROS
    assert cartridge.source == str(package_rom())
    assert rom.PACKAGE not in sys.modules


def test_the_right_data_under_a_header_with_wrong_mirroring_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rom, "SUPER_MARIO_BROS", parse_ines(ines(), "x.nes").sha256)
    right, wrong = tmp_path / "right.nes", tmp_path / "wrong.nes"
    right.write_bytes(ines())
    wrong.write_bytes(ines(flags6=0))
    assert find_rom(str(right)).vertical_mirroring
    for any_rom in (False, True):
        with pytest.raises(AssetError, match=r"wrong\.nes.*byte 6.*vertical mirroring"):
            find_rom(str(wrong), any_rom)
