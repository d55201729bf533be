"""elf.version_checks: every byte of a version record that is not as planned is seen, by relink's reader."""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.elf.edit import ElfEdit, result_of
from relink.elf.image import read_image
from relink.elf.symbol_reader import read_symbols
from relink.elf.version_checks import check_version_edits
from relink.elf.version_edits import VersionEdit, freed_symbols, read_records
from tests.support.cc import shared
from tests.support.edits import apply_edit
from tests.support.elf_builder import build
from tests.support.pyelftools_reader import differences, planned_needs
from tests.unit.elf.test_version_edits import FREED, RENAMED, USER, edited

EDITS = [(), RENAMED, FREED]


def issues(data: bytearray, edits: tuple[VersionEdit, ...]) -> list[str]:
    return [*check_version_edits(build(USER), data, ElfEdit(versions=edits))]


@pytest.mark.parametrize("edits", EDITS)
def test_a_good_edit_passes(edits: tuple[VersionEdit, ...]) -> None:
    assert issues(edited(edits), edits) == []


@pytest.mark.parametrize("edits", EDITS)
def test_each_changed_byte_of_an_entry_is_seen(edits: tuple[VersionEdit, ...]) -> None:
    good = edited(edits)
    places = [
        place
        for record in read_records(good)
        for place in (record.at, *(item.at for item in record.versions))
    ]
    for place in places:
        for at in range(place, place + 16):
            for mask in (0x01, 0x02, 0x10, 0x80, 0xFF):
                data = bytearray(good)
                data[at] ^= mask
                assert issues(data, edits), (at - place, mask)


@pytest.mark.parametrize("edits", EDITS)
def test_each_changed_version_number_is_seen(edits: tuple[VersionEdit, ...]) -> None:
    good = edited(edits)
    first = min(freed_symbols(build(USER), FREED).values()) - 2
    for number in range(len(USER.imports) + len(USER.exports) + 1):
        for mask in (1, 2, 0x80):
            data = bytearray(good)
            data[first + 2 * number + mask // 0x80] ^= mask
            assert issues(data, edits), (number, mask)


@pytest.mark.parametrize("planned", EDITS)
@pytest.mark.parametrize("made", EDITS)
def test_another_edit_than_was_planned(
    planned: tuple[VersionEdit, ...], made: tuple[VersionEdit, ...]
) -> None:
    assert bool(issues(edited(made), planned)) == (planned != made)


def test_of_a_real_file_that_exports_nothing(tmp_path: Path) -> None:
    """GNU ld's hash table then says nothing of how many symbols there are."""
    script = tmp_path / "v.map"
    script.write_text("AMD_1 { global: one; };")
    old = shared(
        tmp_path / "libold.so.1", "int one(void){return 1;}", flags=[f"-Wl,--version-script={script}"]
    )
    hidden = tmp_path / "hidden.map"
    hidden.write_text("{ local: *; };")
    source = "int one(void); int uses(void){return one();}"
    new = shared(tmp_path / "libnew.so.1", "int one(void){return 1;}")
    user = shared(
        tmp_path / "u.so",
        source,
        needed=[old, new],
        flags=[f"-Wl,--version-script={hidden}", "-Wl,--no-gc-sections"],
    )
    data = user.read_bytes()
    edit = ElfEdit(
        remove=("libold.so.1",),
        versions=(VersionEdit("libold.so.1", "AMD_1", "libnew.so.1", "AMD_1", weak=True, unversioned=True),),
    )
    image, table = read_image(data, "u.so"), read_symbols(data)
    after = apply_edit(user, edit, image, data)
    result = user.read_bytes()
    assert [(symbol.name, symbol.index) for symbol in read_symbols(result).imports] == [("one", 1)]
    needs = planned_needs(table.verneeds, edit)
    assert differences(result, result_of(image, edit), after.segments, needs) == []
