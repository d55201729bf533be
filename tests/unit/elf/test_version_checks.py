"""elf.version_checks: every byte of a version record that is not as planned is seen, by relink's reader and by pyelftools."""

from __future__ import annotations

import pytest

from relink.elf.arguments import ElfEdit
from relink.elf.image import read_image
from relink.elf.second_reader import differences, planned_needs
from relink.elf.symbol_reader import read_symbols
from relink.elf.version_checks import check_version_edits
from relink.elf.version_edits import VersionEdit, freed_symbols, read_records
from tests.support.elf_builder import build
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
        for place in (record.place, *(item.place for item in record.requirements))
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


@pytest.mark.parametrize("edits", EDITS)
def test_pyelftools_sees_each_change_of_meaning(edits: tuple[VersionEdit, ...]) -> None:
    """Name, hash, weakness and number of each version, and the file of each record."""
    good = edited(edits)
    image = read_image(good, "libuser.so.1")
    needs = planned_needs(read_symbols(build(USER)).verneeds, ElfEdit(versions=edits))
    assert differences(good, image, image.segments, needs) == []
    for record in read_records(good):
        places = [record.place + 4, *(item.place + at for item in record.requirements for at in (0, 4, 6, 8))]
        for place in places:
            data = bytearray(good)
            data[place] ^= 2
            assert differences(data, image, image.segments, needs), place
